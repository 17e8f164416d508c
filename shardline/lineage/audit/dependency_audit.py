"""Is what a version cannot be read without kept from vacuum?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.hints import Command, Hint
from shardline.lineage.audit.audited_logs import ShardToRead, all_below, directly_below, in_use
from shardline.lineage.audit.finding import Finding
from shardline.provenance.commands import again_advice
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.dependencies import holder_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from shardline.lineage.audit.audited_logs import AuditedLogs, History
    from shardline.lineage.audit.finding import Severity


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


_UNREADABLE = "unreadable-snapshot"


@dataclass(frozen=True, slots=True)
class _Lost:
    """A shard that cannot be read, or will not be for long, and why."""

    shard: ShardToRead
    severity: Severity
    what: str
    kind: str = _UNREADABLE
    given_up: bool = False


def unreadable_findings(
    history: History, logs: AuditedLogs, spoiled: Collection[str], *, read: bool
) -> Iterator[Finding]:
    """Snapshots in use or held that need shards which are lost, and not only damaged.

    What is damaged and can be repaired is a finding about that shard, if shards were `read`:
    `spoiled` are those that are not what was committed.
    """
    lost: dict[int, dict[str, _Lost]] = {}
    for number, row in in_use(history):
        under = all_below([ShardToRead(history, row)], logs)
        found = _lost(under, logs, spoiled, read=read)
        lost.setdefault(number, {}).update({one.shard.name: one for one in found})
    for number, by_name in lost.items():
        if by_name:
            worst, told = _told(history, by_name.values())
            published = ", which is published," if number == history.ledger.published else ""
            yield Finding(
                worst.severity,
                worst.kind,
                history.name,
                f"snapshot {number}",
                f"it{published} is read from {told}",
                again_advice(logs.store, history.name, number, worst.shard.name),
            )
    yield from _held_findings(history, logs, spoiled, read=read)


def _held_findings(
    history: History, logs: AuditedLogs, spoiled: Collection[str], *, read: bool
) -> Iterator[Finding]:
    """Older snapshots that tags, consumers and pins of people hold for nothing."""
    ledger = history.ledger
    for number, holders in sorted(_holders(history).items()):
        if number in {ledger.snapshot, ledger.published}:
            continue
        own = [ShardToRead(history, row) for row in logs.rows(history, number)]
        lost = _lost([*own, *all_below(own, logs)], logs, spoiled, read=read)
        # What was erased is not deleted as long as someone holds it: the proof of that tells it.
        found = [one for one in lost if one.kind == _UNREADABLE]
        if found:
            worst, told = _told(history, found)
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


def _holders(history: History) -> dict[int, list[tuple[str, Hint]]]:
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
        if pin.snapshot is None or holder_of(pin.name) is not None:
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


def _told(history: History, found: Iterable[_Lost]) -> tuple[_Lost, str]:
    """The worst of what is lost, and all of it in words."""
    worst, *others = sorted(found, key=lambda one: one.severity)
    owner = worst.shard.history.name
    of = "" if owner == history.name else f" of {owner}"
    more = f", and so it is with {len(others)} more" if others else ""
    return worst, f"shard {worst.shard.row.shard.name}{of}, {worst.what}{more}"


def _lost(
    shards: Iterable[ShardToRead], logs: AuditedLogs, spoiled: Collection[str], *, read: bool
) -> Iterator[_Lost]:
    for one in shards:
        lost = _given_up(one, logs) or _damaged(one, spoiled, read=read)
        if lost is not None:
            yield lost


def _given_up(one: ShardToRead, logs: AuditedLogs) -> _Lost | None:
    name = one.row.shard.name
    taken = one.history.ledger.condemned_in(name)
    if taken is None:
        return None
    entry = one.history.entry(taken)
    erased = entry is not None and entry.operation == "erase"
    told = f"which entry {taken} of its log {'erased' if erased else 'gave up'}"
    if name not in logs.files(one.history.dataset, "shards"):
        return _Lost(one, "error", f"{told}: it is deleted", given_up=True)
    what = f"{told}: it can still be read, and cannot when vacuum has deleted it"
    return _Lost(one, "warning", what, "expiring-snapshot", given_up=True)


def _damaged(one: ShardToRead, spoiled: Collection[str], *, read: bool) -> _Lost | None:
    repaired = one.repaired_in
    if one.name in spoiled or (one.has_failed and not read):
        if repaired is not None:
            made = one.history.entry(repaired)
            other = "put another in its place" if made and made.added else "took it out"
            return _Lost(one, "error", f"which is damaged, and entry {repaired} {other}")
        if one.is_replaced or not read:
            what = f"which is damaged, as entry {one.row.told} of its log says"
            return _Lost(one, "error", what)
    if repaired is not None and not read:
        what = f"which was damaged when entry {repaired} put another in its place"
        return _Lost(one, "warning", what)
    return None
