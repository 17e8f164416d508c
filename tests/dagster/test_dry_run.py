"""The job `dry_run` shows what materializations would do, and changes nothing at all."""

from pathlib import Path
from typing import Any

import dagster as dg

from shardline.dagster import combined_version, extended_version
from shardline.errors import InvalidArgumentError, UnknownArgumentError, VersionNotFoundError
from shardline.schema.schema import Feature
from shardline.udf import record_udf
from tests.dagster.platforms import GROWING, QUIET, Platform, make_platform, table_rows
from tests.dagster.suites import at_most, write_suite
from tests.dagster.ticks import Ticks
from tests.errors import raises


@record_udf(Feature("length", "int64"), reads=["name"], code="1")
def length(record: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(record["name"])}


def deriving(folder: Path) -> Platform:
    """A platform with a version of each kind."""
    return make_platform(
        folder,
        extended_version("notes/v2", of="notes/v1", udfs=length),
        combined_version(
            "pairs/v1",
            left="notes/v1",
            right="notes/v1",
            unordered=True,
            on_collision="prefix",
            left_prefix="a_",
            right_prefix="b_",
        ),
        suite=write_suite(folder / "notes.json", at_most("id", 1000)),
    )


def dry_run(
    notes: Platform, instance: dg.DagsterInstance, version: str = "", **options: object
) -> dict[str, dict[str, Any]]:
    """Run the job; what it observed, by asset."""
    config = {"version": version, "options": options}
    result = notes.defs.resolve_job_def("dry_run").execute_in_process(
        instance=instance, run_config={**QUIET, "ops": {"plan": {"config": config}}}
    )
    assert result.success
    observed = [
        event.asset_observation_data.asset_observation
        for event in result.get_asset_observation_events()
    ]
    return {
        one.asset_key.to_user_string(): {key: value.value for key, value in one.metadata.items()}
        | (
            {"shardline/sources": table_rows(one.metadata["shardline/sources"])}
            if "shardline/sources" in one.metadata
            else {}
        )
        for one in observed
    }


def statuses(notes: Platform, instance: dg.DagsterInstance) -> dict[str, tuple[object, ...]]:
    """The status of each check, as Dagster resolves it, and the run that it is of."""
    keys = [key for checks_def in notes.defs.asset_checks or () for key in checks_def.check_keys]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    return {key.to_user_string(): (one.status, one.run_id) for key, one in found.items()}


def entries(notes: Platform) -> dict[str, bytes]:
    """Every file of the root: what is in the logs, and what lies next to them."""
    root = notes.folder / "root"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_dry_run_changes_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = deriving(tmp_path)
    ticks = Ticks(notes, instance)
    ticks.requested()
    notes.land("a", range(4))
    assert notes.run(instance, GROWING).success
    ticks.follow()
    notes.land("b", range(4, 6))
    before = (statuses(notes, instance), entries(notes))
    latest = {
        key: instance.get_latest_materialization_event(key)
        for key in notes.defs.resolve_all_asset_keys()
    }
    assert len({run for _, run in before[0].values()}) > 1
    planned = dry_run(notes, instance)
    assert planned.keys() == {"notes_v1", "notes_single", "notes_v2", "pairs_v1"}
    assert planned["notes_v1"]["shardline/sources_to_append"] == 1
    assert planned["notes_v2"]["shardline/shards_to_reuse"] == 1
    assert (statuses(notes, instance), entries(notes)) == before
    assert latest == {key: instance.get_latest_materialization_event(key) for key in latest}
    assert ticks.requested() == set()


def test_dry_run_takes_launchpad_options(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    notes = deriving(tmp_path)
    path = notes.land("a", range(10))
    notes.land("b", range(10, 14))
    (one,) = dry_run(notes, instance, "notes/v1", files=[str(path)])["notes_v1"][
        "shardline/sources"
    ]
    assert one == {"source": str(path.resolve()), "bytes": path.stat().st_size}
    assert not notes.version().exists
    assert notes.run(instance, GROWING, config={"limit": 1}).success
    assert notes.run(instance, GROWING).success
    rebuild = dry_run(notes, instance, "notes/single", input_snapshot=1)["notes_single"]
    assert (rebuild["shardline/input_snapshot"], rebuild["shardline/rows_to_read"]) == (1, 10)
    extend = dry_run(notes, instance, "notes/v2", input_snapshot=2)["notes_v2"]
    assert (extend["shardline/shards_to_compute"], extend["shardline/shards_to_reuse"]) == (2, 0)
    assert extend["shardline/rows_to_read"] == 14
    assert "length" in {column.name for column in extend["shardline/columns"].columns}
    pairs = dry_run(notes, instance, "pairs/v1", left_snapshot=1, right_snapshot=1)["pairs_v1"]
    assert pairs["shardline/pairs_to_compute"] == 45
    assert pairs["shardline/bytes_to_write"] > 45 * 2 * len("note 1")
    assert (pairs["shardline/shards_to_compute"], pairs["shardline/shards_to_reuse"]) == (1, 0)
    for name in ("notes/single", "notes/v2", "pairs/v1"):
        assert not notes.version(name).exists


def test_dry_run_of_invalid_options_fails(notes: Platform, instance: dg.DagsterInstance) -> None:
    with raises(InvalidArgumentError, "version-not-found") as caught:
        dry_run(notes, instance, "notes/v11")
    assert "'notes/v1'" in str(caught.value.hint)
    with raises(InvalidArgumentError, "missing-argument"):
        dry_run(notes, instance, limit=1)
    with raises(UnknownArgumentError, "unknown-argument") as caught:
        dry_run(notes, instance, "notes/v1", limits=1)
    assert "'limit'" in str(caught.value.hint)
    with raises(InvalidArgumentError, "invalid-argument"):
        dry_run(notes, instance, "notes/v1", limit=-1)
    with raises(VersionNotFoundError, "version-not-found", version="notes/v1"):
        dry_run(notes, instance, "notes/single")
    assert dry_run(notes, instance).keys() == {"notes_v1"}


def test_launchpad_has_no_dry_run(notes: Platform) -> None:
    job = notes.defs.resolve_implicit_global_asset_job_def()
    for op in ("notes_v1", "notes_single"):
        config = {"ops": {op: {"config": {"dry_run": True}}}}
        try:
            dg.validate_run_config(job, config)
        except dg.DagsterInvalidConfigError:
            continue
        raise AssertionError(op)
