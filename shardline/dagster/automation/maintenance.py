"""Maintenance jobs: verify everything once a week, and vacuum."""

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg
from pydantic import Field

from shardline.api import Snapshot, Version
from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import MAX_DETAIL
from shardline.dagster.resources import ShardlineResource
from shardline.execution.threads import run_tasks
from shardline.hints import Hint
from shardline.log.model import INTEGRITY, Attestation
from shardline.operations.inspect_shard import inspect_shard
from shardline.operations.vacuum import DEFAULT_RETENTION, vacuum
from shardline.operations.verify_log import verify_log

WEEKLY = "0 3 * * 0"
_SHOWN = 20


class VacuumConfig(dg.Config):
    """Launchpad options of the vacuum job."""

    dry_run: bool = Field(
        default=True, description="Show what would be deleted, without deleting it."
    )
    retention_days: float = Field(
        default=DEFAULT_RETENTION / timedelta(days=1),
        ge=0,
        description="Keep snapshots that were latest or published within this number of days.",
    )


def build_verify_job(versions: Sequence[str]) -> dg.JobDefinition:
    """Return the job that reads every log and every retained shard."""

    @dg.op(description="Read every log entry and every byte of the retained snapshots.")
    def verify_all(context: dg.OpExecutionContext, shardline: ShardlineResource) -> None:
        problems = []
        for name in versions:
            version = shardline.version(name, run=context.run.run_id)
            if not version.exists or not version.state.snapshot:
                context.log.info("%s: no snapshot yet", name)
                continue
            rows = verify_and_attest(version)
            context.log.info("%s: %d problems", version.latest(), len(rows))
            problems += rows
        if problems:
            columns = [dg.TableColumn(name) for name in ("version", "where", "problem")]
            table = dg.MetadataValue.table(problems[:_SHOWN], dg.TableSchema(columns))
            raise dg.Failure(
                f"{len(problems)} problems, corrupt snapshots are unpublished. Hint: run "
                f"{Hint.run('repair', 'VERSION')} for each version in the table",
                metadata={keys.PROBLEMS: table},
                allow_retries=False,
            )

    @dg.job(
        name="verify_everything",
        description="Verify retained bytes against the log. Corrupt snapshots are unpublished.",
    )
    def verify_everything() -> None:
        verify_all()

    return verify_everything


def verify_and_attest(version: Version) -> list[dg.TableRecord]:
    """Read the log of a version and every retained shard. Attests that corrupt shards failed."""
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
    corrupt = [
        (report.shard.name, "; ".join(report.problems)) for report in reports if report.problems
    ]
    if corrupt:
        version.attest(
            Attestation(INTEGRITY, passed=False, shards=(name,), detail=problem[:MAX_DETAIL])
            for name, problem in corrupt
        )
    findings = [(f"entry {problem.entry}", problem.detail) for problem in entries] + corrupt
    return [
        dg.TableRecord({"version": version.name, "where": where, "problem": problem})
        for where, problem in findings
    ]


def _list_retained_snapshots(version: Version) -> list[Snapshot]:
    """Return the snapshots that vacuum never deletes: latest, published, tagged and pinned."""
    state = version.state
    holds = [hold.snapshot for hold in (*state.tags.values(), *state.pins.values())]
    numbers = {number for number in (state.snapshot, state.published, *holds) if number}
    return [version.snapshot(number) for number in sorted(numbers)]


def build_verify_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule that verifies once a week."""
    return dg.ScheduleDefinition(
        name="weekly_verify",
        job=job,
        cron_schedule=WEEKLY,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Verify everything once a week, to detect corruption in storage.",
    )


def build_vacuum_job(versions: Sequence[str]) -> dg.JobDefinition:
    """Return the job that deletes unreferenced files, if `dry_run` is off."""
    datasets = sorted({name.partition("/")[0] for name in versions})

    @dg.op(description="List files that nothing references. With dry_run off, delete them.")
    def vacuum_all(
        context: dg.OpExecutionContext, config: VacuumConfig, shardline: ShardlineResource
    ) -> None:
        for dataset in datasets:
            report = vacuum(
                shardline.root,
                dataset,
                retention=timedelta(days=config.retention_days),
                dry_run=config.dry_run,
            )
            size = sum(file.bytes for file in report.files)
            done = "to delete" if config.dry_run else "deleted"
            context.log.info("%s: %d files, %d bytes %s", dataset, len(report.files), size, done)
            for file in report.files[:_SHOWN]:
                context.log.info("%s: %s", file.name, file.reason)
        if config.dry_run:
            context.log.info("dry run: set dry_run to false in the launchpad to delete")

    @dg.job(
        name="vacuum", description="Delete files that nothing references. A dry run by default."
    )
    def vacuum_everything() -> None:
        vacuum_all()

    return vacuum_everything
