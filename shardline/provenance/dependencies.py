"""Dependencies of a snapshot: the shards of other versions that it cannot be read without."""

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
        self._kept: dict[str, dict[str, Shard]] = {}
        self._plans: dict[str, PairPlan] = {}

    def refresh(self) -> None:
        """Read new entries."""
        for version in self._versions.values():
            version.refresh()
        self._kept.clear()

    def released(self, state: State, *, erased: bool = False) -> NDArray[np.int64] | None:
        """Return when the snapshots of a version were released, if more than its log is known."""
        if self._evidence is None:
            return None
        return self._evidence.released(state, self.now, erased=erased)

    def opened(self, name: str) -> StoredVersion:
        """Return a version as of its first use, or the last refresh."""
        if name not in self._versions:
            self._versions[name] = StoredVersion(self._store, name)
        return self._versions[name]

    def of(self, version: StoredVersion) -> dict[str, set[str]]:
        """Return the shards of a version that each of its holders needs."""
        return self._of(version, ())

    def kept(self, version: StoredVersion) -> Mapping[str, Shard]:
        """Return the shards that retained snapshots of a version have, or that others need."""
        return self._shards(version, ())

    def below(self, holder: StoredVersion, shard: Shard, version: StoredVersion) -> set[str]:
        """Return the shards of a version that a shard of a holder is read with."""
        if shard.base is not None:
            same = holder.log.dataset == version.log.dataset
            return {shard.base.name} if same and shard.base.owner == version.log.version else set()
        return self._paired(holder, shard, version) if shard.virtual else set()

    def by(self, holder: str, version: StoredVersion) -> set[str]:
        """Return the shards of a version that a holder needs."""
        return self._by(self.opened(holder), version, ())

    def by_revivable(
        self, dependent: str, version: StoredVersion, dead: Collection[str]
    ) -> set[str]:
        """Return the shards of a version that a dependent needs, or could need again.

        A tag, a pin or a restore brings an old snapshot back into use as long as no vacuum has
        announced its shards. `dead` are shards that are as good as announced.
        """
        state = self.opened(dependent).state
        names = [
            name
            for name in state.shard_history.names().to_pylist()
            if name not in dead and state.get_tombstone(name) is None
        ]
        needed = self.by(dependent, version)
        for interval in state.shard_history.named(names).values():
            needed |= self.below(self.opened(dependent), interval.shard, version)
        return needed

    def _of(self, version: StoredVersion, above: tuple[str, ...]) -> dict[str, set[str]]:
        holders = {parse_pin_holder(pin) for pin in version.state.pins} - {None, version.name}
        return {
            name: self._by(self.opened(name), version, above)
            for name in sorted(one for one in holders if one is not None)
        }

    def _by(
        self, holder: StoredVersion, version: StoredVersion, above: tuple[str, ...]
    ) -> set[str]:
        names: set[str] = set()
        for shard in self._shards(holder, (*above, version.name)).values():
            names |= self.below(holder, shard, version)
        return names

    def _shards(self, version: StoredVersion, above: tuple[str, ...]) -> dict[str, Shard]:
        if version.name in above:
            # Two versions pin each other: all pinned shards count as needed.
            return self._listed(version, frozenset())
        if version.name not in self._kept:
            pins = frozenset(pin for pin in version.state.pins if parse_pin_holder(pin) is not None)
            found = self._listed(version, pins)
            needed = {name for names in self._of(version, above).values() for name in names}
            intervals = (
                version.state.shard_history.named(sorted(needed - set(found))) if needed else {}
            )
            found |= {name: interval.shard for name, interval in intervals.items()}
            self._kept[version.name] = found
        return self._kept[version.name]

    def _listed(self, version: StoredVersion, but: frozenset[str]) -> dict[str, Shard]:
        """Return the shards of retained snapshots that vacuum has not announced."""
        state = version.state
        kept = find_retained(
            state, self.now, self.retention, but=but, released=self.released(state)
        )
        found = {
            interval.shard.name: interval.shard
            for number in kept.tolist()
            for interval in state.shard_history.at(number)
        }
        condemned = {name: at for name in found if (at := state.get_tombstone(name)) is not None}
        erasing = {at for at in condemned.values() if version.log.entry(at).operation == "erase"}
        return {n: one for n, one in found.items() if condemned.get(n) in {None, *erasing}}

    def _paired(self, holder: StoredVersion, shard: Shard, version: StoredVersion) -> set[str]:
        """Return the shards of a version that a plan pairs; for a lost plan, all pinned shards."""
        path = holder.shard_name(shard)
        try:
            if path not in self._plans:
                self._plans[path] = PairPlan.read(self._store, path, shard)
        except (ObjectNotFoundError, ValueError):
            pinned = [number for _, number in list_pins(version, holder.name)]
            return {one.name for number in pinned for one in version.snapshot(number).shards}
        plan = self._plans[path]
        names: set[str] = set()
        for told, places in plan.sides:
            if told.label == version.name:
                listed = version.snapshot(told.snapshot).shards[slice(*places)]
                names |= {one.name for one in listed}
        return names


def list_needless_pins(
    version: StoredVersion,
    needs: Dependencies,
    let_go: Mapping[str, Ref] | None = None,
    *,
    dead: Collection[str] = (),
) -> list[str]:
    """List the pins on snapshots of a version that keep nothing that their holders can need.

    A pin is not needed for shards that pins of the same holder on later snapshots keep as well.
    With `let_go`, pins that were released are judged as if they were set. `dead` are shards of
    holders that are about to be announced for deletion.
    """
    holds = {**version.state.pins, **(let_go or {})}
    pins: dict[str, list[tuple[int, str]]] = {}
    for name, hold in holds.items():
        holder = parse_pin_holder(name)
        if holder is not None and hold.snapshot is not None:
            pins.setdefault(holder, []).append((hold.snapshot, name))
    found = []
    for holder, held in pins.items():
        left = needs.by_revivable(holder, version, dead)
        for number, name in sorted(held, reverse=True):
            shards = {interval.shard.name for interval in version.state.shard_history.at(number)}
            if not shards & left:
                found.append(name)
            left -= shards
    return sorted(found)


def release_erased_pins(into: StoredVersion, base: StoredVersion, now: datetime) -> None:
    """Release pins on snapshots of a base with erased shards that a version no longer needs.

    A tagged older snapshot of the version still needs its shards.
    """
    state = base.state
    newest = {shard.name for shard in base.latest().shards}
    needed = Dependencies(base.store, now, timedelta(0)).by(into.name, base) - newest
    for name, number in list(list_pins(base, into.name)):
        held = {shard.name for shard in base.snapshot(number).shards}
        if any(state.get_tombstone(shard) is not None for shard in held) and not held & needed:
            base.pin(name, None)


def get_shard_object(layer: Layer) -> str:
    """Return the path of the shard of a layer."""
    return f"{layer.version.partition('/')[0]}/shards/{layer.shard.name}"


def list_dependency_layers(
    snapshot: StoredSnapshot, stacks: Iterable[Stack] | None = None
) -> list[Layer]:
    """Return the shards of other versions that a snapshot is read from, each once.

    Raises LogError, StorageError or ValueError if a plan does not lead to what it pairs.
    """
    listed = list_stacks(snapshot) if stacks is None else stacks
    return list(
        {get_shard_object(one): one for one in _iter_layers_below(snapshot, listed)}.values()
    )


def list_direct_dependencies(snapshot: StoredSnapshot) -> dict[str, set[str]]:
    """Return the bases and paired shards of a snapshot's shards, by the version that owns them.

    Raises LogError, StorageError or ValueError if a plan does not lead to what it pairs.
    """
    found: dict[str, set[str]] = {}
    for shard in snapshot.shards:
        if shard.base is not None:
            dataset = snapshot.version.partition("/")[0]
            found.setdefault(f"{dataset}/{shard.base.owner}", set()).add(shard.base.name)
        elif shard.virtual:
            for told, places in _iter_plan_inputs(snapshot, shard):
                side = StoredVersion(snapshot.store, told.label).snapshot(told.snapshot)
                names = found.setdefault(told.label, set())
                names.update(one.name for one in side.shards[slice(*places)])
    return found


def _iter_plan_inputs(
    snapshot: StoredSnapshot, shard: Shard
) -> Sequence[tuple[Input, tuple[int, int]]]:
    """Return the snapshots that a plan pairs, each with a range of its shards."""
    return PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard).sides


def _iter_layers_below(snapshot: StoredSnapshot, stacks: Iterable[Stack]) -> Iterator[Layer]:
    for stack in stacks:
        yield from stack.layers[:-1]
        if not stack.top.shard.virtual:
            continue
        for told, places in _iter_plan_inputs(snapshot, stack.top.shard):
            version = StoredVersion(snapshot.store, told.label)
            side = version.snapshot(told.snapshot)
            paired = list_stacks(side)[slice(*places)]
            for one in paired:
                yield Layer(
                    one.top.shard,
                    told.label,
                    None,
                    tombstone=version.state.get_tombstone(one.top.shard.name),
                )
            yield from _iter_layers_below(side, paired)


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
    """List the shards of other versions that a snapshot needs and that are no longer sound.

    Args:
        version: The version of the snapshot.
        snapshot: The number of the snapshot.
        open_version: Opens another version by its name, for callers that have opened some.

    Returns:
        One dependency for each shard, at any depth. Empty for a snapshot that needs no other
        version, or none of whose dependencies failed a check or was removed.
    """
    opened = open_version or (lambda name: StoredVersion(version.store, name))
    broken: dict[tuple[str, str], BrokenDependency] = {}
    rows = version.state.shard_history.rows_at(snapshot)
    left = list(_find_needed_shards(version, rows, opened, broken).items())
    seen: dict[str, set[str]] = {}
    while left:
        owner, names = left.pop()
        names -= seen.setdefault(owner, set())
        if not names:
            continue
        seen[owner] |= names
        try:
            holder = opened(owner)
            rows = _find_shard_rows(holder, names, broken)
        except CorruptLogError:
            broken[owner, ""] = BrokenDependency(owner, "", _LOG)
            continue
        left += _find_needed_shards(holder, rows, opened, broken).items()
    return list(broken.values())


def _find_shard_rows(
    holder: StoredVersion, names: set[str], broken: dict[tuple[str, str], BrokenDependency]
) -> NDArray[np.int64]:
    """Return the rows of named shards, and note those that failed a check or are unknown."""
    state = holder.state
    known = state.shard_history.names()
    wanted = pc.is_in(known, value_set=pa.array(sorted(names), pa.string()))
    rows: NDArray[np.int64] = np.flatnonzero(wanted.to_numpy())
    found = known.take(pa.array(rows)).to_pylist() if len(rows) else []
    for name in sorted(names - set(found)):
        broken[holder.name, name] = BrokenDependency(holder.name, name, _MISSING)
    failed = state.shard_history.column("failed")[rows]
    for place in np.flatnonzero(failed).tolist():
        bits = int(failed[place])
        problem = next(check for check, bit in state.bits.items() if bits >> bit & 1)
        name = found[place]
        broken[holder.name, name] = BrokenDependency(holder.name, name, problem)
    return rows


def _find_needed_shards(
    version: StoredVersion,
    rows: NDArray[np.int64],
    opened: Callable[[str], StoredVersion],
    broken: dict[tuple[str, str], BrokenDependency],
) -> dict[str, set[str]]:
    """Return the shards of other versions that some shards are read with, by version."""
    intervals = version.state.shard_history
    needed: dict[str, set[str]] = {}
    if not len(rows):
        return needed
    place = pa.array(rows)
    for base in pc.unique(intervals.bases().take(place).drop_null()).to_pylist():
        owner = f"{version.log.dataset}/{base.split('.', 1)[0]}"
        needed.setdefault(owner, set()).add(base)
    plans = np.asarray(pc.ends_with(intervals.names().take(place), pattern=PLAN))
    landed = intervals.column("landed")[rows]
    names = intervals.names().take(place).filter(pa.array(plans)).to_pylist()
    for plan, entry in zip(names, landed[plans].tolist(), strict=True):
        for given, span in _paired(version.log.entry(entry), plan):
            try:
                shards = opened(given.label).snapshot(given.snapshot).shards[span]
            except CorruptLogError:
                broken[given.label, ""] = BrokenDependency(given.label, "", _LOG)
                continue
            needed.setdefault(given.label, set()).update(shard.name for shard in shards)
    return needed


def _paired(entry: Entry, plan: str) -> Iterator[tuple[Input, slice]]:
    """Yield the snapshots that a plan pairs and the places of their shards, as its entry says.

    An entry that does not say the places stands for all shards of its inputs.
    """
    names = [one.shard.name for one in entry.added]
    spans = [slice(None)] * len(entry.inputs)
    cover = get_coverage(entry, names.index(plan)) if plan in names else None
    if cover is not None:
        spans = [slice(*cover.left), slice(*cover.right)]
    yield from zip(entry.inputs, spans, strict=False)
