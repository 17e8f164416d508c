"""`shardline append`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.operations.check import check_version
from tests.cli.command import ROOT, on_terminal, shardline
from tests.cli.datasets import HOSTILE, damage, numbers_of, on, write_rows
from tests.kernel.frames import framed
from tests.log.versions import NAME, make_version
from tests.signals import default_signals
from tests.tfrecord.samples import big_file, bulk_needs_the_compiled_kernel, example_of, made

if TYPE_CHECKING:
    from pathlib import Path

DECLARED = b'{"payload": "example", "features": [{"name": "x", "kind": "int64"}]}'
PACE = r"  \d+\.\d\d s, [\d,]+ records/s, [\d.]+ \w+/s"


def test_the_first_append_makes_root_and_version_and_publishes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_rows(tmp_path / "a.jsonl", range(3))
    result = on(root, "append", NAME, "a.jsonl", cwd=tmp_path)
    assert result.code == 0, result.err
    assert result.err.startswith(f"warning: {root}: ")
    assert re.search(PACE, result.out)
    assert result.commands == [["files", NAME]]
    version = Version(root, NAME)
    assert [(one.name, one.kind) for one in version.schema.features] == [("x", "int64")]
    assert version.state.published == 1
    assert numbers_of(version, "published") == [0, 1, 2]


def test_a_source_lands_once_and_nothing_new_is_code_0(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    assert on(tmp_path, "append", NAME, tmp_path / "a.jsonl").code == 0
    write_rows(tmp_path / "b.jsonl", range(3, 5))
    result = on(tmp_path, "append", NAME, "*.jsonl", "--json", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    report = result.json
    assert (report["snapshot"]["snapshot"], report["records"], len(report["appended"])) == (2, 2, 1)
    assert [one["path"] for one in report["skipped"]] == [str(tmp_path / "a.jsonl")]
    result = on(tmp_path, "append", NAME, "a.jsonl", "b.jsonl", cwd=tmp_path)
    assert (result.code, result.err, result.commands) == (0, "", [])
    report = on(tmp_path, "append", NAME, "a.jsonl", "b.jsonl", "--json", cwd=tmp_path).json
    assert (report["ok"], report["entry"], report["appended"]) == (True, None, [])
    assert [re.findall(r"\d+", one["reason"]) for one in report["skipped"]] == [["2"], ["4"]]
    assert numbers_of(Version(tmp_path, NAME)) == [0, 1, 2, 3, 4]


def test_json_tells_all_of_it(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", [0, 1, "two", 3])
    schema = made(tmp_path / "s.json", DECLARED)
    arguments = ("--schema", schema, "--max-quarantined", "50%", "--json")
    result = on(tmp_path / "root", "append", NAME, path, *arguments)
    assert result.code == 0, result.err
    told = result.json
    version = Version(tmp_path / "root", NAME)
    (shard,) = version.latest().shards
    assert told["snapshot"]["snapshot"] == 1
    assert told["check"]["ok"] is True
    assert told["seconds"] > 0
    assert {name: told[name] for name in ("ok", "version", "created", "records", "published")} == {
        "ok": True, "version": NAME, "created": True, "records": 3, "published": True,
    }  # fmt: skip
    assert (told["shards"], told["bytes"]) == ([shard.to_dict()], shard.bytes)
    (landed,) = told["appended"]
    assert (landed["path"], landed["rows"], landed["records"], landed["quarantined_rows"]) == (
        str(path), 4, 3, 1,
    )  # fmt: skip
    quarantine = told["quarantine"]
    assert (quarantine["rows"], len(quarantine["files"]), len(quarantine["reasons"])) == (1, 1, 1)
    again = on(tmp_path / "root", "append", NAME, path, *arguments).json
    assert (again["ok"], again["snapshot"], again["entry"], again["check"]) == (
        True, None, None, None,
    )  # fmt: skip
    (skipped,) = again["skipped"]
    assert re.findall(r"\d+", skipped.pop("reason")) == ["2"]
    assert skipped.pop("code") == "appended"
    assert skipped == {name: landed[name] for name in ("path", "size", "sha256")}


def test_rows_that_do_not_fit_are_told_with_code_1_and_nothing_is_committed(
    tmp_path: Path,
) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    assert on(tmp_path, "append", NAME, tmp_path / "a.jsonl").code == 0
    write_rows(tmp_path / "bad.jsonl", [7, "seven", 8])
    result = on(tmp_path, "append", NAME, "bad.jsonl", "--json", cwd=tmp_path)
    assert result.problem == (1, "invalid-rows")
    error = result.error
    assert (error["bad"], error["rows"]) == (1, 3)
    (reason,) = error["reasons"]
    assert all(words in reason for words in ("bad.jsonl", "line 2", "feature 'x'"))
    assert "--max-quarantined" in error["hint"]["text"]
    assert "seven" not in result.out + result.err
    assert Version(tmp_path, NAME).state.number == 3


def test_quarantined_rows_are_told_with_their_file_and_in_the_log(tmp_path: Path) -> None:
    make_version(tmp_path)
    write_rows(tmp_path / "a.jsonl", [*range(98), "x", "y"])
    result = on(tmp_path, "append", NAME, tmp_path / "a.jsonl", "--max-quarantined", "0.02")
    assert result.code == 0, result.err
    assert all(words in result.out for words in ("(2.00%)", "line 99", "feature 'x'"))
    (file,) = (tmp_path / "digits" / "quarantine").iterdir()
    assert f"  {file}\n" in result.out
    assert len(file.read_text().splitlines()) == 2
    (entry,) = (
        one
        for one in on(tmp_path, "log", NAME, "--json").json["entries"]
        if one["operation"] == "append"
    )
    assert [shard["records"] for shard in entry["added"]] == [98]
    write_rows(tmp_path / "b.jsonl", [*range(98), "z", "y"])
    share = ("--max-quarantined", "1%")
    result = on(tmp_path, "append", NAME, tmp_path / "b.jsonl", *share, "--json")
    assert result.problem == (1, "invalid-rows")
    assert (result.error["bad"], result.error["rows"]) == (2, 100)


def test_no_row_and_no_name_can_command_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / f"{HOSTILE.replace('/', '')}.jsonl"
    write_rows(path, [1, HOSTILE])
    for arguments in (["append"], ["append", "--max-quarantined", "90%"], ["append", "--dry-run"]):
        result = on(tmp_path / "root", *arguments, NAME, path)
        assert "\x1b" not in result.out + result.err
        assert "\x07" not in result.out + result.err
        assert "\\x1b[31mred" in result.out + result.err


def test_a_dry_run_tells_what_is_new_and_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_rows(tmp_path / "a.jsonl", range(3))
    result = on(root, "append", NAME, "a.jsonl", "--dry-run", cwd=tmp_path)
    assert result.code == 0
    assert "  a.jsonl\n" in result.out
    told = on(root, "append", NAME, "a.jsonl", "--dry-run", "--json", cwd=tmp_path).json
    assert (told["dry_run"], len(told["new"]), told["appended"]) == (True, 1, [])
    assert not root.exists()


def test_without_a_check_it_is_not_published_and_the_next_step_is_told(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    result = on(tmp_path, "append", NAME, path, "--no-check")
    assert result.code == 0
    assert result.commands == [["check", "digits/v1@1"]]
    assert Version(tmp_path, NAME).state.published is None
    result = on(tmp_path, "append", NAME, path)
    assert result.commands == [["status", NAME]]


def test_a_check_that_fails_is_code_1_and_says_what_mends_it(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    assert on(tmp_path, "append", NAME, path).code == 0
    version = Version(tmp_path, NAME)
    damage(tmp_path / version.shard_name(version.latest().shards[0]))
    assert on(tmp_path, "check", NAME, "--recheck").code == 1
    result = on(tmp_path, "append", NAME, write_rows(tmp_path / "b.jsonl", range(4)))
    assert result.code == 1
    version.refresh()
    assert (version.latest().number, version.latest().published) == (2, False)
    assert result.commands == [["repair", NAME]]


SHARES = {"1": 2, "101%": 2, "-1%": 2, "many": 2, "1.5": 2, "": 2, "100%": 0, "0.5": 0, "0": 0}


@pytest.mark.parametrize("share", SHARES)
def test_a_share_is_written_with_a_percent_sign_or_below_one(tmp_path: Path, share: str) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    arguments = ("--max-quarantined", share, "--dry-run", "--json")
    result = on(tmp_path, "append", NAME, path, *arguments)
    assert result.code == SHARES[share]
    if result.code:
        assert result.error["code"] == "invalid-option-value"


def test_shards_have_the_size_and_packing_that_are_asked_for(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(1000))
    told = on(tmp_path, "append", NAME, path, "--target-size", "4KB", "-j", "1", "--json").json
    sizes = [shard["bytes"] for shard in told["shards"]]
    assert (len(sizes) > 2, max(sizes) <= 4096) == (True, True)
    assert numbers_of(Version(tmp_path, NAME)) == list(range(1000))
    told = on(tmp_path, "append", "digits/v2", path, "--compression", "gzip", "--json").json
    assert [shard["compression"] for shard in told["shards"]] == ["gzip"]
    assert numbers_of(Version(tmp_path, "digits/v2")) == list(range(1000))


def test_a_declared_schema_is_used_and_must_be_that_of_the_version(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    told = on(tmp_path, "schema", path, "--declare")
    declared = made(tmp_path / "s.json", told.out.replace("int64", "float").encode())
    assert on(tmp_path, "append", NAME, path, "--schema", declared).code == 0
    assert Version(tmp_path, NAME).schema.feature("x").kind == "float"
    other = made(tmp_path / "t.json", told.out.encode())
    more = write_rows(tmp_path / "b.jsonl", range(4))
    result = on(tmp_path, "append", NAME, more, "--schema", other, "--json")
    assert result.problem == (1, "schema-mismatch")
    entry = next((tmp_path / NAME / "log").glob("*1.json"))
    assert on(tmp_path, "append", NAME, path, "--schema", entry).code == 0


BAD_SCHEMAS = {
    "no file": (None, "file-not-found", ""),
    "no JSON": (b'{\n"features": [,]}', "invalid-schema-file", "line 2, column 14"),
    "no text": (b"\xff\xfe\x00", "invalid-schema-file", "JSON"),
    "no object": (b"[1]", "invalid-schema-file", "object"),
    "an unknown kind": (
        b'{"payload": "example", "features": [{"name": "x", "kind": "int"}]}',
        "invalid-schema-file",
        "'int'",
    ),
    "a slip": (b'{"payload": "example", "feature": []}', "invalid-schema-file", "'features'"),
    "a deep nest": (b"[" * 100_000, "invalid-schema-file", "nested"),
    "a shape of text": (
        b'{"payload": "example", "features": [{"name": "x", "kind": "int64", "shape": ["a"]}]}',
        "invalid-schema-file",
        "'x'",
    ),
}


@pytest.mark.parametrize("what", BAD_SCHEMAS)
def test_a_bad_schema_is_told_with_code_2_before_anything_is_made(
    tmp_path: Path, what: str
) -> None:
    data, code, word = BAD_SCHEMAS[what]
    path = write_rows(tmp_path / "a.jsonl", range(3))
    schema = tmp_path / "s.json"
    if data is not None:
        made(schema, data)
    result = on(tmp_path / "root", "append", NAME, path, "--schema", schema, "--json")
    assert result.problem == (2, code)
    assert result.error["path"] == str(schema)
    assert word in result.error["message"]
    assert not (tmp_path / "root").exists()


WRONG = {
    "no source": ([], "missing-argument"),
    "a missing file": (["missing.jsonl"], "file-not-found"),
    "a glob without match": (["*.nothing"], "no-files-found"),
    "an empty name": ([""], "invalid-argument"),
    "an unknown format": (["a.jsonl", "--format", "xml"], "invalid-option-value"),
    "no bytes a shard": (["a.jsonl", "--target-size", "0"], "invalid-option-value"),
    "ZLIB": (["a.jsonl", "--compression", "zlib"], "invalid-option-value"),
    "a file as a folder": (["a.jsonl", "--format", "folder"], "source-not-a-folder"),
    "what tells nothing": (["noise"], "unknown-source-format"),
    "salvage of rows": (["a.jsonl", "--salvage"], "invalid-argument"),
    "a glob in a bucket": (["s3://bucket/in/*.csv"], "invalid-argument"),
    "an unknown scheme": (["ftp://host/a.csv"], "unknown-scheme"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_appended_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    made(tmp_path / "noise", b"noise that is nothing at all")
    arguments, code = WRONG[what]
    result = on(tmp_path / "root", "append", NAME, *arguments, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", ["digits", "digits/v1@2", "Digits/v1", "a.jsonl"])
def test_the_version_comes_first_and_is_written_name_slash_version(
    tmp_path: Path, name: str
) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    result = on(tmp_path / "root", "append", name, path)
    assert (result.code, result.out) == (2, "")
    assert not (tmp_path / "root").exists()


def test_an_append_to_another_schema_and_damage_are_code_1(tmp_path: Path) -> None:
    assert on(tmp_path, "append", NAME, write_rows(tmp_path / "a.jsonl", range(3))).code == 0
    other = made(tmp_path / "b.tfrecord", framed(example_of(y=1.5)))
    result = on(tmp_path, "append", NAME, other, "--json")
    assert result.problem == (1, "schema-mismatch")
    damaged = made(tmp_path / "c.tfrecord", framed(*[example_of(x=n) for n in range(9)]))
    damage(damaged)
    result = on(tmp_path, "append", NAME, damaged, "--json")
    assert result.problem == (1, "corrupt-file")
    assert (result.error["kind"], result.error["path"]) == ("data-crc", str(damaged))
    assert Version(tmp_path, NAME).state.number == 3
    result = on(tmp_path, "append", NAME, damaged, "--salvage", "--json")
    assert result.code == 0, result.err
    assert (result.json["snapshot"]["snapshot"], result.json["records"]) == (2, 8)


def test_what_was_rejected_or_rolled_back_is_skipped_until_it_is_relanded(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", range(3))
    write_rows(tmp_path / "b.jsonl", range(3, 5))
    assert on(tmp_path, "append", NAME, "a.jsonl", cwd=tmp_path).code == 0
    assert on(tmp_path, "append", NAME, "b.jsonl", cwd=tmp_path).code == 0
    version = Version(tmp_path, NAME)
    version.reject(2, reason="not wanted")
    result = on(tmp_path, "append", NAME, "a.jsonl", "b.jsonl", cwd=tmp_path)
    assert result.code == 0
    assert result.commands == [["append", NAME, "b.jsonl", "--retry-rejected"]]
    report = on(tmp_path, "append", NAME, "b.jsonl", "--json", cwd=tmp_path).json
    assert [re.findall(r"\d+", one["reason"]) for one in report["skipped"]] == [["6"]]
    retried = ("append", NAME, "a.jsonl", "b.jsonl", "--retry-rejected", "--json")
    result = on(tmp_path, *retried, cwd=tmp_path)
    assert result.code == 0, result.err
    report = result.json
    assert (report["snapshot"]["snapshot"], report["records"], len(report["appended"])) == (4, 2, 1)
    assert [re.findall(r"\d+", one["reason"]) for one in report["skipped"]] == [["2"]]
    assert numbers_of(Version(tmp_path, NAME)) == [0, 1, 2, 3, 4]
    version.refresh()
    version.restore(1)
    result = on(tmp_path, "append", NAME, "b.jsonl", cwd=tmp_path)
    assert "rolled back" in result.out
    told = on(tmp_path, "append", NAME, "b.jsonl", "--retry-rejected", "--json", cwd=tmp_path).json
    assert (told["records"], told["published"]) == (2, True)
    assert check_version(Version(tmp_path, NAME)).ok


def test_changed_source_is_refused_or_replaces(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    assert on(tmp_path, "append", NAME, path).code == 0
    write_rows(path, range(3, 5))
    result = on(tmp_path, "append", NAME, path, "--json")
    assert result.problem == (1, "changed-since-append")
    assert all(one in result.error["hint"]["text"] for one in ("--on-changed append", "replace`"))
    result = on(tmp_path, "append", NAME, path, "--skip-invalid", "--json")
    assert (result.code, [one["code"] for one in result.json["rejected"]]) == (
        1,
        ["changed-since-append"],
    )
    result = on(tmp_path, "append", NAME, path, "--on-changed", "replace", "--json")
    assert (result.code, result.json["snapshot"]["records"]) == (0, 2)
    assert [one["entry"] for one in result.json["replaced"]] == [2]


def test_duplicate_is_skipped_with_a_warning(tmp_path: Path) -> None:
    first, copy = (write_rows(tmp_path / name, range(3)) for name in ("a.jsonl", "b.jsonl"))
    assert on(tmp_path, "append", NAME, first).code == 0
    result = on(tmp_path, "append", NAME, copy)
    assert result.code == 0
    assert "warning: skipped" in result.out
    (told,) = on(tmp_path, "append", NAME, copy, "--json").json["duplicates"]
    assert (told["path"], told["first"], told["entry"]) == (str(copy), str(first), 2)
    assert "warning:" in on(tmp_path, "status").out
    (told,) = on(tmp_path, "status", "--json").json["versions"][0]["duplicates"]
    assert (told["path"], told["first"], told["first_entry"]) == (str(copy), str(first), 2)
    assert on(tmp_path, "append", NAME, copy, "--on-duplicate", "append").code == 0
    assert Version(tmp_path, NAME).latest().records == 6


def test_a_terminal_gets_a_bar_for_each_step(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    code, drawn = on_terminal("append", NAME, path, "--root", tmp_path)
    assert code == 0
    for word in ("identifying", "finding the schema", "appending", "checking", "━"):
        assert word in drawn


def test_objects_are_sources_and_roots_may_be_stores(s3_root: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", range(3))
    assert on(s3_root, "append", NAME, path).code == 0
    (file,) = on(s3_root, "files", NAME).out.splitlines()
    assert file.startswith("s3://")
    result = on(tmp_path, "append", "copy/v1", file, "--json")
    assert result.code == 0, result.err
    assert (result.json["appended"][0]["path"], result.json["records"]) == (file, 3)
    result = on(tmp_path, "append", "copy/v1", f"{file}-missing.tfrecord", "--json")
    assert result.problem == (2, "file-not-found")


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
    arguments = ("append", NAME, "a.jsonl", "b.jsonl", "--skip-invalid")
    made(tmp_path / "schema.json", DECLARED)
    result = on(tmp_path, *arguments, "--schema", "schema.json", "--json", cwd=tmp_path)
    assert result.code == 1, "something is wrong with the data"
    report = result.json
    assert (report["records"], len(report["appended"]), report["published"]) == (3, 1, True)
    assert [one["path"] for one in report["rejected"]] == [str(tmp_path / "b.jsonl")]
    assert "set aside" in on(tmp_path, "log", NAME).out
    again = on(tmp_path, *arguments, "--json", cwd=tmp_path)
    assert (again.code, again.json["ok"], again.json["rejected"]) == (0, True, [])
    relanded = on(tmp_path, "append", *arguments[1:], "--retry-rejected", "--json", cwd=tmp_path)
    assert (relanded.code, relanded.json["ok"]) == (1, False)
    (one,) = relanded.json["rejected"]
    assert (one["path"], one["check"]) == (str(tmp_path / "b.jsonl"), "schema")


def test_append_errors_name_the_version(tmp_path: Path) -> None:
    append = ("append", NAME, "--json")
    assert on(tmp_path, *append, write_rows(tmp_path / "a.jsonl", range(3))).code == 0
    other = tmp_path / "b.csv"
    other.write_text("y\nword\n")
    broken = tmp_path / "c.tfrecord"
    broken.write_bytes(b"\0" * 30)
    for path in (other, broken, write_rows(tmp_path / "d.jsonl", [1, "x"])):
        assert on(tmp_path, *append, path).error["version"] == NAME


def test_append_set_aside_alone_claims_no_unchanged_version(tmp_path: Path) -> None:
    assert on(tmp_path, "append", NAME, write_rows(tmp_path / "a.jsonl", range(3))).code == 0
    bad = write_rows(tmp_path / "d.jsonl", [1, "x"])
    assert "nothing was changed" not in on(tmp_path, "append", NAME, bad, "--skip-invalid").out


def test_hint_for_file_with_dash_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "-x.tfrecord").write_bytes(b"\0" * 30)
    result = shardline("head", "--json", "--", "-x.tfrecord", cwd=tmp_path)
    assert result.hint == [["salvage", "./-x.tfrecord", "-o", "OUT"]]
