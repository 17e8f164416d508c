"""Prove a version's log: every entry as it was written, in its place, its claims true."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from shardline.errors import CorruptLogError
from shardline.log.checkpoint import CheckpointError, matches_replay, read_checkpoint
from shardline.log.entry import read_entry
from shardline.log.log import CHECKPOINT_NAME, ENTRY_NAME
from shardline.log.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shardline.errors import LogFault
    from shardline.log.entry import Entry
    from shardline.log.log import Log


_BATCH = 64


@dataclass(frozen=True, slots=True)
class LogProblem:
    """What is wrong with an entry of a log, or with the checkpoint made at it."""

    entry: int
    detail: str
    kind: LogFault = "edited-entry"


@dataclass(frozen=True, slots=True)
class LogReport:
    """What proving a log found."""

    entries: int
    checkpoints: int
    problems: tuple[LogProblem, ...]


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """A log that was read whole, and what it amounts to, up to the first entry that is not sound.

    If it is `whole`, every entry is sound.
    """

    report: LogReport
    ledger: Replay
    whole: bool


def verify_log(log: Log) -> LogReport:
    """Read every entry and checkpoint; nothing is changed."""
    return read_verified_log(log).report


def read_verified_log(log: Log, each: Callable[[Entry, Replay], None] | None = None) -> VerifiedLog:
    """The same; `each` is told every sound entry, and how the version stands after it."""
    leaves = [info.name.rpartition("/")[2] for info in log.store.list(log.folder)]
    numbers = sorted(int(match[1]) for leaf in leaves if (match := ENTRY_NAME.fullmatch(leaf)))
    marks = sorted(int(match[1]) for leaf in leaves if (match := CHECKPOINT_NAME.fullmatch(leaf)))
    problems = list(_find_misplaced(log, numbers, marks))
    ledger = Replay(log.dataset, log.version)
    before: Entry | None = None
    checkpoints = set(marks)
    sound = True
    misfit = 0
    for number, found in _read_entries(log, numbers):
        if isinstance(found, LogProblem):
            problems.append(found)
            before, sound = None, False
            continue
        sound = sound and number == ledger.number + 1
        if sound:
            wrong = _find_mismatches(ledger, found)
            problems += wrong
            sound = not wrong
            misfit = number if wrong else 0
            if sound and number in checkpoints:
                problems += _checkpoint_problems(log, ledger)
            if sound and each is not None:
                each(found, ledger)
        elif before is not None and before.number == number - 1 and found.previous != before.digest:
            what = f"it does not follow entry {before.number}"
            problems.append(LogProblem(number, what, "broken-chain"))
        before = found
    if misfit:
        ledger = _replay_entries(
            log, misfit - 1
        )  # this one has left its marks in what it did not fit
    whole = sound and not any(one.kind == "missing-entry" for one in problems)
    problems.sort(key=lambda problem: problem.entry)
    return VerifiedLog(LogReport(len(numbers), len(marks), tuple(problems)), ledger, whole)


def _replay_entries(log: Log, last: int) -> Replay:
    """What the entries up to one amount to, which are sound."""
    ledger = Replay(log.dataset, log.version)
    for _, found in _read_entries(log, list(range(1, last + 1))):
        if isinstance(found, LogProblem):
            raise CorruptLogError(log.shown, found.entry, found.detail, found.kind)
        ledger.take(found)
    return ledger


def _find_misplaced(log: Log, numbers: list[int], marks: list[int]) -> Iterator[LogProblem]:
    """What the names alone tell."""
    last = numbers[-1] if numbers else 0
    for before, behind in pairwise([0, *numbers]):
        if behind - before == 2:
            yield LogProblem(before + 1, "it is missing", "missing-entry")
        elif behind - before > 2:
            what = f"it is missing, and so are all behind it up to entry {behind - 1}"
            yield LogProblem(before + 1, what, "missing-entry")
    for mark in marks:
        if mark > last:
            what = f"there is a checkpoint of it, but the log ends at entry {last}"
            yield LogProblem(mark, what, "missing-entry")
    for name in log.store.folders(log.folder):
        if match := ENTRY_NAME.fullmatch(name):
            yield LogProblem(int(match[1]), "a folder has its name", "missing-entry")


def _read_entries(log: Log, numbers: list[int]) -> Iterator[tuple[int, Entry | LogProblem]]:
    """Each entry, or what is wrong with it by itself."""
    for first in range(0, len(numbers), _BATCH):
        batch = numbers[first : first + _BATCH]
        found = log.store.read_many([log.entry_name(number) for number in batch])
        yield from [
            (number, _read_entry(log, number, data or b""))
            for number, data in zip(batch, found, strict=True)
        ]


def _read_entry(log: Log, number: int, data: bytes) -> Entry | LogProblem:
    try:
        return read_entry(log.shown, number, data)
    except CorruptLogError as error:
        return LogProblem(number, error.detail, error.kind)


def _find_mismatches(ledger: Replay, entry: Entry) -> list[LogProblem]:
    """What is wrong with an entry in its place: behind the one before, and in its claims."""
    try:
        false = ledger.take(entry)
    except CorruptLogError as error:
        return [LogProblem(entry.number, error.detail, error.kind)]
    except ValueError as error:
        return [LogProblem(entry.number, str(error), "false-entry")]
    return [LogProblem(entry.number, detail, "false-entry") for detail in false]


def _checkpoint_problems(log: Log, ledger: Replay) -> Iterable[LogProblem]:
    number = ledger.number
    try:
        kept = read_checkpoint(log.store, log.checkpoint_name(number), log.dataset, log.version)
        what = "" if matches_replay(ledger, kept) else "says something else than the log"
    except CheckpointError as error:
        what = f"is damaged: {error}"
    except (ValueError, KeyError, TypeError):
        what = "is no checkpoint of this release"
    if what:
        advice = "delete it, nothing is lost"
        yield LogProblem(number, f"its checkpoint {what}; {advice}", "bad-checkpoint")


def read_log_history(log: Log, count: int | None = None) -> Iterator[Entry | LogProblem]:
    """The last `count` entries, or all; in the place of one that cannot be read, why not.

    Each entry is checked by itself. Whether they hang together is for `verify_log` to say.
    """
    last = log.head_number()
    newer: list[Entry | LogProblem] = []
    try:
        newer += log.entries(last + 1)  # committed while the head was sought
    except CorruptLogError as error:
        newer.append(LogProblem(error.entry, error.detail, error.kind))
    if count is not None:
        newer = newer[-count:] if count else []
    yield from reversed(newer)
    first = 1 if count is None else max(1, last - (count - len(newer)) + 1)
    for top in range(last, first - 1, -_BATCH):
        numbers = range(top, max(first, top - _BATCH + 1) - 1, -1)
        found = log.store.read_many([log.entry_name(number) for number in numbers])
        for number, data in zip(numbers, found, strict=True):
            yield _read_or_report(log, number, data)


def _read_or_report(log: Log, number: int, data: bytes | None) -> Entry | LogProblem:
    if data is None:
        return LogProblem(number, "it is missing", "missing-entry")
    try:
        return read_entry(log.shown, number, data)
    except CorruptLogError as error:
        return LogProblem(number, error.detail, error.kind)
