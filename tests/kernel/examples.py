"""Payloads for tests: wire bytes made by hand, and random ones in every form a writer may choose.

Nothing here asks the code under test, and nothing here needs TensorFlow.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from shardline.kernel.types import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shardline.kernel.types import IntArray


def seeded(seed: int) -> Random:
    """Random numbers that are the same on every run."""
    return Random(seed)


BYTES_TAG, FLOAT_TAG, INT64_TAG = 0x0A, 0x12, 0x1A
KEY_TAG = FIRST_TAG = 0x0A
VALUE_TAG = SECOND_TAG = 0x12


def varint(value: int, size: int = 0) -> bytes:
    """A varint, filled up to `size` bytes: the form with more bytes than needed is legal too."""
    value &= 2**64 - 1
    encoded = bytearray()
    while value >= 0x80 or len(encoded) + 1 < size:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def delimited(tag: int, inside: bytes, size: int = 0) -> bytes:
    """A length-delimited field."""
    return bytes([tag]) + varint(len(inside), size) + inside


def bytes_feature(*values: bytes) -> bytes:
    """A Feature with a BytesList."""
    return delimited(BYTES_TAG, b"".join(delimited(FIRST_TAG, value) for value in values))


def float_bits(*bits: int, packed: bool = True) -> bytes:
    """The inside of a FloatList, from the bits of its values."""
    words = [struct.pack("<I", value) for value in bits]
    if packed:
        return delimited(FIRST_TAG, b"".join(words)) if words else b""
    return b"".join(b"\x0d" + word for word in words)


def float_feature(*values: float, packed: bool = True) -> bytes:
    """A Feature with a FloatList."""
    bits = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return delimited(FLOAT_TAG, float_bits(*bits, packed=packed))


def int64_feature(*values: int, packed: bool = True) -> bytes:
    """A Feature with an Int64List."""
    encoded = [varint(value) for value in values]
    if packed:
        return delimited(INT64_TAG, delimited(FIRST_TAG, b"".join(encoded)) if encoded else b"")
    return delimited(INT64_TAG, b"".join(b"\x08" + value for value in encoded))


def entry(name: bytes | str, value: bytes) -> bytes:
    """A map entry as it stands in Features (with a Feature) or FeatureLists (a FeatureList)."""
    key = name.encode() if isinstance(name, str) else name
    return delimited(FIRST_TAG, delimited(KEY_TAG, key) + delimited(VALUE_TAG, value))


def feature_list(*features: bytes) -> bytes:
    """A FeatureList of Features."""
    return b"".join(delimited(FIRST_TAG, feature) for feature in features)


def example(*entries: bytes) -> bytes:
    """An Example, or the context of a SequenceExample."""
    return delimited(FIRST_TAG, b"".join(entries))


def feature_lists(*entries: bytes) -> bytes:
    """The feature_lists of a SequenceExample."""
    return delimited(SECOND_TAG, b"".join(entries))


@dataclass(frozen=True, slots=True)
class Block:
    """Payloads laid end to end, and where each lies: what the kernel's functions take."""

    data: bytes
    starts: IntArray
    lengths: IntArray


def block(payloads: Iterable[bytes]) -> Block:
    """Lay payloads end to end."""
    pieces = list(payloads)
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    return Block(b"".join(pieces), np.cumsum(lengths) - lengths, lengths)


NAMES = ("", "a", "b", "image", "image/encoded", "größe", "名前", "\U0001f600", "nul\0", "x" * 130)
INT64S = (0, 1, -1, 127, 128, 300, 2**31, -(2**31) - 1, 2**62, 2**63 - 1, -(2**63))
FLOAT_BITS = (
    0x00000000,  # 0
    0x80000000,  # -0
    0x3F800000,  # 1
    0xC0490FDB,  # -pi
    0x00000001,  # the smallest number there is
    0x7F7FFFFF,  # the largest
    0x7F800000,  # infinity
    0xFF800000,
    0x7FC00000,  # NaN, as most make it
    0xFFC12345,  # NaN that carries bits
    0x7F812345,  # NaN that signals
)
STRINGS = (b"", b"a", b"cat", b"\xff\xfe", "größe".encode(), b"\n\x03abc", b"\x89PNG" * 40)

KINDS: tuple[Kind, ...] = ("bytes", "float", "int64")
Values = tuple[Kind, list[bytes] | list[int]]
"""A kind and its values; floats by their bits, so that every NaN stays itself."""


def random_values(rng: Random, kind: Kind, count: int) -> Values:
    """A list of a kind."""
    if kind == "bytes":
        strings = [
            rng.choice(STRINGS) if rng.random() < 0.6 else rng.randbytes(rng.randrange(40))
            for _ in range(count)
        ]
        return kind, strings
    if kind == "float":
        bits = [
            rng.choice(FLOAT_BITS) if rng.random() < 0.5 else rng.getrandbits(32)
            for _ in range(count)
        ]
        return kind, bits
    numbers = [
        rng.choice(INT64S)
        if rng.random() < 0.5
        else rng.randrange(-(2**63), 2**63) >> rng.choice((0, 8, 40, 56))
        for _ in range(count)
    ]
    return kind, numbers


def random_count(rng: Random) -> int:
    """How many values a list has: often one, sometimes none, seldom many."""
    return rng.choice((0, 1, 1, 1, 2, 3, 5, 5, 17))


def _unknown(rng: Random) -> bytes:
    """A well-formed field that no message here has, or one in a form that it must not have."""
    tag = rng.choice((0x00, 0x03, 0x08, 0x0A, 0x0C, 0x0D, 0x10, 0x12, 0x1A, 0x20, 0x22, 0x7A, 0x85))
    kind = tag & 7
    body = {
        0: varint(rng.getrandbits(rng.choice((3, 14, 64)))),
        1: rng.randbytes(8),
        2: varint(2) + rng.randbytes(2),
        3: bytes([tag | 4]),
        5: rng.randbytes(4),
    }.get(kind, b"")
    return bytes([tag]) + (b"\x01" if tag & 0x80 else b"") + body


class Writer:
    """Writes messages by hand in one of the many forms the wire format allows.

    `odd` is how likely, at each spot, something stands there that a strict reader refuses or must
    know about; 0 gives only what is legal everywhere.
    """

    def __init__(self, rng: Random, odd: float = 0.0) -> None:
        self._rng = rng
        self._odd = odd

    def _strange(self) -> bool:
        return self._rng.random() < self._odd

    def _field(self, tag: int, inside: bytes) -> bytes:
        size = 0
        if self._rng.random() < 0.05:
            size = self._rng.randrange(2, 6)
        if self._strange():
            size = self._rng.randrange(5, 12)
        written = delimited(tag, inside, size)
        if not self._strange():
            return written
        return self._rng.choice((written + written, written + _unknown(self._rng), b"",
                                 _unknown(self._rng) + written))  # fmt: skip

    def _list(self, values: Values) -> bytes:
        kind, items = values
        if kind == "bytes":
            return b"".join(self._field(FIRST_TAG, value) for value in items)  # type: ignore[arg-type]
        encoded = [self._number(kind, value) for value in items]  # type: ignore[arg-type]
        tag = b"\x0d" if kind == "float" else b"\x08"
        if self._strange():
            cut = self._rng.randrange(len(encoded) + 1)
            first, rest = encoded[:cut], encoded[cut:]
            return self._numbers(tag, first) + self._numbers(tag, rest)
        return self._numbers(tag, encoded)

    def _numbers(self, tag: bytes, encoded: list[bytes]) -> bytes:
        if self._rng.random() < 0.3:
            return b"".join(tag + number for number in encoded)
        if not encoded and self._rng.random() < 0.7:
            return b""
        return self._field(FIRST_TAG, b"".join(encoded))

    def _number(self, kind: Kind, value: int) -> bytes:
        if kind == "float":
            return struct.pack("<I", value)
        size = self._rng.randrange(1, 11) if self._rng.random() < 0.1 else 0
        if self._strange():
            size = 11
        return varint(value, size)

    def feature(self, values: Values | None) -> bytes:
        """A Feature, unset without values."""
        if values is None:
            return b""
        tag = {"bytes": BYTES_TAG, "float": FLOAT_TAG, "int64": INT64_TAG}[values[0]]
        return self._field(tag, self._list(values))

    def steps(self, features: Sequence[Values]) -> bytes:
        """A FeatureList."""
        return b"".join(self._field(FIRST_TAG, self.feature(values)) for values in features)

    def _entries(self, entries: Iterable[tuple[str, bytes]]) -> list[bytes]:
        written = []
        for name, value in entries:
            key = name.encode()
            if self._strange():
                key += self._rng.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\0"))
            pair = [self._field(KEY_TAG, key), self._field(VALUE_TAG, value)]
            if self._strange():
                pair.reverse()
            written.append(self._field(FIRST_TAG, b"".join(pair)))
        return written

    def message(
        self, context: Mapping[str, Values | None], lists: dict[str, list[Values]] | None = None
    ) -> bytes:
        """An Example or SequenceExample, now and then cut into messages laid end to end."""
        pieces = []
        features = self._entries((name, self.feature(v)) for name, v in context.items())
        steps = self._entries((name, self.steps(v)) for name, v in (lists or {}).items())
        for tag, entries in ((FIRST_TAG, features), (SECOND_TAG, steps)):
            if tag == SECOND_TAG and not entries and None in context.values():
                continue  # with feature lists, even without any, an unset feature is refused
            cuts = [0, len(entries)]
            if self._rng.random() < 0.2:
                cuts.insert(1, self._rng.randrange(len(entries) + 1))
            for first, last in itertools.pairwise(cuts):
                if first < last or self._rng.random() < 0.1:
                    pieces.append(self._field(tag, b"".join(entries[first:last])))
        if self._rng.random() < 0.2:
            self._rng.shuffle(pieces)
        return b"".join(pieces)


def random_content(
    rng: Random, *, sequence: bool
) -> tuple[dict[str, Values | None], dict[str, list[Values]]]:
    """What a record says: features by name, and feature lists by name. Kinds go with the names,
    mostly, as they do in real files. Without feature lists, some features are unset."""

    def kind_of(name: str) -> Kind:
        return rng.choice(KINDS) if rng.random() < 0.02 else KINDS[len(name.encode()) % 3]

    def some() -> list[str]:
        return rng.sample(NAMES, rng.choice((0, 1, 1, 2, 3, 6)))

    context: dict[str, Values | None] = {
        name: random_values(rng, kind_of(name), random_count(rng)) for name in some()
    }
    lists: dict[str, list[Values]] = {}
    for name in some() if sequence else ():
        kind = kind_of(name)
        fixed = rng.random() < 0.5
        width = random_count(rng)
        lists[name] = [
            random_values(rng, kind, width if fixed else random_count(rng))
            for _ in range(rng.choice((0, 1, 2, 2, 4)))
        ]
    if not lists and rng.random() < 0.3:
        context |= {name: None for name in some() if name not in context or rng.random() < 0.5}
    return context, lists


def random_payload(rng: Random, *, sequence: bool, odd: float = 0.0) -> bytes:
    """A random Example or SequenceExample; with `odd` above 0, perhaps a strange one."""
    context, lists = random_content(rng, sequence=sequence)
    return Writer(rng, odd).message(context, lists)


_TELLING = (
    0x00,
    0x01,
    0x02,
    0x03,
    0x08,
    0x0A,
    0x0C,
    0x0D,
    0x10,
    0x12,
    0x1A,
    0x22,
    0x7F,
    0x80,
    0xFF,
)


def mutated(rng: Random, payload: bytes, other: bytes) -> bytes:
    """The payload with one thing changed; `other` is what pieces are taken from."""
    at = rng.randrange(len(payload) + 1)
    upto = at + rng.choice((1, 1, 2, 4, 9))
    head, middle, tail = payload[:at], payload[at:upto], payload[upto:]
    piece = other[rng.randrange(len(other) + 1) :][: rng.choice((1, 2, 4, 9, 30))]
    flipped = bytes(byte ^ 1 << rng.randrange(8) for byte in middle[:1]) + middle[1:]
    nudged = bytes((byte + rng.choice((-1, 1))) % 256 for byte in middle[:1]) + middle[1:]
    return rng.choice(
        (
            head + flipped + tail,
            head + flipped + tail,
            head + nudged + tail,
            head + bytes([rng.choice(_TELLING)]) + tail,
            head + tail,
            head + piece + middle + tail,
            head + piece + payload[at + len(piece) :],
            head + middle + middle + tail,
            payload + other,
            head,
        )
    )


_ONE = entry("a", int64_feature(1))
LEGAL: dict[str, bytes] = {
    "nothing at all": b"",
    "an Example without features": example(),
    "a SequenceExample without anything": example() + feature_lists(),
    "an empty name": example(entry("", int64_feature(1))),
    "names beyond ASCII": example(*(entry(name, bytes_feature(b"x")) for name in NAMES)),
    "the first and last code points of each width": example(
        *(entry(chr(c), _ONE[-5:]) for c in (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF)),
        *(entry(chr(c), _ONE[-5:]) for c in (0x10000, 0x10FFFF)),
    ),
    "empty bytes list": example(entry("a", bytes_feature())),
    "empty float list": example(entry("a", float_feature())),
    "empty int64 list": example(entry("a", int64_feature())),
    "empty packed floats": example(entry("a", delimited(FLOAT_TAG, b"\x0a\x00"))),
    "empty packed int64s": example(entry("a", delimited(INT64_TAG, b"\x0a\x00"))),
    "empty string": example(entry("a", bytes_feature(b""))),
    "packed floats": example(entry("a", float_feature(1.5, -2.0))),
    "unpacked floats": example(entry("a", float_feature(1.5, -2.0, packed=False))),
    "packed int64s": example(entry("a", int64_feature(1, -1, 2**63 - 1, -(2**63)))),
    "unpacked int64s": example(entry("a", int64_feature(1, -1, -(2**63), packed=False))),
    "every odd float": example(entry("a", delimited(FLOAT_TAG, float_bits(*FLOAT_BITS)))),
    "a number in ten bytes": example(entry("a", delimited(INT64_TAG, b"\x08" + varint(5, 10)))),
    "lengths in five bytes": delimited(
        FIRST_TAG, delimited(FIRST_TAG, _ONE[2:5] + delimited(VALUE_TAG, _ONE[-5:], 5), 5), 5
    ),
    "an unset feature alone": example(entry("a", b"")),
    "an unset feature among others": example(
        _ONE, entry("b", b""), entry("c", bytes_feature(b"x"))
    ),
    "several unset features": example(entry("b", b""), entry("c", b""), _ONE, entry("", b"")),
    "an unset feature with a long name": example(entry("x" * 130, b""), _ONE),
    "an unset feature with its length in two bytes": example(
        delimited(FIRST_TAG, delimited(KEY_TAG, b"b") + delimited(VALUE_TAG, b"", 2)), _ONE
    ),
    "an unset feature in a base": example(entry("b", b"")) + example(_ONE),
    "an unset feature in an extra": example(_ONE) + example(entry("b", b"")),
    "base and extra, disjoint": example(_ONE) + example(entry("b", bytes_feature(b"x"))),
    "base and an empty extra": example(_ONE) + example(),
    "a sequence": feature_lists(
        entry("s", feature_list(int64_feature(1), int64_feature(), int64_feature(2, 3)))
    ),
    "a sequence of no steps": example(_ONE) + feature_lists(entry("s", b"")),
    "a sequence of empty steps": feature_lists(
        entry("s", feature_list(bytes_feature(), bytes_feature()))
    ),
    "the same name in context and lists": example(_ONE)
    + feature_lists(entry("a", feature_list(bytes_feature(b"x")))),
    "lists before the context": feature_lists(entry("s", feature_list(float_feature(1))))
    + example(_ONE),
    "a sequence and extra": example(_ONE)
    + feature_lists(entry("s", feature_list(int64_feature(1))))
    + example(entry("b", int64_feature(2)))
    + feature_lists(entry("t", feature_list(int64_feature(3)))),
}
"""Payloads that every parser reads alike, each with what is special about it."""
