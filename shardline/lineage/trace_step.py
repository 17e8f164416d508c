"""What a trace tells: the steps of one record back to its source, and the places it went to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shardline.provenance.log_index import TraceGapError, is_in_place_entry
from shardline.provenance.row_mapping import SourceRow, map_records_down

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.hints import Hint
    from shardline.log.entry import Entry
    from shardline.log.model import CommitInfo
    from shardline.provenance.feature_origin import FeatureOrigin
    from shardline.provenance.log_index import LogIndex


@dataclass(frozen=True, slots=True)
class TraceGap:
    """A trace that ends without a source: why, as text and as code, and what to do."""

    why: str
    code: str = "origin-not-recorded"
    hint: Hint | None = None

    def to_dict(self) -> Json:
        """The end for machines."""
        told: Json = {"unknown": self.why, "code": self.code}
        return told if self.hint is None else {**told, "hint": self.hint.to_dict()}


@dataclass(frozen=True, slots=True)
class EntryRef:
    """The entry by which a shard came: which it is, what was done, when, and by whom."""

    entry: int
    operation: str
    time: datetime
    maker: CommitInfo

    @classmethod
    def of(cls, entry: Entry) -> EntryRef:
        """That of an entry."""
        return cls(entry.number, entry.operation, entry.time, entry.maker)

    def to_dict(self) -> Json:
        """The entry for machines."""
        return {
            "entry": self.entry,
            "operation": self.operation,
            "time": self.time.isoformat(),
            "by": self.maker.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Removal:
    """That a version gave up the shard of a record: in which entry, and what is left of it.

    `operation` is `erase` or `vacuum`; `erased` says that this record is one that an erase took
    out. `there` tells whether the file of the shard still is.
    """

    entry: int
    operation: str
    time: datetime
    erased: bool
    there: bool

    def to_dict(self) -> Json:
        """The fate for machines."""
        return {
            "entry": self.entry,
            "operation": self.operation,
            "time": self.time.isoformat(),
            "file_there": self.there,
        }


@dataclass(frozen=True, slots=True)
class TraceStep:
    """A record in a snapshot, and what it was made of.

    `record` is its number in the snapshot, `shard_record` that in its shard; both count from 0.
    `made` is by which entry the shard came first, `reused` the one that took it over again into
    this snapshot, if another did. `fields` tells where the features of a derived version come from,
    `remark` what else is to be said of this record, `fate` what became of its shard if it was given
    up.
    """

    version: str
    snapshot: int
    record: int
    shard: str
    shard_record: int
    made: EntryRef
    of: tuple[TraceOrigin, ...] = ()
    fields: Mapping[str, FeatureOrigin] = field(default_factory=dict)
    remark: str = ""
    reused: int | None = None
    fate: Removal | None = None

    @property
    def erased(self) -> bool:
        """Whether the record was erased from its version since."""
        return self.fate is not None and self.fate.erased

    @property
    def of_erased(self) -> bool:
        """Whether a record that it was made of was erased."""
        return any(isinstance(one, TraceStep) and one.erased for one in self.of)

    @property
    def steps(self) -> list[TraceStep]:
        """This one and all before it, each behind what was made of it."""
        found, left = [], [self]
        while left:
            found.append(left.pop())
            left += [one for one in reversed(found[-1].of) if isinstance(one, TraceStep)]
        return found

    @property
    def leaves(self) -> list[SourceRow | TraceGap]:
        """Where all ways back end, from left to right."""
        return [one for step in self.steps for one in step.of if not isinstance(one, TraceStep)]

    def to_list(self) -> list[Json]:
        """This step and all before it for machines; `of` names steps by their place in the list."""
        steps = self.steps
        places = {id(step): at for at, step in enumerate(steps)}
        return [
            step._told(  # noqa: SLF001 - its own class
                [
                    {"step": places[id(one)]} if isinstance(one, TraceStep) else one.to_dict()
                    for one in step.of
                ]
            )
            for step in steps
        ]

    def _told(self, of: list[Json]) -> Json:
        told: Json = {
            "version": self.version,
            "snapshot": self.snapshot,
            "record": self.record,
            "shard": self.shard,
            "shard_record": self.shard_record,
            **self.made.to_dict(),
            "of": of,
            "erased": self.erased,
        }
        told |= {} if self.reused is None else {"reused_in": self.reused}
        told |= {} if self.fate is None else {"given_up": self.fate.to_dict()}
        if self.fields:
            told["fields"] = {
                name: {"how": one.how, "of": [":".join(pair) for pair in one.of], "by": one.by}
                for name, one in self.fields.items()
            }
        return {**told, "remark": self.remark} if self.remark else told


TraceOrigin: TypeAlias = "TraceStep | SourceRow | TraceGap"
_OF = ("version", "shard", "shard_record")


@dataclass(frozen=True, slots=True)
class DescendantRecord:
    """A record that was made of another, or the shard in which it should be and is not.

    It is in the snapshots of `held`, as spans of first and last; `record` is its number in the
    newest of these. `shard_record` is None where there is no such record, or it cannot be told
    which: `why` and `code` say that, and `hint` what to do. `of` is what it is made of: a version,
    a shard of it and the record in that; None for the record that was asked for. `made` is by
    which entry the shard came first. `consumers` registered on snapshots that hold it.
    """

    version: str
    shard: str
    shard_record: int | None
    made: EntryRef
    held: tuple[tuple[int, int], ...] = ()
    record: int | None = None
    of: tuple[str, str, int] | None = None
    consumers: tuple[str, ...] = ()
    why: str = ""
    code: str = ""
    hint: Hint | None = None

    @property
    def snapshot(self) -> int | None:
        """The newest snapshot that holds it."""
        return self.held[-1][1] if self.held else None

    def to_dict(self) -> Json:
        """The place for machines."""
        return {
            "version": self.version,
            "snapshot": self.snapshot,
            "record": self.record,
            "shard": self.shard,
            "shard_record": self.shard_record,
            "snapshots": [list(span) for span in self.held],
            **self.made.to_dict(),
            "of": self.of and dict(zip(_OF, self.of, strict=True)),
            "consumers": list(self.consumers),
            **({"why": self.why, "code": self.code} if self.why else {}),
            **({} if self.hint is None else {"hint": self.hint.to_dict()}),
        }


@dataclass(frozen=True, slots=True)
class DescendantCounts:
    """How much a version has of a record and of what was made of it.

    `now` counts the records in its newest snapshot, `ever` those in any; `held` are the snapshots
    that hold one, as spans of first and last. `gaps` counts where one was lost on the way, or where
    it cannot be told. `listed` of the records have their place told.
    """

    version: str
    now: int
    ever: int
    held: tuple[tuple[int, int], ...]
    consumers: tuple[str, ...]
    gaps: int
    listed: int

    def to_dict(self) -> Json:
        """The counts for machines."""
        return {
            "version": self.version,
            "now": self.now,
            "ever": self.ever,
            "snapshots": [list(span) for span in self.held],
            "consumers": list(self.consumers),
            "gaps": self.gaps,
            "listed": self.listed,
        }


def find_removal(index: LogIndex, step: TraceStep) -> Removal | None:
    """What became of the shard of a step, whose `of` is known; None if the version keeps it.

    A record was erased if the log says so of it, or of what was made of it in place; or if it was
    made of an erased one, and its shard was given up by an erase.
    """
    version = index.version(step.version)
    condemned = version.state.condemned_in(step.shard)
    if condemned is None:
        return None
    given_up = [
        entry
        for entry in index.entries(step.version)
        if step.shard in entry.condemned and entry.operation == "erase"
    ]
    entry = given_up[0] if given_up else index.entry(step.version, condemned)
    erased = bool(given_up) and (
        _is_erased(index, step.version, step.shard, step.shard_record) or step.of_erased
    )
    there = version.store.info(version.shard_name(step.shard)) is not None
    return Removal(entry.number, entry.operation, entry.time, erased, there)


def _is_erased(index: LogIndex, version: str, shard: str, inside: int) -> bool:
    """Whether an erase took a record out, there or where it was put in place since."""
    waiting = [(shard, inside)]
    for name, record in waiting:  # it grows while it is read
        for entry in _list_removing_entries(index, version, name):
            try:
                outcomes = list(
                    map_records_down(index, entry, version, name, np.array([record], np.int64))
                )
            except TraceGapError:
                continue
            for outcome in outcomes:
                if outcome.why and entry.operation == "erase":
                    return True
                found = [(outcome.shard, int(one)) for one in outcome.records]
                waiting += [one for one in found if one not in waiting]
    return False


def _list_removing_entries(index: LogIndex, version: str, shard: str) -> list[Entry]:
    """The entries that made others of a shard, in its own version, and took it out."""
    state = index.version(version).state
    entries = [
        index.entry(version, state.timeline.moment(until).entry)
        for _, until in state.stays.spans(shard)
        if until <= state.snapshot
    ]
    # A stay ends too where the list before it changed.
    return [one for one in entries if is_in_place_entry(one) and shard in one.removed]
