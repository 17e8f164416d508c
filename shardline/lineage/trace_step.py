"""Results of a trace: the steps of a record up to its sources, and its descendants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from shardline.report import Report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.hints import Hint
    from shardline.log.entry import Entry
    from shardline.log.model import CommitInfo
    from shardline.provenance.feature_origin import FeatureOrigin
    from shardline.provenance.row_mapping import SourceRow


@dataclass(frozen=True, slots=True)
class TraceGap(Report):
    """An end of a trace without a source: the reason as text and code, and a hint."""

    reason: str
    code: str = "origin-not-recorded"
    hint: Hint | None = None

    def to_dict(self) -> Json:
        """Return the gap as JSON."""
        payload: Json = {"unknown": self.reason, "code": self.code}
        return payload if self.hint is None else {**payload, "hint": self.hint.to_dict()}


@dataclass(frozen=True, slots=True)
class EntryRef(Report):
    """The entry that added a shard: number, operation, time and writer."""

    entry: int
    operation: str
    time: datetime
    commit_info: CommitInfo

    @classmethod
    def of(cls, entry: Entry) -> EntryRef:
        """Return the reference to an entry."""
        return cls(entry.number, entry.operation, entry.time, entry.commit_info)

    def to_dict(self) -> Json:
        """Return the reference as JSON."""
        return {
            "entry": self.entry,
            "operation": self.operation,
            "time": self.time.isoformat(),
            "by": self.commit_info.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Removal(Report):
    """The removal of a shard by `erase` or `vacuum`.

    `is_erased` is True if the erase removed the traced record. `file_exists` is True until vacuum
    deletes the file.
    """

    entry: int
    operation: str
    time: datetime
    is_erased: bool
    file_exists: bool

    def to_dict(self) -> Json:
        """Return the removal as JSON."""
        return {
            "entry": self.entry,
            "operation": self.operation,
            "time": self.time.isoformat(),
            "file_exists": self.file_exists,
        }


@dataclass(frozen=True, slots=True)
class TraceStep(Report):
    """A record of a snapshot and the records or rows that it came from.

    Attributes:
        version: The version.
        snapshot: The snapshot.
        record: The number of the record in the snapshot, from 0.
        shard: The shard.
        shard_record: The number of the record in the shard, from 0.
        origin: The entry that added the shard first.
        upstream: The records and rows that the record came from.
        features: The origin of each feature of a derived version.
        remark: A remark about the record.
        reused: The entry that added the shard to this snapshot, if it is a later one.
        removal: The removal of the shard, if it was removed.
    """

    version: str
    snapshot: int
    record: int
    shard: str
    shard_record: int
    origin: EntryRef
    upstream: tuple[TraceOrigin, ...] = ()
    features: Mapping[str, FeatureOrigin] = field(default_factory=dict)
    remark: str = ""
    reused: int | None = None
    removal: Removal | None = None

    @property
    def is_erased(self) -> bool:
        """True if the record was erased from its version."""
        return self.removal is not None and self.removal.is_erased

    @property
    def steps(self) -> list[TraceStep]:
        """This step and all upstream steps, each after its downstream step."""
        steps, pending = [], [self]
        while pending:
            steps.append(pending.pop())
            pending += [
                step for step in reversed(steps[-1].upstream) if isinstance(step, TraceStep)
            ]
        return steps

    @property
    def leaves(self) -> list[SourceRow | TraceGap]:
        """The source rows and gaps at the ends, from left to right."""
        return [
            origin
            for step in self.steps
            for origin in step.upstream
            if not isinstance(origin, TraceStep)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as JSON: its steps."""
        return {"steps": self.to_list()}

    def to_list(self) -> list[Json]:
        """Return all steps as JSON; `upstream` names steps by their index in the list."""
        steps = self.steps
        indexes = {id(step): index for index, step in enumerate(steps)}
        return [
            _serialize_step(
                step,
                [
                    {"step": indexes[id(origin)]}
                    if isinstance(origin, TraceStep)
                    else origin.to_dict()
                    for origin in step.upstream
                ],
            )
            for step in steps
        ]


def _serialize_step(step: TraceStep, upstream: list[Json]) -> Json:
    payload: Json = {
        "version": step.version,
        "snapshot": step.snapshot,
        "record": step.record,
        "shard": step.shard,
        "shard_record": step.shard_record,
        **step.origin.to_dict(),
        "upstream": upstream,
        "erased": step.is_erased,
    }
    if step.reused is not None:
        payload["reused_in"] = step.reused
    if step.removal is not None:
        payload["removal"] = step.removal.to_dict()
    if step.features:
        payload["features"] = {
            name: {
                "how": origin.change,
                "upstream": [":".join(pair) for pair in origin.upstream],
                "by": origin.function,
            }
            for name, origin in step.features.items()
        }
    if step.remark:
        payload["remark"] = step.remark
    return payload


TraceOrigin: TypeAlias = "TraceStep | SourceRow | TraceGap"


@dataclass(frozen=True, slots=True)
class DescendantRecord(Report):
    """A record that came from another, or a place where the trace lost it.

    Attributes:
        version: The version.
        shard: The shard.
        shard_record: The number of the record in the shard, or None if it is lost.
        origin: The entry that added the shard first.
        snapshots: The snapshots that contain it, as spans of first and last.
        record: Its number in the last of these snapshots.
        upstream: Version, shard and number of the record that it came from, or None for the
            traced record itself.
        consumers: The consumers of snapshots that contain it.
        reason: Why the record is lost.
        code: The reason for scripts.
        hint: The remedy, if there is one.
    """

    version: str
    shard: str
    shard_record: int | None
    origin: EntryRef
    snapshots: tuple[tuple[int, int], ...] = ()
    record: int | None = None
    upstream: tuple[str, str, int] | None = None
    consumers: tuple[str, ...] = ()
    reason: str = ""
    code: str = ""
    hint: Hint | None = None

    @property
    def snapshot(self) -> int | None:
        """The last snapshot that contains it."""
        return self.snapshots[-1][1] if self.snapshots else None

    def to_dict(self) -> Json:
        """Return the record as JSON."""
        names = ("version", "shard", "shard_record")
        return {
            "version": self.version,
            "snapshot": self.snapshot,
            "record": self.record,
            "shard": self.shard,
            "shard_record": self.shard_record,
            "snapshots": [list(span) for span in self.snapshots],
            **self.origin.to_dict(),
            "upstream": self.upstream and dict(zip(names, self.upstream, strict=True)),
            "consumers": list(self.consumers),
            **({"reason": self.reason, "code": self.code} if self.reason else {}),
            **({} if self.hint is None else {"hint": self.hint.to_dict()}),
        }


@dataclass(frozen=True, slots=True)
class DescendantCounts(Report):
    """Counts of the descendants of a record in a version.

    Attributes:
        version: The version.
        now: The records in the latest snapshot.
        ever: The records in any snapshot.
        snapshots: The snapshots with one of them, as spans of first and last.
        consumers: The consumers of these snapshots.
        gaps: The places where the trace lost a record.
        listed: The records that are listed.
    """

    version: str
    now: int
    ever: int
    snapshots: tuple[tuple[int, int], ...]
    consumers: tuple[str, ...]
    gaps: int
    listed: int
