"""`shardline append` and `shardline reland`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shardline.log.version import Version
from shardline.operations.check import check_version
from tests.cli.command import ROOT, on_terminal
from tests.cli.datasets import HOSTILE, damage, here, numbers_of, write_rows
from tests.files.samples import big_file, bulk_needs_the_compiled_kernel, example_of, made
from tests.kernel.frames import framed
from tests.log.versions import NAME, make_version
from tests.signals import default_signals

if TYPE_CHECKING:
    from pathlib import Path

DECLARED = b'{"payload": "example", "features": [{"name": "x", "kind": "int64"}]}'
PACE = r"  \d+\.\d\d s, [\d,]+ records/s, [\d.]+ \w+/s"


def test_the_first_append_makes_root_and_version_and_publishes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_rows(tmp_path / "a.jsonl", range(3))
    result = here(root, "append", NAME, "a.jsonl", cwd=tmp_path)
    assert result.code == 0, result.err
    assert result.err == (
        f"shardline: the root {root} is not there yet: it is made with the first dataset\n"
    )
    lines = result.out.splitlines()
    assert lines[:2] == ["created digits/v1, whose schema has 1 feature:", "  x: int64 [] required"]
    assert re.fullmatch(
        r"digits/v1@1: \+3 records of 1 source, \d+ bytes in 1 shard\n" + PACE,
        "\n".join(lines[2:4]),
    )
    assert re.fullmatch(r"digits/v1@1: 1 shard checked \(\d+ bytes\), 0 failed", lines[4])
    assert lines[5:] == ["digits/v1@1 is published", "To read it: shardline files digits/v1"]
    assert numbers_of(Version(root, NAME), "published") == [0, 1, 2]


def test_a_source_lands_once_and_nothing_new_is_code_0(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    assert here(tmp_path, "append", NAME, tmp_path / "a.jsonl").code == 0
    write_rows(tmp_path / "b.jsonl", range(3, 5))
    result = here(tmp_path, "append", NAME, "*.jsonl", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "digits/v1@2: +2 records of 1 source" in result.out
    assert "skipped 1 source:\n  a.jsonl: it landed in entry 2 of the log\n" in result.out
    result = here(tmp_path, "append", NAME, "a.jsonl", "b.jsonl", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "digits/v1: nothing is new, and nothing was changed",
        "skipped 2 sources:",
        "  a.jsonl: it landed in entry 2 of the log",
        "  b.jsonl: it landed in entry 4 of the log",
    ]
    assert numbers_of(Version(tmp_path, NAME)) == [0, 1, 2, 3, 4]


def test_json_tells_all_of_it(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", [0, 1, "two", 3])
    schema = made(tmp_path / "s.json", DECLARED)
    arguments = ("--schema", schema, "--quarantine-share", "50%", "--json")
    result = here(tmp_path / "root", "append", NAME, path, *arguments)
    assert result.code == 0, result.err
    told = result.json
    version = Version(tmp_path / "root", NAME)
    (shard,) = version.newest().shards
    assert told["snapshot"]["snapshot"] == 1
    assert told["check"]["ok"] is True
    assert told["seconds"] > 0
    assert {name: told[name] for name in ("ok", "version", "created", "records", "published")} == {
        "ok": True, "version": NAME, "created": True, "records": 3, "published": True,
    }  # fmt: skip
    assert (told["shards"], told["bytes"]) == ([shard.to_json()], shard.bytes)
    (landed,) = told["landed"]
    assert (landed["path"], landed["rows"], landed["records"], landed["quarantined"]) == (
        str(path), 4, 3, 1,
    )  # fmt: skip
    quarantine = told["quarantine"]
    assert (quarantine["rows"], len(quarantine["files"]), len(quarantine["reasons"])) == (1, 1, 1)
    again = here(tmp_path / "root", "append", NAME, path, *arguments).json
    assert (again["ok"], again["snapshot"], again["entry"], again["check"]) == (
        True, None, None, None,
    )  # fmt: skip
    assert again["skipped"] == [
        {**{name: landed[name] for name in ("path", "size", "sha256")},
         "why": "it landed in entry 2 of the log"}
    ]  # fmt: skip


def test_rows_that_do_not_fit_are_told_with_code_1_and_nothing_is_committed(
    tmp_path: Path,
) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    assert here(tmp_path, "append", NAME, tmp_path / "a.jsonl").code == 0
    write_rows(tmp_path / "bad.jsonl", [7, "seven", 8])
    result = here(tmp_path, "append", NAME, "bad.jsonl", cwd=tmp_path)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[:2] == [
        "shardline: 1 of 3 rows do not fit the schema of digits/v1: nothing was committed",
        "  bad.jsonl, line 2, feature 'x': holds bytes values, not int64",
    ]
    assert "--quarantine-share 1%" in result.err
    assert "seven" not in result.err
    told = here(tmp_path, "append", NAME, "bad.jsonl", "--json", cwd=tmp_path).json
    assert (told["ok"], told["bad"], told["rows"], len(told["reasons"])) == (False, 1, 3, 1)
    assert Version(tmp_path, NAME).state.number == 3


def test_quarantined_rows_are_told_with_their_file_and_in_the_log(tmp_path: Path) -> None:
    make_version(tmp_path)
    write_rows(tmp_path / "a.jsonl", [*range(98), "x", "y"])
    result = here(tmp_path, "append", NAME, tmp_path / "a.jsonl", "--quarantine-share", "0.02")
    assert result.code == 0, result.err
    assert "2 rows of 100 did not fit and went to quarantine (2.00%):" in result.out
    assert "line 99, feature 'x': holds bytes values, not int64" in result.out
    (file,) = (tmp_path / "digits" / "quarantine").iterdir()
    assert f"They are, each with its reason, in:\n  {file}\n" in result.out
    assert len(file.read_text().splitlines()) == 2
    assert "+1 shard, 98 records; 2 rows in quarantine" in here(tmp_path, "log", NAME).out
    write_rows(tmp_path / "a.jsonl", [*range(98), "z", "y"])
    result = here(tmp_path, "append", NAME, tmp_path / "a.jsonl", "--quarantine-share", "1%")
    assert (result.code, "and at most 1.00% may" in result.err) == (1, True)


def test_no_row_and_no_name_can_command_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / f"{HOSTILE.replace('/', '')}.jsonl"
    write_rows(path, [1, HOSTILE])
    for arguments in (["append"], ["append", "--quarantine-share", "90%"], ["append", "--dry-run"]):
        result = here(tmp_path / "root", *arguments, NAME, path)
        assert "\x1b" not in result.out + result.err
        assert "\x07" not in result.out + result.err
        assert "\\x1b[31mred" in result.out + result.err


def test_a_dry_run_tells_what_is_new_and_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_rows(tmp_path / "a.jsonl", range(3))
    result = here(root, "append", NAME, "a.jsonl", "--dry-run", cwd=tmp_path)
    assert result.code == 0
    assert result.out.splitlines() == [
        "digits/v1: 1 source would land, and digits/v1 be created:",
        "  a.jsonl",
        "Nothing was changed, and no row was looked at. To do it, leave out --dry-run",
    ]
    told = here(root, "append", NAME, "a.jsonl", "--dry-run", "--json", cwd=tmp_path).json
    assert (told["dry_run"], len(told["new"]), told["landed"]) == (True, 1, [])
    assert not root.exists()


def test_without_a_check_it_is_not_published_and_the_next_step_is_told(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    result = here(tmp_path, "append", NAME, path, "--no-check")
    assert result.code == 0
    assert result.out.endswith("To check it, and so publish it: shardline check digits/v1@1\n")
    assert Version(tmp_path, NAME).state.published is None
    result = here(tmp_path, "append", NAME, path)
    assert "digits/v1@1 is not published. To see why: shardline status digits/v1" in result.out


def test_a_check_that_fails_is_code_1_and_says_what_mends_it(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    assert here(tmp_path, "append", NAME, path).code == 0
    version = Version(tmp_path, NAME)
    damage(tmp_path / version.shard_name(version.newest().shards[0]))
    assert here(tmp_path, "check", NAME, "--again").code == 1
    result = here(tmp_path, "append", NAME, write_rows(tmp_path / "b.jsonl", range(3)))
    assert result.code == 1
    assert "digits/v1@2: +3 records" in result.out
    assert "digits/v1@2 is not published" in result.out
    assert "To make anew what is damaged: shardline repair digits/v1" in result.out
    assert "To check it" not in result.out


SHARES = {"1": 2, "101%": 2, "-1%": 2, "many": 2, "1.5": 2, "": 2, "100%": 0, "0.5": 0, "0": 0}


@pytest.mark.parametrize("share", SHARES)
def test_a_share_is_written_with_a_percent_sign_or_below_one(tmp_path: Path, share: str) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    result = here(tmp_path, "append", NAME, path, "--quarantine-share", share, "--dry-run")
    assert result.code == SHARES[share]
    assert ("write it like 1% or 0.01" in result.err) == (result.code == 2)


def test_shards_have_the_size_and_packing_that_are_asked_for(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(1000))
    told = here(tmp_path, "append", NAME, path, "--target-size", "4KB", "-j", "1", "--json").json
    sizes = [shard["bytes"] for shard in told["shards"]]
    assert (len(sizes) > 2, max(sizes) <= 4096) == (True, True)
    assert numbers_of(Version(tmp_path, NAME)) == list(range(1000))
    told = here(tmp_path, "append", "digits/v2", path, "--compression", "gzip", "--json").json
    assert [shard["compression"] for shard in told["shards"]] == ["gzip"]
    assert numbers_of(Version(tmp_path, "digits/v2")) == list(range(1000))


def test_a_declared_schema_is_used_and_must_be_that_of_the_version(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    told = here(tmp_path, "schema", path, "--declare")
    declared = made(tmp_path / "s.json", told.out.replace("int64", "float").encode())
    assert here(tmp_path, "append", NAME, path, "--schema", declared).code == 0
    assert Version(tmp_path, NAME).schema.feature("x").kind == "float"
    other = made(tmp_path / "t.json", told.out.encode())
    result = here(tmp_path, "append", NAME, write_rows(path, range(4)), "--schema", other)
    assert result.code == 1
    assert "shardline: digits/v1 has another schema:\n" in result.err
    entry = next((tmp_path / NAME / "log").glob("*1.json"))
    assert here(tmp_path, "append", NAME, path, "--schema", entry).code == 0


BAD_SCHEMAS = {
    "no file": (None, "No such file or directory"),
    "no JSON": (b'{\n"features": [,]}', "this is no JSON: line 2, column 14"),
    "no text": (b"\xff\xfe\x00", "this is no JSON"),
    "no object": (b"[1]", "this is no schema: a schema is no JSON object"),
    "an unknown kind": (
        b'{"payload": "example", "features": [{"name": "x", "kind": "int"}]}',
        "kind 'int' is none of",
    ),
    "a slip": (b'{"payload": "example", "feature": []}', "has no 'features'"),
    "a deep nest": (b"[" * 100_000, "this is no"),
    "a shape of text": (
        b'{"payload": "example", "features": [{"name": "x", "kind": "int64", "shape": ["a"]}]}',
        "feature 'x'",
    ),
}


@pytest.mark.parametrize("what", BAD_SCHEMAS)
def test_a_bad_schema_is_told_with_code_2_before_anything_is_made(
    tmp_path: Path, what: str
) -> None:
    data, words = BAD_SCHEMAS[what]
    path = write_rows(tmp_path / "a.jsonl", range(3))
    if data is not None:
        made(tmp_path / "s.json", data)
    result = here(tmp_path / "root", "append", NAME, path, "--schema", tmp_path / "s.json")
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert "s.json" in result.err
    assert not (tmp_path / "root").exists()


WRONG = {
    "no source": ([], "Missing argument"),
    "a missing file": (["missing.jsonl"], "no such file: missing.jsonl"),
    "a glob without match": (["*.nothing"], "no file matches *.nothing"),
    "an empty name": ([""], "an empty source"),
    "an unknown format": (["a.jsonl", "--format", "xml"], "is not one of"),
    "no bytes a shard": (["a.jsonl", "--target-size", "0"], "is too little; at least 1"),
    "ZLIB": (["a.jsonl", "--compression", "zlib"], "is not one of"),
    "a file as a folder": (["a.jsonl", "--format", "folder"], "is for folders"),
    "what tells nothing": (["noise"], "neither its name nor its content tell what it is"),
    "salvage of rows": (["a.jsonl", "--salvage"], "only TFRecord files can be salvaged"),
    "a glob in a bucket": (["s3://bucket/in/*.csv"], "globs are for local files"),
    "an unknown scheme": (["ftp://host/a.csv"], "the scheme is not known"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_appended_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    made(tmp_path / "noise", b"noise that is nothing at all")
    arguments, words = WRONG[what]
    result = here(tmp_path / "root", "append", NAME, *arguments, cwd=tmp_path)
    assert (result.code, result.out) == (2, ""), result.err
    assert words in result.err
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", ["digits", "digits/v1@2", "Digits/v1", "a.jsonl"])
def test_the_version_comes_first_and_is_written_name_slash_version(
    tmp_path: Path, name: str
) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    result = here(tmp_path / "root", "append", name, path)
    assert (result.code, result.out) == (2, "")
    assert not (tmp_path / "root").exists()


def test_an_append_to_another_schema_and_damage_are_code_1(tmp_path: Path) -> None:
    assert here(tmp_path, "append", NAME, write_rows(tmp_path / "a.jsonl", range(3))).code == 0
    other = made(tmp_path / "b.tfrecord", framed(example_of(y=1.5)))
    result = here(tmp_path, "append", NAME, other, "--json")
    assert (result.code, result.json["ok"]) == (1, False)
    damaged = made(tmp_path / "c.tfrecord", framed(*[example_of(x=n) for n in range(9)]))
    damage(damaged)
    result = here(tmp_path, "append", NAME, damaged, "--json")
    assert (result.code, result.json["fault"]["kind"]) == (1, "data-crc")
    assert Version(tmp_path, NAME).state.number == 3
    result = here(tmp_path, "append", NAME, damaged, "--salvage")
    assert result.code == 0, result.err
    assert "digits/v1@2: +8 records" in result.out


def test_what_was_rejected_or_rolled_back_is_skipped_until_it_is_relanded(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    write_rows(tmp_path / "b.jsonl", range(3, 5))
    assert here(tmp_path, "append", NAME, "a.jsonl", cwd=tmp_path).code == 0
    assert here(tmp_path, "append", NAME, "b.jsonl", cwd=tmp_path).code == 0
    version = Version(tmp_path, NAME)
    version.reject(2, reason="not wanted")
    result = here(tmp_path, "append", NAME, "a.jsonl", "b.jsonl", cwd=tmp_path)
    assert result.code == 0
    assert "  b.jsonl: it was rejected in entry 6 of the log\n" in result.out
    assert "all the same: shardline reland digits/v1 b.jsonl" in result.out
    result = here(tmp_path, "reland", NAME, "a.jsonl", "b.jsonl", cwd=tmp_path)
    assert result.code == 0, result.err
    assert "digits/v1@4: +2 records of 1 source" in result.out
    assert "  a.jsonl: it landed in entry 2 of the log\n" in result.out
    assert numbers_of(Version(tmp_path, NAME)) == [0, 1, 2, 3, 4]
    version.refresh()
    version.restore(1)
    result = here(tmp_path, "append", NAME, "b.jsonl", cwd=tmp_path)
    assert "and was rolled back since\n" in result.out
    told = here(tmp_path, "reland", NAME, "b.jsonl", "--json", cwd=tmp_path).json
    assert (told["records"], told["published"]) == (2, True)
    assert check_version(Version(tmp_path, NAME)).ok


def test_what_changed_is_another_source(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    assert here(tmp_path, "append", NAME, path).code == 0
    write_rows(path, range(3, 5))
    assert "+2 records" in here(tmp_path, "append", NAME, path).out


def test_a_terminal_gets_a_bar_for_each_step(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    code, drawn = on_terminal("append", NAME, path, "--root", tmp_path)
    assert code == 0
    for word in ("identifying", "finding the schema", "appending", "checking", "━"):
        assert word in drawn


def test_objects_are_sources_and_roots_may_be_stores(s3_root: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    assert here(s3_root, "append", NAME, path).code == 0
    (file,) = here(s3_root, "files", NAME).out.splitlines()
    assert file.startswith("s3://")
    result = here(tmp_path, "append", "copy/v1", file, "--json")
    assert result.code == 0, result.err
    assert (result.json["landed"][0]["path"], result.json["records"]) == (file, 3)
    result = here(tmp_path, "append", "copy/v1", f"{file}-missing.tfrecord")
    assert (result.code, "there is no such file" in result.err) == (2, True)


def signaled(number: signal.Signals, root: Path, *arguments: str | Path) -> tuple[int, str]:
    """Send a signal to a command once it writes a shard; gives its code and its errors."""
    command = [sys.executable, "-m", "shardline", *map(str, arguments), "--root", str(root)]
    with default_signals():
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    with process:
        while not list(root.glob("digits/shards/.*")) and process.poll() is None:
            os.sched_yield()
        process.send_signal(number)
        errors = process.communicate()[1].decode()
    return process.returncode, errors


ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("asked", ENDS)
def test_being_asked_to_end_leaves_nothing_half_written(
    tmp_path: Path, asked: signal.Signals
) -> None:
    source = big_file(tmp_path / "a.tfrecord", 300 * 2**20, example_of(x=b"x" * 2**20))
    schema = b'{"payload": "example", "features": [{"name": "x", "kind": "bytes"}]}'
    declared = made(tmp_path / "s.json", schema)
    options = ["--schema", str(declared), "--target-size", "1GB"]
    # It may be done just before it is asked.
    roots = (tmp_path / f"root{attempt}" for attempt in range(5))
    attempts = ((root, *signaled(asked, root, "append", NAME, source, *options)) for root in roots)
    root, code, told = next((one for one in attempts if one[1] != 0), (tmp_path, 0, "never ended"))
    assert code == ENDS[asked], told
    assert "Traceback" not in told
    assert [file for file in root.rglob("*") if file.is_file()] == []


def test_with_set_aside_a_bad_source_holds_up_no_other_and_is_told(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    (tmp_path / "b.jsonl").write_text('{"y": 1.5}\n')
    arguments = ("append", NAME, "a.jsonl", "b.jsonl", "--set-aside")
    made(tmp_path / "schema.json", DECLARED)
    result = here(tmp_path, *arguments, "--schema", "schema.json", cwd=tmp_path)
    assert result.code == 1, "something is wrong with the data"
    assert "digits/v1@1: +3 records of 1 source" in result.out
    assert "set aside 1 source, which cannot be appended:" in result.out
    assert "digits/v1@1 is published" in result.out
    told = here(tmp_path, "log", NAME)
    assert "set aside 1 source" in told.out
    again = here(tmp_path, *arguments, "--json", cwd=tmp_path)
    assert (again.code, again.json["ok"], again.json["set_aside"]) == (0, True, [])
    relanded = here(tmp_path, "reland", *arguments[1:], "--json", cwd=tmp_path)
    assert (relanded.code, relanded.json["ok"]) == (1, False)
    (one,) = relanded.json["set_aside"]
    assert (one["path"], one["check"]) == (str(tmp_path / "b.jsonl"), "schema")
