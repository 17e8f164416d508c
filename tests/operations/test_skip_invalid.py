"""Sources that cannot land are set aside: they hold up no other, and are remembered."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import CorruptFileError, SourceError
from shardline.operations.append import append
from shardline.operations.verify_log import verify_log
from shardline.storage import open_store
from tests.kernel.frames import framed
from tests.operations.landings import NAME, SCHEMA, ids, json_lines, rows
from tests.tfrecord.samples import example_of, flipped

if TYPE_CHECKING:
    from pathlib import Path


def records(first: int, last: int) -> list[bytes]:
    return [example_of(id=number, name=b"n") for number in range(first, last)]


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path / "root", NAME)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A TFRecord file whose third record has a flipped bit."""
    path = tmp_path / "damaged.tfrecord"
    bad = 8 * (len(framed(*records(100, 102))) + 14)
    path.write_bytes(flipped(framed(*records(100, 110)), bad))
    return path


def test_skip_invalid_appends_other_sources(
    version: Version, tmp_path: Path, damaged: Path
) -> None:
    good = [json_lines(tmp_path / f"{n}.jsonl", rows(n, n + 5)) for n in (0, 5)]
    report = append(version, [good[0], damaged, good[1]], schema=SCHEMA, skip_invalid=True)
    assert (report.snapshot, report.records) == (1, 10)
    assert ids(version) == list(range(10))
    (refusal,) = report.rejected
    assert refusal.source.path == str(damaged.resolve())
    offset = len(framed(*records(100, 102)))
    assert (refusal.check, refusal.record, refusal.offset) == ("integrity", 2, offset)
    assert str(damaged) in refusal.reason
    assert not verify_log(version.log).problems


def test_invalid_source_appends_nothing(version: Version, tmp_path: Path, damaged: Path) -> None:
    good = json_lines(tmp_path / "a.jsonl", rows(0, 5))
    with pytest.raises(CorruptFileError):
        append(version, [good, damaged], schema=SCHEMA)
    assert not version.exists


def test_rejected_source_is_recorded_and_skipped(
    version: Version, tmp_path: Path, damaged: Path
) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 5)), schema=SCHEMA)
    first = append(version, damaged, skip_invalid=True)
    assert first.entry is None
    assert len(first.rejected) == 1
    entry = version.log.entry(version.state.number)
    assert (entry.operation, entry.changes_data) == ("reject", False)
    (told,) = entry.parameters["set_aside"]
    assert (told["check"], told["record"]) == ("integrity", 2)
    number = version.state.number
    again = append(Version(version.store, NAME), damaged, skip_invalid=True)
    assert (again.rejected, again.entry) == ((), None)
    assert again.skipped[0].can_retry
    version.refresh()
    assert version.state.number == number


def test_rejected_source_with_new_content_is_appended(version: Version, damaged: Path) -> None:
    append(version, damaged, schema=SCHEMA, skip_invalid=True)
    damaged.write_bytes(framed(*records(100, 110)))
    report = append(version, damaged, skip_invalid=True)
    assert report.records == 10
    assert not report.rejected


def test_version_of_rejected_sources_has_no_snapshot(version: Version, damaged: Path) -> None:
    report = append(version, damaged, schema=SCHEMA, skip_invalid=True)
    assert report.created
    assert (version.state.snapshot, version.schema) == (0, SCHEMA)


def test_rejection_lists_schema_differences(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 5)), schema=SCHEMA)
    other = json_lines(tmp_path / "b.jsonl", [{"id": "no number", "weight": 1.5}])
    (refusal,) = append(version, other, skip_invalid=True).rejected
    assert refusal.check == "schema"
    assert "weight" in refusal.reason


def test_unknown_file_is_rejected_and_recorded(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 5)), schema=SCHEMA)
    note = tmp_path / "README"
    note.write_text("what is in this folder")
    (refusal,) = append(version, note, skip_invalid=True).rejected
    assert refusal.source.path == str(note.resolve())
    again = append(version, note, skip_invalid=True)
    assert not again.rejected
    assert "rejected in entry" in again.skipped[0].reason


def test_unknown_object_is_rejected(version: Version, tmp_path: Path) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 5)), schema=SCHEMA)
    where = f"memory://set-aside-{secrets.token_hex(8)}/in"
    open_store(where).create("README", b"what is in this folder")
    (refusal,) = append(version, f"{where}/README", skip_invalid=True).rejected
    assert refusal.source.path == f"{where}/README"
    with pytest.raises(SourceError):
        append(version, f"{where}/gone", skip_invalid=True)


def test_missing_file_raises_despite_skip_invalid(version: Version, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"gone\.jsonl"):
        append(version, tmp_path / "gone.jsonl", schema=SCHEMA, skip_invalid=True)


def test_max_quarantined_applies_per_source(version: Version, tmp_path: Path) -> None:
    good = json_lines(tmp_path / "a.jsonl", rows(0, 100))
    bad = json_lines(tmp_path / "b.jsonl", [*rows(100, 105), {"id": "x"}])
    report = append(version, [good, bad], schema=SCHEMA, max_quarantined=0.05, skip_invalid=True)
    assert report.records == 100
    assert [one.source.path for one in report.rejected] == [str(bad.resolve())]


def test_retry_rejected_appends_rejected_source(
    version: Version, tmp_path: Path, damaged: Path
) -> None:
    append(version, json_lines(tmp_path / "a.jsonl", rows(0, 5)), schema=SCHEMA)
    append(version, damaged, skip_invalid=True)
    report = append(version, damaged, salvage=True, retry_rejected=True)
    assert report.records == 9
