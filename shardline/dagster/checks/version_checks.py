"""The checks of a version, as one step: what passes is published, what fails is rejected.

Blocking in Dagster acts within one run only. So every result goes into the log as an attestation,
and readers take the newest published snapshot: in this run, in another one, and outside Dagster.
The check `published` runs last and brings what the log says back to Dagster.

| check          | blocks | a failure                                                           |
|----------------|--------|---------------------------------------------------------------------|
| `integrity`    | yes    | is an error                                                         |
| `schema`       | yes    | is an error                                                         |
| `expectations` | no     | is an error or a warning; after an error, `published` fails as well |
| `drift`        | no     | is a warning                                                        |
| `volume`       | no     | is a warning                                                        |
| `sources_accepted` | no | is an error; of duplicates alone, a warning                         |
| `published`    | yes    | is an error                                                         |
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from pydantic import Field

from shardline.dagster.asset_names import get_asset_key, get_asset_name
from shardline.dagster.checks.check_outcome import EXPECTATIONS, CheckOutcome
from shardline.dagster.checks.check_run import DRIFT, VOLUME, CheckRun, create_failed_outcome
from shardline.dagster.checks.log_checks import SOURCES, check_sources
from shardline.dagster.checks.publication import PUBLISHED
from shardline.dagster.instance_records import find_check_snapshot
from shardline.dagster.resources import ShardlineResource
from shardline.errors import ShardlineError
from shardline.log.model import INTEGRITY, SCHEMA, Checks

BLOCKING = (INTEGRITY, SCHEMA, PUBLISHED)
_DESCRIPTIONS = {
    INTEGRITY: "Every shard is there and is the file that was committed: length, count, sha256, "
    "and both checksums of every record. Shards that passed before are not read again unless "
    "`reread` is set.",
    SCHEMA: "Every record fits the version's schema.",
    EXPECTATIONS: "The Great Expectations suite of the version holds on its columns.",
    DRIFT: "The new rows look like those of the last published snapshot. A warning at most.",
    VOLUME: "About as many rows came as usual. A warning at most.",
    PUBLISHED: "The log says that downstream may read the snapshot: every required check passed, "
    "and no shard that it depends on was removed or replaced.",
    SOURCES: "Every source that arrived is in the version, was replaced or was dismissed. Skipped "
    "duplicates are a warning. Blocks nothing.",
}


class CheckConfig(dg.Config):
    """What can be set when checks are executed by hand."""

    reread: bool = Field(
        default=False,
        description="Read every shard of the snapshot and every entry of the log, also what was "
        "attested earlier.",
    )


@dataclass(frozen=True, slots=True)
class VersionChecks:
    """Which checks a version has. `suite` is its file of expectations.

    `grows` says that rows come to it batch by batch, so that a batch can be unusual. `sample_rows`
    bounds what the drift check reads; no check that gates looks at a sample.
    """

    version: str
    suite: Path | None = None
    grows: bool = True
    sample_rows: int = 200_000

    @property
    def names(self) -> tuple[str, ...]:
        """The checks in the order in which they run; `published` is the last."""
        suites = (EXPECTATIONS,) if self.suite is not None else ()
        growing = (DRIFT, VOLUME, SOURCES) if self.grows else ()
        return (INTEGRITY, SCHEMA, *suites, *growing, PUBLISHED)

    @property
    def required(self) -> Checks:
        """What the log has to say before a snapshot is published."""
        return required_checks(self.names)

    def definition(self) -> dg.AssetChecksDefinition:
        """The checks as Dagster knows them."""
        key = get_asset_key(self.version)

        @dg.multi_asset_check(
            name=f"{get_asset_name(self.version)}_checks",
            description=f"Check a snapshot of {self.version}, and publish or reject it.",
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
            for name, verdict in self._verdicts(context, config, shardline, selected):
                context.log.info("%s: %s", name, verdict.description)
                yield verdict.result(key, name)

        return checks

    def _verdicts(
        self,
        context: dg.AssetCheckExecutionContext,
        config: CheckConfig,
        shardline: ShardlineResource,
        selected: set[str],
    ) -> Iterator[tuple[str, CheckOutcome]]:
        """Yield the verdict of each selected check, in order."""
        names = [name for name in self.names if name in selected]
        run_id = context.run.run_id
        try:
            version = shardline.version(self.version, run=run_id)
            snapshot = find_check_snapshot(
                version, context.instance, run_id, get_asset_key(self.version)
            )
        except (ShardlineError, OSError) as error:
            # Without a log nothing is known to be sound: every check fails, and says why.
            for name in names:
                yield (
                    name,
                    create_failed_outcome(name, f"{self.version} could not be opened", error),
                )
            return
        if snapshot is None:
            nothing = f"{self.version} has no snapshot yet"
            for name in names:
                verdict = CheckOutcome(passed=name != PUBLISHED, description=nothing)
                yield name, check_sources(version) if name == SOURCES else verdict
            return
        examination = CheckRun(
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
            yield name, examination.verdict(name)
        examination.finish()


def required_checks(names: Collection[str]) -> Checks:
    """Return which of a version's checks the log requires before a snapshot is published."""
    return Checks((INTEGRITY, SCHEMA), (EXPECTATIONS,) if EXPECTATIONS in names else ())
