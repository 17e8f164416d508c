"""Read many small files at once: their rows cost as much as those of a single file.

What it takes to turn rows into records is paid for each block of rows, however few they are. So the
texts of small files of one kind are joined to one block, and its records are shared out again. A
file of which a row does not fit is left to be read by itself: then the reason is told as usual.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shardline.errors import ShardlineError
from shardline.kernel.types import FOOTER_BYTES, HEADER_BYTES
from shardline.schema.encoding import Frames
from shardline.sources.base import Source
from shardline.tfrecord.decompression import GZIP_MAGIC

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from shardline.kernel.types import IntArray
    from shardline.schema.schema import Schema
    from shardline.sources.origin import FileOrigin
    from shardline.sources.source import Chunk, RecordSource


class SmallFile(NamedTuple):
    """The content of a small file: whole rows. Those of one `family` can be joined."""

    family: Hashable
    data: bytes


class Joined(NamedTuple):
    """The rows of several files as one chunk; `ends` are the numbers of the rows after each."""

    chunk: Chunk
    ends: IntArray


class JoinableSource(Source):
    """A file whose rows can be read together with those of others."""

    _file: FileOrigin

    def read_small(self) -> SmallFile | None:
        """Read the file, if it is small and plain; None if it must be read by itself."""
        data = self._file.read_again()
        if not data or data.startswith(GZIP_MAGIC):
            return None
        return self._small(data)

    @abstractmethod
    def _small(self, data: bytes) -> SmallFile | None:
        """Return the content of a plain file as whole rows; None if that cannot be told."""

    @abstractmethod
    def join(self, schema: Schema, files: Sequence[SmallFile]) -> Joined | None:
        """Return the rows of files of this family; None if they cannot be told apart."""

    @abstractmethod
    def schema_mark(self, file: SmallFile) -> Hashable | None:
        """Return what decides the schema of a file: files with equal marks suggest the same one.

        None if only inference can tell.
        """


class FileFrames(NamedTuple):
    """The records of a whole file, each of a row of its own, and the number of its rows."""

    frames: Frames
    rows: int


def read_together(sources: Sequence[RecordSource], schema: Schema) -> list[FileFrames | None]:
    """Return the records of small files; None for each file that must be read by itself."""
    found: list[FileFrames | None] = [None] * len(sources)
    families: dict[Hashable, list[tuple[int, SmallFile]]] = {}
    for at, source in enumerate(sources):
        small = source.read_small() if isinstance(source, JoinableSource) else None
        if small is not None:
            families.setdefault((type(source), small.family), []).append((at, small))
    for members in families.values():
        first = sources[members[0][0]]
        if isinstance(first, JoinableSource):
            files = [file for _, file in members]
            for (at, _), made in zip(members, _read(first, schema, files), strict=True):
                found[at] = made
    return found


def _read(
    source: JoinableSource, schema: Schema, files: Sequence[SmallFile]
) -> Sequence[FileFrames | None]:
    """Read files of one family; in halves, if a row of one of them does not fit."""
    try:
        joined = source.join(schema, files)
        frames = None if joined is None else joined.chunk.frames()
    except ShardlineError:
        return [None] * len(files)
    if joined is not None and frames is not None and not frames.refused:
        return list(_cut(frames, joined.ends))
    if len(files) == 1:
        return [None]
    half = len(files) // 2
    return [*_read(source, schema, files[:half]), *_read(source, schema, files[half:])]


def _cut(frames: Frames, ends: IntArray) -> Iterator[FileFrames | None]:
    """Share out the records; None for a file with rows that gave none, such as blank lines."""
    data = memoryview(frames.data)
    places = np.searchsorted(frames.rows, ends).tolist()
    cuts = np.append(frames.starts - HEADER_BYTES, len(data))
    if len(frames.starts):
        cuts[-1] = frames.starts[-1] + frames.lengths[-1] + FOOTER_BYTES
    first = row = 0
    for last, end in zip(places, ends.tolist(), strict=True):
        count, rows = last - first, end - row
        if not count or count != rows:
            yield None
        else:
            begin, stop = int(cuts[first]), int(cuts[last])
            piece = slice(first, last)
            yield FileFrames(
                Frames(
                    data[begin:stop],
                    frames.starts[piece] - begin,
                    frames.lengths[piece],
                    frames.rows[piece] - row,
                ),
                rows,
            )
        first, row = last, end
