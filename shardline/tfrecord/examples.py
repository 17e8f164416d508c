"""Validation of Example payloads, with errors that name file, record and offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline import kernel
from shardline.errors import ColumnError, CorruptFileError, ExampleError, Fault
from shardline.kernel.types import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.errors import ShardlineError
    from shardline.tfrecord.input_file import Source
    from shardline.tfrecord.record_block import RecordBlock


def validate_examples(source: Source, block: RecordBlock) -> None:
    """Raise CorruptFileError for the first payload of a block that is not an Example."""
    for fault in find_example_faults(block):
        raise CorruptFileError.of(str(source), fault)


def find_example_faults(block: RecordBlock) -> Iterator[Fault]:
    """Yield the faults of payloads that are not Examples."""
    first = 0
    while first < len(block.starts):
        try:
            kernel.validate(block.data, block.starts[first:], block.lengths[first:])
        except ExampleError as error:
            number = first + error.record
            yield build_example_error(block, number, error)
            first = number + 1
        else:
            return


def build_example_error(block: RecordBlock, number: int, error: ExampleError) -> Fault:
    """Build the fault for an invalid payload, the `number`th of the block, in its file."""
    offset = block.offset + int(block.starts[number]) - HEADER_BYTES
    named = "" if error.feature is None else f"feature {error.feature!r}: "
    detail = f"{named}{error.detail}, at byte {error.offset} of the payload"
    return Fault("example", block.record + number, offset, detail)


def add_location(
    path: str, block: RecordBlock, error: ExampleError | ColumnError
) -> ShardlineError:
    """Return the error with the file and the number of the record in the file."""
    if block.selected is None and isinstance(error, ExampleError):
        return CorruptFileError.of(path, build_example_error(block, error.record, error))
    number = int(block.numbers[error.record])
    detail = f"{error.detail} ({path})"
    located: ExampleError | ColumnError
    if isinstance(error, ExampleError):
        located = ExampleError(number, error.offset, error.feature, detail)
    else:
        located = ColumnError(number, error.feature, detail, code=error.code, hint=error.hint)
    located.path = path
    return located
