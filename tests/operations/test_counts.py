"""Counts of refused rows: a count that stopped early never passes for a total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from shardline.api import Version
from shardline.errors import InvalidRecordsError
from shardline.operations.append import append
from shardline.operations.combine_files import combine_files
from shardline.operations.extend import extend, extend_file
from shardline.operations.migrate import MigrationSpec, migrate, migrate_file
from shardline.schema.schema import Feature, Schema
from shardline.udf import record_udf, table_join
from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.operations.landings import json_lines
from tests.tfrecord.samples import example_of, made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 20
SCHEMA = Schema((Feature("id", "int64"), Feature("part", "float")))


@record_udf(Feature("never", "int64"), reads=["id"], code="1")
def failing(_record: dict[str, Any]) -> dict[str, Any]:
    raise ValueError


@record_udf(Feature("wanted", "int64"), reads=["left_id"], code="1")
def never(_record: dict[str, Any]) -> dict[str, Any]:
    return {"wanted": 7}


def base(folder: Path) -> Version:
    """A version in which every record is refused by what is done in this module."""
    version = Version(folder, "a/v1")
    rows = [{"id": number, "part": 0.5} for number in range(ROWS)]
    append(version, json_lines(folder / "rows.jsonl", rows), schema=SCHEMA)
    return version


def loose(folder: Path) -> Path:
    payloads = [example_of(id=number, part=0.5) for number in range(ROWS)]
    return made(folder / "a.tfrecord", framed(*payloads))


STEPS = MigrationSpec(cast={"part": "int64"})
TABLE = pa.table({"id": [999], "name": ["x"]})
STOPPED: dict[str, Callable[[Path], object]] = {
    "extend function": lambda folder: extend(
        base(folder), failing, Version(folder, "a/v2"), snapshot="latest"
    ),
    "extend join": lambda folder: extend(
        base(folder), table_join(TABLE, key="id"), Version(folder, "a/v2"), snapshot="latest"
    ),
    "migrate cast": lambda folder: migrate(
        base(folder), STEPS, Version(folder, "a/v2"), snapshot="latest"
    ),
    "extend file": lambda folder: extend_file(loose(folder), failing, folder / "out"),
    "migrate file": lambda folder: migrate_file(loose(folder), STEPS, folder / "out"),
    "combine files": lambda folder: combine_files(
        loose(folder),
        loose(folder),
        folder / "out",
        where=never,
        on_collision="prefix",
        left_prefix="left_",
    ),
}


@pytest.mark.parametrize("operation", STOPPED)
def test_refused_rows_stopped_early_count_is_incomplete(tmp_path: Path, operation: str) -> None:
    with pytest.raises(InvalidRecordsError) as caught:
        STOPPED[operation](tmp_path)
    error = caught.value
    assert error.complete is False or error.bad == ROWS
    assert error.to_dict()["complete"] is error.complete
    assert error.complete or "at least" in error.message


def rows_file(path: Path, padding: int) -> Path:
    """A file whose first and last rows do not fit, of one chunk or with padding of several."""
    bad, good = b'{"id": "x", "part": 0.5}\n', b'{"id": 1, "part": 0.5%s}\n' % (b" " * padding)
    return made(path, bad + good * 100 + bad)


@pytest.mark.parametrize(("padding", "complete"), [(0, True), (300_000, False)])
def test_append_refused_rows_says_whether_complete(
    tmp_path: Path, padding: int, *, complete: bool
) -> None:
    source = rows_file(tmp_path / "rows.jsonl", padding)
    with pytest.raises(InvalidRecordsError) as caught:
        append(Version(tmp_path, "a/v1"), source, schema=SCHEMA)
    error = caught.value
    assert error.complete is complete
    assert (error.bad, error.rows == 102) == (2 if complete else 1, complete)
    assert ("at least" in error.message) is not complete


def test_append_set_aside_reason_says_whether_complete(tmp_path: Path) -> None:
    source = rows_file(tmp_path / "rows.jsonl", 300_000)
    report = append(Version(tmp_path, "a/v1"), source, schema=SCHEMA, skip_invalid=True)
    assert report.rejected[0].reason.startswith("at least")


@pytest.mark.parametrize("command", ["count", "verify"])
def test_records_before_a_fault_are_not_a_total(tmp_path: Path, command: str) -> None:
    data = bytearray(framed(*[b"record %d" % number for number in range(9)]))
    data[60] ^= 1
    bad, good = made(tmp_path / "a.tfrecord", bytes(data)), made(tmp_path / "b.tfrecord", b"")
    told = shardline(command, bad, good, "--json").json
    assert [one["complete"] for one in told["files"]] == [False, True]
    assert shardline(command, bad, good).out.count("at least") == 2
