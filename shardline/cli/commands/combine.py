"""How many pairs there will be, in words; what both kinds of combination tell."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from shardline.arguments import resolve_path
from shardline.cli.errors import UsageError, raise_as_usage_error
from shardline.cli.options import (
    Size,
    compression_option,
    expand_patterns,
    json_option,
    limit_options,
    limits,
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
from shardline.cli.output_file import validate_destination
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
from shardline.cli.snapshot_check import check_snapshot, print_next_steps, serialize_derived
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
    from shardline.tfrecord import Limits


@dataclass(frozen=True, slots=True)
class CombineOptions:
    """What was asked for."""

    left: str
    right: str
    into: str | None
    output: Path | None
    overwrite: bool
    mode: CombineMode
    budget_bytes: int | None
    target_size: int | None
    compression: str | None
    dry_run: bool
    no_check: bool
    workers: int | None
    max_record: int
    max_decompressed: int
    root: str | None
    as_json: bool

    @property
    def limits(self) -> Limits:
        """The limits that were asked for."""
        return limits(self.max_record, self.max_decompressed)

    @property
    def virtual(self) -> bool:
        """Whether only the plan of the pairs is to be written."""
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


_SHOWN = 20


def _format_estimate(found: PairEstimate) -> str:
    """`12,000 pairs, about 1.2 MB to write`."""
    most = "at most " if found.most else ""
    return f"{most}{format_count(found.pairs, 'pair')}, about {format_bytes(found.bytes)} to write"


def _serialize_estimate(found: PairEstimate) -> dict[str, Any]:
    """The same for machines; with `most` there may be fewer."""
    return {"pairs": found.pairs, "bytes": found.bytes, "most": found.most}


def _print_features(features: Iterable[str]) -> None:
    """What is in a pair."""
    listed_all = list(features)
    click.echo("a pair has:")
    for feature in listed_all[:_SHOWN]:
        click.echo(f"  {escape_text(feature)}")
    if len(listed_all) > _SHOWN:
        click.echo(f"  … and {len(listed_all) - _SHOWN:,} more; --json lists all")


def _print_incremental_notice(spec: CombineSpec) -> None:
    """Say which options prevent that computed shards are used again."""
    for name in ("limit", "sample"):
        if getattr(spec, name) is not None:
            click.echo(f"  --{name} is not incremental: all is made anew when a side has changed")
    print_unversioned_udfs(spec.functions)


def _combine_files(asked: CombineOptions, output: Path, options: SpecOptions) -> None:
    """Write all pairs to a file, or print how many they would be."""
    from shardline.operations.combine_files import plan_combine_files
    from shardline.pairing.pair_grid import validate_budget

    sides = expand_patterns([asked.left]), expand_patterns([asked.right])
    _validate_output(asked, output, [*sides[0], *sides[1]])
    with show_activity("counting the pairs"), raise_as_usage_error():
        plan = plan_combine_files(*sides, limits=asked.limits, workers=asked.workers, **options)
        estimate = plan.estimate
    if not asked.as_json:
        _print_file_plan(plan, sides, output, whole=asked.dry_run)
    folder = output.absolute().parent
    validate_budget(str(output), estimate, asked.budget_bytes, folder, of_files=True)
    if not asked.dry_run:
        _write_pairs(asked, plan, output)
    elif asked.as_json:
        print_json(add_skipped_files(_serialize_file_plan(plan, output)))
    else:
        print_dry_run_notice()


def _write_pairs(asked: CombineOptions, plan: CombineFilesPlan, output: Path) -> None:
    from shardline.execution.executor import CancellationToken

    began = time.perf_counter()
    cancellation = CancellationToken()
    with show_count_progress("combining") as progress:
        run = partial(
            plan.execute,
            output,
            compression=asked.compression or "none",
            budget_bytes=asked.budget_bytes,
            overwrite=asked.overwrite,
            progress=make_cancellable(progress, cancellation),
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
        _print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    elif whole:
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
        "estimate": _serialize_estimate(plan.estimate),
    }


def _combine_versions(asked: CombineOptions, into: str, options: SpecOptions) -> NoReturn:
    """Make all pairs the content of a version, or print how many they would be."""
    from shardline.operations.combine import plan_combine
    from shardline.pairing.pair_grid import validate_budget
    from shardline.storage.temporary_files import spool_folder

    left, right, target = _open_versions(asked, into)
    more: dict[str, Any] = {} if asked.target_size is None else {"target_bytes": asked.target_size}
    for side, version, text in (("left", left, asked.left), ("right", right, asked.right)):
        wanted = parse_reference(text)
        more[f"{side}_snapshot"] = find_snapshot(version, wanted).number
    with show_activity("counting the pairs"), raise_as_usage_error():
        plan = plan_combine(
            left,
            right,
            target,
            mode=asked.mode,
            compression=asked.compression,
            limits=asked.limits,
            **more,
            **options,
        )
    if not asked.as_json:
        _print_version_plan(plan, target, whole=asked.dry_run)
    validate_budget(target.name, plan.estimate, asked.budget_bytes, spool_folder(target.store))
    if asked.dry_run:
        if asked.as_json:
            print_json(_serialize_version_plan(plan, target))
        else:
            print_dry_run_notice()
        raise SystemExit(0)
    began = time.perf_counter()
    with open_progress_executor(asked.workers) as executor:
        report = plan.execute(budget_bytes=asked.budget_bytes, executor=executor)
    seconds = time.perf_counter() - began
    if not asked.as_json:
        _print_report(report, seconds)
    checked = None
    if report.snapshot is not None and not asked.no_check:
        checked = check_snapshot(
            target, report.snapshot, limits=asked.limits, workers=asked.workers
        )
    if asked.as_json:
        print_json(serialize_derived(report, target, checked, seconds))
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


def _print_version_plan(plan: CombinePlan, into: StoredVersion, *, whole: bool) -> None:
    new = "" if into.exists else ", which is new"
    left, right = (
        f"{side} ({format_count(side.records, 'record')})" for side in (plan.left, plan.right)
    )
    click.echo(f"{left} with {right} → {plan.into}{new}")
    if whole:
        _print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    shards = f"{format_count(plan.compute, 'shard')} to compute, {plan.reuse:,} to use again"
    gone = f", {plan.drop:,} to drop" if plan.drop else ""
    size = f"; {_format_estimate(plan.estimate)}" if plan.compute else ""
    click.echo(f"work: {shards}{gone}{size}")
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
        "estimate": _serialize_estimate(plan.estimate),
    }


def _print_report(report: CombineReport, seconds: float) -> None:
    both = f"{report.left} and {report.right}"
    if report.entry is None:
        click.echo(f"{report.version} follows {both} already: nothing to do")
        return
    if report.created:
        click.echo(f"created {report.version}")
    made = f"{report.version}@{report.snapshot}"
    reused = format_reused_shards(report.recovered, len(report.reused))
    if not report.written:
        again = format_count(len(report.reused), "shard")
        click.echo(f"{made}: follows {both}, and nothing had to be computed: {again} used again")
        return
    click.echo(
        f"{made}: {format_count(len(report.written), 'shard')} computed{reused}; "
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
"""What reads the text of an option that is not the value itself."""


def _load_options(given: dict[str, Any]) -> SpecOptions:
    """Return the options of a CombineSpec that were given, with their functions loaded."""
    loaded: Any = {
        name: _LOADERS[name](value) if name in _LOADERS else value
        for name, value in given.items()
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
@compression_option(None, "  [default: as the version is, files and new ones not]")
@click.option("--dry-run", is_flag=True, help="Show the plan without writing.")
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def combine(**given: Any) -> None:  # noqa: ANN401 - the fields of CombineOptions, and of the spec
    """Pair each record of LEFT with each record of RIGHT.

    LEFT and RIGHT are files (--output) or versions (--into). The number of pairs and their
    estimated size are shown first. Pairs are in the order of nested loops, LEFT outside. In
    versions, this order holds within each pair of shards.

    Exits with 1 if a record is corrupt, a function fails or the check fails. Exits with 2 if both
    sides have a feature of the same name and --on-collision is not given, or if the output exceeds
    the budget. Nothing is written then.
    """
    own = {one.name: given.pop(one.name) for one in fields(CombineOptions)}
    asked = CombineOptions(**own)
    asked.validate()
    options = _load_options(given)
    if asked.output is not None:
        _combine_files(asked, asked.output, options)
    elif asked.into is not None:
        _combine_versions(asked, asked.into, options)
