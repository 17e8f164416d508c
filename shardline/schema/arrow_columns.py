"""Features as Arrow columns in the shapes that a schema declares.

| feature                             | Arrow type                                              |
|-------------------------------------|---------------------------------------------------------|
| int64, float, bytes                 | int64, float, binary                                    |
| bytes that are a Text or a Category | string                                                  |
| bytes that are an Image or an Array | binary, as it is: `meaning.decode` makes it an array    |
| shape (2, 3)                        | fixed_size_list[2] of fixed_size_list[3] of those       |
| shape (None, 3)                     | list of fixed_size_list[3] of those                     |
| a feature of the feature_lists      | list, of what the shape of one step makes of it         |

Where a feature is optional, null stands for a record that does not have it. Each field carries its
feature as JSON in the metadata, under `shardline.feature`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline import canonical_json as canonical
from shardline.errors import ColumnError
from shardline.kernel.columns import to_arrow
from shardline.kernel.types import Column
from shardline.schema import shapes
from shardline.schema.logical_types import Category, Text
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import ColumnBuffers
    from shardline.schema.schema import Feature
    from shardline.schema.shapes import Shape

METADATA_KEY = b"shardline.feature"
_VALUE_TYPES = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}


def column_of(feature: Feature) -> Column:
    """What to ask the kernel for."""
    if feature.sequence:
        return Column(feature.name, feature.kind, "ragged")
    if not feature.shape:
        return Column(feature.name, feature.kind)
    if not shapes.is_fixed(feature.shape):
        return Column(feature.name, feature.kind, "variable")
    return Column(feature.name, feature.kind, "fixed", shapes.unit(feature.shape))


def schema_of(features: Sequence[Feature]) -> pa.Schema:
    """The Arrow schema of these features."""
    return pa.schema([_field(feature) for feature in features])


def _field(feature: Feature) -> pa.Field:
    kind = pa.string() if _is_text(feature) else _VALUE_TYPES[feature.kind]
    for size in reversed(feature.shape):
        kind = pa.list_(kind) if size is None else pa.list_(kind, size)
    if feature.sequence:
        kind = pa.list_(kind)
    told = {METADATA_KEY: canonical.encode(feature.to_json())}
    return pa.field(feature.name, kind, nullable=not feature.required, metadata=told)


def _is_text(feature: Feature) -> bool:
    return feature.kind == "bytes" and isinstance(feature.meaning, Text | Category)


def to_column(feature: Feature, buffers: ColumnBuffers) -> pa.Array:
    """A feature's values as the Arrow array that `schema_of` promises.

    Raises ColumnError, with the record's place in the block, where they do not fit the feature.
    """
    if feature.required and not buffers.valid.all():
        missing = int(np.argmin(buffers.valid))
        raise ColumnError(
            missing, feature.name, "is missing, and is required", code="missing-feature"
        )
    flat = to_arrow(buffers)
    validity = flat.buffers()[0]
    values = flat
    for _ in range({"scalar": 0, "ragged": 2}.get(buffers.column.layout, 1)):
        values = values.values
    if _is_text(feature):
        values = _as_text(feature, buffers, values)
    if buffers.column.layout == "scalar":
        return values
    fixed = shapes.is_fixed(feature.shape)
    if buffers.steps is not None:
        steps = _row_offsets(feature, buffers, buffers.steps)
        if fixed:
            return _list(_in_rows(values, feature.shape), validity, buffers.rows)
        values = _list(_in_rows(values, feature.shape[1:]), None, steps)
        return _list(values, validity, buffers.rows)
    if not fixed:
        rows = _row_offsets(feature, buffers, buffers.rows)
        return _list(_in_rows(values, feature.shape[1:]), validity, rows)
    values = _in_rows(values, feature.shape[1:])
    kind = pa.list_(values.type, feature.shape[0])
    return pa.Array.from_buffers(kind, len(buffers.valid), [validity], children=[values])


def _in_rows(values: pa.Array, shape: Shape) -> pa.Array:
    """The values cut into rows of a fixed shape."""
    for size in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def _list(values: pa.Array, validity: pa.Buffer | None, offsets: NDArray[np.int32]) -> pa.Array:
    parts = [validity, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.list_(values.type), len(offsets) - 1, parts, children=[values])


def _row_offsets(
    feature: Feature, buffers: ColumnBuffers, offsets: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Where lists begin, counted in rows instead of values; each must be whole rows."""
    unit = shapes.unit(feature.shape)
    counts = np.diff(offsets)
    fixed = shapes.is_fixed(feature.shape)
    wrong = counts != unit if fixed else counts % unit != 0
    if wrong.any():
        place = int(wrong.argmax())
        record = place if buffers.steps is None else _owner(buffers.rows, place)
        step = " in a step" if feature.sequence else ""
        wanted = f"{'' if fixed else 'a multiple of '}{unit}"
        found = f"{counted(int(counts[place]), 'value')}{step}"
        raise ColumnError(
            record, feature.name, f"holds {found}, not {wanted}", code="length-mismatch"
        )
    return offsets if unit == 1 else offsets // np.int32(unit)


def _as_text(feature: Feature, buffers: ColumnBuffers, values: pa.Array) -> pa.Array:
    """The values as strings, which in Arrow must be UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        place = next(at for at, value in enumerate(values) if not _is_utf8(value.as_py()))
    for offsets in (buffers.steps, buffers.rows):
        place = place if offsets is None else _owner(offsets, place)
    raise ColumnError(
        place, feature.name, "holds bytes that are not UTF-8 text", code="invalid-utf8"
    )


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _owner(offsets: NDArray[np.int32], place: int) -> int:
    """Which list a value stands in."""
    return int(np.searchsorted(offsets, place, "right")) - 1
