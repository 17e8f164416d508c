"""Audit of logs: entries, their chain, their claims, and the inputs that they name."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from shardline.hints import Command, Hint, Option
from shardline.lineage.audit.audit_report import Finding
from shardline.lineage.audit.audited_logs import MAX_CLOCK_SKEW

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from shardline.errors import LogFault
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs
    from shardline.log.entry import Entry
    from shardline.log.model import Input
    from shardline.log.publication import ReplayedShard, ReplayedSnapshot

_RESTORE = Hint.of("restore the entry from a copy of the root, and find out who can write there")
_HINTS: dict[LogFault, Hint] = {
    "missing-entry": Hint.of(_RESTORE, ": later entries cannot be trusted without it"),
    "edited-entry": _RESTORE,
    "moved-entry": _RESTORE,
    "broken-chain": Hint.of(
        "compare both entries with a copy of the root: one of them was not committed"
    ),
    "back-dated-entry": Hint.of(
        "compare it with a copy of the root: commits never go back in time"
    ),
    "false-entry": Hint.of(
        "compare it with a copy of the root: no release of Shardline commits such an entry"
    ),
    "bad-checkpoint": Hint.of("delete the checkpoint, which is derived and which readers trust"),
}
_REWRITTEN = Hint.of(
    "compare both logs with a copy of the root, or with what Dagster recorded (",
    Option("dagster_home"),
    "): one of them was rewritten",
)


def find_log_faults(log: AuditedLog, now: datetime) -> Iterator[Finding]:
    """Find the faults of a log by itself; `now` is the time of this machine."""
    if log.unreadable:
        hint = Hint.of("audit it with the release that wrote it, or restore the log from a copy")
        yield log.make_finding("unreadable-log", "log", log.unreadable, hint)
        return
    for problem in log.report.problems:
        hint, subject = _HINTS[problem.kind], f"entry {problem.entry}"
        if problem.kind == "bad-checkpoint":
            hint = Hint.of(hint, f": {log.version.log.checkpoint_name(problem.entry)}")
            subject = f"checkpoint at {subject}"
        yield log.make_finding(problem.kind, subject, problem.detail, hint, problem.entry)
    replay = log.replay
    if log.whole and replay.publication.latest() != replay.published:
        yield log.make_finding(
            "false-entry",
            f"entry {replay.number}",
            f"records {replay.published} as the latest published snapshot, but the attestations "
            f"publish {replay.publication.latest()}",
            Hint.of("to attest again what passes, run ", Command.of("check", log.name)),
            replay.number,
        )
    yield from _find_future_entry(log, now)
    for entry, subject in log.idle:
        yield log.make_finding(
            "idle-attestation",
            f"entry {entry}",
            f"attests {subject}, which was never in {log.name}",
            Hint.of("compare the entry with a copy of the root: checks never attest this"),
            entry,
        )


def _find_future_entry(log: AuditedLog, now: datetime) -> Iterator[Finding]:
    """Find the first entry with a future time. Later entries repeat its time."""
    last = log.count_until(now + MAX_CLOCK_SKEW)
    if last < len(log.times):
        yield log.make_finding(
            "future-entry",
            f"entry {last + 1}",
            f"has a time in the future ({log.times[last]:%Y-%m-%d %H:%M:%S})",
            Hint.of(
                "find out which clock is wrong, the writer's or this one: later entries repeat "
                "this time until it has passed"
            ),
            last + 1,
            severity="warning",
        )


def find_unverified_logs(logs: AuditedLogs, verified: Collection[str]) -> Iterator[Finding]:
    """Find the questions that corrupt logs leave open: a note if the log is in `verified`."""
    for (name, cause), question in logs.doubts.items():
        is_own, is_reported = name == cause, cause in verified
        owner = "its own log" if is_own else f"the log of {cause}"
        inspect = Hint.of("to see what is wrong with that log, run ", Command.of("audit", cause))
        yield Finding(
            "note" if is_reported else "warning",
            "not-judged",
            name,
            "log" if is_own else f"log of {cause}",
            f"cannot be verified completely, because {owner} is corrupt: {question}",
            Hint.of("restore that log, and audit again") if is_reported else inspect,
        )


def find_input_faults(log: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """Find inputs that do not agree with the logs of their versions."""
    rewritten: dict[str, list[Finding]] = {}
    for entry in log.data:
        for source in dict.fromkeys(entry.inputs):
            for finding in _audit_input(log, entry, source, logs):
                if logs.is_in_doubt(log, logs.get(source.label), finding.detail):
                    continue
                if finding.kind == "other-input":
                    rewritten.setdefault(source.label, []).append(finding)
                else:
                    yield finding
    for findings in rewritten.values():
        # A rewritten log has a single cause, so all its snapshots are one finding.
        first, *others = findings
        more = f"; the same applies to {len(others)} more of its inputs" if others else ""
        yield replace(first, detail=f"{first.detail}{more}", entry=findings[-1].entry)
    for row in log.replay.rows:
        if row.shard.base is not None:
            yield from _audit_overlay_base(log, row, logs)


def _audit_input(
    log: AuditedLog, entry: Entry, source: Input, logs: AuditedLogs
) -> Iterator[Finding]:
    name, label = source.label, f"{source.label}@{source.snapshot}"
    subject = f"entry {entry.number}, input {label}"
    upstream = logs.get(name)
    if upstream is None:
        yield log.make_finding(
            "missing-input", subject, f"{name} has no log", _REWRITTEN, entry.number
        )
        return
    snapshot = upstream.snapshot(source.snapshot)
    if snapshot is None:
        question = f"whether its input {label} exists, beyond snapshot {upstream.replay.snapshot}"
        if not logs.is_in_doubt(log, upstream, question):
            detail = f"{name} has no snapshot {source.snapshot}, only {upstream.replay.snapshot}"
            yield log.make_finding("missing-input", subject, detail, _REWRITTEN, entry.number)
        return
    if snapshot.digest != source.entry:
        detail = (
            f"read entry {source.entry[:12]}…, but the log of {name} now has entry "
            f"{snapshot.digest[:12]}… there"
        )
        yield log.make_finding("other-input", subject, detail, _REWRITTEN, entry.number)
        return
    skew = _get_max_skew(log, entry, upstream, snapshot.entry)
    if entry.time + skew < upstream.times[snapshot.entry - 1]:
        yield log.make_finding(
            "back-dated-entry",
            subject,
            f"committed at {entry.time:%Y-%m-%d %H:%M:%S}, before its input "
            f"({snapshot.time:%Y-%m-%d %H:%M:%S})",
            Hint.of("find out which of the two times is false, and whose clock it was"),
            entry.number,
        )
        return
    yield from _find_unpublished_input(log, entry, upstream, snapshot, logs)


def _get_max_skew(log: AuditedLog, entry: Entry, upstream: AuditedLog, other: int) -> timedelta:
    """Return how far the clocks of two entries may differ: not at all on the same machine."""
    same = log.hosts[entry.number - 1] == upstream.hosts[other - 1]
    return timedelta() if same else MAX_CLOCK_SKEW


def _find_unpublished_input(
    log: AuditedLog,
    entry: Entry,
    upstream: AuditedLog,
    snapshot: ReplayedSnapshot,
    logs: AuditedLogs,
) -> Iterator[Finding]:
    label = f"{upstream.name}@{snapshot.number}"
    latest = entry.time
    if snapshot.published:
        latest += _get_max_skew(log, entry, upstream, snapshot.published)
    elif logs.is_in_doubt(log, upstream, f"whether {label} was published when it was read"):
        return
    if logs.was_published(upstream, snapshot.number, upstream.count_until(latest)):
        return
    yield log.make_finding(
        "unpublished-input",
        f"entry {entry.number}, input {label}",
        f"snapshot {entry.snapshot} was derived from {label} before its checks had passed",
        Hint.of(
            "see the checks since then with ",
            Command.of("log", upstream.name),
            f"; derive {log.name} again from a published snapshot, which is the default",
        ),
        entry.number,
        severity="warning",
    )


def _audit_overlay_base(
    log: AuditedLog, row: ReplayedShard, logs: AuditedLogs
) -> Iterator[Finding]:
    """Find an overlay whose base is missing or different in the log of its owner."""
    base = row.shard.base
    owner = "" if base is None else f"{log.dataset}/{base.owner}"
    upstream = logs.get(owner) if owner else None
    if base is None or upstream is None:
        return  # A missing log is a finding of the entry.
    rows = upstream.replay.named.get(base.name)
    problem = ""
    if rows is None:
        problem = f"is not in the log of {owner}"
    elif rows[-1].shard.content != base.sha256:
        problem = f"has different content in the log of {owner}"
    elif rows[-1].shard.records != row.shard.records:
        problem = f"has {rows[-1].shard.records} records, but the overlay {row.shard.records}"
    if problem and not logs.is_in_doubt(log, upstream, f"whether {base.name} {problem}"):
        yield log.make_finding(
            "other-input",
            f"shard {row.shard.name}",
            f"its base {base.name} {problem}",
            _REWRITTEN,
            row.added_entry,
        )
