"""A version's schema as Dagster shows columns, and which columns of its inputs they come from."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from shardline import Feature, Schema

_LABELS_SHOWN = 20


def column_schema(schema: "Schema") -> dg.TableSchema:
    """Each feature as a column; opaque records have none."""
    return dg.TableSchema(columns=[_column(feature) for feature in schema.features])


def column_lineage(schema: "Schema", inputs: Mapping[str, "Schema"]) -> dg.TableColumnLineage:
    """Each column comes from that of the same name in every input that has it.

    `inputs` are the schemas of the inputs by the names of their assets.
    """
    found = {
        feature.name: [
            dg.TableColumnDep(dg.AssetKey(name), feature.name)
            for name, given in inputs.items()
            if any(one.name == feature.name for one in given.features)
        ]
        for feature in schema.features
    }
    return dg.TableColumnLineage({name: deps for name, deps in found.items() if deps})


def column_type(feature: "Feature") -> str:
    """`int64`, `float[8]`, `bytes, image`, `int64[?] per step`."""
    from shardline.log import shapes  # noqa: PLC0415 - it loads NumPy

    shape = shapes.shown(feature.shape) if feature.shape else ""
    steps = " per step" if feature.sequence else ""
    meaning = "" if feature.meaning is None else f", {type(feature.meaning).__name__.lower()}"
    return f"{feature.kind}{shape}{steps}{meaning}"


def _column(feature: "Feature") -> dg.TableColumn:
    words = [] if feature.meaning is None else [str(feature.meaning)]
    words.append("required" if feature.required else "optional")
    told = ", ".join(words)
    return dg.TableColumn(
        feature.name,
        column_type(feature),
        description=f"{feature.doc} ({told})" if feature.doc else told,
        constraints=dg.TableColumnConstraints(
            nullable=not feature.required, other=_constraints(feature)
        ),
    )


def _constraints(feature: "Feature") -> list[str]:
    told = ["NaN may occur"] if feature.nan else []
    labels = getattr(feature.meaning, "labels", None) or ()
    if labels:
        shown = ", ".join(labels[:_LABELS_SHOWN])
        more = len(labels) - _LABELS_SHOWN
        told.append(f"one of {shown}" + (f" and {more} more" if more > 0 else ""))
    return told
