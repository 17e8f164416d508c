"""Facts about features, against the same counted in plain Python from what protobuf reads."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import pytest

from shardline.kernel.types import KINDS, FeatureFacts, merge_facts
from tests.kernel.examples import (
    FLOAT_BITS,
    FLOAT_TAG,
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
    random_payload,
    seeded,
)
from tests.kernel.parsers import read_by_protobuf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from shardline.kernel.types import FactsKey
    from tests.kernel.parsers import Feature, Items


def facts_of(kernel: ModuleType, *payloads: bytes) -> list[FeatureFacts]:
    laid = block(payloads)
    found: list[FeatureFacts] = kernel.facts(laid.data, laid.starts, laid.lengths)
    return found


def _extent(numbers: Sequence[int]) -> tuple[int, int] | None:
    return (min(numbers), max(numbers)) if numbers else None


def _utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _counted(
    name: str, kind_index: int, records: list[list[Items]], *, lists: bool
) -> FeatureFacts:
    """The facts of one feature in one kind: for each record that has it, its lists of values."""
    kind = None if kind_index < 0 else KINDS[kind_index]
    values = [value for record in records for items in record for value in items]
    numbers: list[float] = []
    if kind == "int64":
        numbers = [value for value in values if isinstance(value, int)]
    elif kind == "float":
        bits = [struct.pack("<I", value) for value in values if isinstance(value, int)]
        numbers = [struct.unpack("<f", word)[0] for word in bits]
    known = [number for number in numbers if not math.isnan(number)]
    strings = [value for value in values if isinstance(value, bytes)]
    return FeatureFacts(
        name=name,
        sequence=lists,
        kind=kind,
        present=len(records),
        steps=_extent([len(record) for record in records]) if lists else None,
        lengths=_extent([len(items) for record in records for items in record]),
        low=min(known) if known else None,
        high=max(known) if known else None,
        nans=len(numbers) - len(known),
        sizes=_extent([len(value) for value in strings]),
        utf8=all(map(_utf8, strings)),
    )


def counted(payloads: Sequence[bytes]) -> list[FeatureFacts]:
    """The facts as protobuf and plain counting give them, in the order the kernel promises."""
    seen: dict[tuple[bool, bytes, int], list[list[Items]]] = {}

    def note(name: str, features: list[Feature], *, lists: bool) -> None:
        kind = KINDS.index(features[0][0]) if features else -1
        record = [items for _, items in features]
        seen.setdefault((lists, name.encode(), kind), []).append(record)

    for payload in payloads:
        content = read_by_protobuf(payload)
        for name, feature in content.context.items():
            note(name, [feature], lists=False)
        for name, steps in content.lists.items():
            note(name, steps, lists=True)
    return [
        _counted(name.decode(), kind, records, lists=lists)
        for (lists, name, kind), records in sorted(seen.items())
    ]


@pytest.mark.parametrize("seed", range(12))
def test_facts_are_what_counting_gives(kernel: ModuleType, seed: int) -> None:
    rng = seeded(seed)
    payloads = [random_payload(rng, sequence=rng.random() < 0.5) for _ in range(rng.randrange(60))]
    assert facts_of(kernel, *payloads) == counted(payloads)


@pytest.mark.parametrize("seed", range(6))
def test_the_facts_of_blocks_merged_are_the_facts_of_all(kernel: ModuleType, seed: int) -> None:
    rng = seeded(seed)
    payloads = [random_payload(rng, sequence=rng.random() < 0.5) for _ in range(50)]
    merged: dict[FactsKey, FeatureFacts] = {}
    while payloads:
        size = rng.randrange(1, 20)
        merge_facts(merged, facts_of(kernel, *payloads[:size]))
        del payloads[:size]
    rng = seeded(seed)
    payloads = [random_payload(rng, sequence=rng.random() < 0.5) for _ in range(50)]
    want = {(fact.sequence, fact.name, fact.kind or ""): fact for fact in counted(payloads)}
    assert merged == want


def test_no_records_and_empty_records_have_no_features(kernel: ModuleType) -> None:
    assert facts_of(kernel) == []
    assert facts_of(kernel, b"", b"", example()) == []


def test_a_feature_of_two_kinds_has_two_rows(kernel: ModuleType) -> None:
    found = facts_of(
        kernel,
        example(entry("a", int64_feature(5))),
        example(entry("a", bytes_feature(b"five"))),
        example(entry("a", int64_feature(7, 8))),
    )
    assert [(fact.name, fact.kind, fact.present) for fact in found] == [
        ("a", "bytes", 1),
        ("a", "int64", 2),
    ]
    assert (found[1].low, found[1].high, found[1].lengths) == (5, 8, (1, 2))
    assert (found[0].sizes, found[0].low) == ((4, 4), None)


def test_a_feature_list_without_steps_has_no_kind(kernel: ModuleType) -> None:
    (found,) = facts_of(kernel, feature_lists(entry("s", b"")), feature_lists(entry("s", b"")))
    assert (found.kind, found.present, found.steps, found.lengths) == (None, 2, (0, 0), None)


def test_a_feature_list_with_and_without_steps_has_two_rows(kernel: ModuleType) -> None:
    steps = feature_list(int64_feature(1), int64_feature(), int64_feature(2, 3))
    found = facts_of(kernel, feature_lists(entry("s", b"")), feature_lists(entry("s", steps)))
    assert [(fact.kind, fact.steps, fact.lengths) for fact in found] == [
        (None, (0, 0), None),
        ("int64", (3, 3), (0, 2)),
    ]


def test_a_name_in_the_context_and_in_the_lists_is_two_features(kernel: ModuleType) -> None:
    payload = example(entry("a", int64_feature(1))) + feature_lists(
        entry("a", feature_list(int64_feature(2)))
    )
    found = facts_of(kernel, payload)
    assert [(fact.sequence, fact.low, fact.steps) for fact in found] == [
        (False, 1, None),
        (True, 2, (1, 1)),
    ]


def test_features_stand_in_the_order_of_their_names_bytes(kernel: ModuleType) -> None:
    names = ["b", "", "é", "a", "aa", "\U0001f600", "\uffff", "A"]
    payload = example(*(entry(name, int64_feature(1)) for name in names))
    found = [fact.name for fact in facts_of(kernel, payload)]
    assert found == sorted(names, key=str.encode)


def test_nan_is_counted_and_left_out_of_the_range(kernel: ModuleType) -> None:
    def facts(*bits: int) -> FeatureFacts:
        (fact,) = facts_of(kernel, example(entry("a", delimited(FLOAT_TAG, float_bits(*bits)))))
        return fact

    only = facts(0x7FC00000, 0xFFC12345)
    assert (only.nans, only.low, only.high, only.lengths) == (2, None, None, (2, 2))
    some = facts(0x7FC00000, 0x3F800000, 0x7FC00000, 0xC0000000)
    assert (some.nans, some.low, some.high) == (2, -2.0, 1.0)
    every = facts(*FLOAT_BITS)
    assert (every.nans, every.low, every.high) == (3, -math.inf, math.inf)


def test_ranges_hold_infinities_and_the_ends_of_int64(kernel: ModuleType) -> None:
    (low,) = facts_of(kernel, example(entry("a", float_feature(math.inf))))
    assert (low.low, low.high) == (math.inf, math.inf)
    (high,) = facts_of(kernel, example(entry("a", float_feature(-math.inf, packed=False))))
    assert (high.low, high.high) == (-math.inf, -math.inf)
    (ends,) = facts_of(kernel, example(entry("a", int64_feature(2**63 - 1))))
    assert (ends.low, ends.high) == (2**63 - 1, 2**63 - 1)
    (both,) = facts_of(kernel, example(entry("a", int64_feature(-(2**63), 2**63 - 1))))
    assert (both.low, both.high) == (-(2**63), 2**63 - 1)


def test_zero_has_no_sign_in_a_range(kernel: ModuleType) -> None:
    for values in ((0.0, -0.0), (-0.0, 0.0), (-0.0,), (-0.0,) * 5):
        (zeros,) = facts_of(kernel, example(entry("a", float_feature(*values))))
        assert (repr(zeros.low), repr(zeros.high)) == ("0.0", "0.0")


def test_an_empty_list_has_a_length_but_no_range(kernel: ModuleType) -> None:
    for empty in (int64_feature(), float_feature(), bytes_feature()):
        (fact,) = facts_of(kernel, example(entry("a", empty)))
        assert (fact.present, fact.lengths) == (1, (0, 0))
        assert (fact.low, fact.high, fact.sizes) == (None, None, None)
        assert fact.utf8


@pytest.mark.parametrize(
    ("value", "utf8"),
    [
        (b"", True),
        ("größe 名前 \U0001f600".encode(), True),
        (b"\0", True),
        (b"12345678\xff", False),
        (b"\xed\xa0\x80", False),
        (b"\xc0\x80", False),
        (b"abc\xe2\x82", False),
        (b"\xf4\x90\x80\x80", False),
    ],
)
def test_utf8_means_that_every_value_is(kernel: ModuleType, value: bytes, *, utf8: bool) -> None:
    found = facts_of(
        kernel,
        example(entry("a", bytes_feature(b"fine", value))),
        example(entry("a", bytes_feature(b"fine too"))),
    )
    assert found[0].utf8 is utf8


@pytest.mark.parametrize("size", [*range(1, 20), 31, 32, 33, 40])
def test_one_byte_that_is_no_ascii_is_seen_wherever_it_stands(
    kernel: ModuleType, size: int
) -> None:
    for place in range(size):
        value = bytearray(b"a" * size)
        value[place] = 0xFF
        assert not facts_of(kernel, example(entry("a", bytes_feature(bytes(value)))))[0].utf8
    assert facts_of(kernel, example(entry("a", bytes_feature(b"a" * size))))[0].utf8


def test_many_features_are_kept_apart(kernel: ModuleType) -> None:
    payload = example(*(entry(f"f{i:04}", int64_feature(i)) for i in range(500)))
    found = facts_of(kernel, payload, payload)
    assert [(fact.name, fact.present, fact.low) for fact in found] == [
        (f"f{i:04}", 2, i) for i in range(500)
    ]
