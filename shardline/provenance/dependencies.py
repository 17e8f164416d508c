"""What versions need of others: the shards without which their kept snapshots cannot be read.

That is told shard by shard, and through all versions between: a plan needs the overlays that it
pairs, and these their bases. A pin keeps a whole snapshot, so that it alone tells too much.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from shardline.errors import ObjectMissingError
from shardline.log.layers import Layer, stacks_of
from shardline.log.retention import retained
from shardline.log.version import StoredVersion
from shardline.pairing.pair_plan import PairPlan
from shardline.provenance.pins import holder_of, pins_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from shardline.log.layers import Stack
    from shardline.log.model import Hold, Input, Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.state import State
    from shardline.provenance.log_evidence import LogEvidence
    from shardline.storage import Store


class Needs:
    """What is needed of any version of a root, if what was in use within `keep` is kept."""

    def __init__(
        self,
        store: Store,
        now: datetime,
        keep: timedelta,
        evidence: LogEvidence | None = None,
    ) -> None:
        self.now, self.keep = now, keep
        self._evidence = evidence
        self._store = store
        self._versions: dict[str, StoredVersion] = {}
        self._kept: dict[str, dict[str, Shard]] = {}
        self._plans: dict[str, PairPlan] = {}

    def refresh(self) -> None:
        """Take in what was committed meanwhile."""
        for version in self._versions.values():
            version.refresh()
        self._kept.clear()

    def released(self, state: State, *, erased: bool = False) -> NDArray[np.int64] | None:
        """Return when the snapshots of a version were released, if more than its log is known."""
        if self._evidence is None:
            return None
        return self._evidence.released(state, self.now, erased=erased)

    def opened(self, name: str) -> StoredVersion:
        """A version as it stood when it was first asked for, or at the last refresh."""
        if name not in self._versions:
            self._versions[name] = StoredVersion(self._store, name)
        return self._versions[name]

    def of(self, version: StoredVersion) -> dict[str, set[str]]:
        """The shards of a version that each of its holders needs."""
        return self._of(version, ())

    def kept(self, version: StoredVersion) -> Mapping[str, Shard]:
        """The shards of a version that its kept snapshots have, or others need."""
        return self._shards(version, ())

    def below(self, holder: StoredVersion, shard: Shard, version: StoredVersion) -> set[str]:
        """The shards of a version without which one of a holder cannot be read."""
        if shard.base is not None:
            same = holder.log.dataset == version.log.dataset
            return {shard.base.name} if same and shard.base.owner == version.log.version else set()
        return self._paired(holder, shard, version) if shard.virtual else set()

    def by(self, holder: str, version: StoredVersion) -> set[str]:
        """The shards of a version that a holder needs."""
        return self._by(self.opened(holder), version, ())

    def _of(self, version: StoredVersion, above: tuple[str, ...]) -> dict[str, set[str]]:
        holders = {holder_of(pin) for pin in version.state.pins} - {None, version.name}
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
            # Two that hold each other: all that is pinned counts as needed.
            return self._listed(version, frozenset())
        if version.name not in self._kept:
            pins = frozenset(pin for pin in version.state.pins if holder_of(pin) is not None)
            found = self._listed(version, pins)
            needed = {name for names in self._of(version, above).values() for name in names}
            stays = version.state.stays.named(sorted(needed - set(found))) if needed else {}
            found |= {name: stay.shard for name, stay in stays.items()}
            self._kept[version.name] = found
        return self._kept[version.name]

    def _listed(self, version: StoredVersion, but: frozenset[str]) -> dict[str, Shard]:
        """The shards of the kept snapshots that vacuum has not announced yet."""
        state = version.state
        kept = retained(state, self.now, self.keep, but=but, released=self.released(state))
        found = {
            stay.shard.name: stay.shard
            for number in kept.tolist()
            for stay in state.stays.at(number)
        }
        condemned = {name: at for name in found if (at := state.condemned_in(name)) is not None}
        erasing = {at for at in condemned.values() if version.log.entry(at).operation == "erase"}
        return {n: one for n, one in found.items() if condemned.get(n) in {None, *erasing}}

    def _paired(self, holder: StoredVersion, shard: Shard, version: StoredVersion) -> set[str]:
        """The shards of a version that a plan pairs; all that are pinned for one that is lost."""
        path = holder.shard_name(shard)
        try:
            if path not in self._plans:
                self._plans[path] = PairPlan.read(self._store, path, shard)
        except (ObjectMissingError, ValueError):
            pinned = [number for _, number in pins_of(version, holder.name)]
            return {one.name for number in pinned for one in version.snapshot(number).shards}
        plan = self._plans[path]
        names: set[str] = set()
        for told, places in plan.sides:
            if told.shown == version.name:
                listed = version.snapshot(told.snapshot).shards[slice(*places)]
                names |= {one.name for one in listed}
        return names


def needless_pins(
    version: StoredVersion, needs: Needs, let_go: Mapping[str, Hold] | None = None
) -> list[str]:
    """The pins on snapshots of a version by which their holders keep nothing that they need.

    What the pins of the same holder on later snapshots keep as well, one does not need to keep.
    With `let_go`, pins that are no longer there are judged as if they were.
    """
    holds = {**version.state.pins, **(let_go or {})}
    pins: dict[str, list[tuple[int, str]]] = {}
    for name, hold in holds.items():
        holder = holder_of(name)
        if holder is not None and hold.snapshot is not None:
            pins.setdefault(holder, []).append((hold.snapshot, name))
    found = []
    for holder, held in pins.items():
        left = needs.by(holder, version)
        for number, name in sorted(held, reverse=True):
            shards = {stay.shard.name for stay in version.state.stays.at(number)}
            if not shards & left:
                found.append(name)
            left -= shards
    return sorted(found)


def let_go_of_erased(into: StoredVersion, base: StoredVersion, now: datetime) -> None:
    """Let go of pins on snapshots of a base with erased shards, if the newest one has what is left.

    What a version needs is that of its kept snapshots; an old one with a tag still needs the old.
    """
    state = base.state
    newest = {shard.name for shard in base.newest().shards}
    needed = Needs(base.store, now, timedelta(0)).by(into.name, base) - newest
    for name, number in list(pins_of(base, into.name)):
        held = {shard.name for shard in base.snapshot(number).shards}
        if any(state.condemned_in(shard) is not None for shard in held) and not held & needed:
            base.pin(name, None)


def object_of(layer: Layer) -> str:
    """Where the shard of a layer lies."""
    return f"{layer.version.partition('/')[0]}/shards/{layer.shard.name}"


def layers_below(snapshot: StoredSnapshot, stacks: Iterable[Stack] | None = None) -> list[Layer]:
    """The shards of other versions that a snapshot is read from, each once.

    Raises LogError, StorageError or ValueError if a plan does not lead to what it pairs.
    """
    listed = stacks_of(snapshot) if stacks is None else stacks
    return list({object_of(one): one for one in _below(snapshot, listed)}.values())


def read_directly(snapshot: StoredSnapshot) -> dict[str, set[str]]:
    """The shards that those of a snapshot lie on or pair, by the versions in whose logs they are.

    Raises LogError, StorageError or ValueError if a plan does not lead to what it pairs.
    """
    found: dict[str, set[str]] = {}
    for shard in snapshot.shards:
        if shard.base is not None:
            dataset = snapshot.version.partition("/")[0]
            found.setdefault(f"{dataset}/{shard.base.owner}", set()).add(shard.base.name)
        elif shard.virtual:
            for told, places in _sides(snapshot, shard):
                side = StoredVersion(snapshot.store, told.shown).snapshot(told.snapshot)
                names = found.setdefault(told.shown, set())
                names.update(one.name for one in side.shards[slice(*places)])
    return found


def _sides(snapshot: StoredSnapshot, shard: Shard) -> Sequence[tuple[Input, tuple[int, int]]]:
    """The snapshots that a plan pairs, and which of their shards."""
    return PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard).sides


def _below(snapshot: StoredSnapshot, stacks: Iterable[Stack]) -> Iterator[Layer]:
    for stack in stacks:
        yield from stack.layers[:-1]
        if not stack.top.shard.virtual:
            continue
        for told, places in _sides(snapshot, stack.top.shard):
            version = StoredVersion(snapshot.store, told.shown)
            side = version.snapshot(told.snapshot)
            paired = stacks_of(side)[slice(*places)]
            for one in paired:
                yield Layer(
                    one.top.shard,
                    told.shown,
                    None,
                    condemned=version.state.condemned_in(one.top.shard.name),
                )
            yield from _below(side, paired)
