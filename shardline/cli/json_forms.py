"""Snapshots and what the engine says of them, as `--json` tells them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardline.log.entry import Entry
    from shardline.log.snapshot import SnapshotDiff, StoredSnapshot
    from shardline.operations.inspect import ShardReport
    from shardline.operations.verify_log import LogProblem
    from shardline.schema.comparison import SchemaDiff


def snapshot_json(snapshot: StoredSnapshot) -> dict[str, Any]:
    """A snapshot without its list of shards."""
    return {
        "version": snapshot.version,
        "snapshot": snapshot.number,
        "entry": snapshot.entry,
        "time": snapshot.time.isoformat(),
        **snapshot.totals.to_json(),
        "content": snapshot.content,
        "published": snapshot.published,
        "rejected": snapshot.rejected,
    }


def diff_json(diff: SnapshotDiff) -> dict[str, Any]:
    """What differs between two snapshots."""
    return {
        "old": snapshot_json(diff.old),
        "new": snapshot_json(diff.new),
        "added": [shard.to_json() for shard in diff.added],
        "removed": [shard.to_json() for shard in diff.removed],
        "records": diff.records,
        "bytes": diff.bytes,
        "fields": fields_json(diff.fields),
    }


def fields_json(fields: SchemaDiff) -> dict[str, Any]:
    """What differs between two schemas."""
    return {
        "classification": fields.classification,
        "changes": [asdict(change) for change in fields.changes],
    }


def entry_json(entry: Entry | LogProblem) -> dict[str, Any]:
    """An entry as it lies in the log, or what is wrong with it."""
    from shardline.log.entry import Entry

    if isinstance(entry, Entry):
        return {**entry.to_json(), "digest": entry.digest}
    return {"number": entry.entry, "error": entry.detail}


def shard_report_json(report: ShardReport) -> dict[str, Any]:
    """What was found about one shard; of an overlay also what it lies beside."""
    base = report.shard.base
    return {
        "shard": report.shard.name,
        **({} if base is None else {"base": base.name}),
        "records": report.shard.records,
        "bytes": report.shard.bytes,
        "ok": report.ok,
        "problems": list(report.problems),
        "violations": [asdict(violation) for violation in report.violations],
        "complete": report.complete,
        **({"index_problem": report.index_problem} if report.index_problem else {}),
    }
