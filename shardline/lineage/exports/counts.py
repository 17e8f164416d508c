"""How many records have each label of a category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from shardline.readers.arrow import to_arrow
from shardline.schema.logical_types import Category

if TYPE_CHECKING:
    from shardline.log.snapshot import StoredSnapshot
    from shardline.schema.schema import Feature


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """How often each label of a feature is there.

    `labels` are the declared ones, with how often each is there. Values that are not declared may
    be anything, a person's name too: of them only is told how many different ones there are
    (`others`), and how often they are there (`of_others`).
    """

    feature: str
    labels: dict[str, int]
    missing: int = 0
    others: int = 0
    of_others: int = 0


def categories(snapshot: StoredSnapshot) -> list[Feature]:
    """The features of a snapshot that are categories, those of the feature_lists left out."""
    features = snapshot.schema.features
    return [one for one in features if isinstance(one.meaning, Category) and not one.sequence]


def count_labels(snapshot: StoredSnapshot) -> list[LabelCounts]:
    """The labels of each category; all records are read, if there is a category at all."""
    features = categories(snapshot)
    if not features:
        return []
    found: list[dict[object, int]] = [{} for _ in features]
    for batch in to_arrow(snapshot, [feature.name for feature in features]):
        for column, counts in zip(batch.columns, found, strict=True):
            for one in pc.value_counts(_flat(column)).to_pylist():
                counts[one["values"]] = counts.get(one["values"], 0) + one["counts"]
    return [_told(*both) for both in zip(features, found, strict=True)]


def _flat(column: pa.Array) -> pa.Array:
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return column


def _told(feature: Feature, counts: dict[object, int]) -> LabelCounts:
    labels = feature.meaning.labels if isinstance(feature.meaning, Category) else None
    missing = counts.pop(None, 0)
    declared = {
        label: counts.pop(place if feature.kind == "int64" else label, 0)
        for place, label in enumerate(labels or ())
    }
    return LabelCounts(feature.name, declared, missing, len(counts), sum(counts.values()))
