"""Is what a version cannot be read without kept from vacuum?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Hint
from shardline.lineage.auditing.below import directly_below, in_use
from shardline.lineage.findings import Finding
from shardline.provenance.commands import again_advice
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.pins import holder_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.auditing.audited_logs import AuditedLogs, History
    from shardline.lineage.auditing.listed import ShardToRead


def pin_findings(history: History, logs: AuditedLogs) -> Iterator[Finding]:
    """Shards of others that the newest or the published snapshot needs, and no pin keeps."""
    kept: dict[str, set[str]] = {}
    loose: dict[str, list[tuple[str, ShardToRead]]] = {}
    for row in {row.shard.name: row for _, row in in_use(history)}.values():
        for under in directly_below(history, row, logs):
            owner = under.history.name
            if owner not in kept:
                kept[owner] = _pinned(under.history, history.name)
            if under.row.shard.name not in kept[owner]:
                loose.setdefault(owner, []).append((row.shard.name, under))
    for owner, found in loose.items():
        shard, under = found[0]
        if logs.is_in_doubt(history, under.history, "which pins keep what it is read from"):
            continue
        others = len({name for name, _ in found}) - 1
        yield Finding(
            "warning",
            "missing-pin",
            history.name,
            f"shard {shard}" + (f" and {others} more" if others else ""),
            f"it cannot be read without {under.row.shard.name} of {owner}, which no pin of "
            f"{history.name} keeps: vacuum may delete it",
            Hint.of("to pin it, ", again_advice(logs.store, history.name, history.ledger.snapshot)),
            history.ledger.number,
        )


def holder_findings(history: History, logs: AuditedLogs) -> Iterator[Finding]:
    """Pins of versions that have no log: a version pins only after its first entry."""
    for name, hold in sorted(history.ledger.pins.items()):
        holder = holder_of(name)
        if hold.snapshot is None or holder is None or logs.of(holder) is not None:
            continue
        yield Finding(
            "warning",
            "missing-log",
            history.name,
            f"pin {name}",
            f"{holder} has no log, and it holds snapshot {hold.snapshot}",
            Hint.of(
                "put the log back from a copy of the root; if the version was never committed, "
                f"derive it again or release the pin: `Version(root, {history.name!r})"
                f".pin({name!r}, None)`"
            ),
            history.ledger.number,
        )


def _pinned(origin: History, holder: str) -> set[str]:
    """The shards that pins of a version keep in the log of another.

    Those of other programs may be called as they like; those of consumers end with these.
    """
    held = (
        hold.snapshot
        for hold in origin.ledger.pins.values()
        if hold.snapshot is not None
        and holder_of(hold.name) in {holder, None}
        and not hold.name.startswith(CONSUMER_PREFIX)
    )
    return {row.shard.name for number in held for row in origin.ledger.at(number)}
