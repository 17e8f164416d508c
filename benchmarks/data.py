"""Benchmark records: generated from a seed, then repeated up to the requested size."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.kernel.columns import encode_columns
from shardline.kernel.types import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

MEGABYTE = 1_000_000
MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
_SPARE_BYTES = 2_000_000_000
_EMBEDDING = 12
_NAME_BYTES = 26
_IMAGE_BYTES = 49_900

SMALL_COLUMNS = (
    Column("embedding", "float", "fixed", _EMBEDDING),
    Column("id", "int64"),
    Column("label", "int64"),
    Column("name", "bytes"),
    Column("weight", "float"),
)


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Generated file. `bytes` is its size, decompressed if it is compressed."""

    path: Path
    records: int
    bytes: int


@contextmanager
def working_folder(room: int) -> Iterator[Path]:
    """Yield a temporary folder, in memory if `room` bytes fit, else on disk."""
    parent = MEMORY_FOLDER if memory_free() > room + _SPARE_BYTES else None
    with tempfile.TemporaryDirectory(prefix="shardline-bench-", dir=parent) as name:
        yield Path(name)


def memory_free() -> int:
    """Return the free bytes of the memory file system, 0 without one."""
    if not MEMORY_FOLDER.is_dir() or not os.access(MEMORY_FOLDER, os.W_OK):
        return 0
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    available = next((int(line.split()[1]) for line in lines if "MemAvailable" in line), 0)
    return min(shutil.disk_usage(MEMORY_FOLDER).free, available * 1024)


def small_table(rows: int) -> pa.Table:
    """Return rows whose Examples take about 164 bytes, 180 with their frames."""
    numbers = np.random.default_rng(1)
    values = numbers.standard_normal(rows * _EMBEDDING, np.float32)
    letters = numbers.integers(97, 123, rows * _NAME_BYTES, np.uint8).tobytes()
    names = [letters[at : at + _NAME_BYTES] for at in range(0, len(letters), _NAME_BYTES)]
    return pa.table(
        {
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(values), _EMBEDDING),
            "id": pa.array(numbers.integers(0, 2**40, rows)),
            "label": pa.array(numbers.integers(0, 1000, rows)),
            "name": pa.array(names, pa.binary()),
            "weight": pa.array(numbers.random(rows, np.float32)),
        }
    )


def large_table(rows: int) -> pa.Table:
    """Return rows whose Examples take about 50 KB: an incompressible image and a label."""
    numbers = np.random.default_rng(2)
    images = [numbers.bytes(_IMAGE_BYTES) for _ in range(rows)]
    return pa.table(
        {
            "image": pa.array(images, pa.binary()),
            "label": pa.array(numbers.integers(0, 1000, rows)),
        }
    )


def frames_of(table: pa.Table) -> bytes:
    """Return the framed Examples of a table."""
    return b"".join(encode_columns(batch) for batch in table.to_batches(max_chunksize=8192))


def write_repeated(path: Path, table: pa.Table, size: int) -> RecordSet:
    """Write the Examples of a table repeatedly until the file has `size` bytes."""
    frames = frames_of(table)
    times = max(1, round(size / len(frames)))
    with path.open("wb") as file:
        for _ in range(times):
            file.write(frames)
    return RecordSet(path, times * table.num_rows, times * len(frames))


def flip_bits(path: Path, every: int) -> int:
    """Flip a random bit in each stretch of `every` bytes. Returns the number of flips."""
    places = random.Random(3)  # noqa: S311 - damage that is the same on every run
    size = path.stat().st_size
    starts = range(0, size, every)
    with path.open("r+b", buffering=0) as file:
        for start in starts:
            offset = places.randrange(start, min(start + every, size))
            byte = os.pread(file.fileno(), 1, offset)[0]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << places.randrange(8)]), offset)
    return len(starts)
