"""The layers of a snapshot's shards: an overlay, the base that it lies beside, and so on down.

An overlay holds the features that its version declares and the version of its base does not, record
for record. The facts of a base stand in the log of its owner, and are held here against what the
overlay was made for: content, records, and features that are not declared twice.
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
_SHOWN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Layer:
    """One shard of a stack, which stands in the log of `version`.

    `schema` has the features that its own records hold, and `below` are the keys of those that its
    base's version declares; `schema` is None where that is not known. `passed` and `failed` are the
    checks that a base has passed and failed there, `tombstone` is the entry by which
    vacuum took it.
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
    """Why an overlay does not fit its base."""

    overlay: str
    base: str
    why: str

    def __str__(self) -> str:
        return f"{self.overlay} lies beside {self.base}, {self.why}"


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers of a shard, the lowest first and itself last.

    With a `mismatch` they cannot be read together, and those below it may not be known.
    """

    layers: tuple[Layer, ...]
    mismatch: LayerMismatch | None = None

    @property
    def top(self) -> Layer:
        """Layer of the shard itself."""
        return self.layers[-1]

    @property
    def problem(self) -> str:
        """The mismatch as a problem of the shard itself; empty if there is none."""
        if self.mismatch is None:
            return ""
        own = self.mismatch.overlay == self.top.shard.name
        which = "it" if own else f"its base {self.mismatch.overlay}"
        return f"{which} lies beside {self.mismatch.base}, {self.mismatch.why}"


def list_stacks(snapshot: StoredSnapshot) -> list[Stack]:
    """List the layers of each shard of a snapshot, in order. Opens only logs of bases."""
    logs = _Logs(snapshot)
    schema = snapshot.schema
    stacks = [Stack((Layer(shard, snapshot.version, schema),)) for shard in snapshot.shards]
    overlays = {place: shard.base for place, shard in enumerate(snapshot.shards) if shard.base}
    growing = overlays
    while growing:
        found = logs.find(growing.values())
        for place, base in growing.items():
            stacks[place] = logs.put_below(stacks[place], base, found.get(base.name))
        lowest = {place: stacks[place].layers[0].shard.base for place in growing}
        growing = {
            place: base for place, base in lowest.items() if base and not stacks[place].mismatch
        }
    for place in overlays:
        stacks[place] = logs.with_features(stacks[place])
    return stacks


class _Logs:
    """Logs of the bases of a snapshot's shards, each opened once."""

    def __init__(self, snapshot: StoredSnapshot) -> None:
        self._snapshot = snapshot
        self._dataset = snapshot.version.split("/", 1)[0]
        self._opened: dict[str, StoredVersion] = {}
        self._damaged: dict[str, str] = {}
        self._added: dict[tuple[str, str | None], tuple[Schema | None, frozenset[FeatureKey]]] = {}
        self._clashes: dict[tuple[str, str], str] = {}

    def find(self, bases: Iterable[Base]) -> dict[str, ShardInterval]:
        """Find the intervals of bases, by name."""
        names: dict[str, dict[str, None]] = {}
        for base in bases:
            names.setdefault(base.owner, {})[base.name] = None
        found: dict[str, ShardInterval] = {}
        for owner, wanted in names.items():
            try:
                found |= self._log(owner).state.shard_history.named(list(wanted))
            except CorruptLogError as error:
                self._damaged[owner] = str(error)
        return found

    def put_below(self, stack: Stack, base: Base, interval: ShardInterval | None) -> Stack:
        """Put the base of the lowest shard under a stack."""
        lowest = stack.layers[0].shard
        owner = self._name(base.owner)
        if interval is None:
            why = f"which is not in the log of {owner}"
            if base.owner in self._damaged:
                why = f"of which no one can tell: {self._damaged[base.owner]}"
            return replace(stack, mismatch=LayerMismatch(lowest.name, base.name, why))
        state = self._log(base.owner).state
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
        why = ""
        if interval.shard.content != base.sha256:
            told, pinned = (one[:_SHOWN_DIGITS] for one in (interval.shard.content, base.sha256))
            why = f"whose content is {told}… by the log of {owner}, and pinned is {pinned}…"
        elif interval.shard.records != lowest.records:
            why = (
                f"which has {format_count(interval.shard.records, 'record')}, and it has "
                f"{lowest.records}"
            )
        mismatch = LayerMismatch(lowest.name, base.name, why) if why else None
        return Stack((layer, *stack.layers), mismatch)

    def with_features(self, stack: Stack) -> Stack:
        """Add the features of each layer to a stack."""
        layers = [self._with_features(layer) for layer in stack.layers]
        mismatch = stack.mismatch or next(self._not_disjoint(layers), None)
        return Stack(tuple(layers), mismatch)

    def _with_features(self, layer: Layer) -> Layer:
        base = layer.shard.base
        pair = layer.shard.owner, None if base is None else base.owner
        if pair not in self._added:
            self._added[pair] = self._added_by(*pair)
        schema, below = self._added[pair]
        return replace(layer, schema=schema, below=below)

    def _added_by(
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

    def _not_disjoint(self, layers: list[Layer]) -> Iterator[LayerMismatch]:
        """Find layers without features of their own, or with features of another type."""
        held = set(layers[0].keys)
        for lower, upper in pairwise(layers):
            pair = lower.shard.owner, upper.shard.owner
            if pair not in self._clashes:
                self._clashes[pair] = self._clash(lower, upper)
            why = self._clashes[pair]
            if again := sorted(upper.keys & held):
                why = f"and feature {again[0][1]!r} is in a layer below it too"
            if why:
                yield LayerMismatch(upper.shard.name, lower.shard.name, why)
            held |= upper.keys

    def _clash(self, lower: Layer, upper: Layer) -> str:
        """Return why the schemas of two versions do not fit; empty if they do."""
        own, under = self._schema(upper.shard.owner), self._schema(lower.shard.owner)
        if own is None or under is None:
            return ""
        if own.payload != under.payload or own.payload == "opaque":
            return f"and its records are {own.payload}, those of its base {under.payload}"
        if not upper.keys:
            return f"and {upper.version} declares no feature that {lower.version} does not"
        here = tuple(feature for feature in own.features if feature.key in upper.below)
        keys = {feature.key for feature in here}
        there = tuple(feature for feature in under.features if feature.key in keys)
        if keys and (left := [f.name for f in under.features if f.key not in keys]):
            return f"and {upper.version} does not declare its feature {left[0]!r}"
        for change in compare(Schema(here, own.payload), Schema(there, own.payload)).changes:
            if not change.compatible:
                return f"and {upper.version} declares its feature {change.feature!r} otherwise"
        return ""

    def _log(self, owner: str) -> StoredVersion:
        if owner not in self._opened:
            self._opened[owner] = StoredVersion(self._snapshot.store, self._name(owner))
        return self._opened[owner]

    def _schema(self, owner: str) -> Schema | None:
        if self._name(owner) == self._snapshot.version:
            return self._snapshot.schema
        return None if owner in self._damaged else self._log(owner).state.schema

    def _name(self, owner: str) -> str:
        return f"{self._dataset}/{owner}"
