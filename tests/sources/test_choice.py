"""What a caller gives, and which source is made of it; who a source is, and that it stays so."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.errors import SchemaMismatchError, SourceError
from shardline.hints import Option
from shardline.log.model import Source as Identity
from shardline.schema.schema import Feature, Schema
from shardline.sources import open_source
from shardline.sources.source_format import SourceFormat
from shardline.storage.store import open_store
from shardline.tfrecord.input_file import StoredFile
from tests.errors import raises
from tests.sources.reading import changes_in, take
from tests.tfrecord.samples import example_of, made, write_by_tensorflow

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
    assert take(open_source(made(tmp_path / name, LINES)), SCHEMA).rows == [0, 1]
    assert take(open_source(str(tmp_path / name)), SCHEMA).rows == [0, 1]


def test_other_formats_are_told_by_name_or_by_what_is_in_them(tmp_path: Path) -> None:
    columns = {"p.parquet": parquet, "p.pq": parquet, "p": parquet, "a.arrow": arrow}
    columns |= {"a.feather": arrow, "a.ipc": arrow, "a": arrow}
    for name, write in columns.items():
        write(tmp_path / name)
        assert take(open_source(tmp_path / name), SCHEMA).rows == [0, 1]
    payloads = [example_of(a=1), example_of(a=2)]
    for name, packing in (
        ("t.tfrecord-00000-of-00002", ""),
        ("t", ""),
        ("g", "GZIP"),
        ("z", "ZLIB"),
    ):
        path = write_by_tensorflow(tmp_path / name, payloads, packing)
        assert take(open_source(path), SCHEMA).payloads == payloads


def test_a_format_that_is_said_goes_before_the_name(tmp_path: Path) -> None:
    path = made(tmp_path / "a.csv", LINES)
    assert take(open_source(path, format="jsonl"), SCHEMA).rows == [0, 1]


def test_what_cannot_be_told_is_refused_with_the_formats_there_are(tmp_path: Path) -> None:
    path = made(tmp_path / "a.txt", b"some text\n")
    with raises(SourceError, "unknown-source-format", path=str(path)) as caught:
        open_source(path)
    with raises(SourceError, "invalid-argument") as unknown:
        open_source(path, format="xml")  # type: ignore[arg-type]
    for hint in (caught.value.hint, unknown.value.hint):
        assert hint is not None
        assert Option("format") in hint.parts
        assert all(name in str(hint) for name in get_args(SourceFormat))
    for what in (5, b"bytes", np.zeros(3)):
        with raises(SourceError, "unsupported-source"):
            open_source(what, batch="b")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "a.arrow", "a.tfrecord", "a"])
def test_a_file_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    with raises(SourceError, "file-not-found", path=str(tmp_path / name)):
        take(open_source(tmp_path / name), SCHEMA)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather", "a.ipc"])
def test_a_file_that_is_something_else_is_told(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / name, b"FEA1 something else, long enough to be read")
    code = "invalid-source" if name == "a.parquet" else "unsupported-source"
    with raises(SourceError, code, path=str(path)):
        take(open_source(path), SCHEMA)
    with raises(SourceError, code, path=str(path)):
        open_source(path).infer()


def test_a_source_is_taken_as_it_is() -> None:
    source = open_source([{"a": 1}], batch="b")
    assert open_source(source) is source


def test_only_tfrecord_files_can_be_salvaged(tmp_path: Path) -> None:
    path = made(tmp_path / "a.jsonl", LINES)
    with raises(SourceError, "invalid-argument", path=str(path)) as caught:
        open_source(path, salvage=True)
    assert caught.value.hint is not None
    assert Option("salvage") in caught.value.hint.parts


def test_a_file_is_known_by_path_size_and_content(tmp_path: Path) -> None:
    path = made(tmp_path / "a.jsonl", LINES)
    (tmp_path / "link").symlink_to(tmp_path)
    told: list[int] = []
    source = open_source(tmp_path / "link" / "a.jsonl")
    identity = source.identity(told.append)
    assert identity == Identity(path.as_posix(), len(LINES), hashlib.sha256(LINES).hexdigest())
    assert told[-1] == source.size == len(LINES)
    with raises(SourceError, "invalid-argument", path=str(path)) as caught:
        open_source(path, batch="b")
    assert caught.value.hint is not None
    assert Option("batch") in caught.value.hint.parts


def test_rows_in_memory_are_known_by_the_name_they_are_given() -> None:
    rows = [{"a": 1}]
    assert open_source(rows, batch="monday").identity() == Identity(batch="monday")
    assert open_source(rows, batch="monday").label == "batch monday"
    with raises(SourceError, "missing-batch-name", path=None):
        open_source(rows).identity()


def test_files_in_a_store_are_sources_too(tmp_path: Path, s3_root: str) -> None:
    contents = {
        "a.jsonl": LINES,
        "a.csv": b"a\n1\n2\n",
        "a.parquet": parquet(tmp_path / "p"),
        "a.arrow": arrow(tmp_path / "q"),
        "a": write_by_tensorflow(tmp_path / "t", [example_of(a=1), example_of(a=2)]).read_bytes(),
    }
    wanted = take(open_source(tmp_path / "p"), SCHEMA).data
    for root in (s3_root, str(tmp_path / "root")):
        store = open_store(root)
        for name, content in contents.items():
            store.create(f"in/{name}", content)
            source = open_source(StoredFile(store, f"in/{name}"))
            assert source.identity() == Identity(
                f"{store.uri.rstrip('/')}/in/{name}",
                len(content),
                hashlib.sha256(content).hexdigest(),
            )
            assert source.size == len(content)
            assert source.infer() == SCHEMA
            assert take(source, SCHEMA).data == wanted
        missing = StoredFile(store, "in/b.jsonl")
        with raises(SourceError, "file-not-found", path=str(missing)):
            take(open_source(missing), SCHEMA)
    by_uri = open_source(f"{s3_root.rstrip('/')}/in/a.jsonl")
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
    source = open_source(path)
    source.identity()
    made(tmp_path / "new", content)
    (tmp_path / "new").rename(path)
    with raises(SourceError, "source-changed", path=str(path)):
        take(source, SCHEMA)
    fresh = open_source(path)
    chunks = fresh.chunks(SCHEMA)
    next(chunks).frames()
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    with raises(SourceError, "source-changed", path=str(path)):
        list(chunks)


def test_rows_of_another_schema_are_told_as_such(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    for source in (open_source(rows, batch="b"), open_source(made(tmp_path / "a.jsonl", text))):
        with raises(SchemaMismatchError, "schema-mismatch") as caught:
            take(source, SCHEMA)
        assert changes_in(caught.value) == [
            ("a", "kind", "int64", "bytes"),
            ("a", "meaning", "none", "text"),
            ("b", "added", "", "int64 [] required"),
        ]
        assert len(take(source, SCHEMA, 1).refused) == 1  # what was begun goes on as it was


def test_rows_that_are_bad_in_themselves_are_refused_one_by_one() -> None:
    found = take(open_source([{"a": 2**63}, {"a": 1.5}, 3], batch="b"), SCHEMA)
    assert [refused.row for refused in found.refused] == [0, 1, 2]


def test_a_generator_can_be_read_once() -> None:
    source = open_source(({"a": at} for at in range(3)), batch="b")
    assert take(source, SCHEMA).rows == [0, 1, 2]
    with raises(SourceError, "source-consumed"):
        take(source, SCHEMA)
