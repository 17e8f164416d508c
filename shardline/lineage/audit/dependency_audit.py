"""Is what a version cannot be read without kept from vacuum?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.hints import Command, Hint
from shardline.lineage.audit.audited_logs import (
    ShardToRead,
    iter_rows_in_use,
    list_dependencies_of_row,
    list_dependency_shards,
)
from shardline.lineage.audit.finding import Finding
from shardline.provenance.commands import get_recreate_hint
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.dependencies import parse_pin_holder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs
    from shardline.lineage.audit.finding import Severity


def find_missing_pins(history: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Shards of others that the newest or the published snapshot needs, and no pin keeps."""
    kept: dict[str, set[str]] = {}
    loose: dict[str, list[tuple[str, ShardToRead]]] = {}
    for row in {row.shard.name: row for _, row in iter_rows_in_use(history)}.values():
        for under in list_dependencies_of_row(history, row, logs):
            owner = under.history.name
            if owner not in kept:
                kept[owner] = _get_pinned_shards(under.history, history.name)
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
            Hint.of(
                "to pin it, ", get_recreate_hint(logs.store, history.name, history.ledger.snapshot)
            ),
            history.ledger.number,
        )


def find_orphaned_pins(history: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Pins of versions that have no log: a version pins only after its first entry."""
    for name, hold in sorted(history.ledger.pins.items()):
        holder = parse_pin_holder(name)
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
                f"derive it again or release the pin: `shardline.open(root)[{history.name!r}]"
                f".pin({name!r}, None)`"
            ),
            history.ledger.number,
        )


def _get_pinned_shards(origin: AuditedLog, holder: str) -> set[str]:
    """The shards that pins of a version keep in the log of another.

    Those of other programs may be called as they like; those of consumers end with these.
    """
    held = (
        hold.snapshot
        for hold in origin.ledger.pins.values()
        if hold.snapshot is not None
        and parse_pin_holder(hold.name) in {holder, None}
        and not hold.name.startswith(CONSUMER_PREFIX)
    )
    return {row.shard.name for number in held for row in origin.ledger.at(number)}


_UNREADABLE = "unreadable-snapshot"


@dataclass(frozen=True, slots=True)
class _LostShard:
    """A shard that cannot be read, or will not be for long, and why."""

    shard: ShardToRead
    severity: Severity
    what: str
    kind: str = _UNREADABLE
    given_up: bool = False


def find_unreadable_snapshots(
    history: AuditedLog, logs: AuditedLogs, spoiled: Collection[str], *, read: bool
) -> Iterator[Finding]:
    """Snapshots in use or held that need shards which are lost, and not only damaged.

    What is damaged and can be repaired is a finding about that shard, if shards were `read`:
    `spoiled` are those that are not what was committed.
    """
    lost: dict[int, dict[str, _LostShard]] = {}
    for number, row in iter_rows_in_use(history):
        under = list_dependency_shards([ShardToRead(history, row)], logs)
        found = _iter_lost_shards(under, logs, spoiled, read=read)
        lost.setdefault(number, {}).update({one.shard.name: one for one in found})
    for number, by_name in lost.items():
        if by_name:
            worst, told = _format_losses(history, by_name.values())
            published = ", which is published," if number == history.ledger.published else ""
            yield Finding(
                worst.severity,
                worst.kind,
                history.name,
                f"snapshot {number}",
                f"it{published} is read from {told}",
                get_recreate_hint(logs.store, history.name, number, worst.shard.name),
            )
    yield from _find_unreadable_refs(history, logs, spoiled, read=read)


def _find_unreadable_refs(
    history: AuditedLog, logs: AuditedLogs, spoiled: Collection[str], *, read: bool
) -> Iterator[Finding]:
    """Older snapshots that tags, consumers and pins of people hold for nothing."""
    ledger = history.ledger
    for number, holders in sorted(_get_snapshot_holders(history).items()):
        if number in {ledger.snapshot, ledger.published}:
            continue
        own = [ShardToRead(history, row) for row in logs.rows(history, number)]
        lost = _iter_lost_shards(
            [*own, *list_dependency_shards(own, logs)], logs, spoiled, read=read
        )
        # What was erased is not deleted as long as someone holds it: the proof of that tells it.
        found = [one for one in lost if one.kind == _UNREADABLE]
        if found:
            worst, told = _format_losses(history, found)
            back = f"restore {worst.shard.name} from a copy of the root; without a copy, "
            released = Hint.join("; ", (advice for _, advice in holders))
            yield Finding(
                "warning",
                worst.kind,
                history.name,
                f"snapshot {number}",
                f"it is held by {' and '.join(who for who, _ in holders)}, and read from {told}",
                Hint.of("" if worst.given_up else back, released),
            )


def _get_snapshot_holders(history: AuditedLog) -> dict[int, list[tuple[str, Hint]]]:
    """Who holds which snapshot, and how it is let go of.

    What other versions hold is told of these.
    """
    ledger, name = history.ledger, history.name
    found: dict[int, list[tuple[str, Hint]]] = {}
    for tag in ledger.tags.values():
        move = Command.of("tag", name, tag.name)
        advice = Hint.of("to move the tag to the latest snapshot, run ", move)
        if tag.snapshot is not None:
            found.setdefault(tag.snapshot, []).append((f"the tag {tag.name}", advice))
    for pin in ledger.pins.values():
        if pin.snapshot is None or parse_pin_holder(pin.name) is not None:
            continue
        who, advice = f"the pin {pin.name!r}", Hint.of(f"release the pin {pin.name!r}")
        if pin.name.startswith(CONSUMER_PREFIX):
            told = pin.name.removeprefix(CONSUMER_PREFIX).rpartition(" on ")[0]
            consumer, _, run = told.partition(" ")
            of, by_run = f"{name}@{pin.snapshot}", ("--run", run) if run else ()
            release = Command.of("consumers", of, "--release", consumer, *by_run)
            who = f"the consumer {consumer}"
            advice = Hint.of("to release it, run ", release)
        found.setdefault(pin.snapshot, []).append((who, advice))
    return found


def _format_losses(history: AuditedLog, found: Iterable[_LostShard]) -> tuple[_LostShard, str]:
    """The worst of what is lost, and all of it in words."""
    worst, *others = sorted(found, key=lambda one: one.severity)
    owner = worst.shard.history.name
    of = "" if owner == history.name else f" of {owner}"
    more = f", and so it is with {len(others)} more" if others else ""
    return worst, f"shard {worst.shard.row.shard.name}{of}, {worst.what}{more}"


def _iter_lost_shards(
    shards: Iterable[ShardToRead], logs: AuditedLogs, spoiled: Collection[str], *, read: bool
) -> Iterator[_LostShard]:
    for one in shards:
        lost = _find_removed_shard(one, logs) or _find_corrupt_shard(one, spoiled, read=read)
        if lost is not None:
            yield lost


def _find_removed_shard(one: ShardToRead, logs: AuditedLogs) -> _LostShard | None:
    name = one.row.shard.name
    taken = one.history.ledger.condemned_in(name)
    if taken is None:
        return None
    entry = one.history.entry(taken)
    erased = entry is not None and entry.operation == "erase"
    told = f"which entry {taken} of its log {'erased' if erased else 'gave up'}"
    if name not in logs.files(one.history.dataset, "shards"):
        return _LostShard(one, "error", f"{told}: it is deleted", given_up=True)
    what = f"{told}: it can still be read, and cannot when vacuum has deleted it"
    return _LostShard(one, "warning", what, "expiring-snapshot", given_up=True)


def _find_corrupt_shard(
    one: ShardToRead, spoiled: Collection[str], *, read: bool
) -> _LostShard | None:
    repaired = one.repaired_in
    if one.name in spoiled or (one.has_failed and not read):
        if repaired is not None:
            made = one.history.entry(repaired)
            other = "put another in its place" if made and made.added else "took it out"
            return _LostShard(one, "error", f"which is damaged, and entry {repaired} {other}")
        if one.is_replaced or not read:
            what = f"which is damaged, as entry {one.row.told} of its log says"
            return _LostShard(one, "error", what)
    if repaired is not None and not read:
        what = f"which was damaged when entry {repaired} put another in its place"
        return _LostShard(one, "warning", what)
    return None
