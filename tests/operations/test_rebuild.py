"""Rebuilding: the same records, byte for byte, or an error that says where and nothing changed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardline.api import Version
from shardline.errors import (
    CancelledError,
    ConflictError,
    CorruptFileError,
    InvalidArgumentError,
    ObjectNotFoundError,
    UnreadableSnapshotError,
    WrongShardError,
)
from shardline.execution.executor import CancellationToken, Progress, ThreadExecutor
from shardline.hints import Command
from shardline.log.append_change import Append
from shardline.log.model import Base, Shard
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.rebuild import rebuild
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.index import IndexWriter, compute_fingerprint, index_path, write_index
from shardline.tfrecord.indexed_file import IndexedFile
from shardline.tfrecord.input_file import open_regular
from shardline.tfrecord.reader import Limits
from tests.errors import raises
from tests.kernel.frames import framed
from tests.log.versions import NAME, make_version, source_of
from tests.operations.shard_files import (
    KINDS,
    Kind,
    assert_whole,
    file_of,
    held,
    land,
    landed,
    numbered,
    objects,
    paths,
    shards,
)
from tests.tfrecord.samples import example_of, flipped, made

targets = st.one_of(st.none(), st.sampled_from([1, 40, 100, 5000]))
packings = st.sampled_from([None, "none", "gzip"])


@given(shards, targets, packings, st.sampled_from(["indexed", "bare"]))
@settings(max_examples=30)
@example([([], "members"), ([b"a"], "members")], None, None, "bare")
@example([([b"a"], "tensorflow"), ([], "tensorflow"), ([b"b"], "members")], None, "gzip", "bare")
@example([([b"a"], "plain"), ([b"a"], "plain")], 20, "gzip", "bare")
def test_the_records_of_a_rebuild_are_those_of_its_inputs(
    contents: list[tuple[list[bytes], Kind]],
    target: int | None,
    packing: str | None,
    beside: str,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        version = make_version(folder)
        for number, (records, kind) in enumerate(contents):
            land(version, str(number), records, kind)
        for path in paths(version.latest()) if beside == "indexed" else ():
            write_index(path)
        before = version.latest()
        wanted = [record for records, _ in contents for record in records]
        report = rebuild(version, snapshot="latest", target_bytes=target, compression=packing)
        after = version.latest()
        assert held(after) == wanted
        assert (after.records, before.records) == (len(wanted), len(wanted))
        made = {shard.name for shard in report.written}
        assert made == {s.name for s in after.shards} - {s.name for s in before.shards}
        if target is None:
            assert len(after.shards) == 1
        if made == {shard.name for shard in after.shards}:
            assert_whole(after)
        again = rebuild(version, snapshot="latest", target_bytes=target, compression=packing)
        assert again.entry is None


@given(shards, targets, packings, st.integers(0), st.integers(0))
@settings(max_examples=50)
def test_a_flipped_bit_anywhere_stops_a_rebuild_and_nothing_is_changed(
    contents: list[tuple[list[bytes], Kind]],
    target: int | None,
    packing: str | None,
    which: int,
    bit: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        version = make_version(folder)
        for number, (records, kind) in enumerate(contents):
            land(version, str(number), records, kind)
        sound = paths(version.latest())
        damaged = sound[which % len(sound)]
        data = damaged.read_bytes()
        if not data:
            return
        damaged.write_bytes(flipped(data, bit % (8 * len(data))))
        before = objects(Path(folder))
        error = stopped(version, target, packing)
        if error is None:
            # Only a shard that is left as it is has not been read.
            assert damaged in paths(version.latest())
            return
        assert error.path == str(damaged)
        assert error.hint is not None
        if isinstance(error, CorruptFileError):
            assert Command.of("salvage", str(damaged), "-o", "OUT") in error.hint.commands
        else:
            assert Command.of("repair", version.name) in error.hint.commands
        left = {name: data for name, data in objects(Path(folder)).items() if name not in before}
        assert not [name for name in left if "/log/" in name or ".tmp" in name]
        assert left == {} or target is not None
        damaged.write_bytes(data)
        rebuild(version, snapshot="latest", target_bytes=target, compression=packing)
        assert held(version.latest()) == [one for records, _ in contents for one in records]


def stopped(
    version: Version, target: int | None, packing: str | None
) -> CorruptFileError | WrongShardError | None:
    """What a rebuild was stopped by; None if it was not."""
    try:
        rebuild(version, snapshot="latest", target_bytes=target, compression=packing)
    except (CorruptFileError, WrongShardError) as error:
        return error
    return None


@pytest.mark.parametrize("target", [None, 60])
def test_damage_is_told_with_its_record_and_offset(tmp_path: Path, target: int | None) -> None:
    version = landed(tmp_path, numbered(0, 5))
    (path,) = paths(version.latest())
    path.write_bytes(flipped(path.read_bytes(), (3 * 26 + 15) * 8))
    with pytest.raises(CorruptFileError) as caught:
        rebuild(version, snapshot="latest", target_bytes=target, compression="gzip")
    assert (caught.value.kind, caught.value.record, caught.value.offset) == ("data-crc", 3, 78)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [None, 60])
def test_an_intact_file_with_other_records_is_refused(
    tmp_path: Path, kind: Kind, target: int | None
) -> None:
    version = landed(tmp_path, numbered(0, 5), numbered(5, 9), kind=kind)
    first, second = paths(version.latest())
    for path in (first, second):
        write_index(path)
    second.write_bytes(file_of(kind, numbered(95, 99)))
    before = objects(tmp_path)
    with raises(WrongShardError, "shard-mismatch", path=str(second), version=version.name):
        rebuild(version, snapshot="latest", target_bytes=target, compression="none")
    assert {name for name in objects(tmp_path) if "/log/" in name} == {
        name for name in before if "/log/" in name
    }


def test_a_swapped_shard_is_refused_also_where_only_a_part_of_it_is_copied(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 5))
    into = Version(tmp_path, "digits/v2")
    rebuild(version, snapshot="latest", into=into, target_bytes=60)
    land(version, "more", numbered(5, 6))
    first = paths(version.latest())[0]
    first.write_bytes(framed(*numbered(90, 95)))
    before = objects(tmp_path)
    with pytest.raises(WrongShardError):
        rebuild(version, snapshot="latest", into=into, target_bytes=60)
    assert objects(tmp_path) == before


def test_an_index_that_leads_elsewhere_is_told_for_what_it_is(tmp_path: Path) -> None:
    version = landed(tmp_path, [b"a" * 10, b"b" * 30, b"c" * 10, b"d" * 10])
    (path,) = paths(version.latest())
    write_index(path)
    file = open_regular(path)
    fingerprint = compute_fingerprint(file, file.size)
    file.close()
    with DurableFile(index_path(path), overwrite=True) as written:
        index = IndexWriter(written)
        index.add(np.array([0, 26, 26 + 40, 98]))
        index.finish(
            end=124,
            members=[],
            size=124,
            compression=Compression.NONE,
            fingerprint=fingerprint,
        )
    with raises(WrongShardError, "index-mismatch", path=str(index_path(path))):
        rebuild(version, snapshot="latest", target_bytes=70)
    index_path(path).unlink()
    rebuild(version, snapshot="latest", target_bytes=70)
    assert [shard.bytes for shard in version.latest().shards] == [26, 46, 52]


def test_a_record_larger_than_the_target_has_a_shard_of_its_own(tmp_path: Path) -> None:
    records = [b"a", b"b" * 500, b"c", b"d"]
    version = landed(tmp_path, records[:3], records[3:])
    rebuild(version, snapshot="latest", target_bytes=40)
    assert [shard.records for shard in version.latest().shards] == [1, 1, 2]
    assert held(version.latest()) == records


@pytest.mark.parametrize(("target", "shards"), [(1, 6), (26, 6), (52, 3), (53, 3), (156, 1)])
def test_a_shard_is_full_when_the_next_record_would_take_it_over_the_target(
    tmp_path: Path, target: int, shards: int
) -> None:
    version = landed(tmp_path, numbered(0, 4), numbered(4, 6))
    rebuild(version, snapshot="latest", target_bytes=target)
    assert len(version.latest().shards) == shards
    assert all(shard.bytes <= max(target, 26) for shard in version.latest().shards)


def test_the_target_counts_unpacked_bytes(tmp_path: Path) -> None:
    version = landed(tmp_path, *[numbered(at, at + 5, 1000) for at in (0, 5)], kind="members")
    rebuild(version, snapshot="latest", target_bytes=3 * 1016)
    assert [shard.records for shard in version.latest().shards] == [3, 3, 3, 1]
    assert {shard.compression for shard in version.latest().shards} == {"gzip"}
    assert_whole(version.latest())


def test_gzip_files_are_put_behind_each_other_as_they_are(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 5), kind="members")
    land(version, "tf", numbered(5, 8), "tensorflow")
    before = b"".join(path.read_bytes() for path in paths(version.latest()))
    rebuild(version, snapshot="latest")
    (path,) = paths(version.latest())
    assert path.read_bytes() == before
    with IndexedFile(path) as indexed:
        assert [indexed[at] for at in (7, 0, 4, 5)] == [numbered(0, 8)[at] for at in (7, 0, 4, 5)]


def test_rebuild_mixed_shards_packs_as_latest_unless_told(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 2))
    land(version, "packed", numbered(2, 4), "members")
    rebuild(version, snapshot="latest", target_bytes=1)
    assert version.latest().compression == "GZIP"
    rebuild(version, snapshot="latest", compression="none")
    assert version.latest().compression == ""
    assert held(version.latest()) == numbered(0, 4)


def test_zlib_is_refused_since_it_cannot_be_put_behind_each_other(tmp_path: Path) -> None:
    with raises(InvalidArgumentError, "unsupported-compression"):
        rebuild(landed(tmp_path, [b"a"]), snapshot="latest", compression="zlib")


def test_a_target_below_one_is_refused(tmp_path: Path) -> None:
    with raises(InvalidArgumentError, "out-of-range"):
        rebuild(landed(tmp_path, [b"a"]), snapshot="latest", target_bytes=0)


def test_published_newest_and_numbered_snapshots_can_be_rebuilt(tmp_path: Path) -> None:
    examples = [example_of(x=number) for number in range(8)]
    version = landed(tmp_path, examples[:2], examples[2:4])
    check_version(version)
    land(version, "unchecked", examples[4:6])
    assert rebuild(version).source.number == 2
    assert [shard.records for shard in version.latest().shards] == [4, 2]
    land(version, "last", examples[6:])
    assert rebuild(version, snapshot=4).source.number == 4
    assert [shard.records for shard in version.latest().shards] == [6, 2]
    rebuild(version, snapshot="latest")
    assert [shard.records for shard in version.latest().shards] == [8]
    assert held(version.latest()) == examples
    assert check_version(version).published == version.latest().number


def test_what_is_appended_meanwhile_stays_behind_the_rebuilt_shard(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    other = Version(tmp_path, NAME)

    def append_once(told: Progress) -> None:
        if told.step == "rebuilding" and other.state.snapshot == 2:
            land(other, "meanwhile", numbered(4, 5))

    report = rebuild(version, snapshot="latest", progress=append_once)
    assert (report.source.number, report.snapshot) == (2, 4)
    assert [shard.records for shard in version.latest().shards] == [4, 1]
    assert held(version.latest()) == numbered(0, 5)


def test_a_rebuild_whose_shards_are_gone_from_the_list_fails_and_changes_nothing(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    other = Version(tmp_path, NAME)

    def restore_once(told: Progress) -> None:
        if told.step == "rebuilding" and other.state.snapshot == 2:
            other.restore(1)

    with pytest.raises(ConflictError) as caught:
        rebuild(version, snapshot="latest", progress=restore_once)
    assert version.snapshot(2).shards[1].name in str(caught.value)
    assert held(Version(tmp_path, NAME).latest()) == numbered(0, 2)


@pytest.mark.parametrize("target", [None, 30])
def test_a_rebuild_whose_file_is_gone_says_which(tmp_path: Path, target: int | None) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    gone = paths(version.latest())[1]
    gone.unlink()
    before = objects(tmp_path)
    with raises(ObjectNotFoundError, "object-not-found") as caught:
        rebuild(version, snapshot="latest", target_bytes=target)
    assert str(gone) in str(caught.value)
    assert objects(tmp_path) == before


def test_what_a_stopped_rebuild_had_made_is_used_again(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4), numbered(4, 6), numbered(6, 8))
    last = paths(version.latest())[-1]
    data = last.read_bytes()
    last.write_bytes(flipped(data, 200))
    before = objects(tmp_path)
    with pytest.raises(CorruptFileError):
        rebuild(version, snapshot="latest", target_bytes=104, executor=ThreadExecutor(1))
    (left,) = {name for name in objects(tmp_path) if name.endswith(".tfrecord")} - before.keys()
    inode = (tmp_path / left).stat().st_ino
    last.write_bytes(data)
    rebuild(version, snapshot="latest", target_bytes=104)
    assert paths(version.latest())[0].stat().st_ino == inode
    assert held(version.latest()) == numbered(0, 8)


def test_a_rebuild_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 2), numbered(2, 4))
    before = objects(tmp_path)
    cancellation = CancellationToken()

    def cancel(_: Progress) -> None:
        cancellation.cancel()

    with raises(CancelledError, "cancelled"):
        rebuild(
            version,
            snapshot="latest",
            executor=ThreadExecutor(cancellation=cancellation),
            progress=cancel,
        )
    assert objects(tmp_path) == before


def test_progress_comes_to_what_is_read(tmp_path: Path) -> None:
    version = landed(tmp_path, numbered(0, 5), numbered(5, 7))
    told: list[Progress] = []
    rebuild(version, snapshot="latest", progress=told.append)
    assert (told[-1].step, told[-1].done, told[-1].total) == ("rebuilding", 7 * 26, 7 * 26)
    assert told[-1].records == 7


def test_a_name_that_the_log_knows_is_not_used_twice(tmp_path: Path) -> None:
    twin = landed(tmp_path / "twin", numbered(0, 2), numbered(2, 4))
    (made,) = rebuild(twin, snapshot="latest").written
    version = landed(tmp_path / "root", numbered(0, 2), numbered(2, 4))
    # A writer was killed before it could leave a receipt, so that the name is not free.
    version.store.create(version.shard_name(made), b"half a file")
    names = []
    for _ in range(2):
        names += [shard.name for shard in rebuild(version, snapshot="latest").written]
        version.restore(2)
    stem = made.name.removesuffix(".tfrecord")
    assert names == [f"{stem}.1.tfrecord", f"{stem}.2.tfrecord"]


def test_an_overlay_that_does_not_fit_its_base_is_not_folded_in(tmp_path: Path) -> None:
    version = landed(tmp_path, [b"a"])
    (base,) = version.latest().shards
    data, source = framed(b"b"), source_of("overlay")
    name = base.name.replace(base.name[3:11], "0" * 8)
    overlay = Shard(
        name, 1, len(data), base.sha256, source=source.key, base=Base(base.name, base.sha256)
    )
    version.store.create(version.shard_name(overlay), data)
    version.commit(Append(shards=[overlay], sources=[source]))
    before = objects(tmp_path)
    with pytest.raises(UnreadableSnapshotError):
        rebuild(version, snapshot="latest")
    assert objects(tmp_path) == before


def test_limits_hold_for_the_records_that_are_copied(tmp_path: Path) -> None:
    version = landed(tmp_path, [b"a" * 100], [b"b"])
    for target in (None, 50):
        with raises(CorruptFileError, "record-too-large"):
            rebuild(
                version, snapshot="latest", target_bytes=target, limits=Limits(max_record_bytes=99)
            )


def rebuild_elsewhere(root: str) -> None:
    """Append, rebuild in place and into another version, on a store that is no disk."""
    examples = [example_of(x=number) for number in range(6)]
    version = landed(root, examples[:2], examples[2:], kind="members")
    into = Version(root, "digits/v2")
    rebuild(version, snapshot="latest", into=into, target_bytes=100, compression="none")
    assert [shard.records for shard in into.latest().shards] == [3, 3]
    assert check_version(into).published == 1
    (made,) = rebuild(version, snapshot="latest").written
    assert check_version(version).published == 3
    data = version.store.read(version.shard_name(made))
    assert data == b"".join(file_of("members", part) for part in (examples[:2], examples[2:]))
    version.store.delete(version.shard_name(made))
    version.store.create(version.shard_name(made), flipped(data, 300))
    with pytest.raises((CorruptFileError, WrongShardError), match=root):
        rebuild(version, snapshot="latest", into=into)
    assert into.state.snapshot == 1


def test_a_rebuild_works_in_memory() -> None:
    rebuild_elsewhere("memory://rebuild")


def test_a_rebuild_works_on_an_s3_server(s3_root: str) -> None:
    rebuild_elsewhere(s3_root)


def test_shards_that_changed_places_are_refused_by_their_ends(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", NAME)
    for name, first in (("a", 10), ("b", 20)):
        lines = "".join(f'{{"x": {number}}}\n' for number in range(first, first + 5))
        append(version, made(tmp_path / f"{name}.jsonl", lines.encode()))
    one, other = paths(version.latest())
    assert index_path(one).exists()
    data = one.read_bytes()
    assert len(data) == len(other.read_bytes())
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    before = objects(tmp_path / "root")
    with raises(WrongShardError, "shard-mismatch", path=str(one)):
        rebuild(version, snapshot="latest")
    assert objects(tmp_path / "root") == before
