"""Commands that take a folder read every TFRecord file and report the files they skip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of, gzip_member, made

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = ("a.tfrecord", "b.tfrecords", "c.tfrec", "d.record", "e.records", "f.tfr", "g.record.gz")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with TFRecord files, files of other kinds, sidecars and hidden files."""
    (tmp_path / "in" / "below").mkdir(parents=True)
    for at, name in enumerate(RECORDS):
        data = framed(example_of(id=at))
        made(tmp_path / "in" / name, gzip_member(data) if name.endswith(".gz") else data)
    made(tmp_path / "in" / "README.md", b"# about")
    made(tmp_path / "in" / "below" / "run.log", b"notes")
    made(tmp_path / "in" / ".hidden.tfrecord", b"")
    made(tmp_path / "in" / "a.tfrecord.index", b"")
    return tmp_path


PREFIX = ("--on-collision", "prefix", "--left-prefix", "l_", "--right-prefix", "r_")
COMMANDS = {
    "verify": ("verify", "in"),
    "count": ("count", "in"),
    "schema": ("schema", "in"),
    "declare": ("schema", "in", "--declare"),
    "index": ("index", "in"),
    "rebuild": ("rebuild", "in", "--output", "out.tfrecord"),
    "combine": ("combine", "in", "in", "--output", "out.tfrecord", *PREFIX),
    "append": ("append", "digits/v1", "in", "--root", "root", "--format", "tfrecord"),
    "dry append": ("append", "digits/v1", "in", "--root", "root", "--dry-run"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_folder_scan_reads_all_and_reports_skipped(folder: Path, command: str) -> None:
    result = shardline(*COMMANDS[command], "--json", cwd=folder)
    assert result.code == 0, result.err + result.out
    skipped = result.json["skipped_files"]
    assert skipped["count"] == 2
    assert skipped["files"] == ["in/README.md", "in/below/run.log"]
    read = {
        "rebuild": result.json.get("records"),
        "append": len(result.json.get("appended", ())),
        "dry append": len(result.json.get("new", ())),
        "combine": round(result.json.get("records", 0) ** 0.5),
        "declare": len(RECORDS),
    }.get(command) or len(result.json["files"])
    assert read == len(RECORDS)


def test_skipped_files_of_text_output_go_to_stderr(folder: Path) -> None:
    result = shardline("count", "in", cwd=folder)
    assert len(result.out.splitlines()) == len(RECORDS) + 1
    assert "skipped 2 files" in result.err
    assert "README.md" in result.err


def test_nothing_is_reported_without_skipped_files(folder: Path) -> None:
    result = shardline("count", "in/a.tfrecord", "--json", cwd=folder)
    assert "skipped_files" not in result.json
    assert not result.err
