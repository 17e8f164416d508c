"""Repairing what a rebuild made: of its inputs, as long as they are what they were."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.vacuum import vacuum
from tests.kernel.frames import framed
from tests.operations.damages import (
    DAMAGES,
    RECORDS,
    SOURCES,
    TARGET,
    appended,
    flip,
    how,
    json_lines,
    rot,
)
from tests.operations.shard_files import held, landed, paths
from tests.tfrecord.samples import example_of, flipped, made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def rebuilt_in_place(version: Version) -> Version:
    rebuild(version, target_bytes=TARGET)
    return version


def rebuilt_into(version: Version) -> Version:
    into = Version(version.store, "digits/v2")
    rebuild(version, into=into, target_bytes=TARGET)
    return into


@pytest.mark.parametrize("made_by", [rebuilt_in_place, rebuilt_into])
@pytest.mark.parametrize(
    ("damage", "compression"), [*((damage, "none") for damage in DAMAGES), (flip, "gzip")]
)
def test_a_rebuilt_shard_is_made_anew_of_its_inputs(
    tmp_path: Path,
    made_by: Callable[[Version], Version],
    damage: Callable[[Path], None],
    compression: str,
) -> None:
    source = json_lines(tmp_path)
    version = appended(tmp_path, source, target_bytes=5 * TARGET // 12, compression=compression)
    rebuilt = made_by(version)
    assert check_version(rebuilt).ok
    source.unlink()
    bad = rebuilt.latest().shards[1]
    rot(rebuilt, 1, damage)
    (repaired,) = repair(rebuilt).repaired
    assert (repaired.shard, repaired.method, repaired.lost_records) == (bad, "inputs", 0)
    assert repaired.new_shard is not None
    assert repaired.new_shard.sha256 == bad.sha256
    assert held(rebuilt.latest()) == RECORDS
    assert check_version(rebuilt).published == rebuilt.latest().number


def test_inputs_of_the_same_bytes_are_told_apart(tmp_path: Path) -> None:
    version = landed(tmp_path, *[RECORDS[:5]] * 3)
    rebuild(version, snapshot="latest", target_bytes=100, compression="gzip")
    flip(paths(version.latest())[2])
    assert how(repair(version)) == ["inputs"]
    assert held(version.latest()) == RECORDS[:5] * 3


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("source", SOURCES)
def test_when_vacuum_took_the_inputs_their_sources_are_used(
    tmp_path: Path, source: Callable[[Path], Path], damage: Callable[[Path], None]
) -> None:
    version = appended(tmp_path, source(tmp_path))
    other = made(tmp_path / "other.jsonl", b'{"x": 1000}\n')
    append(version, other)
    assert check_version(version).ok
    rebuild(version)
    rebuild(version, snapshot="latest", compression="gzip")
    rebuild(version, snapshot="latest", compression="none")
    assert check_version(version).ok
    vacuum(version.store, "digits", retention=timedelta(0), dry_run=False)
    rot(version, 0, damage)
    (repaired,) = repair(version).repaired
    assert (repaired.method, repaired.lost_records) == ("inputs", 0)
    assert held(version.latest()) == [*RECORDS, example_of(x=1000)]
    assert check_version(version).published == version.latest().number


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_input_is_not_used(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    version = landed(tmp_path, RECORDS[:3], RECORDS[3:6])
    inputs = paths(version.latest())
    rebuild(version, snapshot="latest")
    (path,) = paths(version.latest())
    path.write_bytes(flipped(path.read_bytes(), 8 * 14))
    damage(inputs[1])
    (repaired,) = repair(version, allow_data_loss=True).repaired
    assert (repaired.method, repaired.lost_records) == ("salvage", 1)
    assert held(version.latest()) == RECORDS[1:6]


def test_a_part_of_a_swapped_input_is_not_used(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:6])
    (input_,) = paths(version.latest())
    rebuild(version, snapshot="latest", target_bytes=3 * len(framed(RECORDS[0])))
    input_.write_bytes(framed(*RECORDS[10:16]))
    path = paths(version.latest())[1]
    path.write_bytes(flipped(path.read_bytes(), 8 * 14))
    assert how(repair(version, allow_data_loss=True)) == ["salvage"]
    assert held(version.latest()) == RECORDS[:3] + RECORDS[4:6]


@pytest.mark.parametrize("made_by", [rebuilt_in_place, rebuilt_into])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_shard_is_made_anew_of_what_was_rebuilt_from_it(
    tmp_path: Path,
    made_by: Callable[[Version], Version],
    damage: Callable[[Path], None],
    compression: str,
) -> None:
    source = json_lines(tmp_path)
    version = appended(tmp_path, source, target_bytes=5 * TARGET // 12, compression=compression)
    before = version.latest()
    at = len(before.shards) // 2
    assert check_version(made_by(version)).ok
    version.restore(before.number)
    source.unlink()
    bad = version.latest().shards[at]
    rot(version, at, damage)
    assert how(repair(version, dry_run=True)) == ["copies"]
    (repaired,) = repair(version).repaired
    assert (repaired.shard, repaired.method, repaired.lost_records) == (bad, "copies", 0)
    assert repaired.new_shard is not None
    assert compression == "gzip" or repaired.new_shard.sha256 == bad.sha256
    assert held(version.latest()) == RECORDS
    assert check_version(version).published == version.latest().number


def test_a_copy_of_what_an_earlier_repair_had_left_is_used(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:3], RECORDS[3:6])
    path = paths(version.latest())[1]
    path.write_bytes(flipped(path.read_bytes(), 8 * 14))
    assert repair(version, allow_data_loss=True).repaired[0].lost_records == 1
    rebuild(version, snapshot="latest")
    version.restore(3)
    paths(version.latest())[1].unlink()
    (repaired,) = repair(version).repaired
    assert (repaired.method, repaired.lost_records, repaired.changes) == ("copies", 0, False)
    assert held(version.latest()) == RECORDS[:3] + RECORDS[4:6]


def test_a_damaged_copy_is_not_used(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:3], RECORDS[3:6])
    rebuild(version, snapshot="latest")
    flip(paths(version.latest())[0])
    version.restore(2)
    paths(version.latest())[1].unlink()
    (left,) = repair(version).unrepaired
    assert (left.method, left.lost_records) == ("salvage", 3)


def test_a_version_that_followed_one_that_is_gone_is_salvaged(tmp_path: Path) -> None:
    version, into = landed(tmp_path, RECORDS[:3], RECORDS[3:6]), Version(tmp_path, "digits/v2")
    rebuild(version, snapshot="latest", into=into)
    shutil.rmtree(tmp_path / "digits" / "v1")
    (path,) = paths(into.latest())
    path.write_bytes(flipped(path.read_bytes(), 8 * 14))
    assert how(repair(into, allow_data_loss=True)) == ["salvage"]


def test_a_repaired_shard_is_repaired_again_from_the_first_inputs(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:3], RECORDS[3:6])
    rebuild(version, snapshot="latest")
    for damage in DAMAGES:
        damage(paths(version.latest())[0])
        assert how(repair(version)) == ["inputs"]
    assert held(version.latest()) == RECORDS[:6]
