"""What a caller gives, and which source is made of it; who a source is, and that it stays so."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.errors import SchemaMismatchError, SourceError
from shardline.files.stored import StoredFile
from shardline.log.facts import Source as Identity
from shardline.log.schema import Feature, Schema
from shardline.sources import as_source
from shardline.storage.store import open_store
from tests.files.samples import example_of, made, write_by_tensorflow
from tests.sources.reading import take

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema((Feature("a", "int64"),))
LINES = b'{"a": 1}\n{"a": 2}\n'


def parquet(path: Path) -> bytes:
    pq.write_table(pa.table({"a": [1, 2]}), path)
    return path.read_bytes()


def arrow(path: Path) -> bytes:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA_ARROW) as writer:
        writer.write_table(pa.table({"a": [1, 2]}))
    return path.read_bytes()


SCHEMA_ARROW = pa.schema([("a", pa.int64())])


@pytest.mark.parametrize(
    "name",
    ["a.jsonl", "a.ndjson", "a.json", "A.JSONL", "a.b.jsonl"],
)
def test_json_lines_are_told_by_their_name(tmp_path: Path, name: str) -> None:
    assert take(as_source(made(tmp_path / name, LINES)), SCHEMA).rows == [0, 1]
    assert take(as_source(str(tmp_path / name)), SCHEMA).rows == [0, 1]


def test_other_formats_are_told_by_name_or_by_what_is_in_them(tmp_path: Path) -> None:
    columns = {"p.parquet": parquet, "p.pq": parquet, "p": parquet, "a.arrow": arrow}
    columns |= {"a.feather": arrow, "a.ipc": arrow, "a": arrow}
    for name, write in columns.items():
        write(tmp_path / name)
        assert take(as_source(tmp_path / name), SCHEMA).rows == [0, 1]
    payloads = [example_of(a=1), example_of(a=2)]
    for name, packing in (
        ("t.tfrecord-00000-of-00002", ""),
        ("t", ""),
        ("g", "GZIP"),
        ("z", "ZLIB"),
    ):
        path = write_by_tensorflow(tmp_path / name, payloads, packing)
        assert take(as_source(path), SCHEMA).payloads == payloads


def test_a_format_that_is_said_goes_before_the_name(tmp_path: Path) -> None:
    path = made(tmp_path / "a.csv", LINES)
    assert take(as_source(path, format="jsonl"), SCHEMA).rows == [0, 1]


def test_what_cannot_be_told_is_refused_with_the_formats_there_are(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        as_source(made(tmp_path / "a.txt", b"some text\n"))
    assert str(caught.value) == (
        f"{tmp_path}/a.txt: neither its name nor its content tell what it is. Say it with "
        "format='...' (--format): jsonl, csv, parquet, arrow, folder, tfrecord"
    )
    with pytest.raises(SourceError, match="format 'xml' is none of jsonl, csv"):
        as_source(tmp_path / "a.txt", format="xml")  # type: ignore[arg-type]
    for what in (5, b"bytes", np.zeros(3)):
        with pytest.raises(SourceError, match="is no source: give a path, a table"):
            as_source(what, batch="b")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.arrow", "a.tfrecord", "a"])
def test_a_file_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match=rf"{name}: No such file"):
        take(as_source(tmp_path / name), SCHEMA)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather", "a.ipc"])
def test_a_file_that_is_something_else_is_told(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / name, b"FEA1 something else, long enough to be read")
    with pytest.raises(SourceError):
        take(as_source(path), SCHEMA)
    with pytest.raises(SourceError):
        as_source(path).infer()


def test_a_source_is_taken_as_it_is() -> None:
    source = as_source([{"a": 1}], batch="b")
    assert as_source(source) is source


def test_only_tfrecord_files_can_be_salvaged(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="only TFRecord files can be salvaged"):
        as_source(made(tmp_path / "a.jsonl", LINES), salvage=True)


def test_a_file_is_known_by_path_size_and_content(tmp_path: Path) -> None:
    path = made(tmp_path / "a.jsonl", LINES)
    (tmp_path / "link").symlink_to(tmp_path)
    told: list[int] = []
    source = as_source(tmp_path / "link" / "a.jsonl")
    identity = source.identity(told.append)
    assert identity == Identity(path.as_posix(), len(LINES), hashlib.sha256(LINES).hexdigest())
    assert told[-1] == source.size == len(LINES)
    with pytest.raises(SourceError, match="leave batch out"):
        as_source(path, batch="b")


def test_rows_in_memory_are_known_by_the_name_they_are_given() -> None:
    rows = [{"a": 1}]
    assert as_source(rows, batch="monday").identity() == Identity(batch="monday")
    assert as_source(rows, batch="monday").shown == "batch monday"
    with pytest.raises(SourceError, match="rows in memory have no path to be known by: name them"):
        as_source(rows).identity()


def test_files_in_a_store_are_sources_too(tmp_path: Path, s3_root: str) -> None:
    contents = {
        "a.jsonl": LINES,
        "a.csv": b"a\n1\n2\n",
        "a.parquet": parquet(tmp_path / "p"),
        "a.arrow": arrow(tmp_path / "q"),
        "a": write_by_tensorflow(tmp_path / "t", [example_of(a=1), example_of(a=2)]).read_bytes(),
    }
    wanted = take(as_source(tmp_path / "p"), SCHEMA).data
    for root in (s3_root, str(tmp_path / "root")):
        store = open_store(root)
        for name, content in contents.items():
            store.create(f"in/{name}", content)
            source = as_source(StoredFile(store, f"in/{name}"))
            assert source.identity() == Identity(
                f"{store.uri.rstrip('/')}/in/{name}",
                len(content),
                hashlib.sha256(content).hexdigest(),
            )
            assert source.size == len(content)
            assert source.infer() == SCHEMA
            assert take(source, SCHEMA).data == wanted
        with pytest.raises(SourceError, match=r"there is no such|No such"):
            take(as_source(StoredFile(store, "in/b.jsonl")), SCHEMA)
    by_uri = as_source(f"{s3_root.rstrip('/')}/in/a.jsonl")
    assert take(by_uri, SCHEMA).data == wanted


FILES: dict[str, Any] = {
    "a.jsonl": lambda _: LINES,
    "a.csv": lambda _: b"a\n1\n2\n",
    "a.parquet": parquet,
    "a.arrow": arrow,
    "a.tfrecord": lambda path: write_by_tensorflow(path, [example_of(a=1)]).read_bytes(),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_changes_between_or_while_it_is_read_is_refused(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    content = FILES[name](path)
    made(path, content)
    source = as_source(path)
    source.identity()
    made(tmp_path / "new", content)
    (tmp_path / "new").rename(path)
    with pytest.raises(SourceError) as caught:
        take(source, SCHEMA)
    assert str(caught.value) == (f"{path} changed while it was read: append it when it is finished")
    fresh = as_source(path)
    chunks = fresh.chunks(SCHEMA)
    next(chunks).frames()
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    with pytest.raises(SourceError, match="changed while it was read"):
        list(chunks)


def test_rows_of_another_schema_are_told_as_such(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    for source in (as_source(rows, batch="b"), as_source(made(tmp_path / "a.jsonl", text))):
        with pytest.raises(SchemaMismatchError) as caught:
            take(source, SCHEMA)
        assert [line.strip() for line in str(caught.value).splitlines()][1:-1] == [
            "feature 'a': kind int64 -> bytes, meaning none -> text: migration",
            "feature 'b': added (int64 [] required): migration",
        ]
        assert len(take(source, SCHEMA, 1).refused) == 1  # what was begun goes on as it was


def test_rows_that_are_bad_in_themselves_are_refused_one_by_one() -> None:
    found = take(as_source([{"a": 2**63}, {"a": 1.5}, 3], batch="b"), SCHEMA)
    assert [refused.row for refused in found.refused] == [0, 1, 2]


def test_a_generator_can_be_read_once() -> None:
    source = as_source(({"a": at} for at in range(3)), batch="b")
    assert take(source, SCHEMA).rows == [0, 1, 2]
    with pytest.raises(SourceError, match="has been read already: pass it anew"):
        take(source, SCHEMA)
