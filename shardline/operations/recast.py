"""The fields that a migration makes of what is there: casts, and values for what is missing."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline import canonical_json as canonical
from shardline.errors import SchemaMismatchError
from shardline.hints import Hint
from shardline.schema.arrow_types import column_type, declared_by, is_list
from shardline.schema.conversion import Fitted, fit
from shardline.udf.base import Bound
from shardline.udf.results import Made

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from shardline.canonical_json import Json
    from shardline.schema.schema import Feature, Schema

_INEXACT = "holds a number that a float cannot hold exactly"


class _Ready(Bound):
    """A change of one column, ready for records."""

    def __init__(
        self, reads: list[Feature], feature: Feature, change: Callable[[pa.RecordBatch], Fitted]
    ) -> None:
        super().__init__(reads, (feature,))
        self._change = change

    def compute(self, batch: pa.RecordBatch, *, every: bool) -> Made:  # noqa: ARG002 - all at once
        """The column for these records."""
        return Made([(self.features[0], self._change(batch))])


@dataclass(frozen=True, slots=True)
class _OneField(ABC):
    """What makes one feature, all of which it declares itself."""

    feature: Feature

    @property
    def features(self) -> tuple[Feature, ...]:
        """What it makes."""
        return (self.feature,)

    def settled(self) -> Self:
        """The same: nothing of it lies elsewhere."""
        return self


@dataclass(frozen=True, slots=True)
class Cast(_OneField):
    """A feature's numbers as those of another kind, if it can hold them exactly."""

    name: str

    @property
    def reads(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.name,)

    @property
    def shown(self) -> str:
        """What people call it."""
        return f"the cast of {self.name!r}"

    def identity(self) -> Json:
        """All that the result depends on besides the records."""
        return {"cast": self.name, "feature": self.feature.to_json()}

    def bind(self, schema: Schema) -> Bound:
        """Make it ready for records of a schema."""
        return _Ready([schema.feature(self.name, sequence=False)], self.feature, self._cast)

    def _cast(self, batch: pa.RecordBatch) -> Fitted:
        column = batch.column(0)
        fitted = fit(self.feature, column)
        if self.feature.kind != "float":
            return fitted
        values, owners = _flat(column)
        numbers = np.asarray(pc.fill_null(values, 0))
        rounded = numbers.astype(np.float32).astype(np.float64)
        # As a float of 64 bits a number may be rounded as well, and to the same.
        inexact = (rounded != numbers) | (rounded >= 2.0**63)
        inexact |= np.where(rounded < 2.0**63, rounded, 0).astype(np.int64) != numbers
        bad = dict.fromkeys(np.unique(owners[inexact]).tolist(), _INEXACT)
        return Fitted(fitted.array, {**bad, **fitted.bad})


def _flat(array: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """The values in all the lists of a column, and which row each is of."""
    owners = np.arange(len(array))
    while is_list(array.type):
        owners = owners[np.asarray(pc.list_parent_indices(array))]
        array = array.flatten()
    return array, owners


@dataclass(frozen=True, slots=True)
class Constant(_OneField):
    """A new feature with the same value in every record."""

    value: Any

    @property
    def reads(self) -> tuple[str, ...]:
        """It reads nothing."""
        return ()

    @property
    def shown(self) -> str:
        """What people call it."""
        return f"the value of {self.feature.name!r}"

    def identity(self) -> Json:
        """All that the result depends on besides the records."""
        return {"constant": self.feature.to_json(), "value": _digest(self.feature, self.value)}

    def bind(self, schema: Schema) -> Bound:  # noqa: ARG002 - it reads nothing
        """Make it ready for records of a schema."""
        one = _one(self.feature, self.value)

        def everywhere(batch: pa.RecordBatch) -> Fitted:
            return Fitted(one.take(pa.array(np.zeros(batch.num_rows, np.int64))))

        return _Ready([], self.feature, everywhere)


@dataclass(frozen=True, slots=True)
class Filled(_OneField):
    """A value for the records that lack a feature; in the others it stays as it is."""

    name: str
    value: Any

    @property
    def reads(self) -> tuple[str, ...]:
        """What it reads."""
        return (self.name,)

    @property
    def shown(self) -> str:
        """What people call it."""
        return f"the default of {self.name!r}"

    def identity(self) -> Json:
        """All that the result depends on besides the records."""
        return {
            "filled": self.name,
            "feature": self.feature.to_json(),
            "value": _digest(self.feature, self.value),
        }

    def bind(self, schema: Schema) -> Bound:
        """Make it ready for records of a schema."""
        one = _one(self.feature, self.value)

        def where_missing(batch: pa.RecordBatch) -> Fitted:
            there = np.asarray(batch.column(0).is_valid())
            return Fitted(one.take(pa.array(np.zeros(len(there), np.int64), mask=there)))

        known = schema.feature(self.name, sequence=False)
        return _Ready([known], self.feature, where_missing)


def declared_value(name: str, value: object) -> Feature:
    """The feature that a value suggests."""
    feature = declared_by(name, _array(name, value).type)
    if feature is None or feature.sequence:
        raise SchemaMismatchError(
            f"feature {name!r}: a feature cannot contain the given value",
            code="invalid-value",
            hint=Hint.of("give a number, text, bytes, or a list of these"),
            feature=name,
        )
    return feature


def _array(name: str, value: object) -> pa.Array:
    try:
        if isinstance(value, list | tuple) and value:
            inner = pa.array(list(value))
            return pa.FixedSizeListArray.from_arrays(inner, len(value))
        return pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SchemaMismatchError(
            f"feature {name!r}: a feature cannot contain the given value",
            code="invalid-value",
            hint=Hint.of("give a number, text, bytes, or a list of these"),
            feature=name,
        ) from error


def _one(feature: Feature, value: object) -> pa.Array:
    """A column with this value alone; refused if it does not fit."""
    fitted = fit(feature, _array(feature.name, value))
    if fitted.bad or fitted.array.null_count:
        why = fitted.bad.get(0, "is missing")
        raise SchemaMismatchError(
            f"feature {feature.name!r}: the given value does not fit: it {why}",
            code="invalid-value",
            feature=feature.name,
        )
    return fitted.array.cast(column_type(feature))


def _digest(feature: Feature, value: object) -> str:
    return canonical.sha256(repr(_one(feature, value).to_pylist()))
