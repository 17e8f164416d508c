"""Changes of an append: new shards with their sources, and rejected sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.errors import ConflictError, LogError, SchemaMismatchError
from shardline.hints import Hint
from shardline.log.changes import EntryDraft, diff_shards, list_live_names, validate_shards
from shardline.log.model import Added, Input, Shard, Source
from shardline.log.parameters import (
    AppendedSources,
    BatchDigest,
    DismissParameters,
    RejectParameters,
    ReplacedSource,
)
from shardline.log.state import DISMISS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardline.canonical_json import Json
    from shardline.log.parameters import (
        Dismissal,
        QuarantinedRows,
        SourceDuplicate,
        SourceProblem,
    )
    from shardline.log.state import State


@dataclass(frozen=True, slots=True)
class AppendBase:
    """The log as an append saw it when it chose its sources: its newest entry and snapshot.

    `words` are what the log said of sources that land although it knows them, by their keys.
    """

    entry: int
    snapshot: int
    words: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replacement:
    """What a replacement takes out: the landings of sources, and the shards that held them.

    `landings` are the key and the entry of each. `cut` names the shards; each is exchanged for the
    same without those records, or for None if it has no others. `at` tells for the key of a new
    source in whose place its shards go. `sidecars` are the digests of the files written with the
    shards in `cut`.
    """

    landings: Sequence[tuple[str, int]] = ()
    cut: Mapping[str, Shard | None] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)
    sidecars: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """New shards behind those that are there. Each says which of the sources it came from.

    A source that landed or was rejected before is left out with its shards; with
    `retry_rejected`, one that was rejected or rolled back comes in again. `quarantine` tells, by
    the key of a source, where its rows are that gave no record, and `digests` what the rows of a
    batch amount to.
    `sidecars` are the digests of the files written with the shards, by the key of their source.

    With `seen`, what landed meanwhile is compared: a source of the same path, batch or content
    makes the choice stale. Then `exchange` is what the new sources replace.
    """

    shards: Sequence[Shard]
    sources: Sequence[Source]
    operation: str = "append"
    parameters: Json = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    fingerprint: str | None = None
    retry_rejected: bool = False
    quarantine: Mapping[str, QuarantinedRows] = field(default_factory=dict)
    sidecars: Mapping[str, Json] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    seen: AppendBase | None = None
    exchange: Replacement = Replacement()

    @property
    def written(self) -> list[Shard]:
        """All added shards, also those that replace cut shards."""
        return [*self.shards, *(one for one in self.exchange.cut.values() if one is not None)]

    def rebase(self, state: State) -> EntryDraft | None:
        """Leave out sources that were appended meanwhile."""
        if self.fingerprint not in {None, state.fingerprint}:
            raise SchemaMismatchError(
                f"{state.name}: the shards have another schema", version=state.name
            )
        told = {source.key for source in self.sources}
        if not all(shard.source in told for shard in self.shards):
            raise LogError(
                f"{state.name}: a shard of an append names no source of it",
                code="missing-source",
                version=state.name,
            )
        new_sources = self._list_new(state)
        if not new_sources:
            return None
        if self.seen is not None:
            self._refuse_stale(state, self.seen, new_sources)
        keys = {source.key for source in new_sources}
        shards = [shard for shard in self.shards if shard.source in keys]
        before = any(state.has_shard(shard.name) for shard in shards)
        validate_shards(state, shards, list_live_names(state) if before else ())
        added: tuple[Added, ...] = tuple(Added(shard) for shard in shards)
        removed: tuple[str, ...] = ()
        if self.exchange.cut:
            validate_shards(state, self.written, list_live_names(state))
            added, removed = diff_shards(state, self._exchange(state, shards))
        return EntryDraft(
            operation=self.operation,
            parameters={**self.parameters, **self._describe_sources(new_sources, added)},
            inputs=self.inputs,
            added=added,
            removed=removed,
            sources=tuple(new_sources),
            sidecars=self._sidecars(new_sources),
        )

    def _sidecars(self, new_sources: Sequence[Source]) -> Json:
        """Return the digests of the files written with the shards that are added."""
        sidecars = dict(self.exchange.sidecars)
        for source in new_sources:
            sidecars |= self.sidecars.get(source.key, {})
        return sidecars

    def _describe_sources(self, new_sources: Sequence[Source], added: Sequence[Added]) -> Json:
        """Return the parameters about the sources and what they replace."""
        old = {one.name: name for name, one in self.exchange.cut.items() if one is not None}
        keys = [source.key for source in new_sources]
        return AppendedSources(
            quarantine=tuple(self.quarantine[key] for key in keys if key in self.quarantine),
            batches=tuple(
                BatchDigest(source=key, digest=self.digests[key])
                for key in keys
                if key in self.digests
            ),
            replaced=tuple(
                ReplacedSource(source=key, entry=entry) for key, entry in self.exchange.landings
            ),
            bases=tuple(old.get(one.shard.name, "") for one in added) if old else (),
        ).to_dict()

    def _list_new(self, state: State) -> Sequence[Source]:
        """Return the sources to append."""
        told = [(source, state.sources.get(source.key)) for source in self.sources]
        if all(entry is None for _, entry in told):
            return self.sources
        if self.seen is not None:
            words = self.seen.words
            return [one for one, entry in told if entry == words.get(one.key)]
        held = SourceCoverage(state) if self.retry_rejected else None
        return [
            source
            for source, entry in told
            if entry is None or (held is not None and not held.holds(source, entry))
        ]

    def _refuse_stale(self, state: State, seen: AppendBase, new_sources: Sequence[Source]) -> None:
        """Raise ConflictError if the sources must be selected again."""
        if state.number == seen.entry:
            return
        moved = state.snapshot != seen.snapshot
        exchanges = bool(self.exchange.landings)
        if (
            (moved and any(source.key in seen.words for source in new_sources))
            or (exchanges and len(new_sources) != len(self.sources))
            or (exchanges and moved and seen.snapshot not in set(state.iter_ancestors()))
            or not set(self.exchange.cut) <= set(list_live_names(state) if exchanges else ())
            or any(state.landings.since(source, seen.entry) for source in new_sources)
        ):
            raise ConflictError(
                f"{state.name}: sources of the same path or content landed meanwhile",
                code="stale-plan",
                hint=Hint.of("append again"),
                version=state.name,
            )

    def _exchange(self, state: State, shards: Sequence[Shard]) -> list[Shard]:
        """Return the shard list after the replacement, with new shards at their positions."""
        new: dict[str, list[Shard]] = {}
        for shard in shards:
            new.setdefault(shard.source or "", []).append(shard)
        cut, found = self.exchange.cut, []
        for interval in state.shard_history.at(state.snapshot):
            name = interval.shard.name
            kept = cut.get(name, interval.shard)
            found += [kept] if kept is not None else []
            for key, place in self.exchange.at.items():
                found += new.pop(key, []) if place == name else []
        return [*found, *(shard for some in new.values() for shard in some)]


class SourceCoverage:
    """Whether the newest snapshot holds what came from a source, by itself or in a rebuilt shard.

    `entry` is the one that the source landed with, and is held with unless that was rolled back;
    a negative one rejected it.
    """

    def __init__(self, state: State) -> None:
        self._timeline = state.snapshot_history
        self._keys = {interval.shard.source for interval in state.shard_history.at(state.snapshot)}
        self._line = set(state.iter_ancestors())

    def holds(self, source: Source, entry: int) -> bool:
        """Return True if the latest snapshot contains `source`."""
        return source.key in self._keys or (
            entry > 0 and self._timeline.of_entry(entry) in self._line
        )


@dataclass(frozen=True, slots=True)
class RejectSources:
    """Reject sources, which are not tried again, for their `problems` or as `duplicates`.

    A source that was appended before stays so. A rejected source is rejected again only after it
    was tried again (`retry_rejected`).
    """

    sources: Sequence[Source]
    problems: Sequence[SourceProblem] = ()
    retry_rejected: bool = False
    duplicates: Sequence[SourceDuplicate] = ()

    def rebase(self, state: State) -> EntryDraft | None:
        """Never conflicts."""
        told = [(source, state.sources.get(source.key)) for source in self.sources]
        new = tuple(
            source for source, entry in told if entry is None or (self.retry_rejected and entry < 0)
        )
        if not new:
            return None
        keys = {source.key for source in new}
        parameters = RejectParameters(
            rejected=tuple(one for one in self.problems if one.source in keys),
            duplicates=tuple(one for one in self.duplicates if one.source in keys),
        )
        return EntryDraft(operation="reject", parameters=parameters.to_dict(), sources=new)


@dataclass(frozen=True, slots=True)
class DismissSources:
    """Dismiss rejected sources and duplicates permanently."""

    dismissals: Sequence[Dismissal]
    reason: str = ""

    def rebase(self, state: State) -> EntryDraft | None:
        """Leave out sources that were appended, changed or rejected again meanwhile."""
        open_ones = [
            dismissal
            for dismissal in self.dismissals
            if state.open_sources.get(dismissal.place) == dismissal.entry
        ]
        if not open_ones:
            return None
        parameters = DismissParameters(reason=self.reason, dismissed=tuple(open_ones))
        return EntryDraft(operation=DISMISS, parameters=parameters.to_dict())
