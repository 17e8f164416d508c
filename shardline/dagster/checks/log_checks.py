"""Checks of versions that grow, from the log alone: `volume` and `sources_accepted`.

Neither blocks: an unusual number of rows may be right, and what was appended is sound without the
rejected sources.
"""

from statistics import median

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import CheckOutcome, strip_suite
from shardline.log.entry import Entry
from shardline.operations.rejected_sources import DuplicateSource, RejectedSource, open_sources
from shardline.text import format_count

_MAX_APPENDS = 20
_MAX_ENTRIES = 200
_MIN_APPENDS = 3
_FACTOR = 10


def volume(version: Version, snapshot: Snapshot) -> CheckOutcome:
    """Compare the rows that a snapshot added with those of recent appends.

    Rejected appends do not count.
    """
    entry = version.log.entry(snapshot.entry)
    totals: dict[str, int | float] = {keys.ADDED_ROWS: 0, keys.ROWS: snapshot.records}
    if entry.operation != "append":
        what = f"{snapshot}: not an append but a {entry.operation}"
        return CheckOutcome(passed=True, description=what, metadata=totals)
    added = _count_rows(entry)
    before = _list_appended_rows(version, snapshot.number)
    metadata = {**totals, keys.ADDED_ROWS: added, keys.COMPARED_APPENDS: len(before)}
    told = f"{added:,} {'row was' if added == 1 else 'rows were'} added"
    if before:
        usual = float(median(before))
        metadata[keys.USUAL_ROWS] = usual
        metadata[keys.USUAL_SPREAD] = float(median(abs(rows - usual) for rows in before))
        told += f", usual are {usual:,.0f} ({min(before):,} to {max(before):,}"
        told += (
            f" in the last {len(before)} appends)"
            if len(before) > 1
            else " in the previous append)"
        )
    warning = _format_warning(added, before)
    return CheckOutcome(
        passed=not warning,
        description=f"{warning}: {told}" if warning else told,
        metadata=metadata,
        warns=bool(warning),
    )


def _format_warning(added: int, before: list[int]) -> str:
    if not added:
        return "no rows added"
    usual = median(before) if len(before) >= _MIN_APPENDS else 0
    if not usual:
        return ""
    if added >= _FACTOR * usual:
        return f"at least {_FACTOR} times the usual rows"
    if added * _FACTOR <= usual:
        return "at most a tenth of the usual rows"
    return ""


def _list_appended_rows(version: Version, number: int) -> list[int]:
    """Return the rows of earlier appends, latest first."""
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
    # Shards without a source are what a replacement kept of earlier ones.
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
    """Fail if rejected sources are open, and warn if skipped duplicates are.

    A source is open until it is appended, new content arrives under its path or batch, or
    `shardline dismiss` closes it.
    """
    version.refresh()
    found = open_sources(version)
    rejected, duplicates = found.rejected, found.duplicates
    return CheckOutcome(
        passed=not found.all,
        description=_format_description(version.name, rejected, duplicates),
        metadata={
            keys.REJECTED_SOURCES: len(rejected),
            keys.DUPLICATE_SOURCES: len(duplicates),
            **({keys.REJECTED_TABLE: _build_rejected_table(rejected)} if rejected else {}),
            **({keys.DUPLICATES_TABLE: _build_duplicate_table(duplicates)} if duplicates else {}),
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
