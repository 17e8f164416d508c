"""A mistake in a declaration is told when the code location loads, with what to change."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets import (
    DeclarationError,
    DeclaredVersion,
    LandingFolder,
    appended_version,
    combined_version,
    extended_version,
)
from assets.rebuilt import rebuilt_version
from dagster_project.platform import platform
from shardline.errors import BadNameError
from shardline.fields import joined_fields, record_fields
from shardline.fields.joins import JoinedFields
from shardline.log.schema import Feature
from tests.dagster_project.platforms import SCHEMA

HERE = LandingFolder("landing")


@record_fields(Feature("length", "int64"), reads=["name"])
def length(record: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(record["name"])}


def bare(record: dict[str, Any]) -> dict[str, Any]:
    return {"length": len(record["name"])}


def declared(name: str) -> DeclaredVersion:
    return appended_version(name, schema=SCHEMA, landing=HERE)


def test_versions_of_several_datasets_load_together() -> None:
    defs = platform(declared("notes/v1"), declared("notes/v2"), declared("faces/v1"))
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    assert keys == {"notes_v1", "notes_v2", "faces_v1", "lineage_audit"}


def test_an_input_that_nobody_declares_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"notes/single is made of notes/v2, which is not"):
        platform(declared("notes/v1"), rebuilt_version("notes/single", of="notes/v2"))


def test_an_input_of_a_combination_that_nobody_declares_is_refused() -> None:
    pairs = combined_version("pairs/v1", left="notes/v1", right="words/v1")
    with pytest.raises(DeclarationError, match=r"pairs/v1 is made of words/v1, which is not"):
        platform(declared("notes/v1"), pairs)


def test_a_table_need_not_be_there_and_no_function_be_called_when_it_is_declared() -> None:
    def late() -> JoinedFields:
        raise AssertionError("called at load")

    table = joined_fields("no/such/table.csv", "id")
    given: list[Any] = [table, [table, length], late]
    for fields in given:
        extended_version("notes/v2", of="notes/v1", fields=fields)
        combined_version("pairs/v1", left="notes/v1", right="notes/v2", fields=fields)


def test_names_that_become_the_same_asset_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"a_b/c and a/b_c would both be the asset a_b_c"):
        platform(declared("a/b_c"), declared("a_b/c"))


def test_a_version_that_is_declared_twice_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"notes/v1 is declared twice"):
        platform(declared("notes/v1"), declared("notes/v1"))


def test_a_suite_that_is_not_there_is_refused_with_the_command_that_drafts_one() -> None:
    with pytest.raises(DeclarationError, match=r"python -m checks\.draft notes/v1"):
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, expectations="no_such.json")


def test_a_suite_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text("no JSON")
    with pytest.raises(DeclarationError, match=r"suite\.json"):
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, expectations=suite)


def test_a_name_that_names_no_version_is_refused() -> None:
    with pytest.raises(BadNameError, match=r"DATASET/VERSION"):
        declared("notes")


def test_a_version_that_is_made_of_itself_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"notes/v1 is made of itself"):
        rebuilt_version("notes/v1", of="notes/v1")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("quarantine_share", 5.0, "must be from 0 to 1"),
        ("compression", "zip", "zip"),
        ("target_bytes", 0, "must be 1 or more"),
        ("watch_seconds", -3, "must be 1 or more"),
        ("timezone", "Mars", "'Mars' is not known"),
    ],
)
def test_an_option_that_would_fail_in_every_run_is_refused(
    option: str, value: object, told: str
) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(DeclarationError, match=f"notes/v1: .*{told}"):
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "notes/v1"}, "notes/v1 is made of itself"),
        ({"name": "words/v1"}, "an overlay lies beside its base: make it a version of notes"),
        ({"drop": ["id"]}, "to drop or replace, use mode='rewrite'"),
        ({"replaces": ["id"]}, "to drop or replace, use mode='rewrite'"),
        ({"mode": "beside"}, "mode 'beside' is none of overlay, rewrite"),
        ({"quarantine_share": 2.0}, "must be from 0 to 1"),
        ({"quarantine_share": 0.1}, "declare 'length' with required=False"),
        ({"compression": "zlib"}, "plain or GZIP"),
        ({"fields": []}, "there are no fields to add"),
        ({"fields": bare}, "function 'bare' is no maker of fields: declare what it makes"),
        ({"fields": [bare]}, "a value of type function is no maker of fields"),
        ({"fields": "length"}, "a value of type str is no maker of fields"),
        ({"expectations": "no_such.json"}, "its suite .* is not there"),
    ],
)
def test_an_extension_that_would_fail_in_every_run_is_refused(
    options: dict[str, Any], told: str
) -> None:
    given = {"name": "notes/v2", "of": "notes/v1", "fields": length, **options}
    with pytest.raises(DeclarationError, match=told):
        extended_version(**given)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "notes/v1"}, "notes/v1 is made of itself"),
        ({"name": "words/v1"}, "words/v1 is made of itself"),
        ({"once": True}, "notes/v1 and words/v1 are two, name one for both sides"),
        ({"on_collision": "rename"}, "on_collision 'rename' is none of"),
        ({"on_collision": "prefix"}, "there is no prefix to put before names"),
        ({"how": "left"}, "name the key features with on="),
        ({"sample": 9, "limit": 9}, "sample= cannot stand with"),
        ({"where": length, "sample": 9}, "sample= cannot stand with"),
        ({"mode": "lazy"}, "mode 'lazy' is none of materialized, virtual"),
        ({"mode": "virtual", "on": "id", "limit": 9}, "leave out on=, limit="),
        ({"mode": "virtual", "fields": length}, "leave out fields="),
        ({"target_bytes": 0}, "the target must be 1 or more"),
        ({"budget_bytes": 0}, "a budget of 0 bytes: it must be 1 or more"),
        ({"compression": "zlib"}, "plain or GZIP"),
        ({"fields": bare}, "function 'bare' is no maker of fields"),
        ({"expectations": "no_such.json"}, "its suite .* is not there"),
    ],
)
def test_a_combination_that_would_fail_in_every_run_is_refused(
    options: dict[str, Any], told: str
) -> None:
    given = {"name": "pairs/v1", "left": "notes/v1", "right": "words/v1", **options}
    with pytest.raises(DeclarationError, match=told):
        combined_version(**given)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "xml"}, "'xml' is none of"),
        ({"pattern": "/x/*.csv"}, "must be below the folder"),
    ],
)
def test_a_landing_folder_that_cannot_be_looked_into_is_refused(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        LandingFolder("landing", **options)


def test_a_schedule_that_never_comes_is_refused() -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match=r"cron"):
        appended_version("notes/v1", schema=SCHEMA, landing=HERE, cron="every day")
