"""Frames for tests, made with Google's CRC-32C and not with the code under test."""

from __future__ import annotations

import struct

import google_crc32c
from hypothesis import strategies as st

HEADER, FOOTER = 12, 4


def masked(data: bytes) -> bytes:
    """The checksum that TFRecord stores for these bytes."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def header(length: int) -> bytes:
    """A header whose length is vouched for by its checksum."""
    field = struct.pack("<Q", length)
    return field + masked(field)


def framed(*payloads: bytes) -> bytes:
    """A TFRecord file."""
    return b"".join(header(len(data)) + data + masked(data) for data in payloads)


def intact_at(data: bytes, offset: int, most: int = 2**28) -> bool:
    """Whether an intact frame begins at `offset`."""
    if offset + HEADER + FOOTER > len(data):
        return False
    length = int.from_bytes(data[offset : offset + 8], "little")
    start, end = offset + HEADER, offset + HEADER + length
    return (
        length <= most
        and end + FOOTER <= len(data)
        and data[offset + 8 : start] == masked(data[offset : offset + 8])
        and data[end : end + FOOTER] == masked(data[start:end])
    )


def damaged(data: bytes, at: int) -> bytes:
    """The data with one byte changed."""
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


payloads = st.one_of(
    st.binary(max_size=40), st.binary(max_size=12).map(framed), st.just(b""), st.just(bytes(30))
)
"""Anything may be a payload, a whole TFRecord file too."""

lengths = st.one_of(
    st.integers(0, 60), st.sampled_from([2**28, 2**28 + 1, 2**36, 2**62, 2**64 - 16, 2**64 - 1])
)
pieces = st.one_of(
    payloads.map(framed),
    payloads.map(framed),
    st.binary(max_size=30),
    lengths.map(header),
    st.builds(
        lambda data, at: damaged(framed(data), at % (len(data) + 16)), payloads, st.integers(0)
    ),
    st.builds(lambda data, cut: framed(data)[: cut % (len(data) + 16)], payloads, st.integers(0)),
)
mixtures = st.lists(pieces, max_size=6).map(b"".join)
"""Frames and junk, one behind the other."""
