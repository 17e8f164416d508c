"""Read a shard whole before parts of it are copied: a part cannot tell what it is a part of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import WrongShardError
from shardline.hints import Hint
from shardline.kernel.types import HEADER_BYTES
from shardline.operations.copying import refuse_wrong
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.open_file import StoredFile
from shardline.tfrecord.reader import RecordFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.execution.executor import Running
    from shardline.log.model import Shard
    from shardline.operations.copying import Span
    from shardline.operations.rebuild_plan import Slice
    from shardline.storage import Store
    from shardline.tfrecord.reader import Block, Limits


@dataclass(frozen=True, slots=True)
class CutTask:
    """A shard of which spans are to be copied."""

    store: Store
    name: str
    shard: Shard
    spans: tuple[Span, ...]
    limits: Limits

    step = "verifying"

    @property
    def label(self) -> str:
        """What people call it."""
        return self.shard.name

    @property
    def size(self) -> int:
        """How many bytes it reads."""
        return self.shard.bytes


def cut_shards(store: Store, outputs: Iterable[Sequence[Slice]], limits: Limits) -> list[CutTask]:
    """The shards of which these outputs take a part, each once."""
    spans: dict[str, list[Span]] = {}
    shards: dict[str, Shard] = {}
    for piece in (piece for output in outputs for piece in output):
        if piece.span is not None:
            spans.setdefault(piece.name, []).append(piece.span)
            shards[piece.name] = piece.shard
    return [CutTask(store, name, shards[name], tuple(spans[name]), limits) for name in spans]


def verify_cut(task: CutTask, running: Running) -> None:
    """Refuse a shard that is damaged, or not the one that was committed, or cut elsewhere.

    Raises DamagedFileError or WrongShardError.
    """
    source = StoredFile(task.store, task.name)
    file = HashedFile(source.open())
    borders = _Borders(task.spans)
    count = end = 0
    with RecordFile(file, limits=task.limits) as read:
        for block in read.blocks():
            borders.compare(block)
            count += len(block.starts)
            end = block.offset + len(block.data)
            running.tell(read.stream.position, count)
        refuse_wrong(
            source, file.finish(), count, sha256=task.shard.sha256, records=task.shard.records
        )
    if not borders.are_right(count, end):
        raise WrongShardError(
            f"{source}.index: the index does not match its shard, which is intact",
            code="index-mismatch",
            hint=Hint.of("delete the index, which is derived, and rebuild again"),
            path=f"{source}.index",
        )


class _Borders:
    """Where spans begin and end, compared with where the records really do."""

    def __init__(self, spans: Sequence[Span]) -> None:
        told = {(span.first, span.start_byte) for span in spans}
        self._left = sorted(told | {(span.end, span.end_byte) for span in spans}, reverse=True)
        self._right = True

    def compare(self, block: Block) -> None:
        """Look at those at which a record of the block begins."""
        while self._left and self._left[-1][0] < block.record + len(block.starts):
            record, byte = self._left.pop()
            begins = block.offset + int(block.starts[record - block.record]) - HEADER_BYTES
            self._right &= begins == byte

    def are_right(self, records: int, end: int) -> bool:
        """Whether all were; one may be left, at the end of the shard."""
        return self._right and self._left in ([], [(records, end)])
