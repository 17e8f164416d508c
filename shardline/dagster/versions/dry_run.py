"""The job `dry_run`: shows what materializations would do.

The job is separate from the assets: a run of an asset that yields nothing skips the checks of the
asset, and skipped checks replace the results of its latest materialization.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.declaration import VersionDefs
from shardline.errors import (
    InvalidArgumentError,
    ShardlineError,
    SnapshotNotFoundError,
    VersionNotFoundError,
)
from shardline.hints import Hint

DRY_RUN = "dry_run"


class DryRunConfig(dg.Config):
    """Launchpad options of a dry run."""

    version: str = Field(
        default="", description="Plan this version, such as digits/v1. Empty: all versions."
    )
    options: dict[str, Any] = Field(
        default={},
        description="Launchpad options of that version's asset, such as files, limit or "
        "input_snapshot.",
    )


def build_dry_run_job(declared: Sequence[VersionDefs]) -> dg.JobDefinition:
    """Return the job for these versions."""
    versions = {version.name: version for version in declared}

    @dg.op(description="Plan a version or all versions. Log each plan and observe it on the asset.")
    def plan(
        context: dg.OpExecutionContext, config: DryRunConfig, shardline: ShardlineResource
    ) -> None:
        problems = []
        for version in select_versions(versions, config.version, config.options):
            try:
                planned = version.dry_run.run(shardline, config.options)
            except (SnapshotNotFoundError, VersionNotFoundError) as error:
                if config.version:
                    raise
                context.log.info("%s: not planned: %s", version.name, error.describe())
                continue
            except ShardlineError as error:
                if config.version:
                    raise
                problems.append(f"{version.name}: {error.describe()}")
                continue
            context.log.info("%s: %s", version.name, planned.summary)
            context.log_event(
                dg.AssetObservation(
                    asset_key=version.key,
                    description=f"Dry run: {planned.summary}",
                    metadata=planned.metadata,
                )
            )
        if problems:
            raise dg.Failure("\n".join(problems), allow_retries=False)

    @dg.job(
        name=DRY_RUN,
        description="Show what materializations would do. Nothing is changed.",
    )
    def dry_run() -> None:
        plan()

    return dry_run


def select_versions(
    versions: Mapping[str, VersionDefs], name: str, options: Mapping[str, Any]
) -> list[VersionDefs]:
    """Return the version with this name, all versions for an empty name."""
    if not name:
        if options:
            raise InvalidArgumentError(
                "options need a version: each version has its own",
                code="missing-argument",
                hint=Hint.of("set version, or leave out options"),
            )
        return list(versions.values())
    if name not in versions:
        raise InvalidArgumentError(
            f"unknown version {name!r}",
            code="version-not-found",
            hint=Hint.nearest(name, versions, "versions"),
        )
    return [versions[name]]
