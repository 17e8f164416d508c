"""Write a TFRecord file into a store, with its index, in one pass."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from shardline.files.sink import RecordSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.files.compression import Compression
    from shardline.files.hashed import Content
    from shardline.storage.store import Store


@contextmanager
def write_stored(
    store: Store,
    name: str,
    compression: Compression,
    *,
    aside: bool = False,
    expected: Content | None = None,
    synced: bool = True,
) -> Iterator[RecordSink]:
    """A file of a store to write to: it and its index are there when the block ends well.

    ObjectExistsError at the start or at the end if there is one of that name. `aside` and
    `expected` say how it is hashed: see RecordSink. Without `synced`, `Store.sync` has to follow.
    """
    # The index is entered first, and so put in place last: none is there without its file.
    with (
        store.writer(f"{name}.index", derived=True) as index,
        store.writer(name, synced=synced) as file,
    ):
        sink = RecordSink(file, compression, index, aside=aside, expected=expected)
        with closing(sink):
            yield sink
