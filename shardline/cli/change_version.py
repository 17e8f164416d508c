"""`shardline extend` and `shardline migrate` of a version: plan, do, check, and tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.changed import (
    changed_json,
    plan_json,
    print_changed,
    print_plan,
    refuse_unfit_target,
)
from shardline.cli.checked import check_snapshot
from shardline.cli.errors import reported_as_usage
from shardline.cli.json_told import tell_json
from shardline.cli.outcome import print_not_done, print_outcome
from shardline.cli.progress import at_work
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    version_into,
)
from shardline.cli.steps import drawing_engine
from shardline.text import human_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from shardline.cli.change_options import ChangeOptions
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.change_shards import ChangePlan, ShardChange


def change_version(
    asked: ChangeOptions,
    into: str,
    plan: Callable[[StoredVersion, StoredSnapshot, StoredVersion], ShardChange],
    steps: list[str] | None = None,
) -> NoReturn:
    """Do what `plan` makes of a version, the snapshot that is meant, and the one to go into.

    A migration is told by its `steps`, which are shown before it is done.
    """
    wanted = parse_reference(asked.argument)
    version = open_version(open_root(asked.root), wanted)
    snapshot = find_snapshot(version, wanted, wanted.readable)
    target = version_into(version, into)
    with at_work("planning"), reported_as_usage():
        work = plan(version, snapshot, target)
        refuse_unfit_target(work)
        planned = work.plan() if asked.dry_run or steps is not None else None
    more: dict[str, Any] = {} if steps is None else {"steps": steps}
    if planned is not None and not asked.as_json:
        print_plan(planned, work, steps)
        _print_writes(_writes(asked, planned, work), planned, work)
    if planned is not None and asked.dry_run:
        if asked.as_json:
            size = _writes(asked, planned, work)
            tell_json({**plan_json(planned, work), "write_bytes": size, **more})
        else:
            print_not_done()
        raise SystemExit(0)
    began = time.perf_counter()
    # What a table is joined by, or a function reads, is looked for when the work begins.
    with reported_as_usage(), drawing_engine(asked.workers) as engine:
        report = work.done(engine, None)
    seconds = time.perf_counter() - began
    if not asked.as_json:
        print_changed(report, work, seconds)
    checked = None
    if report.snapshot is not None and not asked.no_check:
        checked = check_snapshot(
            work.into, report.snapshot, limits=asked.limits, workers=asked.workers
        )
    if asked.as_json:
        tell_json({**changed_json(report, work, checked, seconds), **more})
    else:
        print_outcome(work.into, report.snapshot, checked, plain=work.mode == "rewrite")
    raise SystemExit(0 if checked is None or checked.ok else 1)


def _writes(asked: ChangeOptions, plan: ChangePlan, work: ShardChange) -> int | None:
    """About how many bytes will be written, None if that cannot be told.

    Of a rewrite these are the old fields, of an overlay the new ones, at most.
    """
    if plan.mode == "overlay":
        from shardline.schema.schema import most_record_bytes

        most = most_record_bytes(work.transform.new.features)
        return None if most is None else asked.writes(most * plan.records)
    # Pairs that were not written take more than the files that they are made of.
    virtual = any(shard.virtual for shard in work.snapshot.shards)
    return None if virtual else asked.writes(plan.reads)


def _print_writes(size: int | None, plan: ChangePlan, work: ShardChange) -> None:
    if plan.mode == "overlay" and plan.compute:
        told = "the new fields alone" if size is None else f"at most {human_bytes(size)}"
        click.echo(f"to write: {told}")
    elif size:
        new = ", and the new fields" if work.operation == "extend" else ""
        click.echo(f"to write: about {human_bytes(size)}{new}")
