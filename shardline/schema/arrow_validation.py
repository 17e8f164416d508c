"""Validation of untrusted Arrow data before any value is used.

Arrow trusts the offsets and indices in a file, so a wrong number reads foreign memory or crashes
the process. Only pyarrow is imported, because the decoder process uses this module and has to start
fast.
"""

from __future__ import annotations

import pyarrow as pa

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_DETAIL = 200


class ArrowFault:
    """Column that is not valid Arrow data: its position, and the reason without values."""

    __slots__ = ("detail", "position")

    def __init__(self, position: int, detail: str) -> None:
        self.position = position
        self.detail = detail


def find_fault(columns: Iterable[pa.Array | pa.ChunkedArray]) -> ArrowFault | None:
    """Return the first column with offsets, indices or lengths outside its memory.

    Text that is not UTF-8 is not a fault here, but a problem of its row.
    """
    for position, column in enumerate(columns):
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
            detail = _fault_in(chunk)
            if detail is not None:
                return ArrowFault(position, detail)
    return None


def _fault_in(array: pa.Array) -> str | None:
    try:
        array.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        return None if _is_sound_as_bytes(array) else format_fault(array.type, error)
    return None


def _is_sound_as_bytes(array: pa.Array) -> bool:
    """Return True if only text in the array is invalid."""
    kind = _as_bytes(array.type)
    if kind == array.type:
        return False
    try:
        array.view(kind).validate(full=True)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the type with bytes in place of text."""
    for is_text, plain in _TEXTS:
        if is_text(kind):
            return plain
    if pa.types.is_list(kind):
        return pa.list_(_field_as_bytes(kind))
    if pa.types.is_large_list(kind):
        return pa.large_list(_field_as_bytes(kind))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_field_as_bytes(kind), kind.list_size)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bytes(kind.value_type), kind.ordered)
    return kind


_TEXTS = (
    (pa.types.is_string, pa.binary()),
    (pa.types.is_large_string, pa.large_binary()),
    (pa.types.is_string_view, pa.binary_view()),
)


def _field_as_bytes(kind: pa.DataType) -> pa.Field:
    return kind.value_field.with_type(_as_bytes(kind.value_type))


def format_fault(kind: pa.DataType, error: Exception) -> str:
    """Return pyarrow's message, but only for types whose message quotes no values."""
    leaf = kind
    while isinstance(leaf, pa.BaseExtensionType) or pa.types.is_dictionary(leaf) or _is_list(leaf):
        leaf = leaf.storage_type if isinstance(leaf, pa.BaseExtensionType) else leaf.value_type
    plain = pa.types.is_primitive(leaf) and not pa.types.is_temporal(leaf)
    if (
        plain
        or _as_bytes(leaf) != leaf
        or pa.types.is_binary(leaf)
        or pa.types.is_large_binary(leaf)
    ):
        return format_arrow_error(error)
    return "invalid data"


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def format_arrow_error(error: BaseException) -> str:
    """Return the first line of a pyarrow error in printable characters."""
    lines = str(error).splitlines()
    text = lines[0] if lines else type(error).__name__
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= _LONGEST_DETAIL else f"{text[:_LONGEST_DETAIL]}..."
