"""Streams that are read ahead in order, and a stream that several threads share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.execution.threads import map_streams, share_stream
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

NONE = np.zeros(0, np.int64)


class Files:
    """Files by their number of blocks: each block is its own number as a byte, in one buffer."""

    def __init__(self, *, bad: tuple[int, int] | None = None) -> None:
        self.bad = bad
        self.read: list[tuple[int, int]] = []
        self.closed: list[int] = []

    def open_blocks(self, file: tuple[int, int]) -> Generator[RecordBlock, None, None]:
        name, count = file
        buffer = bytearray(1)
        try:
            for block in range(count):
                if (name, block) == self.bad:
                    raise OSError(f"{name}, {block}")
                buffer[0] = block
                self.read.append((name, block))
                yield RecordBlock(memoryview(buffer), 0, block, NONE, NONE)
        finally:
            self.closed.append(name)


def describe(file: tuple[int, int], block: RecordBlock) -> tuple[int, int, int]:
    return file[0], block.record, block.data[0]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 5))
def test_results_keep_block_order(counts: list[int], threads: int) -> None:
    files = Files()
    found = list(
        map_streams(
            list(enumerate(counts)),
            files.open_blocks,
            describe,
            copy=RecordBlock.copy,
            threads=threads,
        )
    )
    assert found == [(name, at, at) for name, count in enumerate(counts) for at in range(count)]
    assert sorted(files.closed) == list(range(len(counts)))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("bad", [(0, 0), (1, 0), (1, 7), (3, 2)])
def test_read_error_follows_earlier_results(threads: int, bad: tuple[int, int]) -> None:
    files = Files(bad=bad)
    results = map_streams(
        [(name, 8) for name in range(5)],
        files.open_blocks,
        describe,
        copy=RecordBlock.copy,
        threads=threads,
    )
    before = [(name, at, at) for name in range(5) for at in range(8) if (name, at) < bad]
    assert list(islice(results, len(before))) == before
    with pytest.raises(OSError, match=f"^{bad[0]}, {bad[1]}$"):
        next(results)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_work_error_follows_earlier_results(threads: int) -> None:
    def work(file: tuple[int, int], block: RecordBlock) -> int:
        if (file[0], block.record) == (1, 3):
            raise ValueError("no")
        return block.record

    results = map_streams(
        [(0, 2), (1, 9)], Files().open_blocks, work, copy=RecordBlock.copy, threads=threads
    )
    found = [next(results) for _ in range(5)]
    assert found == [0, 1, 0, 1, 2]
    with pytest.raises(ValueError, match="no"):
        next(results)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_few_blocks_are_prefetched(threads: int) -> None:
    files, before = Files(), set(threading.enumerate())
    results = map_streams(
        [(name, 1000) for name in range(100)],
        files.open_blocks,
        describe,
        copy=RecordBlock.copy,
        threads=threads,
    )
    for taken in range(1, 50):
        next(results)
        assert len(files.read) <= taken + (threads + 1) + 2 * threads
    results.close()  # type: ignore[attr-defined] # it is a generator
    assert set(threading.enumerate()) <= before
    assert set(files.closed) == {name for name, _ in files.read}


def test_shared_stream_is_read_once() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(2000):
            read.append(number)
            yield number

    lanes = share_stream(items(), 3)
    with ThreadPoolExecutor(3) as pool:
        taken: list[list[int]] = list(pool.map(list, lanes))
    assert taken == [list(range(2000))] * 3
    assert read == list(range(2000))


def test_shared_stream_reads_on_demand() -> None:
    source = iter(range(10))
    first, second = share_stream(source, 2)
    assert (next(first), next(first)) == (0, 1)
    assert next(source) == 2
    assert [*second] == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def test_shared_stream_error_reaches_one_reader() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    first, second = share_stream(items(), 2)
    assert next(first) == 1
    with pytest.raises(OSError, match="gone"):
        next(first)
    assert [*second] == [1]
