"""Log verification: each entry as written, in sequence, with true claims."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from shardline.errors import CorruptLogError
from shardline.log.checkpoint import CheckpointError, matches_replay, read_checkpoint
from shardline.log.entry import read_entry
from shardline.log.log import CHECKPOINT_NAME, ENTRY_NAME
from shardline.log.replay import Replay
from shardline.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from shardline.errors import LogFault
    from shardline.log.entry import Entry
    from shardline.log.log import Log


_BATCH = 64


@dataclass(frozen=True, slots=True)
class LogProblem:
    """Problem of a log entry, or of the checkpoint at that entry."""

    entry: int
    detail: str
    kind: LogFault = "edited-entry"


@dataclass(frozen=True, slots=True)
class LogReport(Report):
    """Result of verifying a log."""

    entries: int
    checkpoints: int
    problems: tuple[LogProblem, ...]


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """Report on a log, and its replay up to the first invalid entry.

    `whole` is True if every entry is valid.
    """

    report: LogReport
    ledger: Replay
    whole: bool


def verify_log(log: Log) -> LogReport:
    """Read and verify every entry and checkpoint of a log, without changing anything."""
    return read_verified_log(log).report


def read_verified_log(
    log: Log, on_entry: Callable[[Entry, Replay], None] | None = None
) -> VerifiedLog:
    """Verify a log, and call `on_entry` with each valid entry and the replay after it."""
    leaves = [info.name.rpartition("/")[2] for info in log.store.list(log.folder)]
    numbers = sorted(int(match[1]) for leaf in leaves if (match := ENTRY_NAME.fullmatch(leaf)))
    marks = sorted(int(match[1]) for leaf in leaves if (match := CHECKPOINT_NAME.fullmatch(leaf)))
    problems = list(_find_misplaced(log, numbers, marks))
    replay = Replay(log.dataset, log.version)
    previous: Entry | None = None
    checkpoints = set(marks)
    is_valid = True
    mismatch = 0
    for number, entry in _read_entries(log, numbers):
        if isinstance(entry, LogProblem):
            problems.append(entry)
            previous, is_valid = None, False
            continue
        is_valid = is_valid and number == replay.number + 1
        if is_valid:
            mismatches = _find_mismatches(replay, entry)
            problems += mismatches
            is_valid = not mismatches
            mismatch = number if mismatches else 0
            if is_valid and number in checkpoints:
                problems += _find_checkpoint_problems(log, replay)
            if is_valid and on_entry is not None:
                on_entry(entry, replay)
        elif (
            previous is not None
            and previous.number == number - 1
            and entry.previous != previous.digest
        ):
            detail = f"does not follow entry {previous.number}"
            problems.append(LogProblem(number, detail, "broken-chain"))
        previous = entry
    if mismatch:
        # The invalid entry has changed the replay: replay the entries before it again.
        replay = _replay_entries(log, mismatch - 1)
    is_whole = is_valid and not any(problem.kind == "missing-entry" for problem in problems)
    problems.sort(key=lambda problem: problem.entry)
    report = LogReport(len(numbers), len(marks), tuple(problems))
    return VerifiedLog(report, replay, is_whole)


def _replay_entries(log: Log, last: int) -> Replay:
    replay = Replay(log.dataset, log.version)
    for _, entry in _read_entries(log, list(range(1, last + 1))):
        if isinstance(entry, LogProblem):
            raise CorruptLogError(log.label, entry.entry, entry.detail, entry.kind)
        replay.take(entry)
    return replay


def _find_misplaced(log: Log, numbers: list[int], marks: list[int]) -> Iterator[LogProblem]:
    """Yield the problems that file names show: missing entries, and folders instead of files."""
    last = numbers[-1] if numbers else 0
    for before, after in pairwise([0, *numbers]):
        if after - before == 2:
            yield LogProblem(before + 1, "missing", "missing-entry")
        elif after - before > 2:
            detail = f"missing, as are all entries up to {after - 1}"
            yield LogProblem(before + 1, detail, "missing-entry")
    for mark in marks:
        if mark > last:
            detail = f"has a checkpoint, but the log ends at entry {last}"
            yield LogProblem(mark, detail, "missing-entry")
    for name in log.store.folders(log.folder):
        if match := ENTRY_NAME.fullmatch(name):
            yield LogProblem(int(match[1]), "a folder has the name of the entry", "missing-entry")


def _read_entries(log: Log, numbers: list[int]) -> Iterator[tuple[int, Entry | LogProblem]]:
    """Yield each entry, or its problem."""
    for first in range(0, len(numbers), _BATCH):
        batch = numbers[first : first + _BATCH]
        contents = log.store.read_many([log.entry_name(number) for number in batch])
        yield from [
            (number, _read_entry(log, number, data or b""))
            for number, data in zip(batch, contents, strict=True)
        ]


def _read_entry(log: Log, number: int, data: bytes | None) -> Entry | LogProblem:
    if data is None:
        return LogProblem(number, "missing", "missing-entry")
    try:
        return read_entry(log.label, number, data)
    except CorruptLogError as error:
        return LogProblem(number, error.detail, error.kind)


def _find_mismatches(replay: Replay, entry: Entry) -> list[LogProblem]:
    """Return the problems of an entry at its position: its predecessor and its claims."""
    try:
        false_claims = replay.take(entry)
    except CorruptLogError as error:
        return [LogProblem(entry.number, error.detail, error.kind)]
    except ValueError as error:
        return [LogProblem(entry.number, str(error), "false-entry")]
    return [LogProblem(entry.number, detail, "false-entry") for detail in false_claims]


def _find_checkpoint_problems(log: Log, replay: Replay) -> Iterable[LogProblem]:
    number = replay.number
    try:
        checkpoint = read_checkpoint(
            log.store, log.checkpoint_name(number), log.dataset, log.version
        )
        problem = "" if matches_replay(replay, checkpoint) else "differs from the log"
    except CheckpointError as error:
        problem = f"is corrupt: {error}"
    except (ValueError, KeyError, TypeError):
        problem = "has an unknown format"
    if problem:
        detail = f"its checkpoint {problem}; delete it, nothing is lost"
        yield LogProblem(number, detail, "bad-checkpoint")


def read_log_history(log: Log, count: int | None = None) -> Iterator[Entry | LogProblem]:
    """Yield the last `count` entries, or all, latest first; a problem for an unreadable entry.

    Each entry is checked by itself. `verify_log` checks the sequence.
    """
    last = log.head_number()
    newer: list[Entry | LogProblem] = []
    try:
        newer += log.entries(last + 1)  # Committed while the head was read.
    except CorruptLogError as error:
        newer.append(LogProblem(error.entry, error.detail, error.kind))
    if count is not None:
        newer = newer[-count:] if count else []
    yield from reversed(newer)
    first = 1 if count is None else max(1, last - (count - len(newer)) + 1)
    for top in range(last, first - 1, -_BATCH):
        numbers = range(top, max(first, top - _BATCH + 1) - 1, -1)
        contents = log.store.read_many([log.entry_name(number) for number in numbers])
        for number, data in zip(numbers, contents, strict=True):
            yield _read_entry(log, number, data)
