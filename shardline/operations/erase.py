"""Erase: records go from every version of a dataset, and cannot come back.

Each shard that holds them is written once more without them, in its place; the old one is given up
for good in the same entry, and so are the shards of older snapshots that hold them. Nobody can
restore, tag, pin or build on those any more, and vacuum deletes their files. What lies beyond the
dataset's own shards is told, with what to do about it.
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
from shardline.operations.erasure.erase_task import EraseTask, make_erased_shard
from shardline.operations.erasure.quarantine import strike_lines
from shardline.operations.partial_commit import format_entry_label, report_partial_commit
from shardline.provenance.dependencies import pin_inputs, release_erased_pins
from shardline.provenance.log_index import ERASE
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

_ROUNDS = 8
_MOST_SPANS = 4096
"""So many spans of rows of older shards an entry tells, and none if there are more."""

__all__ = ["ErasePlan", "EraseReport", "ErasedVersion", "erase", "execute_erase_plan", "plan_erase"]


@dataclass(frozen=True, slots=True)
class ErasedVersion:
    """What was done in one version: its entry, and the shards that were written."""

    plan: VersionErasure
    entry: Entry
    made: tuple[Shard, ...]

    @property
    def snapshot(self) -> int | None:
        """The snapshot that it made; None if its newest one held none of the records."""
        return self.entry.snapshot if self.entry.changes_data else None


@dataclass(frozen=True, slots=True)
class EraseReport:
    """What an erase did. `erasure` is what its entries have in common.

    `lines` were struck out of quarantine files. `holders` hold the records still, or may. `checks`
    are what checking the new snapshots found, by version; a snapshot that passes is published.
    """

    plan: ErasePlan
    erasure: str
    versions: tuple[ErasedVersion, ...] = ()
    lines: int = 0
    holders: tuple[ResidualCopy, ...] = ()
    checks: Mapping[str, CheckReport] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is left to do, and no check failed on what is left."""
        return not self.open and all(check.ok for check in self.checks.values())

    @property
    def open(self) -> list[ResidualCopy]:
        """Those about which there is something to do before the records count as gone."""
        return [one for one in self.holders if one.open]

    @property
    def records(self) -> int:
        """How many records went from the newest snapshots."""
        return sum(one.plan.records for one in self.versions)


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
    """Erase records from every version of a dataset; see `plan_erase` for which.

    `request` is told in the log for people: name no one there. With `quarantine`, lines of
    quarantine files of which it cannot be told whether they are meant go as well. The new snapshots
    are checked, and published by that; without `check` they wait for `check_version`. Run it again
    if it was stopped: what was written is used, and what was done is not done twice. Raises
    ConflictError if someone else committed to a version meanwhile: versions before it are done
    then, and asking again does the rest.
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
    """Do what was planned: write all shards, then commit version by version; see `erase`."""
    executor = executor or ThreadExecutor()
    work = _EraseRun(plan, request, secrets.token_hex(16), quarantine, limits, executor, progress)
    unchecked = plan.unchecked
    done: list[ErasedVersion] = []
    committed: list[str] = []
    with report_partial_commit("erase", committed):
        for one in work.done():
            done.append(one)
            committed.append(format_entry_label(one.entry))
        lines = strike_lines(plan.history, plan.quarantine, work.parameters, doubtful=quarantine)
    holders = [one for one in plan.holders if not quarantine or one.kind != "quarantine"]
    if done:
        holders += _erase_late_commits(work, done)
    checks = _check_versions(work, done, unchecked) if check else {}
    return EraseReport(plan, work.erasure, tuple(done), lines, tuple(holders), checks)


def _check_versions(
    work: _EraseRun, done: Iterable[ErasedVersion], unchecked: Mapping[str, int]
) -> dict[str, CheckReport]:
    """Check the newest snapshot that the erase made of each version, so that it is published.

    Those `unchecked` that a stopped erase made are checked as well.
    """
    erased = {one.plan.version: one.snapshot for one in done if one.snapshot is not None}
    made = {**unchecked, **erased}
    # An overlay needs what its base passed.
    ordered = [one.name for one in sort_bases_first(work.plan.history) if one.name in made]
    reports = {}
    for name in ordered:
        snapshot = made[name]
        version = StoredVersion(work.plan.history.store, name)
        task = CheckTask.of(version, version.snapshot(snapshot), work.limits)
        (reports[name],) = work.executor.run(run_check, [task], work.progress)
    return reports


def _erase_late_commits(work: _EraseRun, done: list[ErasedVersion]) -> tuple[ResidualCopy, ...]:
    """Erase also what others made of the old shards while it was planned, and say who came.

    Whoever commits such a thing behind our entries sees them, and takes it back itself.
    """
    for _ in range(_ROUNDS):
        gone: dict[str, list[str]] = {}
        for one in done:
            gone.setdefault(one.plan.version.split("/")[1], []).extend(one.plan.gone)
        late = plan_late_erase(work.plan, gone)
        if not late.versions:
            return late.holders
        with suppress(ConflictError):
            done += replace(work, plan=late, made={}, sidecars={}).done()
    raise ConflictError(
        f"{work.plan.dataset}: other writers derived new shards from the erased ones meanwhile",
        hint=Hint.of("the plan is done: erase again when the other writers have finished"),
    )


@dataclass(frozen=True)
class _EraseRun:
    """An erase that is being done. `made` are new shards by the names of the old ones.

    `sidecars` are the digests of their sidecars, by the names of the new ones.
    """

    plan: ErasePlan
    request: str
    erasure: str
    quarantine: bool
    limits: Limits
    executor: Executor
    progress: ProgressListener | None
    made: dict[str, Shard] = field(default_factory=dict)
    sidecars: Json = field(default_factory=dict)

    def done(self) -> Iterator[ErasedVersion]:
        """Write everything, and then commit: bases before what lies beside them."""
        for one in self.plan.versions:
            self._make(one)
        for one in self.plan.versions:
            self._refuse_moved(one)
        for one in self.plan.versions:
            entry = self._commit(one)
            if entry is not None:
                shards = tuple(self.made[part.shard.name] for part in one.shards)
                yield ErasedVersion(one, entry, shards)

    def _version(self, one: VersionErasure) -> StoredVersion:
        return self.plan.history.versions[one.version.split("/")[1]].version

    def _make(self, one: VersionErasure) -> None:
        version = self._version(one)
        tasks = [self._task(version, part) for part in one.shards]
        receipts = make_fresh_shards(
            version, tasks, make_erased_shard, self.executor, self.progress
        )
        for part, receipt in zip(one.shards, receipts, strict=True):
            shard = receipt.shard
            if shard is None or shard.records != part.shard.records - len(part.rows):
                raise LogError(
                    f"{version.name}: shard {part.shard.name} differs from the plan",
                    code="plan-mismatch",
                    hint=Hint.of("nothing was committed: erase again"),
                    path=version.shard_name(part.shard),
                    version=version.name,
                )
            self.made[part.shard.name] = shard
            self.sidecars.update({shard.name: receipt.sidecars})

    @property
    def parameters(self) -> EraseParameters:
        """Parameters that all entries of the erase have."""
        features = tuple(self.plan.features)
        return EraseParameters(erasure=self.erasure, features=features, request=self.request)

    def _task(self, version: StoredVersion, part: ShardErasure) -> EraseTask:
        shard = part.shard
        base = self._base(part)
        snapshot = version.latest()
        records: Records = open_shard_file(snapshot, shard)
        if shard.base is not None and base is None:
            alone = replace(snapshot, list_shards=lambda: (shard,))
            (records,) = list_records(alone)
        place = (version.store, version.log.dataset, version.log.version)
        return EraseTask(*place, shard, records, part.rows, base, self.limits)

    def _base(self, part: ShardErasure) -> Base | None:
        """The base of an overlay without the same rows; None if its owner's head has none."""
        told = part.shard.base
        if told is None:
            return None
        history = self.plan.history
        name = told.name
        while name not in self.made and name in history.replaced:
            name = history.replaced[name]
        found = self.made.get(name)
        if found is None:
            found = next((one for one in history.owner(name).live if one.name == name), None)
        if found is None or found.records != part.shard.records - len(part.rows):
            return None
        return Base(found.name, found.content)

    def _refuse_moved(self, one: VersionErasure) -> None:
        version = self._version(one)
        version.refresh()
        if version.state.snapshot != one.head:
            raise ConflictError(
                f"{version.name}: snapshot {version.state.snapshot} was committed after the erase "
                f"was planned on snapshot {one.head}",
                hint=Hint.of("nothing was erased: erase again, which reuses written shards"),
                version=version.name,
                snapshot=version.state.snapshot,
            )

    def _commit(self, one: VersionErasure) -> Entry | None:
        version = self._version(one)
        new = {part.shard.name: self.made[part.shard.name] for part in one.shards}
        counts = {part.shard.name: len(part.rows) for part in one.shards}
        live = [stay.shard for stay in version.state.stays.at(version.state.snapshot)]
        added, removed = diff_shards(version.state, [new.get(shard.name, shard) for shard in live])
        bases = self._bases(new.values())
        pin_inputs(version, bases)
        old = {shard.name: name for name, shard in new.items()}
        of = [old[place.shard.name] for place in added]
        refused = {source for file in self.plan.quarantine for source in self._of(file)}
        parameters = replace(
            self.parameters,
            bases=tuple(of),
            records=tuple(counts[name] for name in of),
            quarantine_sources=tuple(sorted(refused)),
            older=self._older(one),
        )
        entry = version.commit(
            Derive(
                head=one.head,
                removed=removed,
                added=added,
                operation=ERASE,
                parameters=parameters.to_dict(),
                condemned=one.gone,
                sidecars={
                    name: digest
                    for shard in new.values()
                    for name, digest in self.sidecars[shard.name].items()
                },
            )
        )
        for base in bases:
            release_erased_pins(version, base.version, utc_now())
        return entry

    def _of(self, file: QuarantineFile) -> frozenset[str]:
        """The sources of the lines that are struck out of a quarantine file."""
        return file.sources | (file.doubtful_sources if self.quarantine else frozenset())

    def _older(self, one: VersionErasure) -> dict[str, list[tuple[int, int]]]:
        """The rows of shards that are given up, which no receipt will tell."""
        rows = self.plan.rows
        spans = {s.name: collapse_rows(rows[s.name]) for s in one.given_up if s.name in rows}
        few = sum(map(len, spans.values())) <= _MOST_SPANS
        return {name: list(some) for name, some in spans.items() if few}

    def _bases(self, shards: Iterable[Shard]) -> list[DerivedFrom]:
        """The newest snapshots that hold the bases of new overlays."""
        owners = sorted({shard.base.owner for shard in shards if shard.base is not None})
        found = []
        for owner in owners:
            base = self.plan.history.versions[owner].version
            base.refresh()
            found.append(DerivedFrom(base, base.latest()))
        return found
