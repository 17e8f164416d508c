"""Where the features of a derived version come from, read back from the entry that made it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature
from shardline.udf import record_udf, table_join
from tests.operations.extensions import base_of, double, length, version_in

if TYPE_CHECKING:
    from shardline.api import Version

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"


def told(tmp_path: Path, version: Version) -> dict[str, tuple[str, list[str], str]]:
    """Of each feature how it was made, what of, and by what."""
    catalog = LogIndex(tmp_path / "root")
    entry = catalog.get_snapshot_entry(version.name, version.latest().number)
    return {
        name: (
            origin.change,
            [f"{version}:{feature}" for version, feature in origin.upstream],
            origin.function,
        )
        for name, origin in catalog.get_origins(entry).items()
    }


def test_appended_features_have_no_origin(tmp_path: Path) -> None:
    assert told(tmp_path, base_of(tmp_path, (0, 1))) == {}


def test_extension_keeps_and_computes_features(tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("id,french\n0,zero\n1,un\n")
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    table = table_join(tmp_path / "names.csv", key="id")
    extend(base, [double, length, table], into)
    assert told(tmp_path, into) == {
        "id": ("kept", ["digits/v1:id"], ""),
        "name": ("kept", ["digits/v1:name"], ""),
        "double": ("computed", ["digits/v1:id"], "function 'double'"),
        "length": ("computed", ["digits/v1:name"], "function 'length'"),
        "french": ("computed", ["digits/v1:id"], f"table {tmp_path}/names.csv"),
    }


def test_replaced_feature_is_computed(tmp_path: Path) -> None:
    @record_udf(Feature("id", "int64"), code="1")
    def other(record: dict[str, Any]) -> dict[str, Any]:
        return {"id": record["id"] + 1}

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    extend(base, other, into, mode="rewrite", replaces=["id"], drop=["name"])
    of = ["digits/v1:id", "digits/v1:name"]
    assert told(tmp_path, into) == {"id": ("computed", of, "function 'other'")}


def test_migration_has_renames_casts_defaults(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path)
    steps = MigrationSpec(rename={"id": "number"}, cast={"id": "float"}, default={"split": "train"})
    migrate(base, steps, into)
    assert told(tmp_path, into) == {
        "number": ("cast", ["digits/v1:id"], ""),
        "name": ("kept", ["digits/v1:name"], ""),
        "split": ("filled", [], ""),
    }


def test_migrated_features_keep_base_order(tmp_path: Path) -> None:
    into, last = version_in(tmp_path), version_in(tmp_path, "digits/v3")
    names = list("fbdaec")

    @record_udf(*(Feature(name, "int64") for name in names), reads=["id"], code="1")
    def made(record: dict[str, Any]) -> dict[str, Any]:
        return dict.fromkeys(names, record["id"])

    extend(base_of(tmp_path, (0, 2)), made, into)
    migrate(into, MigrationSpec(drop=["id"]), last, snapshot="latest")
    kept = [feature.name for feature in into.latest().schema.features if feature.name != "id"]
    assert list(told(tmp_path, last)) == kept


def test_pair_features_have_side_and_name(tmp_path: Path) -> None:
    @record_udf(Feature("sum", "int64"), reads=["a_id", "b_id"], code="1")
    def added(record: dict[str, Any]) -> dict[str, Any]:
        return {"sum": record["a_id"] + record["b_id"]}

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path, "pairs/v1")
    single = version_in(tmp_path, "digits/single")
    rebuild(base, into=single)
    prefixes: dict[str, Any] = {"left_prefix": "a_", "right_prefix": "b_", "udfs": added}
    combine(base, single, into, right_snapshot="latest", on_collision="prefix", **prefixes)
    assert told(tmp_path, into) == {
        "a_id": ("renamed", ["digits/v1:id"], ""),
        "a_name": ("renamed", ["digits/v1:name"], ""),
        "b_id": ("renamed", ["digits/single:id"], ""),
        "b_name": ("renamed", ["digits/single:name"], ""),
        "sum": ("computed", ["digits/v1:id", "digits/single:id"], "function 'added'"),
    }
    assert told(tmp_path, single)["id"] == ("kept", ["digits/v1:id"], "")


def test_restore_and_rebuild_keep_origins(
    tmp_path: Path,
) -> None:
    base, into = base_of(tmp_path, (0, 2), (2, 4)), version_in(tmp_path)
    extend(base, double, into)
    rebuild(into, snapshot="latest")
    into.restore(1)
    catalog = LogIndex(tmp_path / "root")
    found = [dict(catalog.get_snapshot_origins(into.snapshot(number))) for number in (1, 2, 3)]
    assert found[0] == found[1] == found[2]
    assert found[0]["double"].upstream == (("digits/v1", "id"),)
    assert catalog.get_snapshot_origins(base.latest()) == {}


def test_self_combination_lists_origins_once(tmp_path: Path) -> None:
    @record_udf(Feature("same", "int64"), code="1")
    def same(record: dict[str, Any]) -> dict[str, Any]:
        return {"same": int(record["id"] == record["b_id"])}

    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path, "pairs/v1")
    combine(base, base, into, on_collision="prefix", right_prefix="b_", udfs=same)
    of = ["digits/v1:id", "digits/v1:name"]
    assert told(tmp_path, into)["same"] == ("computed", of, "function 'same'")


def test_feature_of_a_side_comes_from_it(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 2)), version_in(tmp_path, "pairs/v1")
    other = version_in(tmp_path, "digits/v2")
    migrate(base, MigrationSpec(rename={"name": "title"}), other)
    combine(base, other, into, right_snapshot="latest", on_collision="keep-right")
    found = {name: of for name, (_, of, _) in told(tmp_path, into).items()}
    assert found == {
        "id": ["digits/v2:id"],
        "name": ["digits/v1:name"],
        "title": ["digits/v2:title"],
    }


def test_unknown_parameters_have_no_origins() -> None:
    catalog = LogIndex(GOLDEN)
    entry = catalog.get_snapshot_entry("pets/v2", 1)
    assert entry.operation == "extend"
    assert catalog.get_origins(entry) == {}
