"""Predicates as functions that choose: one int64 feature, 1 where the predicate is true."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from shardline.schema.conversion import ConvertedColumn
from shardline.schema.schema import Feature
from shardline.udf.udf_declaration import BoundUDF
from shardline.udf.udf_result import UDFResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardline.canonical_json import Json
    from shardline.schema.predicate import Predicate
    from shardline.schema.schema import Schema

_KEY = "predicate"


@dataclass(frozen=True, slots=True)
class PredicateFilter:
    """A predicate that chooses records. `aliases` are other names of their features."""

    predicate: Predicate
    aliases: tuple[tuple[str, str], ...] = ()

    features: ClassVar = (Feature("chosen", "int64"),)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names in the predicate."""
        return self.predicate.names

    @property
    def label(self) -> str:
        """Label without the values of the predicate."""
        return f"a predicate on {', '.join(self.reads)}"

    def identity(self) -> Json:
        """Return the text of the predicate, on which alone the choice depends."""
        return {_KEY: self.predicate.text}

    def settled(self) -> PredicateFilter:
        """Return the filter unchanged."""
        return self

    def alias(self, names: Mapping[str, str]) -> PredicateFilter:
        """Return a copy that also knows features by these other names."""
        return replace(self, aliases=tuple(names.items()))

    def validate(self, schema: Schema) -> None:
        """Raise SchemaMismatchError if the predicate does not fit records of this schema."""
        self.predicate.bind(schema, dict(self.aliases))

    def bind(self, schema: Schema) -> BoundUDF:
        """Bind to records of this schema."""
        return _BoundPredicate(self, schema)


class _BoundPredicate(BoundUDF):
    def __init__(self, chooser: PredicateFilter, schema: Schema) -> None:
        # Two names in the predicate may be one feature.
        features = chooser.predicate.bind(schema, dict(chooser.aliases))
        self._columns = [feature.name for feature in features]
        self._predicate = chooser.predicate
        super().__init__(list({one.key: one for one in features}.values()), chooser.features)

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> UDFResult:  # noqa: ARG002
        mask = self._predicate.get_mask([batch.column(name) for name in self._columns])
        return UDFResult(
            [(self.features[0], ConvertedColumn(pa.array(mask, pa.int8()).cast("int64")))]
        )


def get_stored_predicate(identity: Json | None) -> str | None:
    """Return the predicate of a stored identity; None for a function or a table."""
    return (identity or {}).get(_KEY)
