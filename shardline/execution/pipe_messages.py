"""Messages on pipes between processes: each has several parts, and each part begins with its size.

Almost nothing is imported, so that a small process can use it.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader, BufferedWriter
    from typing import Any, TypeAlias

    Part: TypeAlias = Any
    """An object with a buffer: bytes, a memoryview or a pyarrow.Buffer."""
    Message: TypeAlias = list[memoryview]

_COUNT = struct.Struct("<Q")


def send(pipe: BufferedWriter, *parts: Part) -> None:
    """Write one message."""
    views = [memoryview(part).cast("B") for part in parts]
    pipe.write(b"".join(map(_COUNT.pack, [len(views), *map(len, views)])))
    pipe.writelines(views)
    pipe.flush()


def receive(pipe: BufferedReader, allocate: Callable[[int], Part] = bytearray) -> Message:
    """Read one message; EOFError if the process at the other end is gone.

    `allocate` gives memory for a part, which need not be zero.
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
