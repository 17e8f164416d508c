"""`shardline combine` of versions: plan, do, check, and tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.checked import check_snapshot, checked_json
from shardline.cli.combined import (
    estimate_json,
    estimate_words,
    print_features,
    print_not_incremental,
)
from shardline.cli.derived_words import used_again
from shardline.cli.errors import UsageError, reported_as_usage
from shardline.cli.json_forms import snapshot_json
from shardline.cli.json_told import tell_json
from shardline.cli.outcome import print_not_done, print_outcome
from shardline.cli.progress import at_work
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    parse_version,
)
from shardline.cli.steps import drawing_engine
from shardline.text import counted, human_bytes, rate

if TYPE_CHECKING:
    from typing import NoReturn

    from shardline.cli.checked import Checked
    from shardline.cli.combine_options import CombineOptions
    from shardline.log.version import StoredVersion
    from shardline.operations.combine import CombinePlan, CombineReport
    from shardline.pairing.spec import Options


def combine_versions(asked: CombineOptions, into: str, rule: Options) -> NoReturn:
    """Make all pairs the content of a version, or tell how many these would be."""
    from shardline.operations.combine import combine, plan_combine
    from shardline.pairing.budget import refuse_over_budget
    from shardline.storage.spool import spool_folder

    left, right, target = _versions(asked, into)
    more: dict[str, Any] = {"mode": asked.mode, "limits": asked.limits}
    more["compression"] = asked.compression
    more |= {} if asked.target_size is None else {"target_bytes": asked.target_size}
    for side, version, text in (("left", left, asked.left), ("right", right, asked.right)):
        wanted = parse_reference(text)
        more[f"which_{side}"] = find_snapshot(version, wanted, wanted.readable).number
    with at_work("counting the pairs"), reported_as_usage():
        plan = plan_combine(left, right, target, **more, **rule)
    if not asked.as_json:
        _print_plan(plan, target, rule, whole=asked.dry_run)
    refuse_over_budget(target.name, plan.estimate, asked.budget_bytes, spool_folder(target.store))
    if asked.dry_run:
        if asked.as_json:
            tell_json(_plan_json(plan, target))
        else:
            print_not_done()
        raise SystemExit(0)
    began = time.perf_counter()
    with drawing_engine(asked.workers) as engine:
        report = combine(
            left, right, target, budget_bytes=asked.budget_bytes, engine=engine, **more, **rule
        )
    seconds = time.perf_counter() - began
    if not asked.as_json:
        _print_done(report, seconds)
    checked = None
    if report.snapshot is not None and not asked.no_check:
        checked = check_snapshot(
            target, report.snapshot, limits=asked.limits, workers=asked.workers
        )
    if asked.as_json:
        tell_json(_done_json(report, target, checked, seconds))
    else:
        print_outcome(target, report.snapshot, checked, plain=not asked.virtual)
    raise SystemExit(0 if checked is None or checked.ok else 1)


def _versions(
    asked: CombineOptions, into: str
) -> tuple[StoredVersion, StoredVersion, StoredVersion]:
    from shardline.log.version import StoredVersion

    left, right = parse_reference(asked.left), parse_reference(asked.right)
    if "/" not in into:
        dataset = left.version.partition("/")[0]
        raise UsageError(
            f"--into {into}: missing dataset name",
            code="invalid-reference",
            hint=f"write `{dataset}-pairs/{into}`",
        )
    name = parse_version(into).version
    if name in {left.version, right.version}:
        raise UsageError(
            f"--into {into} is an input version",
            code="output-is-input",
            hint="name another version",
            version=name,
        )
    store = open_root(asked.root)
    one = open_version(store, left)
    other = one if left.version == right.version else open_version(store, right)
    return one, other, StoredVersion(store, name)


def _print_plan(plan: CombinePlan, into: StoredVersion, rule: Options, *, whole: bool) -> None:
    new = "" if into.exists else ", which is new"
    left, right = (
        f"{side} ({counted(side.records, 'record')})" for side in (plan.left, plan.right)
    )
    click.echo(f"{left} with {right} → {plan.into}{new}")
    if whole:
        print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    shards = f"{counted(plan.compute, 'shard')} to compute, {plan.reuse:,} to use again"
    gone = f", {plan.drop:,} to drop" if plan.drop else ""
    size = f"; {estimate_words(plan.estimate)}" if plan.compute else ""
    click.echo(f"work: {shards}{gone}{size}")
    print_not_incremental(rule)


def _plan_json(plan: CombinePlan, into: StoredVersion) -> dict[str, Any]:
    return {
        "ok": True,
        "dry_run": True,
        "version": plan.into,
        "new": not into.exists,
        "left": snapshot_json(plan.left),
        "right": snapshot_json(plan.right),
        "schema": plan.schema.to_json(),
        "compute_shards": plan.compute,
        "reuse_shards": plan.reuse,
        "drop_shards": plan.drop,
        "incremental": plan.incremental,
        "estimate": estimate_json(plan.estimate),
    }


def _done_json(
    report: CombineReport, into: StoredVersion, checked: Checked | None, seconds: float
) -> dict[str, Any]:
    after = None if report.snapshot is None else into.snapshot(report.snapshot)
    return {
        "ok": checked is None or checked.ok,
        "dry_run": False,
        "version": report.version,
        "left": snapshot_json(report.left),
        "right": snapshot_json(report.right),
        "created": report.created,
        "entry": report.entry and report.entry.number,
        "snapshot": after and snapshot_json(after),
        "records": report.records,
        "bytes": report.bytes,
        "shards": [shard.to_json() for shard in report.made],
        "reused_shards": len(report.reused),
        "incremental": report.incremental,
        "seconds": round(seconds, 6),
        "check": None if checked is None else checked_json(checked),
        "published": after is not None and after.published,
    }


def _print_done(report: CombineReport, seconds: float) -> None:
    both = f"{report.left} and {report.right}"
    if report.entry is None:
        click.echo(f"{report.version} follows {both} already: nothing to do")
        return
    if report.created:
        click.echo(f"created {report.version}")
    made = f"{report.version}@{report.snapshot}"
    reused = used_again(report.found, len(report.reused))
    if not report.made:
        again = counted(len(report.reused), "shard")
        click.echo(f"{made}: follows {both}, and nothing had to be computed: {again} used again")
        return
    click.echo(
        f"{made}: {counted(len(report.made), 'shard')} computed{reused}; "
        f"{counted(report.records, 'pair')}, {human_bytes(report.bytes)} written"
    )
    click.echo(f"  {rate(report.records, report.bytes, seconds, 'pairs')}")
