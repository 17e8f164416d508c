"""Lines about append and rebuild, compared with a plain loop, the disk and a pipe."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import tensorflow_side
from benchmarks.data import RecordSet, large_table, small_table, write_repeated
from benchmarks.lines import LARGE_ROWS, SMALL_ROWS, Line, Target, small_rows
from benchmarks.timing import Side
from benchmarks.versions import NAME, disk_folder, make_version
from shardline.api import Version
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.rebuild import rebuild
from shardline.sources import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_FILES = 8
_QUICK_ENOUGH = 20_000
_HISTORY = 5_000
_BATCH = 1_000
_MANY = 20_000
_WIDE_ROWS = 10
_APPENDS = CHECKPOINT_INTERVAL
"""Of one run: a whole interval, so that a checkpoint is in the average."""
_NAMES = (
    "append: from Parquet, 180-byte rows",
    "append: from TFRecord, 180-byte records",
    "append: from TFRecord, 50 KB records",
    "append: 1,000 records to 5,000 snapshots",
    "append: a CSV file of 20,000 columns",
    "append: 20,000 files of one row",
    "rebuild: 50 KB records into one file",
    "rebuild: 180-byte records into one file",
)


def all_lines(
    folder: Path,
    size: int,
    only: str = "",
    *,
    history: int = _HISTORY,
    appends: int = _APPENDS,
    columns: int = _MANY,
    files: int = _MANY,
) -> Iterator[Line]:
    """Yield every line whose name contains `only`. Its data stays in `folder` until the next."""
    makers: tuple[Callable[[str, Path, int], Iterator[Line]], ...] = (
        _parquet,
        _small_records,
        _large_records,
        partial(_history, history, appends),
        partial(_wide, columns),
        partial(_tiny, files),
        _large_rebuild,
        _small_rebuild,
    )
    for name, make in zip(_NAMES, makers, strict=True):
        if only in name:
            yield from make(name, folder, size)
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _parquet(name: str, folder: Path, size: int) -> Iterator[Line]:
    table = small_table(SMALL_ROWS)
    times = max(1, round(size / 180 / SMALL_ROWS))
    source = folder / "rows.parquet"
    with pq.ParquetWriter(source, table.schema) as writer:
        for _ in range(times):
            writer.write_table(table)
    records = times * SMALL_ROWS
    few = table.slice(0, max(1, SMALL_ROWS // 2))
    yield Line(
        name,
        180,
        (tensorflow_side.write_table(folder / "tensorflow", few),),
        (),
        _appending(folder / "root", [source], records),
        Target(30),
        f"TensorFlow on {few.num_rows} of {records} rows that are Python values already",
    )


def _small_records(name: str, folder: Path, size: int) -> Iterator[Line]:
    yield _from_tfrecord(name, folder, size, small_table(SMALL_ROWS))


def _large_records(name: str, folder: Path, size: int) -> Iterator[Line]:
    yield _from_tfrecord(name, folder, size, large_table(LARGE_ROWS))


def _from_tfrecord(name: str, folder: Path, size: int, table: pa.Table) -> Line:
    sources = _record_files(folder, size, table)
    records = sum(source.records for source in sources)
    return Line(
        name,
        sum(source.bytes for source in sources) / records,
        (),
        (_cat(sources, folder / "copy"),),
        _appending(folder / "root", [source.path for source in sources], records),
        Target(of_limit=0.4),
        f"{len(sources)} files; each read twice: for its sha256, and to check every record",
    )


def _record_files(folder: Path, size: int, table: pa.Table) -> list[RecordSet]:
    return [
        write_repeated(folder / f"{number}.tfrecord", table, size // _FILES)
        for number in range(_FILES)
    ]


def _appending(root: Path, sources: list[Path], records: int) -> Side:
    schema = open_source(sources[0]).infer()

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)

    def run() -> int:
        report = append(Version(root, NAME), sources, schema=schema, on_duplicate="append")
        _expect(report.records == records)
        return records

    return Side("append", run, prepare=prepare)


def _history(history: int, appends: int, name: str, folder: Path, size: int) -> Iterator[Line]:
    del folder, size
    table = small_table(_BATCH)
    with disk_folder() as disk:
        landed = disk / "landed.parquet"
        pq.write_table(table, landed)
        schema = open_source(landed).infer()
        sides = []
        for before in (0, history):
            root = disk / f"after-{before}"
            make_version(root, before, schema)
            sides.append(_again_and_again(root, landed, appends, f"after {before:,} appends"))
        remark = f"{appends} appends to a version held open, on a disk"
        target = Target(of_limit=1 / 1.2)
        yield Line(name, 0, (), (sides[0],), sides[1], target, remark, "append")


def _wide(columns: int, name: str, folder: Path, size: int) -> Iterator[Line]:
    """Measure the cost of a column: few rows with many cells."""
    del size
    source = folder / "wide.csv"
    cells = [str(at) if at % 3 else f"text {at}" for at in range(columns)]
    header = ",".join(f"column_{at}" for at in range(columns))
    source.write_text("\n".join([header, *[",".join(cells)] * _WIDE_ROWS]))
    root, copy = folder / "root", folder / "copy"
    ours = _inferring(root, [source], columns)
    limit = _cat([RecordSet(source, columns, source.stat().st_size)], copy)
    yield Line(name, 0, (), (limit,), ours, Target(), f"{_WIDE_ROWS} rows, inferred", "column")


def _tiny(files: int, name: str, folder: Path, size: int) -> Iterator[Line]:
    """Measure the cost of a source: many sources of one row, on a disk, where files are synced."""
    del folder, size
    with disk_folder() as disk:
        landing = disk / "landing"
        landing.mkdir()
        sources = [landing / f"{number:05}.jsonl" for number in range(files)]
        for number, source in enumerate(sources):
            source.write_text(f'{{"id": {number}, "text": "row {number}"}}\n')
        ours = _inferring(disk / "root", sources, files)
        limit = _synced_copies(sources, disk / "copies")
        yield Line(name, 0, (), (limit,), ours, Target(), "inferred, on a disk", "file")


def _inferring(root: Path, sources: list[Path], units: int) -> Side:
    """Append sources to a new version with the inferred schema."""

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)

    def run() -> int:
        report = append(Version(root, NAME), sources, on_duplicate="append")
        _expect(len(report.appended) == len(sources))
        return units

    return Side("append", run, prepare=prepare)


def _synced_copies(sources: list[Path], out: Path) -> Side:
    """Copy each file durably."""

    def prepare() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def run() -> int:
        for source in sources:
            with (out / source.name).open("xb") as file:
                file.write(source.read_bytes())
                file.flush()
                os.fsync(file.fileno())
        return len(sources)

    return Side("cp, fsync", run, prepare=prepare)


def _again_and_again(root: Path, landed: Path, appends: int, what: str) -> Side:
    """Append the same rows under other names to a copy of the version."""
    kept = root.with_name(f"{root.name}-as-made")
    root.rename(kept)
    landing = root.with_name(f"{root.name}-landing")
    landing.mkdir()
    sources = [landing / f"{number}.parquet" for number in range(appends)]
    for source in sources:
        shutil.copy(landed, source)
    version = Version(root, NAME)

    def prepare() -> None:
        nonlocal version
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(kept, root)
        version = Version(root, NAME)
        version.latest() if version.state.snapshot else version.schema

    def run() -> int:
        for source in sources:
            _expect(append(version, source, on_duplicate="append").records == _BATCH)
        return len(sources)

    return Side(what, run, prepare=prepare)


def _large_rebuild(name: str, folder: Path, size: int) -> Iterator[Line]:
    yield _rebuilding(name, folder, size, large_table(LARGE_ROWS), Target(5, 0.7))


def _small_rebuild(name: str, folder: Path, size: int) -> Iterator[Line]:
    yield _rebuilding(name, folder, size, small_table(small_rows(size)), Target())


def _rebuilding(name: str, folder: Path, size: int, table: pa.Table, target: Target) -> Line:
    root = folder / "root"
    sources = _record_files(folder, size, table)
    version = Version(root, NAME)
    append(version, [source.path for source in sources], on_duplicate="append")
    check_version(version)
    records = version.latest().records
    into = Version(root, "digits/single")

    def prepare() -> None:
        nonlocal into
        shutil.rmtree(root / "digits/single", ignore_errors=True)
        for shard in (root / "digits/shards").glob("single.*"):
            shard.unlink()
        into = Version(root, "digits/single")

    def run() -> int:
        _expect(rebuild(version, into=into).records == records)
        return records

    shards = [
        RecordSet(root / version.shard_name(shard), shard.records, shard.bytes)
        for shard in version.latest().shards
    ]
    few = shards if records < _QUICK_ENOUGH else shards[:1]
    return Line(
        name,
        version.latest().bytes / records,
        (tensorflow_side.copy_records(few, folder / "tensorflow"),),
        (_pipe(shards, folder / "copy"),),
        Side("rebuild", run, prepare=prepare),
        target,
        f"{len(shards)} shards; TensorFlow on {sum(s.records for s in few)} of {records} records",
    )


def _cat(sources: list[RecordSet], out: Path) -> Side:
    """Concatenate the files, as `cat` does."""
    paths = [str(source.path) for source in sources]

    def run() -> int:
        with out.open("xb") as file:
            subprocess.run(["/bin/cat", *paths], check=True, stdout=file)
        return sum(source.records for source in sources)

    return Side("cat", run, out)


def _pipe(sources: list[RecordSet], out: Path) -> Side:
    """Concatenate the files and hash the result, as a shell does."""
    command = 'cat "$@" | tee "$0" | sha256sum'
    arguments = ["/bin/sh", "-c", command, str(out), *(str(source.path) for source in sources)]

    def run() -> int:
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        return sum(source.records for source in sources)

    return Side("cat | tee | sha256sum", run, out)


def _expect(right: bool) -> None:  # noqa: FBT001 - an assertion
    if not right:
        raise RuntimeError("a side did not do the whole work, so its time says nothing")
