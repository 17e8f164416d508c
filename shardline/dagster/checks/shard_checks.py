"""The checks `integrity` and `schema`: findings by shard.

Both together read each shard once, and only shards that have not passed before. Rejected sources
are not in the snapshot, so neither check concerns them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from shardline.api import Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import CheckOutcome
from shardline.log.entry import Entry
from shardline.log.model import INTEGRITY, SCHEMA
from shardline.log.publication import has_check
from shardline.operations.check import CheckReport
from shardline.text import format_bytes, format_count

MAX_FINDINGS = 20
_MAX_ENTRIES = 200
_SHARD = dg.TableColumn("shard", description="shard, or source that was rejected")
_RECORD, _OFFSET = dg.TableColumn("record", "int"), dg.TableColumn("offset", "int")
_FIELD, _PROBLEM = dg.TableColumn("field"), dg.TableColumn("problem")
_COLUMNS = {
    INTEGRITY: dg.TableSchema([_SHARD, _RECORD, _OFFSET, _PROBLEM]),
    SCHEMA: dg.TableSchema([_SHARD, _RECORD, _FIELD, _PROBLEM]),
}


@dataclass(frozen=True, slots=True)
class ShardFinding:
    """A problem of a shard."""

    shard: str
    problem: str
    record: int | None = None
    offset: int | None = None
    field: str | None = None
    text: str = ""

    def __str__(self) -> str:
        if self.text:
            return self.text
        parts = [
            f"record {self.record}" if self.record is not None else "",
            f"offset {self.offset}" if self.offset is not None else "",
            f"field {self.field!r}" if self.field is not None else "",
        ]
        position = ", ".join(part for part in parts if part)
        return f"{self.shard}{f' at {position}' if position else ''}: {self.problem}"


def list_shard_findings(report: CheckReport, check: str) -> list[ShardFinding]:
    """Return the problems that a check found in the shards of a snapshot."""
    findings = []
    for shard in report.shards:
        if check == INTEGRITY:
            if shard.problems:
                position = shard.corrupt_at or (None, None)
                findings.append(
                    ShardFinding(shard.shard.name, "; ".join(shard.problems), *position)
                )
        else:
            findings += [
                ShardFinding(
                    shard.shard.name, violation.detail, violation.record, None, violation.feature
                )
                for violation in shard.violations
            ]
    return findings


def check_shards(
    check: str, version: Version, report: CheckReport, *, reread: bool = False
) -> CheckOutcome:
    """Return the outcome of the check `integrity` or `schema`.

    Shards that were not read have an attestation in the log, whose entry and time are given.
    """
    snapshot = report.snapshot
    findings = list_shard_findings(report, check)
    unread = _list_unread_shards(version, report) if check == SCHEMA else []
    read = len(report.shards)
    read_bytes = sum(shard.shard.bytes for shard in report.shards)
    metadata: dict[str, Any] = {
        keys.SNAPSHOT: snapshot.number,
        keys.SHARDS: snapshot.totals.shards,
        keys.SHARDS_READ: read,
        keys.BYTES_READ: read_bytes,
        keys.ATTESTED_SHARDS: snapshot.totals.shards - read,
        keys.PROBLEMS: len(findings) + len(unread),
    }
    extent = (
        f"{format_count(read, 'shard')} ({format_bytes(read_bytes)}) {'re' if reread else ''}read"
    )
    if read < snapshot.totals.shards:
        rest = format_count(snapshot.totals.shards - read, "shard")
        entry = find_last_attestation(version, check, {shard.name for shard in snapshot.shards})
        extent += f", {rest} attested earlier"
        if entry is not None:
            extent += f" (latest in entry {entry.number}, {entry.time:%Y-%m-%d %H:%M} UTC)"
            metadata[keys.ATTESTED_ENTRY] = entry.number
            metadata[keys.ATTESTED_TIME] = dg.MetadataValue.timestamp(entry.time)
    problems = [*findings, *unread]
    if problems:
        metadata[keys.FIRST_PROBLEMS] = _build_table(check, problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        description = f"{snapshot}: {problems[0]}{more}; {extent}"
        return CheckOutcome(passed=False, description=description, metadata=metadata)
    result = "match the log" if check == INTEGRITY else "fit the schema"
    amount = (
        f"{format_count(snapshot.records, 'record')} in "
        f"{format_count(snapshot.totals.shards, 'shard')}"
    )
    return CheckOutcome(
        passed=True, description=f"{snapshot}: {amount} {result}; {extent}", metadata=metadata
    )


def _list_unread_shards(version: Version, report: CheckReport) -> list[ShardFinding]:
    """Return the shards whose schema is unknown, because they could not be read to the end."""
    names = [check.shard.name for check in report.shards if not check.read and not check.violations]
    known = version.state.shard_history.named(names) if names else {}
    return [
        ShardFinding(name, "not evaluated: the shard is unreadable")
        for name in names
        if not has_check(version, known[name].passed, SCHEMA)
    ]


def find_last_attestation(version: Version, check: str, shards: Collection[str]) -> Entry | None:
    """Return the latest recent entry that attests that one of these shards passed."""
    latest = version.state.number
    for number in range(latest, max(0, latest - _MAX_ENTRIES), -1):
        entry = version.log.entry(number)
        for attestation in entry.attestations:
            if (
                attestation.check == check
                and attestation.passed
                and not set(attestation.shards).isdisjoint(shards)
            ):
                return entry
    return None


def _build_table(check: str, findings: Sequence[ShardFinding]) -> dg.TableMetadataValue:
    columns = _COLUMNS[check]
    rows = [
        dg.TableRecord({column.name: getattr(finding, column.name) for column in columns.columns})
        for finding in findings[:MAX_FINDINGS]
    ]
    return dg.MetadataValue.table(rows, columns)
