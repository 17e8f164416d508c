"""`shardline count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.tfrecord.samples import gzip_member, made

if TYPE_CHECKING:
    from pathlib import Path


def test_counts_are_told_per_file_and_in_all(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(*[b"x"] * 1234))
    made(tmp_path / "b.tfrecord", gzip_member(framed(*[b"y"] * 3)))
    result = shardline("count", "*.tfrecord", cwd=tmp_path)
    assert result.code == 0
    assert [line.split() for line in result.out.splitlines()] == [
        ["1,234", "a.tfrecord"],
        ["3", "b.tfrecord"],
        ["1,237", "total"],
    ]


def test_counts_are_told_as_json(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(b"", b"x"))
    made(tmp_path / "b.tfrecord", b"")
    result = shardline("count", ".", "--json", cwd=tmp_path)
    assert result.code == 0
    assert result.json == {
        "ok": True,
        "complete": True,
        "records": 2,
        "files": [
            {"file": "a.tfrecord", "records": 2, "ok": True, "complete": True, "faults": []},
            {"file": "b.tfrecord", "records": 0, "ok": True, "complete": True, "faults": []},
        ],
    }


def test_a_damaged_file_is_counted_up_to_the_damage_and_told(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(b"one", b"two", b"three")[:-1])
    result = shardline("count", path, "--json")
    assert result.code == 1
    assert (result.json["ok"], result.json["records"]) == (False, 2)
    (told,) = result.json["files"]
    assert (told["file"], told["records"], told["ok"]) == (str(path), 2, False)
    assert [fault["kind"] for fault in told["faults"]] == ["truncated"]
    assert all(words in result.err for words in ("error: ", "truncated", "record 2"))
