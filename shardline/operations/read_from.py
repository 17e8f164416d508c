"""What a snapshot is read from besides its own shards: bases of overlays, and what plans pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.log.layers import Layer, stacks_of
from shardline.log.version import Version
from shardline.operations.combining.virtual import PairPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardline.log.facts import Input, Shard
    from shardline.log.layers import Stack
    from shardline.log.snapshot import Snapshot


def object_of(layer: Layer) -> str:
    """Where the shard of a layer lies."""
    return f"{layer.version.partition('/')[0]}/shards/{layer.shard.name}"


def layers_below(snapshot: Snapshot, stacks: Iterable[Stack] | None = None) -> list[Layer]:
    """The shards of other versions that a snapshot is read from, each once.

    Raises LogError, StorageError or ValueError if a plan does not lead to what it pairs.
    """
    listed = stacks_of(snapshot) if stacks is None else stacks
    return list({object_of(one): one for one in _below(snapshot, listed)}.values())


def read_directly(snapshot: Snapshot) -> dict[str, set[str]]:
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
                side = Version(snapshot.store, told.shown).snapshot(told.snapshot)
                names = found.setdefault(told.shown, set())
                names.update(one.name for one in side.shards[slice(*places)])
    return found


def _sides(snapshot: Snapshot, shard: Shard) -> Sequence[tuple[Input, tuple[int, int]]]:
    """The snapshots that a plan pairs, and which of their shards."""
    return PairPlan.read(snapshot.store, snapshot.shard_name(shard), shard).sides


def _below(snapshot: Snapshot, stacks: Iterable[Stack]) -> Iterator[Layer]:
    for stack in stacks:
        yield from stack.layers[:-1]
        if not stack.top.shard.virtual:
            continue
        for told, places in _sides(snapshot, stack.top.shard):
            version = Version(snapshot.store, told.shown)
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
