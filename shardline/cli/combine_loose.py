"""`shardline combine` of loose files."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.aside import run_aside, stoppable
from shardline.cli.combined import estimate_json, estimate_words, print_features
from shardline.cli.errors import UsageError, reported_as_usage
from shardline.cli.json_told import tell_json
from shardline.cli.options import expand
from shardline.cli.outcome import print_not_done
from shardline.cli.progress import at_work, pair_progress
from shardline.cli.skipped import with_skipped
from shardline.paths import real_path
from shardline.text import counted, escaped, human_bytes, rate

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.cli.combine_options import CombineOptions
    from shardline.operations.combine_files import FilesPlan
    from shardline.pairing.spec import Options


def combine_loose(asked: CombineOptions, output: Path, rule: Options) -> None:
    """Write all pairs to one file, or tell how many these would be."""
    from shardline.operations.combine_files import plan_combine_files
    from shardline.pairing.budget import refuse_over_budget

    sides = expand([asked.left]), expand([asked.right])
    _refuse_output(asked, output, [*sides[0], *sides[1]])
    with at_work("counting the pairs"), reported_as_usage():
        plan = plan_combine_files(*sides, limits=asked.limits, workers=asked.workers, **rule)
    if not asked.as_json:
        _print_plan(plan, sides, output, whole=asked.dry_run)
    folder = output.absolute().parent
    refuse_over_budget(str(output), plan.estimate, asked.budget_bytes, folder, of_files=True)
    if asked.dry_run:
        if asked.as_json:
            tell_json(with_skipped(_plan_json(plan, output)))
        else:
            print_not_done()
        return
    _write(asked, sides, output, rule)


def _write(
    asked: CombineOptions, sides: tuple[list[Path], list[Path]], output: Path, rule: Options
) -> None:
    from shardline.execution.executor import Cancellation
    from shardline.operations.combine_files import combine_files

    began = time.perf_counter()
    cancellation = Cancellation()
    with pair_progress("combining") as progress:
        run = partial(
            combine_files,
            *sides,
            output,
            compression=asked.compression or "none",
            budget_bytes=asked.budget_bytes,
            overwrite=asked.overwrite,
            limits=asked.limits,
            workers=asked.workers,
            progress=stoppable(progress, cancellation),
            **rule,
        )
        report = run_aside(run, cancellation)
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
        tell_json(with_skipped(told))
        return
    packed = "" if report.compression.value == "none" else f", {report.compression.value}"
    click.echo(
        f"{escaped(str(output))}: {counted(report.records, 'pair')}, "
        f"{human_bytes(report.bytes)}{packed}"
    )
    click.echo(f"  {rate(report.records, report.bytes, seconds, 'pairs')}")


def _refuse_output(asked: CombineOptions, output: Path, paths: list[Path]) -> None:
    if output.is_dir():
        raise UsageError(
            f"{output} is a folder", code="output-is-folder", hint="name a file", path=output
        )
    if real_path(output) in set(map(real_path, paths)):
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


def _print_plan(
    plan: FilesPlan, sides: tuple[list[Path], list[Path]], output: Path, *, whole: bool
) -> None:
    left, right = (
        f"{_shown(paths)} ({counted(records, 'record')})"
        for paths, records in zip(sides, (plan.left, plan.right), strict=True)
    )
    click.echo(f"{left} with {right} → {escaped(str(output))}")
    if whole and plan.schema is not None:
        print_features(f"{feature.name}: {feature}" for feature in plan.schema.features)
    elif whole:
        print_features(plan.features)
    click.echo(f"work: {estimate_words(plan.estimate)}")


def _shown(paths: list[Path]) -> str:
    return escaped(str(paths[0])) if len(paths) == 1 else counted(len(paths), "file")


def _plan_json(plan: FilesPlan, output: Path) -> dict[str, Any]:
    return {
        "ok": True,
        "dry_run": True,
        "output": str(output),
        "left": plan.left,
        "right": plan.right,
        "features": list(plan.features),
        "schema": plan.schema and plan.schema.to_json(),
        "estimate": estimate_json(plan.estimate),
    }
