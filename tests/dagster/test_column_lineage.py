"""What columns are made of, as the UI is told."""

from __future__ import annotations

from dagster import AssetKey

from shardline.dagster.versions.metadata_values import build_column_lineage, build_lineage_table
from shardline.provenance.feature_origin import FeatureOrigin


def test_lineage_names_assets_and_leaves_out_what_is_made_of_nothing() -> None:
    origins = {
        "id": FeatureOrigin("kept", (("a/v1", "key"), ("b/v1", "key"))),
        "split": FeatureOrigin("filled", ()),
    }
    deps = build_column_lineage(origins).deps_by_column
    assert {
        column: [(dep.asset_key, dep.column_name) for dep in found]
        for column, found in deps.items()
    } == {"id": [(AssetKey("a_v1"), "key"), (AssetKey("b_v1"), "key")]}


def test_a_wide_version_has_its_first_columns_told_and_the_rest_counted() -> None:
    names = [f"x{number:03}" for number in range(103)]
    wide = {name: FeatureOrigin("kept", (("a/v1", name),)) for name in names}
    table = build_lineage_table(build_column_lineage(wide))
    assert len(table.records) == 101
    assert table.records[0].data == {"column": "x000", "upstream": "a_v1: x000"}
    assert table.records[-1].data == {"column": "and 3 more", "upstream": ""}
