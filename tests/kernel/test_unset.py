"""Unset features, which have a name but no kind, count as missing and are never joined to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from shardline.kernel.types import Column
from tests.kernel.examples import (
    block,
    bytes_feature,
    entry,
    example,
    feature_list,
    feature_lists,
    int64_feature,
)
from tests.kernel.parsers import Content
from tests.kernel.splices import AS_THEY_ARE, A, B, S, apart, joined, pieces
from tests.kernel.test_splice_meaning import assert_says

if TYPE_CHECKING:
    from types import ModuleType

    from tests.kernel.parsers import Feature

UNSET_A, UNSET_B, UNSET_Z = (entry(name, b"") for name in ("a", "b", "z"))
COLUMNS = {
    "scalar int64": Column("a", "int64"),
    "fixed int64": Column("a", "int64", "fixed", 2),
    "variable int64": Column("a", "int64", "variable"),
    "scalar float": Column("a", "float"),
    "scalar bytes": Column("a", "bytes"),
    "fixed bytes": Column("a", "bytes", "fixed", 2),
    "variable bytes": Column("a", "bytes", "variable"),
    "ragged": Column("a", "int64", "ragged"),
}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_decode_unset_feature_gives_missing(kernel: ModuleType, column: Column) -> None:
    (unset, missing) = (
        kernel.decode(laid.data, laid.starts, laid.lengths, [column])[0]
        for laid in (block([example(UNSET_A, B)] * 3), block([example(B)] * 3))
    )
    assert unset.valid.tolist() == [0, 0, 0]
    assert unset.rows.tolist() == missing.rows.tolist()
    assert unset.values.tolist() == missing.values.tolist()


def test_decode_tells_unset_from_present_features(kernel: ModuleType) -> None:
    laid = block([example(A), example(UNSET_A, UNSET_Z), example(UNSET_Z, B), example(A)])
    met: set[tuple[bool, str]] = set()
    unset: set[str] = set()
    (buffers,) = kernel.decode(
        laid.data, laid.starts, laid.lengths, [Column("a", "int64")], met, unset=unset
    )
    assert buffers.valid.tolist() == [1, 0, 0, 1]
    assert met == {(False, "a"), (False, "b")}
    assert unset == {"a", "z"}


def test_facts_leave_unset_features_out(kernel: ModuleType) -> None:
    many = [entry(f"unset {number}", b"") for number in range(100)]
    laid = block([example(*many), example(UNSET_A, B, *many), example(A), example(UNSET_A)])
    found = kernel.facts(laid.data, laid.starts, laid.lengths)
    assert [(fact.name, fact.present) for fact in found] == [("a", 1), ("b", 1)]
    laid = block([example(*many)])
    assert kernel.facts(laid.data, laid.starts, laid.lengths) == []


RECORDS: dict[str, tuple[bytes, bytes]] = {
    "first": (example(UNSET_A, B), example(B)),
    "last": (example(A, UNSET_B), example(A)),
    "in the middle": (example(A, UNSET_Z, B), example(A, B)),
    "alone": (example(UNSET_A), b""),
    "several in a row": (example(A, UNSET_Z, entry("", b""), B), example(A, B)),
    "each in a message": (example(UNSET_Z) + example(A) + example(UNSET_B), example(A)),
    "among two messages": (example(A, UNSET_Z) + example(B), example(A, B)),
    "many": (example(*(entry(f"u{n}", b"") for n in range(300)), A), example(A)),
    "with a long name": (example(entry("u" * 200, b""), A), example(A)),
}


@pytest.mark.parametrize("names", ["kept", "renamed", "dropped"])
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
def test_insides_leave_unset_features_out(
    kernel: ModuleType, record: tuple[bytes, bytes], names: str
) -> None:
    under = dict(AS_THEY_ARE)
    if names == "renamed":
        under |= {(False, "a"): "z", (False, "b"): "a"}
    elif names == "dropped":
        under |= {(False, "a"): None}
    sequence = example(A) + feature_lists(S)
    unset = apart(kernel, [example(A, B), record[0], sequence, record[0]], under)
    missing = apart(kernel, [example(A, B), record[1], sequence, record[1]], under)
    assert pieces(unset) == pieces(missing)


def test_value_joined_to_unset_name_reads_alike(kernel: ModuleType) -> None:
    lower = [example(UNSET_A, B), example(B, UNSET_A), example(UNSET_A)]
    upper = [example(A), example(A), example(A) + feature_lists(S)]
    parts = [apart(kernel, side, AS_THEY_ARE) for side in (lower, upper)]
    one: Feature = ("int64", [1])
    text: Feature = ("bytes", [b"x"])
    contents = [
        Content({"a": one, "b": text}, {}),
        Content({"a": one, "b": text}, {}),
        Content({"a": one}, {"s": [("int64", [2])]}),
    ]
    for payload, content in zip(joined(kernel, *parts), contents, strict=True):
        assert_says(kernel, payload, content)


@pytest.mark.parametrize("single", [True, False], ids=["single", "batched"])
def test_tensorflow_has_no_default_for_unset_context(*, single: bool) -> None:
    """Why a SequenceExample with an unset feature is refused."""

    def parse(payload: bytes) -> list[int]:
        context = {"a": tf.io.FixedLenFeature([1], tf.int64, [7])}
        if single:
            read = tf.io.parse_single_sequence_example(payload, context)[0]["a"]
        else:
            read = tf.io.parse_sequence_example([payload], context)[0]["a"][0]
        return list(read.numpy().tolist())

    assert parse(example(B) + feature_lists(S)) == [7]
    with pytest.raises(tf.errors.InvalidArgumentError):
        parse(example(UNSET_A, B) + feature_lists(S))


def test_tensorflow_reads_unset_steps_unlike_missing() -> None:
    """Why an unset feature in a feature list is refused."""
    payload = feature_lists(entry("s", feature_list(int64_feature(1), b"")))
    ragged = {"s": tf.io.RaggedFeature(tf.int64)}
    fixed = {"s": tf.io.FixedLenSequenceFeature([], tf.int64)}
    read = tf.io.parse_single_sequence_example(payload, None, ragged)[1]["s"]
    assert read.to_list() == [[1], []]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_single_sequence_example(payload, None, fixed)


def test_empty_list_with_kind_is_present(kernel: ModuleType) -> None:
    laid = block([example(entry("a", bytes_feature()))])
    (fact,) = kernel.facts(laid.data, laid.starts, laid.lengths)
    assert (fact.name, fact.kind, fact.present) == ("a", "bytes", 1)
