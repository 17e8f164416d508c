"""A mistake in a declaration is told when the code location loads, with what to change."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from shardline.dagster import (
    DeclarationError,
    LandingFolder,
    VersionDefs,
    appended_version,
    combined_version,
    extended_version,
)
from shardline.dagster.definitions import build_definitions
from shardline.dagster.versions.rebuild import rebuilt_version
from shardline.errors import InvalidArgumentError, InvalidNameError
from shardline.schema.schema import Feature
from shardline.udf import record_udf, table_join
from shardline.udf.key_join import TableJoin
from tests.dagster.platforms import SCHEMA
from tests.errors import raises

HERE = LandingFolder("landing")


@record_udf(Feature("length", "int64"), reads=["name"])
def length(record: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(record["name"])}


def bare(record: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(record["name"])}


def declared(name: str) -> VersionDefs:
    return appended_version(name, schema=SCHEMA, landing=HERE)


def test_several_datasets_load_together() -> None:
    defs = build_definitions(declared("notes/v1"), declared("notes/v2"), declared("faces/v1"))
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    assert keys == {"notes_v1", "notes_v2", "faces_v1", "lineage_audit"}


def test_undeclared_input_raises() -> None:
    with raises(DeclarationError, "undeclared-input", version="notes/single") as caught:
        build_definitions(declared("notes/v1"), rebuilt_version("notes/single", of="notes/v2"))
    assert "notes/v2" in str(caught.value)


def test_undeclared_combination_input_raises() -> None:
    pairs = combined_version("pairs/v1", left="notes/v1", right="words/v1")
    with raises(DeclarationError, "undeclared-input", version="pairs/v1") as caught:
        build_definitions(declared("notes/v1"), pairs)
    assert "words/v1" in str(caught.value)


def test_declaration_reads_no_table() -> None:
    def late() -> TableJoin:
        raise AssertionError("called at load")

    table = table_join("no/such/table.csv", "id")
    given: list[Any] = [table, [table, length], late]
    for fields in given:
        extended_version("notes/v2", of="notes/v1", udfs=fields)
        combined_version("pairs/v1", left="notes/v1", right="notes/v2", udfs=fields)


def test_duplicate_asset_raises() -> None:
    with raises(DeclarationError, "duplicate-asset", version="a_b/c") as caught:
        build_definitions(declared("a/b_c"), declared("a_b/c"))
    assert "a/b_c" in str(caught.value)


def test_duplicate_version_raises() -> None:
    with raises(DeclarationError, "duplicate-version", version="notes/v1"):
        build_definitions(declared("notes/v1"), declared("notes/v1"))


def test_missing_suite_raises() -> None:
    with raises(DeclarationError, "suite-not-found", version="notes/v1") as caught:
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, expectations="no_such.json")
    assert "shardline draft notes/v1 --output" in str(caught.value.hint)
    assert str(caught.value.path).endswith("no_such.json")


def test_unreadable_suite_raises(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text("no JSON")
    with raises(DeclarationError, "invalid-json", version="notes/v1", path=str(suite)):
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, expectations=suite)


def test_declare_suite_with_unbounded_rule_raises(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    kind = "expect_column_value_z_scores_to_be_less_than"
    suite.write_text(json.dumps({"expectations": [{"type": kind, "kwargs": {"column": "id"}}]}))
    code = "unsupported-expectation"
    with raises(DeclarationError, code, version="notes/v1", path=str(suite)) as caught:
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, expectations=suite)
    assert kind in str(caught.value)
    assert "expect_column_values_to_be_between" in str(caught.value.hint)


def test_invalid_version_name_raises() -> None:
    with pytest.raises(InvalidNameError, match=r"DATASET/VERSION"):
        declared("notes")


def test_version_derived_from_itself_raises() -> None:
    with raises(DeclarationError, "same-version", version="notes/v1"):
        rebuilt_version("notes/v1", of="notes/v1")


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("max_quarantined", 5.0, "out-of-range"),
        ("compression", "zip", "unknown-compression"),
        ("target_bytes", 0, "out-of-range"),
        ("watch_seconds", -3, "out-of-range"),
        ("timezone", "Mars", "unknown-timezone"),
    ],
)
def test_invalid_option_raises(option: str, value: object, code: str) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(DeclarationError) as caught:
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, **options)
    _assert_declaration(caught.value, "notes/v1", code, str(value))


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        ({"name": "notes/v1"}, "same-version", "notes/v1"),
        ({"name": "words/v1"}, "dataset-mismatch", "notes"),
        ({"drop": ["id"]}, "conflicting-arguments", "drop"),
        ({"replaces": ["id"]}, "conflicting-arguments", "replace"),
        ({"mode": "beside"}, "invalid-choice", "'beside'"),
        ({"max_quarantined": 2.0}, "out-of-range", "2.0"),
        ({"max_quarantined": 0.1}, "conflicting-arguments", "'length'"),
        ({"compression": "zlib"}, "unsupported-compression", "ZLIB"),
        ({"udfs": []}, "no-features", ""),
        ({"udfs": bare}, "undeclared-udf", "'bare'"),
        ({"udfs": [bare]}, "undeclared-udf", "function"),
        ({"udfs": "length"}, "undeclared-udf", "str"),
        ({"expectations": "no_such.json"}, "suite-not-found", "no_such.json"),
    ],
)
def test_invalid_extension_raises(options: dict[str, Any], code: str, named: str) -> None:
    given = {"name": "notes/v2", "of": "notes/v1", "udfs": length, **options}
    with pytest.raises(DeclarationError) as caught:
        extended_version(**given)
    _assert_declaration(caught.value, given["name"], code, named)


def _assert_declaration(error: DeclarationError, version: str, code: str, named: str) -> None:
    assert (error.version, error.code) == (version, code)
    assert named in str(error)


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        ({"name": "notes/v1"}, "same-version", "notes/v1"),
        ({"name": "words/v1"}, "same-version", "words/v1"),
        ({"unordered": True}, "conflicting-arguments", "notes/v1 and words/v1"),
        ({"on_collision": "rename"}, "invalid-choice", "'rename'"),
        ({"on_collision": "prefix"}, "missing-argument", "prefix"),
        ({"how": "left"}, "missing-argument", "how"),
        ({"sample": 9, "limit": 9}, "conflicting-arguments", "sample"),
        ({"where": length, "sample": 9}, "conflicting-arguments", "sample"),
        ({"mode": "lazy"}, "invalid-choice", "'lazy'"),
        ({"mode": "virtual", "on": "id", "limit": 9}, "conflicting-arguments", "on, limit"),
        ({"mode": "virtual", "udfs": length}, "conflicting-arguments", "udfs"),
        ({"target_bytes": 0}, "out-of-range", "target_bytes"),
        ({"budget_bytes": 0}, "out-of-range", "budget_bytes"),
        ({"compression": "zlib"}, "unsupported-compression", "ZLIB"),
        ({"udfs": bare}, "undeclared-udf", "'bare'"),
        ({"expectations": "no_such.json"}, "suite-not-found", "no_such.json"),
    ],
)
def test_invalid_combination_raises(options: dict[str, Any], code: str, named: str) -> None:
    given = {"name": "pairs/v1", "left": "notes/v1", "right": "words/v1", **options}
    with pytest.raises(DeclarationError) as caught:
        combined_version(**given)
    _assert_declaration(caught.value, given["name"], code, named)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"format": "xml"}, "invalid-choice"),
        ({"pattern": "/x/*.csv"}, "invalid-pattern"),
    ],
)
def test_invalid_landing_folder_raises(options: dict[str, Any], code: str) -> None:
    with raises(InvalidArgumentError, code):
        LandingFolder("landing", **options)


def test_invalid_schedule_raises() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"cron"):
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, cron="every day")
