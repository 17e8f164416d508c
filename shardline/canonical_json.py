"""Canonical JSON: one text for one value, so that it can be hashed and compared byte for byte.

Keys are sorted, nothing is spaced, text is UTF-8 and not escaped where it need not be. Numbers are
whole: floats have no one spelling that all languages share.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NoReturn, TypeAlias, TypeVar

MAX_INTEGER = 2**63 - 1
_TOO_LARGE = "an integer of more than 64 bits has no canonical form; use text"
_NO_DIGEST = "0" * 64


def encode(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """The canonical bytes of a JSON value; refuses with ValueError what has none."""
    _validate_stable(value)
    return _encode_value(value)


def _encode_value(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return _ENCODER.encode(value).encode()


def decode(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """The value of canonical bytes; refuses with ValueError any other spelling of it."""
    try:
        value = _DECODER.decode(data.decode())
        again = _encode_value(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeError) as error:
        raise ValueError(f"it is no JSON text ({type(error).__name__})") from None
    if again != data:
        raise ValueError("it is JSON, but not in canonical form")
    return value


def sha256(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """The digest of a JSON value's canonical bytes."""
    return hashlib.sha256(encode(value)).hexdigest()


def seal(value: dict[str, Any]) -> tuple[str, bytes]:
    """Return the digest of a JSON object, and its canonical bytes with the digest as `digest`."""
    text = encode({**value, "digest": _NO_DIGEST})
    field = f'"digest":"{_NO_DIGEST}",'.encode()
    if text.count(field) != 1:
        digest = sha256(value)
        return digest, _encode_value({**value, "digest": digest})
    before, _, behind = text.partition(field)
    digest = hashlib.sha256(before + behind).hexdigest()
    return digest, b"".join((before, field.replace(_NO_DIGEST.encode(), digest.encode()), behind))


def _validate_stable(value: object) -> None:
    """Refuse what has no canonical form. Texts, which most values are, cost no call each."""
    if isinstance(value, (dict, list, tuple)):
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"a JSON key must be text, not {type(key).__name__}")
            value = value.values()
        for inner in value:
            if type(inner) is not str:
                _validate_stable(inner)
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise ValueError(_TOO_LARGE)
    elif value is not None and not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} values have no canonical form; use text")


def _parse_integer(text: str) -> int:
    value = int(text)
    if abs(value) > MAX_INTEGER:
        raise ValueError(_TOO_LARGE)
    return value


def _reject_float(text: str) -> NoReturn:
    del text
    raise ValueError("it holds a number that is not whole")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(
    parse_int=_parse_integer, parse_float=_reject_float, parse_constant=_reject_float
)


Value = TypeVar("Value")

_DIGEST = re.compile(r"[0-9a-f]{64}")


class JsonReader:
    """Takes a JSON object apart field by field, and refuses what is left over."""

    def __init__(self, what: str, value: object) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"{what} is no JSON object")
        self._what = what
        self._left = dict(value)

    def take(self, name: str, kind: type[Value]) -> Value:
        """A field that must be there."""
        if name not in self._left:
            raise ValueError(f"{self._what} has no {name!r}")
        value = self._left.pop(name)
        if type(value) is not kind:
            raise ValueError(f"{name!r} of {self._what} is {type(value).__name__}")
        return value

    def maybe(self, name: str, kind: type[Value]) -> Value | None:
        """A field that may be left out."""
        return self.take(name, kind) if name in self._left else None

    def has(self, name: str) -> bool:
        """Whether a field is there."""
        return name in self._left

    def nullable(self, name: str, kind: type[Value]) -> Value | None:
        """A field that must be there and may be null."""
        if name in self._left and self._left[name] is None:
            return self._left.pop(name)  # type: ignore[no-any-return]
        return self.take(name, kind)

    def count(self, name: str, least: int = 0) -> int:
        """A whole number that is not below `least`."""
        value = self.take(name, int)
        if value < least:
            raise ValueError(f"{name!r} of {self._what} is {value}")
        return value

    def digest(self, name: str) -> str:
        """A sha256 in hexadecimal."""
        return digest(self.take(name, str), f"{name!r} of {self._what}")

    def nullable_digest(self, name: str) -> str | None:
        """A sha256 in hexadecimal, or null."""
        value = self.nullable(name, str)
        return None if value is None else digest(value, f"{name!r} of {self._what}")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; empty if left out."""
        values = self.maybe(name, list) or []
        if not all(isinstance(value, str) for value in values):
            raise ValueError(f"{name!r} of {self._what} is no list of texts")
        return tuple(values)

    def end(self) -> None:
        """Refuse what has not been taken."""
        if self._left:
            raise ValueError(f"{self._what} has an unknown field {min(self._left)!r}")


def digest(value: str, what: str) -> str:
    """A text that must be a sha256 in hexadecimal; `what` says which, if it is none."""
    if not _DIGEST.fullmatch(value):
        raise ValueError(f"{what} is no sha256")
    return value


Json: TypeAlias = dict[str, Any]
