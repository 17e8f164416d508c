"""Prove a version's log: every entry as it was written, in its place, its claims true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import DamagedLogError
from shardline.log.checkpoint import CheckpointError, read_checkpoint
from shardline.log.entry import read_entry
from shardline.log.log import CHECKPOINT_NAME, ENTRY_NAME
from shardline.log.next_entry import claims
from shardline.log.state import BRINGS_BACK, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.log.entry import Entry
    from shardline.log.log import Log

_BATCH = 64


@dataclass(frozen=True, slots=True)
class LogProblem:
    """What is wrong with an entry of a log, or with the checkpoint made at it."""

    entry: int
    detail: str


@dataclass(frozen=True, slots=True)
class LogReport:
    """What proving a log found."""

    entries: int
    checkpoints: int
    problems: tuple[LogProblem, ...]


def verify_log(log: Log) -> LogReport:
    """Read every entry and checkpoint; nothing is changed."""
    leaves = [info.name.rpartition("/")[2] for info in log.store.list(log.folder)]
    numbers = sorted(int(match[1]) for leaf in leaves if (match := ENTRY_NAME.fullmatch(leaf)))
    marks = sorted(int(match[1]) for leaf in leaves if (match := CHECKPOINT_NAME.fullmatch(leaf)))
    last = numbers[-1] if numbers else 0
    missing = sorted(set(range(1, last + 1)) - set(numbers))
    problems = [LogProblem(number, "it is missing") for number in missing]
    problems += [
        LogProblem(mark, f"there is a checkpoint of it, but the log ends at entry {last}")
        for mark in marks
        if mark > last
    ]
    problems += [
        LogProblem(int(match[1]), "a folder has its name")
        for name in log.store.folders(log.folder)
        if (match := ENTRY_NAME.fullmatch(name))
    ]
    before: Entry | None = None
    state = State(log.dataset, log.version)
    for number, found in _read(log, numbers):
        if isinstance(found, str):
            problems.append(LogProblem(number, found))
        else:
            problems += _misfits(state, before, found, number, sound=not problems)
            if number in marks and not problems:
                problems += _checkpoint_problems(log, state, number)
        before = None if isinstance(found, str) else found
    return LogReport(len(numbers), len(marks), tuple(sorted(problems, key=lambda p: p.entry)))


def _read(log: Log, numbers: list[int]) -> Iterator[tuple[int, Entry | str]]:
    """Each entry, or what is wrong with it by itself."""
    for first in range(0, len(numbers), _BATCH):
        batch = numbers[first : first + _BATCH]
        found = log.store.read_many([log.entry_name(number) for number in batch])
        for number, data in zip(batch, found, strict=True):
            try:
                yield number, read_entry(log.shown, number, data or b"")
            except DamagedLogError as error:
                yield number, error.detail


def _misfits(
    state: State, before: Entry | None, entry: Entry, number: int, *, sound: bool
) -> Iterable[LogProblem]:
    """What is wrong with an entry in its place: behind the one before, and in its claims."""
    if not sound:
        if before is not None and entry.previous != before.digest:
            yield LogProblem(number, f"it does not follow entry {before.number}")
        return
    earlier = state.fork()
    try:
        state.apply(entry)
        told = claims(earlier, state, entry)
        back = _changed_on_the_way(earlier, entry)
    except DamagedLogError as error:
        yield LogProblem(number, error.detail)
    except ValueError as error:
        yield LogProblem(number, str(error))
    else:
        if back:
            yield LogProblem(number, f"it brings back shard {back[0]} as another than it was")
        for name, value in told.items():
            if getattr(entry, name) != value:
                yield LogProblem(number, f"its {name!r} is not what the entries up to it amount to")


def _changed_on_the_way(before: State, entry: Entry) -> list[str]:
    """The shards that an entry brings back with other facts than they had."""
    if entry.operation not in BRINGS_BACK:
        return []
    added = {one.shard.name: one.shard for one in entry.added}
    known = before.stays.named(list(added))
    return [name for name, stay in known.items() if stay.shard != added[name]]


def _checkpoint_problems(log: Log, state: State, number: int) -> Iterable[LogProblem]:
    try:
        kept = read_checkpoint(log.store, log.checkpoint_name(number), log.dataset, log.version)
        same = (kept.number, kept.digest) == (number, state.digest) and all(
            mine.to_table().equals(its.to_table())
            for mine, its in (
                (state.stays, kept.stays),
                (state.timeline, kept.timeline),
                (state.sources, kept.sources),
                (state.shard_names, kept.shard_names),
            )
        )
        facts = ("published", "totals", "content", "snapshot", "tags", "pins", "policies", "bits")
        same = same and all(getattr(state, name) == getattr(kept, name) for name in facts)
    except CheckpointError as error:
        yield LogProblem(number, f"its checkpoint is damaged: {error}; delete it, nothing is lost")
        return
    if not same:
        yield LogProblem(
            number, "its checkpoint says something else than the log; delete it, nothing is lost"
        )
