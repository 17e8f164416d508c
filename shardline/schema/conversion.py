"""Conversion of columns to the stored form of a feature, with a reason per bad row.

Whole columns are converted at once: kinds, nesting, nulls in lists, numbers that are too large.
Properties of single values (lengths, NaN, text, labels) are checked on the encoded records, by the
code that checks records from other sources.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.kernel.columns import is_list, split_lists
from shardline.kernel.types import check_offsets
from shardline.schema.arrow_types import (
    find_mismatch,
    get_column_type,
    get_depth,
    has_numbers,
    is_number,
    is_text,
)
from shardline.schema.exact_numbers import TooLarge
from shardline.schema.logical_types import Array, Image
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from shardline.schema.schema import Feature, Kind
    from shardline.schema.shapes import Shape

    Mask = NDArray[np.bool_]
    Cuts = NDArray[np.int64]
    Faults = list[tuple[Mask, str]]
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


NULL_IN_LIST = "holds a null inside a list, which a record cannot hold"
TOO_LARGE = "holds a number too large for its kind"
NOT_WHOLE = "holds a number that is not whole"
NOT_BASE64 = "holds text that is not base64"


@dataclass(frozen=True, slots=True)
class ConvertedColumn:
    """Column ready to be written. `bad` maps rows that do not fit, null here, to reasons."""

    array: pa.Array
    bad: dict[int, str] = field(default_factory=dict)


def convert_to_feature(
    feature: Feature, array: pa.Array, *, base64: bool = False
) -> ConvertedColumn:
    """Convert a column of any type to that of the feature.

    With `base64`, text for images and arrays is base64.
    """
    array = _get_storage(array)
    reason = find_mismatch(feature, array.type)
    if reason is not None:
        bad = dict.fromkeys(np.flatnonzero(_get_validity(array)).tolist(), reason)
        return ConvertedColumn(pa.nulls(len(array), get_column_type(feature)), bad)
    packed = base64 and isinstance(feature.meaning, Image | Array)
    if isinstance(feature.meaning, Array) and has_numbers(feature, array.type):
        lists = _Lists(array, feature.meaning.shape, 1)
        values, faults = encode_raw_arrays(feature.meaning, lists.values, lists.cuts)
        lists.note_nulls()
        lists.note(lists.cuts, faults, TOO_LARGE)
        return ConvertedColumn(_mask_values(values, lists.invalid), lists.bad)
    if not get_depth(feature):
        return _fit_values(feature.kind, array, packed=packed)
    return _fit_lists(feature, array, packed=packed)


def _fit_values(kind: Kind, array: pa.Array, *, packed: bool) -> ConvertedColumn:
    values, faults = _convert_kind(kind, array, packed=packed)
    bad: dict[int, str] = {}
    for mask, reason in faults:
        for row in np.flatnonzero(mask).tolist():
            bad.setdefault(row, reason)
    if bad:
        invalid = ~_get_validity(values)
        invalid[list(bad)] = True
        values = _mask_values(values, invalid)
    return ConvertedColumn(values, bad)


def _fit_lists(feature: Feature, array: pa.Array, *, packed: bool) -> ConvertedColumn:
    dimensions = (None, *feature.shape) if feature.sequence else feature.shape
    lists = _Lists(array, dimensions, 1 + feature.sequence)
    lists.note_nulls()
    values, faults = _convert_kind(feature.kind, lists.values, packed=packed)
    for wrong, reason in faults:
        lists.note(lists.cuts, wrong, reason)
    if values.null_count:
        values = pc.fill_null(values, pa.scalar(b"" if feature.kind == "bytes" else 0, values.type))
    invalid = lists.invalid
    mask = pa.array(invalid) if invalid.any() else None
    if not feature.sequence:
        return ConvertedColumn(_build_lists(lists.cuts, values, mask), lists.bad)
    return ConvertedColumn(
        _build_lists(lists.levels[0], _build_lists(lists.steps, values), mask), lists.bad
    )


class _Lists:
    """Column of nested lists, taken apart, with its faults.

    `levels` splits the lists of each depth into those of the next, and `cuts` splits `values` by
    row. Lists deeper than `first` must have the lengths of the `dimensions`, unless all inner lists
    are omitted.
    """

    def __init__(self, array: pa.Array, dimensions: Shape, first: int) -> None:
        self._valid = _get_validity(array)
        self._dimensions = dimensions
        self._nulls: list[tuple[Cuts, Mask]] = []
        self.bad: dict[int, str] = {}
        self.levels: list[Cuts] = []
        self.cuts: Cuts = np.arange(len(array) + 1)
        self.values = array
        while True:
            if pa.types.is_null(self.values.type) and len(self.levels) < len(dimensions):
                self.values = pa.nulls(len(self.values), pa.list_(pa.null()))
            if not is_list(self.values.type):
                break
            self._descend(first)

    def _descend(self, first: int) -> None:
        offsets, inner = split_lists(self.values)
        depth = len(self.levels)
        if depth >= first and len(self._dimensions) > first:
            expected = self._dimensions[depth]
            lengths = np.diff(offsets)
            wrong = (lengths != expected) & _get_validity(self.values)
            for index, owner in self._owners(self.cuts, wrong):
                reason = (
                    "holds an inner list of "
                    f"{format_count(int(lengths[index]), 'value')}, not {expected}"
                )
                self.bad.setdefault(owner, reason)
        self.levels.append(offsets)
        self.cuts = offsets if depth == 0 else offsets[self.cuts]
        self.values = _get_storage(inner)
        if self.values.null_count:
            self._nulls.append((self.cuts, ~_get_validity(self.values)))

    @property
    def steps(self) -> Cuts:
        """Offsets of the values of each step. Without inner lists, a step is one value."""
        if len(self.levels) == 1:
            return np.arange(len(self.values) + 1)
        cuts = self.levels[1]
        for offsets in self.levels[2:]:
            cuts = offsets[cuts]
        return cuts

    @property
    def invalid(self) -> Mask:
        """Mask of the rows that are null or bad."""
        invalid = ~self._valid
        invalid[list(self.bad)] = True
        return invalid

    def note_nulls(self) -> None:
        """Mark rows with a null in a list as bad."""
        for cuts, mask in self._nulls:
            self.note(cuts, mask, NULL_IN_LIST)

    def note(self, cuts: Cuts, mask: Mask, reason: str) -> None:
        """Mark rows with marked values as bad. `cuts` gives the values of each row."""
        for _, owner in self._owners(cuts, mask):
            self.bad.setdefault(owner, reason)

    def _owners(self, cuts: Cuts, mask: Mask) -> Iterator[tuple[int, int]]:
        """Yield the first marked position of each present row, and the row."""
        indices = np.flatnonzero(mask)
        if not len(indices):
            return
        owners, firsts = np.unique(np.searchsorted(cuts, indices, "right") - 1, return_index=True)
        for index, owner in zip(indices[firsts].tolist(), owners.tolist(), strict=True):
            if 0 <= owner < len(self._valid) and self._valid[owner]:
                yield index, owner


def _convert_kind(kind: Kind, values: pa.Array, *, packed: bool) -> tuple[pa.Array, Faults]:
    """Convert values to the kind, and mark those that do not fit. Nulls are not marked."""
    if kind == "bytes" and packed and is_text(values.type):
        return _decode_base64(values)
    if kind == "bytes":
        return values.cast(pa.binary()), []
    if kind == "float":
        return _convert_to_floats(values)
    return (
        _convert_fractions(values)
        if pa.types.is_floating(values.type)
        else _convert_integers(values)
    )


def _convert_integers(values: pa.Array) -> tuple[pa.Array, Faults]:
    after = values.cast(pa.int64(), safe=False)
    if not pa.types.is_uint64(values.type):
        return after, []
    over = _get_mask(pc.less(after, pa.scalar(0, pa.int64())))
    return after, [(over, TOO_LARGE)] if over.any() else []


def _convert_to_floats(values: pa.Array) -> tuple[pa.Array, Faults]:
    if pa.types.is_float32(values.type):
        return values, []
    before = values.cast(
        pa.float64(), safe=False
    )  # via float64 for whole numbers too, so that they round as their text does
    after = before.cast(pa.float32(), safe=False)
    infinite = _get_mask(pc.is_inf(after))
    if not infinite.any():
        return after, []
    return after, [(infinite & ~_get_mask(pc.is_inf(before)), TOO_LARGE)]


def _convert_fractions(values: pa.Array) -> tuple[pa.Array, Faults]:
    numbers = values.cast(pa.float64())
    missing = None if not numbers.null_count else ~_get_validity(numbers)
    plain = np.asarray(pc.fill_null(numbers, 0.0))
    with np.errstate(invalid="ignore"):
        unknown = np.isnan(plain)
        split = (np.floor(plain) != plain) & ~unknown
        over = ~((plain >= -(2.0**63)) & (plain < 2.0**63)) & ~unknown
    wrong = unknown | split | over
    whole = np.where(wrong, 0.0, plain).astype(np.int64)
    faults = [(unknown, "holds NaN"), (over, TOO_LARGE), (split, NOT_WHOLE)]
    return pa.array(whole, mask=missing), [fault for fault in faults if fault[0].any()]


def _decode_base64(values: pa.Array) -> tuple[pa.Array, Faults]:
    wrong = np.zeros(len(values), np.bool_)
    unpacked: list[bytes | None] = []
    for index, text in enumerate(values.to_pylist()):
        try:
            unpacked.append(None if text is None else binascii.a2b_base64(text, strict_mode=True))
        except ValueError:
            unpacked.append(None)
            wrong[index] = True
    return pa.array(unpacked, pa.binary()), [(wrong, NOT_BASE64)] if wrong.any() else []


def _get_storage(array: pa.Array) -> pa.Array:
    """Return the array without extension and dictionary types."""
    while True:
        if isinstance(array.type, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        else:
            return array


def _get_validity(array: pa.Array) -> Mask:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return np.asarray(array.is_valid())


def _get_mask(mask: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(mask, False))  # noqa: FBT003 - Arrow's own


def _build_lists(cuts: Cuts, values: pa.Array, mask: pa.Array | None = None) -> pa.Array:
    check_offsets(int(cuts[-1]))
    return pa.ListArray.from_arrays(pa.array(cuts.astype(np.int32)), values, mask=mask)


def _mask_values(values: pa.Array, invalid: NDArray[Any]) -> pa.Array:
    if not invalid.any():
        return values
    return pc.if_else(pa.array(~invalid), values, pa.scalar(None, values.type))


def encode_raw_arrays(
    meaning: Array, values: pa.Array, cuts: NDArray[np.int64]
) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Return each row's numbers as raw bytes, and mark those that the dtype cannot hold.

    `cuts` gives the values of each row.
    """
    dtype = _parse_dtype(meaning.dtype)
    if pa.types.is_null(values.type):  # all lists are empty
        values = values.cast(pa.int64())
    zero = pa.scalar(False if pa.types.is_boolean(values.type) else 0, values.type)
    numbers = np.asarray(pc.fill_null(values, zero) if values.null_count else values)
    with np.errstate(invalid="ignore", over="ignore"):
        converted = numbers.astype(dtype)
        wrong = _mark_changed(numbers, converted)
    offsets = cuts * dtype.itemsize
    check_offsets(int(offsets[-1]))
    data = pa.py_buffer(np.ascontiguousarray(converted).view(np.uint8))
    parts = [None, pa.py_buffer(offsets.astype(np.int32)), data]
    return pa.Array.from_buffers(pa.binary(), len(cuts) - 1, parts), wrong


def _parse_dtype(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any]
    if name == "bfloat16":
        # NumPy lacks bfloat16. Users of such arrays have ml_dtypes installed.
        import ml_dtypes  # noqa: PLC0415

        dtype = np.dtype(ml_dtypes.bfloat16)
    else:
        dtype = np.dtype(name).newbyteorder("<")
    return dtype


def _mark_changed(before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark numbers that have changed, except for rounded fractions."""
    if after.dtype.kind in "fV":  # NumPy reports bfloat16 as V
        finite = np.isfinite(before) if before.dtype.kind == "f" else np.True_
        over: NDArray[np.bool_] = ~np.isfinite(after.astype(np.float64)) & finite
        return over
    if before.dtype == after.dtype:
        return np.zeros(len(before), np.bool_)
    same: NDArray[np.bool_] = after.astype(before.dtype) == before
    if before.dtype.kind in "iu" and after.dtype.kind in "iu":
        same &= (before < 0) == (after < 0)  # the cast back restores a lost sign
    return ~same


MISMATCH = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Errors that Arrow raises for values that do not fit in one column."""


_BOOLS: set[type] = {bool, np.bool_}
_NUMBERS = (int, float, np.number)


def column_of(values: Sequence[object]) -> pa.Array:
    """Return the values as a column of the type that Arrow infers. Raises one of MISMATCH.

    Arrays of several dimensions keep their shape if all have the same shape.
    """
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, np.ndarray) for value in present):
        return _column_of_arrays(values, present)
    kinds: set[type] = set()
    _gather_types(present, kinds)
    if kinds & _BOOLS and any(issubclass(kind, _NUMBERS) for kind in kinds - _BOOLS):
        # Arrow converts true to 1 or rejects it, depending on the values before it.
        raise TypeError("true and false beside numbers")
    return pa.array([_to_plain(value) for value in values])


def _gather_types(values: Iterable[object], kinds: set[type]) -> None:
    own_types = set(map(type, values))
    kinds |= own_types
    if own_types & {list, tuple}:
        for value in values:
            if isinstance(value, list | tuple):
                _gather_types(value, kinds)


def convert_array(array: np.ndarray[Any, Any]) -> pa.Array:
    """Return an array, whose first axis is the record, as a column of the inner shape."""
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    column = pa.array(np.ascontiguousarray(array).reshape(-1))
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def convert_values(
    feature: Feature, values: Sequence[object], *, base64: bool = False
) -> ConvertedColumn:
    """Convert values to a column of the feature, with reasons for values that do not fit."""
    try:
        column = column_of(values)
        # A value of a wrong type may impose it on others: an empty list has no type.
        if len(values) == 1 or find_mismatch(feature, column.type) is None:
            return convert_to_feature(feature, column, base64=base64)
    except MISMATCH:
        if len(values) == 1:
            return ConvertedColumn(
                pa.nulls(1, get_column_type(feature)), {0: _describe_mismatch(feature, values[0])}
            )
    middle = len(values) // 2
    first = convert_values(feature, values[:middle], base64=base64)
    second = convert_values(feature, values[middle:], base64=base64)
    later = {middle + row: reason for row, reason in second.bad.items()}
    return ConvertedColumn(pa.concat_arrays([first.array, second.array]), first.bad | later)


def measure_value(value: object) -> int:
    """Return the approximate size of a value in bytes."""
    if isinstance(value, Mapping):
        return sum(map(measure_value, value.values()))
    if isinstance(value, np.ndarray | memoryview):
        return value.nbytes
    if isinstance(value, bytes | bytearray | str):
        return len(value)
    if isinstance(value, list | tuple) and value:
        return len(value) * measure_value(value[0])
    return 8


def _column_of_arrays(values: Sequence[object], present: list[Any]) -> pa.Array:
    shapes = {(value.shape, value.dtype) for value in present}
    if len(shapes) > 1 or len(present) < len(values) or present[0].dtype == object:
        return pa.array([_to_plain(value) for value in values])
    if 0 in present[0].shape:
        return pa.array([value.tolist() for value in present])
    return convert_array(np.stack(present))


def _to_plain(value: object) -> object:
    """Return the value as Arrow takes it: Arrow supports only one-dimensional arrays."""
    if isinstance(value, np.ndarray) and (value.ndim != 1 or value.dtype == object):
        return value.tolist()
    return value


def _describe_mismatch(feature: Feature, value: object) -> str:
    """Return why a value does not fit the feature, if no column can be built from it."""
    kinds, depths, nulls = set[str](), set[int](), False
    left: list[tuple[object, int]] = [(_to_plain(value), 0)]
    while left:
        item, depth = left.pop()
        if isinstance(item, list | tuple | np.ndarray):
            left += [(inner, depth + 1) for inner in item]
        elif isinstance(item, TooLarge) or (isinstance(item, int) and item.bit_length() > 63):
            return TOO_LARGE
        elif item is None:
            nulls = nulls or depth > 0
        else:
            kinds.add(_kind(item))
            depths.add(depth)
    if len(depths) > 1:
        return "holds values and lists beside each other"
    if len(kinds) == 1 and "text" in kinds:
        return "holds text that is not Unicode"
    if nulls:
        return NULL_IN_LIST
    return f"holds {' and '.join(sorted(kinds)) or 'other'} values, not {feature.kind}"


def _kind(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, int | np.integer):
        return "int64"
    if isinstance(value, float | np.floating):
        return "float"
    if isinstance(value, str):
        return "text"
    return "bytes" if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__


def list_values(column: pa.Array) -> Sequence[object]:
    """Return each row as a value, an array in the feature's shape, or None if missing.

    Steps of different lengths are a list of arrays.
    """
    if not is_list(column.type):
        values: list[object] = column.to_pylist()
        return values
    rows = list(_rows(column))
    if column.null_count:
        for row in np.flatnonzero(np.asarray(column.is_null())).tolist():
            rows[row] = None
    return rows


def _rows(column: pa.Array) -> NDArray[Any] | list[Any]:
    """Return the rows of a column, as an array if their shapes are equal, else a list."""
    if pa.types.is_fixed_size_list(column.type):
        inside = _rows(split_lists(column)[1])
        return np.reshape(inside, (-1, column.type.list_size, *np.shape(inside)[1:]))
    if is_list(column.type):
        cuts, values = split_lists(column)
        inside = _rows(values)
        return [inside[first:last] for first, last in pairwise(cuts.tolist())]
    if column.null_count:  # below a missing row: nulls would turn whole numbers into floats
        zero = 0 if is_number(column.type) else ""
        column = pc.fill_null(column, pa.scalar(zero, column.type))
    # Copied, because Arrow memory is read-only and may be shared with other readers.
    return np.array(column.to_numpy(zero_copy_only=False))
