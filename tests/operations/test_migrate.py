"""Migrating a version: other names, kinds and values, and every other byte as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import (
    InvalidArgumentError,
    InvalidRecordsError,
    SchemaMismatchError,
    ShardlineError,
)
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.migrate import MigrationSpec, migrate, plan_migration
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Category, Feature, Schema, Text
from tests.errors import raises
from tests.operations.extensions import by_protobuf, by_tensorflow, table, version_in
from tests.operations.landings import payloads, stored

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema(
    (
        Feature("age", "int64", required=False),
        Feature("label", "int64", meaning=Category(("a", "b"))),
        Feature("name", "bytes", meaning=Text()),
        Feature("sizes", "int64", (None,)),
        Feature("weight", "float"),
    )
)
ROWS: list[dict[str, Any]] = [
    {"age": 30, "label": 0, "name": "x", "sizes": [1, 2], "weight": 2.0},
    {"label": 1, "name": "y", "sizes": [], "weight": 3.0},
]


def old_one(tmp_path: Path, rows: list[dict[str, Any]] = ROWS) -> Version:
    """A published version with these rows."""
    version = Version(tmp_path / "root", "people/v1")
    append(version, rows, batch="first", schema=SCHEMA)
    assert check_version(version).ok
    return version


def migrated(tmp_path: Path, steps: MigrationSpec) -> Version:
    """What becomes of ROWS, published."""
    into = version_in(tmp_path, "people/v2")
    migrate(old_one(tmp_path), steps, into)
    assert check_version(into).ok
    assert verify_version(into).ok
    return into


def column(version: Version, name: str) -> list[Any]:
    """One column of the newest snapshot."""
    return table(version.latest(), [name])[name]


def test_a_renamed_feature_keeps_its_values_under_another_name(tmp_path: Path) -> None:
    into = migrated(tmp_path, MigrationSpec(rename={"weight": "kilograms"}))
    assert column(into, "kilograms") == [2.0, 3.0]
    assert [feature.name for feature in into.schema.features] == [
        "age", "kilograms", "label", "name", "sizes",
    ]  # fmt: skip
    assert into.schema.feature("label").meaning == Category(("a", "b"))
    assert [record["kilograms"] for record in by_tensorflow(into.published())] == [2.0, 3.0]
    assert [record["kilograms"] for record in by_protobuf(into.published())] == [2.0, 3.0]


def test_two_features_may_swap_their_names(tmp_path: Path) -> None:
    into = migrated(tmp_path, MigrationSpec(rename={"label": "weight", "weight": "label"}))
    assert (column(into, "label"), column(into, "weight")) == ([2.0, 3.0], [0, 1])


def test_a_dropped_feature_is_gone_from_every_record(tmp_path: Path) -> None:
    into = migrated(tmp_path, MigrationSpec(drop=["name", "age", "name"]))
    assert {frozenset(record) for record in by_protobuf(into.published())} == {
        frozenset({"label", "sizes", "weight"})
    }


def test_what_is_not_named_keeps_every_byte(tmp_path: Path) -> None:
    into = migrated(tmp_path, MigrationSpec(drop=["age"]))
    base = Version(tmp_path / "root", "people/v1")
    old, new = payloads(base)[1], payloads(into)[1]
    assert old == new


def test_whole_numbers_become_floats_and_back_where_they_can_be_told_exactly(
    tmp_path: Path,
) -> None:
    steps = MigrationSpec(cast={"label": "float", "sizes": "float", "weight": "int64"})
    into = migrated(tmp_path, steps)
    assert column(into, "label") == [0.0, 1.0]
    assert column(into, "sizes") == [[1.0, 2.0], []]
    assert column(into, "weight") == [2, 3]
    assert into.schema.feature("label").meaning is None


@pytest.mark.parametrize("number", [2**24 + 1, -(2**24) - 1, 2**63 - 1, -(2**63) + 1])
@pytest.mark.parametrize("name", ["age", "sizes"])
def test_a_number_that_a_float_cannot_hold_exactly_is_refused(
    tmp_path: Path, number: int, name: str
) -> None:
    row = {**ROWS[0], name: [number] if name == "sizes" else number}
    base = old_one(tmp_path, [*ROWS, row])
    with raises(InvalidRecordsError, "invalid-rows", record=2, feature=name):
        migrate(base, MigrationSpec(cast={name: "float"}), version_in(tmp_path, "people/v2"))


@pytest.mark.parametrize("number", [2**24, -(2**24), 2**40, -(2**63)])
def test_a_large_number_that_a_float_holds_exactly_is_cast(tmp_path: Path, number: int) -> None:
    base, into = old_one(tmp_path, [{**ROWS[0], "age": number}]), version_in(tmp_path, "people/v2")
    migrate(base, MigrationSpec(cast={"age": "float"}), into)
    assert column(into, "age") == [float(number)]


@pytest.mark.parametrize("number", [0.5, 1e30, float("inf")])
def test_a_float_that_is_not_whole_or_too_large_is_refused(tmp_path: Path, number: float) -> None:
    base = old_one(tmp_path, [*ROWS, {**ROWS[0], "weight": number}])
    with raises(InvalidRecordsError, "invalid-rows", record=2, feature="weight"):
        migrate(base, MigrationSpec(cast={"weight": "int64"}), version_in(tmp_path, "people/v2"))


def test_records_that_cannot_be_cast_may_go_to_quarantine(tmp_path: Path) -> None:
    base = old_one(tmp_path, [*ROWS, {**ROWS[0], "weight": 0.5}])
    into = version_in(tmp_path, "people/v2")
    report = migrate(base, MigrationSpec(cast={"weight": "int64"}), into, max_quarantined=0.5)
    assert (report.quarantined_rows, column(into, "weight")) == (1, [2, 3])


def test_a_default_is_given_where_a_feature_is_missing_and_it_is_required_then(
    tmp_path: Path,
) -> None:
    into = migrated(tmp_path, MigrationSpec(default={"age": 18}))
    assert column(into, "age") == [30, 18]
    assert into.schema.feature("age").required


def test_a_default_and_another_name_go_together(tmp_path: Path) -> None:
    into = migrated(tmp_path, MigrationSpec(rename={"age": "years"}, default={"age": 18}))
    assert column(into, "years") == [30, 18]


@pytest.mark.parametrize(
    ("value", "feature"),
    [
        (7, Feature("new", "int64")),
        (0.5, Feature("new", "float")),
        ("train", Feature("new", "bytes", meaning=Text())),
        (b"\xff", Feature("new", "bytes")),
        ([1, 2], Feature("new", "int64", (2,))),
    ],
)
def test_a_feature_that_no_record_has_is_given_to_all(
    tmp_path: Path, value: object, feature: Feature
) -> None:
    into = migrated(tmp_path, MigrationSpec(default={"new": value}))
    assert column(into, "new") == [value, value]
    assert into.schema.feature("new") == feature


WRONG_STEPS: list[tuple[MigrationSpec, str, str]] = [
    (MigrationSpec(rename={"label": ""}), "invalid-name", "label"),
    (MigrationSpec(drop=["age"], rename={"age": "x"}), "conflicting-arguments", "age"),
    (MigrationSpec(drop=["age"], cast={"age": "float"}), "conflicting-arguments", "age"),
    (MigrationSpec(drop=["age"], default={"age": 1}), "conflicting-arguments", "age"),
    (MigrationSpec(cast={"name": "int64"}), "unsupported-cast", "name"),
    (MigrationSpec(cast={"label": "bytes"}), "unsupported-cast", "label"),
    (MigrationSpec(cast={"label": "int64"}), "redundant-cast", "label"),
    (MigrationSpec(cast={"age": "float"}, default={"age": 1}), "conflicting-arguments", "age"),
    (MigrationSpec(default={"label": 1}), "required-feature", "label"),
    (MigrationSpec(default={"age": "old"}), "invalid-value", "age"),
    (MigrationSpec(default={"new": object()}), "invalid-value", "new"),
]


@pytest.mark.parametrize(("steps", "code", "feature"), WRONG_STEPS)
def test_steps_that_cannot_be_meant_are_refused(
    tmp_path: Path, steps: MigrationSpec, code: str, feature: str
) -> None:
    base = old_one(tmp_path)
    before = stored(base)
    with raises(SchemaMismatchError, code, feature=feature):
        migrate(base, steps, version_in(tmp_path, "people/v2"))
    assert stored(base) == before


@pytest.mark.parametrize(
    ("steps", "kind", "why"),
    [
        (MigrationSpec(), InvalidArgumentError, "nothing to migrate"),
        (MigrationSpec(rename={"nothing": "x"}), SchemaMismatchError, "feature 'nothing'"),
        (MigrationSpec(rename={"label": "name"}), SchemaMismatchError, "feature 'name'"),
        (MigrationSpec(rename={"label": "x", "name": "x"}), SchemaMismatchError, "feature 'x'"),
        (MigrationSpec(drop=["nothing"]), SchemaMismatchError, "feature 'nothing'"),
    ],
)
def test_steps_that_do_not_fit_the_schema_are_refused(
    tmp_path: Path, steps: MigrationSpec, kind: type[ShardlineError], why: str
) -> None:
    base = old_one(tmp_path)
    before = stored(base)
    with pytest.raises(kind, match=why):
        migrate(base, steps, version_in(tmp_path, "people/v2"))
    assert stored(base) == before


def test_a_plan_tells_what_would_be_done_without_reading_a_record(tmp_path: Path) -> None:
    base, into = old_one(tmp_path), version_in(tmp_path, "people/v2")
    steps = MigrationSpec(rename={"age": "years"}, drop=["name"])
    (path,) = base.latest().files()
    tmp_path.joinpath(path).write_bytes(b"nobody looks")
    plan = plan_migration(base, steps, into)
    assert (plan.compute, plan.reuse, plan.records) == (1, 0, 2)
    assert [feature.name for feature in plan.schema.features] == [
        "label",
        "sizes",
        "weight",
        "years",
    ]
    rename, drop = steps.lines()
    assert ("'years'" in rename, drop) == (True, "drop 'name'")
    assert not into.exists


def test_the_new_version_follows_the_old_one(tmp_path: Path) -> None:
    base, into = old_one(tmp_path), version_in(tmp_path, "people/v2")
    steps = MigrationSpec(cast={"weight": "int64"}, drop=["name"])
    migrate(base, steps, into)
    append(base, ROWS, batch="second")
    assert check_version(base).ok
    report = migrate(base, steps, into)
    assert (len(report.written), len(report.reused)) == (1, 1)
    assert report.entry is not None
    assert report.entry.parameters == {
        "drop": ["name"], "cast": {"weight": "int64"}, "computed": 1, "reused": 1,
        "of": [base.latest().shards[-1].name],
    }  # fmt: skip
    assert column(into, "weight") == [2, 3, 2, 3]
    assert migrate(base, steps, into).entry is None


def test_features_of_the_feature_lists_are_renamed_and_dropped_but_not_cast(
    tmp_path: Path,
) -> None:
    steps = [Feature(name, "int64", sequence=True) for name in ("a", "b")]
    base = Version(tmp_path / "root", "walks/v1")
    schema = Schema((Feature("id", "int64"), *steps), "sequence_example")
    append(base, [{"id": 1, "a": [1, 2], "b": [3]}], batch="x", schema=schema)
    assert check_version(base).ok
    into = version_in(tmp_path, "walks/v2")
    migrate(base, MigrationSpec(rename={"a": "c"}, drop=["b"]), into)
    assert check_version(into).ok
    assert table(into.latest()) == {"id": [1], "c": [[1, 2]]}
    for wrong in (MigrationSpec(cast={"a": "float"}), MigrationSpec(default={"a": 1})):
        with raises(SchemaMismatchError, "unsupported-feature", feature="a"):
            migrate(base, wrong, version_in(tmp_path, "walks/v3"))
