"""Multi-part messages on pipes between processes.

A message starts with the number of its parts and their sizes. This module imports almost nothing,
so that a small process can use it.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader, BufferedWriter
    from typing import Any, TypeAlias

    Part: TypeAlias = Any
    """Object with a buffer: bytes, a memoryview or a pyarrow.Buffer."""
    Message: TypeAlias = list[memoryview]

_COUNT = struct.Struct("<Q")


def send(pipe: BufferedWriter, *parts: Part) -> None:
    """Write one message."""
    views = [memoryview(part).cast("B") for part in parts]
    pipe.write(b"".join(map(_COUNT.pack, [len(views), *map(len, views)])))
    pipe.writelines(views)
    pipe.flush()


def receive(pipe: BufferedReader, allocate: Callable[[int], Part] = bytearray) -> Message:
    """Read one message. Raises EOFError if the process at the other end has exited.

    `allocate` returns memory for a part, which need not be zeroed.
    """
    (count,) = _COUNT.unpack(_read(pipe, _COUNT.size))
    sizes = [_COUNT.unpack(_read(pipe, _COUNT.size))[0] for _ in range(count)]
    return [_read(pipe, size, allocate) for size in sizes]


def _read(
    pipe: BufferedReader, size: int, allocate: Callable[[int], Part] = bytearray
) -> memoryview:
    view = memoryview(allocate(size)).cast("B")
    if pipe.readinto(view) < size:
        raise EOFError("the other end of the pipe is gone")
    return view
