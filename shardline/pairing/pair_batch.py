"""Which records stand in which pairs: lots of pairs of about a size, in the order of the output.

The order is that of two nested loops, the left one outside. A lot is told by the records that it
covers, and its pairs are listed by whoever works on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.pairing.build_side import IN_MEMORY_BYTES, open_build_side
from shardline.pairing.pair_side import PAIR_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from numpy.typing import NDArray

    from shardline.kernel.types import Column, IntArray
    from shardline.pairing.build_side import BuildSide, BuildWindow
    from shardline.pairing.combine_spec import JoinType
    from shardline.pairing.pair_side import KeyValues, NumberedUnit, RecordPart, UnitGroup
    from shardline.pairing.spec_binding import BoundCombineSpec
    from shardline.tfrecord.reader import Limits


PAIR_BATCH_BYTES = 4 * 1024 * 1024
PAIR_BATCH_PAIRS = 64 * 1024


class PairBatch(Protocol):
    """Some pairs that follow each other."""

    def list(self) -> RecordPairs:
        """The pairs."""
        ...

    def numbers(self, at: int) -> tuple[int, int]:
        """The numbers of the two records of one of them; -1 stands for no record."""
        ...

    def all_numbers(self, listed: RecordPairs) -> tuple[IntArray, IntArray]:
        """The numbers of the two records of each pair that `list` gave."""
        ...


@dataclass(frozen=True, slots=True)
class RecordPairs:
    """Pairs of records, by their rows in two parts; -1 stands for no record.

    `places` are theirs in the lot, if that has others too.
    """

    lot: PairBatch
    left: RecordPart
    right: RecordPart
    lefts: IntArray
    rights: IntArray
    places: IntArray | None = None

    def __len__(self) -> int:
        return len(self.lefts)

    def where(self, chosen: NDArray[np.bool_]) -> RecordPairs:
        """Some of them."""
        if chosen.all():
            return self
        places = np.flatnonzero(chosen) if self.places is None else self.places[chosen]
        return replace(self, lefts=self.lefts[chosen], rights=self.rights[chosen], places=places)

    def numbers(self) -> tuple[IntArray, IntArray]:
        """The numbers of the two records of each; -1 stands for no record."""
        return self.lot.all_numbers(self)

    def shown(self, at: int) -> str:
        """One of them as messages call it."""
        left, right = self.lot.numbers(at if self.places is None else int(self.places[at]))
        told = f"record {left} of the left"
        return told if right < 0 else f"{told} with record {right} of the right"


@dataclass(frozen=True, slots=True)
class PairBlock:
    """All pairs of the records `rows` of a part with the records `columns` of a window.

    With `unordered`, only those in which the number of the left record is the lower one.
    """

    left: RecordPart
    right: BuildWindow
    rows: tuple[int, int]
    columns: tuple[int, int]
    unordered: bool

    def list(self) -> RecordPairs:
        """The pairs, in parts that have no other records."""
        left = self.left.slice(*self.rows)
        right = self.right.load().slice(*self.columns)
        if not self.unordered:
            lefts = np.repeat(np.arange(left.records), right.records)
            rights = np.tile(np.arange(right.records), left.records)
            return RecordPairs(self, left, right, lefts, rights)
        lows = _get_first_partners(left, right)
        counts = right.records - lows
        lefts = np.repeat(np.arange(left.records), counts)
        before = np.cumsum(counts) - counts
        rights = np.arange(len(lefts)) + np.repeat(lows - before, counts)
        return RecordPairs(self, left, right, lefts, rights)

    def numbers(self, at: int) -> tuple[int, int]:
        """The numbers of the two records of one of the pairs."""
        pairs = self.list()
        return pairs.left.first + int(pairs.lefts[at]), pairs.right.first + int(pairs.rights[at])

    def all_numbers(self, listed: RecordPairs) -> tuple[IntArray, IntArray]:
        """Those of their parts, which have no other records."""
        return listed.left.first + listed.lefts, listed.right.first + listed.rights


def _get_first_partners(left: RecordPart, right: BuildWindow) -> IntArray:
    """For each record of the left the first of the right that has a higher number."""
    numbers = np.arange(left.first, left.first + left.records)
    return np.clip(numbers + 1 - right.first, 0, right.records)


def iter_all_pairs(
    left: RecordPart,
    windows: Sequence[BuildWindow],
    *,
    unordered: bool,
    most: int = PAIR_BATCH_BYTES,
) -> Iterator[PairBlock]:
    """All pairs of a part with the records of the windows, in lots of `most` bytes, about."""
    if len(windows) == 1:
        yield from _iter_window_pairs(left, windows[0], unordered=unordered, most=most)
        return
    for row in range(left.records):
        one = left.slice(row, row + 1)
        for window in windows:
            if unordered and window.first + window.records <= one.first + 1:
                continue
            if (one.bytes + PAIR_OVERHEAD_BYTES) * window.records + window.bytes <= 2 * most:
                yield PairBlock(one, window, (0, 1), (0, window.records), unordered)
            else:
                yield from _iter_window_pairs(one, window, unordered=unordered, most=most)


def _iter_window_pairs(
    left: RecordPart, window: BuildWindow, *, unordered: bool, most: int
) -> Iterator[PairBlock]:
    """As many records of the left as fit at a time, each with all of the window, or one with some.

    One pair always fits.
    """
    right = window.load()
    lows = _get_first_partners(left, right) if unordered else np.zeros(left.records, np.int64)
    costs = (right.records - lows) * left.sizes + (right.ends[-1] - right.ends[lows])
    ends = np.cumsum(costs)
    row = 0
    while row < left.records:
        done = int(ends[row - 1]) if row else 0
        last = int(np.searchsorted(ends, done + most, "right"))
        if last > row:
            if ends[last - 1] > done:
                yield PairBlock(left, window, (row, last), (0, right.records), unordered)
            row = last
            continue
        cost = right.ends + int(left.sizes[row]) * np.arange(right.records + 1)
        low = int(lows[row])
        while low < right.records:
            high = max(int(np.searchsorted(cost, cost[low] + most, "right")) - 1, low + 1)
            yield PairBlock(left, window, (row, row + 1), (low, high), unordered)
            low = high
        row += 1


class GatherableRecords(Protocol):
    """Records of one side, of which some are chosen by their rows; -1 stands for none."""

    def sizes_of(self, rows: IntArray) -> IntArray:
        """How many bytes of features each of them has."""
        ...

    def gather(self, rows: IntArray) -> tuple[RecordPart, IntArray]:
        """A part that has them, and their rows in it."""
        ...


@dataclass(frozen=True, slots=True)
class SelectedPairs:
    """Pairs that were chosen one by one: which rows of either side, and their numbers there."""

    left: GatherableRecords
    right: GatherableRecords
    rows: tuple[IntArray, IntArray]
    records: tuple[IntArray, IntArray]

    def list(self) -> RecordPairs:
        """The pairs, in parts that may have other records too."""
        left, lefts = self.left.gather(self.rows[0])
        right, rights = self.right.gather(self.rows[1])
        return RecordPairs(self, left, right, lefts, rights)

    def numbers(self, at: int) -> tuple[int, int]:
        """The numbers of the two records of one of the pairs."""
        return int(self.records[0][at]), int(self.records[1][at])

    def all_numbers(self, listed: RecordPairs) -> tuple[IntArray, IntArray]:
        """Those that were told when they were chosen."""
        places = slice(None) if listed.places is None else listed.places
        return self.records[0][places], self.records[1][places]


def iter_selected_pairs(
    left: GatherableRecords,
    right: GatherableRecords,
    rows: tuple[IntArray, IntArray],
    records: tuple[IntArray, IntArray],
    *,
    most: int = PAIR_BATCH_BYTES,
) -> Iterator[SelectedPairs]:
    """The pairs of these rows, which are the records of these numbers, in lots of `most` bytes."""
    ends = np.cumsum(left.sizes_of(rows[0]) + right.sizes_of(rows[1]) + PAIR_OVERHEAD_BYTES)
    first = 0
    while first < len(ends):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + most, "right")), first + 1)
        some = slice(first, last)
        yield SelectedPairs(
            left, right, (rows[0][some], rows[1][some]), (records[0][some], records[1][some])
        )
        first = last


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """For each record of a part of the left, where its matches begin and how many there are."""

    begins: IntArray
    counts: IntArray


class _IntegerCodes:
    """The values of one int64 feature, as numbers from 0 on."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._known = np.unique(values.drop_null().to_numpy())
        self.count = len(self._known)

    def codes(self, values: pa.Array) -> IntArray:
        """The number of each value; -1 for one that is not known, or not there."""
        if not self.count:
            return np.full(len(values), -1, np.int64)
        found = np.asarray(pc.fill_null(values, 0))
        places = np.minimum(np.searchsorted(self._known, found), self.count - 1)
        known = (self._known[places] == found) & np.asarray(values.is_valid())
        return np.where(known, places, -1)


class _BytesCodes:
    """The values of one bytes feature, as numbers from 0 on."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._known = pc.unique(values.drop_null())
        self.count = len(self._known)

    def codes(self, values: pa.Array) -> IntArray:
        """The number of each value; -1 for one that is not known, or not there."""
        found = pc.index_in(values, value_set=self._known, skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1)).astype(np.int64)


class KeyIndex:
    """The keys of all records of the right; what has no key, or only a part of one, has no match.

    It is in memory, some 8 bytes for each record beside the keys themselves.
    """

    def __init__(self, columns: Sequence[Column], parts: Sequence[KeyValues]) -> None:
        self.records = sum(map(len, parts))
        self._features: list[_IntegerCodes | _BytesCodes] = []
        self._steps: list[IntArray] = []
        codes = np.zeros(self.records, np.int64)
        for place, column in enumerate(columns):
            kind = pa.int64() if column.kind == "int64" else pa.binary()
            values = pa.chunked_array([keys.columns[place] for keys in parts], kind)
            feature = _IntegerCodes(values) if column.kind == "int64" else _BytesCodes(values)
            own = [feature.codes(keys.columns[place]) for keys in parts]
            codes = _combine_codes(codes, np.concatenate(own) if own else codes, feature.count)
            self._features.append(feature)
            # Numbers from 0 on again: with another feature they would soon be too large.
            step = np.unique(codes[codes >= 0])
            self._steps.append(step)
            codes = _find_positions(step, codes)
        rows = np.flatnonzero(codes >= 0)
        self._sorted = np.sort(codes[rows] * self.records + rows)

    def match(self, keys: KeyValues, *, unordered: bool) -> KeyMatches:
        """The matches of some records; with `unordered` only those of a higher number."""
        codes = np.zeros(len(keys), np.int64)
        for feature, step, values in zip(self._features, self._steps, keys.columns, strict=True):
            codes = _find_positions(
                step, _combine_codes(codes, feature.codes(values), feature.count)
            )
        known = codes >= 0
        low = codes * self.records
        high = low + self.records
        if unordered:
            low += np.minimum(np.arange(keys.first, keys.first + len(keys)) + 1, self.records)
        begins = np.searchsorted(self._sorted, low)
        ends = np.searchsorted(self._sorted, high)
        return KeyMatches(np.where(known, begins, 0), np.where(known, ends - begins, 0))

    def pairs(
        self, part: RecordPart, right: BuildSide, matches: KeyMatches, how: JoinType, most: int
    ) -> Iterator[SelectedPairs]:
        """The pairs of a part's records with their matches, in order, in lots of `most` bytes."""
        counts = np.maximum(matches.counts, 1) if how == "left" else matches.counts
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, PAIR_BATCH_PAIRS):
            place = np.arange(first, min(first + PAIR_BATCH_PAIRS, total))
            lefts = np.searchsorted(ends, place, "right")
            at = matches.begins[lefts] + place - (ends - counts)[lefts]
            alone = matches.counts[lefts] == 0
            rights = np.full(len(place), -1, np.int64)
            rights[~alone] = self._sorted[at[~alone]] % self.records
            numbers = (lefts + part.first, rights)
            yield from iter_selected_pairs(part, right, (lefts, rights), numbers, most=most)


def _combine_codes(codes: IntArray, more: IntArray, count: int) -> IntArray:
    """The number of a key that has one more feature; -1 where either has none."""
    return np.where((codes >= 0) & (more >= 0), codes * count + more, -1)


def _find_positions(known: IntArray, codes: IntArray) -> IntArray:
    """The places of numbers among those that are known; -1 for others."""
    if not len(known):
        return np.full(len(codes), -1, np.int64)
    places: IntArray = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == codes
    return np.where(found, places, -1)


@dataclass(frozen=True, slots=True)
class PairSides:
    """The two sides of a combination. `span` are the records of the one left unit that are meant.

    What is spooled goes to `folder`, and is there until the `stack` is closed: lots are worked on
    after they are given. Together the spools are not larger than what is made of them.
    """

    left: Sequence[NumberedUnit]
    right: Sequence[NumberedUnit | UnitGroup]
    bound: BoundCombineSpec
    limits: Limits
    stack: ExitStack
    folder: Path | None = None
    span: tuple[int, int] | None = None
    batch_bytes: int = PAIR_BATCH_BYTES
    memory_bytes: int = IN_MEMORY_BYTES

    def list_batches(self, numbers: tuple[IntArray, IntArray] | None = None) -> Iterator[PairBatch]:
        """Yield all pairs of the spec, without its limit and sample, or those of these records."""
        if numbers is not None:
            return self._list_selected(*numbers)
        return self._list_matches() if self.bound.spec.on else self._list_all()

    def _list_all(self) -> Iterator[PairBatch]:
        unordered = self.bound.spec.unordered
        kept: dict[int, BuildSide] = {}
        room = self.memory_bytes
        for left in self.left:
            rights = [
                one
                for one in self.right
                if one.records and not (unordered and _is_before(one, left))
            ]
            whole = None
            if len(rights) > 1:
                whole = self._held(self._parts_of_left(left), left.first)
            for right in rights:
                if len(self.left) == 1 and self._rows(left) == 1:
                    yield from self._one_row(left, whole, right)
                    continue
                found = kept.get(right.first) or self._held_right(right)
                if right.first not in kept and found.memory_bytes <= room:
                    kept[right.first] = found
                    room -= found.memory_bytes
                for part in self._lefts(left, whole):
                    yield from iter_all_pairs(
                        part, found.windows, unordered=unordered, most=self.batch_bytes
                    )

    def _one_row(
        self, left: NumberedUnit, whole: BuildSide | None, right: NumberedUnit | UnitGroup
    ) -> Iterator[PairBatch]:
        """The pairs of a single record: the right is needed only once, so it is not held."""
        unordered, most = self.bound.spec.unordered, self.batch_bytes
        for part in self._lefts(left, whole):
            for window in right.parts(self.bound.names.right, self.limits):
                yield from iter_all_pairs(part, [window], unordered=unordered, most=most)

    def _rows(self, left: NumberedUnit) -> int:
        return left.records if self.span is None else self.span[1] - self.span[0]

    def _lefts(self, left: NumberedUnit, whole: BuildSide | None) -> Iterator[RecordPart]:
        if whole is None:
            return self._parts_of_left(left)
        return (window.load() for window in whole.windows)

    def _parts_of_left(self, left: NumberedUnit) -> Iterator[RecordPart]:
        return left.parts(self.bound.names.left, self.limits, span=self.span)

    def _held_right(self, right: NumberedUnit | UnitGroup) -> BuildSide:
        return self._held(right.parts(self.bound.names.right, self.limits), right.first)

    def _held(self, parts: Iterator[RecordPart], first: int) -> BuildSide:
        holding = open_build_side(parts, self.folder, first=first, most=self.memory_bytes)
        return self.stack.enter_context(holding)

    def _list_matches(self) -> Iterator[PairBatch]:
        spec, names, columns = self.bound.spec, self.bound.names, self.bound.keys
        keys: list[KeyValues] = []

        def parts() -> Iterator[RecordPart]:
            for one in self.right:
                for part in one.parts(names.right, self.limits, keys=columns.right):
                    if part.keys is not None:
                        keys.append(part.keys)
                    yield replace(part, keys=None)

        right = self._held(parts(), 0)
        index = KeyIndex(columns.right, keys)
        for one in self.left:
            for part in one.parts(names.left, self.limits, span=self.span, keys=columns.left):
                if part.keys is not None:
                    matches = index.match(part.keys, unordered=spec.unordered)
                    yield from index.pairs(part, right, matches, spec.how, self.batch_bytes)

    def _list_selected(self, lefts: IntArray, rights: IntArray) -> Iterator[PairBatch]:
        """The pairs of the records of these numbers."""
        sides = []
        for units, names, numbers in (
            (self.left, self.bound.names.left, lefts),
            (self.right, self.bound.names.right, rights),
        ):
            wanted, rows = np.unique(numbers, return_inverse=True)
            parts = (
                part
                for one in units
                for part in one.picked(_select_unit_numbers(one, wanted), names, self.limits)
            )
            sides.append((self._held(parts, 0), rows.reshape(-1)))
        (left, left_rows), (right, right_rows) = sides
        for first in range(0, len(lefts), PAIR_BATCH_PAIRS):
            some = slice(first, first + PAIR_BATCH_PAIRS)
            yield from iter_selected_pairs(
                left,
                right,
                (left_rows[some], right_rows[some]),
                (lefts[some], rights[some]),
                most=self.batch_bytes,
            )


def _is_before(right: NumberedUnit | UnitGroup, left: NumberedUnit) -> bool:
    """Whether no record of the right has a higher number than the first of the left."""
    return right.first + right.records <= left.first + 1


def _select_unit_numbers(unit: NumberedUnit | UnitGroup, numbers: IntArray) -> IntArray:
    """Those of the numbers that are a unit's, as it counts its records."""
    low, high = np.searchsorted(numbers, (unit.first, unit.first + unit.records))
    return numbers[low:high] - unit.first


def count_matches(
    left: Sequence[NumberedUnit],
    right: Sequence[NumberedUnit | UnitGroup],
    bound: BoundCombineSpec,
    limits: Limits,
) -> list[int]:
    """How many pairs there are of the records of each unit of the left: only keys are looked at."""
    spec, columns = bound.spec, bound.keys
    index = KeyIndex(
        columns.right, [keys for one in right for keys in one.keys(columns.right, limits)]
    )
    counts = []
    for one in left:
        found = 0
        for keys in one.keys(columns.left, limits):
            matches = index.match(keys, unordered=spec.unordered).counts
            found += int((np.maximum(matches, 1) if spec.how == "left" else matches).sum())
        counts.append(found)
    return counts
