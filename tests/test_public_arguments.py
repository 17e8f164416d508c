"""Wrong arguments of public functions: an error of ours with a code, never a raw Python error."""

# ruff: noqa: ARG005 - one signature for all calls
from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import shardline
from shardline import Feature, Schema, Version
from shardline.error_codes import CODES
from shardline.errors import ShardlineError
from shardline.storage import open_store
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of, made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WRONG: list[Any] = [None, 7, -1, 1.5, "x", b"x", "", [], {}, object(), True, "\0"]


def world(folder: Path) -> tuple[Version, Path]:
    """A version with a snapshot, and a file."""
    path = made(folder / "a.tfrecord", framed(example_of(id=1), example_of(id=2)))
    version = Version(folder / "root", "a/v1")
    version.append(path, schema=Schema((Feature("id", "int64"),)))
    version.check()
    return version, path


CALLS: dict[str, Callable[[Any, Version, Path], object]] = {
    "Version root": lambda x, v, f: Version(x, "a/v1").exists,
    "Version name": lambda x, v, f: Version(v.store, x),
    "version.snapshot": lambda x, v, f: v.snapshot(x),
    "version.at": lambda x, v, f: v.at(x),
    "version.find": lambda x, v, f: v.find(x),
    "version.tagged": lambda x, v, f: v.tagged(x),
    "version.tag name": lambda x, v, f: v.tag(x, 1),
    "version.tag snapshot": lambda x, v, f: v.tag("t", x),
    "version.pin name": lambda x, v, f: v.pin(x, 1),
    "version.restore": lambda x, v, f: v.restore(x),
    "version.reject": lambda x, v, f: v.reject(x),
    "version.create": lambda x, v, f: Version(v.store, "a/v9").create(x),
    "snapshot.take": lambda x, v, f: v.latest().take(x),
    "snapshot.take columns": lambda x, v, f: v.latest().take([0], x),
    "snapshot.to_arrow": lambda x, v, f: v.latest().to_arrow(x).read_all(),
    "snapshot.consumed_by": lambda x, v, f: v.latest().consumed_by(x),
    "append version": lambda x, v, f: Version.append(x, f),
    "append sources": lambda x, v, f: v.append(x),
    "append target_bytes": lambda x, v, f: v.append(f, target_bytes=x),
    "append compression": lambda x, v, f: v.append(f, compression=x),
    "append quarantine": lambda x, v, f: v.append(f, max_quarantined=x),
    "append schema": lambda x, v, f: Version(v.store, "a/v8").append(f, schema=x),
    "append format": lambda x, v, f: v.append(f, format=x),
    "append batch": lambda x, v, f: v.append([{"id": 1}], batch=x),
    "rebuild": lambda x, v, f: v.rebuild(snapshot=x),
    "rebuild target_bytes": lambda x, v, f: v.rebuild(target_bytes=x),
    "rebuild into": lambda x, v, f: v.rebuild(into=x),
    "rebuild_files": lambda x, v, f: shardline.files.rebuild(x, f.parent / "out"),
    "rebuild_files out": lambda x, v, f: shardline.files.rebuild([f], x),
    "rebuild_files target": lambda x, v, f: shardline.files.rebuild(
        [f], f.parent / "o", target_bytes=x
    ),
    "combine_files": lambda x, v, f: shardline.files.combine(x, f, f.parent / "out"),
    "extend fields": lambda x, v, f: v.extend(x, Version(v.store, "a/v2")),
    "extend mode": lambda x, v, f: v.extend([], Version(v.store, "a/v2"), mode=x),
    "migrate": lambda x, v, f: v.migrate(x, Version(v.store, "a/v2")),
    "verify_file": lambda x, v, f: shardline.files.verify_file(x),
    "verify_files": lambda x, v, f: shardline.files.verify_files(x),
    "preview": lambda x, v, f: list(shardline.files.head(x)),
    "preview count": lambda x, v, f: list(shardline.files.head(f, count=x)),
    "salvage": lambda x, v, f: shardline.files.salvage(x, f.parent / "out"),
    "infer_schema": lambda x, v, f: shardline.files.infer_schema(x),
    "write_index": lambda x, v, f: shardline.files.write_index(x),
    "IndexedFile": lambda x, v, f: shardline.files.IndexedFile(x),
    "RecordFile": lambda x, v, f: shardline.files.RecordFile(x),
    "Compression": lambda x, v, f: shardline.Compression(x),
    "Feature name": lambda x, v, f: Feature(x, "int64"),
    "Feature kind": lambda x, v, f: Feature("a", x),
    "Feature shape": lambda x, v, f: Feature("a", "int64", x),
    "Schema": lambda x, v, f: Schema(x),
    "export": lambda x, v, f: v.export(x),
    "open_store": lambda x, v, f: open_store(x),
    "open_source": lambda x, v, f: shardline.open_source(x),
    "check_version": lambda x, v, f: Version.check(x),
    "verify_version": lambda x, v, f: Version.verify(x),
    "get_status": lambda x, v, f: Version.status(x),
    "erase dataset": lambda x, v, f: shardline.open(v.store).plan_erase(x, key="id", values=[1]),
    "erase values": lambda x, v, f: shardline.open(v.store).plan_erase("a", key="id", values=x),
    "vacuum": lambda x, v, f: shardline.open(v.store).vacuum(x),
    "diff": lambda x, v, f: v.latest().diff(x),
}


@pytest.mark.parametrize("call", CALLS)
def test_public_call_wrong_argument_raises_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.chdir(tmp_path)  # some of the values are names of files
    version, path = world(tmp_path)
    raw = []
    for wrong in WRONG:
        try:
            CALLS[call](wrong, version, path)
        except ShardlineError as error:
            raw += [] if error.code in CODES else [("code", error.code)]
        except OSError:
            continue  # of the operating system: no such file
        except Exception as error:  # noqa: BLE001 - what this is about
            raw.append((repr(wrong)[:30], repr(error)[:100]))
    assert raw == []


def test_version_at_text_raises_ours(tmp_path: Path) -> None:
    version, _ = world(tmp_path)
    calls: list[tuple[Callable[[Any], object], str]] = [
        (version.at, "2099-01-01"),
        (version.snapshot, "1"),
    ]
    for call, argument in calls:
        with pytest.raises(ShardlineError) as caught:
            call(argument)
        assert (caught.value.code, caught.value.version) == ("invalid-type", "a/v1")
    assert version.at(datetime(2099, 1, 1, tzinfo=UTC)).number == 1


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_append_duplicate_columns_raises_ours(tmp_path: Path, ending: str) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    for schema in (None, Schema((Feature("a", "int64"),))):
        with pytest.raises(ShardlineError) as caught:
            Version(tmp_path / "root", "a/v1").append(path, schema=schema)
        assert caught.value.code in {"duplicate-column", "duplicate-feature"}
