"""A version's schema as Dagster shows columns, and what these are made of."""

from typing import TYPE_CHECKING

import dagster as dg

from shardline.dagster.asset_names import get_asset_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardline import Feature, Schema
    from shardline.provenance.catalog import FeatureOrigin

_LABELS_SHOWN = 20
_COLUMNS_SHOWN = 100


def column_schema(schema: "Schema") -> dg.TableSchema:
    """Each feature as a column; opaque records have none."""
    return dg.TableSchema(columns=[_build_column(feature) for feature in schema.features])


def build_schema_metadata(schema: "Schema") -> dict[str, dg.TableSchemaMetadataValue]:
    """The metadata of an asset's definition that its declared schema gives.

    The asset page shows it also when the latest materialization is too small an event to have it.
    """
    return {"dagster/column_schema": dg.MetadataValue.table_schema(column_schema(schema))}


def column_lineage(origins: "Mapping[str, FeatureOrigin]") -> dg.TableColumnLineage:
    """Each column with those that it is made of; one that is made of none is left out."""
    found = {
        name: [
            dg.TableColumnDep(dg.AssetKey(get_asset_name(version)), column)
            for version, column in origin.of
        ]
        for name, origin in sorted(origins.items())
    }
    return dg.TableColumnLineage({name: deps for name, deps in found.items() if deps})


def build_lineage_table(lineage: dg.TableColumnLineage) -> dg.TableMetadataValue:
    """The same for people: the open-source web page shows nothing of a lineage."""
    deps_of = lineage.deps_by_column
    rows = [
        dg.TableRecord(
            {
                "column": column,
                "made of": ", ".join(
                    f"{dep.asset_key.to_user_string()}: {dep.column_name}" for dep in deps
                ),
            }
        )
        for column, deps in list(deps_of.items())[:_COLUMNS_SHOWN]
    ]
    more = len(deps_of) - _COLUMNS_SHOWN
    if more > 0:
        rows.append(dg.TableRecord({"column": f"and {more:,} more", "made of": ""}))
    schema = dg.TableSchema([dg.TableColumn("column"), dg.TableColumn("made of")])
    return dg.MetadataValue.table(rows, schema)


def format_column_type(feature: "Feature") -> str:
    """`int64`, `float[8]`, `bytes, image`, `int64[?] per step`."""
    from shardline.schema import shapes  # noqa: PLC0415 - it loads NumPy

    shape = shapes.shown(feature.shape) if feature.shape else ""
    steps = " per step" if feature.sequence else ""
    meaning = "" if feature.meaning is None else f", {type(feature.meaning).__name__.lower()}"
    return f"{feature.kind}{shape}{steps}{meaning}"


def _build_column(feature: "Feature") -> dg.TableColumn:
    words = [] if feature.meaning is None else [str(feature.meaning)]
    words.append("required" if feature.required else "optional")
    told = ", ".join(words)
    return dg.TableColumn(
        feature.name,
        format_column_type(feature),
        description=f"{feature.doc} ({told})" if feature.doc else told,
        constraints=dg.TableColumnConstraints(
            nullable=not feature.required, other=_list_constraints(feature)
        ),
    )


def _list_constraints(feature: "Feature") -> list[str]:
    told = ["NaN may occur"] if feature.nan else []
    labels = getattr(feature.meaning, "labels", None) or ()
    if labels:
        shown = ", ".join(labels[:_LABELS_SHOWN])
        more = len(labels) - _LABELS_SHOWN
        told.append(f"one of {shown}" + (f" and {more} more" if more > 0 else ""))
    return told
