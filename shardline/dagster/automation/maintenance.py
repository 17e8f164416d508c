"""Upkeep: every byte of everything read once a week, and vacuum, which asks before it deletes."""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
from pydantic import Field

from shardline.api import Snapshot, Version
from shardline.dagster.resources import ShardlineResource
from shardline.execution.threads import run_tasks
from shardline.hints import Hint
from shardline.log.model import INTEGRITY, Attestation
from shardline.operations.inspect_shard import inspect_shard
from shardline.operations.vacuum import DEFAULT_RETENTION, vacuum
from shardline.operations.verify_log import verify_log

WEEKLY = "0 3 * * 0"
_SHOWN = 20
_MAX_DETAIL = 500


class VacuumConfig(dg.Config):
    """What can be set in the launchpad."""

    dry_run: bool = Field(default=True, description="Only tell what would be deleted.")
    keep_days: float = Field(
        default=DEFAULT_RETENTION / timedelta(days=1),
        ge=0,
        description="Keep every snapshot that was the newest or published in so many days.",
    )


def build_verify_job(versions: Sequence[str]) -> dg.JobDefinition:
    """The job that reads everything: the logs, and every shard that is kept."""

    @dg.op(
        description="Read every entry of the logs and every byte of the snapshots that are kept."
    )
    def verify_all(context: dg.OpExecutionContext, shardline: ShardlineResource) -> None:
        problems = []
        for name in versions:
            version = shardline.version(name, run=context.run.run_id)
            if not version.exists or not version.state.snapshot:
                context.log.info("%s has no snapshot yet", name)
                continue
            found = verify_and_attest(version)
            context.log.info("%s: %d problems", version.latest(), len(found))
            problems += found
        if problems:
            columns = [dg.TableColumn(name) for name in ("version", "where", "problem")]
            table = dg.MetadataValue.table(problems[:_SHOWN], dg.TableSchema(columns))
            raise dg.Failure(
                f"{len(problems)} problems: corrupt snapshots are unpublished. Hint: "
                f"{Hint.run('repair', 'VERSION')} for each version in the table",
                metadata={"problems": table},
                allow_retries=False,
            )

    @dg.job(
        name="verify_everything",
        description="Every byte of everything, as it was committed? What is not is unpublished.",
    )
    def verify_everything() -> None:
        verify_all()

    return verify_everything


def verify_and_attest(version: Version) -> list[dg.TableRecord]:
    """Read a version's log and every shard that it keeps; what is damaged is said to be so."""
    entries = verify_log(version.log).problems
    shards = {
        shard.name: shard
        for snapshot in _list_retained_snapshots(version)
        for shard in snapshot.shards
    }
    reports = run_tasks(
        lambda shard: inspect_shard(version.store, version.shard_name(shard), shard),
        list(shards.values()),
    )
    bad = [(one.shard.name, "; ".join(one.problems)) for one in reports if one.problems]
    if bad:
        version.attest(
            Attestation(INTEGRITY, passed=False, shards=(name,), detail=problem[:_MAX_DETAIL])
            for name, problem in bad
        )
    found = [(f"entry {problem.entry}", problem.detail) for problem in entries] + bad
    return [
        dg.TableRecord({"version": version.name, "where": where, "problem": problem})
        for where, problem in found
    ]


def _list_retained_snapshots(version: Version) -> list[Snapshot]:
    """The snapshots that vacuum never takes: the newest, the published one, and those held."""
    state = version.state
    holds = [hold.snapshot for hold in (*state.tags.values(), *state.pins.values())]
    numbers = {number for number in (state.snapshot, state.published, *holds) if number}
    return [version.snapshot(number) for number in sorted(numbers)]


def build_verify_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Once a week."""
    return dg.ScheduleDefinition(
        name="weekly_verify",
        job=job,
        cron_schedule=WEEKLY,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Reads everything once a week: storage forgets silently.",
    )


def build_vacuum_job(versions: Sequence[str]) -> dg.JobDefinition:
    """The job that deletes what nothing needs any more; only if it is told to."""
    datasets = sorted({name.partition("/")[0] for name in versions})

    @dg.op(description="Tell which files nothing needs any more; with dry_run off, delete them.")
    def vacuum_all(
        context: dg.OpExecutionContext, config: VacuumConfig, shardline: ShardlineResource
    ) -> None:
        for dataset in datasets:
            report = vacuum(
                shardline.root,
                dataset,
                keep=timedelta(days=config.keep_days),
                delete=not config.dry_run,
            )
            size = sum(file.bytes for file in report.files)
            done = "would be deleted" if config.dry_run else "deleted"
            context.log.info("%s: %d files, %d bytes %s", dataset, len(report.files), size, done)
            for file in report.files[:_SHOWN]:
                context.log.info("%s: %s", file.name, file.why)
        if config.dry_run:
            context.log.info("a dry run: to delete, set dry_run to false in the launchpad")

    @dg.job(name="vacuum", description="Delete what nothing needs; a dry run unless told.")
    def vacuum_everything() -> None:
        vacuum_all()

    return vacuum_everything
