"""What an entry made of records: the inverse of `made_of`, operation by operation.

Records of one shard are followed together: what chose among records is looked through once for all.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline.provenance.log_index import Untold, base_of, is_in_place
from shardline.provenance.pair_numbers import (
    chooses,
    pairs_of,
    places_of_left,
    places_of_right,
)
from shardline.provenance.row_numbers import records_of
from shardline.provenance.upstream_rows import (
    cover_of,
    first_of,
    no_pairs,
    replaced,
    salvage_unknown,
)
from shardline.sidecars.row_map import NOTHING, RowMapError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.hints import Hint
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.provenance.log_index import Histories, Listing

_ONE_TO_ONE = frozenset({"append", "extend", "migrate", "erase"})
_GONE = {"append": "replaced", "erase": "erased"}
"""What became of records that an operation took out of their shards."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of records: `records` of a shard, each of the one in `of` at its place.

    Where there is none, or it cannot be told which, `why` says so, and `records` is empty; `code`
    says it to scripts. What cannot be told is `untold`, with a `hint` if there is a way out.
    """

    shard: str
    of: IntArray
    records: IntArray
    why: str = ""
    untold: bool = False
    code: str = ""
    hint: Hint | None = None


def none_told(shard: str, of: IntArray, error: Untold) -> Outcome:
    """Build the outcome of records whose fate is unknown."""
    return Outcome(shard, of, of[:0], error.message, untold=True, code=error.code, hint=error.hint)


def _none(shard: str, of: IntArray, code: str, why: str) -> Outcome:
    return Outcome(shard, of, of[:0], why, code=code)


def taken_by(histories: Histories, entry: Entry) -> Sequence[str]:
    """The shards of its own version that an entry made others of."""
    if entry.inputs or not is_in_place(entry):
        return ()
    if entry.operation == "repair" and entry.parameters.get("how") != "salvage":
        with suppress(Untold):
            return [first_of(histories, entry)[1]]
    return entry.removed


def made_into(
    histories: Histories, entry: Entry, version: str, shard: str, insides: IntArray
) -> Iterator[Outcome]:
    """What an entry made of these records of a shard of a version.

    Raises Untold, with the reason, where that cannot be told.
    """
    if entry.operation in _ONE_TO_ONE:
        yield from _changed(histories, entry, shard, insides)
    elif entry.operation == "rebuild":
        yield from _rebuilt(histories, entry, shard, insides)
    elif entry.operation == "repair":
        yield from _repaired(histories, entry, insides)
    elif entry.operation == "combine":
        yield from _paired(histories, entry, version, shard, insides)


def _changed(
    histories: Histories, entry: Entry, shard: str, insides: IntArray
) -> Iterator[Outcome]:
    found, gone = False, _GONE.get(entry.operation)
    # A replacement that took whole shards out made none of them.
    told = entry.operation != "append" or entry.bases
    for at, one in enumerate(entry.added if told else ()):
        if base_of(entry, at) != shard:
            continue
        found = True
        made = one.shard
        if made.base is not None and entry.inputs:
            yield Outcome(made.name, insides, insides)
            continue
        receipt = histories.receipt(entry.shown, made)
        records = records_of(receipt.first, receipt.refused, insides)
        there = records >= 0
        if there.any():
            yield Outcome(made.name, insides[there], records[there])
        if not there.all():
            if gone is not None:
                yield _none(made.name, insides[~there], gone, gone)
            else:
                why = f"quarantined in {receipt.quarantine}"
                yield _none(made.name, insides[~there], "quarantined", why)
    if not found and gone is not None:
        yield _none("", insides, gone, f"{gone} with all of its shard")


def _rebuilt(
    histories: Histories, entry: Entry, shard: str, insides: IntArray
) -> Iterator[Outcome]:
    """All records in order: of those that it took out, or of a whole snapshot."""
    if entry.inputs:
        before = histories.input(entry.inputs[0])
        after = histories.listing(entry.shown, entry.snapshot)
        first, begin = before.number(shard, 0), 0
        fits = before.records == after.records
        # What was there already is found by the entry that it landed with.
        made = [(one.shard, one.landed == entry.number) for one in after.stays]
    else:
        before = histories.before(entry)
        added, taken = replaced(before, entry)
        first, begin = before.number(shard, 0), before.number(entry.removed[0], 0) or 0
        fits = added == taken
        made = [(one.shard, True) for one in entry.added]
    if first is None or not fits:
        return
    numbers = insides + (first - begin)
    start = 0
    for one, new in made:
        inside = (numbers >= start) & (numbers < start + one.records)
        if new and inside.any():
            yield Outcome(one.name, insides[inside], numbers[inside] - start)
        start += one.records


def _repaired(histories: Histories, entry: Entry, insides: IntArray) -> Iterator[Outcome]:
    if not entry.added:
        yield _none("", insides, "lost", "lost with all of its shard")
        return
    made = entry.added[0].shard
    if entry.parameters.get("how") != "salvage":
        yield Outcome(made.name, insides, insides)
        return
    lost, moved = insides, False
    try:
        for first, rows in histories.row_map(entry.shown, made, 1).lots():
            moved |= bool((rows[:, 0] == NOTHING).any())
            hits = np.isin(rows[:, 0], insides).nonzero()[0]
            if len(hits):
                of = rows[hits, 0]
                yield Outcome(made.name, of, first + hits)
                lost = np.setdiff1d(lost, of)
    except RowMapError as error:
        raise salvage_unknown(error) from None
    if len(lost) and moved:
        why = "lost to corruption, or salvaged under an unknown number"
        yield none_told(made.name, lost, Untold(why))
    elif len(lost):
        yield _none(made.name, lost, "lost", "lost to corruption")


def _paired(
    histories: Histories, entry: Entry, version: str, shard: str, insides: IntArray
) -> Iterator[Outcome]:
    for side, told in enumerate(entry.inputs):
        if told.shown != version:
            continue
        listing = histories.input(told)
        if listing.places.get(shard) is None:
            continue
        sought = _Sought(histories, entry, side, listing, shard, insides)
        for one in entry.added:
            yield from sought.among(one.shard)


@dataclass(frozen=True, slots=True)
class _Sought:
    """Records of one side of a combination, whose pairs are looked for."""

    histories: Histories
    entry: Entry
    side: int
    listing: Listing
    shard: str
    insides: IntArray

    def among(self, made: Shard) -> Iterator[Outcome]:
        """Their pairs in a shard."""
        if chooses(self.entry.parameters):
            yield from self._chosen(made)
            return
        cover = cover_of(self.histories, self.entry, made.name)
        grid = self.histories.grid(self.entry)
        if cover is None or pairs_of(grid, cover) != made.records:
            unknown = Untold(f"entry {self.entry.number} does not list its pairs")
            yield none_told(made.name, self.insides, unknown)
            return
        find = places_of_right if self.side else places_of_left
        place = self.listing.places[self.shard]
        found = [
            (inside, records)
            for inside in self.insides.tolist()
            for records in find(grid, cover, place, inside)
        ]
        if any(len(records) for _, records in found):
            yield Outcome(
                made.name,
                np.repeat([inside for inside, _ in found], [len(one) for _, one in found]),
                np.concatenate([records for _, records in found]),
            )

    def _chosen(self, made: Shard) -> Iterator[Outcome]:
        """Among those that were chosen: the row map is looked through."""
        cover = cover_of(self.histories, self.entry, made.name)
        listing = self.listing
        first = listing.start(listing.places[self.shard])
        if cover is not None:
            low, high = (cover.left, cover.right)[self.side]
            if not low <= listing.places[self.shard] < high:
                return
            first -= listing.start(low)
        try:
            for begin, rows in self.histories.row_map(self.entry.shown, made, 2).lots():
                numbers = rows[:, self.side]
                hits = np.isin(numbers, self.insides + first).nonzero()[0]
                if len(hits):
                    yield Outcome(made.name, numbers[hits] - first, begin + hits)
        except RowMapError as error:
            unknown = no_pairs(self.histories, self.entry, made, error)
            yield none_told(made.name, self.insides, unknown)
