"""`shardline extend` and `shardline migrate` of a loose file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.aside import run_aside, stoppable
from shardline.cli.changed import print_steps
from shardline.cli.differences import print_changes
from shardline.cli.errors import UsageError, reported_as_usage
from shardline.cli.json_forms import fields_json
from shardline.cli.json_told import tell_json
from shardline.cli.options import expand_one
from shardline.cli.outcome import print_not_done
from shardline.cli.progress import file_progress
from shardline.text import counted, escaped, human_bytes, rate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.cli.change_options import ChangeOptions
    from shardline.operations.change_files import FileChange
    from shardline.schema.comparison import SchemaDiff
    from shardline.schema.schema import Schema
    from shardline.udf.transform import Transform


def change_loose(
    asked: ChangeOptions,
    output: Path,
    transform: Callable[[Schema], Transform],
    verb: tuple[str, str],
    steps: list[str] | None = None,
) -> None:
    """Write what `transform` makes of the records of a file, or tell what that would be.

    `verb` is what is being done, and what was. A migration is told by its `steps`, which are shown
    before it is done.
    """
    _Change(asked, output, transform, *verb, steps).run()


@dataclass(frozen=True, slots=True)
class _Change:
    asked: ChangeOptions
    output: Path
    transform: Callable[[Schema], Transform]
    doing: str
    done: str
    steps: list[str] | None

    def run(self) -> None:
        from shardline.operations.change_files import nothing_to_change
        from shardline.udf.transform import refuse_doubling

        path = expand_one(self.asked.argument)
        self._refuse_output(path)
        records, schema = self._schema_of(path)
        with reported_as_usage():
            transform = self.transform(schema) if records else nothing_to_change()
            refuse_doubling(transform)
        if not self.asked.as_json and (self.asked.dry_run or self.steps is not None):
            self._print_plan(path, transform, records)
        if self.asked.dry_run:
            if self.asked.as_json:
                tell_json(self._plan_json(path, transform, records))
            else:
                print_not_done()
            return
        began = time.perf_counter()
        # What a table is joined by, or a function reads, is looked for when the work begins.
        with reported_as_usage():
            change = self._change(path, transform)
        seconds = time.perf_counter() - began
        if self.asked.as_json:
            tell_json(self._done_json(change, transform, seconds))
        else:
            self._print_done(path, change, seconds)

    def _refuse_output(self, path: Path) -> None:
        output = self.output
        if output.is_dir():
            raise UsageError(
                f"{output} is a folder", code="output-is-folder", hint="name a file", path=output
            )
        if output.exists() and output.samefile(path):
            raise UsageError(
                f"{output} is the input file",
                code="output-is-input",
                hint="write to another file",
                path=output,
            )
        if output.exists() and not self.asked.overwrite:
            raise UsageError(
                f"{output} exists already",
                code="file-exists",
                hint="choose another name or add `--overwrite`",
                path=output,
            )

    def _schema_of(self, path: Path) -> tuple[int, Schema]:
        """How many records a file has, and the schema that they suggest."""
        from shardline.schema.file_inference import infer_schema, schema_of

        with file_progress("finding the schema", [path]) as progress:
            report = infer_schema(
                [path], limits=self.asked.limits, workers=self.asked.workers, progress=progress
            )
        return report.merged.records, schema_of(report.merged)

    def _change(self, path: Path, transform: Transform) -> FileChange:
        from shardline.execution.executor import Cancellation
        from shardline.operations.change_files import change_file
        from shardline.operations.refused import MEND, MEND_CAST

        cancellation = Cancellation()
        with file_progress(self.doing, [path]) as progress:
            run = partial(
                change_file,
                path,
                self.output,
                transform,
                advice=MEND if self.steps is None else MEND_CAST,
                compression=self.asked.compression,
                overwrite=self.asked.overwrite,
                limits=self.asked.limits,
                workers=self.asked.workers,
                progress=partial(stoppable(progress, cancellation), path),
            )
            return run_aside(run, cancellation)

    def _plan_json(self, path: Path, transform: Transform, records: int) -> dict[str, Any]:
        return {
            "ok": True,
            "dry_run": True,
            "output": str(self.output),
            "fields": fields_json(_changes(transform)),
            "schema": transform.after.to_json(),
            "records": records,
            "read_bytes": path.stat().st_size,
            "write_bytes": self.asked.writes(path.stat().st_size),
        }

    def _print_plan(self, path: Path, transform: Transform, records: int) -> None:
        click.echo(f"{escaped(str(path))} → {escaped(str(self.output))}")
        if self.steps is not None:
            print_steps(self.steps)
        print_changes(_changes(transform))
        reads = path.stat().st_size
        click.echo(f"work: {counted(records, 'record')}, {human_bytes(reads)} to read")
        if (size := self.asked.writes(reads)) is not None:
            new = "" if self.steps is not None else ", and the new fields"
            click.echo(f"to write: about {human_bytes(size)}{new}")

    def _done_json(
        self, change: FileChange, transform: Transform, seconds: float
    ) -> dict[str, Any]:
        return {
            "ok": True,
            "dry_run": False,
            "output": str(change.file),
            "fields": fields_json(_changes(transform)),
            "schema": transform.after.to_json(),
            "records": change.records,
            "bytes": change.bytes,
            "compression": change.compression.value,
            "seconds": round(seconds, 6),
        }

    def _print_done(self, path: Path, change: FileChange, seconds: float) -> None:
        packed = "" if change.compression.value == "none" else f", {change.compression.value}"
        click.echo(
            f"{escaped(str(path))} {self.done} into {escaped(str(change.file))}: "
            f"{counted(change.records, 'record')}, {human_bytes(change.bytes)}{packed}"
        )
        if change.records:
            click.echo(f"  {rate(change.records, change.bytes, seconds)}")
        else:
            click.echo(f"  {escaped(str(path))} has no records, so there was nothing to change")


def _changes(transform: Transform) -> SchemaDiff:
    from shardline.schema.comparison import compare

    return compare(transform.before, transform.after)
