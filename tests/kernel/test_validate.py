"""What is accepted and what is refused as an Example, row by row of what was found out.

None of the refused payloads is shown to TensorFlow: some of them end its process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from shardline.errors import ExampleError, ShardlineError
from shardline.kernel.types import _REASONS, Reason
from tests.kernel.examples import (
    BYTES_TAG,
    FIRST_TAG,
    FLOAT_TAG,
    INT64_TAG,
    KEY_TAG,
    LEGAL,
    VALUE_TAG,
    block,
    bytes_feature,
    delimited,
    entry,
    example,
    feature_list,
    feature_lists,
    float_bits,
    float_feature,
    int64_feature,
    varint,
)

if TYPE_CHECKING:
    from types import ModuleType

ONE = int64_feature(1)
KEY = delimited(KEY_TAG, b"a")
VALUE = delimited(VALUE_TAG, ONE)
GOOD = example(entry("good", ONE))


def refusal(kernel: ModuleType, payload: bytes, function: str = "validate") -> ExampleError:
    """How a payload is refused as the second record of a block."""
    laid = block([GOOD, payload, GOOD])
    with pytest.raises(ExampleError) as raised:
        getattr(kernel, function)(laid.data, laid.starts, laid.lengths)
    assert raised.value.record == 1
    return raised.value


def one(feature: bytes) -> bytes:
    """An Example with the one feature `a`; the Feature's bytes begin at offset 9."""
    return example(entry("a", feature))


def raw_entry(inside: bytes) -> bytes:
    """An Example whose one map entry has this inside; it begins at offset 4."""
    return example(delimited(FIRST_TAG, inside))


@pytest.mark.parametrize("payload", LEGAL.values(), ids=LEGAL.keys())
def test_what_every_parser_reads_alike_is_accepted(kernel: ModuleType, payload: bytes) -> None:
    laid = block([payload])
    kernel.validate(laid.data, laid.starts, laid.lengths)


def claims(size: int) -> bytes:
    """A bytes list whose one entry claims `size` bytes, in a record of some hundred."""
    value = bytes([FIRST_TAG]) + varint(size) + b"x" * 90
    return one(delimited(BYTES_TAG, value))


NOT_UTF8 = {
    "a stray byte": b"\xff",
    "a stray continuation": b"\x80",
    "a cut sequence": b"abc\xe2\x82",
    "a cut sequence at the end of eight": b"abcdefg\xc3",
    "overlong, two bytes": b"\xc0\xaf",
    "overlong, two bytes, last": b"\xc1\xbf",
    "overlong, three bytes": b"\xe0\x9f\xbf",
    "overlong, four bytes": b"\xf0\x8f\xbf\xbf",
    "a surrogate": b"\xed\xa0\x80",
    "the last surrogate": b"\xed\xbf\xbf",
    "above the last code point": b"\xf4\x90\x80\x80",
    "far above the last code point": b"\xf5\x80\x80\x80",
    "five bytes": b"\xf8\x88\x80\x80\x80",
    "behind eight good bytes": b"12345678\xfe",
    "a bad second byte": b"\xe2\x28\xa1",
    "a bad third byte": b"\xe2\x82\x28",
    "a bad fourth byte": b"\xf0\x9f\x98\x28",
}

Row = tuple[bytes, Reason, int, str | None]
REFUSED: dict[str, Row] = {
    # the rows of the facts page
    "the same key twice": (
        example(entry("a", ONE), entry("b", ONE), entry("a", ONE)),
        Reason.DUPLICATE_KEY, 26, "a",
    ),
    "base and extra with the same key": (one(ONE) + one(ONE), Reason.DUPLICATE_KEY, 16, "a"),
    "a sequence and extra with the same key": (
        feature_lists(entry("s", b"")) + feature_lists(entry("s", feature_list(ONE))),
        Reason.DUPLICATE_KEY, 11, "s",
    ),
    "an unset feature, then the same key": (one(b"") + one(ONE), Reason.DUPLICATE_KEY, 11, "a"),
    "a key, then the same unset": (one(ONE) + one(b""), Reason.DUPLICATE_KEY, 16, "a"),
    "an unset feature twice": (
        example(entry("a", b""), entry("b", ONE), entry("a", b"")), Reason.DUPLICATE_KEY, 21, "a",
    ),
    "an unset feature before feature lists": (
        example(entry("b", b""), entry("a", b"")) + feature_lists(entry("s", b"")),
        Reason.NO_KIND, 9, "b",
    ),
    "an unset feature behind feature lists": (
        feature_lists() + example(entry("a", ONE), entry("b", b"")), Reason.NO_KIND, 23, "b",
    ),
    "an empty feature in a step": (
        feature_lists(entry("s", feature_list(ONE, b""))), Reason.NO_KIND, 18, "s",
    ),
    "two packed chunks": (
        one(delimited(INT64_TAG, b"\x0a\x01\x01\x0a\x01\x02")), Reason.LIST_CHUNKS, 14, "a",
    ),
    "two packed chunks of floats": (
        one(delimited(FLOAT_TAG, float_bits(0) * 2)), Reason.LIST_CHUNKS, 17, "a",
    ),
    "an empty chunk before a full one": (
        one(delimited(INT64_TAG, b"\x0a\x00\x0a\x01\x02")), Reason.LIST_CHUNKS, 13, "a",
    ),
    "packed, then unpacked": (
        one(delimited(INT64_TAG, b"\x0a\x01\x01\x08\x02")), Reason.LIST_CHUNKS, 14, "a",
    ),
    "unpacked, then packed": (
        one(delimited(INT64_TAG, b"\x08\x02\x0a\x01\x01")), Reason.LIST_CHUNKS, 13, "a",
    ),
    "floats packed, then unpacked": (
        one(delimited(FLOAT_TAG, float_bits(1) + float_bits(1, packed=False))),
        Reason.LIST_CHUNKS, 17, "a",
    ),
    "floats unpacked, then packed": (
        one(delimited(FLOAT_TAG, float_bits(1, packed=False) + float_bits(1))),
        Reason.LIST_CHUNKS, 16, "a",
    ),
    "two chunks in a step": (
        feature_lists(entry("s", feature_list(delimited(INT64_TAG, b"\x0a\x00\x0a\x00")))),
        Reason.LIST_CHUNKS, 15, "s",
    ),
    "an unknown field among the features": (
        example(entry("a", ONE), b"\x10\x01"), Reason.FEATURES_FIELD, 14, None,
    ),
    "an unknown message among the features": (
        example(b"\x12\x01x", entry("a", ONE)), Reason.FEATURES_FIELD, 2, None,
    ),
    "an unknown field before the kind": (one(b"\x20\x01" + ONE), Reason.NO_KIND, 9, "a"),
    "a map entry without a value": (raw_entry(KEY), Reason.ENTRY, 7, "a"),
    "a map entry without a key": (raw_entry(VALUE), Reason.ENTRY, 4, None),
    "a map entry without anything": (raw_entry(b""), Reason.ENTRY, 4, None),
    "a value before its key": (raw_entry(VALUE + KEY), Reason.ENTRY, 4, None),
    "a map entry with two keys": (raw_entry(KEY + KEY + VALUE), Reason.ENTRY, 7, "a"),
    "a map entry with two values": (raw_entry(KEY + VALUE + VALUE), Reason.ENTRY, 14, "a"),
    "an unknown field behind the value": (
        raw_entry(KEY + VALUE + b"\x18\0"), Reason.ENTRY, 14, "a",
    ),
    "a feature list without a value": (
        feature_lists(delimited(FIRST_TAG, KEY)), Reason.ENTRY, 7, "a",
    ),
    "a bytes list entry that claims 2 GiB": (claims(2**31), Reason.LENGTH, 12, "a"),
    "a bytes list entry that claims nearly 4 GiB": (claims(2**32 - 1), Reason.LENGTH, 12, "a"),
    "a bytes list entry that claims 4 GiB and 4 bytes": (claims(2**32 + 4), Reason.LENGTH, 12, "a"),
    "a bytes list entry that claims 2^63 bytes": (claims(2**63), Reason.LENGTH, 12, "a"),
    "a bytes list entry that claims 2^64 - 1 bytes": (claims(2**64 - 1), Reason.LENGTH, 12, "a"),
    # the fields at the top
    "a field that neither message has": (b"\x1a\x00", Reason.UNKNOWN_FIELD, 0, None),
    "a known field as a number": (b"\x08\x01", Reason.UNKNOWN_FIELD, 0, None),
    "field number zero": (b"\x02\x00", Reason.UNKNOWN_FIELD, 0, None),
    "a group": (b"\x0b\x0c", Reason.UNKNOWN_FIELD, 0, None),
    "a tag in two bytes": (b"\x8a\x00\x00", Reason.UNKNOWN_FIELD, 0, None),
    "text": (b"{'json': 1}", Reason.UNKNOWN_FIELD, 0, None),
    "junk behind an Example": (GOOD + b"\xff", Reason.UNKNOWN_FIELD, len(GOOD), None),
    "a tag alone": (b"\x0a", Reason.VARINT, 1, None),
    "a length past the end": (b"\x0a\x01", Reason.LENGTH, 1, None),
    "a sequence length past the end": (b"\x12\x7f", Reason.LENGTH, 1, None),
    # lengths that reach out of the message around them
    "an entry past its features": (b"\x0a\x02\x0a\x01\x00", Reason.LENGTH, 3, None),
    "a key past its entry": (raw_entry(b"\x0a\x02a") + GOOD, Reason.LENGTH, 5, None),
    "a value past its entry": (raw_entry(KEY + b"\x12\x01") + GOOD, Reason.LENGTH, 8, "a"),
    "a list past its feature": (one(b"\x1a\x01") + GOOD, Reason.LENGTH, 10, "a"),
    "a chunk past its list": (one(b"\x1a\x02\x0a\x01") + GOOD, Reason.LENGTH, 12, "a"),
    "a step past its list": (feature_lists(entry("s", b"\x0a\x01")) + GOOD, Reason.LENGTH, 10, "s"),
    "an unpacked float past its list": (
        one(delimited(FLOAT_TAG, b"\x0d\0\0\0")) + GOOD, Reason.LENGTH, 12, "a",
    ),
    # varints
    "a length in six bytes": (b"\x0a" + varint(0, 6), Reason.LENGTH, 1, None),
    "a length in ten bytes": (b"\x0a" + varint(0, 10), Reason.LENGTH, 1, None),
    "a length in eleven bytes": (b"\x0a" + varint(0, 11), Reason.VARINT, 1, None),
    "a number cut off": (one(delimited(INT64_TAG, b"\x0a\x01\x80")), Reason.VARINT, 13, "a"),
    "an unpacked number cut off": (one(delimited(INT64_TAG, b"\x08\x80")), Reason.VARINT, 12, "a"),
    "an unpacked number missing": (one(delimited(INT64_TAG, b"\x08")), Reason.VARINT, 12, "a"),
    "a number in eleven bytes": (
        one(delimited(INT64_TAG, delimited(FIRST_TAG, varint(1, 11)))), Reason.VARINT, 13, "a",
    ),
    "a tenth byte above one": (
        one(delimited(INT64_TAG, delimited(FIRST_TAG, b"\xff" * 9 + b"\x02"))),
        Reason.VARINT, 13, "a",
    ),
    "a second number too long": (
        one(delimited(INT64_TAG, delimited(FIRST_TAG, b"\x05" + b"\x80" * 10 + b"\x01"))),
        Reason.VARINT, 14, "a",
    ),
    # kinds
    "a kind that is not there": (one(b"\x22\x00"), Reason.NO_KIND, 9, "a"),
    "a kind as a number": (one(b"\x08\x01"), Reason.NO_KIND, 9, "a"),
    "two kinds": (one(ONE + bytes_feature(b"x")), Reason.AFTER_KIND, 14, "a"),
    "the same kind twice": (one(ONE + ONE), Reason.AFTER_KIND, 14, "a"),
    "an unknown field behind the kind": (one(ONE + b"\x20\x01"), Reason.AFTER_KIND, 14, "a"),
    "a bytes list that holds numbers": (
        one(delimited(BYTES_TAG, b"\x08\x01")), Reason.LIST_FIELD, 11, "a",
    ),
    "a float list that holds numbers": (
        one(delimited(FLOAT_TAG, b"\x08\x01")), Reason.LIST_FIELD, 11, "a",
    ),
    "an int64 list that holds floats": (
        one(delimited(INT64_TAG, b"\x0d\0\0\0\0")), Reason.LIST_FIELD, 11, "a",
    ),
    "an unknown field in a list": (
        one(delimited(INT64_TAG, b"\x08\x01\x10\x01")), Reason.LIST_FIELD, 13, "a",
    ),
    "an unknown field in a bytes list": (
        one(delimited(BYTES_TAG, b"\x0a\x00\x12\x00")), Reason.LIST_FIELD, 13, "a",
    ),
    "packed floats of six bytes": (
        one(delimited(FLOAT_TAG, delimited(FIRST_TAG, bytes(6)))), Reason.FLOAT_BYTES, 13, "a",
    ),
    # feature lists
    "an unknown field among the feature lists": (
        feature_lists(b"\x12\x00"), Reason.FEATURES_FIELD, 2, None,
    ),
    "an unknown field among the steps": (
        feature_lists(entry("s", b"\x12\x00")), Reason.STEP_FIELD, 9, "s",
    ),
    "a feature where a feature list belongs": (
        feature_lists(entry("s", ONE)), Reason.STEP_FIELD, 9, "s",
    ),
    "steps of two kinds": (
        feature_lists(entry("s", feature_list(ONE, bytes_feature(b"x")))),
        Reason.MIXED_KINDS, 16, "s",
    ),
    "steps of two kinds, both empty": (
        feature_lists(entry("s", feature_list(int64_feature(), float_feature()))),
        Reason.MIXED_KINDS, 13, "s",
    ),
} | {
    f"a name with {what}": (
        example(entry(name, ONE)), Reason.KEY_UTF8, 6, name.decode("utf-8", "backslashreplace")
    )
    for what, name in NOT_UTF8.items()
}  # fmt: skip


@pytest.mark.parametrize("function", ["validate", "facts"])
@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_what_parsers_disagree_on_is_refused(kernel: ModuleType, row: Row, function: str) -> None:
    payload, reason, offset, field = row
    error = refusal(kernel, payload, function)
    assert (error.detail, error.offset, error.feature) == (_REASONS[reason], offset, field)


@pytest.mark.parametrize("row", REFUSED.values(), ids=REFUSED.keys())
def test_decoding_refuses_the_same_even_for_columns_that_are_elsewhere(
    kernel: ModuleType, row: Row
) -> None:
    laid = block([row[0]])
    with pytest.raises(ExampleError) as raised:
        kernel.decode(laid.data, laid.starts, laid.lengths, [])
    assert (raised.value.offset, raised.value.detail) == (row[2], _REASONS[row[1]])


def test_every_reason_there_is_has_a_row() -> None:
    assert {row[1] for row in REFUSED.values()} == set(Reason)


def test_the_refusal_says_where_and_what(kernel: ModuleType) -> None:
    error = refusal(kernel, one(b"\x20\x01"))
    assert (error.code, error.record, error.offset) == ("invalid-example", 1, 9)
    assert (error.feature, error.detail) == ("a", _REASONS[Reason.NO_KIND])
    assert error.detail in str(error)
    assert isinstance(error, ShardlineError)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    "broken",
    [
        bytes_feature(b"secret") + b"\x20\x01",
        delimited(BYTES_TAG, b"\x0a\x06secret\x0a\x7fsecret"),
        delimited(BYTES_TAG, b"\x12\x06secret"),
        delimited(FLOAT_TAG, b"\x0a\x06secret"),
        delimited(INT64_TAG, b"secret"),
        b"secret",
    ],
)
def test_the_refusal_never_holds_the_payload(kernel: ModuleType, broken: bytes) -> None:
    for payload in (one(broken), feature_lists(entry("s", feature_list(ONE, broken)))):
        error = refusal(kernel, payload)
        assert "secret" not in str(error)
        assert "secret" not in repr(error)
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None


def test_kernels_agree_on_truncated_examples(reference: ModuleType, compiled: ModuleType) -> None:
    whole = LEGAL["a sequence and extra"] + LEGAL["every odd float"].replace(b"\x01a", b"\x01z")

    def verdict(kernel: ModuleType, payload: bytes) -> tuple[Any, ...] | None:
        laid = block([payload])
        try:
            kernel.validate(laid.data, laid.starts, laid.lengths)
        except ExampleError as error:
            return error.offset, error.feature, error.detail
        return None

    assert verdict(compiled, whole) is None
    refused = 0
    for at in range(len(whole)):
        cut = verdict(reference, whole[:at])
        assert verdict(compiled, whole[:at]) == cut
        for value in range(256):
            changed = whole[:at] + bytes([value]) + whole[at + 1 :]
            assert verdict(compiled, changed) == verdict(reference, changed)
        refused += cut is not None
    assert refused >= len(whole) - 6


@pytest.mark.parametrize("function", ["validate", "facts"])
@pytest.mark.parametrize(
    ("starts", "lengths", "match"),
    [
        ([0], [4], "record 0 lies outside the buffer"),
        ([0, 3], [3, 1], "record 1 lies outside the buffer"),
        ([-1], [1], "record 0 lies outside the buffer"),
        ([1], [-1], "record 0 lies outside the buffer"),
        ([4], [0], "record 0 lies outside the buffer"),
        ([2**62], [2**62], "record 0 lies outside the buffer"),
        ([2**63 - 1], [2**63 - 1], "record 0 lies outside the buffer"),
        ([0, 1], [0], "2 starts but 1 lengths"),
    ],
)
def test_spans_outside_the_buffer_are_refused(
    kernel: ModuleType, function: str, starts: list[int], lengths: list[int], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        getattr(kernel, function)(
            b"\0\0\0", np.array(starts, np.int64), np.array(lengths, np.int64)
        )


def test_no_records_are_fine(kernel: ModuleType) -> None:
    none = np.empty(0, np.int64)
    for empty in (b"", bytearray(), memoryview(b"")):
        kernel.validate(empty, none, none)
        assert kernel.facts(empty, none, none) == []


def test_many_names_are_told_apart(kernel: ModuleType) -> None:
    names = [f"feature/{i}" for i in range(3000)]
    many = example(*(entry(name, ONE) for name in names))
    laid = block([many, GOOD, many])
    kernel.validate(laid.data, laid.starts, laid.lengths)
    error = refusal(kernel, many + example(entry("feature/2999", ONE)))
    assert (error.detail, error.feature) == (_REASONS[Reason.DUPLICATE_KEY], "feature/2999")


def test_a_name_may_return_in_the_next_record(kernel: ModuleType) -> None:
    laid = block([one(ONE), one(bytes_feature(b"x")), GOOD, one(float_feature(1))])
    kernel.validate(laid.data, laid.starts, laid.lengths)
