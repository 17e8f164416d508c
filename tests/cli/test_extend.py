"""`shardline extend`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from shardline.api import Version
from tests.cli.command import on_terminal, shardline
from tests.cli.datasets import (
    FITTING,
    damage,
    file_names,
    file_of,
    land,
    landed,
    numbers_of,
    on,
    squeezed,
)
from tests.cli.makers import write_makers
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.operations.extensions import table
from tests.tfrecord.samples import example_of, made, packed, read_by_tensorflow

WORDS = b"x,word\n0,zero\n1,one\n2,two\n"


@pytest.fixture(autouse=True)
def _same_path_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def contents(root: Path, name: str = "digits/v2") -> dict[str, list[object]]:
    return table(Version(root, name).published())


def test_an_overlay_is_made_and_published_and_follows_its_base(tmp_path: Path) -> None:
    root = tmp_path / "root"
    version = landed(root, "one", "two")
    makers = write_makers(tmp_path)
    command = ("extend", NAME, "--into", "v2", "--udf", f"{makers}:double")
    result = on(root, *command)
    assert (result.code, result.err) == (0, "")
    assert "  + double: int64" in result.out
    assert re.search(r"\d s, [\d,]+ records/s", result.out)
    assert result.commands == [
        ["head", "digits/v2"],
        ["rebuild", "digits/v2", "--into", "v2-plain"],
    ]
    assert Version(root, "digits/v2").state.published == 1
    assert contents(root) == {"double": [0, 2, 4] * 2, "x": [0, 1, 2] * 2}
    land(version, "three", [example_of(x=9)])
    assert on(root, "check", NAME).code == 0
    result = on(root, *command, "--json")
    assert result.code == 0, result.err
    report = result.json
    assert (report["snapshot"]["snapshot"], report["source"]["snapshot"]) == (2, 3)
    assert (len(report["shards"]), report["reused_shards"], report["records"]) == (1, 2, 1)
    assert contents(root)["double"] == [0, 2, 4, 0, 2, 4, 18]
    log = squeezed(on(root, "log", "digits/v2").out)
    assert all(words in log for words in ("by double", "1 shard computed", "digits/v1@3"))
    result = on(root, *command, "--json")
    assert (result.code, result.json["entry"], result.json["snapshot"]) == (0, None, None)


def test_an_overlay_is_read_by_the_other_commands(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    assert on(root, "extend", NAME, "--into", "v2", "--udf", f"{makers}:double").code == 0
    shown = on(root, "head", "digits/v2", "-n", "2", "--skip", "1").out
    values = [line.split() for line in shown.splitlines()]
    assert [row for row in values if row[:1] in (["double"], ["x"])][:2] == [
        ["double", "int64", "2"],
        ["x", "int64", "1"],
    ]
    result = on(root, "files", "digits/v2", "--json")
    assert result.problem == (2, "overlay-snapshot")
    assert result.hint[0][:2] == ["rebuild", "digits/v2"]
    text = on(root, "files", "digits/v2", "--python").out
    names: dict[str, tf.data.Dataset] = {}
    exec(text, names)  # noqa: S102 - that is what it is for
    assert [int(record["double"]) for record in names["dataset"]] == [0, 2, 4]
    assert on(root, "export", "digits/v2", "-o", tmp_path / "out").code == 0
    whole = [tf.train.Example.FromString(one) for one in read_by_tensorflow(tmp_path / "out")]
    assert [one.features.feature["double"].int64_list.value[0] for one in whole] == [0, 2, 4]
    assert on(root, "verify", "digits/v2").code == 0
    assert on(root, "check", "digits/v2", "--recheck").code == 0


def test_a_module_is_found_in_the_current_folder_and_json_tells_all(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    write_makers(tmp_path, "makers_found_here.py")
    result = on(
        tmp_path, "extend", f"{NAME}@1", "--into", "digits/v2", "--mode", "rewrite",
        "--udf", "makers_found_here:both", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert (result.code, result.err) == (0, "")
    told = result.json
    (shard,) = Version(tmp_path, "digits/v2").latest().shards
    assert [one["name"] for one in told["shards"]] == [shard.name]
    kept = ("ok", "dry_run", "version", "mode", "created", "records", "reused_shards", "published")
    assert {name: told[name] for name in kept} == {
        "ok": True, "dry_run": False, "version": "digits/v2", "mode": "rewrite", "created": True,
        "records": 3, "reused_shards": 0, "published": True,
    }  # fmt: skip
    assert [(one["feature"], one["what"]) for one in told["schema_diff"]["changes"]] == [
        ("double", "added"),
        ("half", "added"),
    ]
    assert (told["source"]["snapshot"], told["snapshot"]["snapshot"]) == (1, 1)
    assert told["quarantine"] == {"rows": 0, "files": []}
    assert told["check"]["ok"] is True
    assert numbers_of(Version(tmp_path, "digits/v2")) == [0, 1, 2]


def test_a_dry_run_tells_the_plan_and_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one", "two")
    makers = write_makers(tmp_path)
    command = ("extend", NAME, "--into", "v2", "--udf", f"{makers}:both", "--dry-run")
    result = on(root, *command)
    assert (result.code, result.err) == (0, "")
    size = sum(file_of(root, label).stat().st_size for label in ("one", "two"))
    lines = result.out.splitlines()
    assert lines[0].startswith("digits/v1@2 → digits/v2")
    assert [line.split()[1:3] for line in lines[2:4]] == [["double:", "int64"], ["half:", "float"]]
    assert "'half'" in lines[5]
    told = on(root, *command, "--mode", "rewrite", "--json").json
    assert [feature["name"] for feature in told["schema"]["features"]] == ["double", "half", "x"]
    kept = ("ok", "dry_run", "version", "new", "mode", "compute_shards", "reuse_shards", "records")
    assert [told[name] for name in kept] == [True, True, "digits/v2", True, "rewrite", 2, 0, 6]
    assert (told["read_bytes"], told["write_bytes"]) == (size, size)
    lines = on(root, *command, "--mode", "rewrite").out.splitlines()
    assert f"{size} bytes" in lines[-3]
    packed_anew = on(root, *command, "--mode", "rewrite", "--compression", "gzip", "--json")
    assert packed_anew.json["write_bytes"] is None
    assert on(root, *command, "--json").json["write_bytes"] == 372
    zipped = on(root, *command, "--compression", "gzip", "--json").json
    assert zipped["write_bytes"] is None
    assert not Version(root, "digits/v2").exists


def test_a_rewrite_replaces_and_drops(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    options = ("--mode", "rewrite", "--compression", "gzip")
    fields = ("--udf", f"{makers}:x", "--udf", f"{makers}:double")
    result = on(root, "extend", NAME, "--into", "v2", *fields, "--replace", "x", *options)
    assert result.code == 0, result.err
    changes = [line for line in result.out.splitlines() if line.startswith("  ~")]
    assert [line.split() for line in changes] == [["~", "x:", "int64", "→", "float"]]
    assert result.commands == [["files", "digits/v2"]]
    assert contents(root) == {"double": [0, 2, 4], "x": [0.5, 1.5, 2.5]}
    dropping = ("--mode", "rewrite", "--udf", f"{makers}:double", "--drop", "x")
    assert on(root, "extend", NAME, "--into", "other/v1", *dropping).code == 0
    assert contents(root, "other/v1") == {"double": [0, 2, 4]}
    log = squeezed(on(root, "log", "other/v1").out)
    assert all(words in log for words in ("double without x", "1 shard computed", "digits/v1@1"))


JOINS: dict[str, tuple[list[str], dict[str, list[object]]]] = {
    "every column": ([], {"word": ["zero", "one", "two", "two"], "size": [4, 3, 3, 3]}),
    "some columns": (["--columns", "size"], {"size": [4, 3, 3, 3]}),
}


@pytest.mark.parametrize("what", JOINS)
def test_a_table_is_joined_by_its_key(tmp_path: Path, what: str) -> None:
    root, (options, fields) = tmp_path / "root", JOINS[what]
    version = landed(root, "one")
    land(version, "two", [example_of(x=2)])
    made(tmp_path / "w.csv", b"number,word,size\n2,two,3\n0,zero,4\n1,one,3\n")
    command = ("extend", f"{NAME}@latest", "--into", "v2", "--join", "w.csv", "--key", "x")
    result = on(root, *command, "--table-key", "number", *options, cwd=tmp_path)
    assert result.code == 0, result.err
    assert contents(root) == {"x": [0, 1, 2, 2], **fields}


MISSING: dict[str, tuple[list[str], list[str | None], list[int | None]]] = {
    "a default": (["--default", "word=none", "--default", "size=0"], ["one", "none"], [3, 0]),
    "quoted text": (["--default", 'word="7"', "--default", "size=-1"], ["one", "7"], [3, -1]),
    "absent": (["--on-missing", "absent"], ["one", None], [3, None]),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_key_that_is_missing_is_given_what_was_asked_for(tmp_path: Path, what: str) -> None:
    options, words, sizes = MISSING[what]
    made(tmp_path / "in.tfrecord", framed(example_of(x=1), example_of(x=5)))
    made(tmp_path / "w.csv", b"x,word,size\n1,one,3\n")
    command = ("extend", "in.tfrecord", "--output", "out.tfrecord", "--join", "w.csv", "--key", "x")
    refused = shardline(*command, "--json", cwd=tmp_path)
    assert refused.problem == (1, "invalid-rows")
    (reason,) = refused.error["reasons"]
    assert all(words in reason for words in ("in.tfrecord", "record 1", "feature 'x'", "w.csv"))
    assert "--default" in refused.err
    assert "--on-missing absent" in refused.err
    assert shardline(*command, *options, cwd=tmp_path).code == 0
    root = tmp_path / "root"
    assert on(root, "append", NAME, tmp_path / "out.tfrecord").code == 0
    told = contents(root, NAME)
    assert told["word"] == [None if word is None else word.encode() for word in words]
    assert told["size"] == sizes


def test_a_doubled_key_is_refused_unless_it_is_told_which_row_counts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    made(tmp_path / "w.csv", WORDS + b"1,eins\n")
    command = ("extend", NAME, "--into", "v2", "--join", "w.csv", "--key", "x")
    result = on(root, *command, cwd=tmp_path)
    assert result.code == 2
    assert "line 3" in result.err
    assert "line 5" in result.err
    assert on(root, *command, "--on-duplicate", "last", cwd=tmp_path).code == 0
    assert contents(root)["word"] == ["zero", "eins", "two"]


def test_a_function_that_raises_is_code_1_and_commits_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    command = ("extend", NAME, "--into", "v2", "--udf", f"{makers}:inverse")
    result = on(root, *command, "--json")
    assert result.problem == (1, "invalid-rows")
    (reason,) = result.error["reasons"]
    assert all(words in reason for words in ("record 0", "'inverse'", "ZeroDivisionError"))
    assert not Version(root, "digits/v2").exists
    result = on(root, *command, "--max-quarantined", "40%")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    at = next(number for number, line in enumerate(lines) if "(33.33%)" in line)
    assert "ZeroDivisionError" in Path(lines[at + 1].strip()).read_text()
    assert contents(root)["inverse"] == [None, 1.0, 0.5]


def test_what_a_run_before_had_made_is_told(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    command = ("extend", NAME, "--into", "v2", "--udf", f"{write_makers(tmp_path)}:inverse")
    assert on(root, *command, "--max-quarantined", "30%").code == 1
    assert "recovered" in on(root, *command, "--max-quarantined", "40%").out
    told = squeezed(on(root, "log", "digits/v2").out)
    assert all(words in told for words in ("0 shards computed", "0 reused", "run before"))


def test_a_function_that_wants_to_exit_is_code_1_and_told(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    result = on(root, "extend", NAME, "--into", "v2", "--udf", f"{makers}:leaves", "--json")
    assert result.problem == (1, "invalid-rows")
    assert all(words in result.err for words in ("record 0", "'leaves'", "SystemExit: 0"))
    assert not Version(root, "digits/v2").exists


def test_a_function_that_gives_too_few_rows_is_code_1_and_told_with_its_records(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    result = on(root, "extend", NAME, "--into", "v2", "--udf", f"{makers}:first", "--json")
    assert result.problem == (1, "length-mismatch")
    assert all(words in result.err for words in (".tfrecord", "0 to 2", "'first'", "1 row"))
    assert not Version(root, "digits/v2").exists


def test_without_a_check_it_is_not_published_and_told_so_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    command = ("extend", NAME, "--into", "v2", "--udf", f"{makers}:double", "--no-check")
    result = on(root, *command)
    assert result.commands == [["check", "digits/v2@1"]]
    assert Version(root, "digits/v2").state.published is None
    assert on(root, *command).commands == [["status", "digits/v2"]]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_loose_file_is_extended(tmp_path: Path, compression: str) -> None:
    made(tmp_path / "in.tfrecord", packed(compression, framed(*FITTING)))
    made(tmp_path / "w.csv", WORDS)
    write_makers(tmp_path)
    command = ("extend", "in.tfrecord", "--output", "out.tfrecord", "--udf", "makers.py:double")
    result = shardline(*command, "--dry-run", cwd=tmp_path)
    size = (tmp_path / "in.tfrecord").stat().st_size
    lines = result.out.splitlines()
    assert (lines[0], lines[2].split()[1]) == ("in.tfrecord → out.tfrecord", "double:")
    assert all(words in lines[3] for words in ("3 records", f"{size} bytes"))
    assert not (tmp_path / "out.tfrecord").exists()
    result = shardline(*command, "--join", "w.csv", "--key", "x", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    name = "" if compression == "none" else "GZIP"
    records = [
        tf.train.Example.FromString(one).features.feature
        for one in read_by_tensorflow(tmp_path / "out.tfrecord", name)
    ]
    assert [one["double"].int64_list.value[0] for one in records] == [0, 2, 4]
    assert [one["word"].bytes_list.value[0] for one in records] == [b"zero", b"one", b"two"]


def test_an_empty_file_becomes_an_empty_file_and_that_is_told(tmp_path: Path) -> None:
    made(tmp_path / "in.tfrecord", b"")
    write_makers(tmp_path)
    command = ("extend", "in.tfrecord", "--output", "out.tfrecord", "--udf", "makers.py:double")
    result = shardline(*command, "--replace", "x", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert all(words in result.out for words in ("0 records", "no records"))
    assert (tmp_path / "out.tfrecord").read_bytes() == b""


def test_a_file_is_overwritten_only_if_asked_and_never_read_and_written(tmp_path: Path) -> None:
    made(tmp_path / "in", framed(*FITTING))
    made(tmp_path / "out", b"precious")
    write_makers(tmp_path)
    command = ("extend", "in", "--udf", "makers.py:double", "--output")
    result = shardline(*command, "out", "--json", cwd=tmp_path)
    assert result.problem == (2, "file-exists")
    assert (tmp_path / "out").read_bytes() == b"precious"
    result = shardline(*command, "in", "--overwrite", "--json", cwd=tmp_path)
    assert result.problem == (2, "output-is-input")
    told = shardline(*command, "out", "--overwrite", "--json", cwd=tmp_path).json
    assert (told["ok"], told["records"], told["compression"]) == (True, 3, "none")
    assert len(read_by_tensorflow(tmp_path / "out")) == 3


def test_damage_is_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    file = file_of(root, "one")
    damage(file)
    result = on(root, "extend", NAME, "--into", "v2", "--udf", f"{makers}:double", "--json")
    assert result.problem == (1, "corrupt-file")
    error = result.error
    assert (error["kind"], error["record"], error["offset"]) == ("data-crc", 0, 0)
    assert (error["path"], result.hint) == (str(file), [["repair", NAME]])
    assert not Version(root, "digits/v2").exists
    result = shardline("extend", file, "--output", tmp_path / "o", "--udf", f"{makers}:double")
    assert (result.code, (tmp_path / "o").exists()) == (1, False)


MIXED_UP = {
    "nowhere to": ([NAME, "--udf", "makers.py:double"], "missing-option", "--into"),
    "two places": (
        [NAME, "--into", "v2", "--output", "o", "--udf", "makers.py:double"],
        "conflicting-options",
        "--output",
    ),
    "no fields": ([NAME, "--into", "v2"], "missing-option", "--udf"),
    "a version overwritten": (
        [NAME, "--into", "v2", "--overwrite", "--udf", "makers.py:double"],
        "option-not-applicable",
        "--overwrite",
    ),
    "a file with a mode": (
        ["a", "--output", "o", "--mode", "overlay", "--udf", "makers.py:double"],
        "option-not-applicable",
        "--mode",
    ),
    "a file with a share": (
        ["a", "--output", "o", "--max-quarantined", "1%", "--udf", "makers.py:double"],
        "option-not-applicable",
        "--max-quarantined",
    ),
    "a file checked": (
        ["a", "--output", "o", "--no-check", "--udf", "makers.py:double"],
        "option-not-applicable",
        "--no-check",
    ),
    "a missing file": (
        ["b", "--output", "o", "--udf", "makers.py:double"],
        "file-not-found",
        "b",
    ),
    "a folder": (["a", "--output", ".", "--udf", "makers.py:double"], "output-is-folder", "."),
    "into itself": (
        [NAME, "--into", "v1", "--udf", "makers.py:double"],
        "output-is-input",
        "v1",
    ),
    "a missing version": (
        ["digits/v9", "--into", "v2", "--udf", "makers.py:double"],
        "version-not-found",
        "digits/v1",
    ),
    "an overlay elsewhere": (
        [NAME, "--into", "other/v1", "--udf", "makers.py:double"],
        "dataset-mismatch",
        "--mode rewrite",
    ),
    "an overlay that drops": (
        [NAME, "--into", "v2", "--udf", "makers.py:double", "--drop", "x"],
        "missing-option",
        "--mode rewrite",
    ),
    "an overlay with refused records": (
        [NAME, "--into", "v2", "--udf", "makers.py:double", "--max-quarantined", "1%"],
        "conflicting-options",
        "'double'",
    ),
    "a field that is there": (
        [NAME, "--into", "v2", "--udf", "makers.py:x"],
        "duplicate-feature",
        "--mode rewrite --replace x",
    ),
    "a field that is there in a file": (
        ["a", "--output", "o", "--udf", "makers.py:x"],
        "duplicate-feature",
        "`--replace x`",
    ),
    "a field that is not there": (
        [NAME, "--into", "v2", "--mode", "rewrite", "--udf", "makers.py:double", "--drop", "y"],
        "unknown-feature",
        "'y'",
    ),
    "an appended version": (
        ["digits/v1", "--into", "other/v1", "--mode", "rewrite", "--udf", "makers.py:double"],
        "schema-mismatch",
        "--into",
    ),
    "no key": ([NAME, "--into", "v2", "--join", "w.csv"], "missing-option", "--key"),
    "a key that no record has": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "y", "--table-key", "x"],
        "unknown-feature",
        "'y'",
    ),
    "a key that no record of a file has": (
        ["a", "--output", "o", "--join", "w.csv", "--key", "y", "--table-key", "x"],
        "unknown-feature",
        "'y'",
    ),
    "no table": (
        [NAME, "--into", "v2", "--udf", "makers.py:double", "--key", "x"],
        "missing-option",
        "--join",
    ),
    "a missing table": (
        [NAME, "--into", "v2", "--join", "no.csv", "--key", "x"],
        "file-not-found",
        "no.csv",
    ),
    "two tables": (
        [NAME, "--into", "v2", "--join", "w.csv", "--join", "w.csv", "--key", "x"],
        "invalid-option-value",
        "--join",
    ),
    "a missing key column": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--table-key", "y"],
        "unknown-column",
        "'y'",
    ),
    "a missing column": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--columns", "word,y"],
        "unknown-column",
        "'y'",
    ),
    "a table of no kind": (
        [NAME, "--into", "v2", "--join", "w.txt", "--key", "x"],
        "unknown-source-format",
        "w.txt",
    ),
    "a column twice": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--columns", "word,word"],
        "invalid-option-value",
        "--columns",
    ),
    "a drop alone": (
        [NAME, "--into", "v2", "--mode", "rewrite", "--drop", "x", "--drop", "a b"],
        "missing-option",
        "migrate digits/v1 --into v2 --drop x --drop 'a b'",
    ),
    "a drop alone, of a file": (
        ["a", "--output", "o", "--drop", "x"],
        "missing-option",
        "migrate a --output o --drop x",
    ),
    "a default of null": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--default", "word=null"],
        "invalid-option-value",
        "word",
    ),
    "a default without a value": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--default", "word"],
        "invalid-option-value",
        "NAME=VALUE",
    ),
    "a default for what is absent": (
        [
            NAME,
            "--into",
            "v2",
            "--join",
            "w.csv",
            "--key",
            "x",
            "--default",
            "word=x",
            "--on-missing",
            "absent",
        ],
        "conflicting-options",
        "--on-missing absent",
    ),
}


@pytest.mark.parametrize("what", MIXED_UP)
def test_what_is_mixed_up_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    landed(root, "one", name="other/v1")
    made(tmp_path / "a", framed(*FITTING))
    made(tmp_path / "w.csv", WORDS)
    made(tmp_path / "w.txt", WORDS)
    write_makers(tmp_path)
    arguments, code, word = MIXED_UP[what]
    result = on(root, "extend", *arguments, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert word in result.err
    assert not Version(root, "digits/v2").exists
    there = ["a", "makers.py", "root", "w.csv", "w.txt"]
    assert file_names(tmp_path) == there


def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one", "two")
    fields = ("--udf", f"{write_makers(tmp_path)}:double")
    code, drawn = on_terminal("extend", NAME, "--into", "v2", *fields, "--root", root)
    assert code == 0
    assert "extending" in drawn
    assert "checking" in drawn
    file = file_of(root, "one")
    code, drawn = on_terminal("extend", file, "--output", tmp_path / "out", *fields)
    assert (code, "finding the schema" in drawn, "extending" in drawn) == (0, True, True)
