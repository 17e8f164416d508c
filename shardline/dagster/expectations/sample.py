"""Samples of the rows of a snapshot as flat columns, and profiles of their columns.

The cost of a sample does not grow with the snapshot. Some shards are chosen, each with a
probability proportional to its records, and some records of each: random ones of a plain shard,
runs of a compressed shard, where each jump costs the decompression of a member. The same seed and
shards give the same rows. Overlays are joined with their bases.

`columns` describes the flat columns.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardline.dagster.expectations.columns import (
    FlatColumn,
    create_empty_batch,
    create_size_batch,
    flatten,
    list_flat_columns,
    read_sizes,
    restrict_snapshot,
    to_frame,
)
from shardline.errors import InvalidArgumentError
from shardline.hints import Hint
from shardline.log.model import Shard
from shardline.log.snapshot import StoredSnapshot
from shardline.readers.arrow import BatchBuilder, select_columns, to_arrow
from shardline.readers.records import Records, count_read_bytes, is_compressed, list_records
from shardline.schema.logical_types import Category
from shardline.schema.schema import Feature

if TYPE_CHECKING:
    import pandas as pd


MAX_ROWS = 200_000
MAX_BYTES = 2 * 1024**3
_SHARDS = 64
_RUN = 64
_RAW = Hint.of("leave out the columns: opaque records have only sizes")


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of `rows` rows of `of`, with the columns of `frame`."""

    frame: "pd.DataFrame"
    rows: int
    of: int
    columns: tuple[FlatColumn, ...]

    @property
    def whole(self) -> bool:
        """True if the sample has all rows."""
        return self.rows == self.of

    @property
    def extent(self) -> str:
        """Description of the extent, such as `all 1,797 rows`."""
        noun = "row" if self.of == 1 else "rows"
        if self.whole:
            return f"all {self.of:,} {noun}" if self.of > 1 else f"{self.of} {noun}"
        return f"a seeded sample of {self.rows:,} of {self.of:,} {noun}"


def take_sample(
    snapshot: StoredSnapshot,
    *,
    columns: Sequence[str] | None = None,
    shards: Collection[Shard] | None = None,
    limit: int = MAX_ROWS,
    limit_bytes: int = MAX_BYTES,
    seed: int = 0,
) -> Sample:
    """Return all rows of a snapshot, or a random sample of `limit` rows.

    `columns` are the features to read, `shards` the shards to read, such as added ones. Of large
    records, fewer rows are taken, about `limit_bytes` in total. Raises the errors of readers for a
    corrupt or missing shard.
    """
    if limit < 1:
        raise InvalidArgumentError(
            f"invalid limit {limit}: expected 1 or more", code="out-of-range"
        )
    restricted = snapshot if shards is None else restrict_snapshot(snapshot, shards)
    features: list[Feature] = []
    if snapshot.schema.payload != "opaque" or columns is not None:
        features = select_columns(snapshot.schema, columns, _RAW)
    records = list_records(restricted, features or None)
    count = _limit_rows(records, limit, limit_bytes)
    batches = [create_empty_batch(features)]
    if count < restricted.records:
        batches += _read_some_rows(records, features, count, seed)
    elif features:
        batches += (flatten(features, batch) for batch in to_arrow(restricted, columns))
    else:
        batches += read_sizes(records)
    frame = to_frame(batches)
    return Sample(frame, len(frame), restricted.records, tuple(list_flat_columns(features)))


def _limit_rows(records: Sequence[Records], limit: int, limit_bytes: int) -> int:

    count, size = sum(shard.shard.records for shard in records), count_read_bytes(records)
    rows = min(count, limit)
    if rows * size > limit_bytes * count:
        return max(limit_bytes * count // size, 1)
    return rows


def _read_some_rows(
    records: Sequence[Records], features: Sequence[Feature], rows: int, seed: int
) -> Iterator[pa.RecordBatch]:

    rng = np.random.default_rng(seed)
    batches = BatchBuilder(features)
    counts = [shard.shard.records for shard in records]
    for index, count in _choose_shards(counts, rows, rng).items():
        shard = records[index]
        for picked in shard.pick(_choose_records(shard, count, rng)):
            if features:
                yield flatten(features, batches.of(shard, picked))
            else:
                yield create_size_batch(picked.lengths)


def _choose_shards(records: Sequence[int], rows: int, rng: np.random.Generator) -> dict[int, int]:
    """Return the positions of some shards, in order, with the number of records to take of each.

    Points are set at even distances in the concatenated records. A shard is chosen if it contains a
    point, and each point represents equally many rows, so records of small and large shards are
    equally likely. Small shards need more points.
    """
    counts = np.array(records, np.int64)
    ends = np.cumsum(counts)
    points = min(_SHARDS, rows)
    while True:
        positions = (np.arange(points) + rng.random()) * (int(ends[-1]) / points)
        shard_of_point = np.searchsorted(
            ends, np.minimum(positions.astype(np.int64), ends[-1] - 1), "right"
        )
        chosen, hits = np.unique(shard_of_point, return_counts=True)
        if counts[chosen].sum() >= rows:
            break
        points *= 2
    counts_by_shard = {}
    left, hits_left = rows, points
    # Shards with the least room per point come first. Others take the rest of their share.
    for order in np.argsort(counts[chosen] / hits, kind="stable").tolist():
        share = left * int(hits[order]) // hits_left
        counts_by_shard[int(chosen[order])] = min(int(counts[chosen[order]]), share)
        left -= counts_by_shard[int(chosen[order])]
        hits_left -= int(hits[order])
    return {index: counts_by_shard[index] for index in sorted(counts_by_shard)}


def _choose_records(records: Records, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return record numbers, in order: random ones, or runs of a compressed shard."""
    total = records.shard.records
    if not is_compressed(records):
        return np.sort(rng.choice(total, count, replace=False, shuffle=False))
    runs = -(-total // _RUN)
    # The last run may be short, so choose one more than needed.
    chosen = np.sort(rng.choice(runs, min(-(-count // _RUN) + 1, runs), replace=False))
    numbers = (chosen[:, np.newaxis] * _RUN + np.arange(_RUN)).ravel()
    return numbers[numbers < total][:count]


Kind: TypeAlias = Literal["whole", "real", "text"]

_MAX_DECLARED = 1000
_MAX_SEEN = {"whole": 20, "real": 0, "text": 100}
_MIN_REPEATS = 5
"""Minimum mean count of values that are not a declared category. Below it, they are names or ids.
"""


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """Statistics of the finite numbers of a column, or of the lengths of a text."""

    count: int
    low: float
    high: float
    mean: float
    spread: float


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """A profile of a column: `present` rows have a value, and `counts` are those of each value.

    Floats and measures such as lengths are not counted.
    """

    column: FlatColumn
    kind: Kind
    rows: int
    present: int
    numbers: NumberSummary | None
    counts: Mapping[Any, int]

    @property
    def presence(self) -> float:
        """Share of the rows that have a value."""
        return self.present / self.rows if self.rows else 0.0

    @property
    def is_declared(self) -> bool:
        """True if the schema declares its values as categories."""
        return isinstance(self.column.feature.meaning, Category) and not self.column.measure

    @property
    def is_category(self) -> bool:
        """True if its values are declared categories, or few values that occur often."""
        if self.is_declared:
            return 0 < len(self.counts) <= _MAX_DECLARED
        return 0 < len(self.counts) <= min(_MAX_SEEN[self.kind], self.present // _MIN_REPEATS)

    @property
    def shares(self) -> dict[Any, float]:
        """Share of each value among the rows that have a value."""
        return {value: count / self.present for value, count in self.counts.items()}


def profile_sample(taken: Sample) -> dict[str, ColumnProfile]:
    """Return the profile of each column, by name."""
    return {
        column.name: _profile_column(column, taken.frame[column.name]) for column in taken.columns
    }


def _profile_column(column: FlatColumn, series: Any) -> ColumnProfile:  # noqa: ANN401 - pandas has no types
    import pandas as pd  # noqa: PLC0415 - takes a second to load

    present = series.dropna()
    kind: Kind = "text"
    if pd.api.types.is_float_dtype(series.dtype):
        kind = "real"
    elif pd.api.types.is_integer_dtype(series.dtype):
        kind = "whole"
    counted = kind != "real" and not column.measure
    return ColumnProfile(
        column,
        kind,
        len(series),
        len(present),
        _summarize_numbers(present.str.len() if kind == "text" else present),
        present.value_counts(sort=False).to_dict() if counted else {},
    )


def _summarize_numbers(values: Any) -> NumberSummary | None:  # noqa: ANN401 - pandas has no types

    numbers = values.to_numpy(dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers):
        return None
    return NumberSummary(
        len(numbers),
        float(numbers.min()),
        float(numbers.max()),
        float(numbers.mean()),
        float(numbers.std()),
    )
