"""Features as flat columns, on which expectations, drafts and drift work, and chunks of rows.

| feature                                  | columns                                              |
|------------------------------------------|------------------------------------------------------|
| single int64 or float                    | `<feature>`, the numbers                             |
| single Text, or Category of bytes        | `<feature>`, as `str`                                |
| other bytes, such as images              | `<feature>__bytes`, the size                         |
| list of numbers, of any shape            | `<feature>__len`, `__min`, `__max` and `__mean`      |
| list of texts                            | `<feature>__len`                                     |
| list of other bytes                      | `<feature>__len` and `__bytes`, the total size       |
| opaque record                            | `record__bytes`, the size                            |

`__len` counts values, and steps of a feature in the feature_lists. `__min`, `__max` and `__mean`
ignore NaN. A missing feature is null in all its columns. If a name occurs both in the context and
in the feature_lists, the columns of the latter are `<feature>__steps__len` and so on. A column with
the name of another feature is left out.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardline.errors import InvalidArgumentError
from shardline.log.model import Shard
from shardline.log.snapshot import StoredSnapshot
from shardline.readers.arrow import to_arrow
from shardline.readers.records import Records, list_records
from shardline.schema.arrow_types import schema_of
from shardline.schema.logical_types import Category, Text
from shardline.schema.schema import Feature, Schema
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    import pandas as pd


CHUNK_ROWS = 200_000
CHUNK_BYTES = 64 * 1024**2
_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """A column, and the measure of its feature such as `len`, empty for the value."""

    name: str
    feature: Feature
    measure: str = ""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Labels that its values may have, None if none are declared."""
        meaning = self.feature.meaning
        return meaning.labels if isinstance(meaning, Category) and not self.measure else None


def list_flat_columns(features: Sequence[Feature]) -> list[FlatColumn]:
    """Return the columns of these features, in order. Without features, that of opaque records."""
    if not features:
        return [FlatColumn("record__bytes", Feature("record", "bytes"), "bytes")]
    context = {feature.name for feature in features if not feature.sequence}
    themselves = {feature.name for feature in features if _is_flat(feature)}
    columns = []
    for feature in features:
        stem = feature.name
        if feature.sequence and stem in context:
            stem = f"{stem}__steps"
        if _is_flat(feature):
            columns.append(FlatColumn(stem, feature))
            continue
        derived = [
            FlatColumn(f"{stem}__{measure}", feature, measure)
            for measure in _list_measures(feature)
        ]
        columns += [column for column in derived if column.name not in themselves]
    return columns


def flatten(features: Sequence[Feature], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the flat columns of a batch with these features, in order."""
    arrays_by_feature = {}
    for feature, array in zip(features, batch.columns, strict=True):
        arrays_by_feature[feature.key] = (
            {"": array} if _is_flat(feature) else dict(_compute_measures(feature, array))
        )
    columns = list_flat_columns(features)
    arrays = [arrays_by_feature[column.feature.key][column.measure] for column in columns]
    fields = [
        pa.field(column.name, array.type, nullable=_is_nullable(column))
        for column, array in zip(columns, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def create_size_batch(lengths: NDArray[np.int64]) -> pa.RecordBatch:
    """Return the single column of opaque records."""
    (column,) = list_flat_columns(())
    field = pa.field(column.name, pa.int64(), nullable=False)
    return pa.RecordBatch.from_arrays([pa.array(lengths)], schema=pa.schema([field]))


def to_frame(batches: Sequence[pa.RecordBatch]) -> Any:  # noqa: ANN401 - pandas has no types
    """Return the columns of all batches as a DataFrame.

    Texts are `str`, and nullable integers are `Int64`, because floats would round them.
    """
    import pandas as pd  # noqa: PLC0415 - takes a second to load

    table = pa.Table.from_batches(batches)
    text = pd.StringDtype(na_value=float("nan"))
    columns = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        kinds = {pa.string(): text, pa.int64(): pd.Int64Dtype() if field.nullable else None}
        columns[field.name] = column.to_pandas(types_mapper=kinds.get)
    return pd.DataFrame(columns)


def _is_flat(feature: Feature) -> bool:
    return not (feature.shape or feature.sequence) and (
        feature.kind != "bytes" or _is_text(feature)
    )


def _is_text(feature: Feature) -> bool:
    return feature.kind == "bytes" and isinstance(feature.meaning, Text | Category)


def _list_measures(feature: Feature) -> tuple[str, ...]:
    """Return the measures of a feature whose values do not fit in a cell."""
    if not (feature.shape or feature.sequence):
        return ("bytes",)
    if feature.kind != "bytes":
        return ("len", "min", "max", "mean")
    return ("len",) if _is_text(feature) else ("len", "bytes")


def _is_nullable(column: FlatColumn) -> bool:
    """Return True if a column may contain nulls. The minimum of an empty list is null as well."""
    return not column.feature.required or column.measure in {"min", "max", "mean"}


def _compute_measures(feature: Feature, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the measures of a feature whose values do not fit in a cell."""
    if not (feature.shape or feature.sequence):
        yield "bytes", pc.binary_length(array).cast(pa.int64())
        return
    missing = ~np.asarray(array.is_valid())
    values, ends = _split_values(array)
    lengths = np.asarray(pc.list_value_length(array).fill_null(0))
    lengths = lengths if feature.sequence else np.diff(ends)
    yield "len", pa.array(lengths.astype(np.int64), mask=missing)
    if feature.kind == "bytes":
        sums = np.concatenate([[0], np.cumsum(pc.binary_length(values), dtype=np.int64)])
        yield "bytes", pa.array(np.diff(sums[ends]), mask=missing)
        return
    for measure, numbers, is_empty in _summarize_values(
        values.to_numpy(zero_copy_only=False), ends
    ):
        yield measure, pa.array(numbers, mask=missing | is_empty)


def _split_values(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return all values of a list column, and the offsets of the records."""
    ends = np.arange(len(array) + 1)
    while isinstance(array.type, pa.ListType | pa.FixedSizeListType):
        fixed = isinstance(array.type, pa.FixedSizeListType)
        ends = ends * array.type.list_size if fixed else np.asarray(array.offsets)[ends]
        array = array.values  # noqa: PD011 - not a pandas one
    return array, ends.astype(np.int64)


def _summarize_values(
    values: NDArray[Any], ends: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[Any], NDArray[np.bool_]]]:
    """Yield minimum, maximum and mean of each record, each with a mask of records without any."""
    filled = np.diff(ends) > 0
    starts = ends[:-1][filled]
    real = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), np.bool_)
    counts = np.zeros(len(filled), np.int64)
    sums = np.zeros(len(filled))
    minima, maxima = (np.zeros(len(filled), values.dtype) for _ in range(2))
    if len(starts):
        counts[filled] = np.add.reduceat(real, starts, dtype=np.int64)
        sums[filled] = np.add.reduceat(np.where(real, values, 0), starts, dtype=np.float64)
        minima[filled] = np.fmin.reduceat(values, starts)
        maxima[filled] = np.fmax.reduceat(values, starts)
    is_empty = counts == 0
    yield "min", minima, is_empty
    yield "max", maxima, is_empty
    yield "mean", sums / np.maximum(counts, 1), is_empty


def get_flat_columns(schema: Schema) -> list[FlatColumn]:
    """Return the flat columns of a schema."""
    return list_flat_columns([] if schema.payload == "opaque" else list(schema.features))


def create_empty_frame(schema: Schema) -> "pd.DataFrame":
    """Return a frame with all flat columns of a schema, and without rows."""
    features = [] if schema.payload == "opaque" else list(schema.features)
    return to_frame([create_empty_batch(features)])


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
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    for whole in _flat_batches(part, columns):
        batch = whole.select(names)
        for first in range(0, batch.num_rows, chunk_rows):
            piece = batch.slice(first, chunk_rows)
            if batches and (rows + piece.num_rows > chunk_rows or size > chunk_bytes):
                yield to_frame(batches)
                batches, rows, size = [], 0, 0
            batches.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if batches:
        yield to_frame(batches)


def _flat_batches(part: StoredSnapshot, columns: list[FlatColumn]) -> Iterator[pa.RecordBatch]:

    if part.schema.payload == "opaque":
        yield from read_sizes(list_records(part, None))
        return
    # A name that occurs in the context and in the feature_lists selects both.
    names = {column.feature.name for column in columns}
    features: list[Feature] = [f for f in part.schema.features if f.name in names]
    chosen = list(dict.fromkeys(feature.name for feature in features))
    ordered = [f for name in chosen for f in features if f.name == name]
    for batch in to_arrow(part, chosen):
        yield flatten(ordered, batch)


def restrict_snapshot(snapshot: StoredSnapshot, shards: Collection[Shard]) -> StoredSnapshot:
    """Return the snapshot with only these shards, in its own order."""
    names = {shard.name for shard in shards}
    shards_left = tuple(shard for shard in snapshot.shards if shard.name in names)
    if len(shards_left) < len(names):
        foreign = min(names - {shard.name for shard in shards_left})
        raise InvalidArgumentError(
            f"{snapshot}: unknown shard {foreign}",
            code="shard-not-found",
            path=foreign,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    return snapshot.with_shards(shards_left)


def create_empty_batch(features: Sequence[Feature]) -> pa.RecordBatch:
    """Return a flat batch without rows, which defines the columns."""
    if not features:
        return create_size_batch(np.zeros(0, np.int64))
    return flatten(features, pa.RecordBatch.from_pylist([], schema=schema_of(features)))


def read_sizes(records: Sequence[Records]) -> Iterator[pa.RecordBatch]:
    """Yield the sizes of opaque records."""
    for shard in records:
        for block in shard.blocks(limits=DEFAULT_LIMITS, block_bytes=_BLOCK_BYTES):
            yield create_size_batch(block.lengths)
