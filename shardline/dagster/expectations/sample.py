"""Samples and chunks of the rows of a snapshot, as flat columns.

The cost of a sample does not grow with the snapshot. Some shards are chosen, each with a
probability proportional to its records, and some records of each: random ones of a plain shard,
runs of a compressed shard, where each jump costs the decompression of a member. The same seed and
shards give the same rows. Overlays are joined with their bases.

`columns` describes the flat columns.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardline.dagster.expectations import columns as flat
from shardline.dagster.expectations.columns import FlatColumn, flat_columns
from shardline.errors import InvalidArgumentError
from shardline.hints import Hint
from shardline.log.model import Shard, Totals
from shardline.log.snapshot import StoredSnapshot
from shardline.readers.arrow import to_arrow
from shardline.schema.schema import Feature, Schema

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from shardline.readers.records import Records


MAX_ROWS = 200_000
MAX_BYTES = 2 * 1024**3
_SHARDS = 64
_RUN = 64
_BLOCK_BYTES = 1024 * 1024
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
    def said(self) -> str:
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
    from shardline.readers.arrow import select_columns  # noqa: PLC0415 - only when data is read
    from shardline.readers.records import list_records  # noqa: PLC0415 - only when data is read

    if limit < 1:
        raise InvalidArgumentError(
            f"invalid limit {limit}: expected 1 or more", code="out-of-range"
        )
    part = snapshot if shards is None else restrict_snapshot(snapshot, shards)
    features: list[Feature] = []
    if snapshot.schema.payload != "opaque" or columns is not None:
        features = select_columns(snapshot.schema, columns, _RAW)
    records = list_records(part, features or None)
    wanted = _limit_rows(records, limit, limit_bytes)
    batches = [create_empty_batch(features)]
    if wanted < part.records:
        batches += _read_some_rows(records, features, wanted, seed)
    elif features:
        batches += (flat.flatten(features, batch) for batch in to_arrow(part, columns))
    else:
        batches += read_sizes(records)
    frame = flat.to_frame(batches)
    return Sample(frame, len(frame), part.records, tuple(flat.flat_columns(features)))


def restrict_snapshot(snapshot: StoredSnapshot, shards: Collection[Shard]) -> StoredSnapshot:
    """Return the snapshot with only these shards, in its own order."""
    names = {shard.name for shard in shards}
    kept = tuple(shard for shard in snapshot.shards if shard.name in names)
    if len(kept) < len(names):
        foreign = min(names - {shard.name for shard in kept})
        raise InvalidArgumentError(
            f"{snapshot}: unknown shard {foreign}",
            code="shard-not-found",
            path=foreign,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    return replace(snapshot, list_shards=lambda: kept, totals=Totals.of(kept))


def _limit_rows(records: Sequence["Records"], limit: int, limit_bytes: int) -> int:
    from shardline.readers.records import count_read_bytes  # noqa: PLC0415 - only when data is read

    count, size = sum(one.shard.records for one in records), count_read_bytes(records)
    wanted = min(count, limit)
    if wanted * size > limit_bytes * count:
        return max(limit_bytes * count // size, 1)
    return wanted


def create_empty_batch(features: Sequence[Feature]) -> "pa.RecordBatch":
    """Return a flat batch without rows, which defines the columns."""
    import numpy as np  # noqa: PLC0415 - only when data is read
    import pyarrow as pa  # noqa: PLC0415 - only when data is read

    from shardline.schema.arrow_types import schema_of  # noqa: PLC0415 - only when data is read

    if not features:
        return flat.sizes(np.zeros(0, np.int64))
    return flat.flatten(features, pa.RecordBatch.from_pylist([], schema=schema_of(features)))


def read_sizes(records: Sequence["Records"]) -> Iterator["pa.RecordBatch"]:
    """Yield the sizes of opaque records."""
    from shardline.tfrecord.reader import DEFAULT_LIMITS  # noqa: PLC0415 - only when data is read

    for one in records:
        for block in one.blocks(limits=DEFAULT_LIMITS, block_bytes=_BLOCK_BYTES):
            yield flat.sizes(block.lengths)


def _read_some_rows(
    records: Sequence["Records"], features: Sequence[Feature], wanted: int, seed: int
) -> Iterator["pa.RecordBatch"]:
    import numpy as np  # noqa: PLC0415 - only when data is read

    from shardline.readers.arrow import BatchBuilder  # noqa: PLC0415 - only when data is read

    rng = np.random.default_rng(seed)
    batches = BatchBuilder(features)
    counts = [one.shard.records for one in records]
    for place, count in _choose_shards(counts, wanted, rng).items():
        one = records[place]
        for picked in one.pick(_choose_records(one, count, rng)):
            if features:
                yield flat.flatten(features, batches.of(one, picked))
            else:
                yield flat.sizes(picked.lengths)


def _choose_shards(
    records: Sequence[int], wanted: int, rng: "np.random.Generator"
) -> dict[int, int]:
    """Return the positions of some shards, in order, with the number of records to take of each.

    Points are set at even distances in the concatenated records. A shard is chosen if it contains a
    point, and each point stands for equally many rows, so records of small and large shards are
    equally likely. Small shards need more points.
    """
    import numpy as np  # noqa: PLC0415 - only when data is read

    counts = np.array(records, np.int64)
    ends = np.cumsum(counts)
    points = min(_SHARDS, wanted)
    while True:
        at = (np.arange(points) + rng.random()) * (int(ends[-1]) / points)
        hit = np.searchsorted(ends, np.minimum(at.astype(np.int64), ends[-1] - 1), "right")
        places, hits = np.unique(hit, return_counts=True)
        if counts[places].sum() >= wanted:
            break
        points *= 2
    taken = {}
    left, hits_left = wanted, points
    # Shards with the least room per point come first. Others take the rest of their share.
    for one in np.argsort(counts[places] / hits, kind="stable").tolist():
        share = left * int(hits[one]) // hits_left
        taken[int(places[one])] = min(int(counts[places[one]]), share)
        left -= taken[int(places[one])]
        hits_left -= int(hits[one])
    return {place: taken[place] for place in sorted(taken)}


def _choose_records(
    records: "Records", count: int, rng: "np.random.Generator"
) -> "NDArray[np.int64]":
    """Return record numbers, in order: random ones, or runs of a compressed shard."""
    import numpy as np  # noqa: PLC0415 - only when data is read

    from shardline.readers.records import is_compressed  # noqa: PLC0415 - only when data is read

    total = records.shard.records
    if not is_compressed(records):
        return np.sort(rng.choice(total, count, replace=False, shuffle=False))
    runs = -(-total // _RUN)
    # The last run may be short, so choose one more than needed.
    chosen = np.sort(rng.choice(runs, min(-(-count // _RUN) + 1, runs), replace=False))
    numbers = (chosen[:, np.newaxis] * _RUN + np.arange(_RUN)).ravel()
    return numbers[numbers < total][:count]


CHUNK_ROWS = 200_000
CHUNK_BYTES = 64 * 1024**2


def get_flat_columns(schema: Schema) -> list[FlatColumn]:
    """Return the flat columns of a schema."""
    return flat_columns([] if schema.payload == "opaque" else list(schema.features))


def create_empty_frame(schema: Schema) -> "pd.DataFrame":
    """Return a frame with all flat columns of a schema, and without rows."""
    features = [] if schema.payload == "opaque" else list(schema.features)
    return flat.to_frame([create_empty_batch(features)])


def read_chunks(
    snapshot: StoredSnapshot,
    shards: Collection[Shard],
    needed: Collection[str],
    *,
    chunk_rows: int = CHUNK_ROWS,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator["pd.DataFrame"]:
    """Yield every row of some shards of a snapshot, in order.

    A chunk has at most `chunk_rows` rows and about `chunk_bytes` in memory. Only the features of
    the `needed` columns are decoded. Overlays are joined with their bases. Raises the errors of
    readers for a corrupt or missing shard.
    """
    if chunk_rows < 1:
        raise InvalidArgumentError(
            f"invalid chunk_rows {chunk_rows}: expected 1 or more", code="out-of-range"
        )
    columns = [column for column in get_flat_columns(snapshot.schema) if column.name in needed]
    if not columns or not shards:
        return
    part = restrict_snapshot(snapshot, shards)
    names = [column.name for column in columns]
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in _flat_batches(part, columns):
        batch = whole.select(names)
        for first in range(0, batch.num_rows, chunk_rows):
            piece = batch.slice(first, chunk_rows)
            if held and (rows + piece.num_rows > chunk_rows or size > chunk_bytes):
                yield flat.to_frame(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield flat.to_frame(held)


def _flat_batches(part: StoredSnapshot, columns: list[FlatColumn]) -> Iterator["pa.RecordBatch"]:
    from shardline.readers.records import list_records  # noqa: PLC0415 - only when data is read

    if part.schema.payload == "opaque":
        yield from read_sizes(list_records(part, None))
        return
    # A name that occurs in the context and in the feature_lists selects both.
    names = {column.feature.name for column in columns}
    features: list[Feature] = [f for f in part.schema.features if f.name in names]
    chosen = list(dict.fromkeys(feature.name for feature in features))
    ordered = [f for name in chosen for f in features if f.name == name]
    for batch in to_arrow(part, chosen):
        yield flat.flatten(ordered, batch)
