"""Decoders: a crash is an error, processes are used again, and none outlives its parent."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline import Feature, Schema, Version
from shardline.errors import SourceError
from shardline.operations.append import append
from shardline.sources import parquet_source as decoder
from shardline.sources.parquet_source import close_idle_decoders, decode_batches, decode_types
from shardline.sources.source_identity import FileIdentity
from shardline.storage.store import open_store
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS
from tests.errors import raises

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SCHEMA = Schema((Feature("id", "int64"),))
ROWS = 3_000_000
SECONDS = 60.0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX pipes")


@pytest.fixture(autouse=True)
def _no_decoders() -> Iterator[None]:
    close_idle_decoders()
    yield
    close_idle_decoders()
    assert not decoder._alive


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of several batches: more than fits into a pipe."""
    path = tmp_path_factory.mktemp("large") / "large.parquet"
    pq.write_table(pa.table({"id": np.arange(ROWS)}), path, row_group_size=ROWS // 3)
    return path


def pids() -> list[int]:
    return sorted(process._process.pid for process in decoder._alive)


def read(path: Path, start: int = 0) -> list[int]:
    batches = decode_batches(FileIdentity(path), "parquet", DEFAULT_LIMITS, start)
    return [number for batch in batches for number in batch.rows["id"].to_pylist()]


def test_crash_of_decoder_is_an_error(large: Path) -> None:
    batches = decode_batches(FileIdentity(large), "parquet", DEFAULT_LIMITS, 0)
    next(batches)
    (pid,) = pids()
    os.kill(pid, signal.SIGSEGV)
    with raises(SourceError, "decoder-died", path=str(large)):
        list(batches)
    assert pids() == []


def test_decoder_is_used_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / f"{name}.parquet")
    assert read(tmp_path / "a.parquet") == [1, 2]
    before = pids()
    assert read(tmp_path / "b.parquet") == [1, 2]
    assert pids() == before


def test_idle_decoder_that_ended_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    read(path)
    before = pids()
    os.kill(before[0], signal.SIGKILL)
    decoder._idle[0]._process.wait()
    assert read(path) == [1, 2]
    assert pids() != before


def test_closed_reading_ends_its_decoder(large: Path) -> None:
    batches = decode_batches(FileIdentity(large), "parquet", DEFAULT_LIMITS, 0)
    next(batches)
    batches.close()  # type: ignore[attr-defined] # it is a generator
    assert pids() == []


def test_start_in_the_middle_skips_rows(large: Path) -> None:
    assert read(large, ROWS - 3) == [ROWS - 3, ROWS - 2, ROWS - 1]


@pytest.mark.parametrize("encoding", ["parquet", "arrow"])
def test_object_of_a_store_is_decoded(
    tmp_path: Path, encoding: decoder.Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"id": list(range(1000))})
    path = tmp_path / "a"
    if encoding == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    store = open_store(tmp_path)
    monkeypatch.setattr(type(store), "local_path", lambda _store, _name: None)
    origin = FileIdentity(StoredFile(store, "a"))
    monkeypatch.setattr(type(origin), "size", path.stat().st_size)
    assert decode_types(origin, encoding, DEFAULT_LIMITS) == table.schema
    (batch,) = decode_batches(origin, encoding, DEFAULT_LIMITS, 0)
    assert batch.rows["id"].to_pylist() == list(range(1000))


PARENT = """
import os, signal, sys
from pathlib import Path
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.sources import parquet_source as decoder
from shardline.sources.source_identity import FileIdentity
batches = decoder.decode_batches(FileIdentity(Path(sys.argv[1])), "parquet", DEFAULT_LIMITS, 0)
next(batches)
(process,) = decoder._alive
print(process._process.pid, flush=True)
sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open")
def test_decoder_ends_when_its_parent_is_killed(large: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(large)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        watched = os.pidfd_open(int(parent.stdout.readline()))
        parent.stdin.close()
        assert parent.wait() == -signal.SIGKILL
    assert select.select([watched], [], [], SECONDS)[0]
    os.close(watched)


def test_append_of_many_files_starts_few_decoders(tmp_path: Path) -> None:
    paths = []
    for number in range(6):
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"id": [number]}), paths[-1])
    version = Version(tmp_path / "root", "a/v1")
    assert append(version, paths, schema=SCHEMA).records == len(paths)
    assert len(pids()) <= (os.cpu_count() or 1)
