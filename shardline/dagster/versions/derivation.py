"""What versions that are made of others have in common: what they read, and what is told of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import dagster as dg

from shardline.api import Snapshot, Version
from shardline.dagster.asset_names import asset_key, group_name
from shardline.dagster.automation.conditions import follows_published
from shardline.dagster.checks.gate import Gate
from shardline.dagster.versions.metadata import Made, standing
from shardline.errors import SnapshotMissingError
from shardline.hints import Command, Hint
from shardline.log.entry import Entry
from shardline.log.model import Shard
from shardline.operations.transform_version import ChangeReport
from shardline.text import counted


class Report(Protocol):
    """What an operation did that makes a version of others."""

    @property
    def entry(self) -> Entry | None:
        """What it committed, None if there was nothing to do."""
        ...

    @property
    def made(self) -> tuple[Shard, ...]:
        """The shards that it had to make."""
        ...


def derived_asset(
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
        key=asset_key(name),
        group_name=group_name(name),
        kinds={"tfrecord"},
        deps=[asset_key(one) for one in inputs],
        description=description,
        owners=list(owners),
        tags={**(tags or {}), "shardline/made_by": made_by},
        code_version=code_version,
        automation_condition=follows_published(),
        output_required=False,
    )


def chosen_input(base: Version, number: int, option: str) -> Snapshot:
    """The snapshot to read: the newest published one, or, of this number, one that is published.

    `option` is what it is called in the launchpad.
    """
    if not number:
        return base.published()
    snapshot = base.snapshot(number)
    if not snapshot.published:
        raise SnapshotMissingError(
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


def require_declared(version: Version, gate: Gate) -> None:
    """Let the declared checks publish a version that is there already.

    One that is not gets them with its first snapshot: were it made before, a declaration that
    turns out to be wrong could not be mended.
    """
    if version.exists:
        version.require(gate.required)


def derived(
    version: Version, report: Report, seconds: float, context: dg.AssetExecutionContext
) -> Made | None:
    """What to tell: the snapshot that was made, else the one that stands, None if there is none."""
    if report.entry is None:
        found = standing(version, context.instance, context.asset_key)
        return None if found is None else _counted(found, 0)
    snapshot = version.snapshot(report.entry.snapshot)
    before = version.snapshot(snapshot.number - 1).records if snapshot.number > 1 else 0
    made = Made(
        snapshot,
        added_rows=snapshot.records - before,
        added_bytes=sum(shard.bytes for shard in report.made),
        added_shards=len(report.made),
        seconds=seconds,
    )
    return _counted(made, len(report.made))


def _counted(made: Made, computed: int) -> Made:
    reused = made.snapshot.totals.shards - computed
    return replace(made, counts={"computed_shards": computed, "reused_shards": reused})


def log_change(context: dg.AssetExecutionContext, report: ChangeReport) -> None:
    """Log what an extension or a migration did."""
    context.log.info(
        "%s: %s computed, %s reused",
        report.version,
        counted(len(report.made), "shard"),
        counted(len(report.reused), "shard"),
    )
    if report.refused:
        context.log.warning("%s went to quarantine", counted(report.refused, "record"))
