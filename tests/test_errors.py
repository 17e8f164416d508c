"""Errors reach whoever asked for the work, also from another process."""

from __future__ import annotations

import pickle

import pytest

from shardline.errors import (
    BadRecordsError,
    ColumnError,
    CondemnedShardError,
    DamagedFileError,
    DamagedLogError,
    ExampleError,
    FileExistsAlreadyError,
    KernelUnavailableError,
    ObjectMissingError,
    SchemaMismatchError,
    ShardlineError,
)

ERRORS = [
    BadRecordsError("2 rows do not fit", ("line 1",), 2, 10),
    ColumnError(3, "label", "holds bytes values, not int64"),
    CondemnedShardError("went to vacuum", ("v1.tfrecord",)),
    DamagedFileError("a.tfrecord", "data-crc", 3, 70, "does not match"),
    DamagedLogError("digits/v1", 7, "it is missing"),
    ExampleError(1, 2, "label", "twice"),
    FileExistsAlreadyError(17, "exists"),
    KernelUnavailableError("not built"),
    ObjectMissingError("no such object"),
    SchemaMismatchError("another schema"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_it_was_sent(error: ShardlineError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, just made
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
