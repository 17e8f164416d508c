"""Records taken apart and laid together, byte for byte."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from shardline.errors import ShardlineError
from shardline.kernel.types import Column
from tests.kernel.examples import (
    FIRST_TAG,
    KEY_TAG,
    SECOND_TAG,
    VALUE_TAG,
    Writer,
    block,
    bytes_feature,
    delimited,
    entry,
    example,
    feature_list,
    feature_lists,
    float_feature,
    int64_feature,
    mutated,
    random_content,
    seeded,
)
from tests.kernel.frames import framed
from tests.kernel.splices import (
    AS_THEY_ARE,
    A,
    B,
    Names,
    S,
    T,
    apart,
    joined,
    payloads_of,
    pieces,
    rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random
    from types import ModuleType

    from tests.kernel.examples import Block


def test_features_lie_in_their_order_without_the_messages_around_them(kernel: ModuleType) -> None:
    payloads = [example(B, A), b"", example(A) + feature_lists(T, S), feature_lists(S)]
    insides = apart(kernel, payloads, AS_THEY_ARE)
    assert insides.records == 4
    assert pieces(insides) == [(B + A, b""), (b"", b""), (A, T + S), (b"", S)]
    assert joined(kernel, insides) == payloads


OVERLONG = delimited(FIRST_TAG, delimited(KEY_TAG, b"a", 4) + delimited(VALUE_TAG, A[7:], 5), 3)


def test_a_feature_that_keeps_its_name_keeps_every_byte(kernel: ModuleType) -> None:
    """Also where its sizes take more bytes than they need, which is legal."""
    odd = delimited(FIRST_TAG, OVERLONG + B, 5) + delimited(SECOND_TAG, S, 2)
    for names in (AS_THEY_ARE, AS_THEY_ARE | {(False, "b"): None, (True, "s"): "other"}):
        ((features, _),) = pieces(apart(kernel, [odd], names))
        assert features == OVERLONG + (B if names is AS_THEY_ARE else b"")


def test_a_renamed_feature_keeps_every_byte_of_its_value(kernel: ModuleType) -> None:
    names = AS_THEY_ARE | {(False, "a"): "größe", (True, "s"): ""}
    payload = example(B, OVERLONG) + feature_lists(S)
    value = delimited(VALUE_TAG, A[7:], 5)
    want = delimited(FIRST_TAG, delimited(KEY_TAG, "größe".encode()) + value)
    assert pieces(apart(kernel, [payload], names)) == [(B + want, entry("", S[7:]))]


def test_several_messages_of_a_record_become_one(kernel: ModuleType) -> None:
    """As an overlay behind its base is read."""
    payload = feature_lists(T) + example(A) + example() + feature_lists(S) + example(B)
    insides = apart(kernel, [payload], AS_THEY_ARE)
    assert pieces(insides) == [(A + B, T + S)]
    assert joined(kernel, insides) == [example(A, B) + feature_lists(T, S)]
    names = AS_THEY_ARE | {(False, "a"): "z", (True, "s"): None}
    want = entry("z", int64_feature(1)) + B
    assert pieces(apart(kernel, [payload], names)) == [(want, T)]


def test_names_of_features_and_of_feature_lists_are_kept_apart(kernel: ModuleType) -> None:
    payload = example(entry("a", int64_feature(1))) + feature_lists(entry("a", b""))
    names: Names = {(False, "a"): "b", (True, "a"): None}
    assert pieces(apart(kernel, [payload], names)) == [(entry("b", int64_feature(1)), b"")]
    both: Names = {(False, "a"): "b", (True, "a"): "b"}
    want = (entry("b", int64_feature(1)), entry("b", b""))
    assert pieces(apart(kernel, [payload], both)) == [want]


def test_names_may_be_exchanged(kernel: ModuleType) -> None:
    names: Names = {(False, "a"): "b", (False, "b"): "a"}
    want = entry("b", int64_feature(1)) + entry("a", bytes_feature(b"x"))
    assert pieces(apart(kernel, [example(A, B)], names)) == [(want, b"")]


def test_a_record_of_which_everything_is_dropped_has_no_message(kernel: ModuleType) -> None:
    nothing: Names = dict.fromkeys(AS_THEY_ARE, None)
    insides = apart(kernel, [example(A, B) + feature_lists(S), example(A)], nothing)
    assert pieces(insides) == [(b"", b"")] * 2
    assert joined(kernel, insides) == [b"", b""]


def test_rows_are_taken_in_any_order_and_as_often_as_asked(kernel: ModuleType) -> None:
    left = apart(kernel, [example(A), b"", feature_lists(S)], AS_THEY_ARE)
    right = apart(kernel, [example(B), feature_lists(T)], AS_THEY_ARE)
    made = kernel.join([left, right], [rows(2, 0, 0, 1, -1, -1), rows(1, 0, -1, 0, 1, -1)])
    assert payloads_of(made) == [
        feature_lists(S, T),
        example(A, B),
        example(A),
        example(B),
        feature_lists(T),
        b"",
    ]


def test_nothing_makes_nothing(kernel: ModuleType) -> None:
    nothing = apart(kernel, [], AS_THEY_ARE)
    assert (nothing.records, nothing.starts.shape, nothing.lengths.shape) == (0, (2, 0), (2, 0))
    assert payloads_of(kernel.join([nothing], [rows()])) == []
    assert payloads_of(kernel.join([nothing, nothing], [rows(-1), rows(-1)])) == [b""]
    assert pieces(apart(kernel, [b""], {})) == [(b"", b"")]


def test_a_part_may_be_joined_with_itself_and_with_many_others(kernel: ModuleType) -> None:
    """That no feature comes twice is for the caller to know."""
    parts = [apart(kernel, [example(entry(f"f{i}", int64_feature(i)))], {(False, f"f{i}"): f"f{i}"})
             for i in range(40)]  # fmt: skip
    entries = [entry(f"f{i}", int64_feature(i)) for i in range(40)]
    assert joined(kernel, *parts, parts[0]) == [example(*entries, entries[0])]


def test_any_buffer_is_taken(kernel: ModuleType) -> None:
    names = AS_THEY_ARE | {(False, "b"): "c"}
    payloads = [example(A), example(A, B)]
    laid = block(payloads)
    for chosen in (payloads, payloads[:1]):
        want = apart(kernel, chosen, names)
        size = len(b"".join(chosen))
        for data in (bytearray(laid.data[:size]), memoryview(b"xx" + laid.data)[2 : 2 + size]):
            spans = laid.starts[: len(chosen)], laid.lengths[: len(chosen)]
            insides = kernel.insides(data, *spans, names)
            assert pieces(insides) == pieces(want)
            assert joined(kernel, insides) == joined(kernel, want)


def test_insides_outlive_the_records_that_they_came_from(kernel: ModuleType) -> None:
    payloads = [example(entry("a", bytes_feature(bytes([i]) * 500))) for i in range(200)]
    laid = block(payloads)
    insides = kernel.insides(bytearray(laid.data), laid.starts, laid.lengths, AS_THEY_ARE)
    gc.collect()
    for _ in range(5):  # takes the memory, should it be free
        bytearray(b"\xff" * len(laid.data))
    assert joined(kernel, insides) == payloads


def test_what_lies_as_it_should_is_not_copied(compiled: ModuleType) -> None:
    payloads = [example(A, B) + feature_lists(S), b"", example() + example(B), feature_lists(T)]
    data = np.frombuffer(b"".join(payloads), np.uint8)

    def shared(payloads: list[bytes], names: Names) -> bool:
        laid = block(payloads)
        insides = compiled.insides(data.data[: len(laid.data)], laid.starts, laid.lengths, names)
        return np.shares_memory(data, np.frombuffer(insides.data, np.uint8))

    assert shared(payloads, AS_THEY_ARE)
    assert not shared(payloads, AS_THEY_ARE | {(True, "t"): "z"})
    assert shared(payloads[:3], AS_THEY_ARE | {(True, "t"): "z"})


@pytest.mark.parametrize("at", [0, 1, 4])
def test_a_record_that_must_be_copied_may_stand_anywhere(kernel: ModuleType, at: int) -> None:
    payloads = [example(A) + feature_lists(S)] * 5
    insides = [(A, S)] * 5
    for odd, inside in (
        (example(A) + example(B), (A + B, b"")),
        (feature_lists(T, S), (b"", entry("z", feature_list(float_feature(3))) + S)),
    ):
        payloads[at], insides[at] = odd, inside
        names = AS_THEY_ARE | {(True, "t"): "z"}
        assert pieces(apart(kernel, payloads, names)) == insides


def test_sizes_on_both_sides_of_every_border_are_copied_right(kernel: ModuleType) -> None:
    """At the end of the bytes and before it: that is where a copy may reach too far."""
    for size in (*range(70), 127, 128, 129, 200, 16400):
        feature = bytes_feature(bytes(range(256))[:size].ljust(size, b"."))
        for new in ("n", "n" * 14, "n" * 30, "n" * 31, "n" * 62, "n" * 126, "n" * 127, "n" * 128):
            payloads = [example(entry("a", feature), A.replace(b"a", b"k"))] * 2
            payloads.append(example(A.replace(b"a", b"k"), entry("a", feature)))
            names: Names = {(False, "a"): new, (False, "k"): "k"}
            first, *_, last = pieces(apart(kernel, payloads, names))
            kept = A.replace(b"a", b"k")
            assert first == (entry(new, feature) + kept, b"")
            assert last == (kept + entry(new, feature), b"")


def test_small_and_large_records_are_framed_alike(kernel: ModuleType) -> None:
    sizes = (0, 1, 5, 300, 70, 4000, 2, 16384, 40_000, 3, 3, 900, 12)
    payloads = [example(entry("a", bytes_feature(b"\xa5" * size))) for size in sizes] * 3
    if kernel.NAME == "reference":
        payloads = payloads[:6]
    insides = apart(kernel, payloads, AS_THEY_ARE)
    assert joined(kernel, insides) == payloads


def test_the_checksums_of_the_table_are_those_of_the_instruction(compiled: ModuleType) -> None:
    program = (
        "import sys, numpy; from shardline.kernel import compiled as k\n"
        "data = sys.stdin.buffer.read(); one = lambda n: numpy.array([n])\n"
        "names = {(False, 'a'): 'a'}; part = k.insides(data, one(0), one(len(data)), names)\n"
        "assert k.crc_source() == 'table'\n"
        "sys.stdout.buffer.write(k.join([part], [numpy.zeros(5, numpy.int64)]).data)"
    )
    payload = example(entry("a", bytes_feature(bytes(range(256)) * 5)))
    result = subprocess.run(
        [sys.executable, "-c", program],
        input=payload,
        capture_output=True,
        check=True,
        env=os.environ | {"SHARDLINE_CRC32C": "table"},
    )
    assert result.stdout == framed(*[payload] * 5)
    part = apart(compiled, [payload], AS_THEY_ARE)
    assert compiled.join([part], [rows(0, 0, 0, 0, 0)]).data == result.stdout


def test_hundreds_of_features_in_any_order_are_told_apart(kernel: ModuleType) -> None:
    rng = seeded(9)
    every = [f"{'x' * (i % 40)}{i}" for i in range(300)]
    names: Names = {(False, name): f"p/{name}" for name in every}
    payloads, want = [], []
    for _ in range(12):
        chosen = rng.sample(every, rng.randrange(300))
        payloads.append(example(*(entry(name, int64_feature(len(name))) for name in chosen)))
        want.append(b"".join(entry(f"p/{name}", int64_feature(len(name))) for name in chosen))
    assert pieces(apart(kernel, payloads, names)) == [(entries, b"") for entries in want]


def random_names(rng: Random, contents: Iterable[Any]) -> Names:
    """What may become of the features of these contents, and now and then a name too few."""
    names: Names = {}
    for context, feature_lists_ in contents:
        for sequence, features_ in ((False, context), (True, feature_lists_)):
            for name in features_:
                fate = rng.random()
                new = f"{rng.choice(('p', 'prefix/', 'p' * 140))}{name}"
                names[sequence, name] = name if fate < 0.6 else new if fate < 0.9 else None
    items = list(names.items())
    rng.shuffle(items)
    return dict(items[rng.random() < 0.1 :])


Outcome = tuple[str, Any]


def outcome(kernel: ModuleType, laid: Block, names: Names) -> Outcome:
    try:
        insides = kernel.insides(laid.data, laid.starts, laid.lengths, names)
    except ShardlineError as error:
        return type(error).__name__, (str(error), error.__dict__)
    picked = rows(*range(-1, insides.records), *range(insides.records))
    made = kernel.join([insides, insides], [picked, picked[::-1].copy()])
    return "fine", (pieces(insides), made.data, made.starts.tolist(), made.lengths.tolist())


@pytest.mark.parametrize("seed", range(6))
def test_both_kernels_take_apart_and_join_alike(
    reference: ModuleType, compiled: ModuleType, seed: int
) -> None:
    """Blocks of sound records, of strange ones and of damaged ones."""
    rng = seeded(seed)
    found = set()
    for _ in range(150):
        contents = [
            random_content(rng, sequence=rng.random() < 0.5) for _ in range(rng.randrange(1, 5))
        ]
        odd = rng.choice((0.0, 0.0, 0.0, 0.02))
        payloads = [Writer(rng, odd).message(*content) for content in contents]
        if rng.random() < 0.4:
            at = rng.randrange(len(payloads))
            payloads[at] = mutated(rng, payloads[at], rng.choice(payloads))
        laid = block(payloads)
        names = random_names(rng, contents)
        want = outcome(reference, laid, names)
        assert outcome(compiled, laid, names) == want
        found.add(want[0])
    assert found == {"fine", "ExampleError", "ColumnError"}


@pytest.mark.parametrize("seed", range(6))
def test_walked_records_split_alike(reference: ModuleType, compiled: ModuleType, seed: int) -> None:
    """Also those whose features lie in several messages, behind which all are copied."""
    rng = seeded(400 + seed)
    for _ in range(60):
        contents = [
            random_content(rng, sequence=rng.random() < 0.5) for _ in range(rng.randrange(1, 5))
        ]
        laid = block([Writer(rng, 0.0).message(*content) for content in contents])
        spans = (laid.data, laid.starts, laid.lengths)
        met: set[tuple[bool, str]] = set()
        again: set[tuple[bool, str]] = set()
        unset: tuple[set[str], set[str]] = (set(), set())
        assert reference.decode(*spans, [], met, unset=unset[0]) == []
        assert compiled.decode(*spans, [], again, unset=unset[1]) == []
        assert (met, unset[0]) == (again, unset[1])
        names: Names = {key: key[1] for key in met}
        want = pieces(reference.insides(*spans, names))
        for kernel in (reference, compiled):
            assert pieces(kernel.insides(*spans, names, walked=not unset[0])) == want


def test_decode_reports_features_met(
    kernel: ModuleType,
) -> None:
    laid = block([example(A), example(A, B) + feature_lists(S), b""])
    met: set[tuple[bool, str]] = set()
    kernel.decode(
        laid.data, laid.starts, laid.lengths, [Column("absent", "int64"), Column("a", "int64")], met
    )
    assert met == {(False, "a"), (False, "b"), (True, "s")}
