"""What `make run` shows: batches land, Dagster makes versions of them, and a model reads these."""

import shlex
import sysconfig
from pathlib import Path

import click
import dagster as dg
from rich.table import Table

from assets.digits import DEMO, EXPORT, LANDING, LOOKED_AT
from dagster_project.demo_batches import BATCHES, extra_batch
from dagster_project.demo_runs import Demo, DemoRun, relativize_paths
from dagster_project.demo_training import MIN_ACCURACY, MODEL, count_records, train_model
from shardline.api import Snapshot
from shardline.cli.output import create_table
from shardline.dagster.resources import ROOT_VARIABLE, shardline_resource
from shardline.dagster.web.process_group import handle_signals
from shardline.dagster.web.ui import require_dagster_home
from shardline.operations.landing_folder import scan_landing_folders
from shardline.text import format_bytes, format_count

_MAX_PAIRS = 5_000_000


def run_demo(demo: Demo, extra_rows: int = 0) -> list[str]:
    """Land what has not landed, run it, and sum up; gives what is not as it should be."""
    batches = [*BATCHES, *([extra_batch(extra_rows)] if extra_rows else [])]
    waiting = [batch for batch in batches if not batch.path.exists()]
    found = scan_landing_folders(demo.growing, LOOKED_AT)
    if not waiting and not found.new and not demo.amiss() and demo.is_told():
        print_up_to_date(demo, found.known)
        return []
    amiss = []
    if found.new or not waiting:
        amiss += run_and_show(demo, f"What lies in {LANDING} already")
    for batch in waiting:
        batch.land()
        of = f"{batches.index(batch) + 1} of {len(batches)}"
        amiss += run_and_show(demo, f"Batch {of}: {batch.said}\n  {batch.path}", batch.path)
    amiss += demo.amiss()
    return amiss or print_summary(demo)


def run_and_show(demo: Demo, title: str, landed: Path | None = None) -> list[str]:
    """Materialize everything, tell of it under a title, and give what failed."""
    demo.say(title, "bold")
    ran = demo.run(landed)
    demo.show(ran)
    demo.say()
    run = f"run {ran.run_id[:8]}"
    return [f"{run}: {check} failed" for check in ran.failed] or (
        [] if ran.success else [f"{run} failed: make ui shows why"]
    )


def print_summary(demo: Demo) -> list[str]:
    """Let TensorFlow read what is published, and tell how everything stands."""
    snapshot = demo.growing.published()
    demo.say(f"A Keras model learns from {snapshot}, as tf.data reads it", "bold")
    trained = train_model(snapshot)
    demo.say(
        f"  {trained.accuracy:.1%} of {trained.held_out} held-out digits are told right, after "
        f"{trained.seconds:.1f} s with {trained.learned:,} others.\n"
        f"  The log of {snapshot.version} knows that {MODEL} read it, and vacuum keeps it.\n"
    )
    overlay = demo.extended.published()
    demo.say(f"{overlay} is an overlay: only what is new in it is read here", "bold")
    demo.say(f"  Mean brightness, the darkest first: {_format_brightness(overlay)}.\n")
    pairs = demo.pairs.published()
    demo.say(f"{pairs} is a plan of {format_bytes(pairs.bytes)}: its pairs are made here", "bold")
    count, same = _count_equal_pairs(pairs)
    which = "" if count == pairs.records else f"the first {count:,} of "
    demo.say(f"  Of {which}{pairs.records:,} pairs, {same / count:.1%} show the same digit.\n")
    audit = demo.audit()
    demo.say("The history of all of it is proved anew", "bold")
    demo.say(f"  {_format_audit(audit)}\n")
    demo.say("How everything stands", "bold")
    demo.console.print(_create_status_table(demo))
    read = count_records(EXPORT)
    demo.say(
        f"\n  {EXPORT} is all of it in one file: tf.data.TFRecordDataset reads {read:,} records."
    )
    demo.say("\nWhat to do next", "bold")
    for command, why in _list_next_commands():
        demo.say(f"  {command:34} {why}")
    amiss = [] if audit.success and not audit.failed else ["the audit found something"]
    if trained.accuracy < MIN_ACCURACY:
        amiss.append(
            f"the model is right in {trained.accuracy:.1%} only, not in {MIN_ACCURACY:.0%}"
        )
    if read != snapshot.records:
        amiss.append(f"{EXPORT} has {read} records, and {snapshot} has {snapshot.records}")
    return amiss


def print_up_to_date(demo: Demo, known: int) -> None:
    """Two lines, for the second time."""
    published = (version.published() for version in demo.versions)
    told = ", ".join(f"{one} with {format_count(one.records, 'row')}" for one in published)
    demo.say(
        f"Nothing is new: {format_count(known, 'source')} in {LANDING} are known. Published "
        f"are {told}."
    )
    demo.say("See them with make ui; make demo-fault lands what must not get through.")


def _create_status_table(demo: Demo) -> Table:
    numbers = ("snapshot", "rows", "bytes", "shards")
    table = create_table("  version", *numbers, "digest", right=numbers)
    for version in demo.versions:
        told = version.published()
        table.add_row(
            f"  {version.name}",
            str(told.number),
            f"{told.records:,}",
            format_bytes(told.bytes),
            str(len(told.shards)),
            told.content[:12],
        )
    return table


def _format_audit(ran: DemoRun) -> str:
    """What the audit found, and where its page is."""
    told = next(iter(ran.made.values()), None)
    if told is None:
        return "It failed: make ui shows why."
    found = told["errors"] + told["warnings"]
    what = format_count(found, "finding") if found else "nothing is other than it should be"
    return (
        f"{format_count(told['entries'], 'log entry', 'log entries')} and "
        f"{format_count(told['shards'], 'shard')}: {what}. The page of it: {told['file']}"
    )


def _format_brightness(snapshot: Snapshot) -> str:
    """How bright the digits are, by their names: only the files of the overlay are read."""
    import pandas as pd  # noqa: PLC0415 - not where nothing is new

    table = pd.concat(snapshot.to_pandas(columns=["label_name", "brightness"]))
    means = table.groupby("label_name")["brightness"].mean().sort_values()
    return ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())


def _count_equal_pairs(snapshot: Snapshot) -> tuple[int, int]:
    """Count pairs and those of the same digit: only labels are read, and not billions of pairs."""
    import pyarrow.compute as pc  # noqa: PLC0415 - not where nothing is new

    count = same = 0
    for batch in snapshot.to_arrow(["a_label", "b_label"]):
        count += batch.num_rows
        same += pc.sum(pc.equal(batch["a_label"], batch["b_label"])).as_py()
        if count >= _MAX_PAIRS:
            break
    return count, same


def _list_next_commands() -> list[tuple[str, str]]:
    """Commands to go on with, and what each is good for."""
    shardline = relativize_paths(str(Path(sysconfig.get_path("scripts"), "shardline")))
    root = shlex.quote(relativize_paths(shardline_resource().root))
    return [
        ("make ui", "the graph, the checks and the plots of these runs"),
        ("make demo-fault", "a damaged file, and others that must not get through"),
        (f"export {ROOT_VARIABLE}={root}", "for the command line:"),
        (f"{shardline} status", "what is published, and what is not"),
        (f"{shardline} log digits/v1", "all that happened to a version"),
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
    """Run the demo; the code is 0 if everything is as it should be."""
    require_dagster_home()
    handle_signals()
    with dg.DagsterInstance.get() as instance:
        demo = Demo(instance)
        amiss = run_demo(demo, extra_rows)
        for one in amiss:
            demo.say(f"Not as it should be: {one}", "bold red")
        if amiss:
            demo.say(f"To begin anew: rm -r {shlex.quote(relativize_paths(str(DEMO)))}")
    raise SystemExit(1 if amiss else 0)


if __name__ == "__main__":
    main()
