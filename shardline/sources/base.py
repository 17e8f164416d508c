"""What all sources share: who they are, and that the first rows are looked at before the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shardline.errors import SchemaMismatchError, ShardlineError
from shardline.sources.mismatch import refuse_rows
from shardline.sources.source import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.model import Source as Identity
    from shardline.schema.encoding import Frames
    from shardline.schema.schema import Schema
    from shardline.sources.origin import Origin, Progress
    from shardline.tfrecord.reader import Limits

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

    def __init__(self, origin: Origin, limits: Limits) -> None:
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


class OwnSchema(Chunk, Protocol):
    """A chunk that can tell what schema its rows have by themselves."""

    def infer(self) -> Schema:
        """The schema that its rows suggest."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """A chunk whose records are made already; `of` is what it was before."""

    position: int
    end: int
    made: Frames
    of: OwnSchema

    def frames(self) -> Frames:
        """Its records."""
        return self.made


def after_a_look(
    shown: str, schema: Schema, chunks: Iterator[OwnSchema], *, exact: bool = False
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
                refuse_rows(shown, schema, own, exact=exact)
        yield Done(chunk.position, chunk.end, made, chunk)
        if len(made.rows) or made.refused:
            break
    yield from chunks
