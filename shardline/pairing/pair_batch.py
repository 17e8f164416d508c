"""Pair batches: the pairs of a combination in order, in batches of about the same size.

The order is that of two nested loops, the left one outside. A batch has the records that it covers;
its pairs are listed by the thread that encodes it.
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
    """Consecutive pairs."""

    def list(self) -> RecordPairs:
        """List the pairs."""
        ...

    def numbers(self, index: int) -> tuple[int, int]:
        """Return the numbers of the two records of a pair, -1 for no record."""
        ...

    def all_numbers(self, listed: RecordPairs) -> tuple[IntArray, IntArray]:
        """Return the numbers of the two records of each listed pair."""
        ...


@dataclass(frozen=True, slots=True)
class RecordPairs:
    """Pairs of records, by their rows in two parts, -1 for no record.

    `positions` are those in the batch, if these are not all of its pairs.
    """

    batch: PairBatch
    left: RecordPart
    right: RecordPart
    lefts: IntArray
    rights: IntArray
    positions: IntArray | None = None

    def __len__(self) -> int:
        return len(self.lefts)

    def filter(self, mask: NDArray[np.bool_]) -> RecordPairs:
        """Return the pairs for which the mask is True."""
        if mask.all():
            return self
        positions = np.flatnonzero(mask) if self.positions is None else self.positions[mask]
        return replace(self, lefts=self.lefts[mask], rights=self.rights[mask], positions=positions)

    def numbers(self) -> tuple[IntArray, IntArray]:
        """Return the numbers of the two records of each pair, -1 for no record."""
        return self.batch.all_numbers(self)

    def label(self, index: int) -> str:
        """Return the name of a pair for messages."""
        position = index if self.positions is None else int(self.positions[index])
        left, right = self.batch.numbers(position)
        label = f"record {left} of the left"
        return label if right < 0 else f"{label} with record {right} of the right"


@dataclass(frozen=True, slots=True)
class PairBlock:
    """All pairs of the records `rows` of a part with the records `columns` of a window.

    With `unordered`, only those in which the left record has the lower number.
    """

    left: RecordPart
    right: BuildWindow
    rows: tuple[int, int]
    columns: tuple[int, int]
    unordered: bool

    def list(self) -> RecordPairs:
        """List the pairs, in parts without other records."""
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

    def numbers(self, index: int) -> tuple[int, int]:
        """Return the numbers of the two records of a pair."""
        pairs = self.list()
        left, right = int(pairs.lefts[index]), int(pairs.rights[index])
        return pairs.left.first + left, pairs.right.first + right

    def all_numbers(self, listed: RecordPairs) -> tuple[IntArray, IntArray]:
        """Return the numbers of the two records of each listed pair."""
        return listed.left.first + listed.lefts, listed.right.first + listed.rights


def _get_first_partners(left: RecordPart, right: BuildWindow) -> IntArray:
    """Return for each left record the row of the first right record with a higher number."""
    numbers = np.arange(left.first, left.first + left.records)
    return np.clip(numbers + 1 - right.first, 0, right.records)


def iter_all_pairs(
    left: RecordPart,
    windows: Sequence[BuildWindow],
    *,
    unordered: bool,
    size: int = PAIR_BATCH_BYTES,
) -> Iterator[PairBlock]:
    """Yield all pairs of a part with the records of windows, in batches of about `size` bytes."""
    if len(windows) == 1:
        yield from _iter_window_pairs(left, windows[0], unordered=unordered, size=size)
        return
    for row in range(left.records):
        record = left.slice(row, row + 1)
        for window in windows:
            if unordered and window.first + window.records <= record.first + 1:
                continue
            if (record.bytes + PAIR_OVERHEAD_BYTES) * window.records + window.bytes <= 2 * size:
                yield PairBlock(record, window, (0, 1), (0, window.records), unordered)
            else:
                yield from _iter_window_pairs(record, window, unordered=unordered, size=size)


def _iter_window_pairs(
    left: RecordPart, window: BuildWindow, *, unordered: bool, size: int
) -> Iterator[PairBlock]:
    """Yield batches of left records with all of a window, or of one with a part of it.

    A batch has at least one pair.
    """
    right = window.load()
    lows = _get_first_partners(left, right) if unordered else np.zeros(left.records, np.int64)
    costs = (right.records - lows) * left.sizes + (right.ends[-1] - right.ends[lows])
    ends = np.cumsum(costs)
    row = 0
    while row < left.records:
        done = int(ends[row - 1]) if row else 0
        last = int(np.searchsorted(ends, done + size, "right"))
        if last > row:
            if ends[last - 1] > done:
                yield PairBlock(left, window, (row, last), (0, right.records), unordered)
            row = last
            continue
        cost = right.ends + int(left.sizes[row]) * np.arange(right.records + 1)
        low = int(lows[row])
        while low < right.records:
            high = max(int(np.searchsorted(cost, cost[low] + size, "right")) - 1, low + 1)
            yield PairBlock(left, window, (row, row + 1), (low, high), unordered)
            low = high
        row += 1


class GatherableRecords(Protocol):
    """Records of a side that can be selected by their rows, -1 for no record."""

    def sizes_of(self, rows: IntArray) -> IntArray:
        """Return the bytes of features of each row."""
        ...

    def gather(self, rows: IntArray) -> tuple[RecordPart, IntArray]:
        """Return a part that has these rows, and their positions in it."""
        ...


@dataclass(frozen=True, slots=True)
class SelectedPairs:
    """Selected pairs: the rows of both sides, and the numbers of the records."""

    left: GatherableRecords
    right: GatherableRecords
    rows: tuple[IntArray, IntArray]
    records: tuple[IntArray, IntArray]

    def list(self) -> RecordPairs:
        """List the pairs, in parts that may have other records."""
        left, lefts = self.left.gather(self.rows[0])
        right, rights = self.right.gather(self.rows[1])
        return RecordPairs(self, left, right, lefts, rights)

    def numbers(self, index: int) -> tuple[int, int]:
        """Return the numbers of the two records of a pair."""
        return int(self.records[0][index]), int(self.records[1][index])

    def all_numbers(self, listed: RecordPairs) -> tuple[IntArray, IntArray]:
        """Return the numbers of the two records of each listed pair."""
        positions = slice(None) if listed.positions is None else listed.positions
        return self.records[0][positions], self.records[1][positions]


def iter_selected_pairs(
    left: GatherableRecords,
    right: GatherableRecords,
    rows: tuple[IntArray, IntArray],
    records: tuple[IntArray, IntArray],
    *,
    size: int = PAIR_BATCH_BYTES,
) -> Iterator[SelectedPairs]:
    """Yield the pairs of these rows in batches of about `size` bytes.

    `records` are the numbers of the records.
    """
    ends = np.cumsum(left.sizes_of(rows[0]) + right.sizes_of(rows[1]) + PAIR_OVERHEAD_BYTES)
    first = 0
    while first < len(ends):
        done = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, done + size, "right")), first + 1)
        part = slice(first, last)
        yield SelectedPairs(
            left, right, (rows[0][part], rows[1][part]), (records[0][part], records[1][part])
        )
        first = last


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """Matches of each left record: the position of the first one, and their number."""

    begins: IntArray
    counts: IntArray


class _IntegerCodes:
    """Codes from 0 on for the values of an int64 feature."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._known = np.unique(values.drop_null().to_numpy())
        self.count = len(self._known)

    def codes(self, values: pa.Array) -> IntArray:
        """Return the code of each value, -1 for an unknown or missing one."""
        if not self.count:
            return np.full(len(values), -1, np.int64)
        numbers = np.asarray(pc.fill_null(values, 0))
        codes = np.minimum(np.searchsorted(self._known, numbers), self.count - 1)
        is_known = (self._known[codes] == numbers) & np.asarray(values.is_valid())
        return np.where(is_known, codes, -1)


class _BytesCodes:
    """Codes from 0 on for the values of a bytes feature."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._known = pc.unique(values.drop_null())
        self.count = len(self._known)

    def codes(self, values: pa.Array) -> IntArray:
        """Return the code of each value, -1 for an unknown or missing one."""
        codes = pc.index_in(values, value_set=self._known, skip_nulls=True)
        return np.asarray(pc.fill_null(codes, -1)).astype(np.int64)


class KeyIndex:
    """Index of the keys of all right records. A record without a complete key has no match.

    It takes about 8 bytes of memory for each record, besides the keys.
    """

    def __init__(self, columns: Sequence[Column], parts: Sequence[KeyValues]) -> None:
        self.records = sum(map(len, parts))
        self._features: list[_IntegerCodes | _BytesCodes] = []
        self._steps: list[IntArray] = []
        codes = np.zeros(self.records, np.int64)
        for index, column in enumerate(columns):
            kind = pa.int64() if column.kind == "int64" else pa.binary()
            values = pa.chunked_array([keys.columns[index] for keys in parts], kind)
            feature = _IntegerCodes(values) if column.kind == "int64" else _BytesCodes(values)
            own = [feature.codes(keys.columns[index]) for keys in parts]
            codes = _combine_codes(codes, np.concatenate(own) if own else codes, feature.count)
            self._features.append(feature)
            # Number them from 0 on again: otherwise, more features would overflow.
            step = np.unique(codes[codes >= 0])
            self._steps.append(step)
            codes = _find_positions(step, codes)
        rows = np.flatnonzero(codes >= 0)
        self._sorted = np.sort(codes[rows] * self.records + rows)

    def match(self, keys: KeyValues, *, unordered: bool) -> KeyMatches:
        """Return the matches of records; with `unordered`, only those with a higher number."""
        codes = np.zeros(len(keys), np.int64)
        for feature, step, values in zip(self._features, self._steps, keys.columns, strict=True):
            codes = _find_positions(
                step, _combine_codes(codes, feature.codes(values), feature.count)
            )
        is_known = codes >= 0
        low = codes * self.records
        high = low + self.records
        if unordered:
            low += np.minimum(np.arange(keys.first, keys.first + len(keys)) + 1, self.records)
        begins = np.searchsorted(self._sorted, low)
        ends = np.searchsorted(self._sorted, high)
        return KeyMatches(np.where(is_known, begins, 0), np.where(is_known, ends - begins, 0))

    def pairs(
        self, part: RecordPart, right: BuildSide, matches: KeyMatches, how: JoinType, size: int
    ) -> Iterator[SelectedPairs]:
        """Yield the pairs of left records with their matches, in batches of about `size` bytes."""
        counts = np.maximum(matches.counts, 1) if how == "left" else matches.counts
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, PAIR_BATCH_PAIRS):
            pairs = np.arange(first, min(first + PAIR_BATCH_PAIRS, total))
            lefts = np.searchsorted(ends, pairs, "right")
            positions = matches.begins[lefts] + pairs - (ends - counts)[lefts]
            is_matched = matches.counts[lefts] > 0
            rights = np.full(len(pairs), -1, np.int64)
            rights[is_matched] = self._sorted[positions[is_matched]] % self.records
            numbers = (lefts + part.first, rights)
            yield from iter_selected_pairs(part, right, (lefts, rights), numbers, size=size)


def _combine_codes(codes: IntArray, more: IntArray, count: int) -> IntArray:
    """Return the code of a key with one more feature, -1 if either code is -1."""
    return np.where((codes >= 0) & (more >= 0), codes * count + more, -1)


def _find_positions(known: IntArray, codes: IntArray) -> IntArray:
    """Return the positions of codes among the known ones, -1 for others."""
    if not len(known):
        return np.full(len(codes), -1, np.int64)
    positions: IntArray = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    is_known: NDArray[np.bool_] = known[positions] == codes
    return np.where(is_known, positions, -1)


@dataclass(frozen=True, slots=True)
class PairSides:
    """The two sides of a combination, with the `span` of records of a single left unit.

    Spool files are in `folder` until the `stack` is closed, because batches are encoded later than
    they are listed. Together they are not larger than the pairs.
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
        loaded: dict[int, BuildSide] = {}
        free_bytes = self.memory_bytes
        for left in self.left:
            rights = [
                right
                for right in self.right
                if right.records and not (unordered and _is_before(right, left))
            ]
            whole = None
            if len(rights) > 1:
                whole = self._load(self._list_left_parts(left), left.first)
            for right in rights:
                if len(self.left) == 1 and self._count_rows(left) == 1:
                    yield from self._list_row(left, whole, right)
                    continue
                side = loaded.get(right.first) or self._load_right(right)
                if right.first not in loaded and side.memory_bytes <= free_bytes:
                    loaded[right.first] = side
                    free_bytes -= side.memory_bytes
                for part in self._list_lefts(left, whole):
                    yield from iter_all_pairs(
                        part, side.windows, unordered=unordered, size=self.batch_bytes
                    )

    def _list_row(
        self, left: NumberedUnit, whole: BuildSide | None, right: NumberedUnit | UnitGroup
    ) -> Iterator[PairBatch]:
        """Yield the pairs of a single left record, which needs the right side only once."""
        unordered, size = self.bound.spec.unordered, self.batch_bytes
        for part in self._list_lefts(left, whole):
            for window in right.parts(self.bound.names.right, self.limits):
                yield from iter_all_pairs(part, [window], unordered=unordered, size=size)

    def _count_rows(self, left: NumberedUnit) -> int:
        return left.records if self.span is None else self.span[1] - self.span[0]

    def _list_lefts(self, left: NumberedUnit, whole: BuildSide | None) -> Iterator[RecordPart]:
        if whole is None:
            return self._list_left_parts(left)
        return (window.load() for window in whole.windows)

    def _list_left_parts(self, left: NumberedUnit) -> Iterator[RecordPart]:
        return left.parts(self.bound.names.left, self.limits, span=self.span)

    def _load_right(self, right: NumberedUnit | UnitGroup) -> BuildSide:
        return self._load(right.parts(self.bound.names.right, self.limits), right.first)

    def _load(self, parts: Iterator[RecordPart], first: int) -> BuildSide:
        side = open_build_side(parts, self.folder, first=first, memory_bytes=self.memory_bytes)
        return self.stack.enter_context(side)

    def _list_matches(self) -> Iterator[PairBatch]:
        spec, names, columns = self.bound.spec, self.bound.names, self.bound.keys
        keys: list[KeyValues] = []

        def parts() -> Iterator[RecordPart]:
            for unit in self.right:
                for part in unit.parts(names.right, self.limits, keys=columns.right):
                    if part.keys is not None:
                        keys.append(part.keys)
                    yield replace(part, keys=None)

        right = self._load(parts(), 0)
        index = KeyIndex(columns.right, keys)
        for unit in self.left:
            for part in unit.parts(names.left, self.limits, span=self.span, keys=columns.left):
                if part.keys is not None:
                    matches = index.match(part.keys, unordered=spec.unordered)
                    yield from index.pairs(part, right, matches, spec.how, self.batch_bytes)

    def _list_selected(self, lefts: IntArray, rights: IntArray) -> Iterator[PairBatch]:
        """Yield the pairs of the records with these numbers."""
        sides = []
        for units, names, numbers in (
            (self.left, self.bound.names.left, lefts),
            (self.right, self.bound.names.right, rights),
        ):
            unique, rows = np.unique(numbers, return_inverse=True)
            parts = (
                part
                for unit in units
                for part in unit.pick(_select_unit_numbers(unit, unique), names, self.limits)
            )
            sides.append((self._load(parts, 0), rows.reshape(-1)))
        (left, left_rows), (right, right_rows) = sides
        for first in range(0, len(lefts), PAIR_BATCH_PAIRS):
            part = slice(first, first + PAIR_BATCH_PAIRS)
            yield from iter_selected_pairs(
                left,
                right,
                (left_rows[part], right_rows[part]),
                (lefts[part], rights[part]),
                size=self.batch_bytes,
            )


def _is_before(right: NumberedUnit | UnitGroup, left: NumberedUnit) -> bool:
    """Return True if no right record has a higher number than the first left one."""
    return right.first + right.records <= left.first + 1


def _select_unit_numbers(unit: NumberedUnit | UnitGroup, numbers: IntArray) -> IntArray:
    """Return the numbers that are in a unit, from its first record on."""
    low, high = np.searchsorted(numbers, (unit.first, unit.first + unit.records))
    return numbers[low:high] - unit.first


def count_matches(
    left: Sequence[NumberedUnit],
    right: Sequence[NumberedUnit | UnitGroup],
    bound: BoundCombineSpec,
    limits: Limits,
) -> list[int]:
    """Count the matches of each left unit. Reads only keys."""
    spec, columns = bound.spec, bound.keys
    index = KeyIndex(
        columns.right, [keys for unit in right for keys in unit.keys(columns.right, limits)]
    )
    counts = []
    for unit in left:
        count = 0
        for keys in unit.keys(columns.left, limits):
            matches = index.match(keys, unordered=spec.unordered).counts
            count += int((np.maximum(matches, 1) if spec.how == "left" else matches).sum())
        counts.append(count)
    return counts
