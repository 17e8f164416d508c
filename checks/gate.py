"""The checks of a version, as one step: what passes is published, what fails is rejected.

Blocking in Dagster acts within one run only. So every verdict goes into the log as an attestation,
and readers take the newest published snapshot: in this run, in another one, and outside Dagster.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from checks.examination import DRIFT, VOLUME, Examination
from checks.judged import EXPECTATIONS
from checks.shard_checks import set_aside_by
from checks.sources import SOURCES, sources_verdict
from checks.subject import subject
from checks.verdict import Verdict
from dagster_project.automation import published_tag
from dagster_project.naming import asset_key, asset_name
from dagster_project.resources import ShardlineResource
from shardline.log.facts import Checks
from shardline.operations.check import INTEGRITY, SCHEMA

_ABOUT = {
    INTEGRITY: "Every shard is there and is the file that was committed: length, count, sha256, "
    "and both checksums of every record.",
    SCHEMA: "Every record fits the version's schema.",
    EXPECTATIONS: "The Great Expectations suite of the version holds on its columns.",
    DRIFT: "The new rows look like those of the last published snapshot. A warning at most.",
    VOLUME: "About as many rows came as usual. A warning at most.",
    SOURCES: "Every source that arrived is in the version, was replaced or was dismissed. Skipped "
    "duplicates are a warning. Blocks nothing.",
}
_REPORTING = frozenset({DRIFT, VOLUME, SOURCES})


@dataclass(frozen=True, slots=True)
class Gate:
    """Which checks a version has. `suite` is its file of expectations.

    `grows` says that rows come to it batch by batch, so that a batch can be unusual. `sample_rows`
    bounds what the drift check reads; no blocking check looks at a sample.
    """

    version: str
    suite: Path | None = None
    grows: bool = True
    sample_rows: int = 200_000

    @property
    def names(self) -> tuple[str, ...]:
        """The checks in the order in which they run."""
        suites = (EXPECTATIONS,) if self.suite is not None else ()
        return (INTEGRITY, SCHEMA, *suites, *((DRIFT, VOLUME, SOURCES) if self.grows else ()))

    @property
    def required(self) -> Checks:
        """What the log has to say before a snapshot is published."""
        return Checks((INTEGRITY, SCHEMA), (EXPECTATIONS,) if self.suite is not None else ())

    def definition(self) -> dg.AssetChecksDefinition:
        """The checks as Dagster knows them."""
        key = asset_key(self.version)

        @dg.multi_asset_check(
            name=f"{asset_name(self.version)}_checks",
            description=f"Check a snapshot of {self.version}, and publish or reject it.",
            specs=[
                dg.AssetCheckSpec(
                    name, asset=key, blocking=name not in _REPORTING, description=_ABOUT[name]
                )
                for name in self.names
            ],
            can_subset=True,
        )
        def checks(
            context: dg.AssetCheckExecutionContext, shardline: ShardlineResource
        ) -> Iterator[dg.AssetCheckResult]:
            asked = {one.name for one in context.selected_asset_check_keys}
            run_id = context.run.run_id
            version = shardline.version(self.version, run=run_id)
            snapshot = subject(version, context.instance, run_id, key)
            if snapshot is None:
                nothing = f"{self.version} has no snapshot yet: nothing to check"
                for name in sorted(asked):
                    verdict = Verdict(passed=True, description=nothing)
                    verdict = sources_verdict(version) if name == SOURCES else verdict
                    yield verdict.result(key, name)
                return
            examination = Examination(
                version,
                snapshot,
                self.suite,
                set_aside_by(version, run_id),
                Path(shardline.reports),
                self.sample_rows,
                run_id,
                context.log.error,
            )
            for name in self.names:
                if name in asked:
                    verdict = examination.verdict(name)
                    context.log.info("%s: %s", name, verdict.description)
                    yield verdict.result(key, name)
            examination.finish()
            if examination.is_published:
                context.instance.add_run_tags(run_id, {published_tag(self.version): "yes"})

        return checks
