"""Find numbers in JSON rows that have more digits than the floats they are read as."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.sources.exact import python_leaves
from shardline.sources.json_values import Rounded

if TYPE_CHECKING:
    from collections.abc import Sequence


class LargeNumbers:
    """The first row of each column with a number that lost digits."""

    def __init__(self) -> None:
        self.rounded: dict[str, int] = {}

    def look(self, name: str, first: int, values: Sequence[object]) -> None:
        """Look at some rows of a column that holds floats."""
        if name in self.rounded:
            return
        for row, value in enumerate(values, first):
            if any(isinstance(leaf, Rounded) for leaf in python_leaves(value)):
                self.rounded[name] = row
                return
