"""Vacuum: what nothing needs goes after a while, and what anything may need stays."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import CorruptLogError, InvalidNameError, StorageError, TombstonedShardError
from shardline.log.changes import SetTag
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.operations.vacuum import VacuumCandidate, VacuumReport, vacuum
from shardline.operations.verify_log import verify_log
from shardline.storage import open_store
from shardline.storage.durable_file import DurableFile
from tests.log import versions
from tests.log.versions import NAME, Clock, held, shard_name
from tests.storage.faulty import Fault, FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATASET = "digits"
COMMITTED = "in no retained snapshot"
ORPHAN = "never committed"
ANNOUNCED = "announced by an earlier vacuum"
INDEX = "sidecar of a deleted shard"
LEFT_BEHIND = "temporary file of a stopped writer"
CHECKPOINT = "replaced by a newer checkpoint"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def version(tmp_path: Path, clock: Clock) -> Version:
    return versions.make_version(tmp_path, clock=clock)


def path_of(root: Path, label: str, owner: str = "v1") -> Path:
    return root / DATASET / "shards" / shard_name(label, owner)


def written(path: Path, time: datetime) -> Path:
    """Let a file look as if it had been written at a time."""
    os.utime(path, (time.timestamp(), time.timestamp()))
    return path


def there(root: Path) -> set[str]:
    """The labels whose files are there."""
    return {path.read_text() for path in (root / DATASET / "shards").glob("*.tfrecord")}


def run(root: Path, clock: Clock, *, delete: bool = True) -> dict[str, str]:
    """Vacuum; gives why each file goes, by its name in the dataset."""
    report = vacuum(root, DATASET, dry_run=not delete, clock=clock)
    return reasons(report)


def reasons(report: VacuumReport) -> dict[str, str]:
    return {file.name.removeprefix(f"{DATASET}/"): file.reason for file in report.files}


def shards(labels: str, why: str = COMMITTED) -> dict[str, str]:
    return {f"shards/{shard_name(label)}": why for label in labels}


def rebuild_ab(version: Version) -> None:
    """Snapshot 1 holds a and b, snapshot 2 holds r in their place; both are published."""
    versions.append(version, "a", "b")
    versions.attest_shards(version, "a", "b")
    versions.rebuild(version, "ab", "r")
    versions.attest_shards(version, "r")


def test_what_was_replaced_goes_after_a_week(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    rebuild_ab(version)
    clock.move(days=6.9)
    assert run(tmp_path, clock) == {}
    clock.move(days=0.2)
    assert run(tmp_path, clock) == shards("ab")
    assert there(tmp_path) == {"r"}
    fresh = Version(tmp_path, NAME)
    assert held(fresh) == ["r"]
    assert verify_log(fresh.log).problems == ()


def test_the_time_to_keep_can_be_told(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    clock.move(hours=2)
    assert vacuum(tmp_path, DATASET, retention=timedelta(hours=3), clock=clock).files == []
    report = vacuum(tmp_path, DATASET, retention=timedelta(hours=1), clock=clock)
    assert reasons(report) == shards("ab")


def test_the_head_stays_however_old_it_is(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "a")
    clock.move(days=1000)
    assert run(tmp_path, clock) == {}
    assert there(tmp_path) == {"a"}


def test_vacuum_retains_published_snapshot(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "a")
    versions.attest_shards(version, "a")
    versions.rebuild(version, "a", "r")
    clock.move(days=100)
    versions.rebuild(version, "r", "s")
    clock.move(days=100)
    assert run(tmp_path, clock) == shards("r")
    assert there(tmp_path) == {"a", "s"}


def test_retention_starts_when_replaced(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "a")
    versions.attest_shards(version, "a")
    versions.rebuild(version, "a", "r")
    clock.move(days=100)
    versions.attest_shards(version, "r")
    clock.move(days=6)
    assert run(tmp_path, clock) == {}
    clock.move(days=2)
    assert run(tmp_path, clock) == shards("a")


def test_retention_starts_when_unpublished(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    versions.rebuild(version, "r", "s")
    clock.move(days=100)
    versions.attest_shards(version, "r", passed=False)
    assert version.state.published == 1
    clock.move(days=6)
    assert run(tmp_path, clock) == {}
    clock.move(days=2)
    assert run(tmp_path, clock) == shards("r")
    assert there(tmp_path) == {"a", "b", "s"}


def test_vacuumed_snapshot_is_never_published(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    rebuild_ab(version)
    clock.move(days=8)
    run(tmp_path, clock)
    versions.attest_shards(version, "r", passed=False)
    fresh = Version(tmp_path, NAME)
    assert fresh.state.published is None
    assert not fresh.snapshot(1).published
    assert verify_log(fresh.log).problems == ()


@pytest.mark.parametrize("how", ["tag", "pin"])
def test_retention_starts_when_ref_is_removed(
    tmp_path: Path, version: Version, clock: Clock, how: str
) -> None:
    hold: Callable[[str, int | None], object] = version.tag if how == "tag" else version.pin
    rebuild_ab(version)
    hold("paper", 1)
    clock.move(days=1000)
    assert run(tmp_path, clock) == {}
    hold("paper", None)
    clock.move(days=6)
    assert run(tmp_path, clock) == {}
    clock.move(days=2)
    assert run(tmp_path, clock) == shards("ab")


def test_retention_starts_when_tag_moves(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    version.tag("best", 1)
    clock.move(days=100)
    version.tag("best", 2)
    clock.move(days=6)
    assert run(tmp_path, clock) == {}
    clock.move(days=2)
    assert run(tmp_path, clock) == shards("ab")


def test_vacuum_retains_rejected_snapshot(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "a")
    versions.append(version, "b")
    version.reject(2)
    clock.move(days=6)
    assert run(tmp_path, clock) == {}
    assert held(version, version.snapshot(2)) == ["a", "b"]
    clock.move(days=2)
    assert run(tmp_path, clock) == shards("b")


def test_vacuum_retains_shard_of_latest_snapshot(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    for label in "abc":
        versions.append(version, label)
    version.restore(1)
    clock.move(days=8)
    assert run(tmp_path, clock) == shards("bc")
    assert there(tmp_path) == {"a"}


def test_a_shard_that_was_restored_stays(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    clock.move(days=6)
    version.restore(1)
    clock.move(days=8)
    assert run(tmp_path, clock) == shards("r")
    assert there(tmp_path) == {"a", "b"}


def test_vacuum_reads_log_of_each_version(tmp_path: Path, version: Version, clock: Clock) -> None:
    other = versions.make_version(tmp_path, f"{DATASET}/v2", clock=clock)
    rebuild_ab(version)
    versions.append(other, "x")
    clock.move(days=8)
    versions.rebuild(other, "x", "y")
    assert run(tmp_path, clock) == shards("ab")
    assert there(tmp_path) == {"r", "x", "y"}
    clock.move(days=8)
    assert run(tmp_path, clock) == {f"shards/{shard_name('x', 'v2')}": COMMITTED}


def test_vacuum_deletes_old_uncommitted_shard(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    versions.append(version, "a")
    for label, days in (("old", 8), ("young", 6)):
        versions.write_shard(version, label)
        written(path_of(tmp_path, label), clock.now - timedelta(days=days))
    assert run(tmp_path, clock) == {f"shards/{shard_name('old')}": ORPHAN}
    assert there(tmp_path) == {"a", "young"}


def test_vacuum_dry_run_changes_nothing(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    versions.write_shard(version, "orphan")
    written(path_of(tmp_path, "orphan"), clock.now - timedelta(days=8))
    index = path_of(tmp_path, "a").with_suffix(".tfrecord.index")
    index.write_bytes(b"index")
    clock.move(days=8)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    would = vacuum(tmp_path, DATASET, clock=clock)
    assert would.dry_run
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    told: list[VacuumCandidate] = []
    did = vacuum(tmp_path, DATASET, dry_run=False, clock=clock, progress=told.append)
    assert not did.dry_run
    assert did.files == would.files == told
    assert did.kept_files == would.kept_files == 1
    assert did.bytes == would.bytes == len("a" + "b" + "orphan" + "index")
    assert reasons(did) == {
        **shards("ab"),
        f"shards/{shard_name('orphan')}": ORPHAN,
        f"shards/{index.name}": INDEX,
    }


def test_a_second_run_finds_nothing(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    clock.move(days=8)
    run(tmp_path, clock)
    number = Version(tmp_path, NAME).state.number
    assert run(tmp_path, clock) == {}
    assert Version(tmp_path, NAME).state.number == number


def test_what_is_not_ours_is_never_touched(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    root = tmp_path / DATASET
    hexadecimal = "0123456789abcdef" * 2
    foreign = [
        root / "notes.txt",
        root / "shards" / "README",
        root / "shards" / "part-00000-of-00001.tfrecord",
        root / "shards" / f"V1.{hexadecimal}.tfrecord",
        root / "shards" / f"v1.{hexadecimal}.tfrecord.bak",
        root / "shards" / f"shards.{hexadecimal}.tfrecord",
        root / "shards" / f"con.{hexadecimal}.tfrecord",
        root / "shards" / ".hidden",
        root / "shards" / "backup" / shard_name("a"),
        root / "shards" / "backup" / shard_name("unknown"),
        root / "quarantine" / "v1.jsonl",
        root / "v1" / "notes.txt",
        root / "v1" / "log" / "notes.checkpoint",
        root / "v1" / "log" / ".keep.tmp",
        root / "Some Folder" / shard_name("a"),
        tmp_path / "other" / "shards" / shard_name("a"),
    ]
    for path in foreign:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not ours")
        written(path, clock.now - timedelta(days=400))
    clock.move(days=8)
    assert run(tmp_path, clock) == shards("ab")
    assert all(path.read_bytes() == b"not ours" for path in foreign)


def test_commit_of_vacuumed_shard_raises(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "a")
    versions.write_shard(version, "slow", source=versions.source_of("slow"))
    written(path_of(tmp_path, "slow"), clock.now - timedelta(days=8))
    assert run(tmp_path, clock) == {f"shards/{shard_name('slow')}": ORPHAN}
    with pytest.raises(TombstonedShardError) as caught:
        version.commit(versions.append_of("slow"))
    assert caught.value.names == (shard_name("slow"),)
    versions.write_shard(version, "slow", source=versions.source_of("slow"))
    with pytest.raises(TombstonedShardError):
        version.commit(versions.append_of("slow"))
    assert held(version) == ["a"]
    assert run(tmp_path, clock) == {f"shards/{shard_name('slow')}": ANNOUNCED}


def test_vacuum_after_commit_retains_shard(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "slow")
    written(path_of(tmp_path, "slow"), clock.now - timedelta(days=8))
    assert run(tmp_path, clock) == {}
    assert held(version) == ["slow"]


def test_commit_during_announcement_retains_shard(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    versions.append(version, "a")
    for label in ("slow", "orphan"):
        versions.write_shard(version, label, source=versions.source_of(label))
        written(path_of(tmp_path, label), clock.now - timedelta(days=8))

    def commit() -> None:
        version.commit(versions.append_of("slow"))

    store = FaultyStore(open_store(tmp_path), {("create", 1): commit})
    report = vacuum(store, DATASET, dry_run=False, clock=clock)
    assert reasons(report) == {f"shards/{shard_name('orphan')}": ORPHAN}
    assert held(Version(tmp_path, NAME)) == ["a", "slow"]


def test_vacuum_announces_nothing_after_commits(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    versions.write_shard(version, "slow", source=versions.source_of("slow"))
    written(path_of(tmp_path, "slow"), clock.now - timedelta(days=8))

    def commit() -> None:
        version.commit(versions.append_of("slow"))

    store = FaultyStore(open_store(tmp_path), {("create", 1): commit})
    assert vacuum(store, DATASET, dry_run=False, clock=clock).files == []
    assert [entry.operation for _, entry in version.log.replay()] == ["create", "append"]


def test_tag_during_announcement_retains_snapshot(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    rebuild_ab(version)
    clock.move(days=8)

    def tag() -> None:
        version.tag("paper", 1)

    store = FaultyStore(open_store(tmp_path), {("create", 1): tag})
    assert vacuum(store, DATASET, dry_run=False, clock=clock).files == []
    assert there(tmp_path) == {"a", "b", "r"}


def test_unreferenced_shard_is_reusable(tmp_path: Path, version: Version, clock: Clock) -> None:
    for label in ("k", "a", "b"):
        versions.append(version, label)
    version.restore(1)
    clock.move(days=8)
    versions.append(version, "a", retry_rejected=True)
    assert run(tmp_path, clock) == shards("b")
    with pytest.raises(TombstonedShardError):
        versions.append(version, "b", retry_rejected=True)
    assert held(version) == ["k", "a"]


def test_vacuum_retains_young_shards_without_log(tmp_path: Path, clock: Clock) -> None:
    version = Version(tmp_path, NAME, clock=clock)
    versions.write_shard(version, "a", source=versions.source_of("a"))
    written(path_of(tmp_path, "a"), clock.now - timedelta(days=6))
    assert run(tmp_path, clock) == {}
    version.create(versions.SCHEMA)
    version.commit(versions.append_of("a"))
    assert held(version) == ["a"]


def test_first_commit_of_vacuumed_shards_raises(tmp_path: Path, clock: Clock) -> None:
    version = Version(tmp_path, NAME, clock=clock)
    versions.write_shard(version, "a", source=versions.source_of("a"))
    written(path_of(tmp_path, "a"), clock.now - timedelta(days=8))
    assert not version.exists
    report = vacuum(tmp_path, DATASET, dry_run=False, clock=clock, without_log=["v1"])
    assert reasons(report) == shards("a", ORPHAN)
    version.create(versions.SCHEMA)
    versions.write_shard(version, "a", source=versions.source_of("a"))
    with pytest.raises(TombstonedShardError):
        version.commit(versions.append_of("a"))
    versions.append(version, "b")
    assert held(Version(tmp_path, NAME)) == ["b"]
    assert verify_log(version.log).problems == ()


def test_create_during_announcement_retains_shards(tmp_path: Path, clock: Clock) -> None:
    version = Version(tmp_path, NAME, clock=clock)
    versions.write_shard(version, "a", source=versions.source_of("a"))
    written(path_of(tmp_path, "a"), clock.now - timedelta(days=8))

    def commit() -> None:
        version.create(versions.SCHEMA)
        version.commit(versions.append_of("a"))

    store = FaultyStore(open_store(tmp_path), {("create", 1): commit})
    report = vacuum(store, DATASET, dry_run=False, clock=clock, without_log=["v1"])
    assert report.files == []
    assert held(Version(tmp_path, NAME)) == ["a"]


def test_vacuum_deletes_announced_shards_of_crash(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    rebuild_ab(version)
    clock.move(days=8)
    store = FaultyStore(open_store(tmp_path), {("delete", 2): Fault.FAILED})
    with pytest.raises(StorageError):
        vacuum(store, DATASET, dry_run=False, clock=clock)
    assert len(there(tmp_path)) == 2
    number = Version(tmp_path, NAME).state.number
    left = (there(tmp_path) - {"r"}).pop()
    assert run(tmp_path, clock, delete=False) == shards(left, ANNOUNCED)
    assert run(tmp_path, clock) == shards(left, ANNOUNCED)
    assert there(tmp_path) == {"r"}
    assert Version(tmp_path, NAME).state.number == number


def test_announcement_with_lost_reply_is_single(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    rebuild_ab(version)
    clock.move(days=8)
    store = FaultyStore(open_store(tmp_path), {("create", 1): Fault.REPLY_LOST})
    assert reasons(vacuum(store, DATASET, dry_run=False, clock=clock)) == shards("ab")
    made = [entry.operation for _, entry in Version(tmp_path, NAME).log.replay()]
    assert made.count("vacuum") == 1


def test_vacuum_deletes_nothing_unannounced(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    clock.move(days=8)
    store = FaultyStore(open_store(tmp_path), {("create", 1): Fault.FAILED})
    with pytest.raises(StorageError):
        vacuum(store, DATASET, dry_run=False, clock=clock)
    assert there(tmp_path) == {"a", "b", "r"}


def test_vacuum_with_corrupt_log_deletes_nothing(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    rebuild_ab(version)
    other = versions.make_version(tmp_path, f"{DATASET}/v2", clock=clock)
    versions.append(other, "x")
    path = tmp_path / other.log.entry_name(2)
    path.write_bytes(path.read_bytes()[:-2])
    clock.move(days=8)
    with pytest.raises(CorruptLogError):
        vacuum(tmp_path, DATASET, dry_run=False, clock=clock)
    assert there(tmp_path) == {"a", "b", "r", "x"}


def test_the_log_tells_what_vacuum_took(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    clock.move(days=8)
    run(tmp_path, clock)
    *_, (_, entry) = Version(tmp_path, NAME).log.replay()
    assert entry.operation == "vacuum"
    assert set(entry.tombstones) == {shard_name("a"), shard_name("b")}
    assert entry.parameters == {"keep_seconds": 7 * 24 * 3600}
    assert not entry.changes_data


def test_vacuum_deletes_index_with_shard(tmp_path: Path, version: Version, clock: Clock) -> None:
    rebuild_ab(version)
    indexes = {label: path_of(tmp_path, label).with_suffix(".tfrecord.index") for label in "ar"}
    for path in indexes.values():
        path.write_bytes(b"index")
    clock.move(days=8)
    assert run(tmp_path, clock) == {**shards("ab"), f"shards/{indexes['a'].name}": INDEX}
    assert not indexes["a"].exists()
    assert indexes["r"].exists()


def test_vacuum_deletes_old_index_without_shard(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    versions.append(version, "a")
    old, young = (
        path_of(tmp_path, label).with_suffix(".tfrecord.index") for label in ("old", "young")
    )
    for path, days in ((old, 8), (young, 6)):
        path.write_bytes(b"index")
        written(path, clock.now - timedelta(days=days))
    assert run(tmp_path, clock) == {f"shards/{old.name}": INDEX}
    assert young.exists()


def test_vacuum_deletes_temporary_files_of_dead_writers(
    tmp_path: Path, version: Version, clock: Clock
) -> None:
    versions.append(version, "a")
    folders = [tmp_path / DATASET / "shards", tmp_path / DATASET / "v1" / "log"]
    dead = [folder / f".{shard_name('a')[:48]}.0123456789ab.tmp" for folder in folders]
    for path, days in zip(dead, (8, -8), strict=True):
        path.write_bytes(b"half")
        written(path, clock.now - timedelta(days=days))
    with DurableFile(folders[0] / shard_name("live")):
        (live,) = {*folders[0].glob(".*.tmp")} - set(dead)
        written(live, clock.now - timedelta(days=800))
        assert set(run(tmp_path, clock).values()) == {LEFT_BEHIND}
        assert not any(path.exists() for path in dead)
        vacuum(tmp_path, DATASET, retention=timedelta(0), dry_run=False, clock=clock)
        assert live.exists()


def test_vacuum_deletes_old_probes(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "a")
    old, young = (tmp_path / DATASET / f".probe-{digit * 16}" for digit in "ab")
    for path, days in ((old, 8), (young, 6)):
        path.write_bytes(b"probe")
        written(path, clock.now - timedelta(days=days))
    assert run(tmp_path, clock) == {old.name: LEFT_BEHIND}
    assert young.exists()


def test_vacuum_of_object_store_uses_times(tmp_path: Path, version: Version, clock: Clock) -> None:
    versions.append(version, "a")
    old, young = (tmp_path / DATASET / "shards" / f".x.tfrecord.{digit * 12}.tmp" for digit in "ab")
    for path, days in ((old, 8), (young, 6)):
        path.write_bytes(b"half")
        written(path, clock.now - timedelta(days=days))
    store = FaultyStore(open_store(tmp_path), paths=False)
    assert list(reasons(vacuum(store, DATASET, clock=clock))) == [f"shards/{old.name}"]


def test_vacuum_retains_two_checkpoints(tmp_path: Path, version: Version) -> None:
    versions.append(version, "a")
    versions.grow(version, [SetTag("good", 1), SetTag("good", None)] * (2 * CHECKPOINT_INTERVAL))
    checkpoints = sorted((tmp_path / DATASET / "v1" / "log").glob("*.checkpoint"))
    assert len(checkpoints) == 4
    now = Clock(datetime.now(UTC))
    assert run(tmp_path, now) == {}
    for path in checkpoints[:1] + checkpoints[2:]:
        written(path, now.now - timedelta(days=8))
    before = versions.facts_of(Version(tmp_path, NAME).state)
    assert run(tmp_path, now) == {f"v1/log/{checkpoints[0].name}": CHECKPOINT}
    assert [path.exists() for path in checkpoints] == [False, True, True, True]
    assert versions.facts_of(Version(tmp_path, NAME).state) == before


def test_vacuum_of_missing_dataset_is_empty(tmp_path: Path, clock: Clock) -> None:
    report = vacuum(tmp_path, DATASET, dry_run=False, clock=clock)
    assert (report.files, report.kept_files) == ([], 0)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidNameError):
        vacuum(tmp_path, "../elsewhere")
