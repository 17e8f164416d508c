"""What a shard is read from: the base of an overlay, what a plan pairs, and so on down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.lineage.auditing.listed import ShardToRead
from shardline.pairing.coverage import Cover

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.lineage.auditing.audited_logs import AuditedLogs, History
    from shardline.log.publication import Row


def directly_below(history: History, row: Row, logs: AuditedLogs) -> list[ShardToRead]:
    """The shards that one cannot be read without, as far as the logs tell of them."""
    shard = row.shard
    if shard.base is not None:
        owner = logs.of(f"{history.dataset}/{shard.base.owner}")
        rows = None if owner is None else owner.ledger.named.get(shard.base.name)
        return [ShardToRead(owner, rows[-1])] if owner is not None and rows else []
    if not shard.virtual:
        return []
    entry = history.entry(row.landed)
    names = [] if entry is None else [one.shard.name for one in entry.added]
    outputs = [] if entry is None else entry.parameters.get("outputs", [])
    if entry is None or shard.name not in names or len(outputs) != len(names):
        return []
    cover = Cover.from_json(outputs[names.index(shard.name)])
    found = []
    for told, places in zip(entry.inputs, (cover.left, cover.right), strict=True):
        origin = logs.of(told.shown)
        if origin is not None and origin.made(told.snapshot) is not None:
            listed = logs.rows(origin, told.snapshot)[slice(*places)]
            found += [ShardToRead(origin, one) for one in listed]
    return found


def all_below(shards: Iterable[ShardToRead], logs: AuditedLogs) -> list[ShardToRead]:
    """All that some shards are read from, each once, and none of themselves."""
    listed = list(shards)
    seen = {one.name for one in listed}
    found: list[ShardToRead] = []
    for one in listed:
        _gather(one, logs, seen, found)
    return found


def _gather(one: ShardToRead, logs: AuditedLogs, seen: set[str], found: list[ShardToRead]) -> None:
    for under in directly_below(one.history, one.row, logs):
        if under.name not in seen:
            seen.add(under.name)
            found.append(under)
            _gather(under, logs, seen, found)


def versions_below(history: History, logs: AuditedLogs) -> dict[str, None]:
    """The versions from whose shards those of this one are read, also if their logs are damaged."""
    if history.name not in logs.lower:
        logs.lower[history.name] = _versions_below(history, logs)
    return dict(logs.lower[history.name])


def _versions_below(history: History, logs: AuditedLogs) -> dict[str, None]:
    names: dict[str, None] = {}
    for row in history.ledger.rows:
        shard = row.shard
        if shard.base is not None:
            names[f"{history.dataset}/{shard.base.owner}"] = None
        elif shard.virtual and (entry := history.entry(row.landed)) is not None:
            names.update(dict.fromkeys(told.shown for told in entry.inputs))
    names.pop(history.name, None)
    for name in list(names):
        origin = logs.of(name)
        if origin is not None:
            names |= versions_below(origin, logs)
    return names


def in_use(history: History) -> Iterator[tuple[int, Row]]:
    """The rows of the published and the newest snapshot that lie on others, and the snapshot."""
    ledger = history.ledger
    for number in dict.fromkeys((ledger.published or 0, ledger.snapshot)):
        for row in ledger.at(number) if number else ():
            if row.shard.base or row.shard.virtual:
                yield number, row
