"""Rebuilding again and again: what is full stays, and another version follows the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import (
    ConflictError,
    CorruptFileError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from shardline.log.model import Checks
from shardline.operations.check import check_version
from shardline.operations.rebuild import rebuild
from shardline.operations.verify_version import verify_version
from tests.errors import raises
from tests.log.versions import OTHER_SCHEMA, WITH_SNAPSHOT_CHECK, erase, make_version, shard_name
from tests.operations.shard_files import (
    assert_whole,
    file_of,
    held,
    land,
    landed,
    numbered,
    objects,
    paths,
)
from tests.tfrecord.samples import example_of, flipped

if TYPE_CHECKING:
    from pathlib import Path

    from tests.operations.shard_files import Kind

TARGET = 3 * 26


def second(root: Path) -> Version:
    """The version that follows."""
    return Version(root, "digits/v2")


def shard_files(root: Path) -> set[str]:
    """The shards that are in the store."""
    return {name for name in objects(root) if name.endswith(".tfrecord")}


@pytest.mark.parametrize("kind", ["plain", "members"])
def test_in_place_only_the_end_is_made_anew_after_another_append(
    tmp_path: Path, kind: Kind
) -> None:
    version = landed(tmp_path, numbered(0, 5), numbered(5, 8), kind=kind)
    first = rebuild(version, snapshot="latest", target_bytes=TARGET)
    assert [shard.records for shard in first.written] == [3, 3, 2]
    full = paths(version.latest())[:2]
    before = shard_files(tmp_path)
    land(version, "more", numbered(8, 12), kind)
    again = rebuild(version, snapshot="latest", target_bytes=TARGET)
    assert ([shard.records for shard in again.written], again.read_shards) == ([3, 3], 2)
    assert paths(version.latest())[:2] == full
    assert len(shard_files(tmp_path) - before) == 1 + 2
    assert held(version.latest()) == numbered(0, 12)
    assert_whole(version.latest())
    assert rebuild(version, snapshot="latest", target_bytes=TARGET).entry is None


def test_a_full_shard_before_what_changes_is_not_even_read(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 6))
    rebuild(version, snapshot="latest", target_bytes=TARGET)
    land(version, "more", numbered(6, 8))
    land(version, "and more", numbered(8, 9))
    full = paths(version.latest())[0]
    full.write_bytes(b"nobody looks")
    assert rebuild(version, snapshot="latest", target_bytes=TARGET).read_shards == 2


def test_one_shard_that_is_packed_as_wanted_is_left_alone(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 3))
    report = rebuild(version, snapshot="latest")
    assert (report.entry, report.written, report.snapshot, report.records) == (None, (), None, 0)


def test_into_another_version_creates_it_with_schema_and_checks(tmp_path: Path) -> None:
    version = make_version(tmp_path, checks=WITH_SNAPSHOT_CHECK)
    examples = [example_of(x=number) for number in range(4)]
    land(version, "a", examples[:2])
    land(version, "b", examples[2:])
    version.require(Checks(("integrity",)))
    into = second(tmp_path)
    report = rebuild(version, snapshot="latest", into=into)
    assert (report.created, report.version, report.snapshot) == (True, "digits/v2", 1)
    assert (into.schema, into.state.checks) == (version.schema, WITH_SNAPSHOT_CHECK)
    assert held(into.latest()) == examples
    assert len(version.latest().shards) == 2


def test_the_input_is_recorded_with_its_digest(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    report = rebuild(version, snapshot=2, into=second(tmp_path), target_bytes=1000)
    assert report.entry is not None
    (told,) = report.entry.inputs
    entry = version.log.entry(version.snapshot(2).entry)
    assert (told.dataset, told.version, told.snapshot) == ("digits", "v1", 2)
    assert told.entry == entry.digest
    told_of = {"compression": "none", "snapshot": 2, "target_bytes": 1000}
    assert report.entry.parameters == {**told_of, "computed": 1, "reused": 0}


def test_another_version_follows_the_first_and_makes_only_what_is_new(tmp_path: Path) -> None:
    version, into = landed(tmp_path, numbered(0, 5)), second(tmp_path)
    first = rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    assert [shard.records for shard in first.written] == [3, 2]
    land(version, "more", numbered(5, 8))
    before = shard_files(tmp_path)
    again = rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    assert ([s.records for s in again.written], again.read_shards, again.created) == (
        [3, 2],
        2,
        False,
    )
    assert len(shard_files(tmp_path) - before) == 2
    assert again.entry is not None
    assert again.entry.removed == (first.written[1].name,)
    assert held(into.latest()) == numbered(0, 8)
    assert_whole(into.latest())


def test_a_second_rebuild_into_a_version_does_nothing(tmp_path: Path) -> None:
    version, into = landed(tmp_path, numbered(0, 5)), second(tmp_path)
    rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    before = objects(tmp_path)
    report = rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    assert (report.entry, report.written, report.read_shards) == (None, (), 0)
    assert objects(tmp_path) == before


def test_what_is_gone_from_the_first_after_a_restore_goes_from_the_other(tmp_path: Path) -> None:
    version, into = landed(tmp_path, numbered(0, 3), numbered(3, 6)), second(tmp_path)
    rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    version.restore(1)
    report = rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    assert (report.written, report.snapshot) == ((), 2)
    assert held(into.latest()) == numbered(0, 3)
    version.restore(2)
    rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    assert held(into.latest()) == numbered(0, 6)


def test_what_is_erased_in_the_middle_moves_what_is_behind_it(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 3), numbered(3, 5), numbered(5, 8))
    into = second(tmp_path)
    rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    erase(version, ["1"])
    assert shard_name("1") not in {shard.name for shard in version.latest().shards}
    rebuild(version, snapshot="latest", into=into, target_bytes=TARGET)
    assert held(into.latest()) == numbered(0, 3) + numbered(5, 8)


def test_shards_of_the_same_bytes_are_each_kept(tmp_path: Path) -> None:
    version = landed(tmp_path, *[numbered(0, 5)] * 3)
    into = second(tmp_path)
    rebuild(version, snapshot="latest", into=into, target_bytes=5 * 26)
    assert held(into.latest()) == numbered(0, 5) * 3
    assert rebuild(version, snapshot="latest", into=into, target_bytes=5 * 26).entry is None
    report = rebuild(version, snapshot="latest", target_bytes=5 * 26, compression="gzip")
    assert len({shard.name for shard in report.written}) == 3
    assert held(version.latest()) == numbered(0, 5) * 3


def test_a_version_with_another_schema_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    into = second(tmp_path)
    into.create(OTHER_SCHEMA)
    before = objects(tmp_path)
    with raises(SchemaMismatchError, "schema-mismatch", version="digits/v2"):
        rebuild(version, snapshot="latest", into=into)
    assert objects(tmp_path) == before


def test_a_rebuild_that_meets_damage_does_not_even_create_the_other_version(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    last = paths(version.latest())[1]
    last.write_bytes(flipped(last.read_bytes(), 400))
    before = objects(tmp_path)
    with pytest.raises(CorruptFileError):
        rebuild(version, snapshot="latest", into=second(tmp_path))
    assert objects(tmp_path) == before
    assert not second(tmp_path).exists


def test_a_version_in_another_root_is_refused(tmp_path: Path) -> None:
    version = landed(tmp_path / "here", numbered(0, 2))
    with raises(InvalidArgumentError, "root-mismatch", version="digits/v2"):
        rebuild(version, snapshot="latest", into=Version(tmp_path / "there", "digits/v2"))


def test_a_version_that_was_appended_to_is_not_replaced(tmp_path: Path) -> None:
    version, other = landed(tmp_path, numbered(0, 2)), make_version(tmp_path, "digits/v2")
    land(other, "its own", numbered(2, 4))
    before = objects(tmp_path)
    with raises(ConflictError, "appended-version", version=other.name):
        rebuild(version, snapshot="latest", into=other)
    assert objects(tmp_path) == before
    rebuild(other, snapshot="latest")
    with raises(ConflictError, "appended-version", version=other.name):
        rebuild(version, snapshot="latest", into=other)
    assert held(other.latest()) == numbered(2, 4)


def test_a_version_of_another_dataset_can_follow_too(tmp_path: Path) -> None:
    version, into = landed(tmp_path, numbered(0, 2)), Version(tmp_path, "numbers/v1")
    rebuild(version, snapshot="latest", into=into, compression="gzip")
    assert held(into.latest()) == numbered(0, 2)
    assert paths(into.latest())[0].parent == tmp_path / "numbers" / "shards"


def test_into_itself_is_in_place(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    report = rebuild(version, snapshot="latest", into=Version(tmp_path, version.name))
    assert report.entry is not None
    assert (report.entry.inputs, len(version.latest().shards)) == ((), 1)


def test_what_follows_is_checked_and_verified_as_any_other_version(tmp_path: Path) -> None:
    version = landed(tmp_path, [example_of(x=1)], [example_of(x=2)])
    check_version(version)
    into = second(tmp_path)
    rebuild(version, into=into)
    assert check_version(into).published == 1
    assert verify_version(into).ok


def test_a_rejected_rebuild_is_undone_and_can_be_made_again(tmp_path: Path) -> None:
    version = landed(tmp_path, [example_of(x=1)], [example_of(x=2)])
    check_version(version)
    rebuild(version)
    (path,) = paths(version.latest())
    data = path.read_bytes()
    path.write_bytes(flipped(data, 100))
    assert check_version(version).rejected == (3,)
    assert len(version.latest().shards) == 2
    rebuild(version, snapshot="latest")
    assert paths(version.latest()) != [path]
    assert (
        paths(version.latest())[0].read_bytes()
        == data
        == file_of("plain", [example_of(x=1), example_of(x=2)])
    )
    assert check_version(version).published == version.latest().number
