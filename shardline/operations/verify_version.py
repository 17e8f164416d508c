"""Verify a snapshot: the log that tells of it, and every byte of its shards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from shardline.errors import DamagedLogError
from shardline.execution.threads import run_tasks
from shardline.files.reader import DEFAULT_LIMITS, Limits
from shardline.operations.inspect import inspect_shard, look_at_shard
from shardline.operations.verify_log import LogReport, verify_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.log.facts import Shard
    from shardline.log.snapshot import Snapshot
    from shardline.log.version import Version
    from shardline.operations.inspect import ShardReport


@dataclass(frozen=True, slots=True)
class VersionReport:
    """What verifying a snapshot found.

    `log` is None where only a quick look was asked for, `snapshot` where the log is too damaged
    to tell of it. `vacuumed` are the shards that are not sound because vacuum deleted them.
    """

    snapshot: Snapshot | None
    log: LogReport | None
    shards: list[ShardReport]
    vacuumed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(shard.ok for shard in self.shards) and not (self.log and self.log.problems)


def verify_version(
    version: Version,
    which: str = "newest",
    *,
    quick: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Shard, int], None] | None = None,
) -> VersionReport:
    """Check the log, and of each shard presence, length, count, sha256 and checksums.

    With `quick` only the shards' presence and length; the log is then read as far as opening it
    needs. Nothing is changed.
    """
    log = None if quick else verify_log(version.log)
    try:
        snapshot = version.find(which)
    except DamagedLogError:
        if log is None or not log.problems:
            raise
        return VersionReport(None, log, [])

    def verify_one(shard: Shard) -> ShardReport:
        name = version.shard_name(shard)
        if quick:
            return look_at_shard(version.store, name, shard)
        tell = None if progress is None else partial(progress, shard)
        return inspect_shard(version.store, name, shard, limits=limits, progress=tell)

    reports = []
    vacuumed = []
    for report in run_tasks(verify_one, snapshot.shards, workers=workers):
        entry = version.state.condemned_in(report.shard.name)
        if report.ok or entry is None:
            reports.append(report)
        else:
            reports.append(replace(report, problems=(f"vacuum deleted it in entry {entry}",)))
            vacuumed.append(report.shard.name)
    return VersionReport(snapshot, log, reports, tuple(vacuumed))
