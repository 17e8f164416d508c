"""What checks said about a snapshot and about its shards, for the page."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from shardline.lineage.page.page_model import (
    PageCheckResult,
    PageCommitInfo,
    PageEvent,
    PageHistory,
    PageSnapshot,
    format_second,
    sanitize_text,
)
from shardline.log.publication import list_published
from shardline.log.state import RESERVED_CHECKS
from shardline.provenance.entry_text import format_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from shardline.lineage.page.page_model import PublicationStatus
    from shardline.log.entry import Entry
    from shardline.log.state import State


Failures: TypeAlias = dict[tuple[str, str], str]
"""What was said when a check failed, by the check and the shard or content it failed on."""

_SHORT_NAME = 120


@dataclass(frozen=True, slots=True)
class _CheckMarks:
    """Which checks passed and failed on several shards, or on one snapshot, as bits."""

    passed: NDArray[np.uint32]
    failed: NDArray[np.uint32]
    names: tuple[str, ...] | pa.ChunkedArray


def collect_failures(entries: Iterable[Entry]) -> Failures:
    """The latest words about each failure."""
    return {
        (told.check, about): told.detail
        for entry in entries
        for told in entry.attestations
        if not told.passed and told.check not in RESERVED_CHECKS
        for about in (told.shards if told.content is None else (told.content,))
    }


def iter_check_results(state: State, number: int, failures: Failures) -> Iterator[PageCheckResult]:
    """What each check says about a snapshot: those that it needs first, then others that were run.

    A check that it does not need and that did not look at all of it is left out.
    """
    needed = state.checks_of(number)
    moment, rows = state.timeline.moment(number), state.stays.rows_at(number)
    passed, failed = (state.stays.column(name)[rows] for name in ("passed", "failed"))
    on_shards = _CheckMarks(passed, failed, state.stays.names().take(pa.array(rows)))
    passed, failed = (np.array([bits], np.uint32) for bits in (moment.passed, moment.failed))
    on_snapshot = _CheckMarks(passed, failed, (moment.content,))
    wanted = dict.fromkeys((*needed.shard, *needed.snapshot))
    wanted |= dict.fromkeys(sorted(set(state.bits) - set(RESERVED_CHECKS)))
    for check in wanted:
        flag = np.uint32(1 << state.bits[check] if check in state.bits else 0)
        for needs, marks in ((needed.shard, on_shards), (needed.snapshot, on_snapshot)):
            told = _make_check_result(check, flag, marks, failures, needed=check in needs)
            if told is not None:
                yield told


def _make_check_result(
    check: str, flag: np.uint32, marks: _CheckMarks, failures: Failures, *, needed: bool
) -> PageCheckResult | None:
    failed = np.flatnonzero(marks.failed & flag)
    unseen = np.flatnonzero(((marks.passed | marks.failed) & flag) == 0)
    name, several = sanitize_text(check, _SHORT_NAME), isinstance(marks.names, pa.ChunkedArray)
    if len(failed):
        detail = failures.get((check, str(marks.names[int(failed[0])])), "")
        return PageCheckResult(name, "failed", len(failed) * several, needed, sanitize_text(detail))
    if len(marks.passed) and not len(unseen):
        return PageCheckResult(name, "passed", needed=needed)
    return PageCheckResult(name, "missing", len(unseen) * several, needed) if needed else None


_MOST_EVENTS = 12
_MOST_SOURCES = 4
_BUCKETS = 48


@dataclass(frozen=True, slots=True)
class VersionLog:
    """What is known of a version: the entries that can be read, and what they amount to.

    There is no `state` if the log is damaged.
    """

    name: str
    entries: Sequence[Entry]
    state: State | None

    def verdicts(self) -> dict[int, PublicationStatus]:
        """Of each snapshot, whether it is published."""
        numbers = [entry.snapshot for entry in self.entries if entry.changes_data]
        rejected = {entry.rejects for entry in self.entries if entry.rejects is not None}
        good = list_published(self.state) if self.state and self.state.snapshot else None
        found: dict[int, PublicationStatus] = {}
        for number in numbers:
            if number in rejected:
                found[number] = "rejected"
            elif good is None:
                found[number] = "unknown"
            else:
                found[number] = "published" if good[number - 1] else "waiting"
        return found


def make_version_history(known: VersionLog, most: int) -> PageHistory:
    """The newest `most` snapshots, newest first, with what happened behind each of them."""
    makers: dict[PageCommitInfo, int] = {}
    verdicts = known.verdicts()
    made = [entry for entry in known.entries if entry.changes_data]
    listed = made[-most:]
    first = listed[0].number if listed else None
    events = dict(_iter_snapshot_events(known.entries, makers, first))
    failures = collect_failures(known.entries)
    moments = []
    for entry in listed:
        checks = (
            () if known.state is None else iter_check_results(known.state, entry.snapshot, failures)
        )
        verdict, behind = verdicts[entry.snapshot], events.get(entry.snapshot, [])
        maker = _get_commit_info_index(makers, entry)
        moments.append(
            replace(
                _make_snapshot_row(entry, verdict, maker, behind),
                holds=tuple(_iter_refs(known.state, entry.snapshot)),
                checks=tuple(checks),
            )
        )
    before = [] if len(listed) < len(made) else events.get(0, [])
    return PageHistory(
        tuple(makers),
        tuple(before[:_MOST_EVENTS]),
        tuple(moments[::-1]),
        _sample_sizes(made, verdicts),
    )


def _iter_snapshot_events(
    entries: Sequence[Entry], makers: dict[PageCommitInfo, int], first: int | None
) -> Iterator[tuple[int, list[PageEvent]]]:
    """The entries that made no snapshot, by the snapshot behind which they came."""
    found: dict[int, list[PageEvent]] = {}
    published = None
    for entry in entries:
        moved, published = entry.published != published, entry.published
        told = not entry.snapshot or first is None or entry.number > first
        if entry.changes_data or not told:
            continue
        words = format_entry(entry)
        if moved:
            news = f"snapshot {published}" if published else "nothing"
            words += f"{'; ' if words else ''}published: {news}"
        event = PageEvent(
            entry.number,
            format_second(entry.time),
            sanitize_text(entry.operation, _SHORT_NAME),
            words,
            _get_commit_info_index(makers, entry),
        )
        found.setdefault(entry.snapshot, []).append(event)
    yield from found.items()


def _get_commit_info_index(makers: dict[PageCommitInfo, int], entry: Entry) -> int:
    by = entry.maker
    told = (sanitize_text(one, _SHORT_NAME) for one in (by.release, by.host, by.run, by.code))
    maker = PageCommitInfo(*told)
    return makers.setdefault(maker, len(makers))


def _make_snapshot_row(
    entry: Entry, verdict: PublicationStatus, maker: int, behind: Sequence[PageEvent]
) -> PageSnapshot:
    """A snapshot as far as its own entry and those behind it tell."""
    return PageSnapshot(
        entry.snapshot,
        entry.number,
        format_second(entry.time),
        sanitize_text(entry.operation, _SHORT_NAME),
        format_entry(entry),
        verdict,
        entry.totals.records,
        entry.totals.bytes,
        entry.totals.shards,
        entry.content or "",
        entry.digest,
        maker=maker,
        inputs=tuple((one.shown, one.snapshot) for one in entry.inputs),
        sources=tuple(
            sanitize_text(one.shown, _SHORT_NAME) for one in entry.sources[:_MOST_SOURCES]
        ),
        more_sources=max(len(entry.sources) - _MOST_SOURCES, 0),
        events=tuple(behind[:_MOST_EVENTS]),
        more_events=max(len(behind) - _MOST_EVENTS, 0),
    )


def _iter_refs(state: State | None, number: int) -> Iterator[str]:
    for what, holds in () if state is None else (("tag", state.tags), ("pin", state.pins)):
        for name, hold in sorted(holds.items()):
            if hold.snapshot == number:
                yield f"{what} {sanitize_text(name, _SHORT_NAME)}"


def _sample_sizes(
    made: Sequence[Entry], verdicts: dict[int, PublicationStatus]
) -> tuple[tuple[int, int, int, int, str], ...]:
    """A few hundred snapshots at most, among them the largest and smallest of each stretch."""
    chosen: set[int] = set()
    for span in np.array_split(np.arange(len(made)), min(_BUCKETS, max(len(made), 1))):
        places = span.tolist()
        for size in (lambda at: made[at].totals.records, lambda at: made[at].totals.bytes):
            chosen |= {min(places, key=size), max(places, key=size)} if places else set()
        chosen |= set(places[-1:])
    chosen |= {0} if made else set()
    return tuple(
        (
            int(made[at].time.timestamp()),
            made[at].totals.records,
            made[at].totals.bytes,
            made[at].snapshot,
            verdicts[made[at].snapshot][0],
        )
        for at in sorted(chosen)
    )
