"""Accepted by us means that protobuf and every TensorFlow parser read the same, and so do we.

Set SHARDLINE_FUZZ to a number to run that many times as many cases.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise, product
from typing import TYPE_CHECKING

import pytest

from shardline.errors import ExampleError
from shardline.kernel.types import Column
from tests.kernel.examples import (
    BYTES_TAG,
    FLOAT_TAG,
    INT64_TAG,
    LEGAL,
    block,
    delimited,
    entry,
    example,
    feature_lists,
    mutated,
    random_payload,
    seeded,
)
from tests.kernel.parsers import Content, comparable, disagreements, read_by_protobuf
from tests.sampling import runs_whole_sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from shardline.kernel.types import ColumnBuffers, Kind
    from tests.kernel.parsers import Feature, Items

TIMES = int(os.environ.get("SHARDLINE_FUZZ", "1"))
CASES = 250


def refused(kernel: ModuleType, payload: bytes) -> tuple[int, int, str | None, str] | None:
    laid = block([payload])
    try:
        kernel.validate(laid.data, laid.starts, laid.lengths)
    except ExampleError as error:
        return error.record, error.offset, error.feature, error.detail
    return None


def cases(seed: int, count: int) -> list[bytes]:
    """Payloads from perfectly legal to random bytes, most of them a little strange."""
    rng = seeded(seed)
    pool: list[bytes] = list(LEGAL.values())
    made = []
    for _ in range(count):
        odd = rng.choice((0.0, 0.0, 0.01, 0.03, 0.1))
        payload = random_payload(rng, sequence=rng.random() < 0.6, odd=odd)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            payload = mutated(rng, payload, rng.choice(pool))
        pool[rng.randrange(len(pool))] = payload
        made.append(payload)
    return made


def values_of(buffers: ColumnBuffers, first: int, last: int) -> Items:
    if buffers.sizes is None:
        return comparable(buffers.values[first:last])
    ends = buffers.sizes[first : last + 1].tolist()
    data = buffers.values.tobytes()
    return [data[a:b] for a, b in pairwise(ends)]


def read_by_us(kernel: ModuleType, payload: bytes) -> Content:
    """The content that our own decoder finds, with the features that our own facts name."""
    laid = block([payload])
    context: dict[str, Feature] = {}
    lists: dict[str, list[Feature]] = {}
    for fact in kernel.facts(laid.data, laid.starts, laid.lengths):
        kind: Kind = fact.kind or "int64"
        column = Column(fact.name, kind, "ragged" if fact.sequence else "variable")
        (buffers,) = kernel.decode(laid.data, laid.starts, laid.lengths, [column])
        assert buffers.valid.tolist() == [1]
        first, last = buffers.rows.tolist()
        if buffers.steps is None:
            context[fact.name] = kind, values_of(buffers, first, last)
        else:
            cuts = buffers.steps[first : last + 1].tolist()
            lists[fact.name] = [(kind, values_of(buffers, a, b)) for a, b in pairwise(cuts)]
    return Content(context, lists)


def test_every_parser_reads_the_legal_payloads_alike(kernel: ModuleType) -> None:
    payloads = list(LEGAL.values())
    assert [refused(kernel, payload) for payload in payloads] == [None] * len(payloads)
    contents = [read_by_protobuf(payload) for payload in payloads]
    assert [read_by_us(kernel, payload) for payload in payloads] == contents
    assert list(disagreements(payloads, contents)) == []


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("seed", range(4 * TIMES))
def test_accepted_records_read_alike_in_all_parsers(kernel: ModuleType, seed: int) -> None:
    payloads = [payload for payload in cases(seed, CASES) if refused(kernel, payload) is None]
    assert CASES / 5 < len(payloads) < CASES
    contents = [read_by_protobuf(payload) for payload in payloads]
    for payload, content in zip(payloads, contents, strict=True):
        assert read_by_us(kernel, payload) == content
    if kernel.NAME == "reference" and seed % 4:
        return  # the kernels agree on what to accept: once is enough for the slow part
    found = [
        (parser, payloads[at].hex(), what) for parser, at, what in disagreements(payloads, contents)
    ]
    assert found == []


@pytest.mark.parametrize("seed", range(100, 100 + 2 * TIMES))
def test_both_kernels_refuse_alike(reference: ModuleType, compiled: ModuleType, seed: int) -> None:
    for payload in cases(seed, 2000):
        assert refused(compiled, payload) == refused(reference, payload)


def every_small_message(longest: int) -> Iterator[bytes]:
    """Every string of the bytes that matter as a list, and as a feature list, of one feature."""
    for size in range(longest + 1):
        for letters in product(b"\x00\x01\x02\x04\x08\x0a\x0d\x80", repeat=size):
            for tag in (BYTES_TAG, FLOAT_TAG, INT64_TAG):
                yield example(entry("k", delimited(tag, bytes(letters))))
        for letters in product(b"\x00\x01\x02\x04\x08\x0a\x1a", repeat=size):
            yield feature_lists(entry("k", bytes(letters)))


@pytest.mark.sweep
def test_no_small_message_that_is_accepted_reads_differently_anywhere(kernel: ModuleType) -> None:
    """Exhaustive, so that it finds what no generator thought of."""
    longest = 5 if kernel.NAME == "compiled" and runs_whole_sweeps() else 4
    payloads = [p for p in every_small_message(longest) if refused(kernel, p) is None]
    assert len(payloads) > 100
    contents = [read_by_protobuf(payload) for payload in payloads]
    assert [read_by_us(kernel, payload) for payload in payloads] == contents
    assert list(disagreements(payloads, contents)) == []


def test_the_comparison_notices_a_difference_with_every_parser() -> None:
    payloads = [LEGAL["packed int64s"], LEGAL["a sequence and extra"]]
    contents = [read_by_protobuf(payload) for payload in payloads]
    wrong = [
        replace(
            content,
            context={
                name: (kind, [9, *items[1:]]) for name, (kind, items) in content.context.items()
            },
            lists={name: [(kind, [9]) for kind, _ in s] for name, s in content.lists.items()},
        )
        for content in contents
    ]
    complaining = {parser for parser, _, _ in disagreements(payloads, wrong)}
    assert complaining == {
        f"{function}, {spec}"
        for function in ("parse_example", "parse_single_example", "parse_sequence_example")
        for spec in ("VarLen", "Ragged", "FixedLen")
    } | {f"parse_single_sequence_example, {spec}" for spec in ("VarLen", "Ragged", "FixedLen")} | {
        "parse_example, padded"
    }
