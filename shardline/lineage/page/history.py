"""A version's history for the page: its newest snapshots in full, and its size all along."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.lineage.page.checked import check_results, failures_of
from shardline.lineage.page.model import Event, History, Maker, Moment
from shardline.lineage.page.words import entry_words, second, shown
from shardline.log.publication import are_published

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.lineage.page.model import Verdict
    from shardline.log.entry import Entry
    from shardline.log.state import State

_MOST_EVENTS = 12
_MOST_SOURCES = 4
_BUCKETS = 48
_SHORT_NAME = 120


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a version: the entries that can be read, and what they amount to.

    There is no `state` if the log is damaged.
    """

    name: str
    entries: Sequence[Entry]
    state: State | None

    def verdicts(self) -> dict[int, Verdict]:
        """Of each snapshot, whether it is published."""
        numbers = [entry.snapshot for entry in self.entries if entry.changes_data]
        rejected = {entry.rejects for entry in self.entries if entry.rejects is not None}
        good = are_published(self.state) if self.state and self.state.snapshot else None
        found: dict[int, Verdict] = {}
        for number in numbers:
            if number in rejected:
                found[number] = "rejected"
            elif good is None:
                found[number] = "unknown"
            else:
                found[number] = "published" if good[number - 1] else "waiting"
        return found


def history_of(known: Known, most: int) -> History:
    """The newest `most` snapshots, newest first, with what happened behind each of them."""
    makers: dict[Maker, int] = {}
    verdicts = known.verdicts()
    made = [entry for entry in known.entries if entry.changes_data]
    listed = made[-most:]
    first = listed[0].number if listed else None
    events = dict(_events(known.entries, makers, first))
    failures = failures_of(known.entries)
    moments = []
    for entry in listed:
        checks = () if known.state is None else check_results(known.state, entry.snapshot, failures)
        verdict, behind = verdicts[entry.snapshot], events.get(entry.snapshot, [])
        maker = _place(makers, entry)
        moments.append(
            replace(
                _moment(entry, verdict, maker, behind),
                holds=tuple(_holds(known.state, entry.snapshot)),
                checks=tuple(checks),
            )
        )
    before = [] if len(listed) < len(made) else events.get(0, [])
    return History(
        tuple(makers), tuple(before[:_MOST_EVENTS]), tuple(moments[::-1]), _sizes(made, verdicts)
    )


def _events(
    entries: Sequence[Entry], makers: dict[Maker, int], first: int | None
) -> Iterator[tuple[int, list[Event]]]:
    """The entries that made no snapshot, by the snapshot behind which they came."""
    found: dict[int, list[Event]] = {}
    published = None
    for entry in entries:
        moved, published = entry.published != published, entry.published
        told = not entry.snapshot or first is None or entry.number > first
        if entry.changes_data or not told:
            continue
        words = entry_words(entry)
        if moved:
            news = f"snapshot {published}" if published else "nothing"
            words += f"{'; ' if words else ''}published: {news}"
        event = Event(
            entry.number,
            second(entry.time),
            shown(entry.operation, _SHORT_NAME),
            words,
            _place(makers, entry),
        )
        found.setdefault(entry.snapshot, []).append(event)
    yield from found.items()


def _place(makers: dict[Maker, int], entry: Entry) -> int:
    by = entry.maker
    told = (shown(one, _SHORT_NAME) for one in (by.release, by.host, by.run, by.code))
    maker = Maker(*told)
    return makers.setdefault(maker, len(makers))


def _moment(entry: Entry, verdict: Verdict, maker: int, behind: Sequence[Event]) -> Moment:
    """A snapshot as far as its own entry and those behind it tell."""
    return Moment(
        entry.snapshot,
        entry.number,
        second(entry.time),
        shown(entry.operation, _SHORT_NAME),
        entry_words(entry),
        verdict,
        entry.totals.records,
        entry.totals.bytes,
        entry.totals.shards,
        entry.content or "",
        entry.digest,
        maker=maker,
        inputs=tuple((one.shown, one.snapshot) for one in entry.inputs),
        sources=tuple(shown(one.shown, _SHORT_NAME) for one in entry.sources[:_MOST_SOURCES]),
        more_sources=max(len(entry.sources) - _MOST_SOURCES, 0),
        events=tuple(behind[:_MOST_EVENTS]),
        more_events=max(len(behind) - _MOST_EVENTS, 0),
    )


def _holds(state: State | None, number: int) -> Iterator[str]:
    for what, holds in () if state is None else (("tag", state.tags), ("pin", state.pins)):
        for name, hold in sorted(holds.items()):
            if hold.snapshot == number:
                yield f"{what} {shown(name, _SHORT_NAME)}"


def _sizes(
    made: Sequence[Entry], verdicts: dict[int, Verdict]
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
