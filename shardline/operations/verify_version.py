"""Verify a snapshot: the log that tells of it, every byte of its shards, and what they lie on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from shardline.errors import CorruptLogError, ShardlineError
from shardline.execution.task_groups import group_small_tasks
from shardline.execution.threads import run_tasks
from shardline.log.layers import list_stacks
from shardline.log.version import refuse_no_version
from shardline.operations.inspect_shard import (
    get_joinable_bytes,
    inspect_shard,
    inspect_shard_size,
    inspect_small_shards,
)
from shardline.operations.verify_log import LogReport, verify_log
from shardline.provenance.dependencies import get_shard_object, list_dependency_layers
from shardline.readers.shard_file import SMALL_BYTES
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.log.layers import Layer, Stack
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.inspect_shard import ShardReport


@dataclass(frozen=True, slots=True)
class VersionReport:
    """What verifying a snapshot found.

    `log` is None where only a quick look was asked for, `snapshot` where the log is too damaged
    to tell of it. `bases` are the shards of other versions that overlays lie beside or that plans
    pair, each once.
    `vacuumed` are the shards that are not sound because vacuum deleted them.
    """

    snapshot: StoredSnapshot | None
    log: LogReport | None
    shards: list[ShardReport]
    bases: list[ShardReport] = field(default_factory=list)
    vacuumed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        reports = (*self.shards, *self.bases)
        sound = all(shard.ok and not shard.index_problem for shard in reports)
        return sound and not (self.log and self.log.problems)


def verify_version(
    version: StoredVersion,
    which: str = "latest",
    *,
    quick: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Shard, int], None] | None = None,
) -> VersionReport:
    """Check the log, and of each shard presence, length, count, sha256 and checksums.

    An overlay must belong to its base, and hold the features that its version adds and no others;
    the base is checked as well, as a file, and so is what a plan pairs. With `quick` only the
    shards' presence and length is, and that they belong together; the log is then read as far as
    opening it needs. Nothing is changed.
    """
    refuse_no_version(version=version)
    log = None if quick else verify_log(version.log)
    try:
        snapshot = version.find(which)
    except CorruptLogError:
        if log is None or not log.problems:
            raise
        return VersionReport(None, log, [])

    verifier = _ShardVerifier(version, quick, limits, progress)
    stacks = list_stacks(snapshot)
    layers = [*(stack.top for stack in stacks), *_list_dependencies(snapshot, stacks)]
    groups = [
        layers[cut] for cut in group_small_tasks([get_joinable_bytes(one.shard) for one in layers])
    ]
    found = [
        report for some in run_tasks(verifier.verify, groups, workers=workers) for report in some
    ]
    vacuumed = []
    for place, layer in enumerate(layers):
        deleted = _find_vacuum_entry(version, layer)
        if deleted and not found[place].ok:
            found[place] = replace(found[place], problems=(deleted,))
            vacuumed.append(layer.shard.name)
    shards, bases = found[: len(stacks)], found[len(stacks) :]
    for place, stack in enumerate(stacks):
        if stack.problem:
            problems = (*shards[place].problems, stack.problem)
            shards[place] = replace(shards[place], problems=problems)
    return VersionReport(snapshot, log, shards, bases, tuple(vacuumed))


@dataclass(frozen=True, slots=True)
class _ShardVerifier:
    """Verifies shards as files: small ones together, as long as all are sound."""

    version: StoredVersion
    quick: bool
    limits: Limits
    progress: Callable[[Shard, int], None] | None

    def verify(self, layers: Sequence[Layer]) -> list[ShardReport]:
        """Verify the shards of a group."""
        if self.quick or len(layers) == 1:
            return [self._verify_alone(layer) for layer in layers]
        shards = [(get_shard_object(layer), layer.shard) for layer in layers]
        reports = inspect_small_shards(self.version.store, shards, None, limits=self.limits)
        if self.progress is not None:
            for report in filter(None, reports):
                self.progress(report.shard, report.shard.bytes)
        return [
            self._verify_alone(layer) if report is None else report
            for layer, report in zip(layers, reports, strict=True)
        ]

    def _verify_alone(self, layer: Layer) -> ShardReport:
        shard, name = layer.shard, get_shard_object(layer)
        if self.quick:
            return inspect_shard_size(self.version.store, name, shard)
        return inspect_shard(
            self.version.store,
            name,
            shard,
            None if shard.base is None else layer.schema,
            below=layer.below,
            limits=self.limits,
            # No reader uses the index of a small shard: audit compares these too.
            index=shard.bytes > SMALL_BYTES,
            progress=None if self.progress is None else partial(self.progress, shard),
        )


def _list_dependencies(snapshot: StoredSnapshot, stacks: list[Stack]) -> list[Layer]:
    """What the shards are read from; of a plan that leads nowhere, its own report tells that."""
    found: dict[str, Layer] = {}
    for stack in stacks:
        try:
            layers = list_dependency_layers(snapshot, [stack])
        except (ShardlineError, ValueError):
            layers = list(stack.layers[:-1])
        found |= {get_shard_object(layer): layer for layer in layers}
    return list(found.values())


def _find_vacuum_entry(version: StoredVersion, layer: Layer) -> str:
    """In which entry vacuum announced that it deletes a shard; empty if it did not."""
    own = layer.version == version.name
    entry = version.state.condemned_in(layer.shard.name) if own else layer.condemned
    if entry is None:
        return ""
    return f"vacuum deleted it in entry {entry}" + ("" if own else f" of {layer.version}")


def count_bytes_to_verify(snapshot: StoredSnapshot) -> int:
    """How many bytes verifying a snapshot reads."""
    below = _list_dependencies(snapshot, list_stacks(snapshot))
    return snapshot.bytes + sum(layer.shard.bytes for layer in below)
