"""Schema inference from batches of rows: what their values and types allow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline import kernel
from shardline.errors import ExampleError, SchemaMismatchError
from shardline.hints import Hint
from shardline.kernel.columns import from_arrow
from shardline.kernel.types import FactsKey, FeatureFacts, check_distinct, merge_facts
from shardline.schema.arrow_types import infer_arrow_feature, infer_logical_type, unwrap_lists
from shardline.schema.conversion import convert_to_feature
from shardline.schema.exact_numbers import find_rounded, inexact_number
from shardline.schema.file_schema import build_schema, infer_features
from shardline.schema.schema import Category, Schema, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.kernel.types import Buffer, IntArray
    from shardline.schema.file_schema import FeatureSchema
    from shardline.schema.logical_types import LogicalType
    from shardline.schema.schema import Feature, Shape


def get_column_facts(feature: Feature, array: pa.Array) -> FeatureFacts | None:
    """Return the facts of a column converted to its feature; None if it has no value.

    They equal the facts of the encoded records, except for ranges of values and sizes. `utf8`
    is valid only for text features: other bytes are not inspected.
    """
    present = len(array) - array.null_count
    if not present:
        return None
    values, lengths = array, (1, 1)
    if pa.types.is_list(array.type):
        values = array.flatten()  # Of the present rows.
        counts = np.diff(np.asarray(array.offsets))
        if array.null_count:
            counts = counts[np.asarray(array.is_valid())]
        lengths = (int(counts.min()), int(counts.max()))
    return FeatureFacts(
        name=feature.name,
        sequence=False,
        kind=feature.kind,
        present=present,
        steps=None,
        lengths=lengths,
        low=None,
        high=None,
        nans=_count_nans(values) if feature.kind == "float" else 0,
        sizes=None,
        utf8=feature.kind != "bytes" or (feature.meaning is not None and _is_utf8(values)),
    )


def _count_nans(values: pa.Array) -> int:
    return int(pc.sum(pc.is_nan(values)).as_py() or 0)


def _is_utf8(values: pa.Array) -> bool:
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@dataclass(slots=True)
class _TypeFacts:
    """Facts from the types of a column, and the number of rows with empty lists.

    `rounded` is the first row with a number that float32 rounds before the decimal point.
    """

    dimensions: Shape | None = None
    meaning: LogicalType | None = None
    empty: int = 0
    rounded: int | None = None


class SchemaFinder:
    """Schema inference over batches of rows, ignoring rows that no schema could fit.

    Without `allow_rounding`, a column raises an error if its kind would lose digits of a
    number. `rows` counts the rows of all batches.
    """

    def __init__(self, label: str, *, exact: bool = False, allow_rounding: bool = False) -> None:
        self._label = label
        self._exact = exact
        self.allow_rounding = allow_rounding
        self.rows = 0
        self._facts: dict[FactsKey, FeatureFacts] = {}
        self._type_facts: dict[str, _TypeFacts] = {}
        self._records = 0

    def add_records(self, data: Buffer, starts: IntArray, lengths: IntArray) -> None:
        """Add encoded records; SchemaMismatchError if one is not an Example."""
        try:
            merge_facts(self._facts, kernel.facts(data, starts, lengths))
        except ExampleError as error:
            raise SchemaMismatchError(
                f"{self._label}: record {self._records + error.record} is not an Example "
                f"({error.detail})",
                code="invalid-example",
                hint=Hint.of("to keep such records, declare the schema as `Schema.opaque()`"),
                record=self._records + error.record,
                offset=error.offset,
            ) from None
        self._records += len(starts)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows by their columns."""
        columns: list[tuple[Feature, pa.Array]] = []
        bad: set[int] = set()
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            feature = self._feature(name, array)
            if feature is not None:
                self._note_rounded(name, array)
                fitted = convert_to_feature(feature, array)
                bad |= fitted.bad.keys()
                columns.append((feature, fitted.array))
        is_valid = np.ones(batch.num_rows, np.bool_)
        is_valid[list(bad)] = False
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            if _has_no_leaf(array.type):
                self._type_facts[name].empty += int((np.asarray(array.is_valid()) & is_valid).sum())
        if bad:
            columns = [(feature, array.filter(pa.array(is_valid))) for feature, array in columns]
        rows = int(is_valid.sum())
        self._add_columns(columns, rows)
        self._records += rows
        self.rows += batch.num_rows

    def _add_columns(self, columns: Sequence[tuple[Feature, pa.Array]], rows: int) -> None:
        """Add columns converted to their features; only feature_lists are encoded as records."""
        check_distinct(feature for feature, _ in columns)
        facts = [get_column_facts(f, array) for f, array in columns if not f.sequence]
        merge_facts(self._facts, (fact for fact in facts if fact is not None))
        steps = [from_arrow(f.name, array) for f, array in columns if f.sequence]
        if steps:
            encoded = kernel.encode(steps, rows)
            merge_facts(self._facts, kernel.facts(encoded.data, encoded.starts, encoded.lengths))

    def _note_rounded(self, name: str, array: pa.Array) -> None:
        facts = self._type_facts[name]
        if facts.rounded is None and not self.allow_rounding:
            row = find_rounded(array)
            facts.rounded = None if row is None else self.rows + row

    def _feature(self, name: str, array: pa.Array) -> Feature | None:
        """Return the feature inferred for a column; None if the column has no value."""
        facts = self._type_facts.setdefault(name, _TypeFacts())
        if _has_no_leaf(array.type):
            return None
        feature = infer_arrow_feature(name, array.type)
        if feature is None:
            raise SchemaMismatchError(
                f"{self._label}: unsupported type of column {name!r} ({array.type})",
                code="unsupported-type",
                hint=Hint.of("convert the column, or remove it"),
                feature=name,
            )
        dimensions, _ = unwrap_lists(array.type)
        meaning = infer_logical_type(array.type)
        if facts.dimensions is None:
            facts.dimensions, facts.meaning = dimensions, meaning
        if len(facts.dimensions) != len(dimensions):
            raise SchemaMismatchError(
                f"{self._label}: cannot infer the shape of column {name!r} "
                f"(lists {len(facts.dimensions)} and {len(dimensions)} deep)",
                code="unknown-shape",
                hint=_DECLARE,
                feature=name,
            )
        facts.dimensions = tuple(
            a if a == b else None for a, b in zip(facts.dimensions, dimensions, strict=True)
        )
        facts.meaning = _merge_meanings(facts.meaning, meaning)
        return feature

    def schema(self) -> Schema:
        """Return a schema that all rows fit; SchemaMismatchError if it cannot be inferred."""
        if not self._records:
            return Schema()
        facts = list(self._facts.values())
        known = {fact.name for fact in facts}
        for name in self._type_facts:
            if name not in known:
                raise SchemaMismatchError(
                    f"{self._label}: cannot infer the kind of column {name!r} (no values)",
                    code="unknown-kind",
                    hint=Hint.of(_DECLARE, ", or remove the column"),
                    feature=name,
                )
        if not self._exact:
            facts = _unify_number_facts(facts)
        try:
            features = tuple(self._declared(f) for f in infer_features(facts, self._records))
        except SchemaMismatchError as error:
            raise SchemaMismatchError(
                f"{self._label}: {error}",
                code=error.code,
                hint=error.hint,
                record=error.record,
                feature=error.feature,
            ) from None
        for feature in features:
            own = self._type_facts.get(feature.name)
            if feature.kind == "float" and own is not None and own.rounded is not None:
                raise inexact_number(self._label, feature.name, own.rounded)
        sequence = any(feature.sequence for feature in features)
        return Schema(features, "sequence_example" if sequence else "example")

    def _declared(self, own: FeatureSchema) -> Feature:
        facts = self._type_facts.get(own.name)
        if facts is None or facts.dimensions is None:
            return build_schema(own)
        own = replace(own, present=own.present + facts.empty)
        if facts.empty and not own.sequence:
            own = replace(own, length=None)
        feature = build_schema(own)
        meaning = facts.meaning if own.utf8 and feature.kind == "bytes" else None
        shape = facts.dimensions[1:] if own.sequence else facts.dimensions
        if shape == (None,):
            shape = (own.length or None,)
        return replace(feature, shape=shape, meaning=meaning)


def merge_schemas(first: Schema, second: Schema, label: str) -> Schema:
    """Return the schema that rows of both schemas fit; `label` names the two for errors."""
    mine = {feature.key: feature for feature in first.features}
    theirs = {feature.key: feature for feature in second.features}
    features = []
    for key in mine.keys() | theirs.keys():
        a, b = mine.get(key), theirs.get(key)
        moved = (not key[0], key[1])
        if (a is None and moved in mine) or (b is None and moved in theirs):
            raise SchemaMismatchError(
                f"{label} differ: feature {key[1]!r} has steps in a single source",
                code="shape-mismatch",
                hint=_DECLARE,
                feature=key[1],
            )
        if a is None or b is None:
            features += [replace(f, required=False) for f in (a, b) if f is not None]
            continue
        if a.kind != b.kind:
            raise SchemaMismatchError(
                f"{label} differ: kind of feature {a.name!r} ({a.kind} and {b.kind})",
                code="kind-mismatch",
                hint=Hint.of("append them to separate versions, or convert a source"),
                feature=a.name,
            )
        features.append(
            replace(
                a,
                shape=_merge_shapes(a, b, label),
                required=a.required and b.required,
                nan=a.nan or b.nan,
                meaning=_merge_meanings(a.meaning, b.meaning),
            )
        )
    sequence = "sequence_example" in {first.payload, second.payload}
    return Schema(tuple(features), "sequence_example" if sequence else "example")


def _merge_shapes(a: Feature, b: Feature, label: str) -> Shape:
    if a.shape == b.shape:
        return a.shape
    if len(a.shape) != len(b.shape) or a.shape[1:] != b.shape[1:]:
        raise SchemaMismatchError(
            f"{label} differ: shape of feature {a.name!r} ({list(a.shape)} and {list(b.shape)})",
            code="shape-mismatch",
            hint=_DECLARE,
            feature=a.name,
        )
    return None, *a.shape[1:]


def _merge_meanings(first: LogicalType | None, second: LogicalType | None) -> LogicalType | None:
    """Merge two logical types: categories are also texts."""
    if first == second:
        return first
    texts = isinstance(first, Text | Category) and isinstance(second, Text | Category)
    return Text() if texts else None


def _has_no_leaf(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(unwrap_lists(kind)[1]))


def _unify_number_facts(facts: Iterable[FeatureFacts]) -> list[FeatureFacts]:
    """Convert integer facts to float where other facts of the same feature are floats."""
    merged: dict[FactsKey, FeatureFacts] = {}
    listed = list(facts)
    floats = {(fact.sequence, fact.name) for fact in listed if fact.kind == "float"}
    merge_facts(
        merged,
        (
            replace(fact, kind="float")
            if fact.kind == "int64" and (fact.sequence, fact.name) in floats
            else fact
            for fact in listed
        ),
    )
    return list(merged.values())


_DECLARE = Hint.of("declare the schema")
