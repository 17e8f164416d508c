"""Which records of the newest snapshot came from a source, and the shards without them.

A replacement is no erasure: older snapshots keep the old records. The shards of a source go as a
whole; a shard that was rebuilt from several sources is written once more without its records.
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
from shardline.operations.derive import make_fresh_shards
from shardline.operations.erasure.erase_task import EraseTask, make_erased_shard
from shardline.operations.erasure.record_relations import list_relations, spread_rows
from shardline.provenance.dataset_history import DatasetHistory, VersionHistory
from shardline.provenance.log_index import LogIndex
from shardline.readers.shard_file import open_shard_file
from shardline.sidecars.row_map import NOTHING, RowMap, RowMapError
from shardline.sidecars.sidecar_reader import SidecarReader
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.execution.executor import Executor, ProgressListener
    from shardline.kernel.types import IntArray
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.version import StoredVersion
    from shardline.operations.erasure.record_relations import Relation
    from shardline.operations.source_selection import KnownSource
    from shardline.sidecars.receipt import Receipt
    from shardline.tfrecord.reader import Limits


def make_exchange(
    version: StoredVersion,
    replaces: Mapping[str, Sequence[KnownSource]],
    executor: Executor,
    progress: ProgressListener | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Replacement:
    """Write what stays of the shards that hold replaced landings, by the keys of the new sources.

    Nothing is committed. Raises LogError where it is not known which records came from a source.
    """
    landings = [one for some in replaces.values() for one in some]
    first = min(one.entry for one in landings)
    entries = tuple(islice(version.log.entries(first), version.state.number - first + 1))
    history = VersionHistory(version, entries)
    relations = _list_relations(version, history)
    live = {shard.name: shard for shard in history.live}
    leaving: dict[str, list[IntArray]] = {}
    at: dict[str, str] = {}
    for key, some in replaces.items():
        rows = spread_rows(dict(_list_appended_rows(entries, some)), relations).rows
        here = [name for name in live if len(rows.get(name, ()))]
        at |= {key: here[0]} if here else {}
        for name in here:
            leaving.setdefault(name, []).append(rows[name])
    gone = {name: np.unique(np.concatenate(parts)) for name, parts in leaving.items()}
    cut: dict[str, Shard | None] = {
        name: None for name, rows in gone.items() if len(rows) == live[name].records
    }
    staying = {name: rows for name, rows in gone.items() if name not in cut}
    tasks = [_make_task(version, live[name], rows, limits) for name, rows in staying.items()]
    receipts = make_fresh_shards(version, tasks, make_erased_shard, executor, progress)
    cut |= dict(_validate_written(version, tasks, receipts))
    sidecars = {name: digest for one in receipts for name, digest in one.sidecars.items()}
    return Replacement([one.key for one in landings], cut, at, sidecars)


def _list_appended_rows(
    entries: Sequence[Entry], landings: Iterable[KnownSource]
) -> Iterator[tuple[str, IntArray]]:
    """All records of the shards that sources landed with."""
    first = entries[0].number
    for landed in landings:
        for one in entries[landed.entry - first].added:
            if one.shard.source == landed.source.key and one.shard.records:
                yield one.shard.name, np.arange(one.shard.records)


def _list_relations(version: StoredVersion, history: VersionHistory) -> list[Relation]:
    """How records moved from shard to shard since; also what repairs salvaged of them."""
    log = version.log
    index = LogIndex(version.store, version)
    known = DatasetHistory(index, log.dataset, {log.version: history})
    salvaged = [
        _SalvagedRelation(version, str(entry.parameters["shard"]), entry.added[0].shard)
        for entry in history.entries
        if entry.operation == "repair" and entry.parameters.get("lost_records") and entry.added
    ]
    return [*list_relations(known), *salvaged]


@dataclass(frozen=True, slots=True)
class _SalvagedRelation:
    """What a repair left of a shard, as its row map tells."""

    version: StoredVersion
    old: str
    made: Shard

    def names(self) -> Iterable[str]:
        """The shards of which rows are carried on."""
        return (self.old,)

    def reaches(self) -> Iterable[str]:
        """The shards whose rows follow from them."""
        return (self.made.name,)

    def carry(self, _name: str, rows: IntArray) -> Iterator[tuple[str, IntArray]]:
        """The rows of other shards that follow from these of this one."""
        if self.made.source is not None:
            yield self.made.name, np.arange(self.made.records)
            return
        SidecarReader(self.version).compare(f"{self.made.name}{ROWS}")
        path = self.version.shard_name(self.made) + ROWS
        found = []
        try:
            for first, old in RowMap(self.version.store, path, self.made.records, 1).lots():
                if (old[:, 0] == NOTHING).any():
                    raise self._unknown()
                found.append(first + np.isin(old[:, 0], rows).nonzero()[0])
        except RowMapError:
            raise self._unknown() from None
        yield self.made.name, np.concatenate(found)

    def _unknown(self) -> LogError:
        return LogError(
            f"{self.version.name}: unknown which records of {self.made.name} to replace",
            code="origin-not-recorded",
            hint=Hint.of(
                "a repair salvaged the shard: restore the source and repair it, or set ",
                Option("on_changed", "append"),
            ),
            path=self.made.name,
            version=self.version.name,
        )


def _make_task(version: StoredVersion, shard: Shard, rows: IntArray, limits: Limits) -> EraseTask:
    """A shard to be written once more, without the rows that go."""
    log = version.log
    records = open_shard_file(version.latest(), shard)
    return EraseTask(
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
    version: StoredVersion, tasks: Sequence[EraseTask], receipts: Sequence[Receipt]
) -> Iterator[tuple[str, Shard]]:
    """The new shards by the names of the old ones; LogError if one is not as planned."""
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
