"""`shardline combine`."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from shardline.arguments import resolve_path
from shardline.cli.errors import UsageError, raise_as_usage_error
from shardline.cli.options import (
    Size,
    WriteOptions,
    compression_option,
    expand_patterns,
    write_options,
)
from shardline.cli.output import (
    add_skipped_files,
    print_dry_run_notice,
    print_json,
    print_limited,
    serialize_snapshot,
)
from shardline.cli.output_file import validate_destination, validate_transform_output
from shardline.cli.progress import (
    make_cancellable,
    open_progress_executor,
    run_in_thread,
    show_activity,
    show_count_progress,
)
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
    parse_version,
    validate_output_path,
)
from shardline.cli.snapshot_check import check_new_snapshot, print_next_steps, serialize_derived
from shardline.cli.udf_options import load_filter, load_udfs, print_unversioned_udfs
from shardline.pairing.combine_spec import DEFAULTS, OPTIONS, get_flag
from shardline.text import (
    escape_text,
    format_bytes,
    format_count,
    format_rate,
    format_reused_shards,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from shardline.cli.options import CommandFunction
    from shardline.log.version import StoredVersion
    from shardline.operations.combine import CombinePlan, CombineReport
    from shardline.operations.combine_files import CombineFilesPlan
    from shardline.pairing.combine_spec import CombineMode, CombineSpec, SpecOptions
    from shardline.pairing.pair_grid import PairEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineOptions(WriteOptions):
    """Arguments and options, without those of the CombineSpec."""

    left: str
    right: str
    into: str | None
    output: Path | None
    overwrite: bool
    mode: CombineMode
    budget_bytes: int | None
    target_size: int | None

    @property
    def virtual(self) -> bool:
        """Return True if only a pair plan is written."""
        return self.mode == "virtual"

    def validate(self) -> None:
        """Refuse options of files for versions, and options of versions for files."""
        validate_destination(
            self.into,
            self.output,
            overwrite=self.overwrite,
            version="NAME/VERSION",
            target_size=self.target_size,
            no_check=self.no_check,
            mode=self.virtual,
        )
        if self.output is not None:
            for side in (self.left, self.right):
                validate_output_path(side)


_MAX_FEATURES = 20


def _format_estimate(estimate: PairEstimate) -> str:
    """`12,000 pairs, about 1.2 MB to write`."""
    bound = "at most " if estimate.most else ""
    pairs = format_count(estimate.pairs, "pair")
    return f"{bound}{pairs}, about {format_bytes(estimate.bytes)} to write"


def _print_features(features: Iterable[str]) -> None:
    click.echo("features of a pair:")
    print_limited(map(escape_text, features), limit=_MAX_FEATURES)


def _print_incremental_notice(spec: CombineSpec) -> None:
    """Print the options that prevent the reuse of computed shards."""
    for name in ("limit", "sample"):
        if getattr(spec, name) is not None:
            click.echo(f"  --{name} is not incremental: a changed side recomputes all pairs")
    print_unversioned_udfs(spec.functions)


def _combine_files(options: CombineOptions, output: Path, spec_options: SpecOptions) -> None:
    """Write the pairs of files to a file, or show the plan."""
    from shardline.operations.combine_files import plan_combine_files
    from shardline.pairing.pair_grid import validate_budget

    sides = expand_patterns([options.left]), expand_patterns([options.right])
    paths = map(resolve_path, [*sides[0], *sides[1]])
    validate_transform_output(
        output, is_input=resolve_path(output) in set(paths), overwrite=options.overwrite
    )
    with show_activity("counting the pairs"), raise_as_usage_error():
        plan = plan_combine_files(
            *sides, limits=options.limits, workers=options.workers, **spec_options
        )
        estimate = plan.estimate
    if not options.as_json:
        _print_file_plan(plan, sides, output, list_features=options.dry_run)
    folder = output.absolute().parent
    validate_budget(str(output), estimate, options.budget_bytes, folder, of_files=True)
    if not options.dry_run:
        _write_pairs(options, plan, output)
    elif options.as_json:
        print_json(add_skipped_files(_serialize_file_plan(plan, output)))
    else:
        print_dry_run_notice()


def _write_pairs(options: CombineOptions, plan: CombineFilesPlan, output: Path) -> None:
    from shardline.execution.executor import CancellationToken

    began = time.perf_counter()
    cancellation = CancellationToken()
    with show_count_progress("combining") as progress:
        run = partial(
            plan.execute,
            output,
            compression=options.compression or "none",
            budget_bytes=options.budget_bytes,
            overwrite=options.overwrite,
            progress=make_cancellable(progress, cancellation),
        )
        report = run_in_thread(run, cancellation)
    seconds = time.perf_counter() - began
    if options.as_json:
        payload = {
            "ok": True,
            "dry_run": False,
            "output": str(output),
            "records": report.records,
            "bytes": report.bytes,
            "compression": report.compression.value,
            "seconds": round(seconds, 6),
        }
        print_json(add_skipped_files(payload))
        return
    suffix = "" if report.compression.value == "none" else f", {report.compression.value}"
    click.echo(
        f"{escape_text(str(output))}: {format_count(report.records, 'pair')}, "
        f"{format_bytes(report.bytes)}{suffix}"
    )
    click.echo(f"  {format_rate(report.records, report.bytes, seconds, 'pairs')}")


def _print_file_plan(
    plan: CombineFilesPlan,
    sides: tuple[list[Path], list[Path]],
    output: Path,
    *,
    list_features: bool,
) -> None:
    left, right = (
        f"{_format_paths(paths)} ({format_count(records, 'record')})"
        for paths, records in zip(sides, (plan.left, plan.right), strict=True)
    )
    click.echo(f"{left} with {right} → {escape_text(str(output))}")
    if list_features and plan.schema is not None:
        _print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    elif list_features:
        _print_features(plan.features)
    click.echo(f"work: {_format_estimate(plan.estimate)}")


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
        "estimate": asdict(plan.estimate),
    }


def _combine_versions(options: CombineOptions, into: str, spec_options: SpecOptions) -> NoReturn:
    """Write the pairs of versions to a version, or show the plan."""
    from shardline.operations.combine import plan_combine
    from shardline.pairing.pair_grid import validate_budget
    from shardline.storage.temporary_files import spool_folder

    left, right, target = _open_versions(options, into)
    arguments: dict[str, Any] = {}
    if options.target_size is not None:
        arguments["target_bytes"] = options.target_size
    for side, version, text in (("left", left, options.left), ("right", right, options.right)):
        arguments[f"{side}_snapshot"] = find_snapshot(version, parse_reference(text)).number
    with show_activity("counting the pairs"), raise_as_usage_error():
        plan = plan_combine(
            left,
            right,
            target,
            mode=options.mode,
            compression=options.compression,
            limits=options.limits,
            **arguments,
            **spec_options,
        )
    if not options.as_json:
        _print_version_plan(plan, target, list_features=options.dry_run)
    validate_budget(target.name, plan.estimate, options.budget_bytes, spool_folder(target.store))
    if options.dry_run:
        if options.as_json:
            print_json(_serialize_version_plan(plan, target))
        else:
            print_dry_run_notice()
        raise SystemExit(0)
    began = time.perf_counter()
    with open_progress_executor(options.workers) as executor:
        report = plan.execute(budget_bytes=options.budget_bytes, executor=executor)
    seconds = time.perf_counter() - began
    if not options.as_json:
        _print_report(report, seconds)
    check = check_new_snapshot(target, report.snapshot, options)
    if options.as_json:
        print_json(serialize_derived(report, target, check, seconds))
    else:
        print_next_steps(target, report.snapshot, check, plain=not options.virtual)
    raise SystemExit(0 if check is None or check.ok else 1)


def _open_versions(
    options: CombineOptions, into: str
) -> tuple[StoredVersion, StoredVersion, StoredVersion]:
    from shardline.log.version import StoredVersion

    left, right = parse_reference(options.left), parse_reference(options.right)
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
    store = open_root(options.root)
    left_version = open_version(store, left)
    same = left.version == right.version
    right_version = left_version if same else open_version(store, right)
    return left_version, right_version, StoredVersion(store, name)


def _print_version_plan(plan: CombinePlan, into: StoredVersion, *, list_features: bool) -> None:
    new = "" if into.exists else " (new)"
    left, right = (
        f"{side} ({format_count(side.records, 'record')})" for side in (plan.left, plan.right)
    )
    click.echo(f"{left} with {right} → {plan.into}{new}")
    if list_features:
        _print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    shards = f"{format_count(plan.compute, 'shard')} to compute, {plan.reuse:,} to reuse"
    drop = f", {plan.drop:,} to drop" if plan.drop else ""
    size = f"; {_format_estimate(plan.estimate)}" if plan.compute else ""
    click.echo(f"work: {shards}{drop}{size}")
    _print_incremental_notice(plan.spec)


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
        "estimate": asdict(plan.estimate),
    }


def _print_report(report: CombineReport, seconds: float) -> None:
    both = f"{report.left} and {report.right}"
    if report.entry is None:
        click.echo(f"{report.version}: up to date with {both}")
        return
    if report.created:
        click.echo(f"created {report.version}")
    snapshot = f"{report.version}@{report.snapshot}"
    reused = format_reused_shards(report.recovered, len(report.reused))
    shards = format_count(len(report.written), "shard")
    if not report.written:
        click.echo(f"{snapshot}: follows {both}; {shards} computed{reused}")
        return
    click.echo(
        f"{snapshot}: {shards} computed{reused}; "
        f"{format_count(report.records, 'pair')}, {format_bytes(report.bytes)} written"
    )
    click.echo(f"  {format_rate(report.records, report.bytes, seconds, 'pairs')}")


def _pair_options(command: CommandFunction) -> CommandFunction:
    """Add the options of a CombineSpec."""
    for name, option in reversed(list(OPTIONS.items())):
        default = DEFAULTS[name]
        kind: click.ParamType[Any] | None = None
        if option.choices:
            kind = click.Choice(option.choices)
        elif option.minimum is not None:
            kind = click.IntRange(min=option.minimum)
        command = click.option(
            name,
            get_flag(name),
            type=kind,
            is_flag=default is False,
            multiple=default == (),
            default=default,
            show_default=bool(default),
            metavar=option.metavar,
            help=option.help,
        )(command)
    return command


def _parse_keys(texts: tuple[str, ...]) -> dict[str, str]:
    keys: dict[str, str] = {}
    for text in texts:
        left, equals, right = text.partition("=")
        if not left or (equals and not right):
            raise UsageError(
                f"invalid --on {text!r}: expected KEY or LEFT_KEY=RIGHT_KEY",
                code="invalid-option-value",
            )
        if left in keys:
            raise UsageError(
                f"--on: duplicate feature {left!r}", code="duplicate-feature", feature=left
            )
        keys[left] = right or left
    return keys


_LOADERS: dict[str, Callable[[Any], Any]] = {
    "on": _parse_keys,
    "where": load_filter,
    "udfs": load_udfs,
}
"""Loaders of options whose text is not the value."""


def _load_options(values: dict[str, Any]) -> SpecOptions:
    """Return the options of a CombineSpec that have a value, with their functions loaded."""
    loaded: Any = {
        name: _LOADERS[name](value) if name in _LOADERS else value
        for name, value in values.items()
        if value not in {None, "", (), False}
    }
    return cast("SpecOptions", loaded)


@click.command(
    epilog="""\b
Examples:
  shardline combine left.tfrecord right.tfrecord -o pairs.tfrecord
  shardline combine 'a-*' 'b-*' -o pairs.tfrecord \\
      --on-collision prefix --left-prefix a_ --right-prefix b_
  shardline combine digits/v1 names/v2 --into digit_names/v1 --dry-run
  shardline combine orders/v1 people/v1 --into sold/v1 --on person=id --how left
  shardline combine orders/v1 people/v1 --into sold/v2 --where 'left.person == 3 and age > 17'
  shardline combine digits/v1 digits/v1 --into digit_pairs/v1 --unordered \\
      --on-collision prefix --left-prefix a_ --right-prefix b_ --mode virtual

A side is a file, a glob in quotes, a folder or NAME/VERSION[@SNAPSHOT]. Functions for --where and
--udf read the features of a pair by their names in the pair. A predicate may also name the features
of a side: left.NAME, right.NAME.

After an append, the same command computes only pairs of new shards. It computes all pairs with
--limit or --sample, and with --on if RIGHT has changed.

"""
    + SNAPSHOT_HELP,
)
@click.argument("left", metavar="LEFT")
@click.argument("right", metavar="RIGHT")
@click.option(
    "--into",
    metavar="NAME/VERSION",
    help="Write the pairs to this version, new or existing.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Write the pairs of files to this file.",
)
@click.option("--overwrite", is_flag=True, help="With --output: replace an existing file.")
@_pair_options
@click.option(
    "--mode",
    type=click.Choice(["materialized", "virtual"]),
    default="materialized",
    show_default=True,
    help="With --into: write the pairs, or only a plan from which readers create "
    "them. A virtual version contains all pairs, and pins its inputs.",
)
@click.option(
    "budget_bytes",
    "--budget",
    type=Size(least=1),
    help="Refuse to write more than this.  [default: the free disk space, at most 100 GB]",
)
@click.option(
    "--target-size",
    type=Size(least=1),
    help="With --into: start a new shard at this size.  [default: 128MB]",
)
@compression_option(None, "  [default: as in the version; none if it is new, or for files]")
@write_options
def combine(**values: Any) -> None:  # noqa: ANN401 - the fields of CombineOptions, and of the spec
    """Pair each record of LEFT with each record of RIGHT.

    LEFT and RIGHT are files (--output) or versions (--into). The number of pairs and their
    estimated size are shown first. Pairs are in the order of nested loops, LEFT outside. In
    versions, this order holds within each pair of shards.

    Exits with 1 if a record is corrupt, a function fails or the check fails. Exits with 2 if both
    sides have a feature of the same name and --on-collision is not given, or if the output exceeds
    the budget. Nothing is written then.
    """
    own = {field.name: values.pop(field.name) for field in fields(CombineOptions)}
    options = CombineOptions(**own)
    options.validate()
    spec_options = _load_options(values)
    if options.output is not None:
        _combine_files(options, options.output, spec_options)
    elif options.into is not None:
        _combine_versions(options, options.into, spec_options)
