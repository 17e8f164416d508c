"""Source protocol of an append: identity, and framed records in chunks.

A source reads in order and cheaply. Encoding rows as records is the work of a chunk; an
append encodes several chunks concurrently.
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
    """Rows of a source, read but not yet encoded."""

    @property
    def position(self) -> int:
        """Bytes of the source read so far, including this chunk."""
        ...

    @property
    def end(self) -> int:
        """Number of the first row after this chunk."""
        ...

    def frames(self) -> EncodedRows:
        """Return the framed records, each of which fits the schema; callable on any thread."""
        ...


class RecordSource(Protocol):
    """Source of records for an append."""

    @property
    def label(self) -> str:
        """Label for users: the path, or the name of the batch."""
        ...

    @property
    def size(self) -> int | None:
        """Size in bytes for progress, or None if unknown."""
        ...

    def identity(self, progress: Callable[[int], None] | None = None) -> Identity:
        """Return the source identity; a file is read once to hash it."""
        ...

    def infer(self, *, allow_rounding: bool = False) -> Schema:
        """Infer a schema that all rows fit, reading the whole source.

        Raises SchemaMismatchError if no schema can be inferred, or if every kind would lose digits
        of a number; `allow_rounding` accepts the loss.
        """
        ...

    def chunks(self, schema: Schema, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows from number `start` in order, as chunks to encode with this schema.

        Raises:
            SchemaMismatchError: The source plainly has another schema.
            CorruptFileError: A TFRecord file is corrupt.
            SourceError: The source cannot be read, or differs from what `identity` read.
        """
        ...


CHUNK_BYTES = 4 * 1024 * 1024
"""Approximate size of a chunk; a single larger row forms its own chunk."""


@contextmanager
def add_path(path: str | None) -> Iterator[None]:
    """Set the path on errors that have none."""
    try:
        yield
    except ShardlineError as error:
        if error.path is None:
            error.path = path
        raise


class Source(ABC):
    """Base of sources: an identity and the reading of rows."""

    def __init__(self, origin: SourceIdentity, limits: Limits) -> None:
        self._origin = origin
        self._limits = limits

    @property
    def label(self) -> str:
        """Label for users."""
        return self._origin.label

    @property
    def size(self) -> int | None:
        """Size in bytes, or None if unknown."""
        return self._origin.size

    def identity(self, progress: Progress = None) -> Identity:
        """Return the source identity; a file is read once to hash it."""
        return self._origin.identity(progress)

    def infer(self, *, allow_rounding: bool = False) -> Schema:
        """Infer a schema that all rows fit, reading the whole source.

        No number loses a digit before the decimal point, unless `allow_rounding` is set.
        """
        with add_path(self._origin.path):
            return self._infer(allow_rounding=allow_rounding)

    @abstractmethod
    def _infer(self, *, allow_rounding: bool) -> Schema:
        """Infer the schema from all rows."""

    def chunks(self, schema: Schema, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows from number `start` in order, as chunks to encode with this schema."""
        with add_path(self._origin.path):
            self._origin.note()
            yield from self._read(schema, start)
            self._origin.check_unchanged()

    @abstractmethod
    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        """Read the rows as chunks."""


class SelfDescribingChunk(Chunk, Protocol):
    """Chunk that can infer a schema from its rows."""

    def infer(self) -> Schema:
        """Infer the schema of the rows."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """Chunk with encoded records; `of` is the original chunk."""

    position: int
    end: int
    encoded: EncodedRows
    chunk: SelfDescribingChunk

    def frames(self) -> EncodedRows:
        """Return the framed records."""
        return self.encoded


def check_first_chunk(
    label: str, schema: Schema, chunks: Iterator[SelfDescribingChunk], *, exact: bool = False
) -> Iterator[Chunk]:
    """Yield the chunks; SchemaMismatchError if the first plainly has rows of another schema.

    The error requires that no row of the first chunk fits.
    """
    for chunk in chunks:
        encoded = chunk.frames()
        if encoded.refused and not len(encoded.rows):
            try:
                own = chunk.infer()
            except SchemaMismatchError:
                own = None  # No schema can be inferred: each row is reported separately.
            if own is not None and own.features:
                validate_rows(label, schema, own, exact=exact)
        yield EncodedChunk(chunk.position, chunk.end, encoded, chunk)
        if len(encoded.rows) or encoded.refused:
            break
    yield from chunks


class SmallFile(NamedTuple):
    """Content of a small file as whole rows; files of one `family` can be joined."""

    family: Hashable
    data: bytes


class JoinedChunk(NamedTuple):
    """Rows of several files as one chunk; `ends` holds the row number after each file."""

    chunk: Chunk
    ends: IntArray


class JoinableSource(Source):
    """File whose rows can be read together with those of other files."""

    _file: FileIdentity

    def read_small(self) -> SmallFile | None:
        """Read the file if it is small and plain; None if it must be read separately."""
        data = self._file.read_again()
        if not data or data.startswith(GZIP_MAGIC):
            return None
        return self._small(data)

    @abstractmethod
    def _small(self, data: bytes) -> SmallFile | None:
        """Return a plain file as whole rows; None if row boundaries are uncertain."""

    @abstractmethod
    def join(self, schema: Schema, files: Sequence[SmallFile]) -> JoinedChunk | None:
        """Return the joined rows of files of this family; None if boundaries are uncertain."""

    @abstractmethod
    def schema_mark(self, file: SmallFile) -> Hashable | None:
        """Return what decides the schema of a file; equal marks mean equal schemas.

        Returns None if only inference can decide.
        """


class FileRecords(NamedTuple):
    """Records of a whole file, one per row, and the number of rows."""

    frames: EncodedRows
    rows: int


def read_small_files(sources: Sequence[RecordSource], schema: Schema) -> list[FileRecords | None]:
    """Return the records of small files; None for each file that must be read separately."""
    results: list[FileRecords | None] = [None] * len(sources)
    families: dict[Hashable, list[tuple[int, SmallFile]]] = {}
    for index, source in enumerate(sources):
        small = source.read_small() if isinstance(source, JoinableSource) else None
        if small is not None:
            families.setdefault((type(source), small.family), []).append((index, small))
    for members in families.values():
        first = sources[members[0][0]]
        if isinstance(first, JoinableSource):
            files = [file for _, file in members]
            for (index, _), records in zip(members, _read(first, schema, files), strict=True):
                results[index] = records
    return results


def _read(
    source: JoinableSource, schema: Schema, files: Sequence[SmallFile]
) -> Sequence[FileRecords | None]:
    """Read files of one family; split in halves if a row does not fit."""
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
    """Split the records by file; None for a file with rows without a record.

    Blank lines are such rows.
    """
    data = memoryview(frames.data)
    cut_rows = np.searchsorted(frames.rows, ends).tolist()
    cuts = np.append(frames.starts - HEADER_BYTES, len(data))
    if len(frames.starts):
        cuts[-1] = frames.starts[-1] + frames.lengths[-1] + FOOTER_BYTES
    first = row = 0
    for last, end in zip(cut_rows, ends.tolist(), strict=True):
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
    """Infer a schema that all rows of all these sources fit.

    No number loses a digit before the decimal point, unless `allow_rounding` is set. Raises
    SchemaMismatchError if no kind holds all values, or if sources differ in the kind of a
    feature.
    """
    merged: Schema | None = None
    first = ""
    marks: set[Hashable] = set()
    for source in sources:
        mark = _get_schema_mark(source)
        if mark is not None and mark in marks:
            continue  # Merging an equal schema changes nothing.
        marks.add(mark)
        schema = source.infer(allow_rounding=True) if allow_rounding else source.infer()
        if not schema.features and schema.payload != "opaque":
            continue  # An empty source suggests no schema.
        if merged is None:
            merged, first = schema, source.label
        else:
            merged = merge_schemas(merged, schema, f"{first} and {source.label}")
    return merged or Schema()


def _get_schema_mark(source: RecordSource) -> Hashable | None:
    """Return what decides the schema of a small file; None if only inference can."""
    small = source.read_small() if isinstance(source, JoinableSource) else None
    if small is None or not isinstance(source, JoinableSource):
        return None
    mark = source.schema_mark(small)
    return None if mark is None else (type(source), mark)
