"""Landing folders: what is new in them is found without reading what is not."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import InvalidArgumentError
from shardline.operations.append import append
from shardline.operations.landing_folder import LandingFolder, record_scan, scan_landing_folders
from shardline.storage import open_store
from tests.errors import raises
from tests.operations.landings import NAME, SCHEMA, json_lines, rows
from tests.storage.tracing import traced

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.operations.append import AppendReport
    from shardline.operations.landing_folder import LandingScan


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path / "root", NAME)


@pytest.fixture
def folder(tmp_path: Path) -> LandingFolder:
    (tmp_path / "landing").mkdir()
    return LandingFolder(str(tmp_path / "landing"), settle_seconds=0)


def names(found: LandingScan) -> list[str]:
    return [arrival.path.rpartition("/")[2] for arrival in found.new]


def land(version: Version, found: LandingScan) -> AppendReport:
    """Append what is new, as a run does, and remember it."""
    paths = [arrival.path for arrival in found.new]
    report = append(version, paths, schema=SCHEMA, skip_invalid=True)
    told = (report.appended, report.skipped, report.rejected)
    record_scan(version, found, [one.source for group in told for one in group])
    return report


def test_scan_separates_known_from_new_files(
    version: Version, folder: LandingFolder, tmp_path: Path
) -> None:
    json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    json_lines(tmp_path / "landing/b.jsonl", rows(5, 9))
    found = scan_landing_folders(version, [folder])
    assert names(found) == ["a.jsonl", "b.jsonl"]
    assert land(version, found).records == 9
    json_lines(tmp_path / "landing/c.jsonl", rows(9, 10))
    found = scan_landing_folders(version, [folder])
    assert (names(found), found.known) == (["c.jsonl"], 2)


def test_known_file_is_not_opened(version: Version, folder: LandingFolder, tmp_path: Path) -> None:
    old = json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    land(version, scan_landing_folders(version, [folder]))
    code = (
        "from shardline.api import Version\n"
        "from shardline.operations.landing_folder import LandingFolder, scan_landing_folders\n"
        f"version = Version(store, {NAME!r})\n"
        f"found = scan_landing_folders(version, [LandingFolder({folder.location!r})])\n"
        "assert (found.new, found.settling, found.known) == ((), (), 1)\n"
    )
    _, opened = traced(code, tmp_path / "root", "-e", "trace=openat")
    assert any("/log/" in call for call in opened), "the log is read"
    assert not any(old.name in call for call in opened)


def test_rewritten_file_of_same_size_is_new(
    version: Version, folder: LandingFolder, tmp_path: Path
) -> None:
    path = json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    land(version, scan_landing_folders(version, [folder]))
    before = path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"id": 0', b'"id": 7'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert names(scan_landing_folders(version, [folder])) == ["a.jsonl"]


def test_rejected_source_is_known(version: Version, folder: LandingFolder, tmp_path: Path) -> None:
    (tmp_path / "landing/README").write_text("no data")
    json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    assert len(land(version, scan_landing_folders(version, [folder])).rejected) == 1
    assert names(scan_landing_folders(version, [folder])) == []


def test_lost_record_appends_nothing_twice(
    version: Version, folder: LandingFolder, tmp_path: Path
) -> None:
    json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    land(version, scan_landing_folders(version, [folder]))
    for content in (None, b"", b"{", b'{"format":1,"known":{"x":[]}}', b'{"format":1}', b"[1]"):
        version.store.delete("digits/v1/arrivals.json")
        if content is not None:
            version.store.replace("digits/v1/arrivals.json", content)
        found = scan_landing_folders(version, [folder])
        assert names(found) == ["a.jsonl"], "it has to be read again"
        assert land(version, found).entry is None
        assert names(scan_landing_folders(version, [folder])) == []


def test_record_of_recreated_version_is_ignored(
    version: Version, folder: LandingFolder, tmp_path: Path
) -> None:
    json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    land(version, scan_landing_folders(version, [folder]))
    for info in version.store.list("digits/v1/log"):
        version.store.delete(info.name)
    assert names(scan_landing_folders(Version(version.store, NAME), [folder])) == ["a.jsonl"]


def test_recently_written_file_settles(version: Version, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    path = json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    folder = LandingFolder(str(tmp_path / "landing"), settle_seconds=10)
    written = path.stat().st_mtime
    found = scan_landing_folders(version, [folder], clock=lambda: written + 9)
    assert (found.new, len(found.settling)) == ((), 1)
    assert names(scan_landing_folders(version, [folder], clock=lambda: written + 11)) == ["a.jsonl"]


def test_file_ahead_of_clock_settles_when_unchanged(version: Version, tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    path = json_lines(tmp_path / "landing/a.jsonl", rows(0, 5))
    folder = LandingFolder(str(tmp_path / "landing"), settle_seconds=10)
    ahead = path.stat().st_mtime + 86_400
    os.utime(path, (ahead, ahead))

    def seen(seconds: float) -> tuple[list[str], int]:
        found = scan_landing_folders(version, [folder], clock=lambda: ahead - 1_000 + seconds)
        return names(found), len(found.settling)

    assert seen(0) == ([], 1), "its time says nothing"
    assert seen(9) == ([], 1)
    for size in (6, 7):  # it grows, and its time is set again
        json_lines(path, rows(0, size))
        os.utime(path, (ahead, ahead))
        assert seen(20 * size) == ([], 1)
        assert seen(20 * size + 9) == ([], 1)
    assert seen(200) == (["a.jsonl"], 0)
    assert seen(-50) == ([], 1), "our clock was set back: it begins again"
    assert seen(-45) == ([], 1)
    version.store.delete("digits/v1/arrivals.json")
    assert seen(250) == ([], 1)
    assert seen(261) == (["a.jsonl"], 0), "a clock that is behind does not keep it out for ever"
    land(version, scan_landing_folders(version, [folder], clock=lambda: ahead - 700))
    assert scan_landing_folders(version, [folder], clock=lambda: ahead - 600).known == 1


def test_file_ahead_of_clock_without_settling_is_new(version: Version, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "a.jsonl", rows(0, 5))
    folder = LandingFolder(str(tmp_path), "*.jsonl", settle_seconds=0)
    written = path.stat().st_mtime
    assert names(scan_landing_folders(version, [folder], clock=lambda: written - 100)) == [
        "a.jsonl"
    ]


def test_hidden_and_unmatched_files_are_skipped(version: Version, tmp_path: Path) -> None:
    for name in (".a.jsonl", "_SUCCESS", "b.csv", "c.jsonl", "deep/d.jsonl", "_tmp/e.jsonl"):
        (tmp_path / "landing" / name).parent.mkdir(parents=True, exist_ok=True)
        json_lines(tmp_path / "landing" / name, rows(0, 1))
    where = str(tmp_path / "landing")
    assert names(
        scan_landing_folders(version, [LandingFolder(where, "*.jsonl", settle_seconds=0)])
    ) == ["c.jsonl"]
    deep = scan_landing_folders(version, [LandingFolder(where, "**/*.jsonl", settle_seconds=0)])
    assert names(deep) == ["c.jsonl", "d.jsonl"]


def test_scan_reports_unmatched_files(version: Version, tmp_path: Path) -> None:
    (tmp_path / "landing/below").mkdir(parents=True)
    for name in ("a.jsonl", "b.record", ".hidden", "below/c.csv"):
        (tmp_path / "landing" / name).write_bytes(b"")
    where = str(tmp_path / "landing")
    found = scan_landing_folders(version, [LandingFolder(where, "*.jsonl", settle_seconds=0)])
    assert (names(found), found.skipped) == (["a.jsonl"], (f"{where}/b.record",))
    found = scan_landing_folders(version, [LandingFolder(where, "**/*.record", settle_seconds=0)])
    assert found.skipped == (f"{where}/a.jsonl", f"{where}/below/c.csv")
    assert scan_landing_folders(version, [LandingFolder(where, settle_seconds=0)]).skipped == ()


def test_folder_source_is_new_with_new_file(version: Version, tmp_path: Path) -> None:
    (tmp_path / "landing/monday/seven").mkdir(parents=True)
    (tmp_path / "landing/monday/seven/1.png").write_bytes(b"\x89PNG")
    folder = LandingFolder(str(tmp_path / "landing"), format="folder", settle_seconds=0)
    (first,) = scan_landing_folders(version, [folder]).new
    assert first.path == (tmp_path / "landing/monday").resolve().as_posix()
    (tmp_path / "landing/monday/seven/2.png").write_bytes(b"\x89PNG")
    (second,) = scan_landing_folders(version, [folder]).new
    assert second.stamp != first.stamp


def test_missing_landing_folder_is_empty(version: Version, tmp_path: Path) -> None:
    assert scan_landing_folders(version, [LandingFolder(str(tmp_path / "nowhere"))]).new == ()


@pytest.mark.parametrize("scheme", ["memory", "s3"])
def test_object_store_prefix_is_landing_folder(
    scheme: str, request: pytest.FixtureRequest, version: Version, tmp_path: Path
) -> None:
    where = (
        f"{request.getfixturevalue('s3_root')}/landing"
        if scheme == "s3"
        else f"memory://landing-{secrets.token_hex(8)}/in"
    )
    store = open_store(where)
    content = json_lines(tmp_path / "a.jsonl", rows(0, 5)).read_bytes()
    for name in ("a.jsonl", "deep/b.jsonl", "_SUCCESS", "c.csv"):
        store.create(name, content)
    flat = LandingFolder(where, "*.jsonl", settle_seconds=0)
    found = scan_landing_folders(version, [flat])
    assert [arrival.path for arrival in found.new] == [f"{where}/a.jsonl"]
    assert land(version, found).records == 5
    assert scan_landing_folders(version, [flat]).new == ()
    deep = LandingFolder(where, "**/*.jsonl", settle_seconds=0)
    assert names(scan_landing_folders(version, [deep])) == ["b.jsonl"]


def test_folder_format_in_object_store_raises() -> None:
    with raises(InvalidArgumentError, "unsupported-location", path="s3://bucket/in"):
        LandingFolder("s3://bucket/in", format="folder")
