"""Errors after a commit: they report what the operation has committed."""

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
    """Return a label: `digits/v1 entry 3`."""
    return f"{entry.label} entry {entry.number}"


@contextmanager
def report_partial_commit(operation: str, done: Sequence[str]) -> Iterator[None]:
    """Convert storage errors to IncompleteOperationError, which lists what is `done` so far."""
    try:
        yield
    except IncompleteOperationError:
        raise
    except StorageError as error:
        if not done:
            raise
        incomplete = make_incomplete_error(
            IncompleteOperationError,
            f"{operation} committed {', '.join(done)}",
            error,
            "run again, which does the rest",
        )
        incomplete.done = tuple(done)
        raise incomplete from error


def make_incomplete_error(
    kind: type[Incomplete], done: str, error: ShardlineError, remedy: str
) -> Incomplete:
    """Return the error of an operation that failed after it changed something."""
    hint = Hint.of(remedy)
    return kind(
        f"{done}, then failed: {error.message}",
        hint=hint if error.hint is None else Hint.of(error.hint, "; then ", hint),
        path=error.path,
        version=error.version,
        snapshot=error.snapshot,
    )
