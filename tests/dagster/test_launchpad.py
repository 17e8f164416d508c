"""What can be set for a run, in the launchpad and in the environment."""

from pathlib import Path

import dagster as dg
import pytest

from shardline.dagster.resources import REPORTS_VARIABLE, ROOT_VARIABLE, shardline_resource
from shardline.errors import SnapshotNotFoundError
from shardline.hints import Command
from shardline.operations.landing_folder import LandingFolder, scan_landing_folders
from tests.dagster.platforms import (
    GROWING,
    QUIET,
    REBUILT,
    Platform,
    get_evaluations,
    make_platform,
)
from tests.dagster.suites import at_most, write_suite
from tests.errors import raises


def rebuild(
    notes: Platform, instance: dg.DagsterInstance, **config: object
) -> dg.ExecuteInProcessResult:
    return notes.defs.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[REBUILT],
        run_config={**QUIET, "ops": {"notes_single": {"config": config}}},
    )


def test_launchpad_selects_older_input_snapshot(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance)
    notes.land("b", range(5, 9))
    notes.run(instance)
    assert rebuild(notes, instance, input_snapshot=1).success
    assert notes.version("notes/single").published().records == 5


def test_unpublished_input_snapshot_is_refused(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    suite = write_suite(tmp_path / "notes.json", at_most("id", 1000))
    notes = make_platform(tmp_path, suite=suite)
    notes.land("a", range(5))
    notes.run(instance)
    notes.land("b", [2000])
    notes.run(instance)
    fields = {"version": "notes/v1", "snapshot": 2}
    with raises(SnapshotNotFoundError, "snapshot-unpublished", **fields) as caught:
        rebuild(notes, instance, input_snapshot=2)
    assert caught.value.hint is not None
    assert caught.value.hint.commands == (Command.of("status", "notes/v1"),)


def test_target_size_sets_shard_size(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(12_000))
    whole = notes.run(instance, GROWING)
    assert whole.success
    assert len(notes.version().latest().shards) == 1
    notes.land("b", range(12_000, 60_000))
    assert notes.run(instance, GROWING, config={"target_shard_mb": 1}).success
    added = notes.version().latest().shards[1:]
    assert len(added) > 1
    assert all(shard.bytes <= 1024 * 1024 for shard in added)


def test_invalid_rows_are_quarantined_and_linked(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    notes = make_platform(tmp_path, max_quarantined=0.2)
    path = notes.land("a", range(9))
    path.write_text(path.read_text() + '{"id": "no number", "name": "x"}\n')
    result = notes.run(instance, GROWING)
    assert result.success
    (made,) = result.asset_materializations_for_node("notes_v1")
    assert made.metadata["shardline/quarantined_rows"].value == 1
    assert made.metadata["dagster/row_count"].value == 9
    assert Path(str(made.metadata["shardline/quarantine"].value)).is_file()


def test_duplicates_and_changed_files_are_reported_once(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    notes.run(instance, GROWING)
    notes.land("copy", range(5))
    notes.land("b", [7])
    result = notes.run(instance, GROWING)
    assert result.success
    (made,) = result.asset_materializations_for_node("notes_v1")
    assert made.metadata["shardline/duplicate_sources"].value == 1
    sources = get_evaluations(result)["notes_v1:sources_accepted"]
    assert (sources.passed, sources.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert sources.metadata["shardline/duplicate_sources"].value == 1
    folder = LandingFolder(str(notes.landing), settle_seconds=0)
    assert scan_landing_folders(notes.version(), [folder]).new == ()
    notes.land("b", [8])
    result = notes.run(instance, GROWING)
    assert get_evaluations(result)["notes_v1:integrity"].passed
    assert (
        get_evaluations(result)["notes_v1:sources_accepted"]
        .metadata["shardline/rejected_sources"]
        .value
        == 1
    )
    assert scan_landing_folders(notes.version(), [folder]).new == (), (
        "a rejected file is not asked for again"
    )
    config = {"files": [str(notes.landing / "b.jsonl")], "on_changed": "replace"}
    assert notes.run(instance, GROWING, config=config).success
    assert notes.version().published().records == 6
    config = {"files": [str(notes.landing / "copy.jsonl")], "on_duplicate": "append"}
    assert notes.run(instance, GROWING, config=config).success
    assert notes.version().published().records == 11


def test_root_comes_from_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, "s3://bucket/datasets")
    monkeypatch.setenv(REPORTS_VARIABLE, str(tmp_path))
    told = shardline_resource()
    assert (told.root, told.reports) == ("s3://bucket/datasets", str(tmp_path))
    monkeypatch.delenv(ROOT_VARIABLE)
    monkeypatch.chdir(tmp_path)
    assert shardline_resource().root == str(tmp_path / ".demo" / "root")
