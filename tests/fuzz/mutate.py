"""Mutations of files: bytes, numbers, text, JSON and TFRecord frames."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from tests.kernel.frames import FOOTER, HEADER, framed

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]

_MOST_MUTATIONS = 4
_NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 32767, 65535, 2**20, 2**31 - 1, 2**31, 2**32 - 1)
_LARGE_NUMBERS = (2**33, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_TOKENS = (
    *(b'"', b'""', b"\n", b"\r\n", b"\r", b",", b"\\", b"\x00", b"\xff", b"\xef\xbb\xbf", b" "),
    *(b"null", b"true", b"-0", b"1e999", b"1e-999", b"NaN", b"-NaN", b"Infinity", b"0x10", b"007"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"1" * 400),
    *(b"{}", b"[]", b"{", b"}", b"[" * 200, b"]", b'{"a":', b"\\ud800", b"\\u0000", b'"id":1,'),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 0.5, 1e300, "", "x", "../x"),
    *("\x00", "\ud7ff", "a" * 5000, [], {}, [[]], [None], {"a": 1}, [1, 2], "0" * 64, "none"),
)


def mutate_bytes(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Apply a few mutations of bytes and of little-endian numbers."""
    for _ in range(draw.randint(1, _MOST_MUTATIONS)):
        data = draw.choice(_BYTE_MUTATIONS)(draw, data, others)
    return data


def mutate_text(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Apply a few mutations of text: tokens that parsers treat specially, and bytes."""
    for _ in range(draw.randint(1, _MOST_MUTATIONS)):
        kind = _insert_token if draw.random() < 0.6 else draw.choice(_BYTE_MUTATIONS)
        data = kind(draw, data, others)
    return data


def mutate_records(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Mutate a TFRecord file: mostly payloads with correct checksums, sometimes frames."""
    if draw.random() < 0.3:
        return mutate_bytes(draw, data, others)
    payloads = split_frames(data)
    strange = [payload for other in others for payload in split_frames(other)]
    position = draw.randrange(len(payloads))
    payloads[position] = mutate_bytes(draw, payloads[position], strange)
    return framed(*payloads)


def mutate_json(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Replace, remove or add a value somewhere in a JSON document; sometimes mutate its text."""
    if draw.random() < 0.3:
        return mutate_text(draw, data, others)
    value = json.loads(data)
    for _ in range(draw.randint(1, _MOST_MUTATIONS)):
        value = _mutate_value(draw, value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass") + (b"\n" if data.endswith(b"\n") else b"")


def split_frames(data: bytes) -> list[bytes]:
    """Return the payloads of an intact TFRecord file."""
    payloads, offset = [], 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 8], "little")
        payloads.append(data[offset + HEADER : offset + HEADER + length])
        offset += HEADER + length + FOOTER
    return payloads


def _flip_bit(draw: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    position = draw.randrange(len(data))
    return _put(data, position, bytes([data[position] ^ 1 << draw.randrange(8)]))


def _set_byte(draw: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    return _put(data, draw.randrange(len(data) + 1), bytes([draw.randrange(256)]))


def _set_number(draw: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    """Overwrite an aligned number, as offsets and lengths in Arrow and Parquet are stored."""
    size = draw.choice((1, 2, 4, 4, 4, 8, 8))
    position = draw.randrange(len(data) // size + 1) * size
    if draw.random() < 0.3:
        old = int.from_bytes(data[position : position + size], "little")
        number = old + draw.choice((-8, -1, 1, 4, 64, 1000))
    else:
        number = draw.choice(_NUMBERS + (_LARGE_NUMBERS if size == 8 else ()))
    return _put(data, position, struct.pack("<Q", number % 2**64)[:size])


def _truncate(draw: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _delete(draw: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    start, size = _piece(draw, data)
    return data[:start] + data[start + size :]


def _repeat(draw: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    start, size = _piece(draw, data)
    target = draw.randrange(len(data) + 1)
    return data[:target] + data[start : start + size] * draw.choice((1, 1, 2, 50)) + data[target:]


def _overwrite(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Overwrite a piece with bytes of this file or of another one."""
    source = draw.choice([data, *others])
    start, size = _piece(draw, source)
    return _put(data, draw.randrange(len(data) + 1), source[start : start + size])


def _insert_token(draw: random.Random, data: bytes, _others: Sequence[bytes]) -> bytes:
    position = draw.randrange(len(data) + 1)
    dropped = draw.choice((0, 0, 1, 4))
    return data[:position] + draw.choice(_TOKENS) + data[position + dropped :]


_BYTE_MUTATIONS: tuple[Mutation, ...] = (
    *(_flip_bit, _flip_bit, _set_byte, _set_number, _set_number, _set_number),
    *(_truncate, _delete, _repeat, _overwrite),
)


def _piece(draw: random.Random, data: bytes) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(draw.choice((1, 2, 4, 8, 16, 64, 256)), len(data) - start)


def _put(data: bytes, position: int, piece: bytes) -> bytes:
    return data[:position] + piece + data[position + len(piece) :]


def _mutate_value(draw: random.Random, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return the value with a change at a random depth."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        return _mutate_object(draw, value)
    if isinstance(value, list) and value and draw.random() < 0.9:
        return _mutate_list(draw, value)
    if isinstance(value, int) and not isinstance(value, bool) and draw.random() < 0.5:
        return value + draw.choice((-1, 1, 1000))
    return draw.choice(_VALUES)


def _mutate_object(draw: random.Random, value: dict[str, Any]) -> dict[str, Any]:
    key, choice = draw.choice(sorted(value)), draw.random()
    if choice < 0.1:
        return {name: inner for name, inner in value.items() if name != key}
    if choice < 0.2:
        return {**value, draw.choice(("extra", "at", "")): draw.choice(_VALUES)}
    return {**value, key: _mutate_value(draw, value[key])}


def _mutate_list(draw: random.Random, value: list[Any]) -> list[Any]:
    position, choice = draw.randrange(len(value)), draw.random()
    if choice < 0.1:
        return value[:position] + value[position + 1 :]
    if choice < 0.2:
        return [*value, value[position]]
    return [*value[:position], _mutate_value(draw, value[position]), *value[position + 1 :]]
