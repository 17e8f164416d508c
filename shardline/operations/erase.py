"""Erase: remove records from every version of a dataset, so that they cannot return.

Each live shard with such records is rewritten without them. The same entry condemns the old shard,
and the shards of older snapshots that have such records: nobody can restore, tag, pin or derive
from these again, and vacuum deletes their files. Copies beyond the shards of the dataset are
reported with what to do about them.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardline.errors import ConflictError, LogError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint
from shardline.log.changes import Derive, diff_shards
from shardline.log.model import Base
from shardline.log.parameters import EraseParameters
from shardline.log.version import DerivedFrom, StoredVersion, utc_now
from shardline.operations.check import CheckTask, run_check
from shardline.operations.derive import make_fresh_shards
from shardline.operations.erasure.erase_plan import (
    ErasePlan,
    ShardErasure,
    VersionErasure,
    plan_erase,
    plan_late_erase,
    sort_bases_first,
)
from shardline.operations.erasure.quarantine import remove_lines
from shardline.operations.erasure.remove_rows import RemoveRowsTask, make_shard_without_rows
from shardline.operations.partial_commit import format_entry_label, report_partial_commit
from shardline.provenance.dependencies import release_erased_pins
from shardline.provenance.log_index import ERASE
from shardline.provenance.pins import pin_inputs
from shardline.provenance.shard_mapping import collapse_rows
from shardline.readers.records import list_records
from shardline.readers.shard_file import open_shard_file
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.canonical_json import Json
    from shardline.execution.executor import Executor, ProgressListener
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.operations.check import CheckReport
    from shardline.operations.erasure.quarantine import QuarantineFile
    from shardline.operations.erasure.residual_copies import ResidualCopy
    from shardline.readers.records import Records
    from shardline.storage import RootLocation
    from shardline.tfrecord.reader import Limits
    from shardline.udf import UDF

_MAX_ROUNDS = 8
_MAX_SPANS = 4096
"""An entry has at most so many spans of rows of older shards, or none of them."""

__all__ = ["ErasePlan", "EraseReport", "ErasedVersion", "erase", "execute_erase_plan", "plan_erase"]


@dataclass(frozen=True, slots=True)
class ErasedVersion:
    """The entry of an erase in one version, and the shards that it added."""

    plan: VersionErasure
    entry: Entry
    shards: tuple[Shard, ...]

    @property
    def snapshot(self) -> int | None:
        """The new snapshot; None if the latest snapshot had no matching record."""
        return self.entry.snapshot if self.entry.changes_data else None


@dataclass(frozen=True, slots=True)
class EraseReport:
    """What an erase did. `erasure` identifies its entries.

    `lines` were removed from quarantine files. `residual_copies` still hold the records, or may.
    `checks` are the checks of the new snapshots by version; a snapshot that passes is published.
    """

    plan: ErasePlan
    erasure: str
    versions: tuple[ErasedVersion, ...] = ()
    lines: int = 0
    residual_copies: tuple[ResidualCopy, ...] = ()
    checks: Mapping[str, CheckReport] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if nothing is left to do and no check failed."""
        return not self.open_copies and all(check.ok for check in self.checks.values())

    @property
    def open_copies(self) -> list[ResidualCopy]:
        """Copies that need an action before the records count as removed."""
        return [copy for copy in self.residual_copies if copy.is_open]

    @property
    def records(self) -> int:
        """Number of records removed from the latest snapshots."""
        return sum(version.plan.records for version in self.versions)


def erase(
    root: RootLocation,
    dataset: str,
    *,
    where: str | UDF | None = None,
    key: str | None = None,
    values: Sequence[int | str | bytes] = (),
    request: str = "",
    quarantine: bool = False,
    check: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> EraseReport:
    """Erase records from every version of a dataset.

    An erase that was stopped can run again: it reuses what was written and repeats nothing.

    Args:
        root: The root of the dataset.
        dataset: The dataset.
        where: The records, as in `plan_erase`.
        key: The records, as in `plan_erase`.
        values: The records, as in `plan_erase`.
        request: Text for the log. Do not name a person in it.
        quarantine: Also remove the lines of quarantine files that cannot be searched.
        check: Check the new snapshots, which publishes them. Otherwise they wait for
            `check_version`.
        limits: Limits of the files to read.
        executor: Runs the tasks.
        progress: Called with the progress of the tasks.

    Returns:
        What was done.

    Raises:
        ConflictError: If another writer committed to a version meanwhile. Earlier versions are
            done then, and another erase does the rest.
    """
    executor = executor or ThreadExecutor()
    plan = plan_erase(
        root,
        dataset,
        where=where,
        key=key,
        values=values,
        limits=limits,
        executor=executor,
        progress=progress,
    )
    return execute_erase_plan(
        plan,
        request=request,
        quarantine=quarantine,
        check=check,
        limits=limits,
        executor=executor,
        progress=progress,
    )


def execute_erase_plan(
    plan: ErasePlan,
    *,
    request: str = "",
    quarantine: bool = False,
    check: bool = True,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> EraseReport:
    """Write all shards of a plan, then commit version by version. See `erase`."""
    executor = executor or ThreadExecutor()
    run = _EraseRun(plan, request, secrets.token_hex(16), quarantine, limits, executor, progress)
    unchecked = plan.unchecked
    erased: list[ErasedVersion] = []
    committed: list[str] = []
    with report_partial_commit("erase", committed):
        for version in run.execute():
            erased.append(version)
            committed.append(format_entry_label(version.entry))
        lines = remove_lines(plan.history, plan.quarantine, run.parameters, uncertain=quarantine)
    copies = [copy for copy in plan.residual_copies if not quarantine or copy.kind != "quarantine"]
    if erased:
        copies += _erase_late_commits(run, erased)
    checks = _check_versions(run, erased, unchecked) if check else {}
    return EraseReport(plan, run.erasure, tuple(erased), lines, tuple(copies), checks)


def _check_versions(
    run: _EraseRun, erased: Iterable[ErasedVersion], unchecked: Mapping[str, int]
) -> dict[str, CheckReport]:
    """Check the new snapshots, and those `unchecked` that a stopped erase left."""
    new = {
        version.plan.version: version.snapshot for version in erased if version.snapshot is not None
    }
    snapshots = {**unchecked, **new}
    reports = {}
    # An overlay needs the checks of its base.
    for history in sort_bases_first(run.plan.history):
        if history.name in snapshots:
            version = StoredVersion(run.plan.history.store, history.name)
            task = CheckTask.of(version, version.snapshot(snapshots[history.name]), run.limits)
            (reports[history.name],) = run.executor.run(run_check, [task], run.progress)
    return reports


def _erase_late_commits(run: _EraseRun, erased: list[ErasedVersion]) -> tuple[ResidualCopy, ...]:
    """Erase what other writers derived from the old shards meanwhile, and return new copies.

    A writer that commits after our entries sees them, and reverts its own commit.
    """
    for _ in range(_MAX_ROUNDS):
        condemned: dict[str, list[str]] = {}
        for version in erased:
            name = version.plan.version.split("/")[1]
            condemned.setdefault(name, []).extend(version.plan.tombstones)
        late = plan_late_erase(run.plan, condemned)
        if not late.versions:
            return late.residual_copies
        with suppress(ConflictError):
            erased += replace(run, plan=late, written={}, sidecars={}).execute()
    raise ConflictError(
        f"{run.plan.dataset}: other writers derived new shards from the erased ones meanwhile",
        hint=Hint.of("the plan is done: erase again when the other writers have finished"),
    )


@dataclass(frozen=True)
class _EraseRun:
    """A running erase. `written` are the new shards by the names of the old ones.

    `sidecars` are the digests of their sidecars by the names of the new shards.
    """

    plan: ErasePlan
    request: str
    erasure: str
    quarantine: bool
    limits: Limits
    executor: Executor
    progress: ProgressListener | None
    written: dict[str, Shard] = field(default_factory=dict)
    sidecars: Json = field(default_factory=dict)

    def execute(self) -> Iterator[ErasedVersion]:
        """Write all shards, then commit, bases before overlays."""
        for erasure in self.plan.versions:
            self._write_shards(erasure)
        for erasure in self.plan.versions:
            self._validate_head(erasure)
        for erasure in self.plan.versions:
            entry = self._commit(erasure)
            if entry is not None:
                shards = tuple(self.written[old.shard.name] for old in erasure.shards)
                yield ErasedVersion(erasure, entry, shards)

    def _get_version(self, erasure: VersionErasure) -> StoredVersion:
        return self.plan.history.find_version(erasure.version).version

    def _write_shards(self, erasure: VersionErasure) -> None:
        version = self._get_version(erasure)
        tasks = [self._make_task(version, shard_erasure) for shard_erasure in erasure.shards]
        receipts = make_fresh_shards(
            version, tasks, make_shard_without_rows, self.executor, self.progress
        )
        for old, receipt in zip(erasure.shards, receipts, strict=True):
            shard = receipt.shard
            if shard is None or shard.records != old.shard.records - len(old.rows):
                raise LogError(
                    f"{version.name}: shard {old.shard.name} differs from the plan",
                    code="plan-mismatch",
                    hint=Hint.of("nothing was committed: erase again"),
                    path=version.shard_name(old.shard),
                    version=version.name,
                )
            self.written[old.shard.name] = shard
            self.sidecars.update({shard.name: receipt.sidecars})

    @property
    def parameters(self) -> EraseParameters:
        """Parameters that all entries of the erase have."""
        features = tuple(self.plan.features)
        return EraseParameters(erasure=self.erasure, features=features, request=self.request)

    def _make_task(self, version: StoredVersion, erasure: ShardErasure) -> RemoveRowsTask:
        shard = erasure.shard
        base = self._find_base(erasure)
        snapshot = version.latest()
        records: Records = open_shard_file(snapshot, shard)
        if shard.base is not None and base is None:
            (records,) = list_records(snapshot.with_shards([shard]))
        target = (version.store, version.log.dataset, version.log.version)
        return RemoveRowsTask(*target, shard, records, erasure.rows, base, self.limits)

    def _find_base(self, erasure: ShardErasure) -> Base | None:
        """Return the base without the same rows; None if the head of its owner has none."""
        if erasure.shard.base is None:
            return None
        history = self.plan.history
        name = erasure.shard.base.name
        while name not in self.written and name in history.replaced:
            name = history.replaced[name]
        base = self.written.get(name)
        if base is None:
            live = history.get_owner(name).live
            base = next((shard for shard in live if shard.name == name), None)
        if base is None or base.records != erasure.shard.records - len(erasure.rows):
            return None
        return Base(base.name, base.content)

    def _validate_head(self, erasure: VersionErasure) -> None:
        version = self._get_version(erasure)
        version.refresh()
        if version.state.snapshot != erasure.head:
            raise ConflictError(
                f"{version.name}: snapshot {version.state.snapshot} was committed after the erase "
                f"was planned on snapshot {erasure.head}",
                hint=Hint.of("nothing was erased: erase again, which reuses written shards"),
                version=version.name,
                snapshot=version.state.snapshot,
            )

    def _commit(self, erasure: VersionErasure) -> Entry | None:
        version = self._get_version(erasure)
        new = {old.shard.name: self.written[old.shard.name] for old in erasure.shards}
        counts = {old.shard.name: len(old.rows) for old in erasure.shards}
        live = [
            interval.shard for interval in version.state.shard_history.at(version.state.snapshot)
        ]
        added, removed = diff_shards(version.state, [new.get(shard.name, shard) for shard in live])
        owners = self._list_base_owners(new.values())
        pin_inputs(version, owners)
        old = {shard.name: name for name, shard in new.items()}
        bases = [old[new_shard.shard.name] for new_shard in added]
        sources = {path for file in self.plan.quarantine for path in self._list_sources(file)}
        parameters = replace(
            self.parameters,
            bases=tuple(bases),
            records=tuple(counts[name] for name in bases),
            quarantine_sources=tuple(sorted(sources)),
            older=self._list_older_rows(erasure),
        )
        entry = version.commit(
            Derive(
                head=erasure.head,
                removed=removed,
                added=added,
                operation=ERASE,
                parameters=parameters.to_dict(),
                tombstones=erasure.tombstones,
                sidecars={
                    name: digest
                    for shard in new.values()
                    for name, digest in self.sidecars[shard.name].items()
                },
            )
        )
        for owner in owners:
            release_erased_pins(version, owner.version, utc_now())
        return entry

    def _list_sources(self, file: QuarantineFile) -> frozenset[str]:
        """Return the sources of the lines that are removed from a quarantine file."""
        return file.sources | (file.uncertain_sources if self.quarantine else frozenset())

    def _list_older_rows(self, erasure: VersionErasure) -> dict[str, list[tuple[int, int]]]:
        """Return the rows of condemned older shards, which no receipt names."""
        rows = self.plan.rows
        older = (shard.name for shard in erasure.older_shards if shard.name in rows)
        spans = {name: collapse_rows(rows[name]) for name in older}
        return spans if sum(map(len, spans.values())) <= _MAX_SPANS else {}

    def _list_base_owners(self, shards: Iterable[Shard]) -> list[DerivedFrom]:
        """Return the latest snapshots with the bases of new overlays."""
        owners = []
        for name in sorted({shard.base.owner for shard in shards if shard.base is not None}):
            owner = self.plan.history.versions[name].version
            owner.refresh()
            owners.append(DerivedFrom(owner, owner.latest()))
        return owners
