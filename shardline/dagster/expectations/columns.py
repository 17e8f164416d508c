"""Features as the flat columns that expectations, drafts and drift are about.

| feature                                  | columns                                              |
|------------------------------------------|------------------------------------------------------|
| one int64, one float                     | `<feature>`, the numbers as they are                 |
| one Text, one Category of bytes          | `<feature>`, as `str`                                |
| other bytes: images, raw arrays          | `<feature>__bytes`, the size                         |
| a list of numbers, of any shape          | `<feature>__len`, `__min`, `__max` and `__mean`      |
| a list of texts                          | `<feature>__len`                                     |
| a list of other bytes                    | `<feature>__len` and `__bytes`, the size of all      |
| records that are opaque                  | `record__bytes`, the size                            |

`__len` counts values, of a feature of the feature_lists steps. NaN is left out of `__min`, `__max`
and `__mean`. A feature that is missing is null in all its columns. If a name stands in the context
and in the feature_lists, the columns of the latter are `<feature>__steps__len` and so on. A column
is left out that has the name of another feature.
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
    """A column, and what it tells of a feature: `len`, `min` and so on, or nothing for itself."""

    name: str
    feature: Feature
    tells: str = ""

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The labels that its values may have, if they are declared."""
        meaning = self.feature.meaning
        return meaning.labels if isinstance(meaning, Category) and not self.tells else None


def flat_columns(features: Sequence[Feature]) -> list[FlatColumn]:
    """The columns that these features make, in their order; without any, that of opaque records."""
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
    """The flat columns of a batch that holds these features, in their order."""
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
    """The one column of records that are opaque."""
    import pyarrow as pa  # noqa: PLC0415 - only when data is read

    (column,) = flat_columns(())
    field = pa.field(column.name, pa.int64(), nullable=False)
    return pa.RecordBatch.from_arrays([pa.array(lengths)], schema=pa.schema([field]))


def to_frame(batches: Sequence["pa.RecordBatch"]) -> Any:  # noqa: ANN401 - pandas has no types
    """The columns of all batches as a DataFrame.

    Text is `str`, and whole numbers that may be missing are `Int64`: as floats they would be
    rounded.
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
    """What is told of a feature whose values make no cell."""
    if not (feature.shape or feature.sequence):
        return ("bytes",)
    if feature.kind != "bytes":
        return ("len", "min", "max", "mean")
    return ("len",) if _is_text(feature) else ("len", "bytes")


def _is_nullable(column: FlatColumn) -> bool:
    """Whether null may stand in a column: a list that is empty has no least number either."""
    return not column.feature.required or column.tells in {"min", "max", "mean"}


def _compute_measures(feature: Feature, array: "pa.Array") -> Iterator[tuple[str, "pa.Array"]]:
    """The columns that tell of values which make no cell."""
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
    """All values of a column of lists, and where those of each record begin and the last end."""
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
    """The least, the most and the mean number of each record, and of which there is none."""
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
