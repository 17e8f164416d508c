"""Work ahead of whoever takes the results: in order, never too far ahead, and gone when told."""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.tfrecord.prefetch import prefetch_blocks
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Generator

NONE = np.zeros(0, np.int64)


class Files:
    """Files by their number of blocks: each block is its own number as a byte, in one buffer."""

    def __init__(self, *, bad: tuple[int, int] | None = None) -> None:
        self.bad = bad
        self.read: list[tuple[int, int]] = []
        self.closed: list[int] = []

    def blocks_of(self, file: tuple[int, int]) -> Generator[RecordBlock, None, None]:
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


def told(file: tuple[int, int], block: RecordBlock) -> tuple[int, int, int]:
    return file[0], block.record, block.data[0]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 12), max_size=8), st.integers(1, 5))
def test_the_results_are_in_the_order_of_the_blocks(counts: list[int], threads: int) -> None:
    files = Files()
    found = list(prefetch_blocks(list(enumerate(counts)), files.blocks_of, told, threads=threads))
    assert found == [(name, at, at) for name, count in enumerate(counts) for at in range(count)]
    assert sorted(files.closed) == list(range(len(counts)))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("bad", [(0, 0), (1, 0), (1, 7), (3, 2)])
def test_an_error_comes_behind_the_results_before_it(threads: int, bad: tuple[int, int]) -> None:
    files = Files(bad=bad)
    results = prefetch_blocks(
        [(name, 8) for name in range(5)], files.blocks_of, told, threads=threads
    )
    before = [(name, at, at) for name in range(5) for at in range(8) if (name, at) < bad]
    assert list(islice(results, len(before))) == before
    with pytest.raises(OSError, match=f"^{bad[0]}, {bad[1]}$"):
        next(results)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_so_does_an_error_of_the_work(threads: int) -> None:
    def work(file: tuple[int, int], block: RecordBlock) -> int:
        if (file[0], block.record) == (1, 3):
            raise ValueError("no")
        return block.record

    results = prefetch_blocks([(0, 2), (1, 9)], Files().blocks_of, work, threads=threads)
    found = [next(results) for _ in range(5)]
    assert found == [0, 1, 0, 1, 2]
    with pytest.raises(ValueError, match="no"):
        next(results)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_only_a_few_blocks_are_read_before_they_are_wanted(threads: int) -> None:
    files, before = Files(), set(threading.enumerate())
    results = prefetch_blocks(
        [(name, 1000) for name in range(100)], files.blocks_of, told, threads=threads
    )
    for taken in range(1, 50):
        next(results)
        assert len(files.read) <= taken + (threads + 1) + 2 * threads
    results.close()  # type: ignore[attr-defined] # it is a generator
    assert set(threading.enumerate()) <= before
    assert set(files.closed) == {name for name, _ in files.read}
