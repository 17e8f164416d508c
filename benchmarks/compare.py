"""Compare the CPU time of two trees: `python -m benchmarks.compare OLD_TREE [--only TEXT]`.

Each case runs in a child process per tree: the tree's own `benchmarks/compare.py`, started with the
Python of its `.venv`. The children take turns, run by run, so that noise affects both alike. A pair
sums as many runs of each as take `TURN_SECONDS`; each third of the pairs has new processes. The
table shows the median of the ratios of all pairs: 1.05 means that this tree needs 5% more CPU than
OLD_TREE. Pass this tree as OLD_TREE to see the noise.

The time of decoders and other child processes counts, imports and preparations do not. A case is
"cold" if each run starts a decoder and ends it, and a "command" is a whole process, with imports.
Rates have no counterpart in the other tree: their lines show rows per second of CPU time.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import shardline
from benchmarks.data import (
    MEGABYTE,
    MEMORY_FOLDER,
    frames_of,
    large_table,
    small_table,
    write_repeated,
)
from benchmarks.timing import Side
from shardline import kernel
from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.verify_files import verify_file
from shardline.operations.verify_version import verify_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.lines import Line

TURN_SECONDS = 0.3
_THIS_TREE = Path(__file__).parents[1]
_PAIRS = 9
_PROCESSES = 3
"""How many times a case starts processes: where memory happens to be mapped changes the speed."""
_ROW_BYTES = 180
_NAME = "bench/v1"


@dataclass(frozen=True, slots=True)
class Case:
    """Work to compare. With `is_cold`, decoders end after each run."""

    make: Callable[[Path], Side]
    is_cold: bool = False


def main(arguments: list[str] | None = None) -> None:
    """Read the options, run all pairs and print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("old", type=Path, metavar="OLD_TREE", help="folder of the other checkout")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--pairs", type=int, default=_PAIRS, help="runs per tree (%(default)s)")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case is not None:
        _serve(options.case, options.old)
        return
    print(f"{'case':46} {'old CPU':>9} {'new CPU':>9} {'ratio':>6} {'load':>5}   all ratios")
    for name in (*_CASES, *_LINES):
        if options.only in name:
            _compare(name, options.old.resolve(), options.pairs)
    for name in _RATES:
        if options.only in name:
            _rate(name, options.pairs)


def _compare(name: str, old: Path, pairs: int) -> None:
    turns: list[tuple[float, float]] = []
    load = 0.0
    counts = [len(part) for part in np.array_split(range(pairs), min(_PROCESSES, pairs))]
    for count in counts:
        with ExitStack() as stack:
            workers = [stack.enter_context(_worker(tree, name)) for tree in (old, _THIS_TREE)]
            warm = [_ask(worker)[1] for worker in workers]
            runs = max(1, math.ceil(TURN_SECONDS / max(min(warm), 0.001)))
            for _ in range(count):
                turns.append(_pair(workers, runs))
                load = max(load, os.getloadavg()[0])
            for worker in workers:
                worker.communicate()
    before, after = (statistics.median(column) for column in zip(*turns, strict=True))
    ratios = sorted(new / was for was, new in turns)
    shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
    middle = statistics.median(ratios)
    line = f"{name:46} {before:8.3f}s {after:8.3f}s {middle:6.2f} {load:5.1f}   {shown}"
    print(line, flush=True)


def _pair(workers: Sequence[subprocess.Popen[str]], runs: int) -> tuple[float, float]:
    """Run both workers in turns. Returns the seconds of each per run."""
    spent = [0.0, 0.0]
    for run in range(runs):
        for at in (0, 1) if run % 2 else (1, 0):
            spent[at] += _ask(workers[at])[1]
    return spent[0] / runs, spent[1] / runs


def _rate(name: str, pairs: int) -> None:
    with _worker(_THIS_TREE, name) as worker:
        _ask(worker)  # warms up
        rates = sorted(rows / seconds for rows, seconds in (_ask(worker) for _ in range(pairs)))
        worker.communicate()
    shown = " ".join(f"{rate:,.0f}" for rate in rates)
    load = os.getloadavg()[0]
    print(f"{name:46} {statistics.median(rates):16,.0f} rows/s {load:8.1f}   {shown}", flush=True)


def _worker(tree: Path, case: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        [tree / ".venv/bin/python", tree / "benchmarks/compare.py", str(tree), "--case", case],
        cwd=tree,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ask(worker: subprocess.Popen[str]) -> tuple[int, float]:
    """Run the case of a worker once. Returns the records and the CPU seconds."""
    if worker.stdin is None or worker.stdout is None:
        raise RuntimeError("a worker has no pipes")
    worker.stdin.write("run\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        raise RuntimeError("a worker ended early")
    records, seconds = json.loads(line)
    return int(records), float(seconds)


def _serve(name: str, tree: Path) -> None:
    """Run a case for each input line, until the input ends."""
    _expect(Path(shardline.__file__).is_relative_to(tree))
    _expect(Path(sys.modules["benchmarks.data"].__file__ or "").is_relative_to(tree))
    _expect(kernel.NAME != "reference")
    parent = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
    cases = {**_CASES, **{line: Case(partial(_line, line)) for line in _LINES}}
    case = cases[name] if name in cases else Case(_RATES[name])
    with tempfile.TemporaryDirectory(prefix="shardline-compare-", dir=parent) as folder:
        side = case.make(Path(folder))
        for _ in sys.stdin:
            if side.prepare is not None:
                side.prepare()
            begin = _cpu_seconds()
            records = side.run()
            if case.is_cold:
                _end_decoders()
            print(json.dumps([records, _cpu_seconds() - begin]), flush=True)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and all its children, including running ones."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) + _running_seconds()


def _running_seconds() -> float:
    """Return the CPU time of running child processes. Linux reports it per thread."""
    nanoseconds = 0
    for listed in Path("/proc/self/task").glob("*/children"):
        for child in listed.read_text(encoding="ascii").split():
            for thread in Path("/proc", child, "task").glob("*/schedstat"):
                with suppress(FileNotFoundError, ProcessLookupError):
                    nanoseconds += int(thread.read_text(encoding="ascii").split()[0])
    return nanoseconds / 1e9


def _end_decoders() -> None:
    """End idle decoder processes, so that the start of the next one counts."""
    try:
        decoder = importlib.import_module("shardline.sources.parquet_source")
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
    """Append a version with shards of about this size."""
    landing = folder / "landing"
    landing.mkdir()
    append(Version(folder / "root", _NAME), _files(landing, count, size))
    return Version(folder / "root", _NAME)


def _verify(count: int, size: int, folder: Path) -> Side:
    version = _version(folder, count, size)

    def run() -> int:
        _expect(verify_version(version, workers=1).ok)
        return count

    return Side("verify", run)


def _verify_file(folder: Path) -> Side:
    source = write_repeated(folder / "plain.tfrecord", small_table(20_000), 100 * MEGABYTE)

    def run() -> int:
        _expect(verify_file(source.path).ok)
        return source.records

    return Side("verify", run)


def _check(count: int, size: int, folder: Path) -> Side:
    version = _version(folder, count, size)

    def run() -> int:
        check_version(version, recheck=True, workers=1)
        return count

    return Side("check", run)


def _take(count: int, size: int, records: int, times: int, folder: Path) -> Side:
    snapshot = _version(folder, count, size).latest()
    numbers = np.sort(np.random.default_rng(1).integers(0, snapshot.records, records))

    def run() -> int:
        for _ in range(times):
            snapshot.take(numbers)
        return records

    return Side("take", run)


def _to_arrow(count: int, size: int, folder: Path) -> Side:
    snapshot = _version(folder, count, size).latest()

    def run() -> int:
        return sum(batch.num_rows for batch in snapshot.to_arrow(workers=1))

    return Side("to_arrow", run)


def _append(write: Callable[[Path], Path | list[Path]], suffix: str, folder: Path) -> Side:
    """Append the files of `write` to a new version with the inferred schema."""
    sources = write(folder / f"source{suffix}")
    root = folder / "root"

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)

    def run() -> int:
        return append(Version(root, _NAME), sources).records

    return Side("append", run, prepare=prepare)


def _command(write: Callable[[Path], Path | list[Path]], suffix: str, folder: Path) -> Side:
    """Append the files of `write` with the command: a whole process, including imports."""
    source = write(folder / f"source{suffix}")
    root = folder / "root"

    def prepare() -> None:
        shutil.rmtree(root, ignore_errors=True)

    def run() -> int:
        command = ["-m", "shardline", "append", "--root", str(root), _NAME, str(source)]
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        return 1

    return Side("command", run, prepare=prepare)


def _expectations(number: int, folder: Path) -> Side:
    """Evaluate a suite of expectations."""
    from benchmarks import check_lines  # noqa: PLC0415 - the other tree may not have it

    lines = check_lines.all_lines(folder, 40 * MEGABYTE)
    return next(side for at, side in enumerate(line.ours for line in lines) if at == number)


def _line(name: str, folder: Path) -> Side:
    """Prepare Shardline's side of a line of `python -m benchmarks`."""
    module = importlib.import_module(f"benchmarks.{_LINES[name]}")
    wanted: dict[str, Any] = {"only": name}
    if "folder" in inspect.signature(module.all_lines).parameters:
        importlib.import_module("benchmarks.tensorflow_side").load()
        wanted |= {"folder": folder, "size": _LINE_BYTES}
    lines: Iterator[Line] = module.all_lines(**wanted)
    _OPEN_LINES.append(lines)  # the data of a line is deleted when its generator ends
    return next(line.ours for line in lines if line.name == name)


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


def _arrow(make: Callable[[], pa.Table], path: Path) -> Path:
    table = make()
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
_PARQUET = {
    "10 KB of columns": partial(_parquet, partial(_tabular, 500)),
    "20 MB of columns": partial(_parquet, partial(_tabular, 1_000_000)),
    "20 MB of images": partial(_parquet, partial(large_table, 400)),
    "100 MB of images": partial(_parquet, partial(large_table, 2_000)),
}
_ARROW = {
    "10 KB of columns": partial(_arrow, partial(small_table, 100)),
    "20 MB of columns": partial(_arrow, partial(small_table, 150_000)),
    "20 MB of images": partial(_arrow, partial(large_table, 400)),
    "100 MB of images": partial(_arrow, partial(large_table, 2_000)),
}
_CASES: dict[str, Case] = {
    "verify: a plain file of 100 MB": Case(_verify_file),
    "verify: 600 shards of 5 KB": Case(partial(_verify, 600, 5 * _KILOBYTE)),
    "verify: 150 shards of 280 KB": Case(partial(_verify, 150, 280 * _KILOBYTE)),
    "verify: 2 shards of 50 MB": Case(partial(_verify, 2, 50 * MEGABYTE)),
    "check: 600 shards of 5 KB": Case(partial(_check, 600, 5 * _KILOBYTE)),
    "check: 150 shards of 280 KB": Case(partial(_check, 150, 280 * _KILOBYTE)),
    "check: 2 shards of 50 MB": Case(partial(_check, 2, 50 * MEGABYTE)),
    "take: 1 record of 5 KB shards": Case(partial(_take, 600, 5 * _KILOBYTE, 1, 20)),
    "take: 1,000 records of 5 KB shards": Case(partial(_take, 600, 5 * _KILOBYTE, 1_000, 1)),
    "take: 1 record of 280 KB shards": Case(partial(_take, 150, 280 * _KILOBYTE, 1, 20)),
    "take: 1,000 records of 280 KB shards": Case(partial(_take, 150, 280 * _KILOBYTE, 1_000, 1)),
    "take: 1 record of 50 MB shards": Case(partial(_take, 2, 50 * MEGABYTE, 1, 20)),
    "take: 1,000 records of 50 MB shards": Case(partial(_take, 2, 50 * MEGABYTE, 1_000, 2)),
    "to_arrow: 600 shards of 5 KB": Case(partial(_to_arrow, 600, 5 * _KILOBYTE)),
    "to_arrow: 150 shards of 280 KB": Case(partial(_to_arrow, 150, 280 * _KILOBYTE)),
    "to_arrow: 2 shards of 50 MB": Case(partial(_to_arrow, 2, 50 * MEGABYTE)),
    "append: JSON lines": Case(partial(_append, _json_lines, ".jsonl")),
    "append: CSV": Case(partial(_append, _csv, ".csv")),
    "append: a CSV file of 1,000 columns": Case(partial(_append, _wide, ".csv")),
    "append: 300 files of one row": Case(partial(_append, _tiny, "")),
    "append: TFRecord, 180-byte records": Case(
        partial(_append, partial(_tfrecord, partial(small_table, 20_000)), ".tfrecord")
    ),
    "append: TFRecord, 50 KB records": Case(
        partial(_append, partial(_tfrecord, partial(large_table, 250)), ".tfrecord")
    ),
    **{
        f"append: {form}, {name}{', cold' if is_cold else ''}": Case(
            partial(_append, write, suffix), is_cold
        )
        for form, suffix, files in (("Parquet", ".parquet", _PARQUET), ("Arrow", ".arrow", _ARROW))
        for name, write in files.items()
        for is_cold in (False, True)
    },
    **{
        f"command: append {form}, {name}": Case(partial(_command, write, suffix))
        for form, suffix, files in (("Parquet", ".parquet", _PARQUET), ("Arrow", ".arrow", _ARROW))
        for name, write in files.items()
        if name.startswith("20 MB")
    },
}
_RATES: dict[str, Callable[[Path], Side]] = {
    "expectations: 6 rules on rows": partial(_expectations, 0),
    "expectations: unique, median and mean": partial(_expectations, 1),
}

_LINES = {
    "append: 1,000 records to 5,000 snapshots": "append_lines",
    "rebuild: 50 KB records into one file": "append_lines",
    "rebuild: 180-byte records into one file": "append_lines",
    "extend: rewrite, 180-byte records": "derive_lines",
    "extend: overlay, 50 KB records": "derive_lines",
    "read: overlays through tf.data, 180-byte records": "derive_lines",
    "combine: 2,000 x 2,000 records of 180 bytes": "derive_lines",
    "log: open the head": "log_lines",
    "log: commit an append": "log_lines",
    "log: commit an attestation": "log_lines",
    "log: open and list the shards": "log_lines",
    "audit: a root without reading shards": "audit_lines",
}
"""Lines of `python -m benchmarks`, and their modules."""
_LINE_BYTES = 64 * MEGABYTE
_OPEN_LINES: list[object] = []


if __name__ == "__main__":
    main()
