"""What an append commits: new shards with their sources, and the sources that could not land."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.errors import LogError, SchemaMismatchError
from shardline.log.changes import Draft, live_names, refuse_unfit
from shardline.log.facts import Added, Input, Json, Shard, Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardline.log.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """New shards behind those that are there. Each says which of the sources it came from.

    A source that landed or was rejected before is left out with its shards; with `reland`, one
    that was rejected or rolled back comes in again. `quarantine` tells, by the key of a source,
    where its rows are that gave no record. `sidecars` are the digests of the files
    written with the shards, by the key of their source.
    """

    shards: Sequence[Shard]
    sources: Sequence[Source]
    operation: str = "append"
    parameters: Json = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    fingerprint: str | None = None
    reland: bool = False
    quarantine: Mapping[str, Json] = field(default_factory=dict)
    sidecars: Mapping[str, Json] = field(default_factory=dict)

    def on(self, state: State) -> Draft | None:
        """Keep both; what landed meanwhile is left out."""
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
        wanted = self._new(state)
        if not wanted:
            return None
        keys = {source.key for source in wanted}
        shards = [shard for shard in self.shards if shard.source in keys]
        before = any(state.has_landed(shard.name) for shard in shards)
        refuse_unfit(state, shards, live_names(state) if before else ())
        refused = [
            {"source": source.key, **self.quarantine[source.key]}
            for source in wanted
            if source.key in self.quarantine
        ]
        return Draft(
            operation=self.operation,
            parameters={**self.parameters, **({"quarantine": refused} if refused else {})},
            inputs=self.inputs,
            added=tuple(Added(shard) for shard in shards),
            sources=tuple(wanted),
            sidecars={
                name: digest
                for source in wanted
                for name, digest in self.sidecars.get(source.key, {}).items()
            },
        )

    def _new(self, state: State) -> Sequence[Source]:
        """The sources that may land."""
        told = [(source, state.sources.get(source.key)) for source in self.sources]
        if all(entry is None for _, entry in told):
            return self.sources
        held = Held(state) if self.reland else None
        return [
            source
            for source, entry in told
            if entry is None or (held is not None and not held.holds(source, entry))
        ]


class Held:
    """Whether the newest snapshot holds what came from a source, by itself or in a rebuilt shard.

    `entry` is the one that the source landed with, and is held with unless that was rolled back;
    a negative one rejected it.
    """

    def __init__(self, state: State) -> None:
        self._timeline = state.timeline
        self._keys = {stay.shard.source for stay in state.stays.at(state.snapshot)}
        self._line = set(state.line())

    def holds(self, source: Source, entry: int) -> bool:
        """Whether it is held."""
        return source.key in self._keys or (
            entry > 0 and self._timeline.of_entry(entry) in self._line
        )


@dataclass(frozen=True, slots=True)
class SetAside:
    """Sources that could not land count as rejected from now on: nobody tries them at every turn.

    `reasons` tells why, by the key of the source. One that landed before is left as it is, and so
    is one that was rejected, unless someone tried to `reland` it.
    """

    sources: Sequence[Source]
    reasons: Mapping[str, Json]
    reland: bool = False

    def on(self, state: State) -> Draft | None:
        """Keep both."""
        told = [(source, state.sources.get(source.key)) for source in self.sources]
        new = tuple(
            source for source, entry in told if entry is None or (self.reland and entry < 0)
        )
        if not new:
            return None
        reasons = [{"source": source.key, **self.reasons[source.key]} for source in new]
        return Draft(operation="reject", parameters={"set_aside": reasons}, sources=new)
