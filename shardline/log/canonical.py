"""Canonical JSON: one text for one value, so that it can be hashed and compared byte for byte.

Keys are sorted, nothing is spaced, text is UTF-8 and not escaped where it need not be. Numbers are
whole: floats have no one spelling that all languages share.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

MAX_INTEGER = 2**63 - 1
_TOO_LARGE = "an integer of more than 64 bits has no canonical form; use text"


def encode(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """The canonical bytes of a JSON value; refuses with ValueError what has none."""
    _refuse_unstable(value)
    return _encoded(value)


def _encoded(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return _ENCODER.encode(value).encode()


def decode(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """The value of canonical bytes; refuses with ValueError any other spelling of it."""
    try:
        value = _DECODER.decode(data.decode())
        again = _encoded(value)
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


def _refuse_unstable(value: object) -> None:
    if type(value) is str:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError(f"a JSON key must be text, not {type(key).__name__}")
            _refuse_unstable(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _refuse_unstable(inner)
    elif isinstance(value, bool) or value is None or isinstance(value, str):
        return
    elif not isinstance(value, int):
        raise ValueError(f"{type(value).__name__} values have no canonical form; use text")
    elif abs(value) > MAX_INTEGER:
        raise ValueError(_TOO_LARGE)


def _integer(text: str) -> int:
    value = int(text)
    if abs(value) > MAX_INTEGER:
        raise ValueError(_TOO_LARGE)
    return value


def _refuse_float(text: str) -> NoReturn:
    del text
    raise ValueError("it holds a number that is not whole")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(
    parse_int=_integer, parse_float=_refuse_float, parse_constant=_refuse_float
)
