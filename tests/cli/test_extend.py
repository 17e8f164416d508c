"""`shardline extend`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from shardline.log.version import Version
from tests.cli.command import inside, on_terminal
from tests.cli.datasets import (
    FITTING,
    damage,
    file_of,
    here,
    land,
    landed,
    numbers_of,
    squeezed,
)
from tests.cli.makers import write_makers
from tests.files.samples import example_of, made, packed, read_by_tensorflow
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.operations.extensions import table

UNVERSIONED = (
    "function 'half' has no code version, so all is computed anew each time: declare one, as in "
    'code="1"'
)
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
    command = ("extend", NAME, "--into", "v2", "--fields", f"{makers}:double")
    result = here(root, *command)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:2] == [
        "created digits/v2, with the schema of digits/v1 but for:",
        "  + double: int64 [] required",
    ]
    assert re.fullmatch(
        r"digits/v2@1: 2 shards computed from digits/v1@2; 6 records, \d+ bytes written", lines[2]
    )
    assert re.fullmatch(r"  \d+\.\d\d s, [\d,]+ records/s, .*/s", lines[3])
    assert lines[5:] == [
        "digits/v2@1 is published",
        "To look at it: shardline head digits/v2",
        "To make plain files of it: shardline rebuild digits/v2 --into v2-plain",
    ]
    assert contents(root) == {"double": [0, 2, 4] * 2, "x": [0, 1, 2] * 2}
    land(version, "three", [example_of(x=9)])
    assert here(root, "check", NAME).code == 0
    result = here(root, *command)
    assert result.code == 0, result.err
    assert result.out.startswith("digits/v2@2: 1 shard computed from digits/v1@3, 2 used again; 1 ")
    assert contents(root)["double"] == [0, 2, 4, 0, 2, 4, 18]
    log = squeezed(here(root, "log", "digits/v2").out)
    assert "extended by double: 1 shard computed, 2 reused; from digits/v1@3" in log
    result = here(root, *command)
    assert (result.code, result.out) == (
        0, "digits/v2 follows digits/v1@3 already: nothing to do\n",
    )  # fmt: skip


def test_an_overlay_is_read_by_the_other_commands(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    assert here(root, "extend", NAME, "--into", "v2", "--fields", f"{makers}:double").code == 0
    shown = here(root, "head", "digits/v2", "-n", "2", "--skip", "1").out
    assert "double  int64     2\n  x       int64     1\n" in shown
    result = here(root, "files", "digits/v2")
    assert result.code == 2
    assert "shardline rebuild digits/v2" in result.err
    text = here(root, "files", "digits/v2", "--python").out
    names: dict[str, tf.data.Dataset] = {}
    exec(text, names)  # noqa: S102 - that is what it is for
    assert [int(record["double"]) for record in names["dataset"]] == [0, 2, 4]
    assert here(root, "export", "digits/v2", tmp_path / "out").code == 0
    whole = [tf.train.Example.FromString(one) for one in read_by_tensorflow(tmp_path / "out")]
    assert [one.features.feature["double"].int64_list.value[0] for one in whole] == [0, 2, 4]
    assert here(root, "verify", "digits/v2").code == 0
    assert here(root, "check", "digits/v2", "--again").code == 0


def test_a_module_is_found_in_the_current_folder_and_json_tells_all(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    write_makers(tmp_path, "makers_found_here.py")
    result = here(
        tmp_path, "extend", f"{NAME}@1", "--into", "digits/v2", "--mode", "rewrite",
        "--fields", "makers_found_here:both", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert (result.code, result.err) == (0, "")
    told = result.json
    (shard,) = Version(tmp_path, "digits/v2").newest().shards
    assert [one["name"] for one in told["shards"]] == [shard.name]
    kept = ("ok", "dry_run", "version", "mode", "created", "records", "reused_shards", "published")
    assert {name: told[name] for name in kept} == {
        "ok": True, "dry_run": False, "version": "digits/v2", "mode": "rewrite", "created": True,
        "records": 3, "reused_shards": 0, "published": True,
    }  # fmt: skip
    assert [(one["feature"], one["what"]) for one in told["fields"]["changes"]] == [
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
    command = ("extend", NAME, "--into", "v2", "--fields", f"{makers}:both", "--dry-run")
    result = here(root, *command)
    assert (result.code, result.err) == (0, "")
    size = sum(file_of(root, label).stat().st_size for label in ("one", "two"))
    assert result.out.splitlines() == [
        "digits/v1@2 → digits/v2, which is new, as an overlay: only the new fields are written",
        "fields:",
        "  + double: int64 [] required",
        "  + half: float [] required",
        f"work: 2 shards to compute, 0 to use again; 6 records, {size} bytes to read",
        f"  {UNVERSIONED}",
        "to write: at most 372 bytes",
        "Nothing was changed. To do it, leave out --dry-run",
    ]
    told = here(root, *command, "--mode", "rewrite", "--json").json
    assert [feature["name"] for feature in told["schema"]["features"]] == ["double", "half", "x"]
    kept = ("ok", "dry_run", "version", "new", "mode", "compute_shards", "reuse_shards", "records")
    assert [told[name] for name in kept] == [True, True, "digits/v2", True, "rewrite", 2, 0, 6]
    assert (told["read_bytes"], told["write_bytes"]) == (size, size)
    lines = here(root, *command, "--mode", "rewrite").out.splitlines()
    assert lines[-2] == f"to write: about {size} bytes, and the new fields"
    packed_anew = here(root, *command, "--mode", "rewrite", "--compression", "gzip", "--json")
    assert packed_anew.json["write_bytes"] is None
    assert here(root, *command, "--json").json["write_bytes"] == 372
    zipped = here(root, *command, "--compression", "gzip").out.splitlines()
    assert zipped[-2] == "to write: the new fields alone"
    assert not Version(root, "digits/v2").exists


def test_a_rewrite_replaces_and_drops(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    options = ("--mode", "rewrite", "--compression", "gzip")
    fields = ("--fields", f"{makers}:x", "--fields", f"{makers}:double")
    result = here(root, "extend", NAME, "--into", "v2", *fields, "--replace", "x", *options)
    assert result.code == 0, result.err
    assert "  ~ x: int64 → float\n" in result.out
    assert result.out.endswith("To read it: shardline files digits/v2\n")
    assert contents(root) == {"double": [0, 2, 4], "x": [0.5, 1.5, 2.5]}
    dropping = ("--mode", "rewrite", "--fields", f"{makers}:double", "--drop", "x")
    assert here(root, "extend", NAME, "--into", "other/v1", *dropping).code == 0
    assert contents(root, "other/v1") == {"double": [0, 2, 4]}
    log = squeezed(here(root, "log", "other/v1").out)
    assert "extended by double without x: 1 shard computed, 0 reused; from digits/v1@1" in log


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
    command = ("extend", f"{NAME}@newest", "--into", "v2", "--join", "w.csv", "--key", "x")
    result = here(root, *command, "--table-key", "number", *options, cwd=tmp_path)
    assert result.code == 0, result.err
    assert contents(root) == {"x": [0, 1, 2, 2], **fields}


MISSING: dict[str, tuple[list[str], list[str | None], list[int | None]]] = {
    "a default": (["--default", "word=none", "--default", "size=0"], ["one", "none"], [3, 0]),
    "quoted text": (["--default", 'word="7"', "--default", "size=-1"], ["one", "7"], [3, -1]),
    "absent": (["--missing", "absent"], ["one", None], [3, None]),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_key_that_is_missing_is_given_what_was_asked_for(tmp_path: Path, what: str) -> None:
    options, words, sizes = MISSING[what]
    made(tmp_path / "in.tfrecord", framed(example_of(x=1), example_of(x=5)))
    made(tmp_path / "w.csv", b"x,word,size\n1,one,3\n")
    command = ("extend", "in.tfrecord", "--output", "out.tfrecord", "--join", "w.csv", "--key", "x")
    refused = inside(*command, cwd=tmp_path)
    assert refused.code == 1
    assert "in.tfrecord, record 1, feature 'x': its key is not in table w.csv" in refused.err
    stand_in = (
        "give values to stand in for it (--default) or leave its fields out (--missing absent)"
    )
    assert stand_in in refused.err
    assert inside(*command, *options, cwd=tmp_path).code == 0
    root = tmp_path / "root"
    assert here(root, "append", NAME, tmp_path / "out.tfrecord").code == 0
    told = contents(root, NAME)
    assert told["word"] == [None if word is None else word.encode() for word in words]
    assert told["size"] == sizes


def test_a_doubled_key_is_refused_unless_it_is_told_which_row_counts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    made(tmp_path / "w.csv", WORDS + b"1,eins\n")
    command = ("extend", NAME, "--into", "v2", "--join", "w.csv", "--key", "x")
    result = here(root, *command, cwd=tmp_path)
    assert result.code == 2
    assert "line 3" in result.err
    assert "line 5" in result.err
    assert here(root, *command, "--doubled", "last", cwd=tmp_path).code == 0
    assert contents(root)["word"] == ["zero", "eins", "two"]


def test_a_function_that_raises_is_code_1_and_commits_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    command = ("extend", NAME, "--into", "v2", "--fields", f"{makers}:inverse")
    result = here(root, *command, "--json")
    assert (result.code, result.json["ok"]) == (1, False)
    assert "record 0: function 'inverse' raised ZeroDivisionError" in result.json["reasons"][0]
    assert not Version(root, "digits/v2").exists
    result = here(root, *command, "--quarantine-share", "40%")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    at = lines.index(
        "1 of 3 records is without the new fields, and went to quarantine with the reasons "
        "(33.33%):"
    )
    assert "ZeroDivisionError" in Path(lines[at + 1].strip()).read_text()
    assert contents(root)["inverse"] == [None, 1.0, 0.5]


def test_what_a_run_before_had_made_is_told(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    command = ("extend", NAME, "--into", "v2", "--fields", f"{write_makers(tmp_path)}:inverse")
    assert here(root, *command, "--quarantine-share", "30%").code == 1
    result = here(root, *command, "--quarantine-share", "40%")
    assert "digits/v2@1: 1 shard computed from digits/v1@1, 1 of them by a run before; " in (
        result.out
    )
    told = here(root, "log", "digits/v2").out
    assert "0 shards computed, 0 reused, 1 left by a run before" in squeezed(told)


def test_a_function_that_wants_to_exit_is_code_1_and_told(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    result = here(root, "extend", NAME, "--into", "v2", "--fields", f"{makers}:leaves")
    assert result.code == 1
    assert "record 0: function 'leaves' raised SystemExit: 0" in result.err
    assert not Version(root, "digits/v2").exists


def test_a_function_that_gives_too_few_rows_is_code_1_and_told_with_its_records(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    result = here(root, "extend", NAME, "--into", "v2", "--fields", f"{makers}:first")
    assert result.code == 1
    assert ".tfrecord, records 0 to 2: function 'first' gave 1 row for the field" in result.err
    assert not Version(root, "digits/v2").exists


def test_without_a_check_it_is_not_published_and_told_so_again(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    command = ("extend", NAME, "--into", "v2", "--fields", f"{makers}:double", "--no-check")
    result = here(root, *command)
    assert result.out.endswith("To check it, and so publish it: shardline check digits/v2@1\n")
    assert Version(root, "digits/v2").state.published is None
    assert here(root, *command).out.splitlines() == [
        "digits/v2 follows digits/v1@1 already: nothing to do",
        "digits/v2@1 is not published. To see why: shardline status digits/v2",
    ]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_loose_file_is_extended(tmp_path: Path, compression: str) -> None:
    made(tmp_path / "in.tfrecord", packed(compression, framed(*FITTING)))
    made(tmp_path / "w.csv", WORDS)
    write_makers(tmp_path)
    command = ("extend", "in.tfrecord", "--output", "out.tfrecord", "--fields", "makers.py:double")
    result = inside(*command, "--dry-run", cwd=tmp_path)
    size = (tmp_path / "in.tfrecord").stat().st_size
    assert result.out.splitlines() == [
        "in.tfrecord → out.tfrecord",
        "fields:",
        "  + double: int64 [] required",
        f"work: 3 records, {size} bytes to read",
        f"to write: about {size} bytes, and the new fields",
        "Nothing was changed. To do it, leave out --dry-run",
    ]
    result = inside(*command, "--join", "w.csv", "--key", "x", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("in.tfrecord extended into out.tfrecord: 3 records, ")
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
    command = ("extend", "in.tfrecord", "--output", "out.tfrecord", "--fields", "makers.py:double")
    result = inside(*command, "--replace", "x", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "in.tfrecord extended into out.tfrecord: 0 records, 0 bytes",
        "  in.tfrecord has no records, so there was nothing to change",
    ]
    assert (tmp_path / "out.tfrecord").read_bytes() == b""


def test_a_file_is_overwritten_only_if_asked_and_never_read_and_written(tmp_path: Path) -> None:
    made(tmp_path / "in", framed(*FITTING))
    made(tmp_path / "out", b"precious")
    write_makers(tmp_path)
    command = ("extend", "in", "--fields", "makers.py:double", "--output")
    result = inside(*command, "out", cwd=tmp_path)
    assert (result.code, "out exists already: choose another name, or say --overwrite" in
            squeezed(result.err)) == (2, True)  # fmt: skip
    assert (tmp_path / "out").read_bytes() == b"precious"
    result = inside(*command, "in", "--overwrite", cwd=tmp_path)
    assert (result.code, "is the file to read" in result.err) == (2, True)
    told = inside(*command, "out", "--overwrite", "--json", cwd=tmp_path).json
    assert (told["ok"], told["records"], told["compression"]) == (True, 3, "none")
    assert len(read_by_tensorflow(tmp_path / "out")) == 3


def test_damage_is_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    makers = write_makers(tmp_path)
    file = file_of(root, "one")
    damage(file)
    result = here(root, "extend", NAME, "--into", "v2", "--fields", f"{makers}:double")
    assert result.code == 1
    assert "data-crc at record 0, offset 0" in result.err
    assert f"shardline salvage {file} OUT" in result.err
    assert not Version(root, "digits/v2").exists
    result = inside("extend", file, "--output", tmp_path / "o", "--fields", f"{makers}:double")
    assert (result.code, (tmp_path / "o").exists()) == (1, False)


MIXED_UP = {
    "nowhere to": ([NAME, "--fields", "makers.py:double"], "where to? Say --into VERSION"),
    "two places": (
        [NAME, "--into", "v2", "--output", "o", "--fields", "makers.py:double"], "choose one",
    ),
    "no fields": ([NAME, "--into", "v2"], "which fields? Say --fields MODULE:OBJECT"),
    "a version overwritten": (
        [NAME, "--into", "v2", "--overwrite", "--fields", "makers.py:double"],
        "in a dataset nothing is overwritten",
    ),
    "a file with a mode": (
        ["a", "--output", "o", "--mode", "overlay", "--fields", "makers.py:double"],
        "--mode is for versions",
    ),
    "a file with a share": (
        ["a", "--output", "o", "--quarantine-share", "1%", "--fields", "makers.py:double"],
        "--quarantine-share is for versions",
    ),
    "a file checked": (
        ["a", "--output", "o", "--no-check", "--fields", "makers.py:double"],
        "--no-check is for versions",
    ),
    "a missing file": (["b", "--output", "o", "--fields", "makers.py:double"], "no such file: b"),
    "a folder": (["a", "--output", ".", "--fields", "makers.py:double"], "is a folder"),
    "into itself": (
        [NAME, "--into", "v1", "--fields", "makers.py:double"], "is the version itself",
    ),
    "a missing version": (
        ["digits/v9", "--into", "v2", "--fields", "makers.py:double"], "digits has v1",
    ),
    "an overlay elsewhere": (
        [NAME, "--into", "other/v1", "--fields", "makers.py:double"],
        "name a version of digits, or say --mode rewrite",
    ),
    "an overlay that drops": (
        [NAME, "--into", "v2", "--fields", "makers.py:double", "--drop", "x"],
        "with --replace and --drop, say --mode rewrite",
    ),
    "an overlay with refused records": (
        [NAME, "--into", "v2", "--fields", "makers.py:double", "--quarantine-share", "1%"],
        "'double' is required: declare it with required=False, or say --mode rewrite",
    ),
    "a field that is there": (
        [NAME, "--into", "v2", "--fields", "makers.py:x"],
        "or let it take the old one's place: --mode rewrite --replace x",
    ),
    "a field that is there in a file": (
        ["a", "--output", "o", "--fields", "makers.py:x"], "place: --replace x",
    ),
    "a field that is not there": (
        [NAME, "--into", "v2", "--mode", "rewrite", "--fields", "makers.py:double", "--drop", "y"],
        "feature 'y' is not in the schema, which has 'x'",
    ),
    "an appended version": (
        ["digits/v1", "--into", "other/v1", "--mode", "rewrite", "--fields", "makers.py:double"],
        "not there yet (--into)",
    ),
    "no key": ([NAME, "--into", "v2", "--join", "w.csv"], "by which feature? Say --key FEATURE"),
    "a key that no record has": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "y", "--table-key", "x"],
        "reads 'y', which is not in the schema of the records: it has 'x'",
    ),
    "a key that no record of a file has": (
        ["a", "--output", "o", "--join", "w.csv", "--key", "y", "--table-key", "x"],
        "reads 'y', which is not in the schema of the records: it has 'x'",
    ),
    "no table": (
        [NAME, "--into", "v2", "--fields", "makers.py:double", "--key", "x"],
        "--key belongs to --join TABLE, which is missing",
    ),
    "a missing table": (
        [NAME, "--into", "v2", "--join", "no.csv", "--key", "x"], "--join no.csv: no such file",
    ),
    "two tables": (
        [NAME, "--into", "v2", "--join", "w.csv", "--join", "w.csv", "--key", "x"],
        "--join takes one table at a time",
    ),
    "a missing key column": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--table-key", "y"],
        "table w.csv has no column 'y': it has 'x', 'word'",
    ),
    "a missing column": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--columns", "word,y"],
        "table w.csv has no column 'y': it has 'x', 'word'",
    ),
    "a table of no kind": (
        [NAME, "--into", "v2", "--join", "w.txt", "--key", "x"],
        "tell what it is. Give it a name that ends in .csv, .jsonl, .parquet or .arrow",
    ),
    "a column twice": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--columns", "word,word"],
        "name each column once",
    ),
    "a drop alone": (
        [NAME, "--into", "v2", "--mode", "rewrite", "--drop", "x", "--drop", "a b"],
        f"To drop alone: shardline migrate {NAME} --into v2 --drop x --drop 'a b'",
    ),
    "a drop alone, of a file": (
        ["a", "--output", "o", "--drop", "x"],
        "To drop alone: shardline migrate a --output o --drop x",
    ),
    "a default of null": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--default", "word=null"],
        "null is no value that a feature can hold",
    ),
    "a default without a value": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--default", "word"],
        "write --default NAME=VALUE",
    ),
    "a default for what is absent": (
        [NAME, "--into", "v2", "--join", "w.csv", "--key", "x", "--default", "word=x",
         "--missing", "absent"],
        "choose one",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXED_UP)
def test_what_is_mixed_up_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    landed(root, "one", name="other/v1")
    made(tmp_path / "a", framed(*FITTING))
    made(tmp_path / "w.csv", WORDS)
    made(tmp_path / "w.txt", WORDS)
    write_makers(tmp_path)
    arguments, words = MIXED_UP[what]
    result = here(root, "extend", *arguments, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert words in squeezed(result.err)
    assert not Version(root, "digits/v2").exists
    there = ["a", "makers.py", "root", "w.csv", "w.txt"]
    assert sorted(file.name for file in tmp_path.iterdir()) == there


def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one", "two")
    fields = ("--fields", f"{write_makers(tmp_path)}:double")
    code, drawn = on_terminal("extend", NAME, "--into", "v2", *fields, "--root", root)
    assert code == 0
    assert "extending" in drawn
    assert "checking" in drawn
    file = file_of(root, "one")
    code, drawn = on_terminal("extend", file, "--output", tmp_path / "out", *fields)
    assert (code, "finding the schema" in drawn, "extending" in drawn) == (0, True, True)
