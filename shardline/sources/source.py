"""What an append asks of a source: who it is, and its records, framed, chunk by chunk.

A source reads in order and cheaply; turning what was read into records is the chunk's work, which
an append does for several chunks side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from shardline.hints import Hint, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shardline.kernel.types import IntArray
    from shardline.log.model import Source as Identity
    from shardline.schema.schema import Schema


RowFormat: TypeAlias = Literal["csv", "jsonl", "tfrecord", "json"]
"""What the content of a refused row is."""

TOO_LARGE_HINT = Hint.of("if the row is valid, raise ", Option("max_record"))


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that cannot become a record: where it stands in its source, and why.

    `row` counts from 0, `where` is that in the words of the source ("line 18"). `detail` never
    holds a value; `content` is the row itself, for the quarantine: as it stands in the source
    where that is text or a payload, else as JSON. `damage` says that it is no row that does not
    fit, but a damaged spot of the source. `format` says what the content is: a row of `csv`, whose
    header has these `columns`, a line of `jsonl`, the payload of a `tfrecord`, or a row that we
    wrote as `json`. `offset` is where the row begins, if that is known, and `is_too_large` says
    that the row is over the limit of a record.
    """

    row: int
    where: str
    feature: str | None
    detail: str
    content: bytes = b""
    damage: bool = False
    format: RowFormat | None = None
    columns: tuple[str, ...] = ()
    offset: int | None = None
    is_too_large: bool = False

    def __str__(self) -> str:
        named = "" if self.feature is None else f", feature {self.feature!r}"
        return f"{self.where}{named}: {self.detail}"


def refuse_too_long(
    row: int,
    where: str,
    offset: int,
    limit: int,
    content: bytes,
    *,
    format: RowFormat,  # noqa: A002 - as the field is called
    columns: tuple[str, ...] = (),
) -> Refused:
    """Return the refusal of a row of text that is longer than the limit."""
    detail = f"row too long (offset {offset}, limit {limit} bytes)"
    return Refused(
        row,
        where,
        None,
        detail,
        content,
        format=format,
        columns=columns,
        offset=offset,
        is_too_large=True,
    )


@dataclass(frozen=True, slots=True)
class Frames:
    """Records ready to be written: whole frames that follow each other in `data`.

    `starts` and `lengths` are those of the payloads, `rows` says from which row of the source each
    record came. `refused` are the rows that gave none, in order.
    """

    data: bytes | memoryview
    starts: IntArray
    lengths: IntArray
    rows: IntArray
    refused: tuple[Refused, ...] = ()


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
