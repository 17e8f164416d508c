"""Mapping between Arrow types and schema features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline import canonical_json as canonical
from shardline.errors import ColumnError, SchemaMismatchError
from shardline.kernel.columns import VALUE_TYPES, is_list, to_arrow
from shardline.kernel.types import Column
from shardline.schema import shapes
from shardline.schema.logical_types import Array, Category, Text
from shardline.schema.schema import Feature
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from shardline.kernel.types import ColumnBuffers
    from shardline.schema.logical_types import LogicalType
    from shardline.schema.schema import Kind
    from shardline.schema.shapes import Shape


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    *_TEXTS,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)


def is_text(kind: pa.DataType) -> bool:
    """Return True if this is a text type."""
    return any(test(kind) for test in _TEXTS)


def is_number(kind: pa.DataType) -> bool:
    """Return True if this is a number type, including bool."""
    return bool(
        pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    )


def infer_kind(kind: pa.DataType) -> Kind | None:
    """Return the kind of feature that holds values of this type, or None."""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return "int64"
    if pa.types.is_floating(kind):
        return "float"
    return "bytes" if any(test(kind) for test in _BYTES) else None


def unwrap_lists(kind: pa.DataType) -> tuple[Shape, pa.DataType]:
    """Return the lengths of nested lists (None if free) and the type of the inner values."""
    dimensions: list[int | None] = []
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind):
            kind = kind.value_type
        elif is_list(kind):
            fixed = pa.types.is_fixed_size_list(kind)
            dimensions.append(kind.list_size if fixed else None)
            kind = kind.value_type
        else:
            return tuple(dimensions), kind


def infer_logical_type(kind: pa.DataType) -> LogicalType | None:
    """Return the logical type that this type implies, or None."""
    while is_list(kind) or isinstance(kind, pa.BaseExtensionType):
        kind = kind.value_type if is_list(kind) else kind.storage_type
    if pa.types.is_dictionary(kind):
        return Category() if is_text(kind.value_type) else None
    return Text() if is_text(kind) else None


def get_column_type(feature: Feature) -> pa.DataType:
    """Return the type of a column that can be written as this feature."""
    value = VALUE_TYPES[feature.kind]
    if feature.sequence:
        return pa.list_(pa.list_(value))
    return pa.list_(value) if feature.shape else value


def get_depth(feature: Feature) -> int:
    """Return the nesting depth of lists that have the full shape of the feature."""
    return len(feature.shape) + feature.sequence


def has_numbers(feature: Feature, kind: pa.DataType) -> bool:
    """Return True if the feature stores raw array bytes and the type has numbers for them."""
    if feature.shape or feature.sequence or not isinstance(feature.meaning, Array):
        return False
    dimensions, leaf = unwrap_lists(kind)
    return is_number(leaf) or (bool(dimensions) and bool(pa.types.is_null(leaf)))


def find_mismatch(feature: Feature, kind: pa.DataType) -> str | None:
    """Return why no value of this type can fit the feature, or None if some can."""
    dimensions, leaf = unwrap_lists(kind)
    if has_numbers(feature, kind) and isinstance(feature.meaning, Array):
        expected, flat = len(feature.meaning.shape), 1
    else:
        if not (pa.types.is_null(leaf) or _has_kind(leaf, feature.kind)):
            return f"holds {_format_type(leaf)} values, not {feature.kind}"
        expected, flat = get_depth(feature), 1 + feature.sequence
    depth = len(dimensions)
    known = not pa.types.is_null(leaf)
    if depth == expected or (depth == flat and expected > flat) or (depth < expected and not known):
        return None
    if not depth:
        return "holds one value, and a list belongs there"
    if not expected:
        return "holds a list, and one value belongs there"
    return f"holds lists in lists {depth} deep, not {expected}"


def find_shape_mismatch(feature: Feature, kind: pa.DataType) -> str | None:
    """Return why no value of this type has the feature's shape, or None if some may."""
    lengths, _ = unwrap_lists(kind)
    expected: Shape = (None, *feature.shape) if feature.sequence else feature.shape
    if has_numbers(feature, kind) and isinstance(feature.meaning, Array):
        expected = feature.meaning.shape
    if len(lengths) == len(expected):
        fits = all(a == b or None in (a, b) for a, b in zip(lengths, expected, strict=True))
    else:
        free = not lengths or None in lengths or feature.sequence
        fits = free or shapes.holds(expected, shapes.unit(lengths))
    return (
        None
        if fits
        else f"has the shape {shapes.format_shape(lengths)}, not {shapes.format_shape(expected)}"
    )


def infer_arrow_feature(name: str, kind: pa.DataType, *, required: bool = True) -> Feature | None:
    """Return the feature for a column of this type, or None if no feature can hold it.

    Nested lists of fixed length become a shape. Lists of lists become steps.
    """
    dimensions, leaf = unwrap_lists(kind)
    value_kind = infer_kind(leaf)
    sequence = len(dimensions) > 1 and None in dimensions
    shape = dimensions[1:] if sequence else dimensions
    if value_kind is None or 0 in dimensions or None in shape[1:]:
        return None
    try:
        return Feature(
            name,
            value_kind,
            shape,
            required=required,
            meaning=infer_logical_type(kind),
            sequence=sequence,
        )
    except SchemaMismatchError:
        return None


def _has_kind(leaf: pa.DataType, kind: Kind) -> bool:
    """Return True if at least some values of this type can have the kind."""
    if kind == "int64":
        return is_number(leaf)
    if kind == "float":
        return is_number(leaf) and not pa.types.is_boolean(leaf)
    return infer_kind(leaf) == "bytes"


def _format_type(kind: pa.DataType) -> str:
    """Return the type for messages, without the names of inner fields, which may be data."""
    if pa.types.is_boolean(kind):
        return "bool"
    return infer_kind(kind) or str(kind).partition("<")[0]


METADATA_KEY = b"shardline.feature"


def column_of(feature: Feature) -> Column:
    """Return the kernel column of a feature."""
    if feature.sequence:
        return Column(feature.name, feature.kind, "ragged")
    if not feature.shape:
        return Column(feature.name, feature.kind)
    if not shapes.is_fixed(feature.shape):
        return Column(feature.name, feature.kind, "variable")
    return Column(feature.name, feature.kind, "fixed", shapes.unit(feature.shape))


def schema_of(features: Sequence[Feature]) -> pa.Schema:
    """Return the Arrow schema of these features."""
    return pa.schema([_field(feature) for feature in features])


def _field(feature: Feature) -> pa.Field:
    kind = pa.string() if _is_text(feature) else VALUE_TYPES[feature.kind]
    for size in reversed(feature.shape):
        kind = pa.list_(kind) if size is None else pa.list_(kind, size)
    if feature.sequence:
        kind = pa.list_(kind)
    metadata = {METADATA_KEY: canonical.encode(feature.to_dict())}
    return pa.field(feature.name, kind, nullable=not feature.required, metadata=metadata)


def _is_text(feature: Feature) -> bool:
    return feature.kind == "bytes" and isinstance(feature.meaning, Text | Category)


def to_column(feature: Feature, buffers: ColumnBuffers) -> pa.Array:
    """Convert a feature's values to the Arrow array that `schema_of` declares.

    Raises ColumnError, with the position of the record in the block, for values that do not fit.
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
        values = _decode_text(feature, buffers, values)
    if buffers.column.layout == "scalar":
        return values
    fixed = shapes.is_fixed(feature.shape)
    if buffers.steps is not None:
        steps = _row_offsets(feature, buffers, buffers.steps)
        if fixed:
            return _list(_split_into_rows(values, feature.shape), validity, buffers.rows)
        values = _list(_split_into_rows(values, feature.shape[1:]), None, steps)
        return _list(values, validity, buffers.rows)
    if not fixed:
        rows = _row_offsets(feature, buffers, buffers.rows)
        return _list(_split_into_rows(values, feature.shape[1:]), validity, rows)
    values = _split_into_rows(values, feature.shape[1:])
    kind = pa.list_(values.type, feature.shape[0])
    return pa.Array.from_buffers(kind, len(buffers.valid), [validity], children=[values])


def _split_into_rows(values: pa.Array, shape: Shape) -> pa.Array:
    """Cut the values into rows of a fixed shape."""
    for size in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    return values


def _list(values: pa.Array, validity: pa.Buffer | None, offsets: NDArray[np.int32]) -> pa.Array:
    parts = [validity, pa.py_buffer(offsets)]
    return pa.Array.from_buffers(pa.list_(values.type), len(offsets) - 1, parts, children=[values])


def _row_offsets(
    feature: Feature, buffers: ColumnBuffers, offsets: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return list offsets in rows instead of values. Each list must have whole rows."""
    unit = shapes.unit(feature.shape)
    counts = np.diff(offsets)
    fixed = shapes.is_fixed(feature.shape)
    wrong = counts != unit if fixed else counts % unit != 0
    if wrong.any():
        index = int(wrong.argmax())
        record = index if buffers.steps is None else _find_owner(buffers.rows, index)
        step = " in a step" if feature.sequence else ""
        expected = f"{'' if fixed else 'a multiple of '}{unit}"
        actual = f"{format_count(int(counts[index]), 'value')}{step}"
        raise ColumnError(
            record, feature.name, f"holds {actual}, not {expected}", code="length-mismatch"
        )
    return offsets if unit == 1 else offsets // np.int32(unit)


def _decode_text(feature: Feature, buffers: ColumnBuffers, values: pa.Array) -> pa.Array:
    """Return the values as strings. Raises ColumnError for invalid UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        index = next(number for number, value in enumerate(values) if not _is_utf8(value.as_py()))
    for offsets in (buffers.steps, buffers.rows):
        index = index if offsets is None else _find_owner(offsets, index)
    raise ColumnError(
        index, feature.name, "holds bytes that are not UTF-8 text", code="invalid-utf8"
    )


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _find_owner(offsets: NDArray[np.int32], index: int) -> int:
    """Return the list that contains a value."""
    return int(np.searchsorted(offsets, index, "right")) - 1
