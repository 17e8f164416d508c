"""Append: the records of each source exactly once, in shards that TensorFlow reads as they are."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.api import Version
from shardline.errors import InvalidRecordsError, SchemaMismatchError, SourceError
from shardline.execution.executor import ThreadExecutor
from shardline.log.model import Checks
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Feature, Schema
from shardline.tfrecord import IndexedFile
from tests.errors import raises
from tests.kernel.frames import framed
from tests.operations.landings import (
    NAME,
    SCHEMA,
    Payloads,
    id_of,
    ids,
    json_lines,
    payloads,
    rows,
    shard_bytes,
    stored,
)
from tests.storage.tracing import traced
from tests.tfrecord.samples import example_of, made, read_by_tensorflow, write_by_tensorflow

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path / "root", NAME)


@pytest.fixture(params=["memory", "s3"])
def remote(request: pytest.FixtureRequest) -> Version:
    """A version in an object store."""
    if request.param == "s3":
        return Version(request.getfixturevalue("s3_root"), NAME)
    return Version(f"memory://append-{secrets.token_hex(8)}/root", NAME)


def test_append_creates_version_with_inferred_schema(version: Version, tmp_path: Path) -> None:
    report = append(version, json_lines(tmp_path / "a.jsonl", rows(0, 10)))
    assert report.created
    assert (report.records, report.snapshot, report.quarantined_rows) == (10, 1, 0)
    assert version.schema == SCHEMA
    assert ids(version) == list(range(10))
    again = append(version, json_lines(tmp_path / "b.jsonl", rows(10, 20)))
    assert not again.created
    assert ids(Version(version.store, NAME)) == list(range(20))
    assert verify_version(version).ok


def test_append_creates_version_as_declared(version: Version, tmp_path: Path) -> None:
    declared = Schema(
        (
            Feature("id", "float"),
            Feature("name", "bytes", required=False),
            Feature("x", "int64", (), required=False),
        )
    )
    checks = Checks(("integrity",), ("counts",))
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 3)), schema=declared, checks=checks)
    assert version.schema.fingerprint == declared.fingerprint
    assert version.state.checks == checks


def test_append_source_of_other_schema_raises(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 3)))
    before = version.state.number
    other = json_lines(tmp_path / "b.jsonl", [{"id": "x", "label": "y"}] * 3)
    with pytest.raises(SchemaMismatchError) as caught:
        append(version, other)
    told = str(caught.value)
    assert str(other) in told
    assert "feature 'name': removed" in told
    assert "feature 'label': added" in told
    assert "feature 'id'" in told
    assert "new version" in caught.value.describe()
    assert version.refresh() == []
    assert version.state.number == before


def test_append_other_declared_schema_raises(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 3)))
    declared = Schema((Feature("id", "int64"), Feature("height", "float")))
    with raises(SchemaMismatchError, "schema-mismatch", version=NAME) as caught:
        append(version, json_lines(tmp_path / "b.jsonl", rows(3, 6)), schema=declared)
    for told in ("'height': added", "'name': removed"):
        assert told in str(caught.value)
    assert caught.value.hint is not None
    assert append(version, tmp_path / "b.jsonl", schema=SCHEMA).records == 3


def test_append_empty_source_infers_no_schema(version: Version, tmp_path: Path) -> None:
    empty = json_lines(tmp_path / "empty.jsonl", [])
    with raises(SchemaMismatchError, "missing-schema", version=NAME) as caught:
        append(version, empty)
    assert str(empty) in str(caught.value)
    assert not version.exists
    append(version, [empty, json_lines(tmp_path / "a.jsonl", rows(0, 3))])
    assert ids(version) == [0, 1, 2]


def test_append_empty_source_once_without_shard(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 3)))
    empty = json_lines(tmp_path / "empty.jsonl", [])
    report = append(version, empty)
    assert report.entry is not None
    assert [source.path for source in report.entry.sources] == [str(empty)]
    assert (report.snapshot, report.records, version.state.snapshot) == (None, 0, 1)
    assert len(version.latest().shards) == 1
    again = append(version, empty)
    assert again.entry is None
    assert [(skipped.code, skipped.entry) for skipped in again.skipped] == [("appended", 3)]


def test_append_repeated_source_once(version: Version, tmp_path: Path) -> None:
    source = json_lines(tmp_path / "a.jsonl", rows(0, 10))
    report = append(version, [source, str(source), source])
    assert [skipped.code for skipped in report.skipped] == ["named-twice"] * 2
    again = append(Version(version.store, NAME), [source])
    assert again.entry is None
    assert [(skipped.code, skipped.entry) for skipped in again.skipped] == [("appended", 2)]
    both = append(version, [source, json_lines(tmp_path / "b.jsonl", rows(10, 12))])
    assert [landing.records for landing in both.appended] == [2]
    assert ids(version) == list(range(12))


def test_append_batches_of_one_name_raises(
    version: Version,
) -> None:
    tables = [pa.Table.from_pylist(rows(0, 3)), pa.Table.from_pylist(rows(3, 6))]
    with raises(SourceError, "duplicate-batch", version=NAME):
        append(version, tables, batch="monday")
    assert not version.exists


def test_append_dry_run_changes_nothing(version: Version, tmp_path: Path) -> None:
    first, second = (json_lines(tmp_path / f"{n}.jsonl", rows(n, n + 2)) for n in (0, 2))
    assert [new.path for new in append(version, first, dry_run=True).new] == [str(first)]
    assert not (tmp_path / "root").exists()
    append(version, first)
    report = append(version, [first, second], dry_run=True)
    assert [new.path for new in report.new] == [str(second)]
    assert [skipped.source.path for skipped in report.skipped] == [str(first)]
    assert report.entry is None
    assert ids(Version(version.store, NAME)) == [0, 1]


def test_append_rolled_back_source_needs_retry(version: Version, tmp_path: Path) -> None:
    first, second = (json_lines(tmp_path / f"{n}.jsonl", rows(n, n + 2)) for n in (0, 2))
    append(version, first)
    append(version, second)
    version.restore(1)
    assert append(version, second).entry is None
    report = append(version, [first, second], retry_rejected=True)
    assert [landing.source.path for landing in report.appended] == [str(second)]
    assert [skipped.source.path for skipped in report.skipped] == [str(first)]
    assert ids(version) == [0, 1, 2, 3]
    assert verify_version(version).ok


def test_append_rejected_source_needs_retry(version: Version, tmp_path: Path) -> None:
    first, second = (json_lines(tmp_path / f"{n}.jsonl", rows(n, n + 2)) for n in (0, 2))
    append(version, first)
    append(version, second)
    rejected = version.latest().shards[1]
    version.reject(2)
    report = append(version, second)
    assert report.entry is None
    assert (report.skipped[0].code, report.skipped[0].entry) == ("rejected", 4)
    append(version, second, retry_rejected=True)
    assert ids(version) == [0, 1, 2, 3]
    relanded = version.latest().shards[1]
    assert relanded.sha256 == rejected.sha256
    assert relanded.name != rejected.name, "what the log says of the old one is not true of it"
    assert check_version(version).published == version.state.snapshot


def test_append_cuts_shards_before_target(
    version: Version,
) -> None:
    content = [bytes([n]) * (n % 7 * 10) for n in range(100)]
    append(version, Payloads("a", content, sizes=(7, 1, 30)), target_bytes=200)
    assert payloads(version) == content
    shards = version.latest().shards
    firsts = np.cumsum([0, *(shard.records for shard in shards)])
    for shard, behind in zip(shards, firsts[1:], strict=True):
        assert shard.bytes <= 200
        if behind < len(content):
            assert shard.bytes + len(content[behind]) + 16 > 200
    assert len(shards) > 10


def test_append_large_record_to_own_shard(version: Version) -> None:
    content = [b"a", b"b" * 500, b"c", b"d" * 500]
    append(version, Payloads("a", content), target_bytes=100)
    assert payloads(version) == content
    assert [shard.records for shard in version.latest().shards] == [1, 1, 1, 1]


def test_append_cuts_compressed_shard_at_member(version: Version) -> None:
    chance = np.random.default_rng(7)
    content = [chance.bytes(10_000) for _ in range(600)]
    append(version, Payloads("a", content), target_bytes=1_500_000, compression="gzip")
    assert payloads(version) == content
    shards = version.latest().shards
    assert [shard.compression for shard in shards] == ["gzip"] * len(shards)
    assert len(shards) == 3
    for shard in shards[:-1]:
        assert 1_500_000 <= shard.bytes < 1_500_000 + 2**20 + 20_000


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_tensorflow_reads_appended_shards(
    version: Version, tmp_path: Path, compression: str
) -> None:
    source = json_lines(tmp_path / "a.jsonl", rows(0, 1000))
    target = 20_000 if compression == "none" else 1
    append(version, source, target_bytes=target, compression=compression)
    found = []
    for shard in version.latest().shards:
        path = tmp_path / "root" / version.shard_name(shard)
        read = read_by_tensorflow(path, "GZIP" if compression == "gzip" else "")
        found += read
        with IndexedFile(path) as indexed:
            assert len(indexed) == shard.records
            assert [indexed[at] for at in range(0, shard.records, 17)] == read[::17]
            assert list(indexed.read(shard.records - 3)) == read[-3:]
    assert [id_of(payload) for payload in found] == list(range(1000))
    assert found[0] == example_of(id=0, name="größe 0".encode())


def test_append_keeps_order_of_sources(version: Version, tmp_path: Path) -> None:
    table = pa.table({"id": [2, 3], "name": ["größe 2", "größe 3"]})
    pq.write_table(table, tmp_path / "b.parquet")
    records = [example_of(id=n, name=f"größe {n}".encode()) for n in (4, 5)]
    sources = [
        json_lines(tmp_path / "a.jsonl", rows(0, 2)),
        tmp_path / "b.parquet",
        write_by_tensorflow(tmp_path / "c.tfrecord", records, "GZIP"),
    ]
    append(version, sources, schema=SCHEMA)
    append(version, rows(6, 8), batch="monday")
    append(version, (row for row in rows(8, 10)), batch="tuesday")
    assert append(version, rows(6, 8), batch="monday").entry is None
    assert payloads(version) == [example_of(id=n, name=f"größe {n}".encode()) for n in range(10)]


def test_append_rows_without_batch_raises(version: Version) -> None:
    with pytest.raises(SourceError, match="batch="):
        append(version, rows(0, 2))
    assert not version.exists


def test_append_batch_uses_current_rows(version: Version) -> None:
    """Its name does not tell its rows, so nothing is used of what a failed append left."""
    append(version, rows(0, 2), batch="first")
    bad: list[dict[str, object]] = [*rows(2, 200), {"id": "none", "name": "x"}]
    for share in (0.0, 0.001):
        with pytest.raises(InvalidRecordsError):
            append(version, bad, batch="b", max_quarantined=share, target_bytes=500)
    append(version, rows(1002, 1200), batch="b", target_bytes=500)
    assert ids(version) == [0, 1, *range(1002, 1200)]


def test_append_with_other_options_writes_new_shards(version: Version, tmp_path: Path) -> None:
    """The name of a shard tells all that makes a difference to its bytes."""
    from shardline.tfrecord.reader import Limits  # noqa: PLC0415

    append(version, rows(0, 1), batch="first")
    large = json_lines(
        tmp_path / "a.jsonl", [*rows(0, 9), {"id": 9, "name": "x" * 500}, {"id": "a", "name": ""}]
    )
    with raises(InvalidRecordsError, "invalid-rows", bad=2, rows=11):
        append(version, large, max_quarantined=0.1, limits=Limits(max_record_bytes=100))
    append(version, large, max_quarantined=0.1)
    assert ids(version) == [0, *range(10)]


def test_append_changes_no_existing_file(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 100)), target_bytes=1000)
    check_version(version)

    def looks() -> dict[str, tuple[int, ...]]:
        found = {}
        for path in sorted((tmp_path / "root").rglob("*")):
            status = path.stat()
            times = (status.st_mtime_ns, status.st_size) if path.is_file() else ()
            found[str(path)] = (status.st_ino, *times)
        return found

    before = looks()
    json_lines(tmp_path / "b.jsonl", rows(100, 200))
    code = f"""
from shardline.api import Version
from shardline.operations.append import append
told(lambda: append(Version(store, {NAME!r}), {str(tmp_path / "b.jsonl")!r}, target_bytes=1000))
"""
    told, calls = traced(code, tmp_path / "root", "-e", "trace=openat,open,unlink,rename,truncate")
    assert told == [("done", "")]
    assert {path: look for path, look in looks().items() if path in before} == before
    assert ids(Version(version.store, NAME)) == list(range(200))
    old = {os.path.basename(path) for path in before if path.endswith(".tfrecord")}  # noqa: PTH119
    assert len(old) > 3
    touched = [call for call in calls if any(name in call for name in old)]
    assert touched == [], "a shard of before was opened"


def test_append_to_object_store_matches_disk(remote: Version, tmp_path: Path) -> None:
    first = json_lines(tmp_path / "a.jsonl", rows(0, 500))
    append(remote, first, target_bytes=5000)
    append(remote, [first, json_lines(tmp_path / "b.jsonl", rows(500, 510))], compression="gzip")
    assert ids(Version(remote.store.uri, NAME)) == list(range(510))
    assert len(remote.latest().shards) > 3
    assert verify_version(remote).ok
    local = Version(tmp_path / "root", NAME)
    append(local, first, target_bytes=5000)
    assert shard_bytes(remote)[:-1] == shard_bytes(local)
    beside = stored(local, "shards")
    assert {
        name: data for name, data in stored(remote, "shards").items() if name in beside
    } == beside


def test_append_stored_source_matches_file(s3_root: str) -> None:
    version = Version(s3_root, NAME)
    data = "".join(json.dumps(one) + "\n" for one in rows(0, 100)).encode()
    version.store.create("inbox/a.jsonl", data)
    report = append(version, f"{s3_root}/inbox/a.jsonl")
    assert report.appended[0].source.path == f"{s3_root}/inbox/a.jsonl"
    assert append(version, f"{s3_root}/inbox/a.jsonl").entry is None
    assert ids(version) == list(range(100))


class ChangingExecutor(ThreadExecutor):
    """Executor that replaces a file between its hash and its append. Size and times stay."""

    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__()
        self._path = path
        self._content = content
        self._runs = 0

    def run(self, work: Any, tasks: Any, progress: Any = None) -> Any:  # noqa: ANN401 - any task
        self._runs += 1
        if self._runs == 2:
            stat = self._path.stat()
            assert len(self._content) == stat.st_size
            self._path.write_bytes(self._content)
            os.utime(self._path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        return super().run(work, tasks, progress)


@pytest.mark.parametrize("is_corrupt", [False, True])
def test_append_tfrecord_changed_after_hash_commits_nothing(
    version: Version, tmp_path: Path, *, is_corrupt: bool
) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*(example_of(id=1) for _ in range(50_000))))
    content = framed(*(example_of(id=2) for _ in range(50_000)))
    content = content[:-1] + b"\0" if is_corrupt else content
    schema = Schema((Feature("id", "int64"),))
    with raises(SourceError, "source-changed", path=str(path)):
        append(version, path, schema=schema, executor=ChangingExecutor(path, content))
    assert not version.exists
