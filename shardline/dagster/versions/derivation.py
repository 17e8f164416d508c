"""What versions that are made of others have in common: what they read, and what is told of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster.asset_names import get_asset_key, group_name
from shardline.dagster.automation.conditions import build_follow_condition
from shardline.dagster.checks.version_checks import VersionChecks
from shardline.dagster.versions.materialization import StepReport, get_latest_report
from shardline.errors import SnapshotNotFoundError
from shardline.hints import Command, Hint
from shardline.log.entry import Entry
from shardline.log.model import Shard
from shardline.operations.transform_version import TransformReport
from shardline.text import format_count


class DerivationReport(Protocol):
    """What an operation did that makes a version of others."""

    @property
    def entry(self) -> Entry | None:
        """What it committed, None if there was nothing to do."""
        ...

    @property
    def made(self) -> tuple[Shard, ...]:
        """The shards that it had to make."""
        ...


def build_derived_asset(
    name: str,
    inputs: Sequence[str],
    *,
    made_by: str,
    description: str,
    owners: Sequence[str],
    tags: Mapping[str, str] | None,
    code_version: str,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The asset of a version that is made of others, and follows them."""
    return dg.asset(
        key=get_asset_key(name),
        group_name=group_name(name),
        kinds={"tfrecord"},
        deps=[get_asset_key(one) for one in inputs],
        description=description,
        owners=list(owners),
        tags={**(tags or {}), "shardline/made_by": made_by},
        code_version=code_version,
        automation_condition=build_follow_condition(),
        output_required=False,
    )


def select_input(base: Version, number: int, option: str) -> Snapshot:
    """The snapshot to read: the newest published one, or, of this number, one that is published.

    `option` is what it is called in the launchpad.
    """
    if not number:
        return base.published()
    snapshot = base.snapshot(number)
    if not snapshot.published:
        raise SnapshotNotFoundError(
            f"{snapshot}: not published",
            code="snapshot-unpublished",
            hint=Hint.of(
                f"set {option} to a published snapshot; to see what blocks this one, run ",
                Command.of("status", base.name),
            ),
            version=base.name,
            snapshot=snapshot.number,
        )
    return snapshot


def require_declared_checks(version: Version, gate: VersionChecks) -> None:
    """Let the declared checks publish a version that is there already.

    One that is not gets them with its first snapshot: were it made before, a declaration that
    turns out to be wrong could not be mended.
    """
    if version.exists:
        version.require(gate.required)


def create_step_report(
    version: Version, report: DerivationReport, seconds: float, context: dg.AssetExecutionContext
) -> StepReport | None:
    """What to tell: the snapshot that was made, else the one that stands, None if there is none."""
    if report.entry is None:
        found = get_latest_report(version, context.instance, context.asset_key)
        return None if found is None else _add_counts(found, 0)
    snapshot = version.snapshot(report.entry.snapshot)
    before = version.snapshot(snapshot.number - 1).records if snapshot.number > 1 else 0
    made = StepReport(
        snapshot,
        added_rows=snapshot.records - before,
        added_bytes=sum(shard.bytes for shard in report.made),
        added_shards=len(report.made),
        seconds=seconds,
    )
    return _add_counts(made, len(report.made))


def _add_counts(made: StepReport, computed: int) -> StepReport:
    reused = made.snapshot.totals.shards - computed
    return replace(made, counts={"computed_shards": computed, "reused_shards": reused})


def log_transform(context: dg.AssetExecutionContext, report: TransformReport) -> None:
    """Log what an extension or a migration did."""
    context.log.info(
        "%s: %s computed, %s reused",
        report.version,
        format_count(len(report.made), "shard"),
        format_count(len(report.reused), "shard"),
    )
    if report.refused:
        context.log.warning("%s went to quarantine", format_count(report.refused, "record"))
