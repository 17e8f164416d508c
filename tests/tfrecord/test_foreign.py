"""Files of other formats are named, and damaged TFRecord files are not taken for them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import sqlite3
import tarfile
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.errors import CorruptFileError, NotTFRecordError
from shardline.operations.combine_files import plan_combine_files
from shardline.operations.preview import preview
from shardline.operations.rebuild_files import rebuild_files
from shardline.operations.salvage import salvage
from shardline.operations.verify_files import verify_file
from shardline.schema.file_schema import infer_schema
from shardline.tfrecord.index import write_index
from shardline.tfrecord.reader import RecordFile
from tests.errors import raises
from tests.kernel.frames import framed
from tests.log.schemas import PNG
from tests.tfrecord.samples import example_of, gzip_member, made

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TABLE = pa.table({"id": [1, 2], "name": ["a", "b"]})


def _parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(TABLE, out)
    return out.getvalue()


def _arrow(new: Callable[..., pa.ipc.RecordBatchStreamWriter]) -> bytes:
    out = io.BytesIO()
    with new(out, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return out.getvalue()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.tfrecord", framed(b"stored in the archive"))
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return out.getvalue()


def _numpy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(3))
    return out.getvalue()


def _sqlite() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table a (b)")
        return database.serialize()


CSV = b"id,name\n1,a\n2,b\n"
FOREIGN: dict[str, tuple[bytes, str]] = {
    "csv": (CSV, "csv"),
    "long csv": (CSV * 100_000, "csv"),
    "csv with mark": (b"\xef\xbb\xbf" + CSV, "csv"),
    "csv like zlib": (b"x^2,y\n1,2\n", "csv"),
    "packed csv": (gzip.compress(CSV), "csv (gzip)"),
    "latin-1 csv": ("id,größe\n1,zwölf\n".encode("latin-1"), "csv (not UTF-8)"),
    "jsonl": (b'{"id": 1}\n{"id": 2}\n', "jsonl"),
    "packed jsonl": (gzip.compress(b'{"id": 1}\n{"id": 2}\n'), "jsonl (gzip)"),
    "json": (json.dumps([{"id": 1}]).encode(), "json"),
    "indented json": (json.dumps({"id": 1}, indent=1).encode(), "json"),
    "text": (b"once upon a time\nthere was a file\n", "text"),
    "text like orc": (b"ORC is a format.\n", "text"),
    "utf-16": ("id,name\n".encode("utf-16"), "UTF-16 text"),
    "html": (b"<!DOCTYPE html><html></html>\n", "XML or HTML"),
    "parquet": (_parquet(), "parquet"),
    "cut parquet": (_parquet()[:-20], "parquet"),
    "arrow": (_arrow(pa.ipc.new_file), "arrow"),
    "arrow stream": (_arrow(pa.ipc.new_stream), "arrow"),
    "zip": (_zip(), "zip"),
    "tar": (_tar(), "tar"),
    "png": (PNG + b"\x00" * 20, "png"),
    "jpeg": (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + b"\x00" * 20, "jpeg"),
    "pickle": (pickle.dumps({"id": [1, 2]}), "pickle"),
    "numpy": (_numpy(), "numpy"),
    "sqlite": (_sqlite(), "sqlite"),
    "bzip2": (bz2.compress(CSV), "bzip2"),
    "xz": (lzma.compress(CSV), "xz"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_verify_names_the_other_format(tmp_path: Path, name: str) -> None:
    data, form = FOREIGN[name]
    path = made(tmp_path / "a", data)
    for every in (False, True):
        report = verify_file(path, every_fault=every)
        assert (report.ok, report.foreign) == (False, form)
    with raises(NotTFRecordError, "not-tfrecord", format=form, path=str(path)):
        list(RecordFile(path))


@pytest.mark.parametrize("name", ["csv", "long csv", "packed jsonl", "parquet", "zip"])
def test_every_reader_names_the_other_format(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "a", FOREIGN[name][0])
    good = made(tmp_path / "good", framed(example_of(id=1)))
    readers: list[Callable[[], object]] = [
        lambda: list(preview(path)),
        lambda: salvage(path, tmp_path / "out") if name != "zip" else list(RecordFile(path)),
        lambda: infer_schema([path]),
        lambda: write_index(path),
        lambda: rebuild_files([path], tmp_path / "out"),
        lambda: plan_combine_files([good], [path]),
    ]
    for read in readers:
        with raises(NotTFRecordError, "not-tfrecord", format=FOREIGN[name][1]):
            read()
    assert not (tmp_path / "out").exists()


def _damaged() -> dict[str, bytes]:
    texts = [f"the text of record {at}, which is long enough".encode() for at in range(50)]
    good = framed(*texts)
    numbers = framed(*[example_of(id=at) for at in range(50)])
    return {
        "no length": bytes(12) + good[12:],
        "text for a header": b"id,name\n1,2\n" + good[12:],
        "json for a header": b'{"id": 123}\n' + numbers[12:],
        "magic for a header": b"PAR1" + numbers[4:],
        "magic at both ends": b"PK\x03\x04" + numbers[4:-4] + b"last",
        "cut in the header": good[:7],
        "cut in the first record": good[:40],
        "bad data": good[:20] + b"X" + good[21:],
        "bad second record": framed(texts[0]) + b"id,name\n1,2\n" * 20,
        "text behind": good + CSV * 10,
        "one letter": b"a",
        "packed": gzip_member(bytes(12) + good[12:]),
        "cut packed": gzip_member(good)[:30],
    }


@pytest.mark.parametrize("name", _damaged())
def test_damaged_tfrecord_files_stay_damaged(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "a", _damaged()[name])
    for every in (False, True):
        report = verify_file(path, every_fault=every)
        assert report.faults
        assert report.foreign is None
    with pytest.raises(CorruptFileError) as caught:
        list(RecordFile(path))
    assert caught.value.code != "not-tfrecord"


def test_random_damage_never_looks_foreign(tmp_path: Path) -> None:
    rng = random.Random(14)
    good = framed(*[example_of(id=at, name=f"name {at}".encode()) for at in range(20)])
    for _ in range(300):
        data = bytearray(good)
        at = rng.randrange(40)
        data[at : at + rng.randrange(1, 20)] = rng.randbytes(rng.randrange(20))
        report = verify_file(made(tmp_path / "a", bytes(data)))
        assert report.foreign is None
