"""Files in a store read like files on a disk, in few requests and little memory."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from shardline.errors import CorruptFileError, ObjectNotFoundError, StorageError
from shardline.operations.verify_files import verify_file
from shardline.storage import open_store
from shardline.tfrecord import HashedFile, RecordFile, StoredFile, open_file, write_records
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.reader import Corruption, LostBytes
from shardline.tfrecord.record_block import RecordBlock
from tests.errors import raises
from tests.kernel.frames import framed
from tests.storage.faulty import Fault, FaultyStore
from tests.tfrecord.samples import flipped, gzip_member, made, packed

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from pathlib import Path

MB = 2**20


class RecordingStore(FaultyStore):
    """Also keeps which ranges were asked for."""

    def __init__(self, root: Path, *, paths: bool = False) -> None:
        super().__init__(open_store(root), paths=paths)
        self.ranges: list[tuple[int, int]] = []

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        self.ranges += ranges
        return super().read_ranges(name, ranges)


@pytest.fixture
def store(tmp_path: Path) -> RecordingStore:
    return RecordingStore(tmp_path)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that records and packed chunks lie across."""
    monkeypatch.setattr("shardline.tfrecord.input_file._FIRST_WINDOW_BYTES", 16)
    monkeypatch.setattr("shardline.tfrecord.input_file._MAX_WINDOW_BYTES", 100)
    monkeypatch.setattr("shardline.tfrecord.input_file._BEHIND_BYTES", 20)


def payloads_of(block: RecordBlock) -> list[bytes]:
    return [bytes(payload) for payload in block.payloads()]


def story_of(source: Path | StoredFile) -> list[object]:
    """All that reading tells, whatever is damaged."""
    told: list[object] = []
    with RecordFile(source, block_bytes=300) as file:
        told += [file.compression, file.stream.size]
        for event in file.events(go_on=True):
            if isinstance(event, RecordBlock):
                told += [event.offset, event.record, payloads_of(event)]
            elif isinstance(event, Corruption):
                told.append(event)
            elif isinstance(event, LostBytes):
                told += [bytes(data) for _, data in file.bytes_of(event)]
    return told


def some_file(seed: int) -> bytes:
    """A file of any packing, damaged or not."""
    source = random.Random(seed)
    payloads = [source.randbytes(source.randint(0, 120)) for _ in range(source.randint(0, 40))]
    data = framed(*payloads)
    kind = source.choice(["none", "gzip", "zlib", "members"])
    if kind == "members":
        data = b"".join(gzip_member(framed(payload)) for payload in payloads)
    else:
        data = packed(kind, data)
    if data and source.random() < 0.6:
        data = flipped(data, source.randrange(len(data) * 8))
    if source.random() < 0.3:
        data = data[: source.randint(0, len(data))]
    return data


@pytest.mark.usefixtures("small_windows")
def test_a_remote_file_tells_the_same_story_as_a_local_one(
    tmp_path: Path, store: RecordingStore
) -> None:
    for seed in range(150):
        path = made(tmp_path / f"{seed}", some_file(seed))
        file = StoredFile(store, path.name)
        assert story_of(file) == story_of(path), f"seed {seed}"
        assert verify_file(file) == replace(verify_file(path), file=str(file))
        again = verify_file(file, every_fault=True, examples=True)
        assert again == replace(verify_file(path, every_fault=True, examples=True), file=str(file))


@pytest.mark.usefixtures("small_windows")
def test_stretches_of_a_remote_file_are_read_side_by_side(
    tmp_path: Path, store: RecordingStore
) -> None:
    payloads = [b"%d" % number * 7 for number in range(400)]
    write_records(tmp_path / "a", payloads)
    found = map_blocks(StoredFile(store, "a"), payloads_of, workers=3, stretch_bytes=700)
    assert [payload for part in found for payload in part] == payloads
    assert store.counts["info"] == 1, "its size is asked for once"


def test_transient_read_error_in_stretch_recovers(tmp_path: Path, store: RecordingStore) -> None:
    payloads = [b"%d" % number * 7 for number in range(400)]
    write_records(tmp_path / "a", payloads)
    store.script[("read_ranges", 4)] = Fault.FAILED
    found = map_blocks(StoredFile(store, "a"), payloads_of, workers=2, stretch_bytes=700)
    assert [payload for part in found for payload in part] == payloads
    store.script[("read_ranges", store.counts["read_ranges"] + 1)] = Fault.FAILED
    with pytest.raises(StorageError, match="503"):
        list(map_blocks(StoredFile(store, "a"), payloads_of, workers=2, stretch_bytes=700))


def test_a_look_at_the_start_is_one_small_request(tmp_path: Path, store: RecordingStore) -> None:
    made(tmp_path / "a", framed(b"first", bytes(30 * MB)))
    with RecordFile(StoredFile(store, "a"), block_bytes=1000) as file:
        assert next(iter(file)) == b"first"
    assert store.ranges == [(0, 256 * 1024)]


def test_all_of_it_is_read_once_in_few_bounded_requests(
    tmp_path: Path, store: RecordingStore
) -> None:
    made(tmp_path / "a", framed(*[bytes(50_000)] * 600, bytes(9 * MB)))
    size = (tmp_path / "a").stat().st_size
    with RecordFile(StoredFile(store, "a")) as file:
        assert sum(len(block.starts) for block in file.blocks()) == 601
    assert sum(count for _, count in store.ranges) == size
    assert max(count for _, count in store.ranges) == 4 * MB
    assert len(store.ranges) <= 4 + -(-size // (4 * MB))
    assert store.counts["info"] == 1


def test_a_file_of_a_local_store_is_read_where_it_lies(tmp_path: Path) -> None:
    store = RecordingStore(tmp_path, paths=True)
    write_records(tmp_path / "a", [b"1", b"2"])
    with RecordFile(StoredFile(store, "a")) as file:
        assert list(file) == [b"1", b"2"]
    assert verify_file(StoredFile(store, "a")).records == 2
    assert not store.counts


@pytest.mark.parametrize("paths", [True, False])
def test_a_missing_file_and_a_damaged_one_are_named(tmp_path: Path, *, paths: bool) -> None:
    store = RecordingStore(tmp_path, paths=paths)
    with raises(ObjectNotFoundError, "object-not-found", path=f"{tmp_path}/no/such"):
        RecordFile(StoredFile(store, "no/such"))
    made(tmp_path / "a", flipped(framed(b"one"), 100))
    with RecordFile(StoredFile(store, "a")) as file:
        with raises(CorruptFileError, "corrupt-file", path=f"{tmp_path}/a", record=0) as caught:
            list(file)
        assert caught.value.kind == "data-crc"
        assert file.source == StoredFile(store, "a")
    with (
        RecordFile(StoredFile(store, "a")).reopen() as file,
        raises(CorruptFileError, "corrupt-file", path=f"{tmp_path}/a", record=0),
    ):
        list(file)


def test_file_shrunk_while_read_is_not_truncated(tmp_path: Path, store: RecordingStore) -> None:
    made(tmp_path / "a", framed(*[bytes(100_000)] * 20))
    with RecordFile(StoredFile(store, "a")) as file:
        blocks = file.blocks()
        next(blocks)
        (tmp_path / "a").write_bytes(b"")
        with raises(StorageError, "object-mismatch", path=f"{tmp_path}/a"):
            list(blocks)


def test_reads_anywhere_give_the_bytes_there(tmp_path: Path, store: RecordingStore) -> None:
    data = random.Random(1).randbytes(3 * MB)
    made(tmp_path / "a", data)
    file = StoredFile(store, "a").open()
    source = random.Random(2)
    for _ in range(300):
        offset, size = source.randint(0, len(data) + 10), source.choice([0, 1, 5000, 400_000])
        assert file.pread(size, offset) == data[offset : offset + size]
    assert file.seek(len(data) - 3) == len(data) - 3
    buffer = bytearray(10)
    assert file.readinto(memoryview(buffer)) == 3
    assert buffer[:3] == data[-3:]
    assert file.readinto(memoryview(buffer)) == 0
    file.close()


def test_on_a_real_server_too(s3_root: str) -> None:
    store = open_store(s3_root)
    payloads = [random.Random(seed).randbytes(20_000) for seed in range(300)]
    store.create("digits/shards/a.tfrecord", framed(*payloads))
    file = StoredFile(store, "digits/shards/a.tfrecord")
    assert str(file) == f"{s3_root}/digits/shards/a.tfrecord"
    found = map_blocks(file, payloads_of, workers=2, stretch_bytes=MB)
    assert [payload for part in found for payload in part] == payloads
    report = verify_file(file)
    assert (report.file, report.records, report.ok) == (str(file), 300, True)
    hashed = HashedFile(open_file(file))
    with RecordFile(hashed) as records:
        assert sum(1 for _ in records) == 300
        assert hashed.finish() == hashlib.sha256(framed(*payloads)).hexdigest()


@pytest.mark.usefixtures("small_windows")
@pytest.mark.parametrize("paths", [True, False])
def test_the_digest_is_that_of_the_whole_file_whatever_was_read(
    tmp_path: Path, *, paths: bool
) -> None:
    store = RecordingStore(tmp_path, paths=paths)
    for seed in range(60):
        data = some_file(seed)
        file = StoredFile(store, made(tmp_path / f"{seed}", data).name)
        for stop_after in (0, 2, 10**9):
            hashed = HashedFile(open_file(file))
            with RecordFile(hashed, block_bytes=300) as records:
                for number, _ in enumerate(records.events(go_on=True), 1):
                    if number >= stop_after:
                        break
                assert hashed.finish() == hashlib.sha256(data).hexdigest(), f"seed {seed}"


def test_reading_here_and_there_does_not_spoil_the_digest(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(200_000)
    path = made(tmp_path / "a", data)
    source = random.Random(2)
    hashed = HashedFile(open_file(path))
    for _ in range(100):
        hashed.pread(source.randint(0, 5000), source.randint(0, len(data)))
        hashed.seek(source.randint(0, len(data)))
        hashed.readinto(memoryview(bytearray(source.randint(0, 5000))))
    assert hashed.finish() == hashlib.sha256(data).hexdigest()
    assert hashed.finish() == hashlib.sha256(data).hexdigest()
    hashed.close()


@pytest.mark.parametrize("kind", ["none", "gzip", "zlib", "members"])
def test_records_and_digest_take_one_pass(tmp_path: Path, store: RecordingStore, kind: str) -> None:
    payloads = [random.Random(seed).randbytes(50_000) for seed in range(100)]
    if kind == "members":
        data = b"".join(gzip_member(framed(payload)) for payload in payloads)
    else:
        data = packed(kind, framed(*payloads))
    made(tmp_path / "a", data)
    hashed = HashedFile(open_file(StoredFile(store, "a")))
    with RecordFile(hashed) as records:
        assert list(records) == payloads
        before = len(store.ranges)
        assert hashed.finish() == hashlib.sha256(data).hexdigest()
    assert len(store.ranges) == before, "nothing was left to read"
    glance = 12 if kind in {"gzip", "members"} else 0  # whether the file is plain after all
    assert sum(count for _, count in store.ranges) == len(data) + glance


def test_a_hashed_file_is_named_like_the_file(tmp_path: Path) -> None:
    path = made(tmp_path / "a", flipped(framed(b"one"), 100))
    with (
        RecordFile(HashedFile(open_file(path))) as file,
        raises(CorruptFileError, "corrupt-file", path=str(path)),
    ):
        list(file)
