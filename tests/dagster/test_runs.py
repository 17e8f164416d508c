"""Runs that are killed, repeated, or race each other: every source once, every snapshot told."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.platforms import (
    GROWING,
    Platform,
    get_evaluations,
    reported,
)

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("run_platform.py")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    return home


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """A real instance on a disk, which processes share."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


def start(notes: Platform, home: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(notes.folder), *arguments],
        cwd=ROOT,
        env={**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_snapshot_of_killed_run_is_reported(
    notes: Platform, home: Path, instance: dg.DagsterInstance
) -> None:
    notes.land("a", range(5))
    assert start(notes, home, "2").wait() == -signal.SIGKILL
    assert notes.version().latest().records == 5
    assert reported(instance, GROWING) == [], "nobody has told Dagster"
    result = notes.run(instance, GROWING)
    assert result.success
    assert reported(instance, GROWING) == [1]
    (event,) = result.asset_materializations_for_node("notes_v1")
    assert event.metadata["shardline/recovered"].value is True
    assert all(evaluation.passed for evaluation in get_evaluations(result).values())
    assert notes.version().published().records == 5
    notes.run(instance, GROWING)
    event = instance.get_latest_materialization_event(GROWING).asset_materialization  # type: ignore[union-attr, assignment]
    assert "shardline/recovered" not in event.metadata, "it is known by now"


@pytest.mark.sweep
def test_concurrent_runs_append_each_source_once(
    notes: Platform, home: Path, instance: dg.DagsterInstance
) -> None:
    for number in range(6):
        notes.land(f"{number}", range(10 * number, 10 * number + 10))
    runs = [start(notes, home) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    version = notes.version()
    assert version.published().records == 60
    assert len(version.published().shards) == 6
    assert reported(instance, GROWING)[-1] == version.published().number
