"""Checking snapshots: what is read, what is attested, and what is rejected for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import TombstonedShardError
from shardline.log.changes import AddTombstones
from shardline.log.model import Attestation, Checks
from shardline.operations.check import check_version
from tests.cli.datasets import MISFIT, damage, file_of, land, landed
from tests.errors import raises
from tests.log.versions import make_version, shard_name

if TYPE_CHECKING:
    from pathlib import Path


def test_check_reads_only_pending_shards(tmp_path: Path) -> None:
    version = landed(tmp_path, "a", "b")
    land(version, "c")
    report = check_version(version)
    assert [one.shard.name for one in report.shards] == [shard_name("c")]
    assert (report.ok, report.published) == (True, 3)
    assert check_version(version).shards == []
    assert len(check_version(version, recheck=True).shards) == 3


def test_check_without_pending_shards_commits_nothing(tmp_path: Path) -> None:
    version = landed(tmp_path, "a")
    before = version.state.number
    check_version(version)
    assert version.state.number == before


def test_check_rejects_each_bad_snapshot(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "good")
    land(version, "bad", MISFIT)
    land(version, "also good")
    land(version, "also bad", MISFIT)
    report = check_version(version)
    assert (report.ok, report.rejected) == (False, (2, 4))
    published = [shard.name for shard in version.published().shards]
    assert published == [shard_name("good"), shard_name("also good")]
    assert version.published().number == version.latest().number


def test_check_of_rotten_shard_unpublishes(tmp_path: Path) -> None:
    version = landed(tmp_path, "a", "b")
    damage(file_of(tmp_path, "b"))
    report = check_version(version, recheck=True)
    assert (report.ok, report.rejected, report.published) == (False, (), 1)
    assert version.latest().number == 2


def test_check_rejects_restored_snapshot_again(tmp_path: Path) -> None:
    version = landed(tmp_path, "a")
    land(version, "bad", MISFIT)
    assert check_version(version).rejected == (2,)
    version.restore(2)
    assert version.latest().number == 4
    assert version.state.published == 3
    report = check_version(version)
    assert (report.ok, report.rejected, report.published) == (False, (4,), 5)
    assert [shard.name for shard in version.latest().shards] == [shard_name("a")]


def test_check_skips_check_not_required(tmp_path: Path) -> None:
    version = make_version(tmp_path, checks=Checks(("integrity",)))
    land(version, "misfit", MISFIT)
    report = check_version(version)
    assert (report.ok, report.published) == (True, 1)
    assert {one.check for one in report.attestations} == {"integrity"}


def test_check_reports_foreign_check_as_missing(tmp_path: Path) -> None:
    version = make_version(tmp_path, checks=Checks(("integrity",), ("expectations",)))
    land(version, "a")
    report = check_version(version)
    assert (report.ok, report.missing, report.published) == (True, ("expectations",), None)


def test_check_of_corrupt_shard_omits_schema(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "a")
    damage(file_of(tmp_path, "a"))
    report = check_version(version)
    assert [(one.check, one.passed) for one in report.attestations] == [("integrity", False)]
    assert "data-crc" in report.attestations[0].detail
    assert "record 0" in report.attestations[0].detail
    assert "offset 0" in report.attestations[0].detail


def test_check_of_vacuumed_shard_raises(tmp_path: Path) -> None:
    version = landed(tmp_path, "a", "b")
    version.restore(1)
    version.commit(AddTombstones(lambda _: [shard_name("b")]))
    with raises(TombstonedShardError, "tombstoned-shard", names=(shard_name("b"),)):
        check_version(version, "2", recheck=True)


def test_check_never_rejects_after_first_pass(tmp_path: Path) -> None:
    version = landed(tmp_path, "a")
    there = file_of(tmp_path, "a").rename(tmp_path / "away")
    for _ in range(3):
        assert check_version(version, recheck=True).rejected == ()
    there.rename(file_of(tmp_path, "a"))
    assert check_version(version).published == 1


def test_check_reports_foreign_failure(tmp_path: Path) -> None:
    version = make_version(tmp_path, checks=Checks(("integrity",), ("drift",)))
    land(version, "a")
    content = version.latest().content
    version.attest([Attestation("drift", passed=False, content=content)])
    report = check_version(version)
    assert (report.ok, report.failed, report.missing) == (False, ("drift",), ())


def test_check_only_integrity_attests_nothing_else(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "misfit", MISFIT)
    report = check_version(version, only=("integrity",))
    assert {one.check for one in report.attestations} == {"integrity"}
    assert (report.rejected, report.published) == ((), None)
    assert check_version(version, only=("integrity",)).shards == []
    report = check_version(version, only=("schema",))
    assert [(one.check, one.passed) for one in report.attestations] == [("schema", False)]
    assert report.rejected == (1,)


def test_check_only_schema_attests_no_corruption(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "a")
    damage(file_of(tmp_path, "a"))
    report = check_version(version, only=("schema",))
    assert report.shards[0].problems
    assert (report.attestations, report.rejected) == ((), ())
