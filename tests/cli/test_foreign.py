"""Commands name the format of a file that is not a TFRecord file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = {
    "head": ("head", "a.csv"),
    "salvage": ("salvage", "a.csv", "-o", "out"),
    "schema": ("schema", "a.data"),
    "rebuild": ("rebuild", "a.csv", "--output", "out"),
    "combine": ("combine", "a.csv", "a.csv", "--output", "out"),
    "migrate": ("migrate", "a.csv", "--output", "out", "--drop", "id"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_the_other_format(tmp_path: Path, command: str) -> None:
    for name in ("a.csv", "a.data"):
        made(tmp_path / name, b"id,name\n1,a\n2,b\n")
    result = shardline(*COMMANDS[command], "--json", cwd=tmp_path)
    assert result.code == 1, result.out
    assert result.error["code"] == "not-tfrecord"
    assert result.error["format"] == "csv"
    assert result.error["hint"]["commands"][0][1] == "append"
    assert "CORRUPT" not in result.err
    assert not (tmp_path / "out").exists()


def test_verify_names_the_other_format(tmp_path: Path) -> None:
    made(tmp_path / "a.csv", b"id,name\n1,a\n2,b\n")
    made(tmp_path / "good", framed(b"x"))
    made(tmp_path / "bad", framed(b"x")[:-1])
    told = shardline("verify", "a.csv", "good", "bad", "--json", cwd=tmp_path)
    assert told.code == 1
    assert [file.get("format") for file in told.json["files"]] == ["csv", None, None]
    assert [file["ok"] for file in told.json["files"]] == [False, True, False]
    shown = shardline("verify", "a.csv", "good", "bad", cwd=tmp_path).out
    assert shown.count("CORRUPT") == 1
    assert ", 1 not TFRecord" in shown


@pytest.mark.parametrize("command", ["count", "index"])
def test_other_formats_are_errors_of_each_file(tmp_path: Path, command: str) -> None:
    made(tmp_path / "a.csv", b"id,name\n1,a\n2,b\n")
    result = shardline(command, "a.csv", cwd=tmp_path)
    assert result.code == 1
    assert "not a TFRecord" in result.err
    assert "shardline append" in result.err
