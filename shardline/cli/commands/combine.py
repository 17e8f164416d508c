"""How many pairs there will be, in words; what both kinds of combination tell."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.arguments import resolve_path
from shardline.cli.combine_options import CombineOptions, PairOptions, pair_options
from shardline.cli.errors import UsageError, raise_as_usage_error
from shardline.cli.executor import open_progress_executor
from shardline.cli.options import (
    Size,
    compression_option,
    expand_patterns,
    json_option,
    limit_options,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.output import (
    add_skipped_files,
    print_dry_run_notice,
    print_json,
    serialize_snapshot,
)
from shardline.cli.progress import (
    make_cancellable,
    run_in_thread,
    show_activity,
    show_pair_progress,
)
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    parse_version,
)
from shardline.cli.snapshot_check import check_snapshot, print_next_steps, serialize_check
from shardline.text import (
    escape_text,
    format_bytes,
    format_count,
    format_list,
    format_rate,
    format_reused_shards,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from shardline.cli.snapshot_check import SnapshotCheck
    from shardline.log.version import StoredVersion
    from shardline.operations.combine import CombinePlan, CombineReport
    from shardline.operations.combine_files import CombineFilesPlan
    from shardline.pairing.combine_spec import JoinType, SpecOptions
    from shardline.pairing.pair_features import OnCollision
    from shardline.pairing.pair_grid import PairEstimate
    from shardline.udf import UDF


_SHOWN = 20


def format_estimate(found: PairEstimate) -> str:
    """`12,000 pairs, about 1.2 MB to write`."""
    most = "at most " if found.most else ""
    return f"{most}{format_count(found.pairs, 'pair')}, about {format_bytes(found.bytes)} to write"


def serialize_estimate(found: PairEstimate) -> dict[str, Any]:
    """The same for machines; with `most` there may be fewer."""
    return {"pairs": found.pairs, "bytes": found.bytes, "most": found.most}


def print_features(features: Iterable[str]) -> None:
    """What is in a pair."""
    listed_all = list(features)
    click.echo("a pair has:")
    for feature in listed_all[:_SHOWN]:
        click.echo(f"  {escape_text(feature)}")
    if len(listed_all) > _SHOWN:
        click.echo(f"  … and {len(listed_all) - _SHOWN:,} more; --json lists all")


def print_incremental_notice(rule: SpecOptions) -> None:
    """Say it where nothing of what is made now can be used again."""
    for name in ("limit", "sample"):
        if rule.get(name) is not None:
            click.echo(f"  --{name} is not incremental: all is made anew when a side has changed")
    makers = [*_list_udfs(rule.get("fields", ())), *_list_udfs(rule.get("where"))]
    unversioned = [one.shown for one in makers if one.identity() is None]
    if unversioned:
        click.echo(
            f"  {escape_text(format_list(unversioned))} "
            f"{'has' if len(unversioned) == 1 else 'have'} no "
            'code version, so all is made anew each time: declare one, as in code="1"'
        )


def _list_udfs(makers: UDF | Sequence[UDF] | None) -> list[UDF]:
    if makers is None:
        return []
    return list(makers) if isinstance(makers, Sequence) else [makers]


def combine_standalone_files(asked: CombineOptions, output: Path, rule: SpecOptions) -> None:
    """Write all pairs to one file, or tell how many these would be."""
    from shardline.operations.combine_files import plan_combine_files
    from shardline.pairing.pair_grid import validate_budget

    sides = expand_patterns([asked.left]), expand_patterns([asked.right])
    _validate_output(asked, output, [*sides[0], *sides[1]])
    with show_activity("counting the pairs"), raise_as_usage_error():
        plan = plan_combine_files(*sides, limits=asked.limits, workers=asked.workers, **rule)
    if not asked.as_json:
        _print_file_plan(plan, sides, output, whole=asked.dry_run)
    folder = output.absolute().parent
    validate_budget(str(output), plan.estimate, asked.budget_bytes, folder, of_files=True)
    if asked.dry_run:
        if asked.as_json:
            print_json(add_skipped_files(_serialize_file_plan(plan, output)))
        else:
            print_dry_run_notice()
        return
    _write_pairs(asked, sides, output, rule)


def _write_pairs(
    asked: CombineOptions, sides: tuple[list[Path], list[Path]], output: Path, rule: SpecOptions
) -> None:
    from shardline.execution.executor import CancellationToken
    from shardline.operations.combine_files import combine_files

    began = time.perf_counter()
    cancellation = CancellationToken()
    with show_pair_progress("combining") as progress:
        run = partial(
            combine_files,
            *sides,
            output,
            compression=asked.compression or "none",
            budget_bytes=asked.budget_bytes,
            overwrite=asked.overwrite,
            limits=asked.limits,
            workers=asked.workers,
            progress=make_cancellable(progress, cancellation),
            **rule,
        )
        report = run_in_thread(run, cancellation)
    seconds = time.perf_counter() - began
    if asked.as_json:
        told = {
            "ok": True,
            "dry_run": False,
            "output": str(output),
            "records": report.records,
            "bytes": report.bytes,
            "compression": report.compression.value,
            "seconds": round(seconds, 6),
        }
        print_json(add_skipped_files(told))
        return
    packed = "" if report.compression.value == "none" else f", {report.compression.value}"
    click.echo(
        f"{escape_text(str(output))}: {format_count(report.records, 'pair')}, "
        f"{format_bytes(report.bytes)}{packed}"
    )
    click.echo(f"  {format_rate(report.records, report.bytes, seconds, 'pairs')}")


def _validate_output(asked: CombineOptions, output: Path, paths: list[Path]) -> None:
    if output.is_dir():
        raise UsageError(
            f"{output} is a folder", code="output-is-folder", hint="name a file", path=output
        )
    if resolve_path(output) in set(map(resolve_path, paths)):
        raise UsageError(
            f"{output} is an input file",
            code="output-is-input",
            hint="write to another file",
            path=output,
        )
    if output.exists() and not asked.overwrite:
        raise UsageError(
            f"{output} exists already",
            code="file-exists",
            hint="choose another name or add `--overwrite`",
            path=output,
        )


def _print_file_plan(
    plan: CombineFilesPlan, sides: tuple[list[Path], list[Path]], output: Path, *, whole: bool
) -> None:
    left, right = (
        f"{_format_paths(paths)} ({format_count(records, 'record')})"
        for paths, records in zip(sides, (plan.left, plan.right), strict=True)
    )
    click.echo(f"{left} with {right} → {escape_text(str(output))}")
    if whole and plan.schema is not None:
        print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    elif whole:
        print_features(plan.features)
    click.echo(f"work: {format_estimate(plan.estimate)}")


def _format_paths(paths: list[Path]) -> str:
    return escape_text(str(paths[0])) if len(paths) == 1 else format_count(len(paths), "file")


def _serialize_file_plan(plan: CombineFilesPlan, output: Path) -> dict[str, Any]:
    return {
        "ok": True,
        "dry_run": True,
        "output": str(output),
        "left": plan.left,
        "right": plan.right,
        "features": list(plan.features),
        "schema": plan.schema and plan.schema.to_dict(),
        "estimate": serialize_estimate(plan.estimate),
    }


def combine_versions(asked: CombineOptions, into: str, rule: SpecOptions) -> NoReturn:
    """Make all pairs the content of a version, or tell how many these would be."""
    from shardline.operations.combine import combine, plan_combine
    from shardline.pairing.pair_grid import validate_budget
    from shardline.storage.temporary_files import spool_folder

    left, right, target = _open_versions(asked, into)
    more: dict[str, Any] = {"mode": asked.mode, "limits": asked.limits}
    more["compression"] = asked.compression
    more |= {} if asked.target_size is None else {"target_bytes": asked.target_size}
    for side, version, text in (("left", left, asked.left), ("right", right, asked.right)):
        wanted = parse_reference(text)
        more[f"which_{side}"] = find_snapshot(version, wanted, wanted.readable).number
    with show_activity("counting the pairs"), raise_as_usage_error():
        plan = plan_combine(left, right, target, **more, **rule)
    if not asked.as_json:
        _print_version_plan(plan, target, rule, whole=asked.dry_run)
    validate_budget(target.name, plan.estimate, asked.budget_bytes, spool_folder(target.store))
    if asked.dry_run:
        if asked.as_json:
            print_json(_serialize_version_plan(plan, target))
        else:
            print_dry_run_notice()
        raise SystemExit(0)
    began = time.perf_counter()
    with open_progress_executor(asked.workers) as executor:
        report = combine(
            left, right, target, budget_bytes=asked.budget_bytes, executor=executor, **more, **rule
        )
    seconds = time.perf_counter() - began
    if not asked.as_json:
        _print_report(report, seconds)
    checked = None
    if report.snapshot is not None and not asked.no_check:
        checked = check_snapshot(
            target, report.snapshot, limits=asked.limits, workers=asked.workers
        )
    if asked.as_json:
        print_json(_serialize_report(report, target, checked, seconds))
    else:
        print_next_steps(target, report.snapshot, checked, plain=not asked.virtual)
    raise SystemExit(0 if checked is None or checked.ok else 1)


def _open_versions(
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


def _print_version_plan(
    plan: CombinePlan, into: StoredVersion, rule: SpecOptions, *, whole: bool
) -> None:
    new = "" if into.exists else ", which is new"
    left, right = (
        f"{side} ({format_count(side.records, 'record')})" for side in (plan.left, plan.right)
    )
    click.echo(f"{left} with {right} → {plan.into}{new}")
    if whole:
        print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    shards = f"{format_count(plan.compute, 'shard')} to compute, {plan.reuse:,} to use again"
    gone = f", {plan.drop:,} to drop" if plan.drop else ""
    size = f"; {format_estimate(plan.estimate)}" if plan.compute else ""
    click.echo(f"work: {shards}{gone}{size}")
    print_incremental_notice(rule)


def _serialize_version_plan(plan: CombinePlan, into: StoredVersion) -> dict[str, Any]:
    return {
        "ok": True,
        "dry_run": True,
        "version": plan.into,
        "new": not into.exists,
        "left": serialize_snapshot(plan.left),
        "right": serialize_snapshot(plan.right),
        "schema": plan.schema.to_dict(),
        "compute_shards": plan.compute,
        "reuse_shards": plan.reuse,
        "drop_shards": plan.drop,
        "incremental": plan.incremental,
        "estimate": serialize_estimate(plan.estimate),
    }


def _serialize_report(
    report: CombineReport, into: StoredVersion, checked: SnapshotCheck | None, seconds: float
) -> dict[str, Any]:
    after = None if report.snapshot is None else into.snapshot(report.snapshot)
    return {
        "ok": checked is None or checked.ok,
        "dry_run": False,
        "version": report.version,
        "left": serialize_snapshot(report.left),
        "right": serialize_snapshot(report.right),
        "created": report.created,
        "entry": report.entry and report.entry.number,
        "snapshot": after and serialize_snapshot(after),
        "records": report.records,
        "bytes": report.bytes,
        "shards": [shard.to_dict() for shard in report.made],
        "reused_shards": len(report.reused),
        "incremental": report.incremental,
        "seconds": round(seconds, 6),
        "check": None if checked is None else serialize_check(checked),
        "published": after is not None and after.published,
    }


def _print_report(report: CombineReport, seconds: float) -> None:
    both = f"{report.left} and {report.right}"
    if report.entry is None:
        click.echo(f"{report.version} follows {both} already: nothing to do")
        return
    if report.created:
        click.echo(f"created {report.version}")
    made = f"{report.version}@{report.snapshot}"
    reused = format_reused_shards(report.found, len(report.reused))
    if not report.made:
        again = format_count(len(report.reused), "shard")
        click.echo(f"{made}: follows {both}, and nothing had to be computed: {again} used again")
        return
    click.echo(
        f"{made}: {format_count(len(report.made), 'shard')} computed{reused}; "
        f"{format_count(report.records, 'pair')}, {format_bytes(report.bytes)} written"
    )
    click.echo(f"  {format_rate(report.records, report.bytes, seconds, 'pairs')}")


@click.command(
    epilog="""\b
Examples:
  shardline combine left.tfrecord right.tfrecord --output pairs.tfrecord
  shardline combine 'a-*' 'b-*' --output pairs.tfrecord \\
      --on-collision prefix --left-prefix a_ --right-prefix b_
  shardline combine digits/v1 names/v2 --into digit_names/v1 --dry-run
  shardline combine orders/v1 people/v1 --into sold/v1 --on person=id --how left
  shardline combine digits/v1 digits/v1 --into digit_pairs/v1 --once \\
      --on-collision prefix --left-prefix a_ --right-prefix b_ --mode virtual

Of files each side is a file, a glob in quotes, or a folder. --where and --fields name functions
that are declared as for 'shardline extend'; they read the features of the pair by its names.

When a version has grown, the same command makes only the pairs of its new shards. With --limit or
--sample all is made anew, and so it is with --on if RIGHT has changed.

SNAPSHOT is a number, a tag, 'published' (the default), 'latest' or a time (UTC).""",
)
@click.argument("left", metavar="LEFT")
@click.argument("right", metavar="RIGHT")
@click.option(
    "--into",
    metavar="NAME/VERSION",
    help="Of versions: make the pairs the content of this one, which may be new.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Of files: write the pairs to this file.",
)
@click.option("--overwrite", is_flag=True, help="Of files: replace OUT if it is there.")
@pair_options
@click.option(
    "--mode",
    type=click.Choice(["materialized", "virtual"]),
    default="materialized",
    show_default=True,
    help="Of versions, virtual: write only the plan, and pin both; readers make the pairs. Not "
    "with --on, --where, --fields, --limit or --sample.",
)
@click.option(
    "budget_bytes",
    "--budget",
    type=Size(least=1),
    help="Refuse to write more than this.  [default: what the disk has free, at most 100 GB]",
)
@click.option(
    "--target-size",
    type=Size(least=1),
    help="Of versions: make shards of about so many bytes.  [default: 128MB]",
)
@compression_option(None, "  [default: as the version is, files and new ones not]")
@click.option("--dry-run", is_flag=True, help="Only tell how many pairs and bytes there would be.")
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def combine(
    *,
    on_collision: OnCollision,
    left_prefix: str,
    right_prefix: str,
    on: tuple[str, ...],
    how: JoinType | None,
    where: str | None,
    fields: tuple[str, ...],
    limit: int | None,
    sample: int | None,
    seed: int | None,
    once: bool,
    **common: Any,  # noqa: ANN401 - they are told in CombineOptions
) -> None:
    """Make a record of each record of LEFT together with each one of RIGHT.

    LEFT and RIGHT are files (--output), or versions of datasets, NAME/VERSION[@SNAPSHOT] (--into).
    All pairs are made, or those that --on, --where, --limit or --sample leave. How many these are,
    and about how many bytes, is told first. The order is that of two nested loops, LEFT outside; of
    versions it is that within each two shards.

    Exits with 1 at a damaged record, if a function fails on a pair, or if the check failed; with 2
    if both sides have a feature of the same name and --on-collision does not say what to do, or if
    it would write more than the budget. Nothing is changed then.
    """
    asked = CombineOptions(**common)
    asked.refuse_mixed()
    rule = PairOptions(
        on_collision, left_prefix, right_prefix, on, how, where, fields, limit, sample, seed, once
    ).load()
    if asked.output is not None:
        combine_standalone_files(asked, asked.output, rule)
    elif asked.into is not None:
        combine_versions(asked, asked.into, rule)
