"""The check of volume: whether an append brought about as many rows as appends usually do.

It reads the log alone, and never blocks: a day may be a quiet one.
"""

from statistics import median

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster.checks.check_outcome import CheckOutcome, strip_suite
from shardline.log.entry import Entry
from shardline.operations.rejected_sources import DuplicateSource, RejectedSource, open_sources
from shardline.text import format_count

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


SOURCES = "sources_accepted"
MAX_SOURCES = 20
_TIME = "%Y-%m-%d %H:%M"
_SOURCE = dg.TableColumn("source", description="path, URI or batch name")
_ENTRY = dg.TableColumn("entry", "int", description="log entry that rejected or skipped it")
_SINCE = dg.TableColumn("since", description="time of that entry (UTC)")
_REJECTED = dg.TableSchema(
    [
        _SOURCE,
        dg.TableColumn("reason"),
        dg.TableColumn("record", "int"),
        dg.TableColumn("offset", "int"),
        _ENTRY,
        _SINCE,
    ]
)
_DUPLICATES = dg.TableSchema(
    [_SOURCE, dg.TableColumn("first", description="path with the same content"), _ENTRY, _SINCE]
)


def check_sources(version: Version) -> CheckOutcome:
    """Fail while a rejected source is open, and warn while a skipped duplicate is.

    A source is open until it lands, other content of its path or batch arrives, or `shardline
    dismiss` closes it.
    """
    version.refresh()
    found = open_sources(version)
    rejected, duplicates = found.rejected, found.duplicates
    return CheckOutcome(
        passed=not found.all,
        description=_format_description(version.name, rejected, duplicates),
        metadata={
            "rejected_sources": len(rejected),
            "duplicates": len(duplicates),
            **({"rejected": _build_rejected_table(rejected)} if rejected else {}),
            **({"skipped_duplicates": _build_duplicate_table(duplicates)} if duplicates else {}),
        },
        warns=bool(duplicates) and not rejected,
    )


def _format_description(
    name: str, rejected: tuple[RejectedSource, ...], duplicates: tuple[DuplicateSource, ...]
) -> str:
    skipped = f"{format_count(len(duplicates), 'duplicate')} skipped"
    if rejected:
        first = rejected[0]
        parts = [f"{name}: {format_count(len(rejected), 'rejected source')}"]
        parts += [skipped] if duplicates else []
        return f"{', '.join(parts)}. Latest: {first.source.shown}: {_format_reason(first)}"
    if duplicates:
        last = duplicates[0]
        return f"{name}: {skipped}. Latest: {last.source.shown}, same content as {last.first}"
    return f"{name}: no open rejected source or duplicate"


def _format_reason(rejected: RejectedSource) -> str:
    """Return why a source was rejected, without its path and the digest of the suite."""
    return strip_suite(rejected.reason).removeprefix(f"{rejected.source.shown}: ")


def _build_rejected_table(rejected: tuple[RejectedSource, ...]) -> dg.TableMetadataValue:
    rows = [
        dg.TableRecord(
            {
                "source": one.source.shown,
                "reason": _format_reason(one),
                "record": one.record,
                "offset": one.offset,
                "entry": one.entry,
                "since": one.time.strftime(_TIME),
            }
        )
        for one in rejected[:MAX_SOURCES]
    ]
    return dg.MetadataValue.table(rows, _REJECTED)


def _build_duplicate_table(duplicates: tuple[DuplicateSource, ...]) -> dg.TableMetadataValue:
    rows = [
        dg.TableRecord(
            {
                "source": one.source.shown,
                "first": one.first,
                "entry": one.entry,
                "since": one.time.strftime(_TIME),
            }
        )
        for one in duplicates[:MAX_SOURCES]
    ]
    return dg.MetadataValue.table(rows, _DUPLICATES)
