"""`shardline verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from tests.cli.command import on_terminal, process, shardline
from tests.cli.datasets import damage, entry_file, file_of, landed, narrow, on
from tests.kernel.frames import framed, header
from tests.log.versions import NAME, shard_name
from tests.tfrecord.samples import example_of, gzip_member, made, packed

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
                "complete": True,
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
    lines = result.out.splitlines()
    assert lines[0].split()[:4] == ["ok", "good:", "3", "records,"]
    assert lines[0].endswith("gzip")
    assert lines[1].startswith("CORRUPT bad")
    assert lines[2].split()[:6] == ["trailing-bytes", "at", "record", "3,", "offset", "84:"]
    assert "1 corrupt" in lines[3]
    assert result.commands == [["salvage", "bad", "-o", "OUT"]]


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
        ("--max-decompressed", "3000", "compression"),
    ):
        result = shardline("verify", path, option, size, "--json")
        assert result.code == 1
        assert result.json["files"][0]["faults"][0]["kind"] == kind
    assert shardline("verify", path, "--max-record", "2kib", "--max-decompressed", "1GB").code == 0


def test_a_payload_is_never_printed(tmp_path: Path) -> None:
    secret = b"Jane Doe"
    content = framed(secret, b"\x0a\x7f" + secret)
    path = made(tmp_path / "a", content[:14] + b"!" + content[15:])
    for arguments in (["--all", "--examples"], ["--all", "--examples", "--json"]):
        result = shardline("verify", path, *arguments)
        assert "Doe" not in result.out + result.err


def test_a_sound_snapshot_is_told_with_its_log(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    result = narrow(tmp_path, "verify", NAME)
    assert (result.code, result.err) == (0, "")
    assert all(words in result.out for words in ("5 entries", "2 shards", "6 records"))


def test_json_tells_the_log_and_each_shard(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    result = on(tmp_path, "verify", f"{NAME}@1", "--json")
    assert (result.code, result.err) == (0, "")
    assert set(result.json) == {"ok", "versions"}
    assert result.json["ok"] is True
    (told,) = result.json["versions"]
    assert told.pop("snapshot")["content"] == version.latest().content
    assert told == {
        "version": NAME,
        "ok": True,
        "log": {"entries": 3, "checkpoints": 0, "problems": []},
        "shards": [
            {
                "shard": shard_name("one"),
                "records": 3,
                "bytes": file_of(tmp_path, "one").stat().st_size,
                "ok": True,
                "problems": [],
                "violations": [],
                "complete": True,
            }
        ],
        "bases": [],
        "vacuumed": [],
    }


def test_each_damaged_shard_is_told_and_nothing_written(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two", "three")
    damage(file_of(tmp_path, "one"))
    file_of(tmp_path, "two").unlink()
    result = on(tmp_path, "verify", NAME)
    assert result.code == 1
    for label in ("one", "two"):
        assert f"CORRUPT digits/shards/{shard_name(label)}\n" in result.out
    assert all(words in result.out for words in ("record 0", "3 shards", "2 corrupt"))
    assert result.commands == [["check", "digits/v1@3", "--recheck"], ["repair", NAME]]
    assert Version(tmp_path, NAME).state.number == 7
    newest = on(tmp_path, "verify", NAME, "--json").json["versions"][0]
    assert [shard["ok"] for shard in newest["shards"]] == [False, False, True]
    assert all(shard["problems"] for shard in newest["shards"][:2])
    older = on(tmp_path, "verify", f"{NAME}@1", "--json").json["versions"][0]
    assert [shard["ok"] for shard in older["shards"]] == [False]


def test_what_went_to_vacuum_is_not_taken_for_damage(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two").restore(1)
    assert on(tmp_path, "vacuum", "digits", "--retention", "0", "--delete").code == 0
    assert on(tmp_path, "verify", NAME).code == 0
    for arguments in ([], ["--quick"]):
        result = on(tmp_path, "verify", f"{NAME}@2", *arguments)
        assert result.code == 1
        assert "entry 7" in result.out
        assert f"DELETED digits/shards/{shard_name('two')}" in result.out
        assert all(words in result.out for words in ("0 corrupt", "1 deleted", "digits/v1@2"))
        assert result.commands == []
    told = on(tmp_path, "verify", f"{NAME}@2", "--json").json["versions"][0]
    assert (told["ok"], told["vacuumed"]) == (False, [shard_name("two")])


def test_a_quick_look_sees_what_is_missing_or_cut_and_reads_nothing(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(file_of(tmp_path, "one"))
    assert on(tmp_path, "verify", NAME, "--quick").code == 0
    file_of(tmp_path, "two").write_bytes(b"short")
    result = on(tmp_path, "verify", NAME, "--quick")
    assert result.code == 1
    assert "5 bytes" in result.out
    told = on(tmp_path, "verify", NAME, "--quick", "--json").json["versions"][0]
    assert (told["log"], [shard["ok"] for shard in told["shards"]]) == (None, [True, False])


def test_a_damaged_log_is_told_by_entry(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(entry_file(tmp_path, 3))
    result = on(tmp_path, "verify", NAME)
    assert result.code == 1
    assert all(words in result.out for words in ("1 problem", "entry 3:"))
    told = on(tmp_path, "verify", NAME, "--json").json
    assert (told["ok"], told["versions"][0]["snapshot"]) == (False, None)
    assert [problem["entry"] for problem in told["versions"][0]["log"]["problems"]] == [3]
    assert on(tmp_path, "verify", NAME, "--quick").code == 1


def test_files_win_over_datasets_and_both_can_be_named_at_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    loose = made(tmp_path / "a.tfrecord", framed(*SMALL))
    told = on(root, "verify", NAME, loose, "--json").json
    assert [file["records"] for file in told["files"]] == [3]
    assert [version["version"] for version in told["versions"]] == [NAME]
    (tmp_path / "digits").mkdir()
    made(tmp_path / "digits" / "v1", framed(*SMALL))
    told = shardline("verify", NAME, "--json", cwd=tmp_path, SHARDLINE_ROOT=str(root)).json
    assert [file["file"] for file in told["files"]] == [NAME]
    assert "versions" not in told


def test_a_version_is_found_also_from_inside_its_root(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    result = shardline("verify", NAME, "--root", ".", "--json", cwd=tmp_path)
    assert (result.code, result.json["versions"][0]["version"]) == (0, NAME)


def test_what_is_neither_file_nor_dataset_is_told_to_be_neither(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    result = shardline("verify", NAME, "--json", cwd=tmp_path / "digits")
    assert result.problem == (2, "file-not-found")
    assert result.error["path"] == NAME
    assert "SHARDLINE_ROOT" in result.error["hint"]["text"]
    for argument, code in (
        ("digits/v9", "version-not-found"),
        (f"{NAME}@9", "snapshot-not-found"),
        ("digits", "file-not-found"),
        ("Digits/V1", "file-not-found"),
    ):
        result = on(tmp_path, "verify", argument, "--json")
        assert result.problem == (2, code)


def test_options_of_files_and_of_datasets_are_kept_apart(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    loose = made(tmp_path / "a.tfrecord", framed(*SMALL))
    result = on(root, "verify", loose, "--quick", "--json")
    assert result.problem == (2, "option-not-applicable")
    assert result.error["path"] == str(loose)
    for option in ("--examples", "--all"):
        result = on(root, "verify", NAME, option, "--json")
        assert result.problem == (2, "option-not-applicable")
        assert result.hint == [["check", NAME]]


def test_a_dataset_gets_a_progress_bar_too(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    code, drawn = on_terminal("verify", NAME, "--root", tmp_path)
    assert (code, "verifying" in drawn, "━" in drawn) == (0, True, True)


def test_a_damaged_checkpoint_is_a_problem_and_a_warning_in_our_words(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    version.log.write_checkpoint(version.state)
    checkpoint = entry_file(tmp_path, 3).with_suffix(".checkpoint")
    assert checkpoint.exists()
    checkpoint.write_bytes(b"\x1b[31mnonsense")
    result = process("verify", NAME, "--quick", "--root", tmp_path)
    assert result.code == 0
    assert result.err.startswith("warning: digits/v1: ")
    assert "entry 3" in result.err
    result = process("verify", NAME, "--root", tmp_path)
    assert result.code == 1
    assert "entry 3: " in result.out
    assert "\x1b" not in result.out + result.err
