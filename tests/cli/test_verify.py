"""`shardline verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.command import shardline
from tests.files.samples import example_of, gzip_member, made, packed
from tests.kernel.frames import framed, header

if TYPE_CHECKING:
    from pathlib import Path

SMALL = [b"first", b"", b"a third record, a little longer"]


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_a_sound_file_is_told_as_json_in_the_shape_that_was_promised(
    tmp_path: Path, compression: str
) -> None:
    content = packed(compression, framed(*SMALL))
    path = made(tmp_path / "a", content)
    result = shardline("verify", path, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json == {
        "ok": True,
        "files": [
            {
                "file": str(path),
                "records": 3,
                "bytes": len(content),
                "compression": compression,
                "ok": True,
                "faults": [],
            }
        ],
    }


KINDS = {
    "length-crc": (b"\xff" + framed(*SMALL)[1:], 0, 0, 0),
    "data-crc": (framed(*SMALL)[:-1] + b"\x00", 2, 37, 2),
    "truncated": (framed(*SMALL)[:-1], 2, 37, 2),
    "trailing-bytes": (framed(*SMALL) + b"stray", 3, 84, 3),
    "oversized": (framed(*SMALL) + header(2**40), 3, 84, 3),
    "compression": (gzip_member(framed(*SMALL)) + b"junk", 3, len(gzip_member(framed(*SMALL))), 3),
    "example": (framed(example_of(a=1), b"\x08"), 1, len(framed(example_of(a=1))), 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_is_told_with_record_offset_and_detail(
    tmp_path: Path, kind: str
) -> None:
    content, record, offset, intact = KINDS[kind]
    path = made(tmp_path / "a", content)
    result = shardline("verify", path, "--json", *(["--examples"] * (kind == "example")))
    assert result.code == 1
    told = result.json
    (file,) = told["files"]
    assert told["ok"] is file["ok"] is False
    assert file["records"] == intact
    assert file["bytes"] == len(content)
    (fault,) = file["faults"]
    assert set(fault) == {"kind", "record", "offset", "detail"}
    assert (fault["kind"], fault["record"], fault["offset"]) == (kind, record, offset)
    assert fault["detail"]


def test_a_fault_in_one_file_does_not_keep_the_others_from_being_checked(tmp_path: Path) -> None:
    made(tmp_path / "a", framed(*SMALL) + b"x")
    made(tmp_path / "b", framed(b"fine"))
    made(tmp_path / "c", b"no records at all")
    result = shardline("verify", "a", "b", "c", "--json", "-j", "2", cwd=tmp_path)
    assert result.code == 1
    assert [(file["file"], file["ok"]) for file in result.json["files"]] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]


def test_all_finds_every_fault(tmp_path: Path) -> None:
    data = bytearray(framed(*SMALL, b"last"))
    data[13] ^= 1
    data[40] ^= 1
    path = made(tmp_path / "a", bytes(data))
    first = shardline("verify", path, "--json").json["files"][0]
    assert [fault["record"] for fault in first["faults"]] == [0]
    every = shardline("verify", path, "--all", "--json").json["files"][0]
    assert [(fault["kind"], fault["record"]) for fault in every["faults"]] == [
        ("data-crc", 0),
        ("length-crc", 2),
    ]
    assert every["records"] == 2


def test_payloads_are_checked_only_if_asked(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(b"\x08", example_of(a=1), b"\x08"))
    assert shardline("verify", path).code == 0
    result = shardline("verify", path, "--examples", "--all", "--json")
    assert result.code == 1
    assert [fault["record"] for fault in result.json["files"][0]["faults"]] == [0, 2]


def test_people_are_told_the_same_in_words(tmp_path: Path) -> None:
    made(tmp_path / "good", gzip_member(framed(*SMALL)))
    made(tmp_path / "bad", framed(*SMALL) + b"stray")
    result = shardline("verify", "good", "bad", cwd=tmp_path)
    assert result.code == 1
    assert "ok      good: 3 records" in result.out
    assert "gzip" in result.out
    assert "DAMAGED bad" in result.out
    assert "trailing-bytes at record 3, offset 84: 5 stray bytes" in result.out
    assert "2 files, 1 damaged" in result.out
    assert "shardline salvage bad OUT" in result.out


def test_many_faults_are_not_all_printed_but_counted(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*[b"\x08"] * 100))
    result = shardline("verify", path, "--examples", "--all")
    assert "80 more faults" in result.out
    told = shardline("verify", path, "--examples", "--all", "--json").json
    assert len(told["files"][0]["faults"]) == 100


def test_the_caps_can_be_set(tmp_path: Path) -> None:
    path = made(tmp_path / "a", gzip_member(framed(bytes(2000), bytes(2000))))
    assert shardline("verify", path).code == 0
    for option, size, kind in (
        ("--max-record", "1KB", "oversized"),
        ("--max-unpacked", "3000", "compression"),
    ):
        result = shardline("verify", path, option, size, "--json")
        assert result.code == 1
        assert result.json["files"][0]["faults"][0]["kind"] == kind
    assert shardline("verify", path, "--max-record", "2kib", "--max-unpacked", "1GB").code == 0


def test_a_payload_is_never_printed(tmp_path: Path) -> None:
    secret = b"Jane Doe"
    content = framed(secret, b"\x0a\x7f" + secret)
    path = made(tmp_path / "a", content[:14] + b"!" + content[15:])
    for arguments in (["--all", "--examples"], ["--all", "--examples", "--json"]):
        result = shardline("verify", path, *arguments)
        assert "Doe" not in result.out + result.err
