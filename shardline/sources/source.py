"""What an append asks of a source: who it is, and its records, framed, chunk by chunk.

A source reads in order and cheaply; turning what was read into records is the chunk's work, which
an append does for several chunks side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from shardline.errors import SchemaMismatchError, ShardlineError
from shardline.kernel.types import FOOTER_BYTES, HEADER_BYTES
from shardline.schema.encoding import EncodedRows
from shardline.schema.schema import Schema
from shardline.schema.schema_finder import merge_schemas
from shardline.sources.source_mismatch import validate_rows
from shardline.tfrecord.compression import GZIP_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.model import Source as Identity
    from shardline.sources.source_identity import FileIdentity, Progress, SourceIdentity
    from shardline.tfrecord.reader import Limits


class Chunk(Protocol):
    """Some rows of a source, read and not yet turned into records."""

    @property
    def position(self) -> int:
        """How many bytes of the source have been read, this chunk included."""
        ...

    @property
    def end(self) -> int:
        """The number of the first row behind this chunk."""
        ...

    def frames(self) -> EncodedRows:
        """Its records, each of which fits the schema; may be asked on any thread."""
        ...


class RecordSource(Protocol):
    """Where the records of an append come from."""

    @property
    def shown(self) -> str:
        """The source as people know it: its path, or the name of the batch."""
        ...

    @property
    def size(self) -> int | None:
        """How many bytes it has, for progress; None if that is not known."""
        ...

    def identity(self, progress: Callable[[int], None] | None = None) -> Identity:
        """What tells it from other sources; a file is read for that, once."""
        ...

    def infer(self, *, allow_rounding: bool = False) -> Schema:
        """The schema that its rows suggest and that all of them fit; reads all of it.

        Raises SchemaMismatchError where none can be told, or where each would lose digits of a
        number; `allow_rounding` accepts that.
        """
        ...

    def chunks(self, schema: Schema, start: int = 0) -> Iterator[Chunk]:
        """Its rows from number `start` on, in order, to be turned into records of this schema.

        Raises SchemaMismatchError where it plainly has another schema, CorruptFileError where it
        is a damaged TFRecord file, and SourceError where it cannot be read, or is no longer the
        file that `identity` read.
        """
        ...


CHUNK_BYTES = 4 * 1024 * 1024
"""About how much of a source goes into one chunk, unless a single row is larger."""


@contextmanager
def add_path(path: str | None) -> Iterator[None]:
    """Add the path of the file that is read to errors that do not have a path."""
    try:
        yield
    except ShardlineError as error:
        if error.path is None:
            error.path = path
        raise


class Source(ABC):
    """A source, around where it comes from and how its rows are read."""

    def __init__(self, origin: SourceIdentity, limits: Limits) -> None:
        self._origin = origin
        self._limits = limits

    @property
    def shown(self) -> str:
        """The source as people know it."""
        return self._origin.shown

    @property
    def size(self) -> int | None:
        """How many bytes it has, None if that is not known."""
        return self._origin.size

    def identity(self, progress: Progress = None) -> Identity:
        """What tells it from other sources; a file is read for that, once."""
        return self._origin.identity(progress)

    def infer(self, *, allow_rounding: bool = False) -> Schema:
        """Return the schema that its rows suggest and that all of them fit; reads all of it.

        No number loses a digit before the decimal point, unless `allow_rounding` is set.
        """
        with add_path(self._origin.path):
            return self._infer(allow_rounding=allow_rounding)

    @abstractmethod
    def _infer(self, *, allow_rounding: bool) -> Schema:
        """Infer the schema from all rows."""

    def chunks(self, schema: Schema, start: int = 0) -> Iterator[Chunk]:
        """Its rows from number `start` on, in order, to be turned into records of this schema."""
        with add_path(self._origin.path):
            self._origin.note()
            yield from self._read(schema, start)
            self._origin.check_unchanged()

    @abstractmethod
    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        """The rows, by whoever knows how to read them."""


class SelfDescribingChunk(Chunk, Protocol):
    """A chunk that can tell what schema its rows have by themselves."""

    def infer(self) -> Schema:
        """The schema that its rows suggest."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk whose records are made already; `of` is what it was before."""

    position: int
    end: int
    made: EncodedRows
    of: SelfDescribingChunk

    def frames(self) -> EncodedRows:
        """Its records."""
        return self.made


def check_first_chunk(
    shown: str, schema: Schema, chunks: Iterator[SelfDescribingChunk], *, exact: bool = False
) -> Iterator[Chunk]:
    """The chunks, unless no row of the first fits and they are plainly rows of another schema."""
    for chunk in chunks:
        made = chunk.frames()
        if made.refused and not len(made.rows):
            try:
                own = chunk.infer()
            except SchemaMismatchError:
                own = None  # they have no schema at all: each row is told for what it is
            if own is not None and own.features:
                validate_rows(shown, schema, own, exact=exact)
        yield EncodedChunk(chunk.position, chunk.end, made, chunk)
        if len(made.rows) or made.refused:
            break
    yield from chunks


class SmallFile(NamedTuple):
    """The content of a small file: whole rows. Those of one `family` can be joined."""

    family: Hashable
    data: bytes


class JoinedChunk(NamedTuple):
    """The rows of several files as one chunk; `ends` are the numbers of the rows after each."""

    chunk: Chunk
    ends: IntArray


class JoinableSource(Source):
    """A file whose rows can be read together with those of others."""

    _file: FileIdentity

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
    def join(self, schema: Schema, files: Sequence[SmallFile]) -> JoinedChunk | None:
        """Return the rows of files of this family; None if they cannot be told apart."""

    @abstractmethod
    def schema_mark(self, file: SmallFile) -> Hashable | None:
        """Return what decides the schema of a file: files with equal marks suggest the same one.

        None if only inference can tell.
        """


class FileRecords(NamedTuple):
    """The records of a whole file, each of a row of its own, and the number of its rows."""

    frames: EncodedRows
    rows: int


def read_small_files(sources: Sequence[RecordSource], schema: Schema) -> list[FileRecords | None]:
    """Return the records of small files; None for each file that must be read by itself."""
    found: list[FileRecords | None] = [None] * len(sources)
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
) -> Sequence[FileRecords | None]:
    """Read files of one family; in halves, if a row of one of them does not fit."""
    try:
        joined = source.join(schema, files)
        frames = None if joined is None else joined.chunk.frames()
    except ShardlineError:
        return [None] * len(files)
    if joined is not None and frames is not None and not frames.refused:
        return list(_split_frames(frames, joined.ends))
    if len(files) == 1:
        return [None]
    half = len(files) // 2
    return [*_read(source, schema, files[:half]), *_read(source, schema, files[half:])]


def _split_frames(frames: EncodedRows, ends: IntArray) -> Iterator[FileRecords | None]:
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
            yield FileRecords(
                EncodedRows(
                    data[begin:stop],
                    frames.starts[piece] - begin,
                    frames.lengths[piece],
                    frames.rows[piece] - row,
                ),
                rows,
            )
        first, row = last, end


def infer_source_schema(sources: Sequence[RecordSource], *, allow_rounding: bool = False) -> Schema:
    """The schema that the rows of all these sources suggest, and that all of them fit.

    No number loses a digit before the decimal point, unless `allow_rounding` is set. Raises
    SchemaMismatchError where no kind keeps all of them, or sources differ in the kind of a feature.
    """
    merged: Schema | None = None
    first = ""
    marks: set[Hashable] = set()
    for source in sources:
        mark = _get_schema_mark(source)
        if mark is not None and mark in marks:
            continue  # to merge the same schema again changes nothing
        marks.add(mark)
        found = source.infer(allow_rounding=True) if allow_rounding else source.infer()
        if not found.features and found.payload != "opaque":
            continue  # nothing is in it, so it tells nothing
        if merged is None:
            merged, first = found, source.shown
        else:
            merged = merge_schemas(merged, found, f"{first} and {source.shown}")
    return merged or Schema()


def _get_schema_mark(source: RecordSource) -> Hashable | None:
    """Return what decides the schema that a small file suggests; None if that must be inferred."""
    small = source.read_small() if isinstance(source, JoinableSource) else None
    if small is None or not isinstance(source, JoinableSource):
        return None
    mark = source.schema_mark(small)
    return None if mark is None else (type(source), mark)
