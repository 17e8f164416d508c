"""The check of volume: whether an append brought about as many rows as appends usually do.

It reads the log alone, and never blocks: a day may be a quiet one.
"""

from statistics import median

from shardline.api import Snapshot, Version
from shardline.dagster.checks.check_outcome import CheckOutcome
from shardline.log.entry import Entry

_MAX_APPENDS = 20
_MAX_ENTRIES = 200
_MIN_APPENDS = 3
_FACTOR = 10


def volume(version: Version, snapshot: Snapshot) -> CheckOutcome:
    """Hold the rows that a snapshot added against those of the last appends before it.

    All numbers of rows are those of the log. Appends that were rejected do not count.
    """
    entry = version.log.entry(snapshot.entry)
    totals: dict[str, int | float] = {"added_rows": 0, "total_rows": snapshot.records}
    if entry.operation != "append":
        what = f"{snapshot} was made by {entry.operation!r}, which brings no rows from outside"
        return CheckOutcome(passed=True, description=what, metadata=totals)
    added = _count_rows(entry)
    before = _list_appended_rows(version, snapshot.number)
    metadata = {**totals, "added_rows": added, "appends_compared": len(before)}
    told = f"{added:,} {'row was' if added == 1 else 'rows were'} added"
    if before:
        usual = float(median(before))
        metadata["usual_rows"] = usual
        metadata["usual_spread"] = float(median(abs(rows - usual) for rows in before))
        told += f"; usual are {usual:,.0f}, from {min(before):,} to {max(before):,}"
        told += f" in the last {len(before)}" if len(before) > 1 else " in the one before"
    warning = _format_warning(added, before)
    return CheckOutcome(
        passed=not warning,
        description=f"{warning}: {told}" if warning else told,
        metadata=metadata,
        warns=bool(warning),
    )


def _format_warning(added: int, before: list[int]) -> str:
    if not added:
        return "nothing came"
    usual = median(before) if len(before) >= _MIN_APPENDS else 0
    if not usual:
        return ""
    if added >= _FACTOR * usual:
        return f"{_FACTOR} times the usual, or more"
    if added * _FACTOR <= usual:
        return "a tenth of the usual, or less"
    return ""


def _list_appended_rows(version: Version, number: int) -> list[int]:
    """The rows of the appends before a snapshot, the newest first."""
    timeline = version.state.timeline
    found: list[int] = []
    for earlier in range(number - 1, max(number - 1 - _MAX_ENTRIES, 0), -1):
        moment = timeline.moment(earlier)
        if moment.rejected:
            continue
        entry = version.log.entry(moment.entry)
        if entry.operation == "append":
            found.append(_count_rows(entry))
        if len(found) == _MAX_APPENDS:
            break
    return found


def _count_rows(entry: Entry) -> int:
    # Without what a replacement left of shards that were there before.
    return sum(one.shard.records for one in entry.added if one.shard.source is not None)
