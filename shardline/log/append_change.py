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
    """The latest entry and snapshot when an append selected its sources.

    `recorded` has the recorded entry of each known source that is appended again, by source key.
    """

    entry: int
    snapshot: int
    recorded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Appended sources that an append replaces, and the shards that contain their records.

    `sources` has the key and the entry of each. `cut` maps each shard to the same shard without
    those records, or to None if none are left. `positions` maps the key of a new source to the
    shard whose position its shards take. `sidecars` are the digests of the files written with the
    shards in `cut`.
    """

    sources: Sequence[tuple[str, int]] = ()
    cut: Mapping[str, Shard | None] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)
    sidecars: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """New shards at the end of the list, each with the key of its source.

    Sources that were appended or rejected before are left out with their shards. With
    `retry_rejected`, rejected and rolled-back sources are appended again. By source key,
    `quarantine` has the quarantined rows, `digests` the digests of batches, and `sidecars` the
    digests of the files written with the shards.

    With `base`, a source of the same path, batch or content that was appended after it makes the
    change stale. `replacement` has the sources that the new sources replace.
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
    base: AppendBase | None = None
    replacement: Replacement = Replacement()

    @property
    def written(self) -> list[Shard]:
        """All added shards, also those that replace cut shards."""
        return [
            *self.shards,
            *(shard for shard in self.replacement.cut.values() if shard is not None),
        ]

    def rebase(self, state: State) -> EntryDraft | None:
        """Leave out sources that were appended meanwhile."""
        if self.fingerprint not in {None, state.fingerprint}:
            raise SchemaMismatchError(
                f"{state.name}: the shards have another schema", version=state.name
            )
        known_keys = {source.key for source in self.sources}
        if not all(shard.source in known_keys for shard in self.shards):
            raise LogError(
                f"{state.name}: a shard names no source of its append",
                code="missing-source",
                version=state.name,
            )
        new_sources = self._list_new(state)
        if not new_sources:
            return None
        if self.base is not None:
            self._validate_base(state, self.base, new_sources)
        keys = {source.key for source in new_sources}
        shards = [shard for shard in self.shards if shard.source in keys]
        has_known = any(state.has_shard(shard.name) for shard in shards)
        validate_shards(state, shards, list_live_names(state) if has_known else ())
        added: tuple[Added, ...] = tuple(Added(shard) for shard in shards)
        removed: tuple[str, ...] = ()
        if self.replacement.cut:
            validate_shards(state, self.written, list_live_names(state))
            added, removed = diff_shards(state, self._list_replaced(state, shards))
        return EntryDraft(
            operation=self.operation,
            parameters={**self.parameters, **self._describe_sources(new_sources, added)},
            inputs=self.inputs,
            added=added,
            removed=removed,
            sources=tuple(new_sources),
            sidecars=self._collect_sidecars(new_sources),
        )

    def _collect_sidecars(self, new_sources: Sequence[Source]) -> Json:
        """Return the digests of the files written with the shards that are added."""
        sidecars = dict(self.replacement.sidecars)
        for source in new_sources:
            sidecars |= self.sidecars.get(source.key, {})
        return sidecars

    def _describe_sources(self, new_sources: Sequence[Source], added: Sequence[Added]) -> Json:
        """Return the parameters about the sources and what they replace."""
        cut = self.replacement.cut.items()
        old_names = {shard.name: name for name, shard in cut if shard is not None}
        keys = [source.key for source in new_sources]
        return AppendedSources(
            quarantine=tuple(self.quarantine[key] for key in keys if key in self.quarantine),
            batches=tuple(
                BatchDigest(source=key, digest=self.digests[key])
                for key in keys
                if key in self.digests
            ),
            replaced=tuple(
                ReplacedSource(source=key, entry=entry) for key, entry in self.replacement.sources
            ),
            bases=tuple(old_names.get(item.shard.name, "") for item in added) if old_names else (),
        ).to_dict()

    def _list_new(self, state: State) -> Sequence[Source]:
        """Return the sources to append."""
        entries = [(source, state.sources.get(source.key)) for source in self.sources]
        if all(entry is None for _, entry in entries):
            return self.sources
        if self.base is not None:
            recorded = self.base.recorded
            return [source for source, entry in entries if entry == recorded.get(source.key)]
        coverage = _SourceCoverage(state) if self.retry_rejected else None
        return [
            source
            for source, entry in entries
            if entry is None or (coverage is not None and not coverage.contains(source, entry))
        ]

    def _validate_base(self, state: State, base: AppendBase, new_sources: Sequence[Source]) -> None:
        """Raise ConflictError if the sources must be selected again."""
        if state.number == base.entry:
            return
        moved = state.snapshot != base.snapshot
        replaces = bool(self.replacement.sources)
        if (
            (moved and any(source.key in base.recorded for source in new_sources))
            or (replaces and len(new_sources) != len(self.sources))
            or (replaces and moved and base.snapshot not in set(state.iter_ancestors()))
            or not set(self.replacement.cut) <= set(list_live_names(state) if replaces else ())
            or any(state.appended_sources.since(source, base.entry) for source in new_sources)
        ):
            raise ConflictError(
                f"{state.name}: sources of the same path or content were appended meanwhile",
                code="stale-plan",
                hint=Hint.of("append again"),
                version=state.name,
            )

    def _list_replaced(self, state: State, shards: Sequence[Shard]) -> list[Shard]:
        """Return the shard list after the replacement, with new shards at their positions."""
        new: dict[str, list[Shard]] = {}
        for shard in shards:
            new.setdefault(shard.source or "", []).append(shard)
        cut, target = self.replacement.cut, []
        for interval in state.shard_history.at(state.snapshot):
            name = interval.shard.name
            left = cut.get(name, interval.shard)
            target += [left] if left is not None else []
            for key, replaced_name in self.replacement.positions.items():
                target += new.pop(key, []) if replaced_name == name else []
        return [*target, *(shard for group in new.values() for shard in group)]


class _SourceCoverage:
    """Sources whose records the latest snapshot contains, also in rebuilt shards."""

    def __init__(self, state: State) -> None:
        self._snapshots = state.snapshot_history
        self._keys = {interval.shard.source for interval in state.shard_history.at(state.snapshot)}
        self._ancestors = set(state.iter_ancestors())

    def contains(self, source: Source, entry: int) -> bool:
        """Return True if the latest snapshot contains `source`.

        `entry` appended the source, and may be rolled back. A negative entry rejected it.
        """
        return source.key in self._keys or (
            entry > 0 and self._snapshots.of_entry(entry) in self._ancestors
        )


@dataclass(frozen=True, slots=True)
class RejectSources:
    """Rejection of sources, for their `problems` or as `duplicates`.

    An appended source stays appended. With `retry_rejected`, rejected sources are recorded again.
    """

    sources: Sequence[Source]
    problems: Sequence[SourceProblem] = ()
    retry_rejected: bool = False
    duplicates: Sequence[SourceDuplicate] = ()

    def rebase(self, state: State) -> EntryDraft | None:
        """Never conflicts."""
        entries = [(source, state.sources.get(source.key)) for source in self.sources]
        new = tuple(
            source
            for source, entry in entries
            if entry is None or (self.retry_rejected and entry < 0)
        )
        if not new:
            return None
        keys = {source.key for source in new}
        parameters = RejectParameters(
            rejected=tuple(problem for problem in self.problems if problem.source in keys),
            duplicates=tuple(item for item in self.duplicates if item.source in keys),
        )
        return EntryDraft(operation="reject", parameters=parameters.to_dict(), sources=new)


@dataclass(frozen=True, slots=True)
class DismissSources:
    """Permanent dismissal of rejected sources and duplicates."""

    dismissals: Sequence[Dismissal]
    reason: str = ""

    def rebase(self, state: State) -> EntryDraft | None:
        """Leave out sources that were appended, changed or rejected again meanwhile."""
        dismissed = [
            dismissal
            for dismissal in self.dismissals
            if state.open_sources.get(dismissal.location_key) == dismissal.entry
        ]
        if not dismissed:
            return None
        parameters = DismissParameters(reason=self.reason, dismissed=tuple(dismissed))
        return EntryDraft(operation=DISMISS, parameters=parameters.to_dict())
