"""Features as flat columns, on which expectations, drafts and drift work.

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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardline.schema.logical_types import Category, Text
from shardline.schema.schema import Feature

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """A column, and the measure of its feature such as `len`, empty for the value."""

    name: str
    feature: Feature
    tells: str = ""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Labels that its values may have, None if none are declared."""
        meaning = self.feature.meaning
        return meaning.labels if isinstance(meaning, Category) and not self.tells else None


def flat_columns(features: Sequence[Feature]) -> list[FlatColumn]:
    """Return the columns of these features, in order. Without features, that of opaque records."""
    if not features:
        return [FlatColumn("record__bytes", Feature("record", "bytes"), "bytes")]
    context = {feature.name for feature in features if not feature.sequence}
    themselves = {feature.name for feature in features if _is_flat(feature)}
    made = []
    for feature in features:
        stem = feature.name
        if feature.sequence and stem in context:
            stem = f"{stem}__steps"
        if _is_flat(feature):
            made.append(FlatColumn(stem, feature))
            continue
        derived = [
            FlatColumn(f"{stem}__{tells}", feature, tells) for tells in _list_measures(feature)
        ]
        made += [column for column in derived if column.name not in themselves]
    return made


def flatten(features: Sequence[Feature], batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return the flat columns of a batch with these features, in order."""
    import pyarrow as pa  # noqa: PLC0415 - only when data is read

    told = {}
    for feature, array in zip(features, batch.columns, strict=True):
        told[feature.key] = (
            {"": array} if _is_flat(feature) else dict(_compute_measures(feature, array))
        )
    columns = flat_columns(features)
    arrays = [told[column.feature.key][column.tells] for column in columns]
    fields = [
        pa.field(column.name, array.type, nullable=_is_nullable(column))
        for column, array in zip(columns, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def sizes(lengths: "NDArray[np.int64]") -> "pa.RecordBatch":
    """Return the single column of opaque records."""
    import pyarrow as pa  # noqa: PLC0415 - only when data is read

    (column,) = flat_columns(())
    field = pa.field(column.name, pa.int64(), nullable=False)
    return pa.RecordBatch.from_arrays([pa.array(lengths)], schema=pa.schema([field]))


def to_frame(batches: Sequence["pa.RecordBatch"]) -> Any:  # noqa: ANN401 - pandas has no types
    """Return the columns of all batches as a DataFrame.

    Texts are `str`, and nullable integers are `Int64`, because floats would round them.
    """
    import pandas as pd  # noqa: PLC0415 - takes a second to load
    import pyarrow as pa  # noqa: PLC0415 - only when data is read

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
    return not column.feature.required or column.tells in {"min", "max", "mean"}


def _compute_measures(feature: Feature, array: "pa.Array") -> Iterator[tuple[str, "pa.Array"]]:
    """Yield the measures of a feature whose values do not fit in a cell."""
    import numpy as np  # noqa: PLC0415 - only when data is read
    import pyarrow as pa  # noqa: PLC0415 - only when data is read
    import pyarrow.compute as pc  # noqa: PLC0415 - only when data is read

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
    for tells, numbers, none in _summarize_values(values.to_numpy(zero_copy_only=False), ends):
        yield tells, pa.array(numbers, mask=missing | none)


def _split_values(array: "pa.Array") -> tuple["pa.Array", "NDArray[np.int64]"]:
    """Return all values of a list column, and the offsets of the records."""
    import numpy as np  # noqa: PLC0415 - only when data is read
    import pyarrow as pa  # noqa: PLC0415 - only when data is read

    ends = np.arange(len(array) + 1)
    while isinstance(array.type, pa.ListType | pa.FixedSizeListType):
        fixed = isinstance(array.type, pa.FixedSizeListType)
        ends = ends * array.type.list_size if fixed else np.asarray(array.offsets)[ends]
        array = array.values  # noqa: PD011 - not a pandas one
    return array, ends.astype(np.int64)


def _summarize_values(
    values: "NDArray[Any]", ends: "NDArray[np.int64]"
) -> Iterator[tuple[str, "NDArray[Any]", "NDArray[np.bool_]"]]:
    """Yield minimum, maximum and mean of each record, each with a mask of records without any."""
    import numpy as np  # noqa: PLC0415 - only when data is read

    filled = np.diff(ends) > 0
    starts = ends[:-1][filled]
    real = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), np.bool_)
    counts = np.zeros(len(filled), np.int64)
    sums = np.zeros(len(filled))
    least, most = (np.zeros(len(filled), values.dtype) for _ in range(2))
    if len(starts):
        counts[filled] = np.add.reduceat(real, starts, dtype=np.int64)
        sums[filled] = np.add.reduceat(np.where(real, values, 0), starts, dtype=np.float64)
        least[filled] = np.fmin.reduceat(values, starts)
        most[filled] = np.fmax.reduceat(values, starts)
    none = counts == 0
    yield "min", least, none
    yield "max", most, none
    yield "mean", sums / np.maximum(counts, 1), none
