"""Is each log as it was written: its entries, their chain, and what they claim?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.lineage.auditing.audited_logs import CLOCKS_APART
from shardline.lineage.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from shardline.errors import LogFault
    from shardline.lineage.auditing.audited_logs import AuditedLogs, History

_COPY = "get the entry back from a copy of the root, and find out who can write there"
_ADVICE: dict[LogFault, str] = {
    "missing-entry": f"{_COPY}; what came behind it cannot be trusted without it",
    "edited-entry": _COPY,
    "moved-entry": _COPY,
    "broken-chain": "compare both entries with a copy of the root: one of them is not the one that "
    "was committed",
    "back-dated-entry": "compare it with a copy of the root: no commit goes back in time",
    "false-entry": "compare it with a copy of the root: no release of shardline commits such an "
    "entry",
    "bad-checkpoint": "delete the checkpoint: it is derived, and believed by whoever opens this",
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
            "audit it with the release that wrote it, or get the log back from a copy of the root",
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
            f"{_ADVICE[one.kind]}: {file}" if derived else _ADVICE[one.kind],
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
            f"run 'shardline check {name}', which says anew what passes",
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
            "compare the entry with a copy of the root: no check writes such an attestation",
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
            "find out whose clock it was, the writer's or this one: every later entry takes its "
            "time over until that has come",
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
            "nothing here: mend that log, and audit again"
            if cause in told
            else f"'shardline audit {cause}' tells what is wrong with that log",
        )
