"""Is what a version cannot be read without kept from vacuum?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Hint
from shardline.lineage.auditing.below import directly_below, in_use
from shardline.lineage.findings import Finding
from shardline.operations.advice.again import again_advice
from shardline.operations.consumers import CONSUMER_PREFIX
from shardline.operations.pins import holder_of

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
