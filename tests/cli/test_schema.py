"""`shardline schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from shardline.api import Version
from shardline.cli.schema_file import format_declaration, read_schema
from shardline.schema.schema import Feature, Schema, Text
from tests.cli.command import shardline
from tests.cli.datasets import HOSTILE, on
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.tfrecord.samples import example_of, made, read_by_tensorflow, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [
    example_of(label=1, weights=[0.5, -2.0], name=b"cat"),
    example_of(label=-7, weights=[float("inf"), 3.5], tags=[b"a", b"b"]),
]


def test_the_schema_is_told_as_json(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*RECORDS))
    result = shardline("schema", path, "--json")
    assert (result.code, result.err) == (0, "")
    told = result.json
    assert (told["ok"], told["records"], told["differences"]) == (True, 2, [])
    features = {feature["name"]: feature for feature in told["features"]}
    assert list(features) == ["label", "name", "tags", "weights"]
    label = features["label"]
    assert (label["kind"], label["shape"], label["fixed"]) == ("int64", "[]", True)
    assert (label["min"], label["max"], label["required"], label["present"]) == (-7, 1, True, 2)
    assert (features["weights"]["min"], features["weights"]["max"]) == (-2.0, "Infinity")
    assert (features["weights"]["shape"], features["weights"]["length"]) == ("[2]", 2)
    assert (features["name"]["required"], features["name"]["bytes"]) == (False, [3, 3])
    assert features["name"]["utf8"] is True
    assert told["files"][0]["file"] == str(path)


def test_the_table_shows_every_feature_and_the_spec_behind_it(tmp_path: Path) -> None:
    result = shardline("schema", made(tmp_path / "a", framed(*RECORDS)))
    assert result.code == 0
    for words in (
        ("label", "int64", "[]", "always", "-7 to 1"),
        ("name", "bytes", "1 of 2", "3 bytes, text"),
        ("weights", "float", "[2]", "-2.0 to Infinity"),
    ):
        assert any(all(word in line for word in words) for line in result.out.splitlines()), words
    assert "2 records" in result.out
    assert '"label": tf.io.FixedLenFeature([], tf.int64)' in result.out


def test_the_printed_spec_runs_and_parses_the_file(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*RECORDS))
    result = shardline("schema", path, "--spec")
    assert result.code == 0
    names: dict[str, object] = {}
    exec(result.out, names)  # noqa: S102 - it is meant to be pasted and run
    parsed = tf.io.parse_example(read_by_tensorflow(path), names["features"])
    assert parsed["label"].numpy().tolist() == [1, -7]
    assert parsed["weights"].numpy().tolist() == [[0.5, -2.0], [float("inf"), 3.5]]


def test_the_spec_of_sequences_runs_too(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(sequence_of({"id": 1}, tokens=[[1], [2]])))
    names: dict[str, object] = {}
    exec(shardline("schema", path, "--spec").out, names)  # noqa: S102 - it is meant to be run
    context, lists, _ = tf.io.parse_sequence_example(
        read_by_tensorflow(path), names["context_features"], names["sequence_features"]
    )
    assert context["id"].numpy().tolist() == [1]
    assert lists["tokens"].numpy().tolist() == [[1, 2]]


def test_differences_between_files_are_shown_feature_by_feature(tmp_path: Path) -> None:
    made(tmp_path / "a", framed(example_of(same=1, x=1, gone=2)))
    made(tmp_path / "b", framed(example_of(same=2, x=[1, 2])))
    result = shardline("schema", "a", "b", cwd=tmp_path)
    assert result.code == 0
    assert "The files differ:" in result.out
    assert "  x: shape" in result.out
    assert "    a: int64" in result.out
    assert "    b: int64 [2]" in result.out
    assert "  gone: missing" in result.out
    assert "same: " not in result.out
    told = shardline("schema", "a", "b", "--json", cwd=tmp_path).json
    assert [difference["name"] for difference in told["differences"]] == ["gone", "x"]
    assert told["differences"][1]["what"] == ["shape"]
    assert told["differences"][1]["files"] == {"a": "int64 [] required", "b": "int64 [2] required"}


def test_files_that_agree_are_told_to(tmp_path: Path) -> None:
    for name in ("a", "b"):
        made(tmp_path / name, framed(example_of(x=1)))
    assert "same features" in shardline("schema", "a", "b", cwd=tmp_path).out


def test_a_feature_of_two_kinds_is_a_problem_in_the_data(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(example_of(x=1), example_of(x=1.0)))
    result = shardline("schema", path, "--json")
    assert result.code == 1
    assert result.json["ok"] is False
    assert result.json["features"][0]["kinds"] == ["float", "int64"]


def test_damage_and_foreign_payloads_are_code_1(tmp_path: Path) -> None:
    for content in (framed(*RECORDS)[:-1], framed(b"\x08")):
        result = shardline("schema", made(tmp_path / "a", content))
        assert result.code == 1
        assert "record" in result.err


def test_markup_in_names_is_shown_as_it_is(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(example_of(**{"[red]x[/red]": 1, "[/]": 2})))
    result = shardline("schema", path)
    assert result.code == 0, result.err
    assert "[red]x[/red]" in result.out


def test_no_name_can_command_the_terminal(tmp_path: Path) -> None:
    made(tmp_path / "a", framed(example_of(**{"a\x1b[2Jb": 1})))
    made(tmp_path / "b", framed(example_of(**{"a\x1b[2Jb": 1.0})))
    for arguments in (["a"], ["a", "b"], ["a", "--spec"], ["a", "--json"]):
        result = shardline("schema", *arguments, cwd=tmp_path)
        assert "\x1b" not in result.out + result.err
        assert "a\\x1b[2Jb" in result.out or "a\\u001b[2Jb" in result.out


def test_of_a_version_the_declared_schema_is_told(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature("label", "int64", doc="0 to 9"),
            Feature("vector", "float", (None, 2), required=False, nan=True),
            Feature("step", "bytes", sequence=True, meaning=Text()),
        ),
        "sequence_example",
        HOSTILE,
    )
    Version(tmp_path, NAME).create(schema)
    result = on(tmp_path, "schema", NAME)
    assert result.code == 0, result.err
    lines = [line.split("  ") for line in result.out.splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert result.out.startswith("digits/v1: sequence_example records")
    assert ["label", "int64", "[]", "required", "0 to 9"] in rows
    (vector,) = [row for row in rows if row[:1] == ["vector"]]
    assert vector[1:3] == ["float", "[?, 2]"]
    assert all(words in vector[3] for words in ("optional", "NaN"))
    assert ["step", "bytes", "[]", "required, per step", "text"] in rows
    assert "\x1b" not in result.out
    told = on(tmp_path, "schema", NAME, "--json").json
    assert (told["ok"], told["version"], told["fingerprint"]) == (True, NAME, schema.fingerprint)
    assert Schema.from_dict(told["schema"]) == schema
    assert on(tmp_path, "schema", NAME, "--spec").out.endswith(told["spec"])
    assert Schema.from_dict(json.loads(on(tmp_path, "schema", NAME, "--declare").out)) == schema


@pytest.mark.parametrize("schema", [Schema.opaque(), Schema((Feature("x", "int64"),), doc="one")])
def test_a_declaration_can_be_read_again(tmp_path: Path, schema: Schema) -> None:
    path = made(tmp_path / "s.json", format_declaration(schema).encode())
    assert read_schema(path) == schema


def test_sources_of_any_format_are_declared_as_append_would(tmp_path: Path) -> None:
    made(tmp_path / "a.csv", b"x,name\n1,one\n2,two\n")
    result = shardline("schema", "a.csv", "--declare", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    declared = (
        '{\n  "payload": "example",\n  "features": [\n'
        '    {"name": "name", "kind": "bytes", "meaning": {"is": "text"}},\n'
        '    {"name": "x", "kind": "int64"}\n  ]\n}\n'
    )
    assert result.out == declared
    assert on(tmp_path / "root", "append", NAME, tmp_path / "a.csv").code == 0
    assert on(tmp_path / "root", "schema", NAME, "--declare").out == result.out
    told = shardline("schema", "a.csv", "--declare", "--json", cwd=tmp_path).json
    assert (told["ok"], told["schema"]) == (True, json.loads(result.out))
    made(tmp_path / "b.tfrecord", framed(*RECORDS))
    inferred = json.loads(shardline("schema", "b.tfrecord", "--declare", cwd=tmp_path).out)
    (weights,) = [one for one in inferred["features"] if one["name"] == "weights"]
    assert (weights["kind"], weights["shape"]) == ("float", [2])


def test_what_has_no_schema_to_tell_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "a.csv", b"x\n1\n")
    made(tmp_path / "empty.jsonl", b"")
    for arguments, status, code in (
        (["a.csv"], 2, "unexpected-format"),
        (["a.csv", "--format", "csv"], 2, "missing-option"),
        (["a.csv", "--spec", "--declare"], 2, "conflicting-options"),
        (["empty.jsonl", "--declare"], 1, "schema-mismatch"),
        (["missing.csv", "--declare"], 2, "file-not-found"),
        ([NAME], 2, "file-not-found"),
    ):
        result = shardline("schema", *arguments, "--json", cwd=tmp_path)
        assert result.problem == (status, code), arguments
    result = on(tmp_path, "schema", NAME, "digits/v2", "--json")
    assert result.problem == (2, "too-many-arguments")


def test_schema_bounds_read_back_as_same_float32(tmp_path: Path) -> None:
    payloads = [example_of(near=[16777216.0], far=[0.1]), example_of(near=[16777218.0], far=[0.2])]
    path = made(tmp_path / "a.tfrecord", framed(*payloads))
    features = {one["name"]: one for one in shardline("schema", path, "--json").json["features"]}
    assert (features["near"]["min"], features["near"]["max"]) == (16777216.0, 16777218.0)
    assert (features["far"]["min"], features["far"]["max"]) == (0.1, 0.2)
    assert "16777216.0 to 16777218.0" in shardline("schema", path).out
