"""Working on one file side by side gives what reading it from front to back gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from shardline import kernel
from shardline.errors import ColumnError, CorruptFileError
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.writer import write_records
from tests.errors import raises

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.tfrecord.record_block import RecordBlock

STRETCH = 100


def payloads_of(block: RecordBlock) -> list[bytes]:
    return [bytes(payload) for payload in block.payloads()]


def read(path: Path, workers: int, stretch: int = STRETCH) -> tuple[list[bytes], object]:
    """Every payload up to the end or the first damage, and that damage."""
    found: list[bytes] = []
    try:
        for payloads in map_blocks(path, payloads_of, workers=workers, stretch_bytes=stretch):
            found += payloads
    except CorruptFileError as error:
        return found, (error.kind, error.record, error.offset, error.detail)
    return found, None


def some_payloads(seed: int) -> list[bytes]:
    """Short, empty and long payloads, and some that hold whole frames."""
    source = random.Random(seed)
    payloads = []
    for _ in range(source.randint(1, 40)):
        kind = source.random()
        if kind < 0.2:
            inner = [source.randbytes(source.randint(0, 20)) for _ in range(source.randint(1, 6))]
            payloads.append(source.randbytes(3) + kernel.frame(inner) + source.randbytes(2))
        elif kind < 0.3:
            payloads.append(source.randbytes(source.randint(200, 700)))
        else:
            payloads.append(source.randbytes(source.randint(0, 40)))
    return payloads


@pytest.mark.parametrize("seed", range(60))
def test_every_record_comes_once_and_in_order(tmp_path: Path, seed: int) -> None:
    payloads = some_payloads(seed)
    path = tmp_path / "records"
    write_records(path, payloads)
    for stretch in (17, 60, STRETCH, 333):
        assert read(path, 3, stretch) == (payloads, None)


@pytest.mark.parametrize("seed", range(6))
def test_damage_anywhere_is_told_as_by_a_reader_from_front_to_back(
    tmp_path: Path, seed: int
) -> None:
    payloads = some_payloads(seed)[:12]
    whole = kernel.frame(payloads)
    path = tmp_path / "records"
    source = random.Random(seed)
    for offset in sorted(source.sample(range(len(whole)), min(len(whole), 60))):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << source.randrange(8)
        path.write_bytes(damaged)
        expected = read(path, 1)
        assert expected[1] is not None
        assert read(path, 3) == expected
        path.write_bytes(whole[:offset])
        assert read(path, 3) == read(path, 1)


def test_what_the_work_raises_comes_behind_the_results_before_it(tmp_path: Path) -> None:
    path = tmp_path / "records"
    write_records(path, [bytes([number]) * 20 for number in range(100)])

    def work(block: RecordBlock) -> int:
        for number, payload in enumerate(block.payloads()):
            if payload[0] == 77:
                raise ColumnError(block.record + number, "field", "is seventy-seven")
        return len(block.starts)

    done: list[int] = []
    with raises(ColumnError, "value-mismatch", record=77, feature="field"):
        done.extend(map_blocks(path, work, workers=3, stretch_bytes=STRETCH))
    assert 0 < sum(done) <= 77


def test_packed_files_are_read_in_order_too(tmp_path: Path) -> None:
    payloads = some_payloads(1)
    for compression in ("gzip", "zlib"):
        path = tmp_path / compression
        write_records(path, payloads, compression=compression)
        assert read(path, 3) == (payloads, None)


def test_progress_reaches_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records"
    write_records(path, [b"x" * 30] * 200)
    told: list[int] = []
    for _ in map_blocks(path, payloads_of, workers=2, stretch_bytes=STRETCH, progress=told.append):
        pass
    assert told == sorted(told)
    assert told[-1] > path.stat().st_size / 2
