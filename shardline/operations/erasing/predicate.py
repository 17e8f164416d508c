"""Predicates on features: comparisons of whole columns, and what and, or, not make of them.

Nothing is called and nothing else is evaluated. A feature that a record does not have is equal to
nothing, so every comparison with it is false, and only `is missing` is true.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import SchemaMismatchError
from shardline.hints import Hint, Option
from shardline.schema.arrow_columns import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shardline.schema.schema import Feature, Schema

    Mask = NDArray[np.bool_]
    Columns = Mapping[str, pa.Array]

Value: TypeAlias = "int | float | str"
Sign: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]

COMPARE: dict[str, Callable[..., pa.BooleanArray]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Node(Protocol):
    """A part of a predicate."""

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        ...

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema, with SchemaMismatchError."""
        ...

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        ...


@dataclass(frozen=True, slots=True)
class Compare:
    """A feature compared with one value."""

    name: str
    sign: Sign
    value: Value

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        yield self.name

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        _as_scalars(scalar_feature(schema, self.name), [self.value])

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        column = columns[self.name]
        return _true(COMPARE[self.sign](column, _literals(column.type, [self.value])[0]))


@dataclass(frozen=True, slots=True)
class OneOf:
    """A feature that has one of several values."""

    name: str
    values: tuple[Value, ...]

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        yield self.name

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        _as_scalars(scalar_feature(schema, self.name), self.values)

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        column = columns[self.name]
        return _true(pc.is_in(column, value_set=_literals(column.type, self.values)))


@dataclass(frozen=True, slots=True)
class Missing:
    """A feature that is not there."""

    name: str

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        yield self.name

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        scalar_feature(schema, self.name)

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        return _true(columns[self.name].is_null())


@dataclass(frozen=True, slots=True)
class Not:
    """What is not so."""

    part: Node

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        yield from self.part.names()

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        self.part.refuse_unfit(schema)

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        return ~self.part.mask(columns)


@dataclass(frozen=True, slots=True)
class Several:
    """All of several, or any of them."""

    parts: tuple[Node, ...]
    every: bool

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        for part in self.parts:
            yield from part.names()

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        for part in self.parts:
            part.refuse_unfit(schema)

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        masks = [part.mask(columns) for part in self.parts]
        found: Mask = (np.logical_and if self.every else np.logical_or).reduce(masks)
        return found


def _true(found: pa.BooleanArray) -> Mask:
    mask: Mask = np.asarray(pc.fill_null(found, False))  # noqa: FBT003 - what is filled in
    return mask


def scalar_feature(schema: Schema, name: str) -> Feature:
    """A feature that holds one value in a record."""
    feature = schema.feature(name, sequence=False)
    if feature.shape:
        raise SchemaMismatchError(
            f"feature {name!r}: only single values can be compared ({feature})",
            code="unsupported-feature",
            hint=Hint.of(
                "choose the records by a function: set ", Option("where", "MODULE:OBJECT")
            ),
            feature=name,
        )
    return feature


def _as_scalars(feature: Feature, values: Sequence[Value]) -> pa.Array:
    """Values as those of a feature. Neither they nor the text that they stood in are told."""
    kind = schema_of([feature]).field(0).type
    wrong = {
        "int64": any(not isinstance(value, int) for value in values),
        "float": any(isinstance(value, str) for value in values),
        "bytes": any(not isinstance(value, str) for value in values),
    }[feature.kind]
    try:
        if wrong:
            raise ValueError
        return _literals(kind, values)
    except (ValueError, OverflowError, pa.ArrowException):
        wanted = {"int64": "a whole number", "float": "a number", "bytes": "a text in quotes"}
        raise SchemaMismatchError(
            f"feature {feature.name!r}: expected {wanted[feature.kind]} ({feature.kind} feature)",
            code="invalid-value",
            feature=feature.name,
        ) from None


def _literals(kind: pa.DataType, values: Sequence[Value]) -> pa.Array:
    binary = pa.types.is_binary(kind)
    told = [str(value).encode() if binary else value for value in values]
    return (
        pa.array(told, pa.float64()).cast(kind)
        if pa.types.is_float32(kind)
        else pa.array(told, kind)
    )
