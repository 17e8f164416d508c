"""Predicates on features: comparisons of whole columns, and what and, or, not make of them.

Nothing is called and nothing else is evaluated. A feature that a record does not have is equal to
nothing, so every comparison with it is false, and only `is missing` is true.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import InvalidArgumentError, SchemaMismatchError
from shardline.hints import Hint, Option
from shardline.schema.arrow_types import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from shardline.schema.schema import Feature, Schema

    Mask = NDArray[np.bool_]
    Columns = Mapping[str, pa.Array]


Value: TypeAlias = "int | float | str"
ComparisonOperator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]

COMPARE_FUNCTIONS: dict[str, Callable[..., pa.BooleanArray]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class Predicate(Protocol):
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
class Comparison:
    """A feature compared with one value."""

    name: str
    sign: ComparisonOperator
    value: Value

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        yield self.name

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        _make_scalars(get_scalar_feature(schema, self.name), [self.value])

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        column = columns[self.name]
        return _true(COMPARE_FUNCTIONS[self.sign](column, _literals(column.type, [self.value])[0]))


@dataclass(frozen=True, slots=True)
class Membership:
    """A feature that has one of several values."""

    name: str
    values: tuple[Value, ...]

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        yield self.name

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        _make_scalars(get_scalar_feature(schema, self.name), self.values)

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        column = columns[self.name]
        return _true(pc.is_in(column, value_set=_literals(column.type, self.values)))


@dataclass(frozen=True, slots=True)
class MissingFeature:
    """A feature that is not there."""

    name: str

    def names(self) -> Iterator[str]:
        """The features that it looks at."""
        yield self.name

    def refuse_unfit(self, schema: Schema) -> None:
        """Refuse what cannot be compared in records of a schema."""
        get_scalar_feature(schema, self.name)

    def mask(self, columns: Columns) -> Mask:
        """The rows for which it is true."""
        return _true(columns[self.name].is_null())


@dataclass(frozen=True, slots=True)
class Negation:
    """What is not so."""

    part: Predicate

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
class Junction:
    """All of several, or any of them."""

    parts: tuple[Predicate, ...]
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


def get_scalar_feature(schema: Schema, name: str) -> Feature:
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


def _make_scalars(feature: Feature, values: Sequence[Value]) -> pa.Array:
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


_MIRRORED: dict[str, ComparisonOperator] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | `(?P<quoted>[^`]+)`
  | (?P<name>[^\W\d][\w./-]*)
  | (?P<sign>==|!=|<=|>=|[<>()\[\],])
    )""",
    re.VERBOSE,
)
_MAX_DEPTH = 50
_SYNTAX_HINT = Hint.of(
    "write comparisons like label == 3, name in ['a', 'b'] or name is missing, joined by and, or, "
    "not and brackets, with text in quotes and names with other characters than letters, digits "
    "and ./-_ in backquotes"
)


def parse_predicate(text: str) -> Predicate:
    """Read a predicate. Raises ValueError with how it is written; its values are not told."""
    parser = _PredicateParser(text)
    found = parser.any_of()
    if parser.here is not None:
        raise parser.wrong("unexpected text after its end")
    return found


class _PredicateParser:
    """Takes a predicate apart, from the left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._deep = 0
        self.here: re.Match[str] | None = None
        self._go_on()

    def wrong(self, what: str) -> InvalidArgumentError:
        at = (self._end if self.here is None else self.here.start()) + 1
        return InvalidArgumentError(
            f"invalid predicate at character {at}: {what}",
            code="invalid-predicate",
            hint=_SYNTAX_HINT,
            offset=at,
        )

    def _go_on(self) -> None:
        self.here = None
        if not self._text[self._end :].strip():
            return
        found = _TOKEN.match(self._text, self._end)
        if found is None:
            raise self.wrong("expected a name, number, text or sign")
        self.here, self._end = found, found.end()

    def _take(self, *words: str) -> str | None:
        """The next token, if it is one of these words or signs."""
        if self.here is None:
            return None
        word = self.here["sign"] or (self.here["name"] or "").lower()
        if word not in words:
            return None
        self._go_on()
        return word

    def any_of(self) -> Predicate:
        return self._joined("or", self._all_of, every=False)

    def _all_of(self) -> Predicate:
        return self._joined("and", self._one, every=True)

    def _joined(self, word: str, part: Callable[[], Predicate], *, every: bool) -> Predicate:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Junction(tuple(parts), every)

    def _one(self) -> Predicate:
        self._deep += 1
        if self._deep > _MAX_DEPTH:
            raise self.wrong("nested too deeply")
        try:
            if self._take("not"):
                return Negation(self._one())
            if self._take("("):
                found = self.any_of()
                if not self._take(")"):
                    raise self.wrong("a bracket is not closed")
                return found
            return self._comparison()
        finally:
            self._deep -= 1

    def _comparison(self) -> Predicate:
        if self.here is not None and (self.here["number"] or self.here["text"]):
            value, sign = self._value(), self._sign()
            return Comparison(self._name(), _MIRRORED[sign], value)
        name = self._name()
        if self._take("is"):
            negated = self._take("not")
            if not self._take("missing"):
                raise self.wrong("expected 'missing' or 'not missing' after 'is'")
            return Negation(MissingFeature(name)) if negated else MissingFeature(name)
        if negated := self._take("not"):
            if not self._take("in"):
                raise self.wrong("expected 'in' after 'not'")
            return Negation(Membership(name, self._values()))
        if self._take("in"):
            return Membership(name, self._values())
        return Comparison(name, self._sign(), self._value())

    def _name(self) -> str:
        found = self.here and (self.here["name"] or self.here["quoted"])
        if not found:
            raise self.wrong("expected the name of a feature")
        self._go_on()
        return found

    def _sign(self) -> ComparisonOperator:
        found = self._take(*COMPARE_FUNCTIONS)
        if found is None:
            raise self.wrong("expected == or another comparison")
        return found  # type: ignore[return-value] # it is one of them

    def _value(self) -> Value:
        here = self.here
        if here is None or not (here["number"] or here["text"]):
            raise self.wrong("expected a number or a text in quotes")
        self._go_on()
        if here["text"]:
            return re.sub(r"\\(.)", r"\1", here["text"][1:-1], flags=re.DOTALL)
        number = here["number"]
        return int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)

    def _values(self) -> tuple[Value, ...]:
        begin = self._take("[", "(")
        if begin is None:
            raise self.wrong("expected a list like [1, 2] after 'in'")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take("]" if begin == "[" else ")"):
            raise self.wrong("the list is not closed")
        return tuple(values)
