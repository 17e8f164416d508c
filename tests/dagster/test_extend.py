"""A version that gains fields: it follows its base, computes what is new, and has its own gate."""

from pathlib import Path
from typing import Any

import dagster as dg

from shardline.dagster import extended_version
from shardline.operations.extend import extend
from shardline.schema.schema import Feature
from shardline.udf import UDF, record_udf, table_join
from tests.dagster.platforms import (
    GROWING,
    REBUILT,
    Platform,
    get_evaluations,
    make_platform,
    reported,
)
from tests.dagster.suites import at_most, write_suite
from tests.dagster.ticks import Ticks

EXTENDED = dg.AssetKey("notes_v2")


@record_udf(Feature("length", "int64"), reads=["name"], code="1")
def length(record: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(record["name"])}


@record_udf(Feature("half", "int64", required=False), reads=["id"], code="1")
def half(record: dict[str, Any]) -> dict[str, Any]:
    if record["id"] % 2:
        raise ValueError("it is odd")
    return {"half": record["id"] // 2}


def times(factor: int) -> UDF:
    @record_udf(Feature("many", "int64"), reads=["id"], code=str(factor))
    def many(record: dict[str, Any]) -> dict[str, Any]:
        return {"many": record["id"] * factor}

    return many


def extending(folder: Path, fields: Any = length, **options: Any) -> Platform:  # noqa: ANN401
    """A platform in which notes/v2 is notes/v1 with more fields."""
    return make_platform(
        folder, extended_version("notes/v2", of="notes/v1", udfs=fields, **options)
    )


def told(result: dg.ExecuteInProcessResult, asset: str = "notes_v2") -> dict[str, Any]:
    """What the materialization of an asset tells."""
    assert result.success
    (made,) = result.asset_materializations_for_node(asset)
    content = (made.tags or {})["dagster/data_version"]
    return {"content": content, **{key: one.value for key, one in made.metadata.items()}}


def rows(notes: Platform, *columns: str) -> list[tuple[Any, ...]]:
    table = notes.version("notes/v2").published().to_arrow(list(columns)).read_all()
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_extended_version_is_published_in_same_run(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = extending(tmp_path)
    notes.land("a", [7, 42])
    result = notes.run(instance, GROWING, EXTENDED)
    of_it = {
        name: one.passed for name, one in get_evaluations(result).items() if "notes_v2" in name
    }
    assert of_it == {
        "notes_v2:integrity": True,
        "notes_v2:schema": True,
        "notes_v2:published": True,
    }
    assert rows(notes, "id", "length") == [(7, 6), (42, 7)]
    facts = told(result)
    assert (
        facts["content"]
        == facts["shardline/content_digest"]
        == notes.version("notes/v2").published().content
    )
    (parent,) = [record.data for record in facts["shardline/upstream_snapshots"].records]
    assert (parent["version"], parent["snapshot"]) == ("notes/v1", 1)
    assert "to_tf()" in facts["shardline/read_code"]


def test_extended_version_computes_only_new_shards(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = extending(tmp_path)
    seen = []
    for name, ids in (("a", range(5)), ("b", range(5, 9)), ("", ())):
        if name:
            notes.land(name, ids)
        facts = told(notes.run(instance, GROWING, EXTENDED))
        numbers = (
            "dagster/row_count",
            "shardline/added_rows",
            "shardline/computed_shards",
            "shardline/reused_shards",
        )
        seen.append(tuple(facts[key] for key in numbers))
    assert seen == [(5, 5, 1, 0), (9, 4, 1, 1), (9, 0, 0, 2)]
    assert reported(instance, EXTENDED) == [1, 2, 2]


def test_column_lineage_follows_udf_reads(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    table = tmp_path / "kinds.csv"
    kinds = [length, table_join(table, "id", features=[Feature("kind", "bytes")])]
    notes = extending(tmp_path, lambda: kinds)
    table.write_text("id,kind\n0,short\n1,long\n")
    notes.land("a", range(2))
    facts = told(notes.run(instance, GROWING, EXTENDED))
    lineage = facts["dagster/column_lineage"].deps_by_column
    assert {
        column: [(dep.asset_key, dep.column_name) for dep in deps]
        for column, deps in lineage.items()
    } == {
        "id": [(GROWING, "id")],
        "name": [(GROWING, "name")],
        "length": [(GROWING, "name")],
        "kind": [(GROWING, "id")],
    }
    assert [column.name for column in facts["dagster/column_schema"].columns] == [
        *("id", "kind", "length", "name")
    ]


def test_extended_version_follows_changed_base(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = extending(tmp_path)
    ticks = Ticks(notes, instance)
    ticks.requested()
    notes.land("a", range(5))
    assert notes.run(instance, GROWING).success
    assert ticks.requested() == {REBUILT, EXTENDED}
    assert notes.run(instance, EXTENDED).success
    assert EXTENDED not in ticks.requested()
    assert notes.run(instance, GROWING).success
    assert EXTENDED not in ticks.requested(), "it has the same content"


def test_failed_records_are_quarantined_and_linked(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = extending(tmp_path, half, max_quarantined=0.5)
    notes.land("a", range(4))
    facts = told(notes.run(instance, GROWING, EXTENDED))
    assert facts["shardline/quarantined_rows"] == 2
    assert Path(facts["shardline/quarantine"]).read_text().count("it is odd") == 2
    assert rows(notes, "id", "half") == [(0, 0), (1, None), (2, 1), (3, None)]


def test_raising_udf_commits_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = extending(tmp_path, half)
    notes.land("a", range(4))
    result = notes.run(instance, GROWING, EXTENDED)
    failure = result.failure_data_for_node("notes_v2")
    assert failure is not None
    assert failure.error is not None
    assert "record 1" in failure.error.to_string()
    assert "it is odd" in failure.error.to_string()
    assert notes.version("notes/v2").state.snapshot == 0
    mended = extending(tmp_path, half, max_quarantined=1.0)
    assert mended.run(instance, EXTENDED).success
    assert notes.version("notes/v2").published().records == 4


def test_rejected_extension_keeps_published_snapshot(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    suite = write_suite(tmp_path / "notes_v2.json", at_most("many", 100))
    notes = extending(tmp_path, times(10), expectations=suite)
    notes.land("a", [1, 2])
    assert notes.run(instance, GROWING, EXTENDED).success
    rejected = extending(tmp_path, times(1000), expectations=suite).run(instance, EXTENDED)
    assert not rejected.success
    failed = get_evaluations(rejected)["notes_v2:expectations"]
    assert failed.metadata["shardline/failed_expectations"].value == 1
    assert notes.version("notes/v2").snapshot(2).rejected
    assert rows(notes, "many") == [(10,), (20,)]
    notes = extending(tmp_path, times(30), expectations=suite)
    notes.land("b", [3])
    facts = told(notes.run(instance, GROWING, EXTENDED))
    assert (facts["shardline/computed_shards"], facts["shardline/reused_shards"]) == (2, 0)
    assert rows(notes, "many") == [(30,), (60,), (90,)]


def test_unreported_snapshot_is_reported(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = extending(tmp_path)
    notes.land("a", range(5))
    notes.run(instance, GROWING)
    extend(notes.version(), length, notes.version("notes/v2"))
    facts = told(notes.run(instance, EXTENDED))
    assert (facts["shardline/recovered"], facts["shardline/snapshot"]) == (True, 1)
    assert (facts["shardline/computed_shards"], facts["shardline/reused_shards"]) == (0, 1)
    assert notes.version("notes/v2").published().records == 5


def test_rewrite_replaces_and_drops_features(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    @record_udf(Feature("name", "int64"), reads=["id"], code="1")
    def number(record: dict[str, Any]) -> dict[str, Any]:
        return {"name": record["id"]}

    other = extended_version(
        "numbers/v1",
        of="notes/v1",
        udfs=number,
        mode="rewrite",
        replaces=["name"],
        drop=["id"],
    )
    notes = make_platform(tmp_path, other)
    notes.land("a", range(3))
    facts = told(notes.run(instance, GROWING, other.key), "numbers_v1")
    lineage = facts["dagster/column_lineage"].deps_by_column
    assert {column: [dep.column_name for dep in deps] for column, deps in lineage.items()} == {
        "name": ["id"]
    }
    table = notes.version("numbers/v1").published().to_arrow().read_all().to_pydict()
    assert table == {"name": [0, 1, 2]}
