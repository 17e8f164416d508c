"""`shardline migrate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.api import Version
from tests.cli.command import on_terminal, shardline
from tests.cli.datasets import damage, on, squeezed, write_rows
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.operations.extensions import table
from tests.operations.landings import json_lines
from tests.tfrecord.samples import example_of, made, packed, read_by_tensorflow

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = [{"id": 1, "name": "Ann", "age": 30}, {"id": 2, "name": "Bob"}]
CHANGES = [["~", "age:"], ["-", "id:"], ["-", "name:"], ["+", "title:"]]
STEPS = ("--rename", "name=title", "--drop", "id", "--cast", "age=float")


def people(root: Path, folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """A published version of people, in a root."""
    source = json_lines(folder / f"{len(rows or [])}.jsonl", rows or PEOPLE)
    assert on(root, "append", NAME, source).code == 0
    return root


def changes_in(text: str) -> list[list[str]]:
    """The sign and the name of each feature that a plan lists as changed."""
    return [line.split()[:2] for line in text.splitlines() if line[:4] in ("  ~ ", "  - ", "  + ")]


def contents(root: Path, name: str = "digits/v2") -> dict[str, list[Any]]:
    return table(Version(root, name).published())


def test_the_plan_is_shown_and_then_done_and_the_new_version_follows(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    result = on(root, "migrate", NAME, "--into", "v2", *STEPS)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("digits/v1@1 → digits/v2")
    assert changes_in(result.out) == CHANGES
    assert result.commands == [["files", "digits/v2"]]
    assert Version(root, "digits/v2").state.published == 1
    assert contents(root) == {"age": [30.0, None], "title": ["Ann", "Bob"]}
    people(root, tmp_path, [{"id": 3, "name": "Cid", "age": 7}])
    again = on(root, "migrate", NAME, "--into", "v2", *STEPS, "--json").json
    assert (again["snapshot"]["snapshot"], again["source"]["snapshot"]) == (2, 2)
    assert (len(again["shards"]), again["reused_shards"], again["records"]) == (1, 1, 1)
    assert contents(root)["title"] == ["Ann", "Bob", "Cid"]
    log = squeezed(on(root, "log", "digits/v2").out)
    for words in ("name → title", "without id", "age as float", "1 reused", "digits/v1@2"):
        assert words in log
    done = on(root, "migrate", NAME, "--into", "v2", *STEPS, "--json").json
    assert (done["ok"], done["entry"], done["reused_shards"]) == (True, None, 2)


def test_a_dry_run_shows_the_plan_alone(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    result = on(root, "migrate", NAME, "--into", "v2", *STEPS, "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert changes_in(result.out) == CHANGES
    told = on(root, "migrate", NAME, "--into", "v2", *STEPS, "--dry-run", "--json").json
    assert [step.split()[:2] for step in told["steps"]] == [
        ["rename", "'name'"],
        ["drop", "'id'"],
        ["cast", "'age'"],
    ]
    assert (told["ok"], told["compute_shards"], told["records"], told["mode"]) == (
        True, 1, 2, "rewrite",
    )  # fmt: skip
    assert not Version(root, "digits/v2").exists


VALUES: dict[str, tuple[str, object]] = {
    "a number": ("18", 18),
    "a number with a point": ("1.5", 1.5),
    "a truth": ("true", 1),
    "a list": ("[1, 2]", [1, 2]),
    "text": ("train", "train"),
    "text with an equals sign": ("a=b", "a=b"),
    "a quoted number": ('"007"', "007"),
    "a number with a nought before it": ("007", "007"),
    "nothing quoted": ('""', ""),
    "the text null": ('"null"', "null"),
    "not a number": ("NaN", "NaN"),
    "an object": ('{"a": 1}', '{"a": 1}'),
}


@pytest.mark.parametrize("what", VALUES)
def test_a_value_is_read_as_json_writes_it_and_else_is_text(tmp_path: Path, what: str) -> None:
    text, value = VALUES[what]
    root = people(tmp_path / "root", tmp_path)
    result = on(root, "migrate", NAME, "--into", "v2", "--default", f"new={text}")
    assert result.code == 0, result.err
    assert contents(root)["new"] == [value, value]


def test_a_default_is_given_where_a_feature_is_missing_and_json_tells_it(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    result = on(root, "migrate", NAME, "--into", "v2", "--default", "age=18", "--json")
    told = result.json
    assert (result.code, told["ok"], told["published"], told["created"]) == (0, True, True, True)
    (step,) = told["steps"]
    assert "'age'" in step
    assert told["schema_diff"]["changes"][0]["new"] == "required"
    assert contents(root)["age"] == [30, 18]
    again = on(root, "migrate", NAME, "--into", "v2", "--default", "age=18", "--json").json
    assert (again["ok"], again["snapshot"], again["reused_shards"]) == (True, None, 1)


def test_a_number_that_cannot_be_cast_is_code_1_or_goes_to_quarantine(tmp_path: Path) -> None:
    root = tmp_path / "root"
    on(root, "append", NAME, write_rows(tmp_path / "a.jsonl", [1, 2**53 + 1]))
    command = ("migrate", NAME, "--into", "v2", "--cast", "x=float")
    result = on(root, *command, "--json")
    assert result.problem == (1, "invalid-rows")
    (reason,) = result.error["reasons"]
    assert all(words in reason for words in ("record 1", "feature 'x'"))
    assert not Version(root, "digits/v2").exists
    result = on(root, *command, "--max-quarantined", "50%")
    assert result.code == 0, result.err
    assert all(words in result.out for words in ("1 of 2", "(50.00%)"))
    assert contents(root) == {"x": [1.0]}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_loose_file_is_migrated(tmp_path: Path, compression: str) -> None:
    data = framed(*(example_of(x=number, y=b"why") for number in range(3)))
    made(tmp_path / "in", packed(compression, data))
    size = (tmp_path / "in").stat().st_size
    command = ("migrate", "in", "--output", "out", "--rename", "x=number", "--drop", "y")
    result = shardline(*command, "--dry-run", cwd=tmp_path)
    assert changes_in(result.out) == [["+", "number:"], ["-", "x:"], ["-", "y:"]]
    assert all(words in result.out for words in ("in → out", "3 records", f"{size} bytes"))
    assert not (tmp_path / "out").exists()
    plan = result.out.splitlines()[:10]
    result = shardline(*command, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[:10] == plan
    name = "" if compression == "none" else "GZIP"
    payloads = read_by_tensorflow(tmp_path / "out", name)
    records = [tf.train.Example.FromString(one) for one in payloads]
    assert [
        {key: list(one.int64_list.value) for key, one in record.features.feature.items()}
        for record in records
    ] == [{"number": [0]}, {"number": [1]}, {"number": [2]}]
    told = shardline(*command, "--overwrite", "--json", cwd=tmp_path).json
    assert (told["ok"], told["records"], told["compression"]) == (True, 3, compression)


def test_an_empty_file_becomes_an_empty_file_and_that_is_told(tmp_path: Path) -> None:
    made(tmp_path / "in", b"")
    result = shardline("migrate", "in", "--output", "out", *STEPS, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "no records" in result.out
    assert (tmp_path / "out").read_bytes() == b""


def test_a_number_in_a_file_that_cannot_be_cast_is_code_1_and_told_what_to_do(
    tmp_path: Path,
) -> None:
    made(tmp_path / "in", framed(example_of(x=1), example_of(x=2**53 + 1)))
    command = ("migrate", "in", "--output", "out", "--cast", "x=float", "--json")
    result = shardline(*command, cwd=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["in"]
    assert result.problem == (1, "invalid-rows")
    (reason,) = result.error["reasons"]
    assert all(words in reason for words in ("record 1", "feature 'x'"))
    assert "extend" in result.err


def test_a_damaged_file_is_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    damage(made(tmp_path / "in", framed(example_of(x=1), example_of(x=2))))
    command = ("migrate", "in", "--output", "out", "--rename", "x=y", "--json")
    result = shardline(*command, cwd=tmp_path)
    assert result.problem == (1, "corrupt-file")
    assert (result.error["kind"], result.error["record"]) == ("data-crc", 0)
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


MIXED_UP: dict[str, tuple[list[str], str, str]] = {
    "nothing to change": ([NAME, "--into", "v2"], "missing-option", "--rename"),
    "nowhere to": ([NAME, "--drop", "age"], "missing-option", "--into"),
    "a file into a version": (["a", "--into", "v2", "--drop", "x"], "invalid-reference", "'a'"),
    "a file with a share": (
        ["a", "--output", "o", "--drop", "x", "--max-quarantined", "1%"],
        "option-not-applicable",
        "--max-quarantined",
    ),
    "a version into a file": (
        [NAME, "--output", "o", "--drop", "x"],
        "file-not-found",
        "--into VERSION",
    ),
    "a half rename": ([NAME, "--into", "v2", "--rename", "age"], "invalid-option-value", "OLD=NEW"),
    "a rename to nothing": (
        [NAME, "--into", "v2", "--rename", "age="],
        "invalid-option-value",
        "OLD=NEW",
    ),
    "two renames of one": (
        [NAME, "--into", "v2", "--rename", "age=a", "--rename", "age=b"],
        "duplicate-feature",
        "'age'",
    ),
    "a name that is taken": (
        [NAME, "--into", "v2", "--rename", "age=name"],
        "duplicate-feature",
        "'name'",
    ),
    "a name given twice": (
        [NAME, "--into", "v2", "--rename", "age=x", "--rename", "name=x"],
        "duplicate-feature",
        "'x'",
    ),
    "an unknown feature": ([NAME, "--into", "v2", "--drop", "shoes"], "unknown-feature", "'shoes'"),
    "an unknown kind": (
        [NAME, "--into", "v2", "--cast", "age=double"],
        "invalid-option-value",
        "age=double",
    ),
    "a kind left out": (
        [NAME, "--into", "v2", "--cast", "age"],
        "invalid-option-value",
        "NAME=float",
    ),
    "bytes to numbers": (
        [NAME, "--into", "v2", "--cast", "name=float"],
        "unsupported-cast",
        "'name'",
    ),
    "the kind it has": ([NAME, "--into", "v2", "--cast", "age=int64"], "redundant-cast", "'age'"),
    "a default that does not fit": (
        [NAME, "--into", "v2", "--default", "age=old"],
        "invalid-value",
        "'age'",
    ),
    "a default of what is there": (
        [NAME, "--into", "v2", "--default", "id=1"],
        "required-feature",
        "'id'",
    ),
    "a default of several kinds": (
        [NAME, "--into", "v2", "--default", 'new=[1, "a"]'],
        "invalid-value",
        "'new'",
    ),
    "a default of nothing": (
        [NAME, "--into", "v2", "--default", "new="],
        "invalid-option-value",
        'NAME=""',
    ),
    "a default of null": (
        [NAME, "--into", "v2", "--default", "new=null"],
        "invalid-option-value",
        'new="null"',
    ),
    "dropped and renamed": (
        [NAME, "--into", "v2", "--drop", "age", "--rename", "age=x"],
        "conflicting-arguments",
        "'age'",
    ),
    "into itself": ([NAME, "--into", "v1", "--drop", "age"], "output-is-input", "v1"),
    "into another schema": ([NAME, "--into", "v3", "--drop", "id"], "schema-mismatch", "digits/v3"),
}


@pytest.mark.parametrize("what", MIXED_UP)
def test_what_is_mixed_up_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    root = people(tmp_path / "root", tmp_path)
    assert on(root, "migrate", NAME, "--into", "v3", "--drop", "age").code == 0
    made(tmp_path / "a", framed(example_of(x=1)))
    before = sorted(file.name for file in tmp_path.iterdir())
    arguments, code, word = MIXED_UP[what]
    result = on(root, "migrate", *arguments, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert word in squeezed(result.err)
    assert not Version(root, "digits/v2").exists
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_a_version_that_was_appended_to_is_left_alone(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    source = write_rows(tmp_path / "x.jsonl", [1])
    assert on(root, "append", "other/v1", source).code == 0
    steps = ("--drop", "name", "--drop", "age", "--rename", "id=x")
    result = on(root, "migrate", NAME, "--into", "other/v1", *steps, "--dry-run", "--json")
    assert result.code == 2
    assert "other/v1" in result.error["message"]


def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    code, drawn = on_terminal("migrate", NAME, "--into", "v2", *STEPS, "--root", root)
    assert (code, "migrating" in drawn, "checking" in drawn) == (0, True, True)
