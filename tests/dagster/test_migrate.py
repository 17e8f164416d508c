"""A version under another schema: it follows its base, and a schema change leads to it."""

from pathlib import Path
from typing import Any

import dagster as dg

from shardline.dagster import appended_version, migrated_version
from shardline.dagster.definitions import build_definitions
from shardline.errors import SchemaMismatchError
from shardline.schema.logical_types import Text
from shardline.schema.schema import Feature, Schema
from tests.dagster.platforms import (
    GROWING,
    QUIET,
    REBUILT,
    Platform,
    get_evaluations,
    make_platform,
    table_rows,
)
from tests.dagster.suites import at_most, write_suite
from tests.dagster.ticks import Ticks
from tests.errors import raises

MIGRATED = dg.AssetKey("notes_v2")


def migrating(folder: Path, **options: Any) -> Platform:  # noqa: ANN401 - as declared
    """A platform with a version that calls names titles, and has a split."""
    steps = {"rename": {"name": "title"}, "cast": {"id": "float"}, "default": {"split": "train"}}
    return make_platform(
        folder, migrated_version("notes/v2", of="notes/v1", **{**steps, **options})
    )


def rows(notes: Platform) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        notes.version("notes/v2").published().to_arrow().read_all().to_pylist()
    )
    return found


def test_migrated_version_follows_its_base(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    suite = write_suite(tmp_path / "notes_v2.json", at_most("id", 1000))
    notes = migrating(tmp_path, expectations=suite)
    ticks = Ticks(notes, instance)
    ticks.requested()
    notes.land("a", range(2))
    assert notes.run(instance, GROWING).success
    assert ticks.requested() == {REBUILT, MIGRATED}
    result = notes.run(instance, MIGRATED)
    assert result.success
    assert all(evaluation.passed for evaluation in get_evaluations(result).values())
    assert "notes_v2:expectations" in get_evaluations(result)
    assert rows(notes) == [
        {"id": float(number), "split": "train", "title": f"note {number}"} for number in range(2)
    ]
    (made,) = result.asset_materializations_for_node("notes_v2")
    (parent,) = table_rows(made.metadata["shardline/upstream_snapshots"])
    assert (parent["version"], parent["snapshot"]) == ("notes/v1", 1)
    lineage = made.metadata["dagster/column_lineage"].value
    assert isinstance(lineage, dg.TableColumnLineage)
    assert [dep.column_name for dep in lineage.deps_by_column["title"]] == ["name"]
    notes.land("b", [7])
    assert notes.run(instance, GROWING, MIGRATED).success
    assert [row["title"] for row in rows(notes)] == ["note 0", "note 1", "note 7"]
    newest = notes.version("notes/v2").latest()
    assert [shard.name for shard in newest.shards][:1] == [
        shard.name for shard in notes.version("notes/v2").snapshot(1).shards
    ], "what was migrated before is used again"
    assert notes.run(instance, MIGRATED, config={"input_snapshot": 1}).success
    assert len(rows(notes)) == 2


def test_schema_change_names_migrated_version(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = make_platform(tmp_path)
    notes.land("a", range(2))
    assert notes.run(instance, GROWING).success
    entry = notes.version().state.number
    changed = Schema((Feature("id", "int64"), Feature("title", "bytes", meaning=Text())))
    other = appended_version("notes/v1", schema=changed, landing=notes.landing)
    defs = build_definitions(other, shardline=notes.resource)
    code = "schema-mismatch"
    with raises(SchemaMismatchError, code, version="notes/v1") as caught:
        defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, asset_selection=[GROWING], run_config=QUIET
        )
    assert "migrated_version(" in str(caught.value.hint)
    assert notes.version().state.number == entry, "nothing was committed"
    mended = migrating(tmp_path, cast={}, default={})
    assert mended.run(instance, MIGRATED).success
    assert notes.version("notes/v2").schema == changed


def test_source_with_another_schema_names_migrated_version(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(2))
    assert notes.run(instance, GROWING).success
    notes.land("b", range(2, 4), more=1)
    result = notes.run(instance, GROWING)
    hints = [
        event.message
        for event in instance.all_logs(result.run_id)
        if "migrated_version(" in event.message
    ]
    assert len(hints) == 1


def test_failed_casts_are_quarantined(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = migrating(tmp_path)
    notes.land("a", [1, 2**24 + 1])
    assert notes.run(instance, GROWING).success
    failed = notes.run(instance, MIGRATED)
    assert not failed.success
    assert not notes.version("notes/v2").state.snapshot
    mended = migrating(tmp_path, max_quarantined=0.5)
    result = mended.run(instance, MIGRATED)
    (made,) = result.asset_materializations_for_node("notes_v2")
    assert made.metadata["shardline/quarantined_rows"].value == 1
    assert [row["id"] for row in rows(notes)] == [1.0]
