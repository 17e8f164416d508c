"""Layers of the shards of a snapshot: an overlay, its base, the base of that, and so on.

An overlay contains, record for record, the features that its version declares in addition to the
version of its base. The log of the base's owner is compared with what the overlay expects: content,
records, and features that no other layer has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from shardline.errors import CorruptLogError
from shardline.log.version import StoredVersion
from shardline.schema.comparison import compare
from shardline.schema.schema import Schema
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.log.model import Base, Shard
    from shardline.log.shard_history import ShardInterval
    from shardline.log.snapshot import StoredSnapshot
    from shardline.schema.validation import FeatureKey

_NONE: frozenset[FeatureKey] = frozenset()
_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Layer:
    """Shard of a stack, from the log of `version`.

    `schema` has the features of its own records, None if unknown. `below` has the keys of the
    features that the version of its base declares. `passed` and `failed` are the check results of a
    base, and `tombstone` is the entry that tombstoned it.
    """

    shard: Shard
    version: str
    schema: Schema | None
    below: frozenset[FeatureKey] = _NONE
    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    tombstone: int | None = None

    @property
    def keys(self) -> frozenset[FeatureKey]:
        """Keys of its features."""
        return frozenset(feature.key for feature in self.schema.features) if self.schema else _NONE


@dataclass(frozen=True, slots=True)
class LayerMismatch:
    """Overlay that does not fit its base."""

    overlay: str
    base: str
    reason: str

    def __str__(self) -> str:
        return f"{self.overlay} on {self.base}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers of a shard, from the lowest to the shard itself.

    With a `mismatch` they cannot be read together, and lower layers may be unknown.
    """

    layers: tuple[Layer, ...]
    mismatch: LayerMismatch | None = None

    @property
    def top(self) -> Layer:
        """Layer of the shard itself."""
        return self.layers[-1]

    @property
    def problem(self) -> str:
        """Mismatch as a problem of the shard itself; empty if none."""
        if self.mismatch is None:
            return ""
        if self.mismatch.overlay == self.top.shard.name:
            return f"base {self.mismatch.base} does not fit: {self.mismatch.reason}"
        return f"layers do not fit: {self.mismatch}"


def list_stacks(snapshot: StoredSnapshot) -> list[Stack]:
    """List the layers of each shard of a snapshot, in order. Opens only logs of bases."""
    logs = _Logs(snapshot)
    schema = snapshot.schema
    stacks = [Stack((Layer(shard, snapshot.version, schema),)) for shard in snapshot.shards]
    overlays = {index: shard.base for index, shard in enumerate(snapshot.shards) if shard.base}
    incomplete = overlays
    while incomplete:
        intervals = logs.find(incomplete.values())
        for index, base in incomplete.items():
            stacks[index] = logs.put_below(stacks[index], base, intervals.get(base.name))
        lowest = {index: stacks[index].layers[0].shard.base for index in incomplete}
        incomplete = {
            index: base for index, base in lowest.items() if base and not stacks[index].mismatch
        }
    for index in overlays:
        stacks[index] = logs.with_features(stacks[index])
    return stacks


class _Logs:
    """Logs of the bases of a snapshot's shards, each opened once."""

    def __init__(self, snapshot: StoredSnapshot) -> None:
        self._snapshot = snapshot
        self._dataset = snapshot.version.split("/", 1)[0]
        self._opened: dict[str, StoredVersion] = {}
        self._corrupt: dict[str, str] = {}
        self._added: dict[tuple[str, str | None], tuple[Schema | None, frozenset[FeatureKey]]] = {}
        self._conflicts: dict[tuple[str, str], str] = {}

    def find(self, bases: Iterable[Base]) -> dict[str, ShardInterval]:
        """Find the intervals of bases, by name."""
        names: dict[str, dict[str, None]] = {}
        for base in bases:
            names.setdefault(base.owner, {})[base.name] = None
        intervals: dict[str, ShardInterval] = {}
        for owner, owned in names.items():
            try:
                intervals |= self._open(owner).state.shard_history.named(list(owned))
            except CorruptLogError as error:
                self._corrupt[owner] = str(error)
        return intervals

    def put_below(self, stack: Stack, base: Base, interval: ShardInterval | None) -> Stack:
        """Put the base of the lowest shard under a stack."""
        lowest = stack.layers[0].shard
        owner = self._name(base.owner)
        if interval is None:
            reason = f"base not found in the log of {owner}"
            if base.owner in self._corrupt:
                reason = f"base unknown: {self._corrupt[base.owner]}"
            return replace(stack, mismatch=LayerMismatch(lowest.name, base.name, reason))
        state = self._open(base.owner).state
        layer = Layer(
            interval.shard,
            owner,
            None,
            passed=frozenset(
                check for check, bit in state.bits.items() if interval.passed >> bit & 1
            ),
            failed=frozenset(
                check for check, bit in state.bits.items() if interval.failed >> bit & 1
            ),
            tombstone=state.get_tombstone(base.name),
        )
        reason = ""
        if interval.shard.content != base.sha256:
            actual, expected = interval.shard.content[:_DIGITS], base.sha256[:_DIGITS]
            reason = f"content {actual}… in the log of {owner}, expected {expected}…"
        elif interval.shard.records != lowest.records:
            records = format_count(interval.shard.records, "record")
            reason = f"base has {records}, expected {lowest.records}"
        mismatch = LayerMismatch(lowest.name, base.name, reason) if reason else None
        return Stack((layer, *stack.layers), mismatch)

    def with_features(self, stack: Stack) -> Stack:
        """Add the features of each layer to a stack."""
        layers = [self._with_features(layer) for layer in stack.layers]
        mismatch = stack.mismatch or next(self._find_conflicts(layers), None)
        return Stack(tuple(layers), mismatch)

    def _with_features(self, layer: Layer) -> Layer:
        base = layer.shard.base
        pair = layer.shard.owner, None if base is None else base.owner
        if pair not in self._added:
            self._added[pair] = self._split_features(*pair)
        schema, below = self._added[pair]
        return replace(layer, schema=schema, below=below)

    def _split_features(
        self, owner: str, base: str | None
    ) -> tuple[Schema | None, frozenset[FeatureKey]]:
        """Return the features that a version adds to another, and the keys of the others."""
        own, under = self._schema(owner), None if base is None else self._schema(base)
        if base is None or own is None:
            return own, _NONE
        if under is None:
            return None, _NONE
        below = frozenset(feature.key for feature in under.features)
        new = tuple(feature for feature in own.features if feature.key not in below)
        return Schema(new, own.payload), below

    def _find_conflicts(self, layers: list[Layer]) -> Iterator[LayerMismatch]:
        """Find layers without features of their own, or with features of another type."""
        known = set(layers[0].keys)
        for lower, upper in pairwise(layers):
            pair = lower.shard.owner, upper.shard.owner
            if pair not in self._conflicts:
                self._conflicts[pair] = self._compare(lower, upper)
            reason = self._conflicts[pair]
            if repeated := sorted(upper.keys & known):
                reason = f"feature {repeated[0][1]!r} exists in a lower layer"
            if reason:
                yield LayerMismatch(upper.shard.name, lower.shard.name, reason)
            known |= upper.keys

    def _compare(self, lower: Layer, upper: Layer) -> str:
        """Return the reason why the schemas of two versions do not fit; empty if they do."""
        own, under = self._schema(upper.shard.owner), self._schema(lower.shard.owner)
        if own is None or under is None:
            return ""
        if own.payload != under.payload or own.payload == "opaque":
            return f"records are {own.payload}, those of the base {under.payload}"
        if not upper.keys:
            return f"{upper.version} adds no feature to {lower.version}"
        here = tuple(feature for feature in own.features if feature.key in upper.below)
        keys = {feature.key for feature in here}
        there = tuple(feature for feature in under.features if feature.key in keys)
        if keys and (missing := [f.name for f in under.features if f.key not in keys]):
            return f"{upper.version} does not declare feature {missing[0]!r} of the base"
        for change in compare(Schema(here, own.payload), Schema(there, own.payload)).changes:
            if not change.compatible:
                return f"{upper.version} declares feature {change.feature!r} differently"
        return ""

    def _open(self, owner: str) -> StoredVersion:
        if owner not in self._opened:
            self._opened[owner] = StoredVersion(self._snapshot.store, self._name(owner))
        return self._opened[owner]

    def _schema(self, owner: str) -> Schema | None:
        if self._name(owner) == self._snapshot.version:
            return self._snapshot.schema
        return None if owner in self._corrupt else self._open(owner).state.schema

    def _name(self, owner: str) -> str:
        return f"{self._dataset}/{owner}"
