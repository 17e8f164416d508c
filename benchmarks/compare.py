"""Compare the CPU time of two trees: `python -m benchmarks.compare OLD_TREE [--only TEXT]`.

Each case runs in one child process per tree, started with the Python of that tree's `.venv`.
The children take turns, so that noise affects both alike. The table shows the median of the
ratios of all pairs: 1.05 means that this tree needs 5% more CPU than OLD_TREE. The time of
decoders and other child processes counts, imports and preparations do not.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.data import (
    MEGABYTE,
    MEMORY_FOLDER,
    frames_of,
    large_table,
    small_table,
    write_repeated,
)
from benchmarks.timing import Side
from shardline.log.version import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.verify import verify_file
from shardline.operations.verify_version import verify_version

if TYPE_CHECKING:
    from collections.abc import Callable

_THIS_TREE = Path(__file__).parents[1]
_PAIRS = 9
_ROW_BYTES = 180
_NAME = "bench/v1"


def main(arguments: list[str] | None = None) -> None:
    """Read the options, run all pairs and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("old", type=Path, metavar="OLD_TREE", help="folder of the other checkout")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--pairs", type=int, default=_PAIRS, help="runs per tree (%(default)s)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case is not None:
        _serve(options.case)
        return
    print(f"{'case':44} {'old CPU':>9} {'new CPU':>9} {'ratio':>6}   all ratios")
    for name in _CASES:
        if options.only in name:
            _compare(name, options.old.resolve(), options.pairs)


def _compare(name: str, old: Path, pairs: int) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(tree, name)) for tree in (old, _THIS_TREE)]
        for worker in workers:
            _ask(worker)  # warms up
        times = [
            [_ask(worker) for worker in (workers if pair % 2 else workers[::-1])]
            for pair in range(pairs)
        ]
        for worker in workers:
            worker.communicate()
    turns = [turn if pair % 2 else turn[::-1] for pair, turn in enumerate(times)]
    before, after = (statistics.median(column) for column in zip(*turns, strict=True))
    ratios = sorted(new / was for was, new in turns)
    shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
    middle = statistics.median(ratios)
    print(f"{name:44} {before:8.3f}s {after:8.3f}s {middle:6.2f}   {shown}", flush=True)


def _worker(tree: Path, case: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [tree / ".venv/bin/python", __file__, str(tree), "--case", case],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(worker: subprocess.Popen[str]) -> float:
    """Let a worker run its case once; returns the seconds of CPU."""
    if worker.stdin is None or worker.stdout is None:
        raise RuntimeError("a worker has no pipes")
    worker.stdin.write("run\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError("a worker ended early")
    return float(json.loads(line))


def _serve(case: str) -> None:
    """Run a case each time a line comes in, until the input ends."""
    parent = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="shardline-compare-", dir=parent) as folder:
        side = _CASES[case](Path(folder))
        for _ in sys.stdin:
            if side.prepare is not None:
                side.prepare()
            begin = _cpu_seconds()
            side.run()
            _end_decoders()
            print(_cpu_seconds() - begin, flush=True)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _end_decoders() -> None:
    """End the decoder processes of a tree that has them, so that their time counts."""
    try:
        decoder = importlib.import_module("shardline.sources.decoder")
    except ImportError:
        return
    decoder.close_idle_decoders()


def _files(folder: Path, count: int, size: int) -> list[Path]:
    """Write TFRecord files with different records."""
    rows = max(1, size // _ROW_BYTES)
    table = small_table(min(count * rows, 60_000))
    paths = [folder / f"{number:05}.tfrecord" for number in range(count)]
    for number, path in enumerate(paths):
        part = table.slice(number * rows % table.num_rows, rows)
        ids = pa.array(np.arange(number * rows, number * rows + part.num_rows))
        part = part.set_column(part.schema.get_field_index("id"), "id", ids)
        frames = frames_of(part)
        path.write_bytes(frames * max(1, size // len(frames)))
    return paths


def _version(folder: Path, count: int, size: int) -> Version:
    """Make a version with shards of about this size."""
    landing = folder / "landing"
    landing.mkdir()
    append(Version(folder / "root", _NAME), _files(landing, count, size))
    return Version(folder / "root", _NAME)


def _verify(count: int, size: int, times: int, folder: Path) -> Side:
    version = _version(folder, count, size)

    def run() -> int:
        for _ in range(times):
            _expect(verify_version(version, workers=1).ok)
        return count

    return Side("verify", run)


def _verify_file(folder: Path) -> Side:
    source = write_repeated(folder / "plain.tfrecord", small_table(20_000), 100 * MEGABYTE)

    def run() -> int:
        _expect(verify_file(source.path).ok)
        return source.records

    return Side("verify", run)


def _check(count: int, size: int, times: int, folder: Path) -> Side:
    version = _version(folder, count, size)

    def run() -> int:
        for _ in range(times):
            check_version(version, again=True, workers=1)
        return count

    return Side("check", run)


def _take(count: int, size: int, records: int, times: int, folder: Path) -> Side:
    snapshot = _version(folder, count, size).newest()
    numbers = np.sort(np.random.default_rng(1).integers(0, snapshot.records, records))

    def run() -> int:
        for _ in range(times):
            snapshot.take(numbers)
        return records

    return Side("take", run)


def _to_arrow(count: int, size: int, times: int, folder: Path) -> Side:
    snapshot = _version(folder, count, size).newest()

    def run() -> int:
        rows = 0
        for _ in range(times):
            rows += sum(batch.num_rows for batch in snapshot.to_arrow(workers=1))
        return rows

    return Side("to_arrow", run)


def _append(write: Callable[[Path], Path | list[Path]], suffix: str, folder: Path) -> Side:
    """Append what `write` makes to a new version, with the schema that it suggests."""
    sources = write(folder / f"source{suffix}")
    root = folder / "root"

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)

    def run() -> int:
        return append(Version(root, _NAME), sources).records

    return Side("append", run, prepare=prepare)


def _tabular(rows: int) -> pa.Table:
    numbers = np.random.default_rng(3)
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "price": pa.array(numbers.random(rows).astype(np.float32)),
            "count": pa.array(numbers.integers(0, 1000, rows)),
            "name": pa.array([f"name {number}" for number in numbers.integers(0, 2**30, rows)]),
        }
    )


def _json_lines(path: Path) -> Path:
    rows = _tabular(50_000).to_pylist()
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _csv(path: Path) -> Path:
    pyarrow.csv.write_csv(_tabular(100_000), path)
    return path


def _parquet(table: Callable[[], pa.Table], path: Path) -> Path:
    pq.write_table(table(), path, row_group_size=100_000)
    return path


def _arrow(path: Path) -> Path:
    table = small_table(150_000)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=10_000)
    return path


def _tfrecord(table: Callable[[], pa.Table], path: Path) -> Path:
    return write_repeated(path, table(), 50 * MEGABYTE).path


def _wide(path: Path) -> Path:
    cells = [str(at) if at % 3 else f"text {at}" for at in range(1_000)]
    header = ",".join(f"column_{at}" for at in range(1_000))
    path.write_text("\n".join([header, *[",".join(cells)] * 10]), encoding="utf-8")
    return path


def _tiny(path: Path) -> list[Path]:
    path.mkdir()
    paths = [path / f"{number:05}.jsonl" for number in range(300)]
    for number, source in enumerate(paths):
        source.write_text(f'{{"id": {number}, "text": "row {number}"}}\n', encoding="utf-8")
    return paths


def _expect(truth: object) -> None:
    if not truth:
        raise RuntimeError("a case did not do what it measures")


_KILOBYTE = 1_000
_CASES: dict[str, Callable[[Path], Side]] = {
    "verify: 600 shards of 5 KB": partial(_verify, 600, 5 * _KILOBYTE, 1),
    "verify: 150 shards of 280 KB": partial(_verify, 150, 280 * _KILOBYTE, 2),
    "verify: 2 shards of 50 MB": partial(_verify, 2, 50 * MEGABYTE, 2),
    "verify: a plain file of 100 MB": _verify_file,
    "check: 600 shards of 5 KB": partial(_check, 600, 5 * _KILOBYTE, 1),
    "check: 150 shards of 280 KB": partial(_check, 150, 280 * _KILOBYTE, 2),
    "check: 2 shards of 50 MB": partial(_check, 2, 50 * MEGABYTE, 1),
    "take: 1 record of 50 MB shards": partial(_take, 2, 50 * MEGABYTE, 1, 200),
    "take: 1,000 records of 50 MB shards": partial(_take, 2, 50 * MEGABYTE, 1_000, 20),
    "take: 1 record of 280 KB shards": partial(_take, 150, 280 * _KILOBYTE, 1, 200),
    "take: 1,000 records of 280 KB shards": partial(_take, 150, 280 * _KILOBYTE, 1_000, 5),
    "to_arrow: 600 shards of 5 KB": partial(_to_arrow, 600, 5 * _KILOBYTE, 1),
    "to_arrow: 150 shards of 280 KB": partial(_to_arrow, 150, 280 * _KILOBYTE, 2),
    "to_arrow: 2 shards of 50 MB": partial(_to_arrow, 2, 50 * MEGABYTE, 1),
    "append: JSON lines": partial(_append, _json_lines, ".jsonl"),
    "append: CSV": partial(_append, _csv, ".csv"),
    "append: Parquet, 20 MB of columns": partial(
        _append, partial(_parquet, partial(_tabular, 1_000_000)), ".parquet"
    ),
    "append: Parquet, 20 MB of images": partial(
        _append, partial(_parquet, partial(large_table, 400)), ".parquet"
    ),
    "append: Arrow": partial(_append, _arrow, ".arrow"),
    "append: TFRecord, 180-byte records": partial(
        _append, partial(_tfrecord, partial(small_table, 20_000)), ".tfrecord"
    ),
    "append: TFRecord, 50 KB records": partial(
        _append, partial(_tfrecord, partial(large_table, 250)), ".tfrecord"
    ),
    "append: a CSV file of 1,000 columns": partial(_append, _wide, ".csv"),
    "append: 300 files of one row": partial(_append, _tiny, ""),
}


if __name__ == "__main__":
    main()
