"""Memory: what appending and rebuilding take does not grow with the data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.api import Version
from shardline.schema.schema import Feature, Schema
from tests.tfrecord.samples import big_file, bulk_needs_the_compiled_kernel, example_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sweep(keep=7, of="memory")

ROOT = Path(__file__).parents[2]
MB = 2**20
SCHEMA = Schema((Feature("id", "int64"), Feature("name", "bytes")))
ROWS = [{"id": number, "name": f"{number:0140}"} for number in range(5000)]
RECORD = example_of(id=7, name=b"7" * 140)
"""With its frame, 180 bytes."""
ALLOWED = 64 * MB

RUN = """
import resource, sys
from pathlib import Path
from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.rebuild import rebuild

what, root, *rest = sys.argv[1:]
version = Version(root, "digits/v1")
if what == "append":
    report = append(version, Path(rest[0]), compression=rest[1], target_bytes=int(rest[2]))
else:
    report = rebuild(version, "latest", target_bytes=int(rest[0]) if rest else None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, report.records)
"""
BETWEEN = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)"
"""The kernel counts what a child inherits into its peak: a small process lies between."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: the disk is not what is measured."""
    shm = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    roomy = shm.is_dir() and os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize > 2048 * MB
    with TemporaryDirectory(dir=shm if roomy else None) as name:
        yield Path(name)


def peak_of(*arguments: str | Path) -> tuple[int, int]:
    """The peak memory of an append or rebuild in a process of its own, and its records."""
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN, "-c", RUN, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    peak, records = map(int, done.stdout.split())
    return peak, records


def new_version(folder: Path, size: int) -> Path:
    root = folder / f"root-{size}"
    Version(root, "digits/v1").create(SCHEMA)
    return root


def source_of(kind: str, folder: Path, size: int) -> Path:
    """A file of about this size."""
    path = folder / f"{size}.{kind}"
    if kind == "tfrecord":
        return big_file(path, size, RECORD)
    if kind == "jsonl":
        block = "".join(json.dumps(row) + "\n" for row in ROWS)
        with path.open("w") as file:
            for _ in range(size // len(block)):
                file.write(block)
        return path
    table = pa.Table.from_pylist(ROWS * 20)
    with pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=False) as writer:
        for _ in range(size // table.nbytes):
            writer.write_table(table)
    return path


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize(
    ("kind", "large", "compression"),
    [
        ("tfrecord", 400, "none"),
        ("tfrecord", 250, "gzip"),
        ("parquet", 300, "none"),
        ("jsonl", 200, "none"),
    ],
)
def test_a_larger_source_takes_no_more_memory_to_append(
    folder: Path, kind: str, large: int, compression: str
) -> None:
    peaks = []
    for size in (50 * MB, large * MB):
        source = source_of(kind, folder, size)
        root = new_version(folder, size)
        peak, records = peak_of("append", root, source, compression, str(40 * MB))
        assert records > size // 250
        peaks.append(peak)
        source.unlink()
    assert peaks[1] - peaks[0] < ALLOWED


@bulk_needs_the_compiled_kernel
def test_nor_does_a_rebuild_into_one_file_or_back_into_several(folder: Path) -> None:
    """The index of a file of such records is half as large as the file: it is never held."""
    one, several = [], []
    for size in (10 * MB, 150 * MB):
        root = folder / f"root-{size}"
        Version(root, "digits/v1").create(Schema.opaque())
        source = big_file(folder / f"{size}.tfrecord", size, b"")
        peak_of("append", root, source, "none", str(size // 2))
        source.unlink()
        peak, records = peak_of("rebuild", root)
        one.append(peak)
        assert records > size // 20
        peak, again = peak_of("rebuild", root, str(size // 4))
        several.append(peak)
        assert again == records
        assert len(Version(root, "digits/v1").latest().shards) in {4, 5}
    assert one[1] - one[0] < ALLOWED // 2
    assert several[1] - several[0] < ALLOWED // 2
