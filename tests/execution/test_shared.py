"""One stream, taken by several."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from shardline.execution.threads import share_stream

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_each_gets_all_items_in_order_though_they_are_read_once() -> None:
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


def test_nothing_is_read_before_somebody_asks_for_it() -> None:
    source = iter(range(10))
    first, second = share_stream(source, 2)
    assert (next(first), next(first)) == (0, 1)
    assert next(source) == 2
    assert [*second] == [0, 1, 3, 4, 5, 6, 7, 8, 9]


def test_an_error_reaches_who_asked_and_the_others_get_what_came_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    first, second = share_stream(items(), 2)
    assert next(first) == 1
    with pytest.raises(OSError, match="gone"):
        next(first)
    assert [*second] == [1]
