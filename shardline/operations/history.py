"""The history of a version, newest entry first: as much of its log as is asked for, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import DamagedLogError
from shardline.log.entry import read_entry
from shardline.operations.verify_log import LogProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.entry import Entry
    from shardline.log.log import Log

_BATCH = 64


def history(log: Log, count: int | None = None) -> Iterator[Entry | LogProblem]:
    """The last `count` entries, or all; in the place of one that cannot be read, why not.

    Each entry is checked by itself. Whether they hang together is for `verify_log` to say.
    """
    last = log.head_number()
    newer: list[Entry | LogProblem] = []
    try:
        newer += log.entries(last + 1)  # committed while the head was sought
    except DamagedLogError as error:
        newer.append(LogProblem(error.entry, error.detail, error.kind))
    if count is not None:
        newer = newer[-count:] if count else []
    yield from reversed(newer)
    first = 1 if count is None else max(1, last - (count - len(newer)) + 1)
    for top in range(last, first - 1, -_BATCH):
        numbers = range(top, max(first, top - _BATCH + 1) - 1, -1)
        found = log.store.read_many([log.entry_name(number) for number in numbers])
        for number, data in zip(numbers, found, strict=True):
            yield _read(log, number, data)


def _read(log: Log, number: int, data: bytes | None) -> Entry | LogProblem:
    if data is None:
        return LogProblem(number, "it is missing", "missing-entry")
    try:
        return read_entry(log.shown, number, data)
    except DamagedLogError as error:
        return LogProblem(number, error.detail, error.kind)
