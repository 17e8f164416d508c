"""Source replacement: the shards of the latest snapshot without the records of a source.

A replacement does not erase: older snapshots keep the old records. Shards of a single source are
removed. A shard that was rebuilt from several sources is rewritten without the replaced records.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import LogError
from shardline.hints import Hint, Option
from shardline.log.append_change import Replacement
from shardline.log.model import ROWS
from shardline.log.parameters import RepairParameters
from shardline.operations.derive import make_fresh_shards
from shardline.operations.erasure.remove_rows import RemoveRowsTask, make_shard_without_rows
from shardline.provenance.log_index import DatasetHistory, LogIndex, VersionHistory
from shardline.provenance.related_rows import list_mappings, spread_rows
from shardline.provenance.shard_mapping import MappedRows
from shardline.readers.shard_file import open_shard_file
from shardline.sidecars.row_map import NO_RECORD, RowMap, RowMapError
from shardline.sidecars.sidecar_reader import SidecarReader
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.execution.executor import Executor, ProgressListener
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.version import StoredVersion
    from shardline.operations.source_selection import KnownSource
    from shardline.provenance.shard_mapping import ShardMapping
    from shardline.sidecars.receipt import Receipt
    from shardline.tfrecord.reader import Limits


def build_exchange(
    version: StoredVersion,
    replaces: Mapping[str, Sequence[KnownSource]],
    executor: Executor,
    progress: ProgressListener | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Replacement:
    """Write the shards that replace those of earlier appends, without committing them.

    `replaces` has the replaced appends by the key of the new source. Raises LogError if the
    records of a source are unknown.
    """
    replaced = [known for group in replaces.values() for known in group]
    first = min(known.entry for known in replaced)
    entries = tuple(islice(version.log.entries(first), version.state.number - first + 1))
    history = VersionHistory(version, entries)
    mappings = _list_mappings(version, history)
    live = {shard.name: shard for shard in history.live}
    removed: dict[str, list[IntArray]] = {}
    positions: dict[str, str] = {}
    for key, group in replaces.items():
        rows = spread_rows(dict(_list_appended_rows(entries, group)), mappings).rows
        shards = [name for name in live if len(rows.get(name, ()))]
        positions |= {key: shards[0]} if shards else {}
        for name in shards:
            removed.setdefault(name, []).append(rows[name])
    removed_rows = {name: np.unique(np.concatenate(parts)) for name, parts in removed.items()}
    cut: dict[str, Shard | None] = {
        name: None for name, rows in removed_rows.items() if len(rows) == live[name].records
    }
    tasks = [
        _build_task(version, live[name], rows, limits)
        for name, rows in removed_rows.items()
        if name not in cut
    ]
    receipts = make_fresh_shards(version, tasks, make_shard_without_rows, executor, progress)
    cut |= dict(_validate_written(version, tasks, receipts))
    sidecars = {name: digest for receipt in receipts for name, digest in receipt.sidecars.items()}
    return Replacement([known.key for known in replaced], cut, positions, sidecars)


def _list_appended_rows(
    entries: Sequence[Entry], sources: Iterable[KnownSource]
) -> Iterator[tuple[str, IntArray]]:
    """Yield the shards that appended the sources, with all their rows."""
    first = entries[0].number
    for source, number in sources:
        for added in entries[number - first].added:
            if added.shard.source == source.key and added.shard.records:
                yield added.shard.name, np.arange(added.shard.records)


def _list_mappings(version: StoredVersion, history: VersionHistory) -> list[ShardMapping]:
    """Return how records moved between shards since, also through salvaging repairs."""
    log = version.log
    index = LogIndex(version.store, version)
    histories = DatasetHistory(index, log.dataset, {log.version: history})
    salvaged = [
        _SalvagedMapping(version, entry.read(RepairParameters).shard, entry.added[0].shard)
        for entry in history.entries
        if entry.operation == "repair" and entry.read(RepairParameters).lost_records and entry.added
    ]
    return [*list_mappings(histories), *salvaged]


@dataclass(frozen=True, slots=True)
class _SalvagedMapping:
    """Mapping of a shard to its salvaged repair, by the row map of the repair."""

    version: StoredVersion
    old: str
    repaired: Shard

    def list_sources(self) -> Iterable[str]:
        """Return the corrupt shard."""
        return (self.old,)

    def list_targets(self) -> Iterable[str]:
        """Return the repaired shard."""
        return (self.repaired.name,)

    def map_rows(self, shard: str, rows: IntArray) -> Iterator[MappedRows]:  # noqa: ARG002
        """Yield the salvaged records, or all of them if their source is known."""
        if self.repaired.source is not None:
            every = np.arange(self.repaired.records)
            yield MappedRows(self.repaired.name, every, every)
            return
        SidecarReader(self.version).compare(f"{self.repaired.name}{ROWS}")
        path = self.version.shard_name(self.repaired) + ROWS
        try:
            for first, old in RowMap(self.version.store, path, self.repaired.records, 1).blocks():
                if (old[:, 0] == NO_RECORD).any():
                    raise self._make_unknown_error()
                matches = np.isin(old[:, 0], rows).nonzero()[0]
                yield MappedRows(self.repaired.name, old[matches, 0], first + matches)
        except RowMapError:
            raise self._make_unknown_error() from None

    def _make_unknown_error(self) -> LogError:
        return LogError(
            f"{self.version.name}: unknown which records of {self.repaired.name} to replace",
            code="origin-not-recorded",
            hint=Hint.of(
                "a repair salvaged the shard: restore the source and repair it, or set ",
                Option("on_changed", "append"),
            ),
            path=self.repaired.name,
            version=self.version.name,
        )


def _build_task(
    version: StoredVersion, shard: Shard, rows: IntArray, limits: Limits
) -> RemoveRowsTask:
    """Return the task to rewrite a shard without some rows."""
    log = version.log
    records = open_shard_file(version.latest(), shard)
    return RemoveRowsTask(
        version.store,
        log.dataset,
        log.version,
        shard,
        records,
        rows,
        None,
        limits,
        kind="replace",
    )


def _validate_written(
    version: StoredVersion, tasks: Sequence[RemoveRowsTask], receipts: Sequence[Receipt]
) -> Iterator[tuple[str, Shard]]:
    """Yield the new shards by old name. Raises LogError if a shard differs from the plan."""
    for task, receipt in zip(tasks, receipts, strict=True):
        old, new = task.shard, receipt.shard
        if new is None or new.records != old.records - len(task.rows):
            raise LogError(
                f"{version.name}: shard {old.name} differs from the plan",
                code="plan-mismatch",
                hint=Hint.of("nothing was committed: append again"),
                path=version.shard_name(old),
                version=version.name,
            )
        yield old.name, new
