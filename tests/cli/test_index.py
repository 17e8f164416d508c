"""`shardline index`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.tfrecord.indexed_file import IndexedFile
from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.tfrecord.samples import gzip_member, made

if TYPE_CHECKING:
    from pathlib import Path

PAYLOADS = [b"%d" % number for number in range(100)]


def test_an_index_is_written_beside_each_file_and_works(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    made(tmp_path / "b.tfrecord", gzip_member(framed(*PAYLOADS)))
    result = shardline("index", "*.tfrecord", "--json", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.json == {
        "ok": True,
        "files": [
            {"file": f"{name}.tfrecord", "index": f"{name}.tfrecord.index", "records": 100}
            for name in "ab"
        ],
    }
    for name in ("a.tfrecord", "b.tfrecord"):
        with IndexedFile(tmp_path / name) as file:
            assert file[57] == b"57"


def test_an_index_is_never_taken_for_a_file_of_records(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    for arguments in (["."], ["a.*"], ["*"]):
        assert shardline("index", *arguments, cwd=tmp_path).code == 0
        told = shardline("verify", *arguments, "--json", cwd=tmp_path)
        assert [file["file"] for file in told.json["files"]] == ["a.tfrecord"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tfrecord", "a.tfrecord.index"]


def test_people_are_told_the_same_in_words(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    result = shardline("index", "a.tfrecord", cwd=tmp_path)
    assert (result.code, result.out) == (0, "a.tfrecord.index: 100 records\n")


def test_a_damaged_file_gets_no_index_and_code_1_and_the_others_get_theirs(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS)[:-1])
    made(tmp_path / "b.tfrecord", framed(*PAYLOADS))
    result = shardline("index", "a.tfrecord", "b.tfrecord", "--json", cwd=tmp_path)
    assert result.code == 1
    damaged, sound = result.json["files"]
    assert (damaged["index"], damaged["records"], sound["records"]) == (None, None, 100)
    for text in (damaged["error"], result.err):
        assert all(words in text for words in ("truncated", "record 99"))
    assert result.commands == [["salvage", "a.tfrecord", "-o", "OUT"]]
    assert not (tmp_path / "a.tfrecord.index").exists()
    assert (tmp_path / "b.tfrecord.index").exists()
