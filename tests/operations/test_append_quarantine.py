"""Rows that cannot become records: told, and put into quarantine as far as that is allowed."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import CorruptFileError, InvalidRecordsError
from shardline.hints import Command, Option
from shardline.operations.append import append
from shardline.operations.vacuum import vacuum
from shardline.schema.schema import Schema
from tests.errors import raises
from tests.kernel.frames import framed
from tests.operations.landings import (
    NAME,
    SCHEMA,
    Payloads,
    ids,
    json_lines,
    payloads,
    rows,
    stored,
)
from tests.tfrecord.samples import example_of, flipped

if TYPE_CHECKING:
    from pathlib import Path

BAD = {"id": "secret 4711", "name": "x"}


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path / "root", NAME)


def lines_of(version: Version, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in version.store.read(name).splitlines()]


def test_append_invalid_row_commits_nothing(version: Version, tmp_path: Path) -> None:
    source = json_lines(tmp_path / "a.jsonl", [*rows(0, 300), BAD, *rows(301, 400)])
    where = {"path": str(source), "record": 300, "feature": "id", "version": NAME}
    with raises(InvalidRecordsError, "invalid-rows", **where) as caught:
        append(version, source, schema=SCHEMA, target_bytes=1000)
    assert caught.value.hint is not None
    assert Option("max_quarantined") in caught.value.hint.parts
    assert "line 301" in str(caught.value)
    assert "4711" not in caught.value.describe()
    assert (caught.value.bad, len(caught.value.refused)) == (1, 1)
    assert not Version(version.store, NAME).exists


def test_append_invalid_row_adds_no_shard(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 10)))
    good = json_lines(tmp_path / "b.jsonl", rows(10, 20))
    bad = json_lines(tmp_path / "c.jsonl", [*rows(20, 30), BAD])
    with raises(InvalidRecordsError, "invalid-rows", path=str(bad), record=10):
        append(version, [good, bad])
    assert ids(Version(version.store, NAME)) == list(range(10))
    assert Version(version.store, NAME).state.number == 2
    append(version, good)
    assert ids(version) == list(range(20))


def test_quarantine_has_reason_position_and_content(version: Version, tmp_path: Path) -> None:
    source = json_lines(tmp_path / "a.jsonl", [*rows(0, 50), BAD, *rows(51, 100)])
    report = append(version, source, schema=SCHEMA, max_quarantined=0.01, target_bytes=1000)
    assert report.quarantined_rows == 1
    assert ids(version) == [*range(50), *range(51, 100)]
    (name,) = report.quarantine_files
    assert list(stored(version, "quarantine")) == [name]
    (line,) = lines_of(version, name)
    reason = str(line.pop("reason"))
    assert "bytes" in reason
    assert "int64" in reason
    assert line == {
        "source": str(source),
        "row": 50,
        "where": "line 51",
        "feature": "id",
        "format": "jsonl",
        "content": json.dumps(BAD),
    }
    assert report.entry is not None
    assert report.entry.parameters["quarantine"] == [
        {"source": report.appended[0].source.key, "rows": 1, "files": [name]}
    ]


def test_append_over_max_quarantined_raises(version: Version, tmp_path: Path) -> None:
    source = json_lines(tmp_path / "a.jsonl", [*rows(0, 98), BAD, BAD])
    with raises(InvalidRecordsError, "invalid-rows", bad=2, rows=100) as caught:
        append(version, source, schema=SCHEMA, max_quarantined=0.01)
    assert "1.00%" in str(caught.value)
    assert not Version(version.store, NAME).exists
    append(version, source, schema=SCHEMA, max_quarantined=0.02)
    assert ids(version) == list(range(98))


def test_max_quarantined_applies_to_all_rows(version: Version, tmp_path: Path) -> None:
    sources = [
        json_lines(tmp_path / "a.jsonl", [*rows(0, 4), BAD]),
        json_lines(tmp_path / "b.jsonl", rows(4, 100)),
    ]
    report = append(version, sources, schema=SCHEMA, max_quarantined=0.01)
    assert [landing.quarantined_rows for landing in report.appended] == [1, 0]
    assert ids(version) == list(range(100))


def test_error_lists_first_invalid_rows(version: Version, tmp_path: Path) -> None:
    source = json_lines(tmp_path / "a.jsonl", [*rows(0, 10), *[BAD] * 1000])
    with raises(InvalidRecordsError, "invalid-rows", bad=1000) as caught:
        append(version, source, schema=SCHEMA, max_quarantined=0.5)
    assert len(caught.value.refused) == 10
    assert "and 990 more" in str(caught.value)


def test_quarantine_file_per_shard(
    version: Version,
) -> None:
    content = [b"x" * 84 if n % 10 else None for n in range(100)]
    report = append(version, Payloads("a", content, (7,)), max_quarantined=0.1, target_bytes=1000)
    assert payloads(version) == [b"x" * 84] * 90
    assert [shard.records for shard in version.latest().shards] == [10] * 9
    assert report.quarantined_rows == 10
    told = [[line["row"] for line in lines_of(version, name)] for name in report.quarantine_files]
    assert [row for one in told for row in one] == list(range(0, 100, 10))
    assert told[0] == [0, 10], "the row before the next shard's first record belongs to this one"


def test_append_all_rows_quarantined_adds_no_shard(version: Version) -> None:
    append(version, Payloads("a", [b"one"]))
    report = append(version, Payloads("b", [None] * 25, (10,)), max_quarantined=1)
    assert (report.snapshot, report.quarantined_rows, report.appended[0].rows) == (None, 25, 25)
    assert len(lines_of(version, report.quarantine_files[0])) == 25
    assert append(version, Payloads("b", [None] * 25, (10,)), max_quarantined=1).entry is None
    assert payloads(version) == [b"one"]


def test_quarantine_keeps_original_record(version: Version, tmp_path: Path) -> None:
    good, bad = example_of(id=1, name=b"\xc3\xa9"), example_of(id=2, name=b"\xff\xfe")
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(good, bad, good))
    report = append(version, path, schema=SCHEMA, max_quarantined=0.5)
    (line,) = lines_of(version, report.quarantine_files[0])
    assert (line["row"], line["feature"]) == (1, "name")
    assert str(line["where"]).split(", ") == ["record 1", f"offset {len(good) + 16}"]
    assert base64.b64decode(str(line["content_base64"])) == bad
    assert payloads(version) == [good, good]


def test_append_corrupt_file_raises_with_position(version: Version, tmp_path: Path) -> None:
    records = [b"record %d" % number * 5 for number in range(100)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(flipped(framed(*records), 8000))
    with pytest.raises(CorruptFileError) as caught:
        append(version, path, schema=Schema.opaque(), target_bytes=200)
    assert caught.value.path == str(path)
    assert (caught.value.record, caught.value.offset) == (17, 987)
    for told in (str(path), "record 17", "offset 987"):
        assert told in str(caught.value)
    assert caught.value.hint is not None
    assert Command.of("salvage", str(path), "-o", "OUT") in caught.value.hint.commands
    assert not Version(version.store, NAME).exists


def test_append_source_without_valid_row_raises(version: Version, tmp_path: Path) -> None:
    good = json_lines(tmp_path / "good.jsonl", rows(0, 300))
    junk = json_lines(tmp_path / "junk.jsonl", [BAD, {"id": 1, "name": None}])
    with raises(InvalidRecordsError, "invalid-rows", bad=2, rows=2):
        append(version, [good, junk], schema=SCHEMA, max_quarantined=0.1)
    assert not version.exists


@pytest.mark.parametrize("good", [0, 3])
def test_vacuum_deletes_quarantine_of_failed_append(
    version: Version, tmp_path: Path, good: int
) -> None:
    kept = append(version, Payloads("kept", [b"x", None], (2,)), max_quarantined=1).quarantine_files
    alone = append(version, Payloads("alone", [None], (1,)), max_quarantined=1).quarantine_files
    failing = Payloads("failing", [b"y"] * good + [None] * 3, (2,))
    with pytest.raises(InvalidRecordsError):
        append(version, failing, max_quarantined=0.1)
    left = {file.name for file in version.store.list("digits/quarantine")}
    assert len(left - {*kept, *alone}) == 1
    vacuum(tmp_path / "root", "digits", retention=timedelta(0), dry_run=False)
    assert {file.name for file in version.store.list("digits/quarantine")} == {*kept, *alone}


def test_append_salvage_quarantines_gap(version: Version, tmp_path: Path) -> None:
    records = [b"record %d" % number * 5 for number in range(100)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(flipped(framed(*records), 8000))
    report = append(version, path, schema=Schema.opaque(), salvage=True, target_bytes=200)
    assert payloads(version) == records[:17] + records[18:]
    (line,) = lines_of(version, report.quarantine_files[0])
    assert (line["row"], line["where"]) == (17, "offset 987")
    assert "61 bytes" in str(line["reason"])
    damaged = base64.b64decode(str(line["content_base64"]))
    assert damaged == flipped(framed(*records), 8000)[987 : 987 + 61]
