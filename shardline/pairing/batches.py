"""The pairs of two sides in lots, in order, with no more of either in memory than a few blocks.

Pairs of all records come by units: all pairs of the first left unit with the first right one, then
with the second, and so on. Pairs that are matched by a key come by records of the left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.pairing.build_side import IN_MEMORY_BYTES, held
from shardline.pairing.key_index import KeyIndex
from shardline.pairing.pairs import LOT_BYTES, LOT_PAIRS, all_pairs, chosen_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack
    from pathlib import Path

    from shardline.kernel.types import IntArray
    from shardline.pairing.build_side import Held
    from shardline.pairing.pairs import Lot
    from shardline.pairing.recipe import Recipe
    from shardline.pairing.sides import Keys, Numbered, Part, Together
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a combination. `span` are the records of the one left unit that are meant.

    What is spooled goes to `folder`, and is there until the `stack` is closed: lots are worked on
    after they are given. Together the spools are not larger than what is made of them.
    """

    left: Sequence[Numbered]
    right: Sequence[Numbered | Together]
    recipe: Recipe
    limits: Limits
    stack: ExitStack
    folder: Path | None = None
    span: tuple[int, int] | None = None
    lot_bytes: int = LOT_BYTES
    memory_bytes: int = IN_MEMORY_BYTES

    def lots(self) -> Iterator[Lot]:
        """All pairs that the rule wants, but for limit and sample."""
        return self._matched() if self.recipe.rule.on else self._all()

    def _all(self) -> Iterator[Lot]:
        once = self.recipe.rule.once
        kept: dict[int, Held] = {}
        room = self.memory_bytes
        for left in self.left:
            rights = [
                one for one in self.right if one.records and not (once and _before(one, left))
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
                    yield from all_pairs(part, found.windows, once=once, most=self.lot_bytes)

    def _one_row(
        self, left: Numbered, whole: Held | None, right: Numbered | Together
    ) -> Iterator[Lot]:
        """The pairs of a single record: the right is needed only once, so it is not held."""
        once, most = self.recipe.rule.once, self.lot_bytes
        for part in self._lefts(left, whole):
            for window in right.parts(self.recipe.names.right, self.limits):
                yield from all_pairs(part, [window], once=once, most=most)

    def _rows(self, left: Numbered) -> int:
        return left.records if self.span is None else self.span[1] - self.span[0]

    def _lefts(self, left: Numbered, whole: Held | None) -> Iterator[Part]:
        if whole is None:
            return self._parts_of_left(left)
        return (window.load() for window in whole.windows)

    def _parts_of_left(self, left: Numbered) -> Iterator[Part]:
        return left.parts(self.recipe.names.left, self.limits, span=self.span)

    def _held_right(self, right: Numbered | Together) -> Held:
        return self._held(right.parts(self.recipe.names.right, self.limits), right.first)

    def _held(self, parts: Iterator[Part], first: int) -> Held:
        holding = held(parts, self.folder, first=first, most=self.memory_bytes)
        return self.stack.enter_context(holding)

    def _matched(self) -> Iterator[Lot]:
        rule, names, columns = self.recipe.rule, self.recipe.names, self.recipe.keys
        keys: list[Keys] = []

        def parts() -> Iterator[Part]:
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
                    matches = index.match(part.keys, once=rule.once)
                    yield from index.pairs(part, right, matches, rule.how, self.lot_bytes)

    def sampled(self, lefts: IntArray, rights: IntArray) -> Iterator[Lot]:
        """The pairs of the records of these numbers."""
        sides = []
        for units, names, numbers in (
            (self.left, self.recipe.names.left, lefts),
            (self.right, self.recipe.names.right, rights),
        ):
            wanted, rows = np.unique(numbers, return_inverse=True)
            parts = (
                part
                for one in units
                for part in one.picked(_within(one, wanted), names, self.limits)
            )
            sides.append((self._held(parts, 0), rows.reshape(-1)))
        (left, left_rows), (right, right_rows) = sides
        for first in range(0, len(lefts), LOT_PAIRS):
            some = slice(first, first + LOT_PAIRS)
            yield from chosen_pairs(
                left,
                right,
                (left_rows[some], right_rows[some]),
                (lefts[some], rights[some]),
                most=self.lot_bytes,
            )


def _before(right: Numbered | Together, left: Numbered) -> bool:
    """Whether no record of the right has a higher number than the first of the left."""
    return right.first + right.records <= left.first + 1


def _within(unit: Numbered | Together, numbers: IntArray) -> IntArray:
    """Those of the numbers that are a unit's, as it counts its records."""
    low, high = np.searchsorted(numbers, (unit.first, unit.first + unit.records))
    return numbers[low:high] - unit.first


def count_matches(
    left: Sequence[Numbered], right: Sequence[Numbered | Together], recipe: Recipe, limits: Limits
) -> list[int]:
    """How many pairs there are of the records of each unit of the left: only keys are looked at."""
    rule, columns = recipe.rule, recipe.keys
    index = KeyIndex(
        columns.right, [keys for one in right for keys in one.keys(columns.right, limits)]
    )
    counts = []
    for one in left:
        found = 0
        for keys in one.keys(columns.left, limits):
            matches = index.match(keys, once=rule.once).counts
            found += int((np.maximum(matches, 1) if rule.how == "left" else matches).sum())
        counts.append(found)
    return counts
