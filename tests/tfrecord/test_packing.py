"""Packing: members that depend on the records alone, and files without records."""

from __future__ import annotations

import gzip
import zlib
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.tfrecord.compression import MEMBER_BYTES, Compression, Compressor
from tests.kernel.examples import seeded
from tests.tfrecord.samples import gzip_member

sizes = st.lists(
    st.one_of(
        st.integers(16, 400_000),
        st.sampled_from([16, MEMBER_BYTES - 16, MEMBER_BYTES, MEMBER_BYTES + 1, 2 * MEMBER_BYTES]),
    ),
    min_size=1,
    max_size=12,
)


def frames_of(each: list[int]) -> tuple[bytes, list[int]]:
    """Bytes that stand for frames of these sizes, and where each ends."""
    return seeded(sum(each)).randbytes(1000) * (sum(each) // 1000 + 1), list(accumulate(each))


def packed(
    compression: Compression, data: bytes, lots: list[list[int]]
) -> tuple[bytes, Compressor]:
    """The file when frames are handed over in these lots of ends."""
    pieces: list[bytes] = []
    packer = Compressor(lambda piece: pieces.append(bytes(piece)), compression)
    start = 0
    for ends in lots:
        packer.add(memoryview(data)[start : ends[-1]], np.array(ends) - start)
        start = ends[-1]
    packer.finish()
    return b"".join(pieces), packer


def members_of(data: bytes) -> list[bytes]:
    """What each GZIP member unpacks to, by zlib."""
    found = []
    while data:
        unpack = zlib.decompressobj(31)
        found.append(unpack.decompress(data))
        data = unpack.unused_data
    return found


@given(sizes, st.data())
@settings(max_examples=25)
def test_members_depend_on_the_records_and_not_on_how_they_come(
    each: list[int], draw: st.DataObject
) -> None:
    data, ends = frames_of(each)
    cuts = sorted(draw.draw(st.sets(st.integers(1, len(ends)), max_size=5)) | {0, len(ends)})
    at_once, packer = packed(Compression.GZIP, data, [ends])
    in_lots, other = packed(Compression.GZIP, data, [ends[a:b] for a, b in pairwise(cuts)])
    assert in_lots == at_once
    assert other.members == packer.members
    assert (packer.packed, packer.unpacked) == (len(at_once), ends[-1])
    members = members_of(at_once)
    assert b"".join(members) == data[: ends[-1]]
    borders = [0, *accumulate(map(len, members))]
    assert set(borders) <= {0, *ends}
    for first, last in pairwise(borders[:-1]):
        before_the_last = max(end for end in (0, *ends) if end < last)
        assert last - first >= MEMBER_BYTES > before_the_last - first
    assert [unpacked for _, unpacked in packer.members] == borders[:-1]
    for (start, _), member in zip(packer.members, members, strict=True):
        assert zlib.decompressobj(31).decompress(at_once[start:]) == member


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB])
@given(each=st.lists(st.integers(16, 5000), min_size=1, max_size=8))
@settings(max_examples=20)
def test_plain_and_zlib_files_are_one_piece(compression: Compression, each: list[int]) -> None:
    data, ends = frames_of(each)
    at_once, packer = packed(compression, data, [ends])
    in_lots, _ = packed(compression, data, [[end] for end in ends])
    plain = compression is Compression.NONE
    for found in (at_once, in_lots):
        assert (found if plain else zlib.decompress(found)) == data[: ends[-1]]
    assert packer.members == ([] if plain else [(0, 0)])
    assert (packer.packed, packer.unpacked) == (len(at_once), ends[-1])


@pytest.mark.parametrize("compression", list(Compression))
def test_a_file_without_records_is_a_file_of_its_kind(compression: Compression) -> None:
    data, packer = packed(compression, b"", [])
    assert (packer.packed, packer.unpacked) == (len(data), 0)
    if compression is Compression.NONE:
        assert data == b""
    elif compression is Compression.GZIP:
        assert (members_of(data), packer.members) == ([b""], [(0, 0)])
    else:
        assert zlib.decompress(data) == b""


def test_a_gzip_file_as_it_is_ends_the_member_before_it() -> None:
    pieces: list[bytes] = []
    packer = Compressor(lambda piece: pieces.append(bytes(piece)), Compression.GZIP)
    packer.add(b"a" * 20, np.array([20]))
    foreign = gzip_member(b"b" * 30) + gzip_member(b"c" * 40)
    packer.begin_packed()
    packer.add_packed(foreign[:10])
    packer.add_packed(foreign[10:])
    packer.end_packed([(0, 0), (len(gzip_member(b"b" * 30)), 30)], 70)
    packer.add(b"d" * 50, np.array([50]))
    packer.finish()
    data = b"".join(pieces)
    wanted = [b"a" * 20, b"b" * 30, b"c" * 40, b"d" * 50]
    assert members_of(data) == wanted
    assert gzip.decompress(data) == b"".join(wanted)
    assert [unpacked for _, unpacked in packer.members] == [0, 20, 50, 90]
    for (start, _), member in zip(packer.members, wanted, strict=True):
        assert zlib.decompressobj(31).decompress(data[start:]) == member
    assert (packer.packed, packer.unpacked) == (len(data), 140)


def test_room_is_what_is_left_of_a_member() -> None:
    packer = Compressor(lambda _: None, Compression.GZIP)
    assert packer.room == MEMBER_BYTES
    packer.add(bytes(1000), np.array([1000]))
    assert packer.room == MEMBER_BYTES - 1000
    packer.add(bytes(MEMBER_BYTES), np.array([MEMBER_BYTES]))
    assert packer.room == MEMBER_BYTES
