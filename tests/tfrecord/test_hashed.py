"""Hashing a file by what is read of it anyway, and handing that on."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.input_file import open_regular
from shardline.tfrecord.reader import RecordFile
from tests.kernel.examples import seeded
from tests.operations.shard_files import KINDS, Kind, file_of
from tests.tfrecord.samples import made


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(1, 50)), max_size=8))
@settings(max_examples=50)
def test_what_is_hashed_is_handed_on_once_and_in_order(reads: list[tuple[int, int]]) -> None:
    data = seeded(3).randbytes(100)
    with tempfile.TemporaryDirectory() as folder:
        path = made(Path(folder, "file"), data)
        handed: list[bytes] = []
        file = HashedFile(open_regular(path), lambda piece: handed.append(bytes(piece)))
        for offset, size in reads:
            assert file.pread(size, offset) == data[offset : offset + size]
        buffer = memoryview(bytearray(30))
        file.seek(7)
        assert bytes(buffer[: file.readinto(buffer)]) == data[7:37]
        assert data.startswith(b"".join(handed))
        assert file.finish() == hashlib.sha256(data).hexdigest()
        assert b"".join(handed) == data
        file.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_of_a_hashed_file_hands_on_all_of_it(tmp_path: Path, kind: Kind) -> None:
    data = file_of(kind, [b"a" * 40, b"", b"b" * 70])
    handed: list[bytes] = []
    opened = open_regular(made(tmp_path / "file", data))
    file = HashedFile(opened, lambda piece: handed.append(bytes(piece)))
    with RecordFile(file) as read:
        assert list(read) == [b"a" * 40, b"", b"b" * 70]
        assert b"".join(handed) == data
        assert file.finish() == hashlib.sha256(data).hexdigest()
