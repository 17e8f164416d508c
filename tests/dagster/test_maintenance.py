"""The weekly verification finds what storage lost, and vacuum deletes only when it is told to."""

from pathlib import Path

import dagster as dg
import pytest

from shardline.api import Version
from shardline.errors import SnapshotNotFoundError
from tests.dagster.platforms import (
    GROWING,
    QUIET,
    Platform,
    make_platform,
    table_rows,
)


@pytest.fixture
def notes(tmp_path: Path, instance: dg.DagsterInstance) -> Platform:
    notes = make_platform(tmp_path)
    notes.land("a", range(5))
    assert notes.run(instance).success
    return notes


def shard_files(version: Version) -> list[Path]:
    return [Path(path) for path in version.latest().files()]


def run(
    notes: Platform, instance: dg.DagsterInstance, job: str, **config: object
) -> dg.ExecuteInProcessResult:
    ops = {"ops": {"vacuum_all": {"config": config}}} if config else {}
    return notes.defs.resolve_job_def(job).execute_in_process(
        instance=instance, run_config={**QUIET, **ops}, raise_on_error=False
    )


def test_intact_versions_stay_published(notes: Platform, instance: dg.DagsterInstance) -> None:
    entries = notes.version().state.number
    assert run(notes, instance, "verify_everything").success
    assert notes.version().published().number == 1
    assert notes.version().state.number == entries


def test_corrupt_shard_is_unpublished(notes: Platform, instance: dg.DagsterInstance) -> None:
    (path,) = shard_files(notes.version())
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    result = run(notes, instance, "verify_everything")
    assert not result.success
    failure = result.failure_data_for_node("verify_all")
    assert failure is not None
    assert failure.user_failure_data is not None
    (row,) = table_rows(failure.user_failure_data.metadata["shardline/problems"])
    assert (row["version"], row["where"]) == ("notes/v1", path.name)
    assert "record 0, offset" in row["problem"]
    with pytest.raises(SnapshotNotFoundError):
        notes.version().published()
    assert notes.version("notes/single").published().records == 5, "it has a copy of its own"


def test_missing_shard_is_found_by_check(notes: Platform, instance: dg.DagsterInstance) -> None:
    (path,) = shard_files(notes.version())
    path.unlink()
    result = notes.run(instance, GROWING)
    assert not result.success
    with pytest.raises(SnapshotNotFoundError):
        notes.version().published()


def test_tagged_snapshot_is_verified(notes: Platform, instance: dg.DagsterInstance) -> None:
    single = notes.version("notes/single")
    (old,) = shard_files(single)
    single.tag("best", 1)
    notes.land("b", range(5, 9))
    assert notes.run(instance).success
    assert old not in shard_files(notes.version("notes/single"))
    old.write_bytes(old.read_bytes()[:-1])
    assert not run(notes, instance, "verify_everything").success
    assert notes.version("notes/single").published().records == 9


def test_vacuum_is_a_dry_run_by_default(notes: Platform, instance: dg.DagsterInstance) -> None:
    (old,) = shard_files(notes.version("notes/single"))
    notes.land("b", range(5, 9))
    assert notes.run(instance).success
    assert run(notes, instance, "vacuum", retention_days=0.0).success
    assert old.is_file()
    assert run(notes, instance, "vacuum", retention_days=0.0, dry_run=False).success
    assert not old.exists()
    assert notes.version("notes/single").published().records == 9


def test_versions_without_snapshot_are_skipped(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    empty = make_platform(tmp_path)
    assert run(empty, instance, "verify_everything").success
    assert run(empty, instance, "vacuum").success
