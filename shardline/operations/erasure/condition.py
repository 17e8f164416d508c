"""Which records are meant: by a predicate, by a list of keys, or by a function of the caller."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import FieldsError, InvalidArgumentError, SchemaMismatchError
from shardline.hints import Hint, Option
from shardline.schema.arrow_types import schema_of
from shardline.schema.predicate import Predicate, get_scalar_feature

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shardline.schema.predicate import Mask
    from shardline.schema.schema import Feature, Schema
    from shardline.udf import UDF, BoundUDF

_LARGEST = 2**63
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)


class RecordMatcher(Protocol):
    """A condition for records of one schema."""

    @property
    def reads(self) -> list[Feature]:
        """The features that it is given."""
        ...

    @property
    def met(self) -> Collection[int]:
        """Of a list of values, the places of those that it has met so far."""
        ...

    def rows(self, batch: pa.RecordBatch) -> Mask:
        """Which of some records are meant."""
        ...

    def close(self) -> None:
        """End what it has running."""
        ...


class Condition(Protocol):
    """Which records are meant, whatever version they are in. It is plain data."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The features that it looks at."""
        ...

    @property
    def shown(self) -> str:
        """It as people may see it: without any value that could tell of a person."""
        ...

    def bind(self, schema: Schema) -> RecordMatcher:
        """It for records of a schema; SchemaMismatchError if it does not fit them."""
        ...


@dataclass(frozen=True, slots=True)
class _PredicateMatcher:
    """A predicate bound to records of one schema."""

    reads: list[Feature]
    predicate: Predicate
    met: Collection[int] = ()

    def rows(self, batch: pa.RecordBatch) -> Mask:
        return self.predicate.get_mask(batch.columns)

    def close(self) -> None:
        """Nothing runs."""


@dataclass(frozen=True, slots=True)
class WhereCondition:
    """Records for which a predicate is true."""

    predicate: Predicate

    @property
    def reads(self) -> tuple[str, ...]:
        """The features that the predicate names."""
        return self.predicate.names

    @property
    def shown(self) -> str:
        """Label without the values of the predicate, which may be personal data."""
        return f"a predicate on {', '.join(self.reads)}"

    def bind(self, schema: Schema) -> RecordMatcher:
        """Return the matcher for records of a schema."""
        return _PredicateMatcher(self.predicate.bind(schema), self.predicate)


@dataclass(frozen=True)
class KeyCondition:
    """Records whose `key` has one of these values, given as numbers or as text."""

    key: str
    values: tuple[int | str | bytes, ...]

    def __post_init__(self) -> None:
        """Refuse a list of nothing."""
        if not self.values:
            raise InvalidArgumentError(
                f"key {self.key!r}: missing values",
                code="missing-argument",
                hint=Hint.of("set ", Option("values")),
                feature=self.key,
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The key."""
        return (self.key,)

    @property
    def shown(self) -> str:
        """The values are not told."""
        count = len(set(self.values))
        return f"{count:,} {'value' if count == 1 else 'values'} of {self.key}"

    def unmet(self, met: Collection[int]) -> tuple[int, ...]:
        """The places, from 1 on, of the values that no chooser has met, each value once."""
        found = {_parse_bytes(self.values[place]).strip() for place in met}
        left: dict[bytes, int] = {}
        for place, value in enumerate(self.values, 1):
            left.setdefault(_parse_bytes(value).strip(), place)
        return tuple(place for value, place in left.items() if value not in found)

    def bind(self, schema: Schema) -> RecordMatcher:
        """It for records of a schema."""
        feature = get_scalar_feature(schema, self.key)
        return _KeyMatcher([feature], self._of(feature))

    def _of(self, feature: Feature) -> pa.Array:
        kind = schema_of([feature]).field(0).type
        if feature.kind == "float":
            raise SchemaMismatchError(
                f"feature {self.key!r}: a float feature cannot be a key",
                code="invalid-key",
                hint=Hint.of("set ", Option("where"), " to a predicate"),
                feature=self.key,
            )
        read = _parse_number if feature.kind == "int64" else _parse_bytes
        told = []
        for place, value in enumerate(self.values, 1):
            found = read(value)
            if found is None:
                raise SchemaMismatchError(
                    f"feature {self.key!r}: value {place} of {len(self.values)} is not a whole "
                    "number",
                    code="invalid-value",
                    feature=self.key,
                )
            told.append(found)
        values = pa.array(told, pa.int64() if feature.kind == "int64" else pa.binary())
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            raise SchemaMismatchError(
                f"feature {self.key!r}: a value is not UTF-8 text",
                code="invalid-value",
                feature=self.key,
            ) from None


def _parse_number(value: int | str | bytes) -> int | None:
    told = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    told = told.strip()
    if not _WHOLE.fullmatch(told):
        return None
    found = int(told)
    return found if -_LARGEST <= found < _LARGEST else None


def _parse_bytes(value: int | str | bytes) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@dataclass(frozen=True, slots=True)
class _KeyMatcher:
    """Chooses what is in a list."""

    reads: list[Feature]
    values: pa.Array
    met: set[int] = field(default_factory=set)

    def rows(self, batch: pa.RecordBatch) -> Mask:
        places = pc.index_in(batch.column(0), value_set=self.values)
        self.met.update(places.unique().drop_null().to_pylist())
        mask: Mask = np.asarray(places.is_valid())
        return mask

    def close(self) -> None:
        """Nothing runs."""


@dataclass(frozen=True, slots=True)
class UdfCondition:
    """A maker of one int64 that is 1 for a record that is meant, and 0 for others."""

    maker: UDF

    def __post_init__(self) -> None:
        """Refuse what does not tell just that."""
        made = self.maker.features
        if len(made) != 1 or made[0].kind != "int64" or made[0].shape:
            raise InvalidArgumentError(
                f"where: {self.maker.label} must declare a single int64 feature",
                code="invalid-filter",
                hint=Hint.of("return 1 for a record to erase and 0 for others"),
            )
        if self.maker.reads is None:
            raise InvalidArgumentError(
                f"where: {self.maker.label} does not declare the features it reads",
                code="undeclared-udf",
                hint=Hint.of("declare ", Option("reads"), " of the function"),
            )

    @property
    def reads(self) -> tuple[str, ...]:
        """The features that it is given."""
        return tuple(self.maker.reads or ())

    @property
    def shown(self) -> str:
        """What people call it."""
        return self.maker.label

    def bind(self, schema: Schema) -> RecordMatcher:
        """It for records of a schema."""
        return _UdfMatcher(self.maker.bind(schema), self.maker.label)


class _UdfMatcher:
    """Chooses by what a function makes."""

    met: Collection[int] = ()

    def __init__(self, bound: BoundUDF, shown: str) -> None:
        self.reads = bound.reads
        self._bound = bound
        self._shown = shown

    def rows(self, batch: pa.RecordBatch) -> Mask:
        made = self._bound.compute(batch, every=False)
        ((_, fitted),) = made.columns
        if made.reasons or fitted.bad or fitted.array.null_count:
            raise FieldsError(
                f"where: {self._shown} has no answer for some records, nothing was erased",
                code="invalid-filter-result",
            ) from made.error
        told = np.asarray(fitted.array)
        if not np.isin(told, (0, 1)).all():
            raise FieldsError(
                f"where: {self._shown} returned a number other than 0 and 1, nothing was erased",
                code="invalid-filter-result",
                hint=Hint.of("return 1 for a record to erase and 0 for others"),
            )
        mask: Mask = told == 1
        return mask

    def close(self) -> None:
        self._bound.close()


@dataclass(frozen=True, slots=True)
class ReadabilityCondition:
    """A condition that no record meets: it finds what cannot be asked by these features."""

    reads: tuple[str, ...]

    @property
    def shown(self) -> str:
        """What people call it."""
        return ", ".join(self.reads)

    def bind(self, schema: Schema) -> RecordMatcher:
        """It for records of a schema."""
        return _EmptyMatcher([schema.feature(name, sequence=False) for name in self.reads])


@dataclass(frozen=True, slots=True)
class _EmptyMatcher:
    """Chooses nothing."""

    reads: list[Feature]
    met: Collection[int] = ()

    def rows(self, batch: pa.RecordBatch) -> Mask:
        return np.zeros(batch.num_rows, np.bool_)

    def close(self) -> None:
        """Nothing runs."""


def make_condition(
    where: str | UDF | None, key: str | None, values: Sequence[int | str | bytes]
) -> Condition:
    """The condition that a caller told. Raises ValueError if it told none, or two."""
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
