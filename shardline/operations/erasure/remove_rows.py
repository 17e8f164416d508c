"""Rewrite of a shard without some of its records. All other frames are copied unchanged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import CorruptFileError
from shardline.kernel.types import HEADER_BYTES
from shardline.operations.erasure.record_search import make_shard_error
from shardline.operations.shard_writer import ShardPlan, make_shard
from shardline.provenance.shard_mapping import collapse_rows
from shardline.readers.records import count_read_bytes
from shardline.tfrecord.compression import Compression, get_frame_ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.execution.executor import TaskContext
    from shardline.kernel.types import Buffer, IntArray
    from shardline.log.model import Base, Shard
    from shardline.operations.shard_writer import OpenShard
    from shardline.readers.records import Records
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.record_block import RecordBlock

_BLOCK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class RemoveRowsTask:
    """A shard to rewrite without some rows.

    An overlay needs a `base` without the same rows. If there is none, the rewritten shard has the
    features of both: `records` then are those of the overlay joined with its base.
    """

    store: Store
    dataset: str
    version: str
    shard: Shard
    records: Records
    rows: IntArray
    base: Base | None
    limits: Limits
    attempt: int = 0
    kind: str = "erase"

    @property
    def step(self) -> str:
        """Progress step of the operation."""
        return "erasing" if self.kind == "erase" else "replacing"

    @property
    def label(self) -> str:
        """Name of the old shard."""
        return self.shard.name

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return count_read_bytes([self.records])

    @property
    def plan(self) -> ShardPlan:
        """The new shard. Its name depends on the removed rows, not on their values."""
        is_compressed = self.shard.compression != "none"
        compression = Compression.GZIP if is_compressed else Compression.NONE
        is_joined = self.shard.base is not None and self.base is None
        return ShardPlan(
            self.store,
            self.dataset,
            self.version,
            _make_identity(self.shard, collapse_rows(self.rows), self.base, self.kind),
            compression,
            self.shard.source,
            self.records.path,
            max_bytes=None if is_compressed or is_joined else self.shard.bytes,
            base=self.base,
        )

    def at(self, attempt: int) -> RemoveRowsTask:
        """Return the task for another attempt."""
        return replace(self, attempt=attempt)


def _make_identity(
    old: Shard,
    removed: Sequence[tuple[int, int]],
    base: Base | None,
    kind: str = "erase",
) -> dict[str, object]:
    """Return the identity that is hashed into the name of the new shard.

    Args:
        old: The old shard.
        removed: Spans of the removed rows.
        base: The base of the new shard.
        kind: The operation.
    """
    spans = ",".join(f"{first}-{last}" for first, last in removed)
    return {
        "operation": kind,
        "shard": [old.name, old.content],
        "rows": hashlib.sha256(spans.encode()).hexdigest(),
        "base": None if base is None else [base.name, base.sha256],
        "folded": old.base is not None and base is None,
    }


def make_shard_without_rows(task: RemoveRowsTask, running: TaskContext) -> Receipt:
    """Write the shard of a task, or find it written."""
    plan = replace(task.plan, hash_in_thread=running.workers > 1)
    try:
        return make_shard(plan, _KeptRecordsWriter(task, running), attempt=task.attempt)
    except CorruptFileError as error:
        raise make_shard_error(f"{task.dataset}/{task.version}", error) from error


@dataclass(frozen=True, slots=True)
class _KeptRecordsWriter:
    """Writer of the records that stay."""

    task: RemoveRowsTask
    running: TaskContext

    def begin(self) -> None:
        """Do nothing: every attempt starts with the first record."""

    def fill(self, part: OpenShard) -> bool:
        """Copy the records. The shard is empty if none stays.

        The receipt names the removed rows, which no quarantine keeps.
        """
        task, sink = self.task, part.shard
        for block in task.records.blocks(limits=task.limits, block_bytes=_BLOCK_BYTES):
            for data, starts, lengths in _iter_runs(block, task.rows):
                sink.add(data, starts, lengths)
            part.end = block.record + len(block.starts)
            self.running.report(task.size * part.end // max(task.shard.records, 1), part.end)
        part.quarantined_spans += collapse_rows(task.rows)
        return True


def _iter_runs(block: RecordBlock, rows: IntArray) -> Iterator[tuple[Buffer, IntArray, IntArray]]:
    """Yield the frames that stay, in runs without a gap."""
    count = len(block.starts)
    low, high = np.searchsorted(rows, (block.record, block.record + count))
    removed = rows[low:high] - block.record
    if not len(removed):
        yield block.data, block.starts, block.lengths
        return
    ends = get_frame_ends(block.starts, block.lengths)
    begin = 0
    for stop in (*removed.tolist(), count):
        if stop > begin:
            first, last = int(block.starts[begin]) - HEADER_BYTES, int(ends[stop - 1])
            run = slice(begin, stop)
            yield block.data[first:last], block.starts[run] - first, block.lengths[run]
        begin = stop + 1
