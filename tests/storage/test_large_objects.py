"""Objects too large for one request: sent in parts, whole or not there, and not held in memory."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardline.storage import open_store
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.input_file import StoredFile
from tests.storage.asking import names, write

ROOT = Path(__file__).parents[2]
MB = 2**20
SMALL, LARGE = 32 * MB, 256 * MB
WRITE = """
import resource, sys
from shardline.storage import object_store
from shardline.storage.store import open_store

object_store._LARGEST_CREATE = 16 * 2**20
store = open_store(sys.argv[1])
piece = bytes(range(256)) * 4096
with store.writer(sys.argv[2]) as file:
    for _ in range(int(sys.argv[3]) // len(piece)):
        file.write(piece)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture
def _small_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardline.storage.object_store._LARGEST_CREATE", MB)
    monkeypatch.setattr("shardline.storage.object_store._PART_BYTES", 5 * MB)


@pytest.mark.usefixtures("_small_creates")
def test_an_object_larger_than_one_request_is_sent_in_parts(s3_root: str) -> None:
    store = open_store(s3_root)
    assert store.largest_create == MB
    data = os.urandom(MB) * 17 + b"end"
    with store.writer("shards/large") as file:
        file.write(bytes(3))
        for start in range(3, len(data), 100_000):
            file.write(memoryview(data)[start : start + 100_000])
        assert names(store) == []
        file.rewrite(0, data[:3])
    assert store.read("shards/large") == data
    assert names(store, hidden=True) == ["shards/large"]


@pytest.mark.usefixtures("_small_creates")
def test_a_large_object_that_is_not_finished_is_not_there(s3_root: str) -> None:
    store = open_store(s3_root)
    with pytest.raises(ZeroDivisionError):
        write(store, "large", bytes(20 * MB), then=lambda: 1 // 0)
    assert names(store, hidden=True) == []


@pytest.mark.usefixtures("_small_creates")
def test_a_large_object_that_is_derived_is_replaced(s3_root: str) -> None:
    store = open_store(s3_root)
    store.create("index", b"old")
    with store.writer("index", derived=True) as file:
        file.write(b"new" * MB)
    assert store.read("index") == b"new" * MB


def test_large_object_write_has_constant_memory(s3_root: str) -> None:
    peaks = []
    for size in (SMALL, LARGE):
        told = subprocess.run(
            [sys.executable, "-c", WRITE, s3_root, f"of-{size}", str(size)],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        peaks.append(int(told.stdout) * 1024)
    store = open_store(s3_root)
    file = StoredFile(store, f"of-{LARGE}").open()
    expected = hashlib.sha256(bytes(range(256)) * 4096 * (LARGE // MB)).hexdigest()
    assert (file.size, HashedFile(file).finish()) == (LARGE, expected)
    store.delete(f"of-{LARGE}")
    assert peaks[1] - peaks[0] < 64 * MB
