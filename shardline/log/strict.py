"""JSON that is read back is checked: what does not have exactly the fields it should is refused."""

from __future__ import annotations

import re
from typing import TypeVar

Value = TypeVar("Value")

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Fields:
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
