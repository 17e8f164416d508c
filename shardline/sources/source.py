"""What an append asks of a source: who it is, and its records, framed, chunk by chunk.

A source reads in order and cheaply; turning what was read into records is the chunk's work, which
an append does for several chunks side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.log.model import Source as Identity
    from shardline.schema.encoding import Frames
    from shardline.schema.schema import Schema


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

    def frames(self) -> Frames:
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

        Raises SchemaMismatchError where it plainly has another schema, DamagedFileError where it
        is a damaged TFRecord file, and SourceError where it cannot be read, or is no longer the
        file that `identity` read.
        """
        ...
