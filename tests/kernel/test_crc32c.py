"""CRC-32C against Google's implementation, in every way the kernel computes it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

import google_crc32c
import pytest

from tests.kernel.examples import seeded

if TYPE_CHECKING:
    from types import ModuleType

DATA = seeded(1).randbytes(20_100)
LANE, LONG_LANE = 3 * 256, 3 * 4096
BORDERS = [
    border * times + near
    for border in (8, LANE, LONG_LANE)
    for times in (1, 2)
    for near in (-9, -8, -1, 0, 1, 7, 8, 9)
    if border * times + near >= 0 and border * times + near <= 20_000
]
LENGTHS = sorted({*range(70), *BORDERS, LONG_LANE + LANE, LONG_LANE + LANE + 13, 19_999, 20_000})

VECTORS = [
    (b"", 0x00000000),
    (b"a", 0xC1D04330),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "crc"), VECTORS)
def test_the_vectors_of_the_standard_come_out(kernel: ModuleType, data: bytes, crc: int) -> None:
    assert kernel.crc32c(data) == crc


def test_every_length_and_start_gives_googles_crc(kernel: ModuleType) -> None:
    view = memoryview(DATA)
    for length in LENGTHS:
        for start in (0, 1, 3, 7):
            piece = view[start : start + length]
            assert kernel.crc32c(piece) == google_crc32c.value(bytes(piece)), (start, length)


def test_all_lengths_up_to_20000_give_googles_crc(compiled: ModuleType) -> None:
    view = memoryview(DATA)
    crc = 0
    for length in range(20_001):
        start = length % 16
        assert compiled.crc32c(view[:length]) == crc
        crc = google_crc32c.extend(crc, DATA[length : length + 1])
        piece = view[start : start + length]
        if length % 7 == 0:
            assert compiled.crc32c(piece) == google_crc32c.value(bytes(piece))


def test_any_buffer_is_taken(kernel: ModuleType) -> None:
    want = google_crc32c.value(DATA[:100])
    for buffer in (bytearray(DATA[:100]), memoryview(DATA)[:100], memoryview(DATA[:100]).cast("i")):
        assert kernel.crc32c(buffer) == want
    for empty in (b"", bytearray(), memoryview(b"")):
        assert kernel.crc32c(empty) == 0
        assert kernel.crc32c(empty, 77) == 77


def test_a_crc_goes_on_from_the_crc_of_what_came_before(kernel: ModuleType) -> None:
    want = google_crc32c.value(DATA[:5000])
    for cut in (0, 1, 7, 8, 255, LANE - 1, LANE, LANE + 1, 4999, 5000):
        assert kernel.crc32c(DATA[cut:5000], kernel.crc32c(DATA[:cut])) == want


def test_combine_gives_the_crc_of_the_pieces_laid_end_to_end(kernel: ModuleType) -> None:
    rng = seeded(2)
    for _ in range(60):
        first, second = (rng.randbytes(rng.choice((0, 1, 7, 64, 1000))) for _ in range(2))
        crcs = google_crc32c.value(first), google_crc32c.value(second)
        want = google_crc32c.value(first + second)
        assert kernel.crc32c_combine(*crcs, len(second)) == want


def test_combine_with_nothing_behind_changes_nothing(kernel: ModuleType) -> None:
    assert kernel.crc32c_combine(0x12345678, 0, 0) == 0x12345678
    assert kernel.crc32c_combine(0, 0x12345678, 500) == 0x12345678


@cache
def crcs_of_zeros(start: int, pieces: int) -> int:
    """Google's CRC of `pieces` times 64 MiB of zeros, going on from `start`."""
    zeros = bytes(2**26)
    for _ in range(pieces):
        start = google_crc32c.extend(start, zeros)
    return start


def test_combine_reaches_past_four_gibibytes(kernel: ModuleType) -> None:
    first, pieces = google_crc32c.value(b"first"), 65
    second = crcs_of_zeros(0, pieces)
    want = crcs_of_zeros(first, pieces)
    assert kernel.crc32c_combine(first, second, pieces * 2**26) == want


@pytest.mark.parametrize("size", [2**32 - 1, 2**32, 2**32 + 1, 5 * 2**32 + 12345, 2**63, 2**64 - 1])
def test_both_kernels_combine_alike_over_huge_sizes(
    reference: ModuleType, compiled: ModuleType, size: int
) -> None:
    rng = seeded(size)
    for _ in range(20):
        first, second = rng.getrandbits(32), rng.getrandbits(32)
        want = reference.crc32c_combine(first, second, size)
        assert compiled.crc32c_combine(first, second, size) == want


def test_a_piece_of_negative_size_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="have -1 bytes"):
        kernel.crc32c_combine(0, 0, -1)


def test_the_table_gives_what_the_instruction_gives(compiled: ModuleType) -> None:
    program = (
        "import sys; from shardline.kernel import compiled as k; data = sys.stdin.buffer.read()\n"
        "lengths = eval(sys.argv[1]); view = memoryview(data)\n"
        "print(k.crc_source(), *[k.crc32c(view[i % 8 : i % 8 + i], i) for i in lengths])"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, repr(LENGTHS)],
        input=DATA,
        capture_output=True,
        check=True,
        env=os.environ | {"SHARDLINE_CRC32C": "table"},
    )
    source, *crcs = result.stdout.split()
    assert source == b"table"
    assert compiled.crc_source() in {"table", "sse4.2", "arm-crc"}
    view = memoryview(DATA)
    assert [int(crc) for crc in crcs] == [
        compiled.crc32c(view[i % 8 : i % 8 + i], i) for i in LENGTHS
    ]
    assert [int(crc) for crc in crcs] == [
        google_crc32c.extend(i, DATA[i % 8 : i % 8 + i]) for i in LENGTHS
    ]
