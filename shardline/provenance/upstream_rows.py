"""What a record of a shard was made of, by the entry that the shard landed with.

Counting tells it for most operations, with the spans that a receipt names as refused. Where an
operation chose in a way that no receipt tells, the row map beside the shard does. Nothing is
guessed: what neither tells is Untold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.pairing.coverage import Cover
from shardline.provenance.commands import combined_anew
from shardline.provenance.log_index import Untold, base_of
from shardline.provenance.pair_numbers import chooses, pair_at, pairs_of
from shardline.provenance.row_numbers import row_of
from shardline.provenance.source_rows import source_row
from shardline.sidecars.row_map import RowMapError
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.provenance.log_index import Histories, Listing
    from shardline.provenance.steps import SourceRow


@dataclass(frozen=True, slots=True)
class Held:
    """A record of a snapshot, by its number there."""

    version: str
    snapshot: int
    record: int


@dataclass(frozen=True, slots=True)
class Made:
    """What a record was made of, and what is to be said of it."""

    of: tuple[Held | SourceRow, ...]
    remark: str = ""


def made_of(histories: Histories, entry: Entry, shard: Shard, inside: int) -> Made:
    """What record `inside` of a shard was made of, which landed with this entry.

    Raises Untold, with the reason, where that cannot be told.
    """
    find = _BY_OPERATION.get(entry.operation)
    if find is None:
        raise Untold(
            f"unknown operation {entry.operation!r}: another release wrote it",
            code="unknown-operation",
            version=entry.shown,
        )
    return find(histories, entry, shard, inside)


def _appended(histories: Histories, entry: Entry, shard: Shard, inside: int) -> Made:
    if entry.bases and entry.bases[histories.place(entry, shard.name)]:
        return _changed(histories, entry, shard, inside)  # What a replacement left of a shard.
    return Made((source_row(histories, entry, shard, inside),))


def _rebuilt(histories: Histories, entry: Entry, shard: Shard, inside: int) -> Made:
    """All records in order: of those that it took out, or of a whole snapshot."""
    if entry.inputs:
        listing = histories.input(entry.inputs[0])
        after = histories.listing(entry.shown, entry.snapshot)
        _refuse_other_count(entry, after.records, listing.records)
        record = after.number(shard.name, inside)
    else:
        listing = histories.before(entry)
        _refuse_other_count(entry, *replaced(listing, entry))
        place = histories.place(entry, shard.name)
        record = sum(one.shard.records for one in entry.added[:place]) + inside
        record += listing.number(entry.removed[0], 0) or 0
    if record is None:
        raise Untold(
            f"{shard.name} is not in the snapshot of entry {entry.number}", code="shard-not-found"
        )
    return Made((Held(listing.version, listing.snapshot, record),))


def replaced(before: Listing, entry: Entry) -> tuple[int, int]:
    """How many records an entry adds, and how many it takes out."""
    added = sum(one.shard.records for one in entry.added)
    taken = [before.stays[before.places[name]].shard.records for name in entry.removed]
    return added, sum(taken)


def _refuse_other_count(entry: Entry, made: int, read: int) -> None:
    if made != read:
        raise Untold(
            f"entry {entry.number} of {entry.shown} wrote {counted(made, 'record')}, expected "
            f"{read}",
            code="count-mismatch",
            version=entry.shown,
        )


def _changed(histories: Histories, entry: Entry, shard: Shard, inside: int) -> Made:
    """Extend, migrate, erase, replace: a shard of a shard, all records but the refused ones."""
    place = histories.place(entry, shard.name)
    old = base_of(entry, place)
    listing = histories.input(entry.inputs[0]) if entry.inputs else histories.before(entry)
    if shard.base is not None and entry.inputs:
        remark = _without_fields(histories, entry, shard, inside)
        return Made((_held(listing, old, inside),), remark)
    receipt = histories.receipt(entry.shown, shard)
    if not receipt.counts(shard.records):
        raise Untold(
            f"the receipt of {shard.name} does not cover all its records", code="receipt-mismatch"
        )
    return Made((_held(listing, old, row_of(receipt.first, receipt.refused, inside)),))


def _without_fields(histories: Histories, entry: Entry, shard: Shard, inside: int) -> str:
    """What is to be said of a record of an overlay of which no new fields could be made."""
    try:
        receipt = histories.receipt(entry.shown, shard)
    except Untold:
        return ""
    refused = any(first <= inside <= last for first, last in receipt.refused)
    return f"no new features, quarantined in {receipt.quarantine}" if refused else ""


def _held(listing: Listing, shard: str, inside: int) -> Held:
    record = listing.number(shard, inside)
    if record is None:
        raise Untold(
            f"{shard} is not in its input {listing.version}@{listing.snapshot}",
            code="shard-not-found",
            version=listing.version,
            snapshot=listing.snapshot,
        )
    return Held(listing.version, listing.snapshot, record)


def _paired(histories: Histories, entry: Entry, shard: Shard, inside: int) -> Made:
    """The two records of a pair; one, if the left has no match."""
    grid = histories.grid(entry)
    sides = [histories.input(told) for told in entry.inputs]
    cover = cover_of(histories, entry, shard.name)
    if chooses(entry.parameters):
        try:
            found = histories.row_map(entry.shown, shard, 2).find(inside)
        except RowMapError as error:
            raise no_pairs(histories, entry, shard, error) from None
        first = (0, 0) if cover is None else (cover.left[0], cover.right[0])
        numbers = [
            number if number < 0 else number + side.start(at)
            for number, side, at in zip(found, sides, first, strict=True)
        ]
    elif cover is None:
        raise Untold(f"entry {entry.number} does not list the shards that {shard.name} pairs")
    else:
        _refuse_other_pairs(shard, pairs_of(grid, cover))
        numbers = list(pair_at(grid, cover, inside))
    alone = " alone: it has no match" if min(numbers) < 0 else ""
    of = tuple(
        Held(side.version, side.snapshot, number)
        for side, number in zip(sides, numbers, strict=True)
        if number >= 0
    )
    return Made(of, f"the record of the left{alone}" if alone else "")


def no_pairs(histories: Histories, entry: Entry, shard: Shard, error: RowMapError) -> Untold:
    """Build the error that the pairs of a shard are unknown, since its row map is."""
    return Untold(
        f"the pairs of {shard.name} are unknown: {error.message}",
        code=error.code,
        hint=combined_anew(histories, entry),
        path=error.path,
        version=entry.shown,
    )


def _refuse_other_pairs(shard: Shard, pairs: int) -> None:
    if pairs != shard.records:
        raise Untold(
            f"{shard.name} has {counted(shard.records, 'record')}, expected {pairs} pairs",
            code="count-mismatch",
        )


def cover_of(histories: Histories, entry: Entry, shard: str) -> Cover | None:
    """Which shards of its inputs a combined one covers; None if the entry does not tell."""
    outputs = entry.parameters.get("outputs")
    if not isinstance(outputs, list) or len(outputs) != len(entry.added):
        return None
    return Cover.from_json(outputs[histories.place(entry, shard)])


def _repaired(histories: Histories, entry: Entry, shard: Shard, inside: int) -> Made:
    """Made anew of what it was first made of, record for record; or what was left of it."""
    if entry.parameters.get("how") != "salvage":
        first, old = first_of(histories, entry)
        listing = histories.before(first)
        if listing.stays[listing.places[old]].shard.records != shard.records:
            raise Untold(
                f"{shard.name} replaced {old} and has another number of records",
                code="count-mismatch",
            )
        return Made((_held(listing, old, inside),))
    try:
        (number,) = histories.row_map(entry.shown, shard, 1).find(inside)
    except RowMapError as error:
        raise salvage_unknown(error) from None
    if number < 0:
        raise Untold("the corruption moved it: its earlier number is unknown")
    return Made((_held(histories.before(entry), str(entry.parameters["shard"]), number),))


def salvage_unknown(error: RowMapError) -> Untold:
    """Build the error that a row map does not say which records a repair salvaged."""
    what = f"the salvaged records are unknown: {error.message}"
    return Untold(what, code=error.code, path=error.path)


def first_of(histories: Histories, entry: Entry) -> tuple[Entry, str]:
    """Of a shard that was repaired, maybe again and again, the first repair and the first shard."""
    old = str(entry.parameters["shard"])
    listing = histories.before(entry)
    place = listing.places.get(old)
    if place is None:
        raise Untold(
            f"the repaired shard {old} is not in {listing.version}@{listing.snapshot}",
            code="shard-not-found",
            version=listing.version,
            snapshot=listing.snapshot,
        )
    landed = histories.entry(listing.version, listing.stays[place].landed)
    return first_of(histories, landed) if landed.operation == "repair" else (entry, old)


_BY_OPERATION: dict[str, Callable[[Histories, Entry, Shard, int], Made]] = {
    "append": _appended,
    "rebuild": _rebuilt,
    "extend": _changed,
    "migrate": _changed,
    "erase": _changed,
    "combine": _paired,
    "repair": _repaired,
}
