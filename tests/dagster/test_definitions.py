"""The code location as Dagster loads it: quickly, quietly, and with exactly these definitions."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dagster_project.definitions import defs

PINNED = Path(__file__).with_name("definitions.json")
ROOT = Path(__file__).parents[2]
LOAD = """
import json, sys, time, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import dagster_project.definitions
told = [[one.category.__name__, one.filename, str(one.message)] for one in caught]
loaded = [name for name in sys.modules if "." not in name]
print(json.dumps({"seconds": time.process_time(), "loaded": loaded, "warnings": told}))
"""


@cache
def fresh() -> dict[str, Any]:
    """What a process tells that loads the definitions and nothing else."""
    command = [sys.executable, "-c", LOAD]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    assert run.stderr == ""
    told: dict[str, Any] = json.loads(run.stdout)
    return told


def described(asset: dg.AssetSpec) -> dict[str, Any]:
    condition = asset.automation_condition
    return {
        "group": asset.group_name,
        "deps": sorted(dep.asset_key.to_user_string() for dep in asset.deps),
        "kinds": sorted(asset.kinds),
        "owners": list(asset.owners),
        "operation": asset.tags.get("shardline/operation"),
        "automation": condition.get_label() if condition is not None else None,
    }


def runs(job: str | None) -> str | list[str] | None:
    """What a schedule or a sensor runs: a job that has a name, or assets."""
    if job is None or not job.startswith("__"):
        return job
    layer = defs.resolve_job_def(job).asset_layer
    return sorted(key.to_user_string() for key in layer.executable_asset_keys)


def definitions() -> dict[str, Any]:
    """All that is defined, in the form of the file that pins it."""
    checks = [spec for checks_def in defs.asset_checks or () for spec in checks_def.check_specs]
    schedules = [defs.resolve_schedule_def(schedule.name) for schedule in defs.schedules or ()]
    sensors = [defs.resolve_sensor_def(sensor.name) for sensor in defs.sensors or ()]
    return {
        "assets": {
            asset.key.to_user_string(): described(asset)
            for asset in sorted(defs.resolve_all_asset_specs(), key=lambda asset: asset.key)
        },
        "checks": {
            f"{spec.asset_key.to_user_string()}:{spec.name}": (
                "blocking" if spec.blocking else "not blocking"
            )
            for spec in checks
        },
        "schedules": {
            schedule.name: {
                "runs": runs(schedule.job_name),
                "cron": schedule.cron_schedule,
                "timezone": schedule.execution_timezone,
                "status": schedule.default_status.value,
            }
            for schedule in schedules
        },
        "sensors": {
            sensor.name: {
                "runs": [runs(target.job_name) for target in sensor.targets]
                or f"{sensor.asset_selection}",
                "type": sensor.sensor_type.value,
                "seconds": sensor.minimum_interval_seconds,
                "status": sensor.default_status.value,
            }
            for sensor in sensors
        },
        "jobs": {job.name: job.description for job in defs.jobs or ()},
        "resources": {name: type(one).__name__ for name, one in (defs.resources or {}).items()},
    }


def as_text(found: dict[str, Any]) -> str:
    """JSON with one line for each definition, so that a change of one shows as one line."""
    sections = []
    for section, told in found.items():
        lines = (f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in told.items())
        sections.append(f"  {json.dumps(section)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def test_definitions_equal_snapshot(tmp_path: Path) -> None:
    found = definitions()
    written = tmp_path / "definitions.json"
    written.write_text(as_text(found))
    assert found == json.loads(PINNED.read_text()), f"if this is meant: cp {written} {PINNED}"


def test_definitions_are_loadable() -> None:
    dg.Definitions.validate_loadable(defs)


def test_definitions_load_within_three_seconds() -> None:
    assert fresh()["seconds"] < 3


@pytest.mark.parametrize(
    "package", ["tensorflow", "great_expectations", "pandas", "matplotlib", "sklearn", "PIL"]
)
def test_definitions_do_not_import(package: str) -> None:
    loaded = fresh()["loaded"]
    assert "dagster" in loaded
    assert package not in loaded


def test_definitions_raise_no_deprecation_warning() -> None:
    unfinished = {"BetaWarning", "PreviewWarning", "SupersessionWarning"}
    ours = [
        told
        for told in fresh()["warnings"]
        if told[0] in unfinished
        or (told[0].endswith("DeprecationWarning") and told[1].startswith(f"{ROOT}/"))
    ]
    assert ours == []
