"""The fault demo, `make demo-fault`: bad data is stopped and blocks nothing else."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import dagster as dg
import numpy as np

from assets.digits import LANDING_FOLDERS
from dagster_project.demo_batches import (
    FILES,
    FOLDERS,
    Digit,
    all_digits,
    as_table,
    write_file,
    write_folder,
    write_parquet,
)
from dagster_project.demo_runs import Demo, DemoRun
from shardline.dagster.checks.log_checks import SOURCES
from shardline.dagster.web.process_group import handle_signals
from shardline.dagster.web.ui import CommandError, require_dagster_home
from shardline.errors import ShardlineError
from shardline.hints import Hint
from shardline.operations.example_file import write_examples
from shardline.operations.landing_folder import scan_landing_folders
from shardline.operations.rejected_sources import dismiss, open_sources
from shardline.storage.temporary_files import scratch_folder
from shardline.text import format_count

_DIGITS = 120
_ENLARGED = 8


def land_corrupt(name: str, digits: list[Digit]) -> Path:
    """Land a TFRecord file with the right schema and a flipped bit."""
    with scratch_folder("shardline-demo") as folder:
        sound = folder / "sound.tfrecord"
        write_examples(sound, as_table(digits))
        content = bytearray(sound.read_bytes())
    content[len(content) // 2] ^= 1
    path = FILES / f"{name}-damaged.tfrecord"
    write_file(path, bytes(content))
    return path


def land_other_schema(name: str, digits: list[Digit]) -> Path:
    """Land a Parquet file in which `image` is named `picture`, with an additional column."""
    table = as_table(digits).rename_columns({"image": "picture"})
    path = FILES / f"{name}-other-schema.parquet"
    write_parquet(path, table.append_column("writer", [[digit.number % 43 for digit in digits]]))
    return path


def land_too_large(name: str, digits: list[Digit]) -> Path:
    """Land a folder of images of 64 x 64 pixels, which fit the schema and fail the checks."""
    block = np.ones((_ENLARGED, _ENLARGED), np.uint8)
    path = FOLDERS / f"{name}-too-large"
    write_folder(path, [replace(digit, pixels=np.kron(digit.pixels, block)) for digit in digits])
    return path


def land_good(name: str, digits: list[Digit]) -> Path:
    """Land a folder of digits that are shifted by a pixel: new content, and valid."""
    path = FOLDERS / f"{name}-good"
    write_folder(
        path, [replace(digit, pixels=np.roll(digit.pixels, 1, axis=1)) for digit in digits]
    )
    return path


@dataclass(frozen=True, slots=True)
class Scene:
    """A source that lands, and the check `refused_by` that must fail, None if none may."""

    title: str
    land: Callable[[str, list[Digit]], Path]
    refused_by: str | None
    look_at: str


SCENES = (
    Scene(
        "A corrupt TFRecord file: one flipped bit",
        land_corrupt,
        SOURCES,
        "digits_v1, Checks, sources_accepted: red, with file, record and offset in the table. It "
        "stays red until the file is replaced or dismissed.",
    ),
    Scene(
        "A Parquet file of another schema: one renamed and one additional column",
        land_other_schema,
        SOURCES,
        "digits_v1, Checks, sources_accepted: red, with the difference by feature.",
    ),
    Scene(
        "Images that are too large: they fit the schema and fail the checks",
        land_too_large,
        "expectations",
        "digits_v1, Checks, expectations: red, with a table of all expectations and the Data Docs "
        "page. The snapshot was rejected: the next one is without these images.",
    ),
    Scene(
        "A valid batch: digits shifted by a pixel",
        land_good,
        None,
        "the graph: all green, and all versions derived from digits_v1 are new.",
    ),
)


def play_scene(demo: Demo, scene: Scene) -> list[str]:
    """Land a source, run the assets and return problems."""
    if scene.refused_by is None:
        report = dismiss(demo.appended, open_sources(demo.appended).all, reason="make demo-fault")
        demo.say(f"Dismissed {format_count(len(report.dismissed), 'rejected source')}.\n", "bold")
    # Entries are never removed, so their number gives an unused name and seed.
    entries = demo.appended.state.number
    digits = random.Random(entries).sample(all_digits(), _DIGITS)  # noqa: S311 - no secret
    before = demo.single.published()
    landed = scene.land(f"fault-{entries}", sorted(digits, key=lambda digit: digit.number))
    demo.say(f"{scene.title}\n  {landed}", "bold")
    run = demo.run(landed, log_level="CRITICAL")
    demo.show(run)
    after = demo.single.published()
    is_changed = after.content != before.content
    unchanged = f"unchanged: readers still get {after}"
    demo.say(f"  Downstream {f'updated: {before} became {after}' if is_changed else unchanged}.")
    demo.say(f"  In the UI: {scene.look_at}\n")
    return list(_list_problems(scene, run, is_changed=is_changed))


def _list_problems(scene: Scene, run: DemoRun, *, is_changed: bool) -> Iterator[str]:
    if scene.refused_by is None:
        yield from (f"{scene.title}: {check} failed" for check in run.failed)
        if not is_changed:
            yield f"{scene.title}: digits_single did not change"
        return
    if f"{scene.refused_by} of digits_v1" not in run.failed:
        yield f"{scene.title}: {scene.refused_by} of digits_v1 should fail"
    yield from (
        f"{scene.title}: {check} failed" for check in run.failed if not check.endswith("digits_v1")
    )
    if is_changed:
        yield f"{scene.title}: digits_single changed"


def run_faults(demo: Demo) -> list[str]:
    """Play all scenes on a demo that is up to date. Returns problems."""
    if (
        not demo.appended.exists
        or scan_landing_folders(demo.appended, LANDING_FOLDERS).new
        or demo.list_problems()
    ):
        problem = ShardlineError(
            "the demo has no published snapshots, or sources to append",
            code="demo-not-ready",
            hint=Hint.of("run `make run` first"),
        )
        raise CommandError(problem)
    return [
        problem_line for scene in SCENES for problem_line in play_scene(demo, scene)
    ] + demo.list_problems()


@click.command()
def main() -> None:
    """Land bad data. The exit code is 0 if the checks stop it and let valid data through."""
    require_dagster_home()
    handle_signals()
    with dg.DagsterInstance.get() as instance:
        demo = Demo(instance)
        problems = run_faults(demo)
        for problem in problems:
            demo.say(f"problem: {problem}", "bold red")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
