"""The checks of a version, as one step: a snapshot that passes is published, else rejected.

Blocking in Dagster acts only within a run. So each outcome becomes an attestation in the log, and
readers get the latest published snapshot: in this run, in another run, and outside Dagster. The
check `published` runs last and reports the state of the log to Dagster.

| check              | blocks | a failure is                                                   |
|--------------------|--------|----------------------------------------------------------------|
| `integrity`        | yes    | an error                                                       |
| `schema`           | yes    | an error                                                       |
| `expectations`     | no     | an error or a warning; after an error, `published` also fails  |
| `drift`            | no     | a warning                                                      |
| `volume`           | no     | a warning                                                      |
| `sources_accepted` | no     | an error; a warning if all open sources are duplicates         |
| `published`        | yes    | an error                                                       |
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from pydantic import Field

from shardline.dagster.asset_names import get_asset_key, get_asset_name
from shardline.dagster.checks.check_outcome import EXPECTATIONS, CheckOutcome
from shardline.dagster.checks.check_run import DRIFT, VOLUME, CheckRun, create_failed_outcome
from shardline.dagster.checks.log_checks import PUBLISHED, SOURCES, check_sources
from shardline.dagster.instance_records import find_check_snapshot
from shardline.dagster.resources import ShardlineResource
from shardline.errors import ShardlineError
from shardline.log.model import INTEGRITY, SCHEMA, Checks

BLOCKING = (INTEGRITY, SCHEMA, PUBLISHED)
_DESCRIPTIONS = {
    INTEGRITY: "Every shard exists and matches its commit: size, record count, SHA-256 "
    "and checksums of all records. Shards that passed before are read again only with "
    "`reread`.",
    SCHEMA: "Every record fits the schema of the version.",
    EXPECTATIONS: "The Great Expectations suite of the version passes.",
    DRIFT: "New rows resemble those of the last published snapshot. Warns at most.",
    VOLUME: "The number of added rows is usual. Warns at most.",
    PUBLISHED: "Downstream may read the snapshot: every required check passed, "
    "and no shard that it depends on was removed or replaced.",
    SOURCES: "Every landing source was appended, replaced or dismissed. Warns about skipped "
    "duplicates. Blocks nothing.",
}


class CheckConfig(dg.Config):
    """Launchpad options of checks."""

    reread: bool = Field(
        default=False,
        description="Read every shard of the snapshot and every log entry, also those "
        "that were attested before.",
    )


@dataclass(frozen=True, slots=True)
class VersionChecks:
    """The checks of a version.

    Attributes:
        version: The version.
        suite: The file with its expectations.
        grows: Whether rows arrive in batches, which can be unusual.
        sample_rows: Limit of the rows that the check `drift` reads. Checks that gate read all rows.
    """

    version: str
    suite: Path | None = None
    grows: bool = True
    sample_rows: int = 200_000

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the checks in the order in which they run."""
        suites = (EXPECTATIONS,) if self.suite is not None else ()
        growing = (DRIFT, VOLUME, SOURCES) if self.grows else ()
        return (INTEGRITY, SCHEMA, *suites, *growing, PUBLISHED)

    @property
    def required(self) -> Checks:
        """Checks that the log requires before a snapshot is published."""
        return get_required_checks(self.names)

    def definition(self) -> dg.AssetChecksDefinition:
        """Return the checks as a Dagster definition."""
        key = get_asset_key(self.version)

        @dg.multi_asset_check(
            name=f"{get_asset_name(self.version)}_checks",
            description=f"Check a snapshot of {self.version}. Publish or reject it.",
            specs=[
                dg.AssetCheckSpec(
                    name, asset=key, blocking=name in BLOCKING, description=_DESCRIPTIONS[name]
                )
                for name in self.names
            ],
            can_subset=True,
        )
        def checks(
            context: dg.AssetCheckExecutionContext,
            config: CheckConfig,
            shardline: ShardlineResource,
        ) -> Iterator[dg.AssetCheckResult]:
            selected = {check.name for check in context.selected_asset_check_keys}
            for name, outcome in self._run_checks(context, config, shardline, selected):
                context.log.info("%s: %s", name, outcome.description)
                yield outcome.result(key, name)

        return checks

    def _run_checks(
        self,
        context: dg.AssetCheckExecutionContext,
        config: CheckConfig,
        shardline: ShardlineResource,
        selected: set[str],
    ) -> Iterator[tuple[str, CheckOutcome]]:
        """Yield the outcome of each selected check, in order."""
        names = [name for name in self.names if name in selected]
        run_id = context.run.run_id
        try:
            version = shardline.version(self.version, run=run_id)
            snapshot = find_check_snapshot(
                version, context.instance, run_id, get_asset_key(self.version)
            )
        except (ShardlineError, OSError) as error:
            # Without a readable log, every check fails with the same reason.
            for name in names:
                yield (
                    name,
                    create_failed_outcome(name, f"{self.version} cannot be opened", error),
                )
            return
        if snapshot is None:
            description = f"{self.version}: no snapshot yet"
            for name in names:
                outcome = CheckOutcome(passed=name != PUBLISHED, description=description)
                yield name, check_sources(version) if name == SOURCES else outcome
            return
        run = CheckRun(
            version,
            snapshot,
            self.suite,
            Path(shardline.reports),
            self.sample_rows,
            names,
            self.required,
            config.reread,
            context.log.error,
        )
        for name in names:
            yield name, run.run(name)
        run.finish()


def get_required_checks(names: Collection[str]) -> Checks:
    """Return the checks that the log requires before a snapshot is published."""
    return Checks((INTEGRITY, SCHEMA), (EXPECTATIONS,) if EXPECTATIONS in names else ())
