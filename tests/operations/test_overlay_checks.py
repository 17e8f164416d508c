"""Verify and check of overlays: their own features alone, their pins, and what lies below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.changes import AddTombstones
from shardline.operations.check import check_version
from shardline.operations.verify_version import count_bytes_to_verify, verify_version
from tests.cli.datasets import damage
from tests.readers.overlays import SCORE, SIZES, TAGS, extended, lay, score, scored, tagged, tags
from tests.readers.snapshots import NUMBERS, numbers, published
from tests.tfrecord.samples import example_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.api import Snapshot
    from shardline.operations.inspect_shard import ShardReport

SCORED = extended(NUMBERS, SCORE)
TWICE = "is in its base too, and must not be in both"


def files_below(root: Path, snapshot: Snapshot) -> list[Path]:
    """The files of the shards that those of a snapshot lie beside."""
    bases = [shard.base for shard in snapshot.shards if shard.base is not None]
    return [root / "digits" / "shards" / base.name for base in bases]


def told_by(reports: list[ShardReport]) -> list[str]:
    """What is wrong, shard by shard."""
    return [
        " ".join((*report.problems, *(f"{v.feature}: {v.detail}" for v in report.violations)))
        for report in reports
        if not report.ok
    ]


@pytest.mark.parametrize("quick", [False, True])
def test_verify_reads_each_base_once(tmp_path: Path, *, quick: bool) -> None:
    tagged(tmp_path)
    version = Version(tmp_path, "digits/v3")
    report = verify_version(version, quick=quick)
    assert report.ok
    assert len(report.shards) == len(SIZES)
    owners = [one.shard.owner for one in report.bases]
    assert sorted(owners) == ["v1"] * len(SIZES) + ["v2"] * len(SIZES)
    assert len({one.name for one in report.bases}) == 2 * len(SIZES)
    files = (tmp_path / "digits" / "shards").glob("*.tfrecord")
    assert count_bytes_to_verify(version.latest()) == sum(file.stat().st_size for file in files)


BAD: dict[str, tuple[bytes, str]] = {
    "undeclared": (example_of(score=0.5, other=7), "other: not in the schema"),
    "in its base too": (example_of(score=0.5, x=7), f"x: {TWICE}"),
    "of another kind": (example_of(score=7), "score: holds int64 values, not float"),
    "missing": (b"", "score: is missing, and is required"),
}


@pytest.mark.parametrize("case", BAD)
def test_overlay_record_with_other_feature_is_violation(tmp_path: Path, case: str) -> None:
    bad, why = BAD[case]
    base = published(tmp_path, NUMBERS, numbers(0, 3))
    version = lay(base, "digits/v2", SCORED, [score(0), bad, score(2)])
    verified = verify_version(version)
    assert told_by(verified.shards) == [why]
    assert verified.shards[0].violations[0].record == 1
    report = check_version(version)
    assert (report.ok, report.rejected) == (False, (1,))
    assert told_by(report.shards) == [why]
    (failed,) = [one for one in report.attestations if not one.passed]
    assert failed.check == "schema"


def test_middle_layer_with_other_feature_is_violation(tmp_path: Path) -> None:
    base = published(tmp_path, NUMBERS, numbers(0, 2))
    below = lay(base, "digits/v2", SCORED, [score(0), example_of(score=0.5, x=7)]).latest()
    version = lay(below, "digits/v3", extended(SCORED, TAGS), [tags(0), tags(1)])
    report = verify_version(version)
    assert all(one.ok for one in report.shards)
    assert told_by(report.bases) == [f"x: {TWICE}"]


def gone(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "gone": (gone, "missing"),
    "cut": (cut, "bytes, expected"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_missing_or_cut_base_is_reported_by_all(tmp_path: Path, case: str) -> None:
    spoil, why = SPOILED[case]
    snapshot = scored(tmp_path)
    version = Version(tmp_path, "digits/v2")
    path = files_below(tmp_path, snapshot)[0]
    spoil(path)
    for quick in (True, False):
        report = verify_version(version, quick=quick)
        assert all(one.ok for one in report.shards)
        (told,) = told_by(report.bases)
        assert why in told
        assert [one.name for one in report.bases if not one.ok] == [f"digits/shards/{path.name}"]
    assert check_version(version).shards == [], "all had passed before"
    looked = check_version(version, find_missing=True)
    (told,) = told_by(looked.shards)
    assert path.name in told
    assert "digits/v1" in told
    assert why in told
    assert (looked.rejected, looked.published) == ((), None)


def test_corrupt_base_fails_verify_not_check(tmp_path: Path) -> None:
    snapshot = scored(tmp_path)
    version = Version(tmp_path, "digits/v2")
    path = files_below(tmp_path, snapshot)[3]
    damage(path)
    assert verify_version(version, quick=True).ok
    report = verify_version(version)
    assert all(one.ok for one in report.shards)
    (told,) = told_by(report.bases)
    assert told.startswith("data-crc")
    assert "record 0" in told
    assert "offset 0" in told
    assert check_version(version, recheck=True).ok
    assert not check_version(Version(tmp_path, "digits/v1"), recheck=True).ok


def test_damage_of_an_overlay_is_its_own(tmp_path: Path) -> None:
    snapshot = scored(tmp_path)
    version = Version(tmp_path, "digits/v2")
    damage(tmp_path / version.shard_name(snapshot.shards[0]))
    report = verify_version(version)
    assert [one.shard for one in report.shards if not one.ok] == [snapshot.shards[0]]
    assert all(one.ok for one in report.bases)
    assert not check_version(version, recheck=True).ok


def test_vacuumed_base_is_reported_with_entry(tmp_path: Path) -> None:
    snapshot = scored(tmp_path)
    version, below = Version(tmp_path, "digits/v2"), Version(tmp_path, "digits/v1")
    path = files_below(tmp_path, snapshot)[0]
    below.commit(AddTombstones(lambda _: [path.name]))
    assert verify_version(version).ok, "it is still there"
    path.unlink()
    report = verify_version(version)
    assert report.vacuumed == (path.name,)
    (told,) = told_by(report.bases)
    assert f"entry {below.state.number} of" in told


def test_find_missing_rechecks_overlay_of_changed_base(tmp_path: Path) -> None:
    scored(tmp_path)
    version = Version(tmp_path, "digits/v2")
    assert check_version(version, find_missing=True).shards == []
    for entry in (tmp_path / "digits" / "v1" / "log").iterdir():
        entry.unlink()
    report = check_version(version, find_missing=True)
    assert len(report.shards) == len(SIZES)
    assert all("digits/v1" in told for told in told_by(report.shards))
    assert {one.check for one in report.attestations} == {"integrity"}, "no word on the schema"
