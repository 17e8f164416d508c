"""Errors that come after a commit: they say what was done before them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from shardline.errors import IncompleteOperationError, StorageError
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.errors import ShardlineError
    from shardline.log.entry import Entry

Incomplete = TypeVar("Incomplete", bound=IncompleteOperationError)


def format_entry_label(entry: Entry) -> str:
    """Name an entry: `digits/v1 entry 3`."""
    return f"{entry.shown} entry {entry.number}"


@contextmanager
def report_partial_commit(operation: str, done: Sequence[str]) -> Iterator[None]:
    """Make an error of the storage name what an operation has `done`, which may still grow."""
    try:
        yield
    except IncompleteOperationError:
        raise
    except StorageError as error:
        if not done:
            raise
        what = f"{operation} committed {', '.join(done)}"
        again = "run again, which does the rest"
        incomplete = make_incomplete_error(IncompleteOperationError, what, error, again)
        incomplete.done = tuple(done)
        raise incomplete from error


def make_incomplete_error(
    kind: type[Incomplete], done: str, error: ShardlineError, again: str
) -> Incomplete:
    """Build the error of an operation that changed something before it failed."""
    hint = Hint.of(again)
    return kind(
        f"{done}, then failed: {error.message}",
        hint=hint if error.hint is None else Hint.of(error.hint, "; then ", hint),
        path=error.path,
        version=error.version,
        snapshot=error.snapshot,
    )
