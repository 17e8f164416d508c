"""Canonical JSON: a single text per value, which can be hashed and compared byte for byte.

Keys are sorted, without spaces. Text is UTF-8 with minimal escapes. Numbers are integers, because
languages format floats differently.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NoReturn, TypeAlias

MAX_INTEGER = 2**63 - 1
_TOO_LARGE = "integer of more than 64 bits, expected text"
_NO_DIGEST = "0" * 64


def encode(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Encode a JSON value to its canonical bytes. Raises ValueError for an unsupported value."""
    _validate_stable(value)
    return _encode_value(value)


def _encode_value(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    return _ENCODER.encode(value).encode()


def decode(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Decode canonical bytes. Raises ValueError for any other JSON text."""
    try:
        value = _DECODER.decode(data.decode())
        canonical = _encode_value(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (json.JSONDecodeError, UnicodeError) as error:
        raise ValueError(f"invalid JSON ({type(error).__name__})") from None
    if canonical != data:
        raise ValueError("not in canonical form")
    return value


def sha256(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the digest of the canonical bytes of a JSON value."""
    return hashlib.sha256(encode(value)).hexdigest()


def seal(value: dict[str, Any]) -> tuple[str, bytes]:
    """Return the digest of a JSON object, and its canonical bytes with the digest as `digest`."""
    text = encode({**value, "digest": _NO_DIGEST})
    field = f'"digest":"{_NO_DIGEST}",'.encode()
    if text.count(field) != 1:
        digest = sha256(value)
        return digest, _encode_value({**value, "digest": digest})
    before, _, after = text.partition(field)
    digest = hashlib.sha256(before + after).hexdigest()
    return digest, b"".join((before, field.replace(_NO_DIGEST.encode(), digest.encode()), after))


def _validate_stable(value: object) -> None:
    """Raise ValueError for an unsupported value. Strings cost no call."""
    if isinstance(value, (dict, list, tuple)):
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"invalid JSON key: expected str, got {type(key).__name__}")
            value = value.values()
        for inner in value:
            if type(inner) is not str:
                _validate_stable(inner)
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise ValueError(_TOO_LARGE)
    elif value is not None and not isinstance(value, str):
        raise ValueError(f"unsupported type {type(value).__name__}, expected text")


def _parse_integer(text: str) -> int:
    value = int(text)
    if abs(value) > MAX_INTEGER:
        raise ValueError(_TOO_LARGE)
    return value


def _reject_float(text: str) -> NoReturn:
    del text
    raise ValueError("contains a number that is not an integer")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(
    parse_int=_parse_integer, parse_float=_reject_float, parse_constant=_reject_float
)

_DIGEST = re.compile(r"[0-9a-f]{64}")


def validate_digest(value: str, subject: str) -> str:
    """Return a SHA-256 in hexadecimal. Raises ValueError for other text."""
    if not _DIGEST.fullmatch(value):
        raise ValueError(f"{subject}: expected a SHA-256 in hexadecimal")
    return value


Json: TypeAlias = dict[str, Any]
