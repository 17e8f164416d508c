"""Snapshot verification: the log, every byte of the shards, and the shards they depend on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from shardline.errors import CorruptLogError, ShardlineError
from shardline.execution.task_groups import group_small_tasks
from shardline.execution.threads import run_tasks
from shardline.log.layers import list_stacks
from shardline.log.version import validate_version
from shardline.operations.inspect_shard import (
    get_joinable_bytes,
    inspect_shard,
    inspect_shard_size,
    inspect_small_shards,
)
from shardline.operations.verify_log import LogReport, verify_log
from shardline.provenance.dependencies import get_shard_object, list_dependency_layers
from shardline.readers.shard_file import SMALL_SHARD_BYTES
from shardline.report import Report
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.canonical_json import Json
    from shardline.log.layers import Layer, Stack
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.inspect_shard import ShardReport


@dataclass(frozen=True, slots=True)
class VersionReport(Report):
    """Result of verifying a snapshot.

    `log` is None after a quick verification, `snapshot` if the log is too corrupt to read it.
    `bases` are the shards of other versions that the snapshot depends on. `vacuumed` are shards
    that vacuum deleted.
    """

    snapshot: StoredSnapshot | None
    log: LogReport | None
    shards: list[ShardReport]
    bases: list[ShardReport] = field(default_factory=list)
    vacuumed: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return True if no problem was found."""
        reports = (*self.shards, *self.bases)
        is_intact = all(shard.ok and not shard.index_problem for shard in reports)
        return is_intact and not (self.log and self.log.problems)

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {
            "ok": self.ok,
            "snapshot": self.snapshot and self.snapshot.to_dict(),
            "log": self.log and self.log.to_dict(),
            "shards": [shard.to_dict() for shard in self.shards],
            "bases": [shard.to_dict() for shard in self.bases],
            "vacuumed": list(self.vacuumed),
        }


def verify_version(
    version: StoredVersion,
    snapshot: str | int = "latest",
    *,
    quick: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Shard, int], None] | None = None,
) -> VersionReport:
    """Verify the log and the shards of a snapshot, without changing anything.

    Each shard must have the committed size, record count, SHA-256 and checksums. An overlay must
    match its base, and hold exactly the features that its version adds. The shards that the
    snapshot depends on are verified as files.

    Args:
        version: Version of the snapshot.
        snapshot: Snapshot number, tag, "latest" or "published".
        quick: Verify only the presence and size of each shard, and that layers match.
        limits: Limits of records and decompression.
        workers: Number of threads.
        progress: Called with a shard and the position in it.

    Example:
        >>> verify_version(version, "published").ok
    """
    validate_version(version=version)
    log = None if quick else verify_log(version.log)
    try:
        target = version.find(snapshot)
    except CorruptLogError:
        if log is None or not log.problems:
            raise
        return VersionReport(None, log, [])

    verifier = _ShardVerifier(version, quick, limits, progress)
    stacks = list_stacks(target)
    layers = [*(stack.top for stack in stacks), *_list_dependencies(target, stacks)]
    groups = [
        layers[group]
        for group in group_small_tasks([get_joinable_bytes(layer.shard) for layer in layers])
    ]
    reports = [
        report for group in run_tasks(verifier.verify, groups, workers=workers) for report in group
    ]
    vacuumed = []
    for index, layer in enumerate(layers):
        deletion = _describe_vacuum(version, layer)
        if deletion and not reports[index].ok:
            reports[index] = replace(reports[index], problems=(deletion,))
            vacuumed.append(layer.shard.name)
    shards, bases = reports[: len(stacks)], reports[len(stacks) :]
    for index, stack in enumerate(stacks):
        if stack.problem:
            problems = (*shards[index].problems, stack.problem)
            shards[index] = replace(shards[index], problems=problems)
    return VersionReport(target, log, shards, bases, tuple(vacuumed))


@dataclass(frozen=True, slots=True)
class _ShardVerifier:
    """Verifier of shards as files; intact small shards are read together."""

    version: StoredVersion
    quick: bool
    limits: Limits
    progress: Callable[[Shard, int], None] | None

    def verify(self, layers: Sequence[Layer]) -> list[ShardReport]:
        """Verify a group of shards."""
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
            # No reader uses the index of a small shard; audit compares these as well.
            index=shard.bytes > SMALL_SHARD_BYTES,
            progress=None if self.progress is None else partial(self.progress, shard),
        )


def _list_dependencies(snapshot: StoredSnapshot, stacks: list[Stack]) -> list[Layer]:
    """Return the shards that others depend on; the report of a broken plan covers the rest."""
    dependencies: dict[str, Layer] = {}
    for stack in stacks:
        try:
            layers = list_dependency_layers(snapshot, [stack])
        except (ShardlineError, ValueError):
            layers = list(stack.layers[:-1])
        dependencies |= {get_shard_object(layer): layer for layer in layers}
    return list(dependencies.values())


def _describe_vacuum(version: StoredVersion, layer: Layer) -> str:
    """Return which entry announced the deletion of a shard, or an empty text."""
    is_own = layer.version == version.name
    entry = version.state.get_tombstone(layer.shard.name) if is_own else layer.tombstone
    if entry is None:
        return ""
    return f"vacuum deleted it in entry {entry}" + ("" if is_own else f" of {layer.version}")


def count_bytes_to_verify(snapshot: StoredSnapshot) -> int:
    """Return the number of bytes that verifying a snapshot reads."""
    dependencies = _list_dependencies(snapshot, list_stacks(snapshot))
    return snapshot.bytes + sum(layer.shard.bytes for layer in dependencies)
