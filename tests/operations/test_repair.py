"""Repairing: a shard made anew of what it was made of, or what is left of it, told in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import LogError, WrongShardError
from shardline.hints import Option
from shardline.log.append_change import Append
from shardline.log.model import RECEIPT, Base, Shard
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.tfrecord.indexed_file import IndexedFile
from shardline.tfrecord.reader import Limits
from tests.errors import raises
from tests.kernel.frames import framed
from tests.log.versions import NAME, SCHEMA, make_version, source_of
from tests.operations.damages import (
    DAMAGES,
    RECORDS,
    ROWS,
    SOURCES,
    TARGET,
    appended,
    cut,
    flip,
    how,
    json_lines,
    rot,
    swap,
    with_bad_lines,
)
from tests.operations.shard_files import assert_whole, held, land, landed, objects, paths
from tests.tfrecord.samples import example_of, flipped, made, write_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("source", "damage", "target"),
    [
        *((source, damage, TARGET) for source in SOURCES for damage in (flip, Path.unlink)),
        *((json_lines, damage, 10**6) for damage in DAMAGES),
        *((source, swap, 10**6) for source in SOURCES[1:]),
    ],
)
def test_a_shard_is_made_anew_of_its_source(
    tmp_path: Path,
    source: Callable[[Path], Path],
    damage: Callable[[Path], None],
    target: int,
) -> None:
    version = appended(tmp_path, source(tmp_path), target_bytes=target)
    before = version.latest()
    assert len(before.shards) == (4 if target == TARGET else 1)
    at = len(before.shards) // 2
    bad = before.shards[at]
    rot(version, at, damage)
    report = repair(version)
    (repaired,) = report.repaired
    assert (repaired.shard, repaired.method, repaired.lost_records, report.read_shards) == (
        bad,
        "source",
        0,
        len(before.shards),
    )
    assert repaired.new_shard is not None
    assert (repaired.new_shard.sha256, repaired.new_shard.source) == (bad.sha256, bad.source)
    assert repaired.new_shard.name != bad.name
    assert held(version.latest()) == RECORDS
    assert check_version(version).published == version.latest().number
    assert_whole(version.latest())
    assert repair(version).repaired == ()


def test_the_entry_tells_which_shard_how_and_what_was_lost(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path), target_bytes=TARGET)
    bad = version.latest().shards[1]
    rot(version, 1)
    (repaired,) = repair(version).repaired
    assert repaired.entry is not None
    assert (repaired.entry.operation, repaired.entry.removed) == ("repair", (bad.name,))
    assert [(one.shard, one.at) for one in repaired.entry.added] == [(repaired.new_shard, 1)]
    assert repaired.entry.parameters == {"shard": bad.name, "how": "source", "lost_records": 0}
    assert repaired.entry == Version(tmp_path / "root", NAME).log.entry(repaired.entry.number)


def test_several_shards_are_each_an_entry(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path), target_bytes=TARGET)
    for path in paths(version.latest())[1:3]:
        flip(path)
    report = repair(version)
    assert how(report) == ["source", "source"]
    numbers = [one.entry.number for one in report.repaired if one.entry is not None]
    assert numbers[1] == numbers[0] + 1
    assert held(version.latest()) == RECORDS


@pytest.mark.parametrize(
    ("source", "target", "wanted"),
    [
        (json_lines, 10**6, "source"),
        (json_lines, TARGET, "source"),
        (with_bad_lines, 10**6, "source"),
        (with_bad_lines, TARGET, "salvage"),
    ],
)
def test_without_its_receipt_the_rows_of_a_shard_are_counted_if_none_was_refused(
    tmp_path: Path, source: Callable[[Path], Path], target: int, wanted: str
) -> None:
    version = appended(tmp_path, source(tmp_path), target_bytes=target)
    at = len(version.latest().shards) // 2
    flip(paths(version.latest())[at])
    for shard in version.latest().shards:
        version.store.delete(version.shard_name(shard) + RECEIPT)
    report = repair(version, allow_data_loss=True)
    assert how(report) == [wanted]
    assert (held(version.latest()) == RECORDS) == (wanted == "source")


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("gone", [Path.unlink, lambda path: path.write_bytes(b'{"x": 1}\n')])
def test_when_the_source_is_gone_or_another_what_is_intact_is_kept(
    tmp_path: Path, compression: str, gone: Callable[[Path], None]
) -> None:
    source = write_by_tensorflow(tmp_path / "in.tfrecord", RECORDS)
    version = appended(tmp_path, source, compression=compression)
    if compression == "none":
        rot(version, 0, lambda path: made(path, flipped(path.read_bytes(), 8 * 14)).touch())
    else:
        rot(version, 0, cut)
    gone(source)
    (repaired,) = repair(version, allow_data_loss=True).repaired
    assert repaired.method == "salvage"
    assert repaired.new_shard is not None
    assert repaired.lost_records == ROWS - repaired.new_shard.records > 0
    kept = held(version.latest())
    assert kept == (RECORDS[1:] if compression == "none" else RECORDS[: len(kept)])
    assert repaired.quarantine_file is not None
    lines = version.store.read(repaired.quarantine_file).splitlines()
    assert repaired.entry is not None
    assert repaired.entry.parameters == {
        "shard": repaired.shard.name,
        "how": "salvage",
        "lost_records": repaired.lost_records,
        "quarantine": [{"rows": len(lines), "files": [repaired.quarantine_file]}],
    }
    assert all("lost" in json.loads(line)["reason"] for line in lines)
    assert check_version(version).published == version.latest().number


def test_nothing_is_given_up_unless_that_is_asked_for(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path), target_bytes=TARGET)
    land(version, "batch", RECORDS[:4])
    land(version, "other", RECORDS[:5])
    files = paths(version.latest())
    for path in (files[1], files[-2]):
        path.write_bytes(flipped(path.read_bytes(), 8 * 14))
    files[-1].unlink()
    foreseen = repair(version, dry_run=True)
    report = repair(version)
    assert (
        report.unrepaired
        == foreseen.unrepaired
        == tuple(one for one in report.repaired if one.lost_records)
    )
    assert [
        (one.shard.records, one.method, one.lost_records, one.entry) for one in report.unrepaired
    ] == [
        (4, "salvage", 1, None),
        (5, "salvage", 5, None),
    ]
    assert [(one.method, one.lost_records) for one in report.repaired if one.entry] == [
        ("source", 0)
    ]
    assert version.latest().records == ROWS + 9
    assert [one.lost_records for one in repair(version, allow_data_loss=True).repaired] == [1, 5]
    assert held(version.latest()) == RECORDS + RECORDS[1:4]


def test_damage_that_touches_no_record_is_no_loss(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:3])
    (path,) = paths(version.latest())
    path.write_bytes(path.read_bytes() + b"junk")
    (repaired,) = repair(version).repaired
    assert (repaired.method, repaired.lost_records, repaired.changes) == ("salvage", 0, False)
    assert held(version.latest()) == RECORDS[:3]


def test_a_gzip_shard_whose_first_bytes_are_damaged_keeps_its_other_members(
    tmp_path: Path,
) -> None:
    version = make_version(tmp_path)
    land(version, "a", RECORDS, "members")
    (path,) = paths(version.latest())
    path.write_bytes(flipped(path.read_bytes(), 0))
    (repaired,) = repair(version, allow_data_loss=True).repaired
    assert (repaired.method, repaired.lost_records) == ("salvage", 2)
    assert held(version.latest()) == RECORDS[2:]


def test_a_shard_that_is_gone_with_its_source_leaves_the_list(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:3], RECORDS[3:5])
    for damage in (Path.unlink, lambda path: path.write_bytes(b"")):
        damage(paths(version.latest())[0])
        (repaired,) = repair(version, allow_data_loss=True).repaired
        assert (repaired.method, repaired.new_shard, repaired.quarantine_file) == (
            "salvage",
            None,
            None,
        )
        assert repaired.lost_records == repaired.shard.records
    assert (version.latest().shards, version.latest().records) == ((), 0)


def test_a_shard_of_a_batch_can_only_be_salvaged(tmp_path: Path) -> None:
    version = appended(tmp_path, [{"x": number} for number in range(ROWS)], batch="monday")
    rot(version, 0, lambda path: made(path, flipped(path.read_bytes(), 8 * 14)).touch())
    assert how(repair(version, allow_data_loss=True)) == ["salvage"]
    assert held(version.latest()) == RECORDS[1:]


@pytest.mark.parametrize("records", [RECORDS[:2], RECORDS[10:13], [example_of(y=1.5)], RECORDS])
def test_another_intact_file_is_not_taken_for_what_is_left(
    tmp_path: Path, records: list[bytes]
) -> None:
    version = landed(tmp_path, RECORDS[:3], RECORDS[3:6])
    other, flipped_too = paths(version.latest())
    other.write_bytes(framed(*records))
    before = objects(tmp_path)
    where = {"path": version.shard_name(version.latest().shards[0]), "version": version.name}
    with raises(WrongShardError, "unrepairable-shard", **where):
        repair(version, shards=[other.name])
    with pytest.raises(WrongShardError):
        repair(version, dry_run=True)
    assert objects(tmp_path) == before
    # The others are not held up by it.
    flip(flipped_too)
    with pytest.raises(WrongShardError):
        repair(version, allow_data_loss=True)
    assert version.latest().shards[1].records == 2


@pytest.mark.parametrize("records", [RECORDS[5:10], [example_of(y=1.5)]])
def test_another_damaged_file_is_not_taken_for_what_is_left_if_that_can_be_seen(
    tmp_path: Path, records: list[bytes]
) -> None:
    version = landed(tmp_path, RECORDS[:3])
    (other,) = paths(version.latest())
    other.write_bytes(framed(*records) + b"junk")
    with raises(WrongShardError, "unrepairable-shard", version=version.name):
        repair(version)
    assert version.state.snapshot == 1


def test_a_repaired_shard_is_repaired_again_from_the_first_source(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path), target_bytes=TARGET)
    names = {version.latest().shards[1].name}
    for damage in DAMAGES:
        rot(version, 1, damage)
        assert how(repair(version)) == ["source"]
        assert check_version(version).ok
        names.add(version.latest().shards[1].name)
    assert len(names) == 5
    assert held(version.latest()) == RECORDS


def test_what_a_repair_had_lost_comes_back_with_the_source(tmp_path: Path) -> None:
    source = json_lines(tmp_path)
    version = appended(tmp_path, source)
    away = source.rename(tmp_path / "away")
    rot(version, 0)
    assert repair(version, allow_data_loss=True).repaired[0].lost_records > 0
    away.rename(source)
    flip(paths(version.latest())[0])
    (repaired,) = repair(version).repaired
    assert (repaired.method, repaired.lost_records) == ("source", 0)
    assert held(version.latest()) == RECORDS


def test_a_name_that_the_log_knows_is_not_used_twice(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path))
    path = rot(version, 0)
    data = path.read_bytes()
    first = repair(version).repaired[0].new_shard
    version.restore(1)
    assert path.read_bytes() == data
    second = repair(version).repaired[0].new_shard
    assert first is not None
    assert second is not None
    assert second.name == first.name.replace(".tfrecord", ".1.tfrecord")


def test_a_dry_run_says_what_would_be_tried_and_changes_nothing(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path), target_bytes=TARGET)
    land(version, "batch", RECORDS[:4])
    rebuild(version, snapshot=1, into=Version(version.store, "digits/v2"))
    flip(paths(version.latest())[1])
    flip(paths(version.latest())[-1])
    before = objects(tmp_path)
    report = repair(version, dry_run=True)
    assert (how(report), report.dry_run, report.read_shards) == (["source", "salvage"], True, 5)
    assert [one.entry for one in report.repaired] == [None, None]
    into = Version(version.store, "digits/v2")
    flip(paths(into.latest())[0])
    assert how(repair(into, dry_run=True)) == ["inputs"]
    flip(paths(into.latest())[0])
    assert objects(tmp_path) == before


def test_only_the_shards_that_are_named_are_read_and_repaired(tmp_path: Path) -> None:
    version = appended(tmp_path, json_lines(tmp_path), target_bytes=TARGET)
    for path in paths(version.latest())[:2]:
        flip(path)
    named = version.latest().shards[1].name
    report = repair(version, shards=[named])
    assert (report.read_shards, [one.shard.name for one in report.repaired]) == (1, [named])
    assert len(repair(version).repaired) == 1


def test_a_shard_that_is_not_there_cannot_be_named(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:2])
    with raises(LogError, "shard-not-found", path="missing", version="digits/v1", snapshot=1):
        repair(version, shards=["missing"])


def test_with_nothing_to_repair_nothing_is_done(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:2], RECORDS[2:4])
    before = objects(tmp_path)
    report = repair(version)
    assert (report.repaired, report.read_shards, report.version) == ((), 2, NAME)
    assert objects(tmp_path) == before


def test_a_shard_is_not_damaged_because_its_records_are_larger_than_the_limit(
    tmp_path: Path,
) -> None:
    version = appended(tmp_path, json_lines(tmp_path))
    before = objects(tmp_path)
    with raises(WrongShardError, "committed-corrupt", version=version.name) as caught:
        repair(version, limits=Limits(max_record_bytes=5))
    assert "oversized" in str(caught.value)
    assert caught.value.hint is not None
    assert Option("max_record") in caught.value.hint.parts
    assert objects(tmp_path) == before


def test_what_a_stopped_repair_salvaged_is_not_used_for_another_file(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:9])
    (path,) = paths(version.latest())
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert repair(version, allow_data_loss=True).repaired[0].lost_records > 1
    # The entry never came to be, but the shard and its receipt did; then a better copy is found.
    newest = max((tmp_path / NAME / "log").glob("*.json"))
    newest.unlink()
    path.write_bytes(flipped(data, 8 * 14))
    version = Version(tmp_path, NAME)
    assert repair(version, allow_data_loss=True).repaired[0].lost_records == 1
    assert held(version.latest()) == RECORDS[1:9]


def test_overlays_are_refused(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:1])
    (base,) = version.latest().shards
    source = source_of("overlay")
    name = base.name.replace(base.name[3:11], "0" * 8)
    overlay = Shard(name, 1, 4, base.sha256, source=source.key, base=Base(base.name, base.sha256))
    version.store.create(version.shard_name(overlay), b"torn")
    version.commit(Append(shards=[overlay], sources=[source]))
    before = objects(tmp_path)
    (left,) = repair(version, allow_data_loss=True).unrepaired
    assert (left.shard, left.method, left.entry) == (overlay, "again", None)
    assert objects(tmp_path) == before


def test_repairs_work_on_a_store_that_is_no_disk(tmp_path: Path) -> None:
    version = Version("memory://repair", NAME)
    append(version, json_lines(tmp_path), schema=SCHEMA, target_bytes=TARGET, compression="gzip")
    assert check_version(version).ok
    bad = version.shard_name(version.latest().shards[0])
    data = version.store.read(bad)
    version.store.replace(bad, data[:-9])
    assert how(repair(version)) == ["source"]
    (repaired,) = version.latest().shards
    assert version.store.read(version.shard_name(repaired)) == data
    assert check_version(version).published == 2


def test_the_index_of_a_repaired_shard_leads_to_its_records(tmp_path: Path) -> None:
    version = landed(tmp_path, RECORDS[:8], kind="members")
    (path,) = paths(version.latest())
    path.write_bytes(flipped(path.read_bytes(), 8 * 20))
    repair(version, allow_data_loss=True)
    (path,) = paths(version.latest())
    with IndexedFile(path) as indexed:
        assert [indexed[at] for at in range(len(indexed))] == RECORDS[2:8]
