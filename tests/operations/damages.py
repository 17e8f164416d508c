"""Versions of one source, and what can happen to their shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardline.api import Version
from shardline.log.model import Checks
from shardline.operations.append import append
from shardline.operations.check import check_version
from tests.kernel.frames import framed
from tests.log.versions import NAME, SCHEMA
from tests.operations.shard_files import paths
from tests.tfrecord.samples import example_of, flipped, made, write_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.operations.repair import RepairReport

ROWS = 40
RECORDS = [example_of(x=number) for number in range(ROWS)]
TARGET = 12 * len(framed(RECORDS[0]))
BAD_LINE = '{"x": "no number"}'


def json_lines(path: Path) -> Path:
    return made(path / "in.jsonl", "".join(f'{{"x": {n}}}\n' for n in range(ROWS)).encode())


def with_bad_lines(path: Path) -> Path:
    """Rows that are refused at the start, in the middle, at the end, and where a shard ends."""
    lines = [f'{{"x": {n}}}' for n in range(ROWS)]
    for at in (40, 24, 12, 11, 5, 0):
        lines.insert(at, BAD_LINE)
    return made(path / "bad.jsonl", "\n".join(lines).encode())


def tfrecords(path: Path) -> Path:
    return write_by_tensorflow(path / "in.tfrecord", RECORDS, "GZIP")


def parquet(path: Path) -> Path:
    pq.write_table(pa.table({"x": list(range(ROWS))}), path / "in.parquet", row_group_size=7)
    return path / "in.parquet"


SOURCES: list[Callable[[Path], Path]] = [json_lines, with_bad_lines, tfrecords, parquet]


def appended(root: Path, source: Any, **options: Any) -> Version:  # noqa: ANN401 - as append takes
    """A published version with one source."""
    version = Version(root / "root", NAME)
    append(version, source, schema=SCHEMA, checks=Checks(), max_quarantined=0.5, **options)
    assert check_version(version).ok
    return version


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(flipped(data, 8 * (len(data) // 2)))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def swap(path: Path) -> None:
    path.write_bytes(framed(*[example_of(x=number) for number in range(90, 93)]))


DAMAGES: list[Callable[[Path], None]] = [flip, cut, swap, Path.unlink]


def how(report: RepairReport) -> list[str]:
    return [one.method for one in report.repaired]


def rot(version: Version, at: int, damage: Callable[[Path], None] = flip) -> Path:
    """Damage a shard that had passed its checks, and let that be seen."""
    path = paths(version.latest())[at]
    damage(path)
    published = version.state.published
    assert not check_version(version, recheck=True).ok
    assert version.state.published != published or published is None
    return path
