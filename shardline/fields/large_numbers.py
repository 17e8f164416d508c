"""Whole numbers over 64 bits in the rows of JSON, which are read as the floats next to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.sources.json_values import Rounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class LargeNumbers:
    """Which columns hold whole numbers over 64 bits, and in which row first.

    Beside fractions such a number is one of many that floats round.
    """

    def __init__(self) -> None:
        self.rounded: dict[str, int] = {}
        self._fractions: set[str] = set()

    def look(self, name: str, first: int, values: Sequence[object]) -> None:
        """Look at some rows of a column that holds floats."""
        for at, value in enumerate(values, first):
            if name in self._fractions:
                return
            kinds = set(map(type, _leaves(value)))
            if float in kinds:
                self._fractions.add(name)
                self.rounded.pop(name, None)
            elif Rounded in kinds:
                self.rounded.setdefault(name, at)


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
