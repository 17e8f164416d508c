"""A dataset card: a README in Markdown with the metadata that Hugging Face reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from shardline.hints import Command
from shardline.lineage.check_results import iter_check_results
from shardline.lineage.exports.snapshot_files import list_removed_files
from shardline.provenance.consumers import list_all_consumers
from shardline.provenance.entry_text import format_entry
from shardline.readers.arrow import to_arrow
from shardline.schema import shapes
from shardline.schema.logical_types import Category, Image, Text
from shardline.templates import render_template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.lineage.exports.snapshot_files import RemovedFile
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.log_index import LogIndex
    from shardline.schema.schema import Feature

_MAX_CHANGES = 20
_MAX_REMOVED = 50
_MAX_LABELS = 100
_SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
    (1_000_000_000, "100M<n<1B"),
)
_DTYPES = {"int64": "int64", "float": "float32", "bytes": "binary"}


@dataclass(frozen=True, slots=True)
class DatasetTerms:
    """Terms of use of a dataset, for a card or a Croissant file. Each may be empty."""

    license: str = ""
    url: str = ""
    creator: str = ""
    citation: str = ""


NO_TERMS = DatasetTerms()


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Counts of the labels of a feature.

    `labels` has the declared labels. Other values may be personal data, so only the number of
    different values (`others`) and of their occurrences (`of_others`) are known.
    """

    feature: str
    labels: dict[str, int]
    missing: int = 0
    others: int = 0
    of_others: int = 0

    def rows(self, limit: int) -> Iterator[tuple[str, int, str]]:
        """Yield label, count and share: at most `limit` labels, then the rest."""
        total = max(sum(self.labels.values()) + self.of_others + self.missing, 1)
        listed = list(self.labels.items())
        for label, count in listed[:limit]:
            yield label, count, f"{count / total:.1%}"
        rest = sum(count for _, count in listed[limit:])
        if rest:
            yield f"{len(listed) - limit} more", rest, ""
        if self.others:
            yield f"{self.others:,} not declared", self.of_others, ""
        if self.missing:
            yield "none", self.missing, ""


def count_labels(snapshot: StoredSnapshot) -> list[LabelCounts]:
    """Count the labels of each category. Reads all records if the schema has a category."""
    features = [
        feature
        for feature in snapshot.schema.features
        if isinstance(feature.meaning, Category) and not feature.sequence
    ]
    if not features:
        return []
    counts: list[dict[object, int]] = [{} for _ in features]
    for batch in to_arrow(snapshot, [feature.name for feature in features]):
        for column, column_counts in zip(batch.columns, counts, strict=True):
            for pair in pc.value_counts(_flatten_column(column)).to_pylist():
                value = pair["values"]
                column_counts[value] = column_counts.get(value, 0) + pair["counts"]
    return list(map(_make_label_counts, features, counts))


def _flatten_column(column: pa.Array) -> pa.Array:
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    return column


def _make_label_counts(feature: Feature, counts: dict[object, int]) -> LabelCounts:
    labels = feature.meaning.labels if isinstance(feature.meaning, Category) else None
    missing = counts.pop(None, 0)
    declared = {
        label: counts.pop(index if feature.kind == "int64" else label, 0)
        for index, label in enumerate(labels or ())
    }
    return LabelCounts(feature.name, declared, missing, len(counts), sum(counts.values()))


def render_dataset_card(
    index: LogIndex,
    snapshot: StoredSnapshot,
    *,
    terms: DatasetTerms = NO_TERMS,
    counts: Sequence[LabelCounts] = (),
) -> str:
    """Render the card of a snapshot.

    The card of a snapshot with removed files lists these files instead of ways to read it.

    Args:
        index: The logs of the root.
        snapshot: The snapshot to describe.
        terms: Terms of use, which no log contains.
        counts: Label counts from `count_labels`.
    """
    removed = list_removed_files(index, snapshot)
    own = {file.shard.name for file in removed if file.version == snapshot.version}
    entries = index.entries(snapshot.version)
    changes = [
        entry for entry in entries if entry.changes_data and entry.snapshot <= snapshot.number
    ]
    derivation = next((entry for entry in reversed(changes) if entry.inputs), None)
    results = iter_check_results(index.version(snapshot.version).state, snapshot.number)
    consumers = list_all_consumers(snapshot.version, entries)
    card = render_template(
        "lineage/exports/dataset_card.md",
        snapshot=snapshot,
        header="\n".join(_format_yaml(_make_header(snapshot, terms))),
        is_plain=not any(shard.base or shard.virtual for shard in snapshot.shards),
        state=_format_state(snapshot, removed),
        removed=removed,
        max_removed=_MAX_REMOVED,
        lost_records=sum(shard.records for shard in snapshot.shards if shard.name in own),
        format_shape=shapes.format_shape,
        label_counts=counts,
        max_labels=_MAX_LABELS,
        checks=[result for result in results if result.required],
        changes=changes,
        max_changes=_MAX_CHANGES,
        format_change=partial(format_entry, with_operation=True),
        derivation=derivation,
        origins={} if derivation is None else index.get_origins(derivation),
        consumers=[consumer for consumer in consumers if consumer.snapshot == snapshot.number],
        sums_command=Command.of("describe", str(snapshot), "--format", "sha256sums"),
        terms=_list_terms(terms),
    )
    return card.rstrip() + "\n"


def _format_state(snapshot: StoredSnapshot, removed: Sequence[RemovedFile]) -> str:
    state = "rejected" if snapshot.rejected else "not published"
    state = "published" if snapshot.published else state
    if any(file.deleted for file in removed):
        return f"{state}, unreadable because files are deleted"
    return f"{state}, with erased or vacuumed files" if removed else state


def _list_terms(terms: DatasetTerms) -> dict[str, str]:
    named = {
        "License": terms.license,
        "Creator": terms.creator,
        "Page": terms.url,
        "Citation": terms.citation,
    }
    return {name: value for name, value in named.items() if value}


def _make_header(snapshot: StoredSnapshot, terms: DatasetTerms) -> dict[str, Any]:
    """Return the metadata of the card in the keys of Hugging Face."""
    dataset, _, version = snapshot.version.partition("/")
    features = [
        {"name": feature.name, **_get_feature_kind(feature)} for feature in snapshot.schema.features
    ]
    return {
        "pretty_name": f"{dataset} {version}",
        **({"license": terms.license} if terms.license else {}),
        "size_categories": [
            next((name for limit, name in _SIZES if snapshot.records < limit), "n>1B")
        ],
        "tags": ["tfrecord", "shardline"],
        "dataset_info": {
            **({"features": features} if features else {}),
            "splits": [
                {"name": "train", "num_bytes": snapshot.bytes, "num_examples": snapshot.records}
            ],
            "dataset_size": snapshot.bytes,
        },
    }


def _get_feature_kind(feature: Feature) -> dict[str, Any]:
    """Return the type of a feature for Hugging Face: `sequence` of a list, else `dtype`."""
    kind: Any = _get_dtype(feature)
    for _ in range(len(feature.shape) - 1 + feature.sequence):
        kind = {"sequence": kind}
    return {"sequence" if feature.shape or feature.sequence else "dtype": kind}


def _get_dtype(feature: Feature) -> Any:  # noqa: ANN401 - a name, or a mapping with the labels
    meaning = feature.meaning
    if isinstance(meaning, Image):
        return "image"
    if isinstance(meaning, Category) and meaning.labels and feature.kind == "int64":
        names = {str(index): label for index, label in enumerate(meaning.labels)}
        return {"class_label": {"names": names}}
    text_like = isinstance(meaning, Text | Category) and feature.kind == "bytes"
    return "string" if text_like else _DTYPES[feature.kind]


def _format_yaml(mapping: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield a mapping as lines of YAML. Scalars are JSON, which YAML contains."""
    for name, value in mapping.items():
        key = json.dumps(name) if name.isdigit() else name
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from _format_yaml(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            for item in value:
                yield from _format_yaml_item(item, indent)
        else:
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"


def _format_yaml_item(item: object, indent: str) -> Iterator[str]:
    if not isinstance(item, dict):
        yield f"{indent}- {json.dumps(item, ensure_ascii=False)}"
        return
    first, *rest = _format_yaml(item, f"{indent}  ")
    yield f"{indent}- {first.strip()}"
    yield from rest
