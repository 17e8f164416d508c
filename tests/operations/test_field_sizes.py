"""How many bytes new fields take is told by their declarations, if they are numbers, and fixed."""

from __future__ import annotations

import pytest

from shardline.schema.schema import Feature, estimate_record_bytes
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of

LONG = "long name " * 20


@pytest.mark.parametrize(
    ("features", "record"),
    [
        ([Feature("a", "float")], example_of(a=0.5)),
        ([Feature("a", "int64")], example_of(a=-1)),
        (
            [Feature("a", "float", (40, 10)), Feature(LONG, "int64", (3,))],
            example_of(**{"a": [0.5] * 400, LONG: [-1] * 3}),
        ),
    ],
)
def test_the_longest_record_is_as_long_as_protobuf_makes_it(
    features: list[Feature], record: bytes
) -> None:
    assert estimate_record_bytes(features) == len(framed(record))


@pytest.mark.parametrize("feature", [Feature("a", "bytes"), Feature("a", "float", (None, 2))])
def test_what_may_have_any_length_is_not_told(feature: Feature) -> None:
    assert estimate_record_bytes([Feature("b", "float"), feature]) is None
