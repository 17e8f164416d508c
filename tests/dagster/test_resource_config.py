"""The root is a property of the deployment: no run can move it."""

from pathlib import Path

import dagster as dg
import pytest

from shardline.dagster.definitions import build_definitions
from shardline.dagster.resources import ShardlineResource
from tests.dagster.platforms import GROWING, QUIET, Platform


def test_run_config_cannot_move_root(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(3))
    elsewhere = notes.folder / "elsewhere"
    job = notes.defs.resolve_implicit_global_asset_job_def()
    moved = {"root": str(elsewhere), "reports": str(elsewhere)}
    config = {**QUIET, "resources": {"shardline": {"config": moved}}}
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(job, config)
    with pytest.raises(dg.DagsterInvalidConfigError):
        job.execute_in_process(instance=instance, asset_selection=[GROWING], run_config=config)
    assert instance.get_latest_materialization_event(GROWING) is None
    assert not elsewhere.exists()
    assert not notes.version().exists
    config["resources"] = {"shardline": {"config": {}}}
    assert dg.validate_run_config(job, config)


def test_resource_takes_values_from_environment_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    monkeypatch.setenv("TEST_ROOT", str(tmp_path / "root"))
    seen: list[ShardlineResource] = []

    @dg.op
    def look(shardline: ShardlineResource) -> None:
        seen.append(shardline)

    @dg.job
    def looking() -> None:
        look()

    resource = ShardlineResource(root=dg.EnvVar("TEST_ROOT"), reports=str(tmp_path / "reports"))
    defs = dg.Definitions.merge(
        build_definitions(shardline=resource), dg.Definitions(jobs=[looking])
    )
    assert defs.resolve_job_def("looking").execute_in_process(instance=instance).success
    assert [one.root for one in seen] == [str(tmp_path / "root")]


def test_sensor_reads_root_of_the_definitions(
    notes: Platform, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(3))
    repository = notes.defs.get_repository_def()
    context = dg.build_sensor_context(
        instance=instance,
        repository_def=repository,
        resources=dict(repository.get_top_level_resources()),
    )
    (request,) = (
        repository.get_sensor_def("notes_v1_landing").evaluate_tick(context).run_requests or ()
    )
    assert request.run_config["ops"]["notes_v1"]["config"]["files"]
