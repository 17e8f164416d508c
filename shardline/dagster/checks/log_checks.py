"""Checks that read only logs: `published`, `volume` and `sources_accepted`.

`published` passes if downstream may read the snapshot. The others are for versions that grow and
block nothing: an unusual number of rows may be right, and the appended rows are sound without the
rejected sources.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import CheckOutcome, strip_suite
from shardline.log.entry import Entry
from shardline.log.model import Checks
from shardline.log.publication import has_check
from shardline.operations.rejected_sources import DuplicateSource, RejectedSource, open_sources
from shardline.operations.status import iter_blockers
from shardline.provenance.dependencies import list_broken_dependencies
from shardline.text import format_count

PUBLISHED = "published"
_MAX_NAMES = 3


@dataclass(frozen=True, slots=True)
class Publication:
    """The publication state of a snapshot, and the snapshot that readers get.

    Attributes:
        snapshot: The snapshot.
        reasons: Why downstream may not read it, empty if it may.
        unchecked: The checks without a result, if nothing else blocks the snapshot.
        broken: Number of shards of other versions that it needs and that are removed or corrupt.
        published: The published snapshot, 0 if there is none.
        rows: Rows of the published snapshot.
    """

    snapshot: int
    reasons: tuple[str, ...]
    unchecked: tuple[str, ...]
    broken: int
    published: int
    rows: int

    @property
    def is_open(self) -> bool:
        """True if downstream may read the snapshot."""
        return not self.reasons


def get_publication(
    version: Version,
    number: int,
    declared: Checks,
    open_version: Callable[[str], Version] | None = None,
) -> Publication:
    """Return the publication state of a snapshot. No shard is read.

    `declared` are the checks that the declaration of the version requires. A log that was created
    elsewhere may require fewer.
    """
    reasons: list[str] = []
    unchecked: dict[str, None] = {}
    is_final = False
    if not version.snapshot(number).published:
        rejection = ""
        for blocker in iter_blockers(version, number):
            detail = strip_suite(blocker.detail)
            if blocker.kind == "rejected":
                rejection = detail
            # A rejection names the failure that caused it.
            if blocker.kind != "failed" or not detail or detail not in rejection:
                suffix = f": {detail}" if detail else ""
                reasons.append(f"{blocker.check or 'snapshot'} {blocker.kind}{suffix}")
            if blocker.kind == "missing":
                unchecked[blocker.check] = None
            else:
                is_final = True
    for check, has_failed in _list_unrequired_checks(version, number, declared):
        reasons.append(f"{check} has {'failed' if has_failed else 'not passed'}")
        if has_failed:
            is_final = True
        else:
            unchecked[check] = None
    broken = list_broken_dependencies(version, number, open_version)
    reasons += [str(blocker) for blocker in broken]
    published = version.state.published or 0
    return Publication(
        number,
        tuple(reasons),
        () if is_final else tuple(unchecked),
        len(broken),
        published,
        version.snapshot(published).records if published else 0,
    )


def check_published(version: Version, publication: Publication) -> CheckOutcome:
    """Return the outcome of the check `published`."""
    name = f"{version.name}@{publication.snapshot}"
    numbers = {
        keys.SNAPSHOT: publication.snapshot,
        keys.PUBLISHED_SNAPSHOT: publication.published,
        keys.PUBLISHED_ROWS: publication.rows,
    }
    if publication.is_open:
        rows = format_count(version.snapshot(publication.snapshot).records, "row")
        rejected = _format_rejection(version, publication.snapshot)
        return CheckOutcome(passed=True, description=f"{name}: {rows}{rejected}", metadata=numbers)
    readable = (
        f"Readers get snapshot {publication.published} ({format_count(publication.rows, 'row')})"
        if publication.published
        else "Readers get no snapshot yet"
    )
    named = "; ".join(publication.reasons[:_MAX_NAMES])
    more = len(publication.reasons) - _MAX_NAMES
    named += f"; and {more} more" if more > 0 else ""
    return CheckOutcome(
        passed=False,
        description=f"{name} is not published: {named}. {readable}",
        metadata={**numbers, keys.BLOCKERS: len(publication.reasons)},
    )


def _format_rejection(version: Version, number: int) -> str:
    """Return which snapshot the entry rejected, empty if it is not a rejection."""
    entry = version.log.entry(version.snapshot(number).entry)
    return "" if entry.rejects is None else f", without rejected snapshot {entry.rejects}"


def _list_unrequired_checks(
    version: Version, number: int, declared: Checks
) -> Iterator[tuple[str, bool]]:
    """Yield the declared checks that the log does not require and that have not passed.

    Each comes with whether it has failed.
    """
    state = version.state
    needed = state.get_checks(number)
    of_shards = [check for check in declared.shard if check not in needed.shard]
    of_snapshots = [check for check in declared.snapshot if check not in needed.snapshot]
    intervals = state.shard_history.at(number) if of_shards else []
    for check in of_shards:
        if not all(has_check(version, interval.passed, check) for interval in intervals):
            yield check, any(has_check(version, interval.failed, check) for interval in intervals)
    for check in of_snapshots:
        row = state.snapshot_history.get_row(number)
        if not has_check(version, row.passed, check):
            yield check, has_check(version, row.failed, check)


_MAX_APPENDS = 20
_MAX_ENTRIES = 200
_MIN_APPENDS = 3
_FACTOR = 10


def check_volume(version: Version, snapshot: Snapshot) -> CheckOutcome:
    """Compare the rows that a snapshot added with those of recent appends.

    Rejected appends do not count.
    """
    entry = version.log.entry(snapshot.entry)
    totals: dict[str, int | float] = {keys.ADDED_ROWS: 0, keys.ROWS: snapshot.records}
    if entry.operation != "append":
        reason = f"{snapshot}: not an append but a {entry.operation}"
        return CheckOutcome(passed=True, description=reason, metadata=totals)
    added = _count_rows(entry)
    before = _list_appended_rows(version, snapshot.number)
    metadata = {**totals, keys.ADDED_ROWS: added, keys.COMPARED_APPENDS: len(before)}
    description = f"{format_count(added, 'row')} added"
    if before:
        usual = float(median(before))
        metadata[keys.USUAL_ROWS] = usual
        metadata[keys.USUAL_SPREAD] = float(median(abs(rows - usual) for rows in before))
        description += f", usually {usual:,.0f} ({min(before):,} to {max(before):,}"
        description += (
            f" in the last {len(before)} appends)"
            if len(before) > 1
            else " in the previous append)"
        )
    warning = _format_warning(added, before)
    return CheckOutcome(
        passed=not warning,
        description=f"{warning}: {description}" if warning else description,
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
    history = version.state.snapshot_history
    counts: list[int] = []
    for earlier in range(number - 1, max(number - 1 - _MAX_ENTRIES, 0), -1):
        row = history.get_row(earlier)
        if row.rejected:
            continue
        entry = version.log.entry(row.entry)
        if entry.operation == "append":
            counts.append(_count_rows(entry))
        if len(counts) == _MAX_APPENDS:
            break
    return counts


def _count_rows(entry: Entry) -> int:
    # Shards without a source come from earlier appends: a replacement rewrote them.
    return sum(added.shard.records for added in entry.added if added.shard.source is not None)


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
    sources = open_sources(version)
    rejected, duplicates = sources.rejected, sources.duplicates
    return CheckOutcome(
        passed=not sources.all,
        description=_format_sources(version.name, rejected, duplicates),
        metadata={
            keys.REJECTED_SOURCES: len(rejected),
            keys.DUPLICATE_SOURCES: len(duplicates),
            **({keys.REJECTED_TABLE: _build_rejected_table(rejected)} if rejected else {}),
            **({keys.DUPLICATES_TABLE: _build_duplicate_table(duplicates)} if duplicates else {}),
        },
        warns=bool(duplicates) and not rejected,
    )


def _format_sources(
    name: str, rejected: tuple[RejectedSource, ...], duplicates: tuple[DuplicateSource, ...]
) -> str:
    skipped = f"{format_count(len(duplicates), 'duplicate')} skipped"
    if rejected:
        first = rejected[0]
        parts = [f"{name}: {format_count(len(rejected), 'rejected source')}"]
        parts += [skipped] if duplicates else []
        return f"{', '.join(parts)}. Latest: {first.source.label}: {_format_reason(first)}"
    if duplicates:
        last = duplicates[0]
        return f"{name}: {skipped}. Latest: {last.source.label}, same content as {last.first}"
    return f"{name}: no open rejected sources or duplicates"


def _format_reason(rejected: RejectedSource) -> str:
    """Return why a source was rejected, without its path and the digest of the suite."""
    return strip_suite(rejected.reason).removeprefix(f"{rejected.source.label}: ")


def _build_rejected_table(rejected: tuple[RejectedSource, ...]) -> dg.TableMetadataValue:
    rows = [
        dg.TableRecord(
            {
                "source": source.source.label,
                "reason": _format_reason(source),
                "record": source.record,
                "offset": source.offset,
                "entry": source.entry,
                "since": source.time.strftime(_TIME),
            }
        )
        for source in rejected[:MAX_SOURCES]
    ]
    return dg.MetadataValue.table(rows, _REJECTED)


def _build_duplicate_table(duplicates: tuple[DuplicateSource, ...]) -> dg.TableMetadataValue:
    rows = [
        dg.TableRecord(
            {
                "source": source.source.label,
                "first": source.first,
                "entry": source.entry,
                "since": source.time.strftime(_TIME),
            }
        )
        for source in duplicates[:MAX_SOURCES]
    ]
    return dg.MetadataValue.table(rows, _DUPLICATES)
