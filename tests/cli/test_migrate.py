"""`shardline migrate`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.log.version import Version
from tests.cli.command import inside, on_terminal
from tests.cli.datasets import damage, here, squeezed, write_rows
from tests.files.samples import example_of, made, packed, read_by_tensorflow
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.operations.extensions import table
from tests.operations.landings import json_lines

if TYPE_CHECKING:
    from pathlib import Path

PEOPLE = [{"id": 1, "name": "Ann", "age": 30}, {"id": 2, "name": "Bob"}]
PLAN = [
    "steps:",
    "  rename 'name' to 'title'",
    "  drop 'id'",
    "  cast 'age' to float",
    "fields:",
    "  ~ age: int64 → float",
    "  - id: int64 [] required",
    "  - name: bytes [] required, text",
    "  + title: bytes [] required, text",
]
STEPS = ("--rename", "name=title", "--drop", "id", "--cast", "age=float")


def people(root: Path, folder: Path, rows: list[dict[str, Any]] | None = None) -> Path:
    """A published version of people, in a root."""
    source = json_lines(folder / f"{len(rows or [])}.jsonl", rows or PEOPLE)
    assert here(root, "append", NAME, source).code == 0
    return root


def contents(root: Path, name: str = "digits/v2") -> dict[str, list[Any]]:
    return table(Version(root, name).published())


def test_the_plan_is_shown_and_then_done_and_the_new_version_follows(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    result = here(root, "migrate", NAME, "--into", "v2", *STEPS)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[:10] == ["digits/v1@1 → digits/v2, which is new", *PLAN]
    assert re.fullmatch(
        r"work: 1 shard to compute, 0 to use again; 2 records, \d+ bytes to read", lines[10]
    )
    assert re.fullmatch(r"to write: about \d+ bytes", lines[11])
    assert lines[12] == "created digits/v2"
    assert re.fullmatch(
        r"digits/v2@1: 1 shard computed from digits/v1@1; 2 records, \d+ bytes written", lines[13]
    )
    assert lines[16:] == ["digits/v2@1 is published", "To read it: shardline files digits/v2"]
    assert contents(root) == {"age": [30.0, None], "title": ["Ann", "Bob"]}
    people(root, tmp_path, [{"id": 3, "name": "Cid", "age": 7}])
    again = here(root, "migrate", NAME, "--into", "v2", *STEPS)
    assert "work: 1 shard to compute, 1 to use again; 1 record, " in again.out
    assert "digits/v2@2: 1 shard computed from digits/v1@2, 1 used again; 1 record" in again.out
    assert contents(root)["title"] == ["Ann", "Bob", "Cid"]
    log = squeezed(here(root, "log", "digits/v2").out)
    assert (
        "migrated (name → title, without id, age as float): 1 shard computed, 1 reused; from "
        "digits/v1@2"
    ) in log
    done = here(root, "migrate", NAME, "--into", "v2", *STEPS)
    assert done.out.splitlines()[-2:] == [
        "work: 0 shards to compute, 2 to use again",
        "digits/v2 follows digits/v1@2 already: nothing to do",
    ]


def test_a_dry_run_shows_the_plan_alone(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    result = here(root, "migrate", NAME, "--into", "v2", *STEPS, "--dry-run")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[1:10] == PLAN
    assert result.out.endswith("Nothing was changed. To do it, leave out --dry-run\n")
    told = here(root, "migrate", NAME, "--into", "v2", *STEPS, "--dry-run", "--json").json
    assert told["steps"] == [line.strip() for line in PLAN[1:4]]
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
    result = here(root, "migrate", NAME, "--into", "v2", "--default", f"new={text}")
    assert result.code == 0, result.err
    assert contents(root)["new"] == [value, value]


def test_a_default_is_given_where_a_feature_is_missing_and_json_tells_it(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    result = here(root, "migrate", NAME, "--into", "v2", "--default", "age=18", "--json")
    told = result.json
    assert (result.code, told["ok"], told["published"], told["created"]) == (0, True, True, True)
    assert told["steps"] == ["give 'age' a value where it is missing"]
    assert told["fields"]["changes"][0]["new"] == "required"
    assert contents(root)["age"] == [30, 18]
    again = here(root, "migrate", NAME, "--into", "v2", "--default", "age=18", "--json").json
    assert (again["ok"], again["snapshot"], again["reused_shards"]) == (True, None, 1)


def test_a_number_that_cannot_be_cast_is_code_1_or_goes_to_quarantine(tmp_path: Path) -> None:
    root = tmp_path / "root"
    here(root, "append", NAME, write_rows(tmp_path / "a.jsonl", [1, 2**53 + 1]))
    command = ("migrate", NAME, "--into", "v2", "--cast", "x=float")
    result = here(root, *command)
    assert result.code == 1
    assert "record 1, feature 'x': holds a number that a float cannot hold exactly" in result.err
    assert not Version(root, "digits/v2").exists
    result = here(root, *command, "--quarantine-share", "50%")
    assert result.code == 0, result.err
    assert "1 of 2 records is left out, and went to quarantine with the reasons (50.00%):" in (
        result.out
    )
    assert contents(root) == {"x": [1.0]}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_loose_file_is_migrated(tmp_path: Path, compression: str) -> None:
    data = framed(*(example_of(x=number, y=b"why") for number in range(3)))
    made(tmp_path / "in", packed(compression, data))
    size = (tmp_path / "in").stat().st_size
    command = ("migrate", "in", "--output", "out", "--rename", "x=number", "--drop", "y")
    plan = [
        "in → out",
        "steps:",
        "  rename 'x' to 'number'",
        "  drop 'y'",
        "fields:",
        "  + number: int64 [] required",
        "  - x: int64 [] required",
        "  - y: bytes [] required",
        f"work: 3 records, {size} bytes to read",
        f"to write: about {size} bytes",
    ]
    result = inside(*command, "--dry-run", cwd=tmp_path)
    assert result.out.splitlines() == [*plan, "Nothing was changed. To do it, leave out --dry-run"]
    assert not (tmp_path / "out").exists()
    result = inside(*command, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[:10] == plan
    assert result.out.splitlines()[10].startswith("in migrated into out: 3 records, ")
    name = "" if compression == "none" else "GZIP"
    payloads = read_by_tensorflow(tmp_path / "out", name)
    records = [tf.train.Example.FromString(one) for one in payloads]
    assert [
        {key: list(one.int64_list.value) for key, one in record.features.feature.items()}
        for record in records
    ] == [{"number": [0]}, {"number": [1]}, {"number": [2]}]
    told = inside(*command, "--overwrite", "--json", cwd=tmp_path).json
    assert (told["ok"], told["records"], told["compression"]) == (True, 3, compression)


def test_an_empty_file_becomes_an_empty_file_and_that_is_told(tmp_path: Path) -> None:
    made(tmp_path / "in", b"")
    result = inside("migrate", "in", "--output", "out", *STEPS, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "in has no records, so there was nothing to change" in result.out
    assert (tmp_path / "out").read_bytes() == b""


def test_a_number_in_a_file_that_cannot_be_cast_is_code_1_and_told_what_to_do(
    tmp_path: Path,
) -> None:
    made(tmp_path / "in", framed(example_of(x=1), example_of(x=2**53 + 1)))
    result = inside("migrate", "in", "--output", "out", "--cast", "x=float", cwd=tmp_path)
    assert (result.code, [file.name for file in tmp_path.iterdir()]) == (1, ["in"])
    assert "in, record 1, feature 'x': holds a number that a float cannot hold" in result.err
    assert result.err.endswith("mend such values first: extend can give a field in its place\n")


def test_a_damaged_file_is_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    damage(made(tmp_path / "in", framed(example_of(x=1), example_of(x=2))))
    result = inside("migrate", "in", "--output", "out", "--rename", "x=y", cwd=tmp_path)
    assert (result.code, "data-crc at record 0" in result.err) == (1, True)
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


MIXED_UP = {
    "nothing to change": ([NAME, "--into", "v2"], "change what? Say --rename OLD=NEW"),
    "nowhere to": ([NAME, "--drop", "age"], "where to? Say --into VERSION"),
    "a file into a version": (["a", "--into", "v2", "--drop", "x"], "names no version"),
    "a file with a share": (
        ["a", "--output", "o", "--drop", "x", "--quarantine-share", "1%"], "is for versions",
    ),
    "a version into a file": (
        [NAME, "--output", "o", "--drop", "x"],
        f"no such file: {NAME}. If the version of a dataset is meant, say --into VERSION",
    ),
    "a half rename": ([NAME, "--into", "v2", "--rename", "age"], "write --rename OLD=NEW"),
    "a rename to nothing": ([NAME, "--into", "v2", "--rename", "age="], "write --rename OLD=NEW"),
    "two renames of one": (
        [NAME, "--into", "v2", "--rename", "age=a", "--rename", "age=b"], "names 'age' twice",
    ),
    "a name that is taken": (
        [NAME, "--into", "v2", "--rename", "age=name"], "there is a feature 'name' already",
    ),
    "a name given twice": (
        [NAME, "--into", "v2", "--rename", "age=x", "--rename", "name=x"],
        "there is a feature 'x' already",
    ),
    "an unknown feature": (
        [NAME, "--into", "v2", "--drop", "shoes"],
        "feature 'shoes' is not in the schema, which has 'age', 'id', 'name'",
    ),
    "an unknown kind": (
        [NAME, "--into", "v2", "--cast", "age=double"],
        "--cast age=double: the kind is float or int64",
    ),
    "a kind left out": (
        [NAME, "--into", "v2", "--cast", "age"], "write --cast NAME=float or NAME=int64",
    ),
    "bytes to numbers": ([NAME, "--into", "v2", "--cast", "name=float"], "cannot be cast"),
    "the kind it has": ([NAME, "--into", "v2", "--cast", "age=int64"], "int64 values already"),
    "a default that does not fit": (
        [NAME, "--into", "v2", "--default", "age=old"], "the value for 'age' does not fit",
    ),
    "a default of what is there": (
        [NAME, "--into", "v2", "--default", "id=1"], "feature 'id' is required",
    ),
    "a default of several kinds": (
        [NAME, "--into", "v2", "--default", 'new=[1, "a"]'], "none that a feature can hold",
    ),
    "a default of nothing": (
        [NAME, "--into", "v2", "--default", "new="], "and 'NAME=\"\"' for an empty text",
    ),
    "a default of null": (
        [NAME, "--into", "v2", "--default", "new=null"],
        "can hold. If the text is meant, write --default 'new=\"null\"'",
    ),
    "dropped and renamed": (
        [NAME, "--into", "v2", "--drop", "age", "--rename", "age=x"], "dropped and to be renamed",
    ),
    "into itself": ([NAME, "--into", "v1", "--drop", "age"], "is the version itself"),
    "into another schema": (
        [NAME, "--into", "v3", "--drop", "id"], "digits/v3 exists already, and its features",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXED_UP)
def test_what_is_mixed_up_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    root = people(tmp_path / "root", tmp_path)
    assert here(root, "migrate", NAME, "--into", "v3", "--drop", "age").code == 0
    made(tmp_path / "a", framed(example_of(x=1)))
    before = sorted(file.name for file in tmp_path.iterdir())
    arguments, words = MIXED_UP[what]
    result = here(root, "migrate", *arguments, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert words in squeezed(result.err)
    assert not Version(root, "digits/v2").exists
    assert sorted(file.name for file in tmp_path.iterdir()) == before


def test_a_version_that_was_appended_to_is_left_alone(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    source = write_rows(tmp_path / "x.jsonl", [1])
    assert here(root, "append", "other/v1", source).code == 0
    steps = ("--drop", "name", "--drop", "age", "--rename", "id=x")
    result = here(root, "migrate", NAME, "--into", "other/v1", *steps, "--dry-run")
    assert (result.code, result.out) == (2, "")
    assert "other/v1 was appended to" in result.err


def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    root = people(tmp_path / "root", tmp_path)
    code, drawn = on_terminal("migrate", NAME, "--into", "v2", *STEPS, "--root", root)
    assert (code, "migrating" in drawn, "checking" in drawn) == (0, True, True)
