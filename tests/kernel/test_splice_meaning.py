"""What spliced records say to protobuf, to TensorFlow and to our own decoder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernel.examples import (
    FLOAT_BITS,
    INT64S,
    KINDS,
    LEGAL,
    NAMES,
    STRINGS,
    Writer,
    random_payload,
    seeded,
)
from tests.kernel.parsers import Content, comparable, disagreements, read_by_protobuf
from tests.kernel.splices import Names, apart, joined
from tests.kernel.test_agreement import read_by_us
from tests.sampling import drawn

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from shardline.kernel.types import Kind
    from tests.kernel.examples import Values

DTYPES = {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}


def names_of(contents: Iterable[Content]) -> Names:
    """Names under which everything stays as it is."""
    names: Names = {}
    for content in contents:
        names.update({(False, name): name for name in content.context})
        names.update({(True, name): name for name in content.lists})
    return names


def renamed(content: Content, names: Names) -> Content:
    """The content under other names."""

    def under(features: dict[str, Any], *, sequence: bool) -> dict[str, Any]:
        pairs = ((names[sequence, name], feature) for name, feature in features.items())
        return {name: feature for name, feature in pairs if name is not None}

    return Content(
        under(content.context, sequence=False),
        under(content.lists, sequence=True),
    )


def merged(one: Content, other: Content) -> Content:
    assert not one.context.keys() & other.context.keys()
    assert not one.lists.keys() & other.lists.keys()
    return Content(one.context | other.context, one.lists | other.lists)


def by_tensorflow(payload: bytes, content: Content) -> Any:  # noqa: ANN401 - nested lists
    """What TensorFlow reads of these features, each value with its place."""

    def spec(kind: Kind) -> Any:  # noqa: ANN401 - one of tf.io
        return tf.io.VarLenFeature(DTYPES[kind])

    def placed(parsed: dict[str, Any]) -> dict[str, list[Any]]:
        return {
            name: list(zip(read.indices.numpy().tolist(), comparable(read.values), strict=True))
            for name, read in parsed.items()
        }

    context = {name: spec(kind) for name, (kind, _) in content.context.items()}
    lists = {name: spec(steps[0][0]) for name, steps in content.lists.items() if steps}
    return (
        placed(tf.io.parse_single_example(payload, context)) if context else {},
        placed(tf.io.parse_single_sequence_example(payload, None, lists)[1]) if lists else {},
    )


def as_placed(content: Content) -> Any:  # noqa: ANN401 - nested lists
    """The content in the form of `by_tensorflow`."""
    return (
        {
            name: [([place], value) for place, value in enumerate(items)]
            for name, (_, items) in content.context.items()
        },
        {
            name: [
                ([step, place], value)
                for step, (_, items) in enumerate(steps)
                for place, value in enumerate(items)
            ]
            for name, steps in content.lists.items()
            if steps
        },
    )


def assert_says(kernel: ModuleType, payload: bytes, content: Content) -> None:
    """That protobuf, TensorFlow and our own decoder find just this in the payload."""
    assert read_by_protobuf(payload) == content
    assert read_by_us(kernel, payload) == content
    assert by_tensorflow(payload, content) == as_placed(content)


@dataclass(frozen=True, slots=True)
class Said:
    """What a record is to say, and the seed of the form in which it is written."""

    context: dict[str, Values | None]
    lists: dict[str, list[Values]]
    seed: int

    def written(self) -> bytes:
        return Writer(seeded(self.seed)).message(self.context, self.lists)

    def without(self, other: Said) -> Said:
        """Only the features that the other does not have, or has unset."""
        return replace(
            self,
            context={k: v for k, v in self.context.items() if other.context.get(k) is None},
            lists={k: v for k, v in self.lists.items() if k not in other.lists},
        )


ITEMS: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.sampled_from(STRINGS) | st.binary(max_size=70),
    "float": st.sampled_from(FLOAT_BITS) | st.integers(0, 2**32 - 1),
    "int64": st.sampled_from(INT64S) | st.integers(-(2**63), 2**63 - 1),
}


def values(kind: str) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(kind), st.lists(ITEMS[kind], max_size=4))


features = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(KINDS).flatmap(values), max_size=4
)
with_unset = st.dictionaries(
    st.sampled_from(NAMES), st.none() | st.sampled_from(KINDS).flatmap(values), max_size=4
)
steps = st.sampled_from(KINDS).flatmap(lambda kind: st.lists(values(kind), max_size=3))
lists = st.dictionaries(st.sampled_from(NAMES), steps, max_size=3)
examples = st.builds(Said, with_unset, st.just({}), st.integers(0, 2**32))
sequences = st.builds(Said, features, lists, st.integers(0, 2**32))


@pytest.mark.parametrize(
    ("left", "right"),
    [(examples, examples), (sequences, sequences), (examples, sequences), (sequences, examples)],
    ids=["two Examples", "two SequenceExamples", "an Example first", "a SequenceExample first"],
)
@pytest.mark.sweep
def test_two_records_laid_together_say_what_both_said(
    kernel: ModuleType, left: st.SearchStrategy[Said], right: st.SearchStrategy[Said]
) -> None:
    @settings(max_examples=drawn(80))
    @given(st.lists(st.tuples(left, right), min_size=1, max_size=4))
    def holds(pairs: list[tuple[Said, Said]]) -> None:
        sides = [one for one, _ in pairs], [other.without(one) for one, other in pairs]
        payloads = [[said.written() for said in side] for side in sides]
        contents = [[read_by_protobuf(payload) for payload in side] for side in payloads]
        parts = [
            apart(kernel, side, names_of(content))
            for side, content in zip(payloads, contents, strict=True)
        ]
        for payload, content in zip(joined(kernel, *parts), map(merged, *contents), strict=True):
            assert_says(kernel, payload, content)

    holds()


fates = st.sampled_from(["keep", "drop", "prefix", "long prefix"])
PREFIXES = {"prefix": "left_", "long prefix": "l" * 140}


@pytest.mark.parametrize("records", [examples, sequences], ids=["Examples", "SequenceExamples"])
@pytest.mark.sweep
def test_renamed_and_dropped_features_read_as_they_should(
    kernel: ModuleType, records: st.SearchStrategy[Said]
) -> None:
    @settings(max_examples=drawn(80))
    @given(st.lists(records, min_size=1, max_size=4), st.lists(fates, min_size=20, max_size=20))
    def holds(said: list[Said], chosen: list[str]) -> None:
        payloads = [record.written() for record in said]
        contents = [read_by_protobuf(payload) for payload in payloads]
        names = names_of(contents)
        for (key, name), fate in zip(names.items(), chosen, strict=False):
            if fate != "keep":
                names[key] = None if fate == "drop" else f"{PREFIXES[fate]}{name}"
        made = joined(kernel, apart(kernel, payloads, names))
        for payload, content in zip(made, contents, strict=True):
            assert_says(kernel, payload, renamed(content, names))

    holds()


def test_what_is_taken_apart_and_laid_together_means_the_same(kernel: ModuleType) -> None:
    rng = seeded(5)
    payloads = [*LEGAL.values(), *(random_payload(rng, sequence=i % 2 == 1) for i in range(60))]
    contents = [read_by_protobuf(payload) for payload in payloads]
    made = joined(kernel, apart(kernel, payloads, names_of(contents)))
    assert [read_by_protobuf(payload) for payload in made] == contents
    assert [read_by_us(kernel, payload) for payload in made] == contents
    if kernel.NAME == "compiled":  # the kernels make the same bytes: once is enough
        assert list(disagreements(made, contents)) == []
