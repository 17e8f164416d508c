"""Dependencies of a snapshot: the shards of other versions that are needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import CorruptLogError, ObjectNotFoundError
from shardline.log.layers import Layer, list_stacks
from shardline.log.model import PLAN
from shardline.log.retention import find_retained
from shardline.log.version import StoredVersion
from shardline.pairing.coverage import get_coverage
from shardline.pairing.pair_plan import PairPlan
from shardline.provenance.pins import list_pins, parse_pin_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from shardline.log.entry import Entry
    from shardline.log.layers import Stack
    from shardline.log.model import Input, Ref, Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.state import State
    from shardline.provenance.log_evidence import LogEvidence
    from shardline.storage import Store


class Dependencies:
    """Shards that versions of a root need from each other.

    Snapshots that were in use within `retention` count too.
    """

    def __init__(
        self,
        store: Store,
        now: datetime,
        retention: timedelta,
        evidence: LogEvidence | None = None,
    ) -> None:
        self.now, self.retention = now, retention
        self._evidence = evidence
        self._store = store
        self._versions: dict[str, StoredVersion] = {}
        self._retained: dict[str, dict[str, Shard]] = {}
        self._plans: dict[str, PairPlan] = {}

    def refresh(self) -> None:
        """Read new entries."""
        for version in self._versions.values():
            version.refresh()
        self._retained.clear()

    def get_release_times(self, state: State, *, erased: bool = False) -> NDArray[np.int64] | None:
        """Return when the snapshots of a version were released; None without evidence."""
        if self._evidence is None:
            return None
        return self._evidence.get_release_times(state, self.now, erased=erased)

    def get_version(self, name: str) -> StoredVersion:
        """Return a version as of its first use, or the last refresh."""
        if name not in self._versions:
            self._versions[name] = StoredVersion(self._store, name)
        return self._versions[name]

    def get_needs_by_holder(self, version: StoredVersion) -> dict[str, set[str]]:
        """Return the shards of a version that each version with a pin on it needs."""
        return self._get_needs_by_holder(version, ())

    def list_retained_shards(self, version: StoredVersion) -> Mapping[str, Shard]:
        """Return the shards of retained snapshots of a version, and those that others need."""
        return self._list_retained(version, ())

    def list_shards_read_with(
        self, holder: StoredVersion, shard: Shard, version: StoredVersion
    ) -> set[str]:
        """Return the shards of a version that are needed to read a shard of a holder."""
        if shard.base is not None:
            same = holder.log.dataset == version.log.dataset
            return {shard.base.name} if same and shard.base.owner == version.log.version else set()
        return self._list_paired_shards(holder, shard, version) if shard.virtual else set()

    def list_needed_shards(self, holder: str, version: StoredVersion) -> set[str]:
        """Return the shards of a version that a holder needs."""
        return self._list_needed(self.get_version(holder), version, ())

    def list_revivable_shards(
        self, holder: str, version: StoredVersion, dead: Collection[str]
    ) -> set[str]:
        """Return the shards of a version that a holder needs, or may need again.

        A tag, a pin or a restore brings an old snapshot back into use until a vacuum announces
        its shards. `dead` are shards that count as announced.
        """
        dependent = self.get_version(holder)
        state = dependent.state
        names = [
            name
            for name in state.shard_history.names().to_pylist()
            if name not in dead and state.get_tombstone(name) is None
        ]
        needed = self.list_needed_shards(holder, version)
        for interval in state.shard_history.named(names).values():
            needed |= self.list_shards_read_with(dependent, interval.shard, version)
        return needed

    def _get_needs_by_holder(
        self, version: StoredVersion, above: tuple[str, ...]
    ) -> dict[str, set[str]]:
        holders = {parse_pin_holder(pin) for pin in version.state.pins} - {None, version.name}
        return {
            name: self._list_needed(self.get_version(name), version, above)
            for name in sorted(name for name in holders if name is not None)
        }

    def _list_needed(
        self, holder: StoredVersion, version: StoredVersion, above: tuple[str, ...]
    ) -> set[str]:
        names: set[str] = set()
        for shard in self._list_retained(holder, (*above, version.name)).values():
            names |= self.list_shards_read_with(holder, shard, version)
        return names

    def _list_retained(self, version: StoredVersion, above: tuple[str, ...]) -> dict[str, Shard]:
        if version.name in above:
            # Two versions pin each other: all pinned shards count as needed.
            return self._list_snapshot_shards(version, frozenset())
        if version.name not in self._retained:
            pins = frozenset(pin for pin in version.state.pins if parse_pin_holder(pin) is not None)
            shards = self._list_snapshot_shards(version, pins)
            needed = set().union(*self._get_needs_by_holder(version, above).values())
            intervals = (
                version.state.shard_history.named(sorted(needed - set(shards))) if needed else {}
            )
            shards |= {name: interval.shard for name, interval in intervals.items()}
            self._retained[version.name] = shards
        return self._retained[version.name]

    def _list_snapshot_shards(
        self, version: StoredVersion, ignored_pins: frozenset[str]
    ) -> dict[str, Shard]:
        """Return the shards of retained snapshots that vacuum has not announced."""
        state = version.state
        times = self.get_release_times(state)
        snapshots = find_retained(
            state, self.now, self.retention, ignored_pins=ignored_pins, released=times
        )
        shards = {
            interval.shard.name: interval.shard
            for number in snapshots.tolist()
            for interval in state.shard_history.at(number)
        }
        tombstones = {name: state.get_tombstone(name) for name in shards}
        entries = {number for number in tombstones.values() if number is not None}
        erases = {number for number in entries if version.log.entry(number).operation == "erase"}
        return {
            name: shard for name, shard in shards.items() if tombstones[name] in {None, *erases}
        }

    def _list_paired_shards(
        self, holder: StoredVersion, shard: Shard, version: StoredVersion
    ) -> set[str]:
        """Return the shards of a version that a plan pairs; for a lost plan, all pinned shards."""
        path = holder.shard_name(shard)
        try:
            if path not in self._plans:
                self._plans[path] = PairPlan.read(self._store, path, shard)
        except (ObjectNotFoundError, ValueError):
            pinned = [number for _, number in list_pins(version, holder.name)]
            return {shard.name for number in pinned for shard in version.snapshot(number).shards}
        plan = self._plans[path]
        names: set[str] = set()
        for source, positions in plan.sides:
            if source.label == version.name:
                shards = version.snapshot(source.snapshot).shards[slice(*positions)]
                names |= {shard.name for shard in shards}
        return names


def list_needless_pins(
    version: StoredVersion,
    dependencies: Dependencies,
    released: Mapping[str, Ref] | None = None,
    *,
    dead: Collection[str] = (),
) -> list[str]:
    """List the pins on snapshots of a version that retain nothing that their holders may need.

    A pin is not needed for shards that pins of the same holder on later snapshots retain as well.

    Args:
        version: The version with the pins.
        dependencies: The dependencies of the root.
        released: Released pins to judge as if they were set.
        dead: Shards of holders that are about to be announced for deletion.
    """
    pins: dict[str, list[tuple[int, str]]] = {}
    for name, ref in {**version.state.pins, **(released or {})}.items():
        holder = parse_pin_holder(name)
        if holder is not None and ref.snapshot is not None:
            pins.setdefault(holder, []).append((ref.snapshot, name))
    needless = []
    for holder, refs in pins.items():
        needed = dependencies.list_revivable_shards(holder, version, dead)
        for number, name in sorted(refs, reverse=True):
            shards = {interval.shard.name for interval in version.state.shard_history.at(number)}
            if not shards & needed:
                needless.append(name)
            needed -= shards
    return sorted(needless)


def release_erased_pins(into: StoredVersion, base: StoredVersion, now: datetime) -> None:
    """Release pins on snapshots of a base with erased shards that a version no longer needs.

    A tagged older snapshot of the version still needs its shards.
    """
    state = base.state
    live = {shard.name for shard in base.latest().shards}
    dependencies = Dependencies(base.store, now, timedelta(0))
    needed = dependencies.list_needed_shards(into.name, base) - live
    for name, number in list(list_pins(base, into.name)):
        shards = {shard.name for shard in base.snapshot(number).shards}
        if any(state.get_tombstone(shard) is not None for shard in shards) and not shards & needed:
            base.pin(name, None)


def get_shard_object(layer: Layer) -> str:
    """Return the path of the shard of a layer."""
    return f"{layer.version.partition('/')[0]}/shards/{layer.shard.name}"


def list_dependency_layers(
    snapshot: StoredSnapshot, stacks: Iterable[Stack] | None = None
) -> list[Layer]:
    """Return the shards of other versions that a snapshot is read from, each once.

    Raises LogError, StorageError or ValueError if a plan or its inputs cannot be read.
    """
    stacks = list_stacks(snapshot) if stacks is None else stacks
    layers = _iter_lower_layers(snapshot, stacks)
    return list({get_shard_object(layer): layer for layer in layers}.values())


def list_direct_dependencies(snapshot: StoredSnapshot) -> dict[str, set[str]]:
    """Return the bases and paired shards of a snapshot's shards, by the version that owns them.

    Raises LogError, StorageError or ValueError if a plan or its inputs cannot be read.
    """
    dependencies: dict[str, set[str]] = {}
    for shard in snapshot.shards:
        if shard.base is not None:
            dataset = snapshot.version.partition("/")[0]
            dependencies.setdefault(f"{dataset}/{shard.base.owner}", set()).add(shard.base.name)
        elif shard.virtual:
            for source, positions in _list_plan_inputs(snapshot, shard):
                side = StoredVersion(snapshot.store, source.label).snapshot(source.snapshot)
                names = dependencies.setdefault(source.label, set())
                names.update(paired.name for paired in side.shards[slice(*positions)])
    return dependencies


def _list_plan_inputs(
    snapshot: StoredSnapshot, shard: Shard
) -> Sequence[tuple[Input, tuple[int, int]]]:
    """Return the snapshots that a plan pairs, each with a range of its shards."""
    return PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard).sides


def _iter_lower_layers(snapshot: StoredSnapshot, stacks: Iterable[Stack]) -> Iterator[Layer]:
    for stack in stacks:
        yield from stack.layers[:-1]
        if not stack.top.shard.virtual:
            continue
        for source, positions in _list_plan_inputs(snapshot, stack.top.shard):
            version = StoredVersion(snapshot.store, source.label)
            side = version.snapshot(source.snapshot)
            paired = list_stacks(side)[slice(*positions)]
            for shard in (pair.top.shard for pair in paired):
                tombstone = version.state.get_tombstone(shard.name)
                yield Layer(shard, source.label, None, tombstone=tombstone)
            yield from _iter_lower_layers(side, paired)


_MISSING, _LOG = "missing", "log"


@dataclass(frozen=True, slots=True)
class BrokenDependency:
    """A shard of another version that a snapshot needs and cannot rely on.

    `problem` is the check that the shard failed, "rejection" or "vacuum" if it was removed,
    "missing" if its log does not know it, or "log" if that log is corrupt.
    """

    version: str
    shard: str
    problem: str

    def __str__(self) -> str:
        if self.problem == _LOG:
            return f"the log of {self.version} is corrupt"
        if self.problem == _MISSING:
            return f"shard {self.shard} is not in the log of {self.version}"
        return f"shard {self.shard} of {self.version} failed {self.problem}"


def list_broken_dependencies(
    version: StoredVersion,
    snapshot: int,
    open_version: Callable[[str], StoredVersion] | None = None,
) -> list[BrokenDependency]:
    """List the shards of other versions that a snapshot needs and cannot rely on.

    Args:
        version: The version of the snapshot.
        snapshot: The number of the snapshot.
        open_version: Opens another version by its name, from a cache of the caller.

    Returns:
        One dependency for each such shard, at any depth.
    """
    open_version = open_version or (lambda name: StoredVersion(version.store, name))
    broken: dict[tuple[str, str], BrokenDependency] = {}
    rows = version.state.shard_history.rows_at(snapshot)
    pending = list(_find_needed_shards(version, rows, open_version, broken).items())
    seen: dict[str, set[str]] = {}
    while pending:
        owner, names = pending.pop()
        names -= seen.setdefault(owner, set())
        if not names:
            continue
        seen[owner] |= names
        try:
            holder = open_version(owner)
            rows = _find_shard_rows(holder, names, broken)
        except CorruptLogError:
            broken[owner, ""] = BrokenDependency(owner, "", _LOG)
            continue
        pending += _find_needed_shards(holder, rows, open_version, broken).items()
    return list(broken.values())


def _find_shard_rows(
    holder: StoredVersion, names: set[str], broken: dict[tuple[str, str], BrokenDependency]
) -> NDArray[np.int64]:
    """Return the rows of named shards, and note those that failed a check or are unknown."""
    state = holder.state
    known = state.shard_history.names()
    is_named = pc.is_in(known, value_set=pa.array(sorted(names), pa.string()))
    rows: NDArray[np.int64] = np.flatnonzero(is_named.to_numpy())
    row_names = known.take(pa.array(rows)).to_pylist() if len(rows) else []
    for name in sorted(names - set(row_names)):
        broken[holder.name, name] = BrokenDependency(holder.name, name, _MISSING)
    failed = state.shard_history.column("failed")[rows]
    for position in np.flatnonzero(failed).tolist():
        bits, name = int(failed[position]), row_names[position]
        problem = next(check for check, bit in state.bits.items() if bits >> bit & 1)
        broken[holder.name, name] = BrokenDependency(holder.name, name, problem)
    return rows


def _find_needed_shards(
    version: StoredVersion,
    rows: NDArray[np.int64],
    open_version: Callable[[str], StoredVersion],
    broken: dict[tuple[str, str], BrokenDependency],
) -> dict[str, set[str]]:
    """Return the shards of other versions that are needed to read these rows, by version."""
    intervals = version.state.shard_history
    needed: dict[str, set[str]] = {}
    if not len(rows):
        return needed
    indices = pa.array(rows)
    for base in pc.unique(intervals.bases().take(indices).drop_null()).to_pylist():
        owner = f"{version.log.dataset}/{base.split('.', 1)[0]}"
        needed.setdefault(owner, set()).add(base)
    plans = np.asarray(pc.ends_with(intervals.names().take(indices), pattern=PLAN))
    entries = intervals.column("landed")[rows]
    names = intervals.names().take(indices).filter(pa.array(plans)).to_pylist()
    for plan, entry in zip(names, entries[plans].tolist(), strict=True):
        for source, span in _iter_paired_spans(version.log.entry(entry), plan):
            try:
                shards = open_version(source.label).snapshot(source.snapshot).shards[span]
            except CorruptLogError:
                broken[source.label, ""] = BrokenDependency(source.label, "", _LOG)
                continue
            needed.setdefault(source.label, set()).update(shard.name for shard in shards)
    return needed


def _iter_paired_spans(entry: Entry, plan: str) -> Iterator[tuple[Input, slice]]:
    """Yield the snapshots that a plan pairs, with the positions of their shards.

    Without positions in its entry, a plan pairs all shards of its inputs.
    """
    names = [added.shard.name for added in entry.added]
    spans = [slice(None)] * len(entry.inputs)
    cover = get_coverage(entry, names.index(plan)) if plan in names else None
    if cover is not None:
        spans = [slice(*cover.left), slice(*cover.right)]
    yield from zip(entry.inputs, spans, strict=False)
