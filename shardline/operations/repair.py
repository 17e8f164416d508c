"""Repair: make a shard anew that is no longer the file that was committed.

It is made of the shards that it was rebuilt from, of its source, or of what was rebuilt from it,
if these are still there and the same. If not, what is intact of it can be kept, which gives up the
rest: that must be asked for. The new shard takes the old one's place, as a new entry that says how
it was made and what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardline.errors import LogError, WrongShardError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Command, Hint, Option
from shardline.log.changes import Replace
from shardline.log.model import DERIVING_OPERATIONS, INTEGRITY, Attestation
from shardline.log.parameters import RepairParameters
from shardline.log.publication import is_in
from shardline.log.version import refuse_no_version
from shardline.operations.check import MAX_DETAIL
from shardline.operations.inspect_shard import inspect_shard
from shardline.operations.repair_task import RepairTask, count_lost_records, repair_shard
from shardline.operations.shard_origin import (
    find_copied_pieces,
    find_input_pieces,
    find_source_rows,
)
from shardline.operations.shard_writer import find_fresh_attempt
from shardline.provenance.commands import get_repair_command
from shardline.provenance.log_index import find_added_shard
from shardline.readers.shard_file import open_shard_file, rebuild_index
from shardline.sidecars.receipt import list_quarantined_rows
from shardline.tfrecord.hashing import hash_object
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.version import StoredVersion
    from shardline.operations.inspect_shard import ShardReport
    from shardline.operations.repair_task import RepairMethod
    from shardline.sidecars.receipt import Receipt
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class ShardRepair:
    """A damaged shard, and how it was made anew. `made` is None if no record of it was left.

    If `entry` is None, nothing was done: in a dry run `how` is then what would be tried first, and
    else records would have been lost. `lost` is how many were, or would be. `again` is the command
    that makes it anew if a repair cannot, because it was derived.
    """

    old: Shard
    how: RepairMethod
    made: Shard | None = None
    entry: Entry | None = None
    quarantine: str | None = None
    lost: int = 0
    again: Command | None = None

    @property
    def changes(self) -> bool:
        """Whether the new shard has other records than the old one should have had."""
        return self.made is None or self.made.records != self.old.records


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair found and did: how many shards were read, and which were damaged.

    `indexes` are the intact shards whose index was wrong, and written again.
    """

    version: str
    read: int
    repaired: tuple[ShardRepair, ...] = ()
    dry_run: bool = False
    indexes: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[ShardRepair, ...]:
        """Those that a repair does not make anew with all their records, and did not touch."""
        return tuple(
            one for one in self.repaired if one.entry is None and (one.lost or one.how == "again")
        )


def repair(
    version: StoredVersion,
    *,
    shards: Iterable[str] | None = None,
    allow_data_loss: bool = False,
    dry_run: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> RepairReport:
    """Read every shard of the newest snapshot, or those named, and make the bad ones anew.

    That they are bad is written to the log first: older snapshots go on holding them, and what lies
    beside them. Each repaired shard is an entry of its own. One of which records would be lost is
    left as it is, and the report says so; only with `allow_data_loss` it is made of what is intact.
    A wrong index of an intact shard is written again. With `dry_run` nothing is made. Raises
    WrongShardError if there is one that cannot be told from another file, and of which nothing is
    left to make it anew; the others are repaired before.
    """
    refuse_no_version(version=version)
    executor = executor or ThreadExecutor()
    version.refresh()
    found = _choose_shards(version, shards)
    tasks = [_InspectShardTask(version.store, version.shard_name(s), s, limits) for s in found]
    reports = list(executor.run(_inspect_task, tasks, progress))
    repaired: list[ShardRepair] = []
    made: list[tuple[ShardReport, RepairMethod, Receipt]] = []
    hopeless: list[WrongShardError] = []
    indexes = tuple(report.shard.name for report in reports if report.index_problem)
    for report in reports:
        shard = report.shard
        if report.index_problem and not dry_run:
            rebuild_index(open_shard_file(version.latest(), shard), limits)
        if not report.problems:
            continue
        if shard.base is not None or shard.virtual:
            repaired.append(ShardRepair(shard, "again", again=get_repair_command(version, [shard])))
            continue
        try:
            task = replace(
                _plan_repair(version, report, limits),
                allow_data_loss=allow_data_loss,
                dry_run=dry_run,
            )
            (mended,) = executor.run(repair_shard, [task], progress)
        except WrongShardError as error:
            hopeless.append(error)
            continue
        if mended.receipt is None:
            again = get_repair_command(version, [shard]) if mended.how == "again" else None
            repaired.append(ShardRepair(shard, mended.how, lost=mended.lost, again=again))
        else:
            made.append((report, mended.how, mended.receipt))
    _record_corruption(version, [report for report, _, _ in made])
    repaired += [_commit_repair(version, report.shard, how, new) for report, how, new in made]
    if hopeless:
        raise _join_errors(hopeless)
    return RepairReport(version.name, len(found), tuple(repaired), dry_run, indexes)


def _join_errors(errors: Sequence[WrongShardError]) -> WrongShardError:
    """Join the errors of several shards; the hint and fields are those of the first."""
    first = errors[0]
    return WrongShardError(
        "\n".join(error.message for error in errors),
        code=first.code,
        hint=first.hint,
        path=first.path,
        version=first.version,
    )


def _choose_shards(version: StoredVersion, names: Iterable[str] | None) -> list[Shard]:
    """The shards of the newest snapshot, or those of them that are named."""
    there = version.latest().shards
    if names is None:
        return list(there)
    wanted = set(names)
    unknown = wanted - {shard.name for shard in there}
    if unknown:
        raise LogError(
            f"{version.latest()}: no shard {min(unknown)}",
            code="shard-not-found",
            path=min(unknown),
            version=version.name,
            snapshot=version.latest().number,
        )
    return [shard for shard in there if shard.name in wanted]


@dataclass(frozen=True, slots=True)
class _InspectShardTask:
    """A shard to be read."""

    store: Store
    name: str
    shard: Shard
    limits: Limits

    step = "reading"

    @property
    def label(self) -> str:
        return self.shard.name

    @property
    def size(self) -> int:
        return self.shard.bytes


def _inspect_task(task: _InspectShardTask, running: TaskContext) -> ShardReport:
    return inspect_shard(
        task.store,
        task.name,
        task.shard,
        limits=task.limits,
        index=True,
        progress=lambda done: running.report(done, 0),
    )


def _plan_repair(version: StoredVersion, report: ShardReport, limits: Limits) -> RepairTask:
    shard = report.shard
    found = hash_object(version.store, report.name)
    if found == shard.sha256:
        raise WrongShardError(
            f"{shard.name}: the committed file is invalid: {report.problems[0]}",
            code="committed-corrupt",
            hint=Hint.of(
                "if a record may be that large, raise ",
                Option("max_record"),
                ", else reject the snapshot that added the shard",
            ),
            path=report.name,
            version=version.name,
        )
    landed, first = find_added_shard(version, shard)
    pieces = find_input_pieces(version, shard, limits)
    rows = find_source_rows(version, shard, limits)
    whole = pieces is not None or rows is not None
    task = RepairTask(
        version.store,
        version.log.dataset,
        version.log.version,
        report.name,
        shard,
        first,
        found,
        report.read,
        version.schema,
        pieces,
        rows,
        None if whole else find_copied_pieces(version, {shard.name, first.name}, limits),
        limits,
        derived=landed.operation in DERIVING_OPERATIONS,
    )
    return replace(task, attempt=find_fresh_attempt(version.state, task.plans, task.attempt))


def _record_corruption(version: StoredVersion, reports: Sequence[ShardReport]) -> None:
    """Say in the log that shards are damaged, as far as that is not said yet."""
    stays = version.state.stays.named([report.shard.name for report in reports])
    told = [
        Attestation(
            INTEGRITY,
            passed=False,
            shards=(report.shard.name,),
            detail="; ".join(report.problems)[:MAX_DETAIL],
        )
        for report in reports
        if not is_in(version, stays[report.shard.name].failed, INTEGRITY)
    ]
    if told:
        version.attest(told)


def _commit_repair(
    version: StoredVersion, shard: Shard, how: RepairMethod, receipt: Receipt
) -> ShardRepair:
    """Put the new shard in the place of the old one."""
    lost = count_lost_records(shard, receipt.shard)
    parameters = RepairParameters(
        shard=shard.name,
        method=how,
        lost_records=lost,
        quarantine=list_quarantined_rows([receipt]),
    )
    added = [] if receipt.shard is None else [receipt.shard]
    change = Replace(
        removed=[shard.name],
        added=added,
        operation="repair",
        parameters=parameters.to_dict(),
        sidecars=receipt.sidecars,
    )
    entry = version.commit(change)
    return ShardRepair(shard, how, receipt.shard, entry, receipt.quarantine, lost)
