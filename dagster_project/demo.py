"""What `make run` shows: the demo pipeline in Dagster, then the command line on its files."""

import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import dagster as dg
from rich.console import Console

from assets import DemoFolder
from dagster_project.definitions import defs

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
DAMAGED_BYTES = 100


def run_pipeline(instance: dg.DagsterInstance, console: Console) -> bool:
    """Run the demo job, print what it recorded, and say whether it succeeded."""
    result = defs.resolve_job_def("demo").execute_in_process(
        instance=instance, run_config=QUIET, raise_on_error=False
    )
    for event in result.get_asset_materialization_events():
        facts = event.materialization.metadata
        console.print(
            f"asset [bold]{event.materialization.label}[/bold]: "
            f"{facts['dagster/row_count'].value} records in {facts['files'].value} files, "
            f"{facts['bytes'].value} bytes"
        )
    for evaluation in result.get_asset_check_evaluations():
        verdict = "[green]passed[/green]" if evaluation.passed else "[red]failed[/red]"
        console.print(
            f"check [bold]{evaluation.check_name}[/bold]: {verdict}, {evaluation.description}"
        )
    outcome = "succeeded" if result.success else "FAILED"
    console.print(f"run {result.run_id} {outcome}; see it with: make ui")
    return result.success


def damaged_copy(source: Path, folder: Path) -> Path:
    """Copy a file into an emptied folder and zero a few bytes in the middle of the copy."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copy = folder / source.name
    content = bytearray(source.read_bytes())
    middle = len(content) // 2
    content[middle : middle + DAMAGED_BYTES] = bytes(DAMAGED_BYTES)
    copy.write_bytes(content)
    return copy


def show(console: Console, *arguments: str | Path, expected: int = 0) -> bool:
    """Run the `shardline` command in view, and say whether it ended as expected."""
    words = [_short(argument) for argument in arguments]
    console.print(f"\n[bold cyan]$ shardline {shlex.join(words)}[/bold cyan]", highlight=False)
    command = Path(sysconfig.get_path("scripts"), "shardline")
    code = subprocess.run([command, *words], check=False).returncode  # noqa: S603 - our own command
    if code != expected:
        console.print(f"[red]ended with {code}, expected {expected}[/red]")
    elif expected:
        console.print(f"(exit code {code}, as it should be)")
    return code == expected


def _short(argument: str | Path) -> str:
    if isinstance(argument, Path) and argument.is_relative_to(Path.cwd()):
        return str(argument.relative_to(Path.cwd()))
    return str(argument)


def main() -> int:
    """Run the whole demo; 0 if every part of it ended as it should."""
    console = Console(soft_wrap=True)
    folder = DemoFolder()
    with dg.DagsterInstance.get() as instance:
        if not run_pipeline(instance, console):
            return 1
    files = folder.loose_files
    as_expected = [
        show(console, "verify", files[0].parent),
        show(console, "schema", files[0].parent),
        show(console, "head", "-n", "2", files[0]),
    ]
    damaged = damaged_copy(files[0], folder.root / "damaged")
    console.print(f"\nZeroed {DAMAGED_BYTES} bytes in the middle of a copy of {files[0].name}.")
    salvaged = damaged.with_name("salvaged.tfrecord")
    as_expected += [
        show(console, "verify", damaged, expected=1),
        show(console, "salvage", damaged, salvaged),
        show(console, "verify", salvaged),
    ]
    return 0 if all(as_expected) else 1


if __name__ == "__main__":
    sys.exit(main())
