"""The options of a combination: declared once, and the same in entries, commands and plans."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardline import canonical_json as canonical
from shardline.api import Version
from shardline.cli.commands.combine import CombineOptions
from shardline.cli.commands.combine import combine as combine_command
from shardline.errors import InvalidArgumentError
from shardline.log.parameters import CombineParameters
from shardline.operations.combine import plan_combine
from shardline.pairing.combine_spec import (
    OPTIONS,
    CombineSpec,
    SpecOptions,
    has_pair_selection,
    list_arguments,
    list_stored_udfs,
)
from shardline.schema.schema import Feature
from shardline.udf import record_udf
from tests.errors import raises
from tests.operations.combinations import (
    LEFT,
    RIGHT,
    combined,
    contents,
    land_shards,
    lefts,
    rights,
    side,
)

if TYPE_CHECKING:
    from pathlib import Path


@record_udf(Feature("sum", "int64"), reads=["a", "b"], code="1")
def add(pair: dict[str, Any]) -> dict[str, Any]:
    return {"sum": pair["a"] + pair["b"]}


@record_udf(Feature("wanted", "int64"), reads=["a"])
def choose(pair: dict[str, Any]) -> dict[str, Any]:
    return {"wanted": pair["a"] % 2}


NAMES = st.text("abcé_-", min_size=1, max_size=3)
COLLISIONS: list[dict[str, Any]] = [
    {},
    {"on_collision": "keep-left"},
    {"on_collision": "prefix", "left_prefix": "l_"},
    {"on_collision": "prefix", "right_prefix": "-"},
]
SELECTIONS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {
            "on": st.dictionaries(NAMES, NAMES, min_size=1, max_size=2),
            "how": st.sampled_from(["inner", "left"]),
        }
    ),
    st.fixed_dictionaries({"unordered": st.booleans(), "limit": st.integers(1, 9)}),
    st.fixed_dictionaries(
        {"sample": st.integers(1, 9)}, optional={"seed": st.none() | st.integers(0, 9)}
    ),
    st.just({"udfs": add, "where": choose}),
)
SPECS = st.builds(
    lambda named, chosen: {**named, **chosen}, st.sampled_from(COLLISIONS), SELECTIONS
)


def store(spec: CombineSpec) -> dict[str, Any]:
    """The parameters of an entry, as they come back from its text."""
    parameters = {"rule": spec.get_rule("a run"), **spec.get_parameters()}
    decoded: dict[str, Any] = canonical.decode(canonical.encode(parameters))
    return decoded


def test_an_option_has_the_same_name_everywhere() -> None:
    options = [one.name for one in fields(CombineSpec)]
    command = {one.name for one in combine_command.params}
    assert list(OPTIONS) == options
    assert set(SpecOptions.__annotations__) == set(options)
    assert command - {one.name for one in fields(CombineOptions)} == set(options)


@given(SPECS)
def test_a_stored_spec_comes_back(options: dict[str, Any]) -> None:
    spec = CombineSpec.of(**options)
    stored = store(spec)
    udfs = {udf.label: udf for udf in (add, choose)}

    def find(described: Any) -> list[Any]:  # noqa: ANN401 - JSON
        return [udfs.get(one.label, choose) for one in described]

    found = CombineSpec.from_entry(stored, find)
    assert store(found) == stored
    assert found.changed == tuple(
        name for name in spec.changed if name != "seed" or spec.seed is not None
    ) + (("seed",) if spec.sample is not None and spec.seed is None else ())
    assert has_pair_selection(stored) == spec.is_selection
    assert len(list_stored_udfs(CombineParameters.from_dict(stored))) == len(spec.functions)


def test_arguments_of_a_command_name_each_option() -> None:
    spec = CombineSpec.of(
        on_collision="prefix", left_prefix="l_", on={"x": "y", "z": "z"}, how="left",
        where=choose, udfs=[add], limit=3,
    )  # fmt: skip
    assert list(list_arguments(store(spec))) == [
        ("--on-collision", "prefix"),
        ("--left-prefix", "l_"),
        ("--on", "x=y"),
        ("--on", "z"),
        ("--how", "left"),
        ("--where", "MODULE:OBJECT"),
        ("--udf", f"{add.function.__module__}:add"),
        ("--limit", "3"),
    ]
    assert list(list_arguments(store(CombineSpec(unordered=True)))) == [("--unordered", None)]


def test_a_seed_without_a_sample_is_refused() -> None:
    with raises(InvalidArgumentError, "missing-argument"):
        CombineSpec(seed=0)


@pytest.mark.parametrize("moved", [False, True])
def test_a_plan_is_executed_even_if_the_version_has_changed(tmp_path: Path, *, moved: bool) -> None:
    left = side(tmp_path, "lefts/v1", LEFT, lefts(0, 3))
    right = side(tmp_path, "rights/v1", RIGHT, rights(0, 2))
    into = Version(tmp_path, "pairs/v1")
    which: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    plan = plan_combine(left, right, into, **which)
    assert (plan.estimate.pairs, plan.compute, plan.reuse) == (6, 1, 0)
    if moved:
        land_shards(left, lefts(3, 4))
        combined(left, right, Version(tmp_path, "pairs/v1"))
    report = plan.execute()
    assert (report.records, report.left) == (6, plan.left)
    assert [len(records) for records in contents(into)] == [6]
    assert plan.execute().entry is None
