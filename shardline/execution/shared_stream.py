"""One stream for several who take from it on threads of their own."""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def shared(items: Iterator[T], count: int) -> list[Iterator[T]]:
    """The same items for each of them, read once."""
    if count == 1:
        return [items]
    lock = Lock()
    lanes: list[deque[T]] = [deque() for _ in range(count)]

    def lane(own: deque[T]) -> Iterator[T]:
        while True:
            with lock:
                if not own:
                    for item in items:
                        for each in lanes:
                            each.append(item)
                        break
                    else:
                        return
                item = own.popleft()
            yield item

    return [lane(own) for own in lanes]
