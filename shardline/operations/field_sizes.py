"""How many bytes records of some fields take, where their declarations tell it: numbers, fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.log import shapes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.log.schema import Feature

_FRAME_BYTES = 16
_LONGEST = {"float": 4, "int64": 10}
"""A float always takes 4 bytes, an int64 up to 10."""


def most_record_bytes(features: Iterable[Feature]) -> int | None:
    """How many bytes a record of these features takes in a file at most; None if any number."""
    inside = 0
    for feature in features:
        longest = _LONGEST.get(feature.kind)
        if longest is None or not shapes.is_fixed(feature.shape):
            return None
        values = _field(_field(longest * shapes.unit(feature.shape)))
        inside += _field(_field(len(feature.name.encode())) + _field(values))
    return _FRAME_BYTES + _field(inside)


def _field(size: int) -> int:
    """A field of a message that holds so many bytes, with its tag and length."""
    return 1 + max(1, (size.bit_length() + 6) // 7) + size
