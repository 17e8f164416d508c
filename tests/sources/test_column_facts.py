"""Facts of a column are those of the records that it becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shardline import kernel
from shardline.kernel.columns import from_arrow
from shardline.schema.schema import Feature, Text
from shardline.schema.schema_finder import get_column_facts

if TYPE_CHECKING:
    from shardline.kernel.types import FeatureFacts, Kind

TYPES = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "bytes": st.binary(max_size=4),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[Feature, pa.Array]:
    """A feature and a column that fits it, which may begin inside of its buffers."""
    kind: Kind = draw(st.sampled_from(sorted(TYPES)))
    is_list = draw(st.booleans())
    values = st.lists(VALUES[kind], max_size=3) if is_list else VALUES[kind]
    rows = draw(st.lists(st.none() | values, max_size=6))
    array = pa.array(rows, pa.list_(TYPES[kind]) if is_list else TYPES[kind])
    first = draw(st.integers(0, len(rows)))
    meaning = Text() if kind == "bytes" else None
    return Feature("a", kind, (None,) if is_list else (), meaning=meaning), array.slice(first)


def record_facts(array: pa.Array) -> FeatureFacts | None:
    made = kernel.encode([from_arrow("a", array)], len(array))
    facts = kernel.facts(made.data, made.starts, made.lengths)
    return replace(facts[0], low=None, high=None, sizes=None) if facts else None


@given(columns())
def test_column_facts_match_record_facts(column: tuple[Feature, pa.Array]) -> None:
    feature, array = column
    assert get_column_facts(feature, array) == record_facts(array)


def test_bytes_without_meaning_are_not_decoded() -> None:
    facts = get_column_facts(Feature("a", "bytes"), pa.array([b"a"]))
    assert facts is not None
    assert not facts.utf8
