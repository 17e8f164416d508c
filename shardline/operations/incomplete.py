"""Errors that come after a commit: they say what was done before them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardline.errors import IncompleteOperationError, StorageError
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.entry import Entry


def entry_label(entry: Entry) -> str:
    """Name an entry: `digits/v1 entry 3`."""
    return f"{entry.shown} entry {entry.number}"


@contextmanager
def after_commit(operation: str, done: Sequence[str]) -> Iterator[None]:
    """Make an error of the storage name what an operation has `done`, which may still grow."""
    try:
        yield
    except IncompleteOperationError:
        raise
    except StorageError as error:
        if not done:
            raise
        again = Hint.of("run again, which does the rest")
        incomplete = IncompleteOperationError(
            f"{operation} committed {', '.join(done)}, then failed: {error.message}",
            hint=again if error.hint is None else Hint.of(error.hint, "; then ", again),
            path=error.path,
            version=error.version,
            snapshot=error.snapshot,
        )
        incomplete.done = tuple(done)
        raise incomplete from error
