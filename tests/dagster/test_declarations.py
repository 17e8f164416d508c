"""Mistakes that the declared schemas reveal fail when the platform loads, with the fix."""

import json
from collections.abc import Callable
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
    migrated_version,
    rebuilt_version,
)
from shardline.dagster.definitions import build_definitions, resolve_schemas
from shardline.schema.logical_types import Image, Text
from shardline.schema.schema import Feature, Schema
from shardline.udf import batch_udf, record_udf, table_join, tensor_udf
from tests.dagster.suites import at_most, write_suite
from tests.errors import raises

SCHEMA = Schema(
    (
        Feature("id", "int64"),
        Feature("name", "bytes", meaning=Text()),
        Feature("image", "bytes", meaning=Image("png")),
        Feature("scores", "float", shape=(None,), required=False),
    )
)
OTHER = Schema((Feature("id", "int64"), Feature("colour", "bytes", meaning=Text())))
LENGTH = Feature("length", "int64")


def base(name: str = "notes/v1", schema: Schema = SCHEMA, **options: Any) -> VersionDefs:  # noqa: ANN401 - as declared
    return appended_version(name, schema=schema, landing="landing", **options)


def compute(_: Any) -> Any:  # noqa: ANN401 - never called
    raise AssertionError("called at load")


def late() -> Any:  # noqa: ANN401 - never called
    raise AssertionError("called at load")


def extend(*makers: object, **options: Any) -> VersionDefs:  # noqa: ANN401 - as declared
    given: Any = list(makers)
    return extended_version("notes/v2", of="notes/v1", udfs=given, **options)


def combine(**options: Any) -> VersionDefs:  # noqa: ANN401 - as declared
    return combined_version("pairs/v1", left="notes/v1", right="colours/v1", **options)


def migrate(**options: Any) -> VersionDefs:  # noqa: ANN401 - as declared
    return migrated_version("notes/v2", of="notes/v1", **options)


MISTAKES: dict[str, tuple[Callable[[], VersionDefs], str, str, str]] = {
    "record function": (
        lambda: extend(record_udf(LENGTH, reads=["nmae"])(compute)),
        *("unknown-feature", "nmae", "'name'"),
    ),
    "batch function": (
        lambda: extend(batch_udf(LENGTH, reads=["imagee"])(compute)),
        *("unknown-feature", "imagee", "'image'"),
    ),
    "tensor function": (
        lambda: extend(tensor_udf(LENGTH, reads=["score"])(compute)),
        *("unknown-feature", "score", "'scores'"),
    ),
    "key of a table": (
        lambda: extend(table_join("no/such/table.csv", "idd")),
        *("unknown-feature", "idd", "'id'"),
    ),
    "key of a wrong type": (
        lambda: extend(table_join("no/such/table.csv", "scores")),
        *("key-mismatch", "scores", "int64"),
    ),
    "feature that exists": (
        lambda: extend(record_udf(Feature("id", "int64"), reads=["name"])(compute)),
        *("duplicate-feature", "id", "rewrite"),
    ),
    "table feature that exists": (
        lambda: extend(table_join("no.csv", "id", features=[Feature("name", "bytes")])),
        *("duplicate-feature", "name", "rewrite"),
    ),
    "drop of an extension": (
        lambda: extend(record_udf(LENGTH, reads=["id"])(compute), mode="rewrite", drop=["imag"]),
        *("unknown-feature", "imag", "'image'"),
    ),
    "collision": (combine, "feature-collision", "id", "on_collision"),
    "key of a combination": (
        lambda: combine(on={"id": "idd"}),
        *("unknown-feature", "idd", "'id'"),
    ),
    "key that cannot be": (lambda: combine(on={"scores": "id"}), "invalid-key", "scores", "int64"),
    "filter of pairs": (
        lambda: combine(
            on_collision="keep-left",
            where=record_udf(Feature("keep", "int64"), reads=["color"])(compute),
        ),
        *("unknown-feature", "color", "'colour'"),
    ),
    "predicate of pairs": (
        lambda: combine(on_collision="keep-left", where="left.color == 1"),
        *("unknown-feature", "left.color", ""),
    ),
    "field of pairs": (
        lambda: combine(
            on_collision="prefix",
            left_prefix="a_",
            udfs=record_udf(LENGTH, reads=["name"])(compute),
        ),
        *("unknown-feature", "name", "'a_name'"),
    ),
    "rename": (lambda: migrate(rename={"nam": "title"}), "unknown-feature", "nam", "'name'"),
    "cast": (lambda: migrate(cast={"name": "int64"}), "unsupported-cast", "name", "compute"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_schema_reveals_mistake_at_load(mistake: str) -> None:
    declare, code, feature, advice = MISTAKES[mistake]
    wrong = declare()
    with raises(DeclarationError, code, feature=feature, version=wrong.name) as caught:
        build_definitions(wrong, base("colours/v1", OTHER), base())
    assert advice in str(caught.value.hint)


def test_mistake_behind_derived_versions_is_found() -> None:
    first = extend(record_udf(LENGTH, reads=["name"], code="1")(compute))
    second = migrated_version("notes/v3", of="notes/v2", rename={"length": "size"}, drop=["image"])
    third = rebuilt_version("notes/v4", of=second)
    wrong = record_udf(Feature("half", "int64"), reads=["length"])(compute)
    fourth = extended_version("notes/v5", of=third, udfs=wrong)
    with raises(DeclarationError, "unknown-feature", feature="length", version="notes/v5"):
        build_definitions(fourth, third, second, first, base())


def test_resolve_schemas_computes_schema_of_each_version() -> None:
    pairs = combined_version(
        "pairs/v1",
        left="notes/v2",
        right="colours/v1",
        on="id",
        how="left",
        udfs=table_join(
            "no.csv", "colour", features=[Feature("code", "int64")], on_missing="absent"
        ),
    )
    steps = migrated_version(
        "notes/v2",
        of="notes/v1",
        rename={"name": "title"},
        drop=["image"],
        cast={"scores": "int64"},
        default={"split": "train"},
    )
    found = resolve_schemas([pairs, steps, base("colours/v1", OTHER), base()])
    assert found["notes/v1"] == SCHEMA
    assert found["notes/v2"] == Schema(
        (
            Feature("id", "int64"),
            Feature("title", "bytes", meaning=Text()),
            Feature("scores", "int64", shape=(None,), required=False),
            Feature("split", "bytes", meaning=Text()),
        )
    )
    paired = found["pairs/v1"]
    assert paired is not None
    assert {feature.name: feature.required for feature in paired.features} == {
        "id": True,
        "title": True,
        "scores": False,
        "split": True,
        "colour": False,
        "code": False,
    }


@pytest.mark.parametrize(
    "fields", [late, table_join("no/such/table.csv", "id"), table_join("no.csv", "id")]
)
def test_unknown_schema_is_not_validated(fields: Any) -> None:  # noqa: ANN401 - makers, or a function
    first = extended_version("notes/v2", of="notes/v1", udfs=fields)
    second = extended_version(
        "notes/v3", of=first, udfs=record_udf(LENGTH, reads=["whatever"])(compute)
    )
    defs = build_definitions(second, first, base())
    dg.Definitions.validate_loadable(defs)
    assert resolve_schemas([base(), first, second])["notes/v3"] is None


@pytest.mark.parametrize(
    ("column", "advice"),
    [("idd", "'id'"), ("image", "'image__bytes'"), ("scores__lenn", "'scores__len'")],
)
def test_suite_with_unknown_column_raises(tmp_path: Path, column: str, advice: str) -> None:
    suite = write_suite(tmp_path / "notes.json", at_most("id", 9), at_most(column, 9, "info"))
    growing = base(expectations=suite)
    code = "unknown-column"
    with raises(DeclarationError, code, version="notes/v1", path=str(suite)) as caught:
        build_definitions(growing)
    assert advice in str(caught.value.hint)
    derived = rebuilt_version("notes/v2", of="notes/v1", expectations=suite)
    with raises(DeclarationError, code, version="notes/v2"):
        build_definitions(derived, base())


def test_suite_on_flat_columns_loads(tmp_path: Path) -> None:
    names = ("id", "name", "image__bytes", "scores__len", "scores__mean")
    suite = write_suite(tmp_path / "notes.json", *(at_most(name, 9) for name in names))
    dg.Definitions.validate_loadable(build_definitions(base(expectations=suite)))


def test_suite_with_unknown_type_names_the_closest(tmp_path: Path) -> None:
    suite = tmp_path / "notes.json"
    kind = "expect_column_values_to_be_unik"
    suite.write_text(json.dumps({"expectations": [{"type": kind, "kwargs": {"column": "id"}}]}))
    with raises(DeclarationError, "unknown-expectation", version="notes/v1") as caught:
        base(expectations=suite)
    assert "'expect_column_values_to_be_unique'" in str(caught.value.hint)


def test_two_exports_to_one_path_raise(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    first = rebuilt_version("notes/a", of="notes/v1", export=tmp_path / "notes.tfrecord")
    same = str(tmp_path / "sub" / ".." / "notes.tfrecord")
    second = rebuilt_version("notes/b", of="notes/v1", export=same)
    with raises(DeclarationError, "duplicate-export", version="notes/b", path=same):
        build_definitions(base(), first, second)


def test_inputs_in_a_circle_raise() -> None:
    first = rebuilt_version("notes/a", of="notes/b")
    second = rebuilt_version("notes/b", of="notes/a")
    with raises(DeclarationError, "circular-input"):
        build_definitions(base(), first, second)


def test_landing_folder_takes_a_path() -> None:
    assert LandingFolder(Path("/x")) == LandingFolder("/x")
    assert LandingFolder(Path("/x")).location == "/x"


@pytest.mark.parametrize("landing", ["/x", Path("/x"), ["/x"], [LandingFolder("/x")]])
def test_landing_takes_paths(landing: Any) -> None:  # noqa: ANN401 - each form
    growing = appended_version("notes/v1", schema=SCHEMA, landing=landing)
    (spec,) = growing.assets[0].specs
    assert "`/x`" in str(spec.description)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"landing": 7}, "invalid-type"),
        ({"landing": [7]}, "invalid-type"),
        ({"landing": []}, "missing-argument"),
        ({"schema": [Feature("id", "int64")]}, "invalid-type"),
        ({"target_bytes": "128 horses"}, "invalid-argument"),
        ({"target_bytes": "0MB"}, "out-of-range"),
        ({"target_bytes": 1.5}, "invalid-type"),
    ],
)
def test_invalid_option_of_appended_version_raises(options: dict[str, Any], code: str) -> None:
    with raises(DeclarationError, code, version="notes/v1"):
        appended_version("notes/v1", **{"schema": SCHEMA, "landing": "/x", **options})


def test_sizes_may_be_text() -> None:
    base(target_bytes="128MB")
    rebuilt_version("notes/v2", of="notes/v1", target_bytes="64 KiB")
    combine(target_bytes="1GB", budget_bytes="2TB")
    for option in ("target_bytes", "budget_bytes"):
        with raises(DeclarationError, "invalid-argument", version="pairs/v1"):
            combine(**{option: "many"})
    with raises(DeclarationError, "invalid-argument", version="notes/v2"):
        rebuilt_version("notes/v2", of="notes/v1", target_bytes="many")
    with raises(DeclarationError, "unsupported-compression", version="notes/v2"):
        rebuilt_version("notes/v2", of="notes/v1", compression="zlib")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "missing-argument"),
        ({"drop": "id"}, "invalid-type"),
        ({"drop": ["id"], "rename": {"id": "key"}}, "conflicting-arguments"),
        ({"rename": {"id": ""}}, "invalid-name"),
        ({"drop": ["id"], "max_quarantined": 2.0}, "out-of-range"),
        ({"drop": ["id"], "compression": "zlib"}, "unsupported-compression"),
        ({"drop": ["id"], "expectations": "no_such.json"}, "suite-not-found"),
    ],
)
def test_invalid_migration_raises(options: dict[str, Any], code: str) -> None:
    with raises(DeclarationError, code, version="notes/v2"):
        migrate(**options)
