"""An append that was stopped: the next one goes on where it stopped, and nothing is there twice."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardline.api import Version
from shardline.errors import ShardlineError, StorageError
from shardline.execution.executor import ThreadExecutor
from shardline.log.model import RECEIPT
from shardline.operations.append import append
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Schema
from shardline.sidecars.receipt import read_receipt
from shardline.storage import open_store
from tests.operations.landings import NAME, Payloads, payloads, shard_bytes
from tests.storage.faulty import Fault, FaultyStore
from tests.tfrecord.samples import flipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.operations.append import AppendReport
    from shardline.storage import Store

CONTENT = [b"%03d" % number * 28 if number % 9 else None for number in range(50)]
KEPT = [data for data in CONTENT if data is not None]
DATASET = NAME.partition("/")[0]
_numbers = count()


class PowerCutError(Exception):
    """What stops an append in these tests."""


class WatchedStore(FaultyStore):
    """Notes the names of what is created."""

    def __init__(self, root: Path) -> None:
        super().__init__(open_store(root))
        self.created: list[str] = []

    def create(self, name: str, data: bytes) -> None:
        super().create(name, data)
        self.created.append(name)


def stop_at(row: int) -> Callable[[int], None]:
    def before(first: int) -> None:
        if first >= row:
            raise PowerCutError

    return before


def run(root: Path | Store, before: Callable[[int], None] | None = None) -> AppendReport:
    """Append CONTENT in shards of ten records, on one thread."""
    return append(
        Version(root, NAME),
        Payloads("a", CONTENT, before=before),
        max_quarantined=0.2,
        target_bytes=1000,
        executor=ThreadExecutor(1, pause=0),
    )


def crashed(root: Path, row: int = 30) -> list[Path]:
    """A root in which an append was stopped, and the shards that it had finished, in order."""
    with pytest.raises(PowerCutError):
        run(root, stop_at(row))
    assert not Version(root, NAME).exists
    shards = (root / DATASET / "shards").glob("*.tfrecord")
    return sorted(shards, key=lambda path: path.stat().st_mtime_ns)


def assert_landed_once(root: Path) -> Version:
    version = Version(root, NAME)
    assert payloads(version) == KEPT
    assert verify_version(version).ok
    assert run(root).entry is None
    return version


@pytest.mark.parametrize("row", [20, 30, 40])
def test_finished_shards_are_not_written_again(tmp_path: Path, row: int) -> None:
    finished = {path: path.stat() for path in crashed(tmp_path, row)}
    assert 0 < len(finished) < 10
    store = WatchedStore(tmp_path)
    run(store)
    version = assert_landed_once(tmp_path)
    for path, before in finished.items():
        now = path.stat()
        assert (now.st_ino, now.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    new = [name for name in store.created if name.endswith(".tfrecord")]
    assert len(new) == len(version.latest().shards) - len(finished)
    assert len(store.created) == len(set(store.created))
    names = {path.name for path in finished}
    assert names < {shard.name for shard in version.latest().shards}


def test_resume_ignores_shard_of_other_first_row(tmp_path: Path) -> None:
    """As when another release, or another library, cut the part before it elsewhere."""
    first, *others = crashed(tmp_path, 40)
    assert others
    name = f"{DATASET}/shards/{others[0].name}{RECEIPT}"
    told = Version(tmp_path, NAME).store
    receipt = read_receipt(told, name)
    assert receipt is not None
    told.delete(name)
    told.create(name, replace(receipt, rows=(receipt.first + 1, receipt.end)).encode())
    run(tmp_path)
    version = assert_landed_once(tmp_path)
    assert first.name in {shard.name for shard in version.latest().shards}
    assert others[0].name not in {shard.name for shard in version.latest().shards}


def test_resume_before_commit_only_commits(tmp_path: Path) -> None:
    script = {("create", number): Fault.FAILED for number in count_of_creates(tmp_path)[-1:]}
    root = tmp_path / "root"
    with pytest.raises(StorageError):
        run(FaultyStore(open_store(root), script))
    store = WatchedStore(root)
    run(store)
    assert [name.rpartition("/")[0] for name in store.created] == [f"{NAME}/log"]
    assert_landed_once(root)


def count_of_creates(folder: Path) -> list[int]:
    """The numbers of all creates of an append that is not disturbed."""
    store = FaultyStore(open_store(folder / "undisturbed"))
    run(store)
    return list(range(1, store.counts["create"] + 1))


@pytest.mark.parametrize("fault", list(Fault), ids=lambda fault: fault.name)
def test_resume_after_any_failed_write(tmp_path: Path, fault: Fault) -> None:
    failed = []
    for number in count_of_creates(tmp_path):
        root = tmp_path / str(number)
        try:
            run(FaultyStore(open_store(root), {("create", number): fault}))
        except ShardlineError:
            failed.append(number)
            version = Version(root, NAME)
            assert not version.exists or not version.state.snapshot
            run(root)
        assert_landed_once(root)
    assert failed == (count_of_creates(tmp_path / "all") if fault is Fault.FAILED else [])


@pytest.mark.parametrize("fault", [Fault.FAILED, Fault.RESET, Fault.REPLY_LOST])
def test_failed_index_write_keeps_shard(tmp_path: Path, fault: Fault) -> None:
    for number in range(1, 5):
        root = tmp_path / str(number)
        try:
            run(FaultyStore(open_store(root), {("replace", number): fault}))
        except StorageError:
            run(root)
        assert_landed_once(root)


def test_lost_reply_writes_once(tmp_path: Path) -> None:
    quarantine, shard, receipt = 1, 2, 3
    for number in (quarantine, shard, receipt):
        root = tmp_path / str(number)
        run(FaultyStore(open_store(root), {("create", number): Fault.REPLY_LOST}))
        version = assert_landed_once(root)
        held = {shard.name for shard in version.latest().shards}
        assert {path.name for path in (root / DATASET / "shards").glob("*.tfrecord")} == held


def test_resume_rewrites_vacuumed_shards(tmp_path: Path) -> None:
    taken = {path.name for path in crashed(tmp_path)}
    report = vacuum(tmp_path, DATASET, retention=timedelta(0), dry_run=False, without_log=["v1"])
    assert {name.rpartition("/")[2] for name in (file.name for file in report.files)} > taken
    run(tmp_path)
    version = assert_landed_once(tmp_path)
    assert not taken & {shard.name for shard in version.latest().shards}


def test_append_rewrites_shards_announced_meanwhile(
    tmp_path: Path,
) -> None:
    entry = count_of_creates(tmp_path)[-1]
    root = tmp_path / "root"

    def take() -> None:
        assert vacuum(root, DATASET, retention=timedelta(0), dry_run=False).files

    report = run(FaultyStore(open_store(root), {("create", entry): take}))
    assert report.created
    assert report.records == len(KEPT)
    version = assert_landed_once(root)
    operations = [told.operation for _, told in version.log.replay()]
    assert operations == ["create", "vacuum", "append"]


def test_resume_ignores_announced_shards(tmp_path: Path) -> None:
    finished = crashed(tmp_path)
    kept = {path: path.read_bytes() for path in (tmp_path / DATASET / "shards").iterdir()}
    vacuum(tmp_path, DATASET, retention=timedelta(0), dry_run=False, without_log=["v1"])
    for path, data in kept.items():
        path.write_bytes(data)
    run(tmp_path)
    version = assert_landed_once(tmp_path)
    assert not {path.name for path in finished} & {s.name for s in version.latest().shards}


def test_resume_ignores_rotten_shard(tmp_path: Path) -> None:
    rotten, *sound = crashed(tmp_path)
    rotten.write_bytes(flipped(rotten.read_bytes(), 4000))
    run(tmp_path)
    version = assert_landed_once(tmp_path)
    names = {shard.name for shard in version.latest().shards}
    assert rotten.name not in names
    assert {path.name for path in sound} < names


@pytest.mark.parametrize("what", ["gone", "cut", "changed", "of another format"])
def test_resume_ignores_shard_without_receipt(tmp_path: Path, what: str) -> None:
    shard = crashed(tmp_path)[0]
    receipt = shard.with_name(shard.name + ".receipt")
    data = receipt.read_bytes()
    if what == "gone":
        receipt.unlink()
    else:
        changed = {
            "cut": data[:-20],
            "changed": data.replace(b'"rows":[0,', b'"rows":[1,'),
            "of another format": data.replace(b'"format":1', b'"format":2'),
        }[what]
        assert changed != data
        receipt.write_bytes(changed)
    run(tmp_path)
    version = assert_landed_once(tmp_path)
    assert version.latest().shards[0].name == shard.name.replace(".tfrecord", ".1.tfrecord")


def test_occupied_name_gets_next_attempt(tmp_path: Path) -> None:
    run(tmp_path / "first")
    names = [shard.name for shard in Version(tmp_path / "first", NAME).latest().shards]
    folder = tmp_path / "root" / DATASET / "shards"
    folder.mkdir(parents=True)
    for name in (names[2], names[2].replace(".tfrecord", ".1.tfrecord")):
        (folder / name).write_bytes(b"someone else's")
    run(tmp_path / "root")
    version = assert_landed_once(tmp_path / "root")
    found = [shard.name for shard in version.latest().shards]
    names[2] = names[2].replace(".tfrecord", ".2.tfrecord")
    assert found == names
    assert (folder / names[2].replace(".2.", ".1.")).read_bytes() == b"someone else's"


def test_resume_rewrites_missing_quarantine(tmp_path: Path) -> None:
    crashed(tmp_path)
    for path in (tmp_path / DATASET / "quarantine").iterdir():
        path.unlink()
    report = run(tmp_path)
    assert_landed_once(tmp_path)
    for name in report.quarantine_files:
        assert (tmp_path / name).is_file()


def test_large_shards_have_random_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shardline.storage.object_store._LARGEST_CREATE", 500)
    store = open_store(f"memory://append-{next(_numbers)}/root")
    with pytest.raises(PowerCutError):
        run(store, stop_at(30))
    left = {info.name for info in store.list(f"{DATASET}/shards")}
    run(store)
    version = Version(store, NAME)
    assert payloads(version) == KEPT
    names = [version.shard_name(shard) for shard in version.latest().shards]
    assert all(re.search(r"[.][0-9]+[.]tfrecord$", name) for name in names)
    finished = {name.removesuffix(".receipt") for name in left if name.endswith(".receipt")} & left
    assert finished
    assert finished <= set(names)
    assert run(store).entry is None


def test_stopped_append_leaves_no_visible_temporary_file(tmp_path: Path) -> None:
    crashed(tmp_path)
    hidden = [path for path in tmp_path.rglob(".*") if path.is_file()]
    assert hidden == []
    assert not os.path.lexists(tmp_path / NAME)


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=5)
FEW = st.lists(st.integers(1, 4), min_size=1, max_size=3)
LENGTHS = st.lists(st.one_of(st.none(), st.integers(0, 300)), max_size=120)


@pytest.fixture(params=["none", "gzip"])
def packing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A compression, with members so small that a shard has several."""
    monkeypatch.setattr("shardline.tfrecord.compression.MEMBER_BYTES", 700)
    return str(request.param)


def made_of(
    source: Payloads, target: int, packing: str, executor: ThreadExecutor
) -> tuple[object, ...]:
    """The files and the report of an append to a version of its own."""
    version = Version(f"memory://append-{next(_numbers)}/root", NAME)
    version.create(Schema.opaque())
    if source.before is not None:
        with pytest.raises(PowerCutError):
            append(
                version, source, target_bytes=target, compression=packing, max_quarantined=1,
                executor=executor,
            )  # fmt: skip
        source = Payloads(source.name, source.content, source.sizes[::-1])
    report = append(
        version,
        source,
        target_bytes=target,
        compression=packing,
        max_quarantined=1,
        executor=executor,
    )
    told = [version.store.read(name) for name in report.quarantine_files]
    return shard_bytes(version) if report.snapshot else [], told, report.appended[0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LENGTHS, st.tuples(SIZES, SIZES), st.integers(1, 1500), st.integers(1, 4))
def test_shards_are_independent_of_chunks_and_workers(
    packing: str,
    lengths: list[int | None],
    sizes: tuple[list[int], list[int]],
    target: int,
    workers: int,
) -> None:
    content = [None if n is None else bytes([at]) * n for at, n in enumerate(lengths)]
    one, other = (Payloads("a", content, each) for each in sizes)
    assert made_of(one, target, packing, ThreadExecutor(1)) == made_of(
        other, target, packing, ThreadExecutor(workers)
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FEW, FEW, st.integers(0, 50), st.integers(300, 1500))
def test_shards_are_independent_of_resume(
    packing: str, sizes: list[int], others: list[int], row: int, target: int
) -> None:
    content = [bytes([at]) * (37 * at % 400) if at % 11 else None for at in range(60)]
    straight = Payloads("a", content, sizes)
    stopped = Payloads("a", content, others, stop_at(row))
    assert made_of(straight, target, packing, ThreadExecutor(1)) == made_of(
        stopped, target, packing, ThreadExecutor(1)
    )
