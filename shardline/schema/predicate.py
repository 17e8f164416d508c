"""Predicates on features: comparisons of whole columns, joined by and, or and not.

A predicate calls no function. A comparison with a missing feature is false; only `is missing` is
true for such a record. Errors name features, never the values in a predicate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

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


Value: TypeAlias = "int | float | str"
ComparisonOperator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">=", "in", "is missing"]

_COMPARE: dict[str, Callable[..., pa.BooleanArray]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MIRRORED: dict[str, ComparisonOperator] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


@dataclass(frozen=True)
class Predicate:
    """A predicate as people write it, such as `label == 3 and name is not missing`."""

    text: str

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for a text that is not a predicate."""
        self._root  # noqa: B018 - parsed at once

    @cached_property
    def _root(self) -> Comparison | Junction:
        return _PredicateParser(self.text).parse()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features that it reads, each once."""
        return tuple(dict.fromkeys(comparison.name for comparison in self._root.comparisons()))

    def bind(self, schema: Schema, aliases: Mapping[str, str] | None = None) -> list[Feature]:
        """Return the feature of each name. Raises SchemaMismatchError if a value does not fit.

        `aliases` are other names of features of the schema.
        """
        features = {
            name: get_scalar_feature(schema, (aliases or {}).get(name, name)) for name in self.names
        }
        for comparison in self._root.comparisons():
            _validate_values(features[comparison.name], comparison.values)
        return list(features.values())

    def get_mask(self, columns: Sequence[pa.Array]) -> Mask:
        """Return which rows match, given the column of each name."""
        return self._root.get_mask(dict(zip(self.names, columns, strict=True)))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A feature compared with one value, with several for "in", or with none for "is missing"."""

    name: str
    operator: ComparisonOperator
    values: tuple[Value, ...] = ()

    def comparisons(self) -> Iterator[Comparison]:
        """Yield itself."""
        yield self

    def get_mask(self, columns: Mapping[str, pa.Array]) -> Mask:
        """Return the rows for which it is true."""
        column = columns[self.name]
        if self.operator == "is missing":
            return np.asarray(column.is_null())
        values = _make_scalars(column.type, self.values)
        if self.operator == "in":
            matches = pc.is_in(column, value_set=values)
        else:
            matches = _COMPARE[self.operator](column, values[0])
        return np.asarray(pc.fill_null(matches, False))  # noqa: FBT003 - the value to fill in


@dataclass(frozen=True, slots=True)
class Junction:
    """All or any of several parts, or not the only part."""

    operator: Literal["and", "or", "not"]
    parts: tuple[Comparison | Junction, ...]

    def comparisons(self) -> Iterator[Comparison]:
        """Yield the comparisons of all parts."""
        for part in self.parts:
            yield from part.comparisons()

    def get_mask(self, columns: Mapping[str, pa.Array]) -> Mask:
        """Return the rows for which it is true."""
        masks = [part.get_mask(columns) for part in self.parts]
        if self.operator == "not":
            return ~masks[0]
        mask: Mask = (np.logical_and if self.operator == "and" else np.logical_or).reduce(masks)
        return mask


def get_scalar_feature(schema: Schema, name: str) -> Feature:
    """Return a feature of the context that holds a single value."""
    feature = schema.feature(name, sequence=False)
    if feature.shape:
        raise SchemaMismatchError(
            f"feature {name!r}: only single values can be compared ({feature})",
            code="unsupported-feature",
            hint=Hint.of("choose records by a function: set ", Option("where", "MODULE:OBJECT")),
            feature=name,
        )
    return feature


def _validate_values(feature: Feature, values: Sequence[Value]) -> None:
    """Raise SchemaMismatchError if the feature cannot have one of the values."""
    types = {"int64": int, "float": int | float, "bytes": str}
    try:
        if all(isinstance(value, types[feature.kind]) for value in values):
            _make_scalars(schema_of([feature]).field(0).type, values)
            return
    except (ValueError, OverflowError, pa.ArrowException):
        pass
    expected = {"int64": "a whole number", "float": "a number", "bytes": "a text in quotes"}
    raise SchemaMismatchError(
        f"feature {feature.name!r}: expected {expected[feature.kind]} ({feature.kind} feature)",
        code="invalid-value",
        feature=feature.name,
    )


def _make_scalars(kind: pa.DataType, values: Sequence[Value]) -> pa.Array:
    if pa.types.is_float32(kind):
        return pa.array(values, pa.float64()).cast(kind)
    binary = pa.types.is_binary(kind)
    return pa.array([str(value).encode() for value in values] if binary else values, kind)


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


class _PredicateParser:
    """Recursive-descent parser of predicates."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._depth = 0
        self._token: re.Match[str] | None = None
        self._advance()

    def parse(self) -> Comparison | Junction:
        root = self._parse_or()
        if self._token is not None:
            raise self._make_error("unexpected text after its end")
        return root

    def _make_error(self, problem: str) -> InvalidArgumentError:
        offset = (self._end if self._token is None else self._token.start()) + 1
        return InvalidArgumentError(
            f"invalid predicate at character {offset}: {problem}",
            code="invalid-predicate",
            hint=_SYNTAX_HINT,
            offset=offset,
        )

    def _advance(self) -> None:
        self._token = None
        if not self._text[self._end :].strip():
            return
        token = _TOKEN.match(self._text, self._end)
        if token is None:
            raise self._make_error("expected a name, number, text or sign")
        self._token, self._end = token, token.end()

    def _take(self, *keywords: str) -> str | None:
        """Return the next token if it is one of these keywords or signs, and advance."""
        if self._token is None:
            return None
        keyword = self._token["sign"] or (self._token["name"] or "").lower()
        if keyword not in keywords:
            return None
        self._advance()
        return keyword

    def _parse_or(self) -> Comparison | Junction:
        return self._parse_junction("or", self._parse_and)

    def _parse_and(self) -> Comparison | Junction:
        return self._parse_junction("and", self._parse_part)

    def _parse_junction(
        self, operator: Literal["and", "or"], parse_part: Callable[[], Comparison | Junction]
    ) -> Comparison | Junction:
        parts = [parse_part()]
        while self._take(operator):
            parts.append(parse_part())
        return parts[0] if len(parts) == 1 else Junction(operator, tuple(parts))

    def _parse_part(self) -> Comparison | Junction:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._make_error("nested too deeply")
        if self._take("not"):
            part: Comparison | Junction = Junction("not", (self._parse_part(),))
        elif self._take("("):
            part = self._parse_or()
            if not self._take(")"):
                raise self._make_error("a bracket is not closed")
        else:
            part = self._parse_comparison()
        self._depth -= 1
        return part

    def _parse_comparison(self) -> Comparison | Junction:
        if self._token is not None and (self._token["number"] or self._token["text"]):
            value, operator = self._take_value(), self._take_operator()
            return Comparison(self._take_name(), _MIRRORED[operator], (value,))
        name = self._take_name()
        if self._take("is"):
            negated = self._take("not")
            if not self._take("missing"):
                raise self._make_error("expected 'missing' or 'not missing' after 'is'")
            comparison = Comparison(name, "is missing")
        elif (negated := self._take("not")) or self._take("in"):
            if negated and not self._take("in"):
                raise self._make_error("expected 'in' after 'not'")
            comparison = Comparison(name, "in", self._take_values())
        else:
            return Comparison(name, self._take_operator(), (self._take_value(),))
        return Junction("not", (comparison,)) if negated else comparison

    def _take_name(self) -> str:
        name = self._token and (self._token["name"] or self._token["quoted"])
        if not name:
            raise self._make_error("expected the name of a feature")
        self._advance()
        return name

    def _take_operator(self) -> ComparisonOperator:
        operator = self._take(*_COMPARE)
        if operator is None:
            raise self._make_error("expected == or another comparison")
        return operator  # type: ignore[return-value] # a key of _COMPARE

    def _take_value(self) -> Value:
        token = self._token
        if token is None or not (token["number"] or token["text"]):
            raise self._make_error("expected a number or a text in quotes")
        self._advance()
        if token["text"]:
            return re.sub(r"\\(.)", r"\1", token["text"][1:-1], flags=re.DOTALL)
        number = token["number"]
        return int(number) if re.fullmatch(r"[+-]?\d+", number) else float(number)

    def _take_values(self) -> tuple[Value, ...]:
        bracket = self._take("[", "(")
        if bracket is None:
            raise self._make_error("expected a list like [1, 2] after 'in'")
        values = [self._take_value()]
        while self._take(","):
            values.append(self._take_value())
        if not self._take("]" if bracket == "[" else ")"):
            raise self._make_error("the list is not closed")
        return tuple(values)
