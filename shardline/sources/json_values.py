"""One JSON object, read so that what JSON cannot mean twice is refused and nothing is lost."""

from __future__ import annotations

import json
import math
from decimal import Decimal

from shardline.schema.exact_numbers import Rounded
from shardline.schema.python_values import TooLarge

_INT64 = range(-(2**63), 2**63)
_FLOAT64_WHOLE = 2.0**53
_MOST_DIGITS = 400


class NotJson(Exception):  # noqa: N818 - it is raised and caught between two lines
    """Why a text is no JSON object; `feature` is the one it is about, if any."""

    def __init__(self, detail: str, feature: str | None = None) -> None:
        super().__init__(detail)
        self.feature = feature


def parsed(text: bytes) -> dict[str, object]:
    """The object that a text holds; NotJson says why it holds none."""
    try:
        value = _decoded(text.decode())
    except UnicodeDecodeError:
        raise NotJson("is not UTF-8 text") from None
    if isinstance(value, _Twice):
        raise NotJson("is there twice", value.name)
    if not isinstance(value, dict):
        raise NotJson("is no JSON object")
    return value


def parsed_list(text: str) -> list[object]:
    """The list that a text holds; NotJson says why it holds none."""
    try:
        value = _decoded(text)
    except NotJson:
        value = None
    if not isinstance(value, list):
        raise NotJson("holds text that is no JSON list")
    return value


def _decoded(text: str) -> object:
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        what = error.msg.partition(":")[0]
        raise NotJson(f"is no JSON: {what}, at character {error.pos + 1}") from None
    except RecursionError:
        raise NotJson("is no JSON that can be read: it is nested too deep") from None
    return value


class _Twice:
    """Stands for an object that has a name twice."""

    def __init__(self, name: str) -> None:
        self.name = name


def _object(pairs: list[tuple[str, object]]) -> object:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    return _Twice(next(name for name, _ in pairs if name in seen or seen.add(name)))  # type: ignore[func-returns-value]


def _fraction(text: str) -> float | TooLarge:
    value = float(text)
    if math.isinf(value):
        return TooLarge()
    if _FLOAT64_WHOLE <= abs(value) < _INT64.stop and Decimal(text) != Decimal(value):
        return Rounded(value)
    return value


def _whole(text: str) -> float | TooLarge:
    """A whole number; over 64 bits it can be a float only, and so can minus zero."""
    if len(text) > _MOST_DIGITS:
        return TooLarge()
    value = int(text)
    if value in _INT64:
        return value if value or text == "0" else -0.0
    try:
        rounded = float(value)
    except OverflowError:
        return TooLarge()
    return TooLarge() if rounded == _INT64[0] else Rounded(rounded)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_fraction, parse_int=_whole)
