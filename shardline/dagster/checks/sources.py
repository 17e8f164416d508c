"""The check `sources_accepted`: no source that arrived is missing from the version unnoticed.

It reads the log alone, so its result does not depend on the run that asks. It blocks nothing: what
landed is sound without what was rejected.
"""

import dagster as dg

from shardline.api import Version
from shardline.dagster.checks.check_outcome import CheckOutcome, strip_suite
from shardline.operations.rejected_sources import DuplicateSource, RejectedSource, open_sources
from shardline.text import format_count

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
