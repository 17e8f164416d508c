"""Is each log as it was written: its entries, their chain, and what they claim?"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from shardline.hints import Command, Hint, Option
from shardline.lineage.audit.audited_logs import MAX_CLOCK_SKEW
from shardline.lineage.audit.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from shardline.errors import LogFault
    from shardline.lineage.audit.audited_logs import AuditedLog, AuditedLogs
    from shardline.log.entry import Entry
    from shardline.log.model import Input
    from shardline.log.publication import ReplayedShard, ReplayedSnapshot


_COPY = Hint.of("restore the entry from a copy of the root, and find out who can write there")
_ADVICE: dict[LogFault, Hint] = {
    "missing-entry": Hint.of(_COPY, ": later entries cannot be trusted without it"),
    "edited-entry": _COPY,
    "moved-entry": _COPY,
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


def find_log_faults(history: AuditedLog, now: datetime) -> Iterator[Finding]:
    """What is wrong with a log by itself; `now` is the time by the clock here."""
    name = history.name
    if history.unreadable:
        yield Finding(
            "error",
            "unreadable-log",
            name,
            "log",
            history.unreadable,
            Hint.of("audit it with the release that wrote it, or restore the log from a copy"),
        )
        return
    for one in history.report.problems:
        derived = one.kind == "bad-checkpoint"
        where = "checkpoint at entry" if derived else "entry"
        file = history.version.log.checkpoint_name(one.entry)
        yield Finding(
            "error",
            one.kind,
            name,
            f"{where} {one.entry}",
            one.detail,
            Hint.of(_ADVICE[one.kind], f": {file}") if derived else _ADVICE[one.kind],
            one.entry,
        )
    ledger = history.ledger
    if history.whole and ledger.so_far.latest() != ledger.published:
        yield Finding(
            "error",
            "false-entry",
            name,
            f"entry {ledger.number}",
            f"snapshot {ledger.published} is told to be the newest published one, and by what the "
            f"entries attest it is {ledger.so_far.latest()}",
            Hint.of("to attest again what passes, run ", Command.of("check", name)),
            ledger.number,
        )
    yield from _find_future_entry(history, now)
    for entry, what in history.idle:
        yield Finding(
            "error",
            "idle-attestation",
            name,
            f"entry {entry}",
            f"it attests {what}, which was never in {name}",
            Hint.of("compare the entry with a copy of the root: checks never attest this"),
            entry,
        )


def _find_future_entry(history: AuditedLog, now: datetime) -> Iterator[Finding]:
    """The first entry whose time is still to come: those behind it have to be as late."""
    last = history.entry_at(now + MAX_CLOCK_SKEW)
    if last < len(history.times):
        yield Finding(
            "warning",
            "future-entry",
            history.name,
            f"entry {last + 1}",
            f"it is of {history.times[last]:%Y-%m-%d %H:%M:%S}, which by the clock here is still "
            "to come",
            Hint.of(
                "find out which clock is wrong, the writer's or this one: later entries repeat "
                "this time until it has passed"
            ),
            last + 1,
        )


def find_unverified_logs(logs: AuditedLogs, told: Collection[str]) -> Iterator[Finding]:
    """What could not be judged since a log is damaged; a note, if that is `told` by a finding."""
    for (name, cause), what in logs.doubts.items():
        own = name == cause
        log = "its own log" if own else f"the log of {cause}"
        yield Finding(
            "note" if cause in told else "warning",
            "not-judged",
            name,
            "log" if own else f"log of {cause}",
            f"some of it cannot be judged, because {log} is damaged: {what}",
            Hint.of("restore that log, and audit again")
            if cause in told
            else Hint.of("to see what is wrong with that log, run ", Command.of("audit", cause)),
        )


_REWRITTEN = Hint.of(
    "compare both logs with a copy of the root, or with what Dagster recorded (",
    Option("dagster_home"),
    "): one of them was rewritten",
)


def find_input_faults(history: AuditedLog, logs: AuditedLogs) -> Iterator[Finding]:
    """What is wrong with what the entries of a version say they were made of."""
    other: dict[str, list[Finding]] = {}
    for entry in history.data:
        for told in dict.fromkeys(entry.inputs):
            for found in _audit_input(history, entry, told, logs):
                if logs.is_in_doubt(history, logs.of(told.shown), found.detail):
                    continue
                if found.kind == "other-input":
                    other.setdefault(told.shown, []).append(found)
                else:
                    yield found
    for findings in other.values():
        yield _merge_findings(findings)
    for row in history.ledger.rows:
        if row.shard.base is not None:
            yield from _audit_overlay_base(history, row, logs)


def _merge_findings(findings: list[Finding]) -> Finding:
    """What has one cause, that another log was rewritten, as one finding at the first entry."""
    first = findings[0]
    if len(findings) == 1:
        return first
    more = f"; and so it is with {len(findings) - 1} more of the snapshots that it was made of"
    return replace(first, detail=f"{first.detail}{more}", entry=findings[-1].entry)


def _audit_input(
    history: AuditedLog, entry: Entry, told: Input, logs: AuditedLogs
) -> Iterator[Finding]:
    name, place = told.shown, f"entry {entry.number}, input {told.shown}@{told.snapshot}"

    def found(kind: str, detail: str, advice: Hint = _REWRITTEN) -> Finding:
        return Finding("error", kind, history.name, place, detail, advice, entry.number)

    origin = logs.of(name)
    if origin is None:
        yield found("missing-input", f"{name} has no log")
        return
    made = origin.made(told.snapshot)
    if made is None:
        known = origin.ledger.snapshot
        told_up_to = f"snapshot {known}" if known else "no snapshot at all"
        what = f"it was made of {name}@{told.snapshot}, and that log can be trusted up to "
        if not logs.is_in_doubt(history, origin, f"{what}{told_up_to}"):
            yield found("missing-input", f"{name} has {known} snapshots, and not that one")
        return
    if made.digest != told.entry:
        yield found(
            "other-input",
            f"it was made of entry {told.entry[:12]}…, and the log of {name} now has entry "
            f"{made.digest[:12]}… in its place",
        )
        return
    if _is_before_input(history, entry, origin, made.entry):
        yield found(
            "back-dated-entry",
            f"it is of {entry.time:%Y-%m-%d %H:%M:%S}, before its input was made, at "
            f"{made.time:%Y-%m-%d %H:%M:%S}",
            Hint.of("find out which of the two times is false, and whose clock it was"),
        )
        return
    yield from _find_unpublished_input(history, entry, origin, made, logs)


def _is_before_input(history: AuditedLog, entry: Entry, origin: AuditedLog, other: int) -> bool:
    """Whether an entry is older than one of another log, which it was made after."""
    apart = _get_clock_slack(history, entry, origin, other)
    return entry.time + apart < origin.times[other - 1]


def _get_clock_slack(
    history: AuditedLog, entry: Entry, origin: AuditedLog, other: int
) -> timedelta:
    """How far the clocks of the two may be apart: on one machine there is one clock."""
    same = history.hosts[entry.number - 1] == origin.hosts[other - 1]
    return timedelta() if same else MAX_CLOCK_SKEW


def _find_unpublished_input(
    history: AuditedLog, entry: Entry, origin: AuditedLog, made: ReplayedSnapshot, logs: AuditedLogs
) -> Iterator[Finding]:
    if made.published:
        later = entry.time + _get_clock_slack(history, entry, origin, made.published)
    else:
        later = entry.time
    what = f"whether {origin.name}@{made.number} was published when it was read"
    if not made.published and logs.is_in_doubt(history, origin, what):
        return
    if logs.was_published(origin, made.number, origin.entry_at(later)):
        return
    yield Finding(
        "warning",
        "unpublished-input",
        history.name,
        f"entry {entry.number}, input {origin.name}@{made.number}",
        f"{origin.name}@{made.number} was not published when snapshot {entry.snapshot} was made "
        "of it: its checks had not passed",
        Hint.of(
            "see the checks since then with ",
            Command.of("log", origin.name),
            f"; derive {history.name} again from a published snapshot, which is the default",
        ),
        entry.number,
    )


def _audit_overlay_base(
    history: AuditedLog, row: ReplayedShard, logs: AuditedLogs
) -> Iterator[Finding]:
    """Whether an overlay's base is in its owner's log, as what the overlay was made for."""
    base = row.shard.base
    if base is None:
        return
    owner = f"{history.dataset}/{base.owner}"
    origin = logs.of(owner)
    if origin is None:
        return  # that there is no log of it is told of the entry
    rows = origin.ledger.named.get(base.name)
    what = ""
    if rows is None:
        what = f"is not in the log of {owner}"
    elif rows[-1].shard.content != base.sha256:
        what = f"has another content by the log of {owner}"
    elif rows[-1].shard.records != row.shard.records:
        what = f"has {rows[-1].shard.records} records, and the overlay {row.shard.records}"
    if what and not logs.is_in_doubt(history, origin, f"whether {base.name} {what}"):
        yield Finding(
            "error",
            "other-input",
            history.name,
            f"shard {row.shard.name}",
            f"it lies beside {base.name}, which {what}",
            _REWRITTEN,
            row.landed,
        )
