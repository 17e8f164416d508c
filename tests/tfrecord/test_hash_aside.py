"""A hash made by another thread is that of the bytes as they were when they were added."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from shardline.storage import open_store
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import BackgroundHash
from shardline.tfrecord.writer import write_stored
from tests.kernel.frames import framed

if TYPE_CHECKING:
    from pathlib import Path


def test_what_changes_after_it_was_added_does_not_matter() -> None:
    buffer = bytearray(2**20)
    aside, plain = BackgroundHash(), hashlib.sha256()
    for number in range(50):
        buffer[:] = bytes([number]) * len(buffer)
        aside.update(memoryview(buffer)[number:])
        plain.update(buffer[number:])
    assert aside.hexdigest() == plain.hexdigest()


def test_nothing_added_is_the_hash_of_nothing() -> None:
    assert BackgroundHash().hexdigest() == hashlib.sha256().hexdigest()


def test_a_file_that_is_left_unfinished_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    def leave() -> None:
        with write_stored(open_store(tmp_path), "file", Compression.NONE, aside=True) as sink:
            sink.add(framed(b"record"), np.array([12]), np.array([6]))
            assert set(threading.enumerate()) > before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert set(threading.enumerate()) <= before
