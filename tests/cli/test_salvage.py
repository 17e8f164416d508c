"""`shardline salvage`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.tfrecord.samples import gzip_member, made, records_of

if TYPE_CHECKING:
    from pathlib import Path

SMALL = [b"first", b"", b"a third record, a little longer", b"fourth"]


def broken() -> bytes:
    """The second record is damaged, and stray bytes stand at the end."""
    data = bytearray(framed(*SMALL))
    data[21 + 3] ^= 1
    return bytes(data) + b"stray"


def test_what_was_recovered_and_lost_is_told_as_json(tmp_path: Path) -> None:
    source = made(tmp_path / "in", broken())
    result = shardline("salvage", source, "-o", tmp_path / "out", "--json")
    assert (result.code, result.err) == (0, "")
    told = result.json
    assert (told["recovered"], told["lost_bytes"]) == (3, 21)
    assert [(gap["offset"], gap["bytes"]) for gap in told["gaps"]] == [(21, 16), (106, 5)]
    assert [gap["kind"] for gap in told["gaps"]] == ["length-crc", "trailing-bytes"]
    assert records_of(tmp_path / "out") == [SMALL[0], *SMALL[2:]]
    assert source.read_bytes() == broken()
    assert shardline("verify", tmp_path / "out").code == 0


def test_people_are_told_the_same_in_words(tmp_path: Path) -> None:
    made(tmp_path / "in", broken())
    result = shardline("salvage", "in", "-o", "out", "--quarantine", "bad.jsonl", cwd=tmp_path)
    assert result.code == 0
    assert all(words in result.out for words in ("3 records", "21 bytes", "length-crc"))
    assert "bad.jsonl" in result.out
    lines = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [(line["offset"], line["bytes"]) for line in lines] == [(21, 16), (106, 5)]


def test_an_intact_file_is_told_to_be_intact(tmp_path: Path) -> None:
    source = made(tmp_path / "in", framed(*SMALL))
    result = shardline("salvage", source, "-o", tmp_path / "out")
    assert result.code == 0
    assert "nothing was lost" in result.out
    assert (tmp_path / "out").read_bytes() == framed(*SMALL)
    told = shardline("salvage", source, "-o", tmp_path / "out2", "--json").json
    assert (told["recovered"], told["lost_bytes"], told["gaps"]) == (4, 0, [])


def test_an_existing_out_or_quarantine_is_refused_with_code_2(tmp_path: Path) -> None:
    made(tmp_path / "in", broken())
    made(tmp_path / "out", b"precious")
    for arguments in (
        ["in", "-o", "out"],
        ["in", "-o", "in"],
        ["in", "-o", "new", "--quarantine", "out"],
    ):
        result = shardline("salvage", *arguments, "--json", cwd=tmp_path)
        assert result.problem == (2, "file-exists")
    assert (tmp_path / "out").read_bytes() == b"precious"
    assert (tmp_path / "in").read_bytes() == broken()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in", "out"]


def test_a_missing_folder_for_out_is_code_2(tmp_path: Path) -> None:
    made(tmp_path / "in", broken())
    result = shardline("salvage", "in", "-o", "missing/out", "--json", cwd=tmp_path)
    assert result.problem == (2, "folder-not-found")


def test_nothing_to_salvage_is_code_1_and_writes_nothing(tmp_path: Path) -> None:
    made(tmp_path / "in", bytes(100))
    result = shardline("salvage", "in", "-o", "out", "--quarantine", "q", "--json", cwd=tmp_path)
    assert result.problem == (1, "no-intact-record")
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


def test_a_damaged_gzip_gives_what_can_be_had_in_the_packing_asked_for(tmp_path: Path) -> None:
    good = gzip_member(framed(*SMALL))
    made(tmp_path / "in", good[:20] + bytes(len(good) - 20) + good)
    result = shardline(
        "salvage", "in", "-o", "out", "--compression", "none", "--json", cwd=tmp_path
    )
    assert result.code == 0
    told = result.json
    assert told["compression"] == "gzip"
    assert told["recovered"] >= 4
    assert any(gap["packed"] for gap in told["gaps"])
    assert (tmp_path / "out").read_bytes().endswith(framed(*SMALL))


def test_the_records_and_the_quarantine_cannot_be_one_file(tmp_path: Path) -> None:
    made(tmp_path / "in", broken())
    result = shardline("salvage", "in", "-o", "out", "--quarantine", "out", "--json", cwd=tmp_path)
    assert result.problem == (2, "conflicting-options")
    assert not (tmp_path / "out").exists()
