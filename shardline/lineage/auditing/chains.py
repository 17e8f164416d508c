"""Is each log as it was written: its entries, their chain, and what they claim?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Command, Hint
from shardline.lineage.auditing.audited_logs import CLOCKS_APART
from shardline.lineage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from shardline.errors import LogFault
    from shardline.lineage.auditing.audited_logs import AuditedLogs, History

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


def log_findings(history: History, now: datetime) -> Iterator[Finding]:
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
    if history.whole and ledger.so_far.newest() != ledger.published:
        yield Finding(
            "error",
            "false-entry",
            name,
            f"entry {ledger.number}",
            f"snapshot {ledger.published} is told to be the newest published one, and by what the "
            f"entries attest it is {ledger.so_far.newest()}",
            Hint.of("to attest again what passes, run ", Command.of("check", name)),
            ledger.number,
        )
    yield from _from_the_future(history, now)
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


def _from_the_future(history: History, now: datetime) -> Iterator[Finding]:
    """The first entry whose time is still to come: those behind it have to be as late."""
    last = history.entry_at(now + CLOCKS_APART)
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


def doubt_findings(logs: AuditedLogs, told: Collection[str]) -> Iterator[Finding]:
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
