"""What the kernel refuses in some records of a file, told with the file and the record's number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import ColumnError, DamagedFileError, ExampleError
from shardline.operations.verify import example_fault
from shardline.tfrecord.reader import Block

if TYPE_CHECKING:
    from shardline.errors import ShardlineError
    from shardline.readers.picked import Picked


def placed(path: str, records: Block | Picked, error: ExampleError | ColumnError) -> ShardlineError:
    """The error to raise: its record is the number in the file, and the file is named."""
    here = error.record
    if isinstance(records, Block):
        if isinstance(error, ExampleError):
            return DamagedFileError.of(path, example_fault(records, here, error))
        number = records.record + here
    else:
        number = int(records.numbers[here])
    detail = f"{error.detail} ({path})"
    found: ExampleError | ColumnError
    if isinstance(error, ExampleError):
        found = ExampleError(number, error.offset, error.feature, detail)
    else:
        found = ColumnError(number, error.feature, detail, code=error.code, hint=error.hint)
    found.path = path
    return found
