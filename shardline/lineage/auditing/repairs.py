"""What repairs could not bring back: it stays lost, and is told for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Hint
from shardline.lineage.findings import Finding
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.auditing.audited_logs import History
    from shardline.log.entry import Entry


def lost_in(entry: Entry | None) -> int:
    """How many records a repair lost, as its entry tells."""
    told = None if entry is None else entry.parameters.get("lost_records")
    return told if isinstance(told, int) else 0


def loss_findings(history: History) -> Iterator[Finding]:
    """Repairs that lost records, unless a later one of the same shard brought them back."""
    for number in history.repairs.values():
        entry = history.entry(number)
        lost = lost_in(entry)
        if entry is None or not lost or _came_back(history, entry):
            continue
        yield Finding(
            "note",
            "lost-records",
            history.name,
            f"entry {number}, shard {entry.parameters.get('shard')}",
            f"its repair kept what was intact, and lost {counted(lost, 'record')}",
            Hint.of("append the lost records from another copy of its source, if there is one"),
            number,
        )


def _came_back(history: History, entry: Entry) -> bool:
    made = (history.repairs.get(one.shard.name) for one in entry.added)
    later = (history.entry(number) for number in made if number is not None)
    return any(one is not None and one.parameters.get("how") != "salvage" for one in later)
