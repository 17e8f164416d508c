"""A mistake in a declaration is told when the code location loads, with what to change."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets import DeclarationError, DeclaredVersion, LandingFolder, appended_version
from assets.rebuilt import rebuilt_version
from dagster_project.platform import platform
from shardline.errors import BadNameError
from tests.dagster_project.platforms import SCHEMA

HERE = LandingFolder("landing")


def declared(name: str) -> DeclaredVersion:
    return appended_version(name, schema=SCHEMA, landing=HERE)


def test_versions_of_several_datasets_load_together() -> None:
    defs = platform(declared("notes/v1"), declared("notes/v2"), declared("faces/v1"))
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    assert keys == {"notes_v1", "notes_v2", "faces_v1"}


def test_an_input_that_nobody_declares_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"notes/single is made of notes/v2, which is not"):
        platform(declared("notes/v1"), rebuilt_version("notes/single", of="notes/v2"))


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
