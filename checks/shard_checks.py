"""What the integrity and the schema check tell: shard by shard, and source by source.

Both come of one pass over the shards that have not passed before. A source that could not land
in this run is told here too, under the check that its shards would have failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from checks.verdict import Verdict
from shardline.cli.wording import counted
from shardline.log.entry import Entry
from shardline.log.version import Version
from shardline.operations.check import INTEGRITY, SCHEMA, CheckReport

SHOWN = 20
_LOOKED_BACK = 200
_SHARD = dg.TableColumn("shard", description="the shard, or the source that could not land")
_RECORD, _OFFSET = dg.TableColumn("record", "int"), dg.TableColumn("offset", "int")
_FIELD, _PROBLEM = dg.TableColumn("field"), dg.TableColumn("problem")
_COLUMNS = {
    INTEGRITY: dg.TableSchema([_SHARD, _RECORD, _OFFSET, _PROBLEM]),
    SCHEMA: dg.TableSchema([_SHARD, _RECORD, _FIELD, _PROBLEM]),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `why` tells it in full, where `problem` and the place do not."""

    shard: str
    problem: str
    record: int | None = None
    offset: int | None = None
    field: str | None = None
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return self.why
        place = [
            f"record {self.record}" if self.record is not None else "",
            f"offset {self.offset}" if self.offset is not None else "",
            f"field {self.field!r}" if self.field is not None else "",
        ]
        where = ", ".join(part for part in place if part)
        return f"{self.shard}{f' at {where}' if where else ''}: {self.problem}"


def shard_findings(report: CheckReport, check: str) -> list[Finding]:
    """What a check found in the shards of a snapshot."""
    findings = []
    for shard in report.shards:
        if check == INTEGRITY:
            if shard.problems:
                at = shard.damaged_at or (None, None)
                findings.append(Finding(shard.shard.name, "; ".join(shard.problems), *at))
        else:
            findings += [
                Finding(shard.shard.name, one.detail, one.record, None, one.feature)
                for one in shard.violations
            ]
    return findings


def set_aside_by(version: Version, run_id: str) -> list[Entry]:
    """The entries by which a run set sources aside or skipped duplicates, of the newest ones."""
    first = max(1, version.state.number - _LOOKED_BACK)
    return [
        entry
        for entry in version.log.entries(first)
        if entry.maker.run == run_id and {"set_aside", "duplicates"} & entry.parameters.keys()
    ]


def duplicates_in(entries: Sequence[Entry]) -> list[str]:
    """The sources that were skipped since their content was there, each with the first path."""
    told = []
    for entry in entries:
        path_of = {source.key: source.path or "" for source in entry.sources}
        told += [
            f"{path_of[one['source']]} = {one.get('first', '')}"
            for one in entry.parameters.get("duplicates", ())
        ]
    return told


def source_findings(entries: Sequence[Entry], check: str) -> list[Finding]:
    """What kept sources from landing."""
    findings = []
    for entry in entries:
        path_of = {source.key: source.path or source.batch or "" for source in entry.sources}
        for told in entry.parameters.get("set_aside", ()):
            if told["check"] == check:
                name = path_of[told["source"]].rpartition("/")[2]
                what = str(told.get("detail") or told["reason"])
                place = (told.get("record"), told.get("offset"))
                findings.append(Finding(name, what, *place, why=str(told["reason"])))
    return findings


def shard_verdict(
    check: str,
    report: CheckReport,
    refused: Sequence[Finding],
    *,
    landed: bool,
    duplicates: Sequence[str] = (),
) -> Verdict:
    """The verdict of the integrity or the schema check.

    Sources that could not land are a warning if others `landed`: what landed is sound. So are
    `duplicates`, which were skipped: the check passes, and says so.
    """
    found = shard_findings(report, check)
    snapshot = report.snapshot
    told = [*found, *refused]
    read = sum(shard.shard.bytes for shard in report.shards)
    if found:
        description = f"{snapshot}: {found[0]}"
    elif refused:
        description = f"set aside, and not in {snapshot}: {refused[0]}"
    else:
        shards = counted(len(snapshot.shards), "shard")
        description = (
            f"{snapshot}: {shards}, all as committed"
            if check == INTEGRITY
            else f"{snapshot}: {counted(snapshot.records, 'record')} in {shards} fit the schema"
        )
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    if duplicates:
        more += f"; warning: {counted(len(duplicates), 'duplicate')} skipped"
    return Verdict(
        not told,
        description + more,
        {
            "snapshot": snapshot.number,
            "shards": len(snapshot.shards),
            "shards_read": len(report.shards),
            "bytes_read": read,
            "problems": len(told),
            "sources_set_aside": len(refused),
            "duplicates_skipped": len(duplicates),
            **({"duplicates": "\n".join(duplicates[:SHOWN])} if duplicates else {}),
            **({"first_problems": _table(check, told)} if told else {}),
        },
        warns=bool(refused) and not found and landed,
    )


def _table(check: str, findings: Sequence[Finding]) -> dg.TableMetadataValue:
    columns = _COLUMNS[check]
    rows = [
        dg.TableRecord({column.name: getattr(one, column.name) for column in columns.columns})
        for one in findings[:SHOWN]
    ]
    return dg.MetadataValue.table(rows, columns)
