"""What is refused when records are taken apart and laid together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from shardline.errors import ColumnError, ExampleError, InvalidArgumentError
from shardline.kernel.types import Insides
from tests.errors import raises
from tests.kernel.examples import entry, example, feature_lists, int64_feature
from tests.kernel.splices import AS_THEY_ARE, A, B, Names, S, apart, payloads_of, pieces, rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


@pytest.mark.parametrize(
    ("payload", "name", "detail"),
    [
        (example(A, entry("new", int64_feature(1))), "new", "not in the schema"),
        (feature_lists(S, entry("a", b"")), "a", "in the feature_lists, not in the schema"),
        (feature_lists(entry("x", b"")) + example(A, entry("y", A[7:])), "y", "not in the schema"),
        (example(entry("größe", A[7:]), entry("z", A[7:])), "größe", "not in the schema"),
    ],
    ids=["a feature", "a feature list", "features first", "the first of two"],
)
def test_a_feature_that_nobody_named_is_refused(
    kernel: ModuleType, payload: bytes, name: str, detail: str
) -> None:
    with pytest.raises(ColumnError) as raised:
        apart(kernel, [example(A), b"", payload, b"\xff"], AS_THEY_ARE)
    assert (raised.value.record, raised.value.feature) == (2, name)
    assert raised.value.detail == detail


def test_the_first_bad_record_is_told_whatever_is_wrong_with_it(kernel: ModuleType) -> None:
    unknown = example(entry("new", int64_feature(1)))
    broken = example(A, A)
    with pytest.raises(ColumnError) as raised:
        apart(kernel, [example(A), unknown, broken], AS_THEY_ARE)
    assert raised.value.record == 1
    with pytest.raises(ExampleError) as refused:
        apart(kernel, [example(A), broken, unknown], AS_THEY_ARE)
    assert (refused.value.record, refused.value.feature, refused.value.offset) == (1, "a", 14)
    with pytest.raises(ExampleError):
        apart(kernel, [unknown + broken], AS_THEY_ARE)


def test_two_features_that_would_get_the_same_name_are_refused(kernel: ModuleType) -> None:
    plain: Names = {(False, "a"): "b", (False, "b"): "b"}
    beside: Names = {(False, "a"): "b", (True, "x"): "b", (False, "b"): "b"}
    for names in (plain, beside):
        with raises(InvalidArgumentError, "duplicate-feature", feature="b"):
            apart(kernel, [b"\xff"], names)
    dropped: Names = {(False, "a"): "b", (False, "b"): None}
    assert pieces(apart(kernel, [example(A, B)], dropped))[0][0] == entry("b", int64_feature(1))


def test_non_text_name_raises_on_write(kernel: ModuleType) -> None:
    names: Names = {(False, "a"): "\ud800", (False, "b"): "b", (False, "\ud800"): "c"}
    assert pieces(apart(kernel, [example(B)], names)) == [(B, b"")]
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        apart(kernel, [example(B), example(A, entry("x", A[7:]))], names)


@pytest.mark.parametrize(("starts", "lengths"), [([0], [5]), ([-1], [0]), ([5], [0]), ([0], [])])
def test_spans_outside_the_buffer_are_refused(
    kernel: ModuleType, starts: list[int], lengths: list[int]
) -> None:
    with pytest.raises(ValueError, match=r"the buffer|0 lengths"):
        kernel.insides(b"\0\0\0\0", rows(*starts), rows(*lengths), AS_THEY_ARE)


GOOD = Insides(A + B + S, rows(0, 12, 24, 24).reshape(2, 2), rows(12, 12, 0, 14).reshape(2, 2))
ROWS = rows(0, 1, -1)


def i64(*levels: Sequence[int]) -> Any:  # noqa: ANN401 - an array, of the right shape or not
    return np.array(levels, np.int64)


Join = tuple[list[Insides], list[Any]]
BROKEN: dict[str, Join] = {
    "no parts": ([], []),
    "fewer rows than parts": ([GOOD, GOOD], [ROWS]),
    "more rows than parts": ([GOOD], [ROWS, ROWS]),
    "rows of two lengths": ([GOOD, GOOD], [ROWS, ROWS[:2]]),
    "a row behind the last": ([GOOD], [rows(0, 2)]),
    "a row far behind the last": ([GOOD, GOOD], [ROWS, rows(0, 1, 2**62)]),
    "a row before the first": ([GOOD], [rows(-2)]),
    "a row far before the first": ([GOOD], [rows(-(2**63))]),
    "a row of nothing": ([Insides(b"", i64([], []), i64([], []))], [rows(0)]),
    "narrow rows": ([GOOD], [np.array([0, 1], np.int32)]),
    "rows of floats": ([GOOD], [np.array([0.0, 1.0])]),
    "rows in another byte order": ([GOOD], [np.array([0, 1], ">i8")]),
    "rows in two dimensions": ([GOOD], [i64([0, 1])]),
    "rows with gaps": ([GOOD], [rows(0, 9, 1, 9)[::2]]),
    "bytes past the end": ([replace(GOOD, lengths=i64([12, 12], [0, 15]))], [ROWS]),
    "bytes past the end that nobody asks for": (
        [replace(GOOD, lengths=i64([12, 12], [0, 15]))],
        [rows(0)],
    ),
    "a start past the end": ([replace(GOOD, starts=i64([0, 12], [39, 24]))], [ROWS]),
    "a start far past the end": ([replace(GOOD, starts=i64([0, 2**63 - 1], [24, 24]))], [ROWS]),
    "a start before the bytes": ([replace(GOOD, starts=i64([0, -1], [24, 24]))], [ROWS]),
    "a negative length": ([replace(GOOD, lengths=i64([12, -1], [0, 14]))], [ROWS]),
    "a length that no start goes with": (
        [replace(GOOD, lengths=i64([12, 2**63 - 1], [0, 14]))],
        [ROWS],
    ),
    "fewer lengths than starts": ([replace(GOOD, lengths=i64([12], [0]))], [rows(0)]),
    "one level": ([replace(GOOD, starts=i64([0, 12]), lengths=i64([12, 12]))], [ROWS]),
    "three levels": (
        [replace(GOOD, starts=i64([0, 12], [0, 0], [0, 0]), lengths=i64([1, 1], [0, 0], [0, 0]))],
        [ROWS],
    ),
    "narrow starts": ([replace(GOOD, starts=GOOD.starts.astype(np.int32))], [ROWS]),
    "unsigned lengths": ([replace(GOOD, lengths=GOOD.lengths.astype(np.uint64))], [ROWS]),
    "starts in the order of columns": (
        [replace(GOOD, starts=np.asfortranarray(GOOD.starts))],
        [ROWS],
    ),
}


@pytest.mark.parametrize(("parts", "chosen"), BROKEN.values(), ids=BROKEN.keys())
def test_parts_and_rows_that_do_not_fit_each_other_are_refused(
    kernel: ModuleType, parts: list[Insides], chosen: list[Any]
) -> None:
    made = kernel.join([GOOD, GOOD], [ROWS, rows(-1, -1, 0)])
    assert payloads_of(made) == [example(A), example(B) + feature_lists(S), example(A)]
    with pytest.raises(ValueError, match=r"parts but|contiguous|outside of"):
        kernel.join(parts, chosen)


def test_oversized_record_raises_before_encoding(
    kernel: ModuleType,
) -> None:
    """One byte over it, of a mebibyte taken over and over."""
    most = 2**31 - 1 - 16
    last = most + 1 - len(b"\x0a" + b"\xff" * 5) - 2047 * 2**20
    part = Insides(bytes(2**20), i64([0, 0], [0, 0]), i64([2**20, last], [0, 0]))
    chosen = [*[rows(-1, 0, -1)] * 2047, rows(1, 1, 1)]
    with raises(InvalidArgumentError, "record-too-large", record=1) as raised:
        kernel.join([part] * 2048, chosen)
    assert {str(most), str(most + 1)} <= set(str(raised.value).split())


def test_both_kernels_refuse_parts_and_rows_with_the_same_words(
    reference: ModuleType, compiled: ModuleType
) -> None:
    for parts, chosen in BROKEN.values():
        words = []
        for kernel in (reference, compiled):
            with pytest.raises(ValueError, match="part") as raised:
                kernel.join(parts, chosen)
            words.append(str(raised.value))
        assert words[0] == words[1]
