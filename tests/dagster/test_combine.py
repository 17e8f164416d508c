"""A version of pairs: it follows both its inputs, makes the new pairs, and has its own gate."""

from pathlib import Path
from typing import Any

import dagster as dg

from shardline.api import Version
from shardline.dagster import LandingFolder, appended_version, combined_version
from shardline.schema.schema import Feature, Schema
from shardline.udf import record_udf
from tests.dagster.platforms import GROWING, Platform, get_evaluations, make_platform
from tests.dagster.ticks import Ticks

COLOURS, PAIRS = dg.AssetKey("colours_v1"), dg.AssetKey("pairs_v1")


@record_udf(Feature("sum", "int64"), reads=["id", "shade"], code="1")
def add(pair: dict[str, Any]) -> dict[str, Any]:
    return {"sum": pair["id"] + pair["shade"]}


def crossing(folder: Path, **options: Any) -> Platform:  # noqa: ANN401 - those of the factory
    """A platform in which pairs/v1 are those of notes and colours."""
    (folder / "colours").mkdir(exist_ok=True)
    colours = appended_version(
        "colours/v1",
        schema=Schema((Feature("shade", "int64"),)),
        landing=LandingFolder(str(folder / "colours"), settle_seconds=0),
    )
    pairs = combined_version("pairs/v1", left="notes/v1", right=colours, **options)
    return make_platform(folder, colours, pairs)


def land_colours(notes: Platform, name: str, *shades: int) -> None:
    lines = "".join(f'{{"shade": {shade}}}\n' for shade in shades)
    (notes.folder / "colours" / f"{name}.jsonl").write_text(lines)


def among_themselves(folder: Path, **options: Any) -> Platform:  # noqa: ANN401 - as above
    """A platform in which pairs/v1 are those of notes among each other."""
    pairs = combined_version(
        "pairs/v1",
        left="notes/v1",
        right="notes/v1",
        unordered=True,
        on_collision="prefix",
        left_prefix="a_",
        right_prefix="b_",
        **options,
    )
    return make_platform(folder, pairs)


def told(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """What the materialization of the pairs tells."""
    assert result.success
    (made,) = result.asset_materializations_for_node("pairs_v1")
    return {key: one.value for key, one in made.metadata.items()}


def lineage(facts: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    return {
        column: sorted((dep.asset_key.to_user_string(), dep.column_name) for dep in deps)
        for column, deps in facts["dagster/column_lineage"].deps_by_column.items()
    }


def pairs_in(version: Version, *columns: str) -> list[tuple[Any, ...]]:
    table = version.published().to_arrow(list(columns)).read_all()
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_combined_version_is_checked_and_published(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = crossing(tmp_path, udfs=add)
    notes.land("a", [1, 2])
    land_colours(notes, "a", 10, 20)
    result = notes.run(instance, GROWING, COLOURS, PAIRS)
    facts = told(result)
    of_it = {name: one.passed for name, one in get_evaluations(result).items() if "pairs" in name}
    assert of_it == {
        "pairs_v1:integrity": True,
        "pairs_v1:schema": True,
        "pairs_v1:published": True,
    }
    wanted = [(1, 10, 11), (1, 20, 21), (2, 10, 12), (2, 20, 22)]
    assert pairs_in(notes.version("pairs/v1"), "id", "shade", "sum") == wanted
    assert facts["shardline/content_digest"] == notes.version("pairs/v1").published().content
    parents = [record.data["version"] for record in facts["shardline/upstream_snapshots"].records]
    assert parents == ["notes/v1", "colours/v1"]
    assert lineage(facts) == {
        "id": [("notes_v1", "id")],
        "name": [("notes_v1", "name")],
        "shade": [("colours_v1", "shade")],
        "sum": [("colours_v1", "shade"), ("notes_v1", "id")],
    }


def test_predicate_chooses_pairs(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = crossing(tmp_path, where="left.id == 2 or shade < 15")
    notes.land("a", [1, 2])
    land_colours(notes, "a", 10, 20)
    told(notes.run(instance, GROWING, COLOURS, PAIRS))
    pairs = pairs_in(notes.version("pairs/v1"), "id", "shade")
    assert pairs == [(1, 10), (2, 10), (2, 20)]


def test_combined_version_computes_only_new_pairs(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = crossing(tmp_path)
    notes.land("a", range(3))
    land_colours(notes, "a", 10, 20)
    seen = [told(notes.run(instance, GROWING, COLOURS, PAIRS))]
    notes.land("b", range(3, 5))
    seen.append(told(notes.run(instance, GROWING, PAIRS)))
    seen.append(told(notes.run(instance, PAIRS)))
    numbers = (
        "dagster/row_count",
        "shardline/computed_pairs",
        "shardline/computed_shards",
        "shardline/reused_shards",
    )
    assert [tuple(facts[key] for key in numbers) for facts in seen] == [
        (6, 6, 1, 0),
        (10, 4, 1, 1),
        (10, 0, 0, 2),
    ]


def test_unordered_pairs_of_one_version(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = among_themselves(tmp_path)
    notes.land("a", range(3))
    facts = told(notes.run(instance, GROWING, PAIRS))
    assert pairs_in(notes.version("pairs/v1"), "a_id", "b_id") == [(0, 1), (0, 2), (1, 2)]
    assert lineage(facts) == {
        "a_id": [("notes_v1", "id")],
        "a_name": [("notes_v1", "name")],
        "b_id": [("notes_v1", "id")],
        "b_name": [("notes_v1", "name")],
    }
    notes.land("b", range(3, 5))
    assert notes.run(instance, GROWING).success
    older = told(notes.run(instance, PAIRS, config={"left_snapshot": 1}))
    assert older["dagster/row_count"] == 3, "both sides are of the snapshot that was asked for"


def test_virtual_version_writes_only_new_plans(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = among_themselves(tmp_path, mode="virtual")
    notes.land("a", range(3))
    assert notes.run(instance, GROWING, PAIRS).success
    notes.land("b", range(3, 5))
    result = notes.run(instance, GROWING, PAIRS)
    facts = told(result)
    numbers = (
        "dagster/row_count",
        "shardline/computed_pairs",
        "shardline/computed_shards",
        "shardline/reused_shards",
    )
    assert tuple(facts[key] for key in numbers) == (10, 7, 1, 1)
    assert "Not drawn" not in facts["shardline/preview"]
    assert all(one.passed for name, one in get_evaluations(result).items() if "pairs" in name)
    files = list((tmp_path / "root/pairs/shards").glob("*.tfrecord"))
    assert files == [], "no pair is written"
    found = pairs_in(notes.version("pairs/v1"), "a_id", "b_id")
    assert sorted(found) == [(a, b) for a in range(5) for b in range(a + 1, 5)]


def test_combined_version_waits_for_both_inputs(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = crossing(tmp_path)
    ticks = Ticks(notes, instance)
    ticks.requested()
    notes.land("a", range(2))
    assert notes.run(instance, GROWING).success
    assert PAIRS not in ticks.requested(), "there are no colours yet"
    land_colours(notes, "a", 10)
    assert notes.run(instance, COLOURS).success
    assert PAIRS in ticks.requested()
    assert notes.run(instance, PAIRS).success
    assert PAIRS not in ticks.requested()
    land_colours(notes, "b", 20)
    assert notes.run(instance, COLOURS).success
    assert PAIRS in ticks.requested()


def test_exceeded_budget_writes_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = crossing(tmp_path, budget_bytes=100)
    notes.land("a", range(10))
    land_colours(notes, "a", *range(10))
    result = notes.run(instance, GROWING, COLOURS, PAIRS)
    failure = result.failure_data_for_node("pairs_v1")
    assert failure is not None
    assert failure.error is not None
    assert "BudgetError" in failure.error.to_string()
    assert notes.version("pairs/v1").state.snapshot == 0
