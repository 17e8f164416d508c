"""Conditions on records: a predicate, a list of key values, or a function of the caller."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import InvalidArgumentError, SchemaMismatchError, UDFError
from shardline.hints import Hint, Option
from shardline.schema.arrow_types import schema_of
from shardline.schema.predicate import Predicate, get_scalar_feature
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shardline.schema.predicate import Mask
    from shardline.schema.schema import Feature, Schema
    from shardline.udf import UDF, BoundUDF

_INT64_LIMIT = 2**63
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,20}", re.ASCII)


class RecordMatcher(Protocol):
    """Condition bound to records of one schema."""

    @property
    def reads(self) -> list[Feature]:
        """Features of the batches."""
        ...

    @property
    def matched(self) -> Collection[int]:
        """Positions of the key values that a record had so far."""
        ...

    def get_mask(self, batch: pa.RecordBatch) -> Mask:
        """Return which records match."""
        ...

    def close(self) -> None:
        """Stop background work."""
        ...


class Condition(Protocol):
    """Records to find in any version. A condition is plain data."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the features that it reads."""
        ...

    @property
    def label(self) -> str:
        """Label for messages, without values that may be personal data."""
        ...

    def bind(self, schema: Schema) -> RecordMatcher:
        """Bind to records of a schema. Raises SchemaMismatchError if the condition does not fit."""
        ...


@dataclass(frozen=True, slots=True)
class _PredicateMatcher:
    reads: list[Feature]
    predicate: Predicate
    matched: Collection[int] = ()

    def get_mask(self, batch: pa.RecordBatch) -> Mask:
        return self.predicate.get_mask(batch.columns)

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WhereCondition:
    """Records for which a predicate is true."""

    predicate: Predicate

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the features in the predicate."""
        return self.predicate.names

    @property
    def label(self) -> str:
        """Label without the values of the predicate."""
        return f"a predicate on {', '.join(self.reads)}"

    def bind(self, schema: Schema) -> RecordMatcher:
        """Bind to records of a schema."""
        return _PredicateMatcher(self.predicate.bind(schema), self.predicate)


@dataclass(frozen=True)
class KeyCondition:
    """Records whose `key` has one of these values, given as numbers or as text."""

    key: str
    values: tuple[int | str | bytes, ...]

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError without values."""
        if not self.values:
            raise InvalidArgumentError(
                f"key {self.key!r}: missing values",
                code="missing-argument",
                hint=Hint.of("set ", Option("values")),
                feature=self.key,
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """Name of the key."""
        return (self.key,)

    @property
    def label(self) -> str:
        """Label without the values."""
        return f"{format_count(len(set(self.values)), 'value')} of {self.key}"

    def list_missing(self, matched: Collection[int]) -> tuple[int, ...]:
        """List the positions, from 1 on, of values that no record has, each value once."""
        present = {_encode_value(self.values[position]).strip() for position in matched}
        positions: dict[bytes, int] = {}
        for position, value in enumerate(self.values, 1):
            positions.setdefault(_encode_value(value).strip(), position)
        return tuple(position for value, position in positions.items() if value not in present)

    def bind(self, schema: Schema) -> RecordMatcher:
        """Bind to records of a schema."""
        feature = get_scalar_feature(schema, self.key)
        return _KeyMatcher([feature], self._convert_values(feature))

    def _convert_values(self, feature: Feature) -> pa.Array:
        if feature.kind == "float":
            raise SchemaMismatchError(
                f"feature {self.key!r}: a float feature cannot be a key",
                code="invalid-key",
                hint=Hint.of("set ", Option("where"), " to a predicate"),
                feature=self.key,
            )
        convert = _parse_number if feature.kind == "int64" else _encode_value
        values = [convert(value) for value in self.values]
        if None in values:
            raise SchemaMismatchError(
                f"feature {self.key!r}: value {values.index(None) + 1} of {len(values)} is not a "
                "whole number",
                code="invalid-value",
                feature=self.key,
            )
        try:
            column = pa.array(values, pa.int64() if feature.kind == "int64" else pa.binary())
            return column.cast(schema_of([feature]).field(0).type)
        except pa.ArrowInvalid:
            raise SchemaMismatchError(
                f"feature {self.key!r}: a value is not UTF-8 text",
                code="invalid-value",
                feature=self.key,
            ) from None


def _parse_number(value: int | str | bytes) -> int | None:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if not _WHOLE_NUMBER.fullmatch(text.strip()):
        return None
    number = int(text)
    return number if -_INT64_LIMIT <= number < _INT64_LIMIT else None


def _encode_value(value: int | str | bytes) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@dataclass(frozen=True, slots=True)
class _KeyMatcher:
    reads: list[Feature]
    values: pa.Array
    matched: set[int] = field(default_factory=set)

    def get_mask(self, batch: pa.RecordBatch) -> Mask:
        positions = pc.index_in(batch.column(0), value_set=self.values)
        self.matched.update(positions.unique().drop_null().to_pylist())
        mask: Mask = np.asarray(positions.is_valid())
        return mask

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class UdfCondition:
    """Records for which a UDF of one int64 feature returns 1; it returns 0 for all others."""

    udf: UDF

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for a UDF that declares something else."""
        features = self.udf.features
        if len(features) != 1 or features[0].kind != "int64" or features[0].shape:
            raise InvalidArgumentError(
                f"where: {self.udf.label} must declare a single int64 feature",
                code="invalid-filter",
                hint=Hint.of("return 1 for a record to erase and 0 for others"),
            )
        if self.udf.reads is None:
            raise InvalidArgumentError(
                f"where: {self.udf.label} does not declare the features it reads",
                code="undeclared-udf",
                hint=Hint.of("declare ", Option("reads"), " of the function"),
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the features that the UDF reads."""
        return tuple(self.udf.reads or ())

    @property
    def label(self) -> str:
        """Label of the UDF."""
        return self.udf.label

    def bind(self, schema: Schema) -> RecordMatcher:
        """Bind to records of a schema."""
        return _UdfMatcher(self.udf.bind(schema), self.udf.label)


class _UdfMatcher:
    matched: Collection[int] = ()

    def __init__(self, bound: BoundUDF, label: str) -> None:
        self.reads = bound.reads
        self._bound = bound
        self._label = label

    def get_mask(self, batch: pa.RecordBatch) -> Mask:
        result = self._bound.compute(batch, every=False)
        ((_, column),) = result.columns
        if result.reasons or column.bad or column.array.null_count:
            raise UDFError(
                f"where: {self._label} has no answer for some records, nothing was erased",
                code="invalid-filter-result",
            ) from result.error
        answers = np.asarray(column.array)
        if not np.isin(answers, (0, 1)).all():
            raise UDFError(
                f"where: {self._label} returned a number other than 0 and 1, nothing was erased",
                code="invalid-filter-result",
                hint=Hint.of("return 1 for a record to erase and 0 for others"),
            )
        mask: Mask = answers == 1
        return mask

    def close(self) -> None:
        self._bound.close()


@dataclass(frozen=True, slots=True)
class ReadabilityCondition:
    """Condition that no record meets, to find rows in which these features cannot be read."""

    reads: tuple[str, ...]

    @property
    def label(self) -> str:
        """The names of the features."""
        return ", ".join(self.reads)

    def bind(self, schema: Schema) -> RecordMatcher:
        """Bind to records of a schema."""
        return _EmptyMatcher([schema.feature(name, sequence=False) for name in self.reads])


@dataclass(frozen=True, slots=True)
class _EmptyMatcher:
    reads: list[Feature]
    matched: Collection[int] = ()

    def get_mask(self, batch: pa.RecordBatch) -> Mask:
        return np.zeros(batch.num_rows, np.bool_)

    def close(self) -> None: ...


def make_condition(
    where: str | UDF | None, key: str | None, values: Sequence[int | str | bytes]
) -> Condition:
    """Return the condition that a caller gives. Raises InvalidArgumentError for none or two."""
    if (where is None) == (key is None):
        both = where is not None
        raise InvalidArgumentError(
            "where and key exclude each other" if both else "no records chosen",
            code="conflicting-arguments" if both else "missing-argument",
            hint=Hint.of(
                "set either ", Option("where"), ", or ", Option("key"), " and ", Option("values")
            ),
        )
    if key is not None:
        return KeyCondition(key, tuple(values))
    if values:
        raise InvalidArgumentError(
            "values: missing key",
            code="missing-argument",
            hint=Hint.of("name the key feature with ", Option("key")),
        )
    return WhereCondition(Predicate(where)) if isinstance(where, str) else UdfCondition(where)  # type: ignore[arg-type]
