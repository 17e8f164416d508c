"""Tools for tests of taking records apart and laying them together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.kernel.examples import (
    block,
    bytes_feature,
    entry,
    feature_list,
    float_feature,
    int64_feature,
)
from tests.kernel.frames import framed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from shardline.kernel.types import Framed, Insides, IntArray

Names = dict[tuple[bool, str], str | None]
A, B = entry("a", int64_feature(1)), entry("b", bytes_feature(b"x"))
S, T = entry("s", feature_list(int64_feature(2))), entry("t", feature_list(float_feature(3)))
AS_THEY_ARE: Names = {(False, "a"): "a", (False, "b"): "b", (True, "s"): "s", (True, "t"): "t"}


def rows(*numbers: int) -> IntArray:
    """Rows to take."""
    return np.array(numbers, np.int64)


def apart(kernel: ModuleType, payloads: Iterable[bytes], names: Names) -> Insides:
    """The insides of these records."""
    laid = block(payloads)
    insides: Insides = kernel.insides(laid.data, laid.starts, laid.lengths, names)
    return insides


def pieces(insides: Insides) -> list[tuple[bytes, bytes]]:
    """Of each record the bytes of its features and of its feature lists."""
    view = memoryview(insides.data)

    def level(number: int) -> list[bytes]:
        spans = zip(insides.starts[number], insides.lengths[number], strict=True)
        return [bytes(view[start : start + size]) for start, size in spans]

    return list(zip(level(0), level(1), strict=True))


def payloads_of(made: Framed) -> list[bytes]:
    """The payloads that were made, in frames that Google's checksums vouch for."""
    spans = zip(made.starts.tolist(), made.lengths.tolist(), strict=True)
    payloads = [made.data[start : start + length] for start, length in spans]
    assert made.data == framed(*payloads)
    return payloads


def joined(kernel: ModuleType, *parts: Insides) -> list[bytes]:
    """The records of parts, row by row."""
    every = np.arange(parts[0].records)
    return payloads_of(kernel.join(parts, [every] * len(parts)))
