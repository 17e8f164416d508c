"""Audit of dependencies: pins that retain them, and snapshots that can no longer be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.hints import Command, Hint
from shardline.lineage.audit.audited_logs import (
    AuditedShard,
    iter_dependents_in_use,
    list_dependencies,
    list_direct_dependencies,
)
from shardline.provenance.commands import get_recreate_hint
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.pins import parse_pin_holder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from shardline.lineage.audit.audit_report import Finding, Severity
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs

_UNREADABLE = "unreadable-snapshot"


def find_missing_pins(log: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Find dependencies of the latest or published snapshot that no pin retains."""
    pinned: dict[str, set[str]] = {}
    unpinned: dict[str, list[tuple[str, str]]] = {}
    dependents = {shard.shard.name: shard for _, shard in iter_dependents_in_use(log)}
    for dependent in dependents.values():
        for dependency in list_direct_dependencies(dependent, logs):
            owner, name = dependency.log.name, dependency.shard.name
            if owner not in pinned:
                pinned[owner] = _get_pinned_shards(dependency.log, log.name)
            if name not in pinned[owner]:
                unpinned.setdefault(owner, []).append((dependent.shard.name, name))
    for owner, pairs in unpinned.items():
        if logs.is_in_doubt(log, logs.get(owner), "which pins retain its dependencies"):
            continue
        dependent_name, name = pairs[0]
        others = len({shard for shard, _ in pairs}) - 1
        hint = get_recreate_hint(logs.store, log.name, log.replay.snapshot)
        yield log.make_finding(
            "missing-pin",
            f"shard {dependent_name}" + (f" and {others} more" if others else ""),
            f"needs {name} of {owner}, which no pin of {log.name} retains: vacuum may delete it",
            Hint.of("to pin it, ", hint),
            log.replay.number,
            severity="warning",
        )


def _get_pinned_shards(log: AuditedLog, holder: str) -> set[str]:
    """Return the shards that pins of a version, or pins of other programs, retain."""
    pinned = (
        pin.snapshot
        for pin in log.replay.pins.values()
        if pin.snapshot is not None
        and parse_pin_holder(pin.name) in {holder, None}
        and not pin.name.startswith(CONSUMER_PREFIX)
    )
    return {row.shard.name for number in pinned for row in log.replay.at(number)}


def find_orphaned_pins(log: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Find pins of versions without a log. A version pins only after its first entry."""
    for name, pin in sorted(log.replay.pins.items()):
        holder = parse_pin_holder(name)
        if pin.snapshot is None or holder is None or logs.get(holder) is not None:
            continue
        yield log.make_finding(
            "missing-log",
            f"pin {name}",
            f"{holder} pins snapshot {pin.snapshot}, but has no log",
            Hint.of(
                "put the log back from a copy of the root; if the version was never committed, "
                f"derive it again or release the pin: `shardline.open(root)[{log.name!r}]"
                f".pin({name!r}, None)`"
            ),
            log.replay.number,
            severity="warning",
        )


@dataclass(frozen=True, slots=True)
class _LostShard:
    """A shard that cannot be read, or soon cannot."""

    shard: AuditedShard
    severity: Severity
    problem: str
    kind: str = _UNREADABLE
    removed: bool = False


def find_unreadable_snapshots(
    log: AuditedLog, logs: AuditedLogs, corrupt: Collection[str], *, read: bool
) -> Iterator[Finding]:
    """Find snapshots in use, tagged or pinned that need lost shards.

    A corrupt shard that can be repaired is a finding of its own if shards were `read`. `corrupt`
    has the paths of corrupt shards.
    """
    lost: dict[int, dict[str, _LostShard]] = {}
    for number, dependent in iter_dependents_in_use(log):
        dependencies = list_dependencies([dependent], logs)
        losses_of_shard = _iter_lost_shards(dependencies, logs, corrupt, read=read)
        lost.setdefault(number, {}).update({loss.shard.path: loss for loss in losses_of_shard})
    for number, losses in lost.items():
        if losses:
            worst, description = _describe_losses(log, losses.values())
            state = "published and " if number == log.replay.published else ""
            yield log.make_finding(
                worst.kind,
                f"snapshot {number}",
                f"{state}read from {description}",
                get_recreate_hint(logs.store, log.name, number, worst.shard.path),
                severity=worst.severity,
            )
    yield from _find_unreadable_refs(log, logs, corrupt, read=read)


def _find_unreadable_refs(
    log: AuditedLog, logs: AuditedLogs, corrupt: Collection[str], *, read: bool
) -> Iterator[Finding]:
    """Find older snapshots that tags, consumers and other pins retain in vain."""
    in_use = {log.replay.snapshot, log.replay.published}
    for number, refs in sorted(_get_refs(log).items()):
        if number in in_use:
            continue
        own = [AuditedShard(log, row) for row in logs.rows(log, number)]
        shards = [*own, *list_dependencies(own, logs)]
        losses = _iter_lost_shards(shards, logs, corrupt, read=read)
        # Vacuum keeps what a ref retains: an erased shard that still exists is no finding.
        unreadable = [loss for loss in losses if loss.kind == _UNREADABLE]
        if unreadable:
            worst, description = _describe_losses(log, unreadable)
            restore = f"restore {worst.shard.path} from a copy of the root; without a copy, "
            release = Hint.join("; ", (hint for _, hint in refs))
            yield log.make_finding(
                worst.kind,
                f"snapshot {number}",
                f"retained by {' and '.join(label for label, _ in refs)}, read from {description}",
                Hint.of("" if worst.removed else restore, release),
                severity="warning",
            )


def _get_refs(log: AuditedLog) -> dict[int, list[tuple[str, Hint]]]:
    """Return the tags, consumers and pins of each snapshot, with hints to release them.

    Leaves out the pins of other versions, which have findings of their own.
    """
    refs: dict[int, list[tuple[str, Hint]]] = {}
    for tag in log.replay.tags.values():
        if tag.snapshot is not None:
            move = Command.of("tag", log.name, tag.name)
            hint = Hint.of("to move the tag to the latest snapshot, run ", move)
            refs.setdefault(tag.snapshot, []).append((f"the tag {tag.name}", hint))
    for pin in log.replay.pins.values():
        if pin.snapshot is None or parse_pin_holder(pin.name) is not None:
            continue
        label, hint = f"the pin {pin.name!r}", Hint.of(f"release the pin {pin.name!r}")
        if pin.name.startswith(CONSUMER_PREFIX):
            consumer_run = pin.name.removeprefix(CONSUMER_PREFIX).rpartition(" on ")[0]
            consumer, _, run = consumer_run.partition(" ")
            of_run = ("--run", run) if run else ()
            reference = f"{log.name}@{pin.snapshot}"
            release = Command.of("consumers", reference, "--release", consumer, *of_run)
            label, hint = f"the consumer {consumer}", Hint.of("to release it, run ", release)
        refs.setdefault(pin.snapshot, []).append((label, hint))
    return refs


def _describe_losses(log: AuditedLog, losses: Iterable[_LostShard]) -> tuple[_LostShard, str]:
    """Return the worst loss, and a description of all."""
    worst, *others = sorted(losses, key=lambda loss: loss.severity)
    owner = worst.shard.log.name
    of = "" if owner == log.name else f" of {owner}"
    more = f", and {len(others)} more such shards" if others else ""
    return worst, f"shard {worst.shard.shard.name}{of}, {worst.problem}{more}"


def _iter_lost_shards(
    shards: Iterable[AuditedShard], logs: AuditedLogs, corrupt: Collection[str], *, read: bool
) -> Iterator[_LostShard]:
    for shard in shards:
        lost = _find_removal(shard, logs) or _find_corruption(shard, corrupt, read=read)
        if lost is not None:
            yield lost


def _find_removal(shard: AuditedShard, logs: AuditedLogs) -> _LostShard | None:
    number = shard.log.replay.get_tombstone(shard.shard.name)
    if number is None:
        return None
    entry = shard.log.entry(number)
    action = "erased" if entry is not None and entry.operation == "erase" else "vacuumed"
    problem = f"{action} in entry {number}"
    if shard.shard.name not in logs.files(shard.log.dataset, "shards"):
        return _LostShard(shard, "error", f"{problem} and deleted", removed=True)
    problem += " and readable only until vacuum deletes it"
    return _LostShard(shard, "warning", problem, "expiring-snapshot", removed=True)


def _find_corruption(
    shard: AuditedShard, corrupt: Collection[str], *, read: bool
) -> _LostShard | None:
    repaired = shard.repaired_in
    if shard.path in corrupt or (shard.has_failed and not read):
        if repaired is not None:
            entry = shard.log.entry(repaired)
            action = "replaced" if entry and entry.added else "removed"
            return _LostShard(shard, "error", f"corrupt and {action} in entry {repaired}")
        if shard.is_replaced or not read:
            return _LostShard(
                shard, "error", f"corrupt according to entry {shard.row.failed_entry}"
            )
    if repaired is not None and not read:
        return _LostShard(shard, "warning", f"corrupt when entry {repaired} replaced it")
    return None
