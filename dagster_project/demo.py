"""The demo, `make run`: appends batches, derives versions from them and trains a model."""

import shlex
import sysconfig
from pathlib import Path

import click
import dagster as dg

from assets.digits import DEMO, EXPORT, LANDING, LANDING_FOLDERS
from dagster_project.demo_batches import BATCHES, extra_batch
from dagster_project.demo_runs import Demo, DemoRun, relativize_paths
from dagster_project.demo_training import MIN_ACCURACY, MODEL, count_records, train_model
from shardline.api import Snapshot
from shardline.cli.output import Table
from shardline.dagster import metadata_keys as keys
from shardline.dagster.resources import ROOT_VARIABLE, shardline_resource
from shardline.dagster.web.process_group import handle_signals
from shardline.dagster.web.ui import require_dagster_home
from shardline.operations.landing_folder import scan_landing_folders
from shardline.text import format_bytes, format_count

_MAX_PAIRS = 5_000_000


def run_demo(demo: Demo, extra_rows: int = 0) -> list[str]:
    """Land the missing batches, run the assets and print a summary. Returns problems."""
    batches = [*BATCHES, *([extra_batch(extra_rows)] if extra_rows else [])]
    waiting = [batch for batch in batches if not batch.path.exists()]
    scan = scan_landing_folders(demo.appended, LANDING_FOLDERS)
    if not waiting and not scan.new and not demo.list_problems() and demo.is_materialized():
        print_up_to_date(demo, scan.known)
        return []
    problems = []
    if scan.new or not waiting:
        problems += run_and_show(demo, f"New files in {LANDING}")
    for batch in waiting:
        batch.land()
        position = f"{batches.index(batch) + 1} of {len(batches)}"
        problems += run_and_show(
            demo, f"Batch {position}: {batch.description}\n  {batch.path}", batch.path
        )
    problems += demo.list_problems()
    return problems or print_summary(demo)


def run_and_show(demo: Demo, title: str, source: Path | None = None) -> list[str]:
    """Materialize all assets, print the results under a title, and return problems."""
    demo.say(title, "bold")
    run = demo.run(source)
    demo.show(run)
    demo.say()
    label = f"run {run.run_id[:8]}"
    return [f"{label}: {check} failed" for check in run.failed] or (
        [] if run.success else [f"{label} failed, see it in make ui"]
    )


def print_summary(demo: Demo) -> list[str]:
    """Read the published versions with TensorFlow, audit them, and print their status."""
    snapshot = demo.appended.published()
    demo.say(f"Train a Keras model on {snapshot}, read as tf.data", "bold")
    trained = train_model(snapshot)
    demo.say(
        f"  accuracy {trained.accuracy:.1%} on {trained.held_out} held-out digits, after "
        f"{trained.seconds:.1f} s of training on {trained.learned:,}\n"
        f"  {MODEL} is recorded as a consumer of {snapshot.version}, so vacuum keeps the snapshot\n"
    )
    overlay = demo.extended.published()
    demo.say(f"Read the overlay {overlay}: only the new features are read", "bold")
    demo.say(f"  mean brightness, darkest first: {_format_brightness(overlay)}\n")
    pairs = demo.pairs.published()
    demo.say(
        f"Read {pairs}, a plan of {format_bytes(pairs.bytes)}: pairs are computed while reading",
        "bold",
    )
    read_pairs, equal_pairs = _count_equal_pairs(pairs)
    prefix = "" if read_pairs == pairs.records else f"first {read_pairs:,} of "
    demo.say(
        f"  {prefix}{pairs.records:,} pairs: {equal_pairs / read_pairs:.1%} show the same digit\n"
    )
    audit = demo.audit()
    demo.say("Audit the history of all versions", "bold")
    demo.say(f"  {_format_audit(audit)}\n")
    demo.say("Status", "bold")
    _create_status_table(demo).print()
    exported = count_records(EXPORT)
    demo.say(f"\n  {EXPORT}: tf.data.TFRecordDataset reads {exported:,} records")
    demo.say("\nNext steps", "bold")
    for command, purpose in _list_next_commands():
        demo.say(f"  {command:34} {purpose}")
    problems = [] if audit.success and not audit.failed else ["the audit has findings"]
    if trained.accuracy < MIN_ACCURACY:
        problems.append(
            f"model accuracy {trained.accuracy:.1%}: expected at least {MIN_ACCURACY:.0%}"
        )
    if exported != snapshot.records:
        problems.append(f"{EXPORT}: {exported} records, but {snapshot} has {snapshot.records}")
    return problems


def print_up_to_date(demo: Demo, known: int) -> None:
    """Print that nothing is new."""
    published = (version.published() for version in demo.versions)
    sizes = ", ".join(
        f"{snapshot} with {format_count(snapshot.records, 'row')}" for snapshot in published
    )
    demo.say(f"Up to date: {format_count(known, 'known source')} in {LANDING}. Published: {sizes}.")
    demo.say("Next: run make ui or make demo-fault.")


def _create_status_table(demo: Demo) -> Table:
    numbers = ("snapshot", "rows", "bytes", "shards")
    table = Table("  version", *numbers, "digest", right=numbers)
    for version in demo.versions:
        snapshot = version.published()
        table.add_row(
            f"  {version.name}",
            str(snapshot.number),
            f"{snapshot.records:,}",
            format_bytes(snapshot.bytes),
            str(len(snapshot.shards)),
            snapshot.content[:12],
        )
    return table


def _format_audit(run: DemoRun) -> str:
    """Return the number of findings and the path of the report page."""
    metadata = next(iter(run.materializations.values()), None)
    if metadata is None:
        return "failed, see the run in make ui"
    findings = metadata[keys.ERRORS] + metadata[keys.WARNINGS]
    result = format_count(findings, "finding") if findings else "no findings"
    return (
        f"{format_count(metadata[keys.ENTRIES], 'log entry', 'log entries')} and "
        f"{format_count(metadata[keys.SHARDS], 'shard')}: {result}. Report: {metadata[keys.FILE]}"
    )


def _format_brightness(snapshot: Snapshot) -> str:
    """Return the mean brightness of the digits by name. Only files of the overlay are read."""
    import pandas as pd  # noqa: PLC0415 - not where nothing is new

    table = pd.concat(snapshot.to_pandas(columns=["label_name", "brightness"]))
    means = table.groupby("label_name")["brightness"].mean().sort_values()
    return ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())


def _count_equal_pairs(snapshot: Snapshot) -> tuple[int, int]:
    """Return the number of pairs that were read, and of those with equal labels."""
    import pyarrow.compute as pc  # noqa: PLC0415 - not where nothing is new

    count = same = 0
    for batch in snapshot.to_arrow(["a_label", "b_label"]):
        count += batch.num_rows
        same += pc.sum(pc.equal(batch["a_label"], batch["b_label"])).as_py()
        if count >= _MAX_PAIRS:
            break
    return count, same


def _list_next_commands() -> list[tuple[str, str]]:
    """Return commands to run next, each with its purpose."""
    shardline = relativize_paths(str(Path(sysconfig.get_path("scripts"), "shardline")))
    root = shlex.quote(relativize_paths(shardline_resource().root))
    return [
        ("make ui", "graph, checks and plots of these runs"),
        ("make demo-fault", "land a corrupt file and other bad data"),
        (f"export {ROOT_VARIABLE}={root}", "for the command line"),
        (f"{shardline} status", "published and blocked snapshots"),
        (f"{shardline} log digits/v1", "history of a version"),
    ]


@click.command()
@click.option(
    "--extra-rows",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Land N more rows in another Parquet file.",
)
def main(extra_rows: int) -> None:
    """Run the demo. The exit code is 0 if all is well."""
    require_dagster_home()
    handle_signals()
    with dg.DagsterInstance.get() as instance:
        demo = Demo(instance)
        problems = run_demo(demo, extra_rows)
        for problem in problems:
            demo.say(f"problem: {problem}", "bold red")
        if problems:
            demo.say(f"To start over: rm -r {shlex.quote(relativize_paths(str(DEMO)))}")
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
