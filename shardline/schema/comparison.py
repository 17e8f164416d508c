"""Comparison of schemas: decides if data of one fits a version with the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from shardline.report import Report
from shardline.schema import shapes
from shardline.schema.logical_types import ITEM_BYTES, Array, Category, Embedding, Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.schema.logical_types import LogicalType
    from shardline.schema.schema import Feature, Schema

What: TypeAlias = Literal[
    "payload", "added", "removed", "sequence",
    "kind", "shape", "required", "nan", "meaning", "dtype", "labels", "doc",
]  # fmt: skip
Classification: TypeAlias = Literal["same", "compatible", "migration"]

_HEADLINES: dict[Classification, str] = {
    "same": "same: the schemas do not differ",
    "compatible": "compatible: every record that fits the new schema fits the old one",
    "migration": "migration: the new schema needs a new version",
}


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """Difference between two schemas. `feature` is None for the schema itself.

    `compatible` states that, for this difference, every record that fits the new schema also fits
    the old one.
    """

    feature: str | None
    what: What
    old: str
    new: str
    compatible: bool


@dataclass(frozen=True, slots=True)
class SchemaDiff(Report):
    """All differences between two schemas."""

    JSON_PROPERTIES: ClassVar = ("classification",)

    changes: tuple[SchemaChange, ...] = ()

    @property
    def compatible(self) -> bool:
        """Return True if data of the new schema fits a version with the old schema."""
        return all(change.compatible for change in self.changes)

    @property
    def classification(self) -> Classification:
        """Overall result: same, compatible, or migration required."""
        if not self.changes:
            return "same"
        return "compatible" if self.compatible else "migration"

    def lines(self) -> list[str]:
        """Return the differences, one line per feature."""
        lines = []
        for name, group in groupby(self.changes, key=lambda change: change.feature):
            changes = list(group)
            verdict = "compatible" if all(c.compatible for c in changes) else "migration"
            where = "the schema" if name is None else f"feature {name!r}"
            lines.append(f"{where}: {', '.join(map(_format_change, changes))}: {verdict}")
        return lines

    def __str__(self) -> str:
        return "\n".join([_HEADLINES[self.classification], *self.lines()])


def _format_change(change: SchemaChange) -> str:
    if change.what in {"added", "removed"}:
        return f"{change.what} ({change.old or change.new})"
    if change.what == "doc":
        return "doc"
    return f"{change.what} {change.old} -> {change.new}"


def compare(old: Schema, new: Schema) -> SchemaDiff:
    """Return the differences of `new` from `old`.

    The schemas are compatible if every record that fits `new` also fits `old`, and no declaration
    of one contradicts the other. Equal sizes do not make data equal: int32 and float32 bytes,
    numbers with changed labels, or rows of another length contradict each other.
    """
    return SchemaDiff(tuple(_changes(old, new)))


def _changes(old: Schema, new: Schema) -> Iterator[SchemaChange]:
    if old.payload != new.payload:
        # Anything fits an opaque schema. An Example is a SequenceExample without feature lists.
        # Existing feature lists show as added features.
        fits = new.payload != "opaque"
        yield SchemaChange(None, "payload", old.payload, new.payload, fits)
    if old.doc != new.doc:
        yield SchemaChange(None, "doc", old.doc, new.doc, compatible=True)
    if "opaque" in {old.payload, new.payload}:
        return
    before = {feature.key: feature for feature in old.features}
    after = {feature.key: feature for feature in new.features}
    for key in sorted(before.keys() | after.keys(), key=lambda key: (key[1], key[0])):
        feature, successor = before.get(key), after.get(key)
        moved = (not key[0], key[1])
        if feature and successor:
            yield from _feature_changes(feature, successor)
        elif feature and moved in after and moved not in before:
            sides = _describe_side(feature), _describe_side(after[moved])
            yield SchemaChange(feature.name, "sequence", *sides, compatible=False)
        elif feature:
            fits = not feature.required
            yield SchemaChange(feature.name, "removed", str(feature), "", compatible=fits)
        elif successor and not (moved in before and moved not in after):
            yield SchemaChange(successor.name, "added", "", str(successor), compatible=False)


def _describe_side(feature: Feature) -> str:
    return "in the feature_lists" if feature.sequence else "in the context"


def _feature_changes(old: Feature, new: Feature) -> Iterator[SchemaChange]:
    name = old.name
    if old.kind != new.kind:
        yield SchemaChange(name, "kind", old.kind, new.kind, compatible=False)
    if old.shape != new.shape:
        fits = shapes.fits(new.shape, old.shape)
        yield SchemaChange(
            name, "shape", shapes.format_shape(old.shape), shapes.format_shape(new.shape), fits
        )
    if old.required != new.required:
        names = ("optional", "required")
        yield SchemaChange(name, "required", names[old.required], names[new.required], new.required)
    if old.nan != new.nan:
        names = ("no NaN", "NaN")
        yield SchemaChange(name, "nan", names[old.nan], names[new.nan], old.nan)
    yield from _meaning_changes(old, new)
    if old.doc != new.doc:
        yield SchemaChange(name, "doc", old.doc, new.doc, compatible=True)


def _meaning_changes(old: Feature, new: Feature) -> Iterator[SchemaChange]:
    name, before, after = old.name, old.meaning, new.meaning
    if isinstance(before, Array) and isinstance(after, Array):
        if before.dtype != after.dtype:
            yield SchemaChange(name, "dtype", before.dtype, after.dtype, compatible=False)
        if before.shape != after.shape:
            fits = shapes.fits(after.shape, before.shape)
            yield SchemaChange(name, "meaning", str(before), str(after), fits)
    elif isinstance(before, Category) and isinstance(after, Category):
        if old.kind == new.kind and not _same_labels(before, after, old):
            fits = _labels_fit(before, after, old)
            yield SchemaChange(name, "labels", *_labels(before, after), fits)
    elif before != after:
        fits = old.kind == new.kind and _meaning_fits(before, after, old)
        yield SchemaChange(name, "meaning", str(before or "none"), str(after or "none"), fits)


def _meaning_fits(old: LogicalType | None, new: LogicalType | None, feature: Feature) -> bool:
    """Return True if values of type `new` are valid where `old`, another type, is declared.

    If `new` declares nothing, they are valid if `old` requires nothing.
    """
    if old is None:
        return True
    if isinstance(old, Text):
        return isinstance(new, Category)
    if isinstance(old, Category):
        free = old.labels is None
        return free and (isinstance(new, Text) or (new is None and feature.kind == "int64"))
    if isinstance(old, Array):
        anything = ITEM_BYTES[old.dtype] == shapes.unit(old.shape) == 1
        return new is None and anything and not shapes.is_fixed(old.shape)
    return isinstance(old, Embedding)


def _same_labels(old: Category, new: Category, feature: Feature) -> bool:
    if old.labels is None or new.labels is None or feature.kind == "int64":
        return old.labels == new.labels
    return set(old.labels) == set(new.labels)


def _labels_fit(old: Category, new: Category, feature: Feature) -> bool:
    if old.labels is None or new.labels is None:
        return old.labels is None
    if feature.kind == "int64":
        return old.labels[: len(new.labels)] == new.labels
    return set(new.labels) <= set(old.labels)


def _labels(old: Category, new: Category) -> tuple[str, str]:
    """Return the number of labels before and after, with the labels that are new."""
    count_old, count_new = (
        "any" if category.labels is None else f"{len(category.labels)} labels"
        for category in (old, new)
    )
    if old.labels is None or new.labels is None:
        return count_old, count_new
    known = set(old.labels)
    added = [repr(label) for label in new.labels if label not in known]
    if added:
        more = f" and {len(added) - 5} more" if len(added) > 5 else ""
        return count_old, f"{count_new} (new: {', '.join(added[:5])}{more})"
    moved = old.labels[: len(new.labels)] != new.labels
    return count_old, f"{count_new} (in other places)" if moved else count_new
