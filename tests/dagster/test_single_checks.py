"""Checks that are executed one by one: what each reads, attests and blocks."""

from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.platforms import (
    GROWING,
    REBUILT,
    Platform,
    get_evaluations,
    make_platform,
)
from tests.dagster.suites import at_most, write_suite

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def attested(notes: Platform, after: int = 0) -> set[str]:
    """The checks that entries after one attest."""
    entries = notes.version().log.entries(after + 1)
    return {attestation.check for entry in entries for attestation in entry.attestations}


def the_shard(notes: Platform) -> Path:
    (path,) = notes.version().latest().files()
    return Path(path)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)


@pytest.fixture
def published(notes: Platform, instance: dg.DagsterInstance) -> Platform:
    """A platform with a published snapshot, and a version that was rebuilt from it."""
    notes.land("a", range(5))
    assert notes.run(instance).success
    return notes


@pytest.mark.parametrize(("check", "severity"), [("drift", WARN), ("expectations", ERROR)])
def test_check_alone_reads_nothing_unattested(
    tmp_path: Path, instance: dg.DagsterInstance, check: str, severity: dg.AssetCheckSeverity
) -> None:
    suite = write_suite(tmp_path / "notes.json", at_most("id", 1000))
    notes = make_platform(tmp_path, suite=suite)
    notes.land("a", range(5))
    notes.commit_unchecked(instance)
    the_shard(notes).unlink()  # a check that read it would say so
    (evaluation,) = get_evaluations(notes.check(instance, check)).values()
    assert (evaluation.passed, evaluation.severity) == (False, severity)
    assert evaluation.metadata["shardline/not_evaluated"].value == "integrity"
    assert attested(notes) == set()
    assert notes.version().state.published is None


def test_volume_alone_publishes_nothing(notes: Platform, instance: dg.DagsterInstance) -> None:
    notes.land("a", range(5))
    notes.commit_unchecked(instance)
    assert notes.check(instance, "volume").success
    assert attested(notes) == {"volume"}
    assert notes.version().state.published is None


@pytest.mark.parametrize(("check", "other"), [("integrity", "schema"), ("schema", "integrity")])
def test_shard_check_alone_attests_itself(
    notes: Platform, instance: dg.DagsterInstance, check: str, other: str
) -> None:
    notes.land("a", range(5))
    notes.commit_unchecked(instance)
    assert notes.check(instance, check).success
    assert attested(notes) == {check}
    assert not notes.check(instance, "published").success
    assert notes.check(instance, other, "published").success
    assert notes.version().published().records == 5


def test_integrity_names_earlier_attestation(
    published: Platform, instance: dg.DagsterInstance
) -> None:
    version = published.version()
    (entry,) = [
        entry
        for entry in version.log.entries(1)
        if any(told.check == "integrity" for told in entry.attestations)
    ]
    flip(the_shard(published))
    (evaluation,) = get_evaluations(published.check(instance, "integrity")).values()
    assert evaluation.passed
    told = {name: value.value for name, value in evaluation.metadata.items()}
    assert (told["shardline/shards_read"], told["shardline/bytes_read"]) == (0, 0)
    assert (told["shardline/attested_shards"], told["shardline/attested_entry"]) == (
        1,
        entry.number,
    )
    assert told["shardline/attested_time"] == entry.time.timestamp()


def test_reread_finds_corruption_and_unpublishes(
    published: Platform, instance: dg.DagsterInstance
) -> None:
    path = the_shard(published)
    before = published.version().state.number
    flip(path)
    result = published.check(instance, "integrity", "published", config={"reread": True})
    assert not result.success
    integrity, gate = (
        get_evaluations(result)["notes_v1:integrity"],
        get_evaluations(result)["notes_v1:published"],
    )
    assert (integrity.passed, integrity.severity) == (False, ERROR)
    assert integrity.metadata["shardline/shards_read"].value == 1
    assert integrity.metadata["shardline/bytes_read"].value == path.stat().st_size
    assert (gate.passed, gate.severity) == (False, ERROR)
    assert attested(published, before) == {"integrity"}
    assert published.version().state.published is None


def test_reread_reads_the_whole_log(published: Platform, instance: dg.DagsterInstance) -> None:
    version = published.version()
    version.log.write_checkpoint(version.state)
    edit(published, 2)
    assert get_evaluations(published.check(instance, "integrity"))["notes_v1:integrity"].passed
    result = published.check(instance, "integrity", config={"reread": True})
    integrity = get_evaluations(result)["notes_v1:integrity"]
    assert (integrity.passed, integrity.severity) == (False, ERROR)


def test_failing_integrity_alone_stops_downstream(
    published: Platform, instance: dg.DagsterInstance
) -> None:
    the_shard(published).unlink()
    result = published.check(instance, "integrity", assets=[GROWING, REBUILT])
    assert not result.success
    made = {event.asset_key for event in result.get_asset_materialization_events()}
    assert made == {GROWING}


def test_downstream_without_checks_reads_published(
    published: Platform, instance: dg.DagsterInstance
) -> None:
    published.land("b", range(5, 9))
    job = published.defs.resolve_implicit_global_asset_job_def()
    subset = job.get_subset(asset_selection={GROWING, REBUILT}, asset_check_selection=set())
    assert subset.execute_in_process(instance=instance).success
    assert published.version().latest().records == 9
    assert published.version("notes/single").latest().records == 5


def edit(notes: Platform, entry: int) -> None:
    """Change a committed entry, as an editor would."""
    path = notes.folder / "root" / notes.version().log.entry_name(entry)
    path.write_bytes(path.read_bytes().replace(b'"append"', b'"appond"'))


@pytest.fixture
def edited(published: Platform) -> Platform:
    """A platform whose log was edited."""
    edit(published, 2)
    return published


def test_edited_log_turns_checks_red(edited: Platform, instance: dg.DagsterInstance) -> None:
    result = edited.check(instance)
    assert not result.success
    found = {evaluation.check_name: evaluation for evaluation in get_evaluations(result).values()}
    assert {
        name: (evaluation.passed, evaluation.severity) for name, evaluation in found.items()
    } == {
        "integrity": (False, ERROR),
        "schema": (False, ERROR),
        "drift": (False, WARN),
        "volume": (False, WARN),
        "sources_accepted": (False, ERROR),
        "published": (False, ERROR),
    }
    assert {one.metadata["shardline/error_code"].value for one in found.values()} == {"corrupt-log"}


def test_published_names_the_published_snapshot(
    published: Platform, instance: dg.DagsterInstance
) -> None:
    (evaluation,) = get_evaluations(published.check(instance, "published")).values()
    told = {name: value.value for name, value in evaluation.metadata.items()}
    assert evaluation.passed
    assert (
        told["shardline/snapshot"],
        told["shardline/published_snapshot"],
        told["shardline/published_rows"],
    ) == (1, 1, 5)
    published.land("b", range(5, 9))
    published.commit_unchecked(instance)
    (evaluation,) = get_evaluations(published.check(instance, "published")).values()
    told = {name: value.value for name, value in evaluation.metadata.items()}
    assert not evaluation.passed
    assert (
        told["shardline/snapshot"],
        told["shardline/published_snapshot"],
        told["shardline/published_rows"],
    ) == (2, 1, 5)


def test_no_snapshot_is_not_published(notes: Platform, instance: dg.DagsterInstance) -> None:
    found = get_evaluations(notes.check(instance))
    failed = {name for name, one in found.items() if not one.passed}
    assert failed == {"notes_v1:published"}
