"""Which row became which record, where all but some became one: counting tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.kernel.types import IntArray


def row_of(first: int, refused: Sequence[tuple[int, int]], record: int) -> int:
    """The row that became a record, of rows from `first` on without the refused spans."""
    row = first + record
    for begin, end in refused:
        if begin > row:
            break
        row += end - begin + 1
    return row


def records_of(first: int, refused: Sequence[tuple[int, int]], rows: IntArray) -> IntArray:
    """The records that rows became; -1 for one that was refused."""
    spans = np.array(refused, np.int64).reshape(-1, 2)
    counts = np.concatenate(([0], np.cumsum(spans[:, 1] - spans[:, 0] + 1)))
    before = np.searchsorted(spans[:, 0], rows, "right")
    ends = np.concatenate(([-1], spans[:, 1]))
    left_out = (rows < first) | (rows <= ends[before])
    return np.where(left_out, -1, rows - first - counts[before])


def refused_before(refused: Sequence[tuple[int, int]], row: int) -> int:
    """How many rows before this one were refused."""
    return sum(min(end, row - 1) - begin + 1 for begin, end in refused if begin < row)
