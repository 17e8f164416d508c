"""`shardline verify` of a dataset's snapshot."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.checked import failure_lines
from shardline.cli.errors import render_command, render_hint
from shardline.cli.json_forms import shard_report_json, snapshot_json
from shardline.cli.progress import byte_progress
from shardline.cli.references import (
    find_snapshot,
    next_command,
    open_root,
    refuse_missing,
)
from shardline.text import counted, escaped, human_bytes

if TYPE_CHECKING:
    from shardline.cli.references import Reference
    from shardline.log.snapshot import StoredSnapshot
    from shardline.operations.inspect import ShardReport
    from shardline.operations.verify_log import LogReport
    from shardline.operations.verify_version import VersionReport
    from shardline.tfrecord import Limits

_SHOWN_PROBLEMS = 20


def verify_one(
    root: str | None, reference: Reference, *, quick: bool, limits: Limits, workers: int | None
) -> tuple[VersionReport, float]:
    """Verify what a reference means; gives also how many seconds that took."""
    from shardline.errors import DamagedLogError, VersionMissingError
    from shardline.log.version import StoredVersion
    from shardline.operations.verify_version import bytes_to_verify, verify_version

    store = open_root(root)
    version = StoredVersion(store, reference.version)
    began = time.perf_counter()
    try:
        total = bytes_to_verify(find_snapshot(version, reference)) if version.exists else 0
    except DamagedLogError:
        total = 0  # the report tells what is wrong
    with byte_progress("verifying", 0 if quick else total) as progress:
        try:
            report = verify_version(
                version,
                reference.which,
                quick=quick,
                limits=limits,
                workers=workers,
                progress=lambda shard, position: progress(shard.name, position),
            )
        except VersionMissingError:
            refuse_missing(store, reference.version)
    return report, time.perf_counter() - began


def version_json(reference: Reference, report: VersionReport) -> dict[str, Any]:
    """What was found, for machines."""
    log = report.log
    return {
        "version": reference.version,
        "ok": report.ok,
        "snapshot": report.snapshot and snapshot_json(report.snapshot),
        "log": log
        and {
            "entries": log.entries,
            "checkpoints": log.checkpoints,
            "problems": [asdict(problem) for problem in log.problems],
        },
        "shards": [shard_report_json(shard) for shard in report.shards],
        "bases": [shard_report_json(shard) for shard in report.bases],
        "vacuumed": list(report.vacuumed),
    }


def print_version(reference: Reference, report: VersionReport, seconds: float) -> None:
    """What was found, for people."""
    if report.log is not None:
        _print_log(reference.version, report.log)
    _print_shards(report)
    snapshot = report.snapshot
    if snapshot is None:
        click.echo(
            f"{reference}: the log is too damaged to tell which shards there are; get the damaged\n"
            "entries back from a copy of the root"
        )
        return
    total = snapshot.bytes + sum(base.shard.bytes for base in report.bases)
    looked = f"in {seconds:.2f} s"
    if report.log is not None:
        looked += f" ({human_bytes(total / max(seconds, 1e-9))}/s)"
    bases = f"{_summed(report, report.bases, 'base shard')}; " if report.bases else ""
    click.echo(
        f"{snapshot}: {_summed(report, report.shards, 'shard')}; {bases}"
        f"{counted(snapshot.records, 'record')}, {human_bytes(total)} {looked}"
    )
    _print_indexes(snapshot, report)
    _print_advice(snapshot, report)


def _print_indexes(snapshot: StoredSnapshot, report: VersionReport) -> None:
    """Show the indexes that do not fit their shards, and what writes them again."""
    wrong = [one for one in (*report.shards, *report.bases) if one.index_problem]
    for one in wrong[:_SHOWN_PROBLEMS]:
        click.echo(f"{click.style('INDEX  ', fg='red')} {escaped(one.index_problem)}")
    if len(wrong) > _SHOWN_PROBLEMS:
        click.echo(f"        … and {counted(len(wrong) - _SHOWN_PROBLEMS, 'more such index')}")
    for version in dict.fromkeys(_owner(one) for one in wrong):
        command = next_command("repair", version)
        click.echo(
            f"The records of {snapshot} are intact. To write the indexes again:\n  {command}"
        )


def _summed(report: VersionReport, shards: list[ShardReport], noun: str) -> str:
    """How many shards there are, how many are damaged, and if any are gone or wrong, so many."""
    states = Counter(_state(report, one) for one in shards)
    more = "".join(f", {states[state]} {state}" for state in ("wrong", "gone") if states[state])
    return f"{counted(len(shards), noun)}, {states['damaged']} damaged{more}"


def _state(report: VersionReport, shard: ShardReport) -> str:
    """A shard is `wrong` that is the file which was committed, with records that do not fit."""
    if shard.shard.name in report.vacuumed:
        return "gone"
    if shard.problems:
        return "damaged"
    return "wrong" if shard.violations else "ok"


def _print_advice(snapshot: StoredSnapshot, report: VersionReport) -> None:
    from shardline.readers.read_errors import advice_below

    if report.vacuumed:
        click.echo(f"What is gone went to vacuum: nothing kept {snapshot} any longer")
    bad = [one for one in report.shards if not one.ok and _state(report, one) != "gone"]
    if bad:
        command = next_command("check", str(snapshot), "--again")
        click.echo(f"Nothing was changed. To write it to the log, and unpublish it:\n  {command}")
    spoiled = [one for one in report.bases if _state(report, one) in {"damaged", "wrong"}]
    _print_anew(snapshot, [one for one in bad if one.problems], lies_on=bool(spoiled))
    for one in {_owner(one): one for one in spoiled}.values():
        way = advice_below(snapshot.store, str(snapshot), _owner(one), one.shard)
        click.echo(f"{_owner(one)} has damaged base shards. {render_hint(way)}")


def _print_anew(snapshot: StoredSnapshot, damaged: list[ShardReport], *, lies_on: bool) -> None:
    """What makes shards of a snapshot anew, or what to do if nothing does that for an old one."""
    from shardline.log.version import StoredVersion
    from shardline.provenance.commands import moving_on
    from shardline.provenance.repair_command import command_to_mend

    version = StoredVersion(snapshot.store, snapshot.version)
    held = {shard.name for shard in version.newest().shards}
    mine = [one.shard for one in damaged if one.shard.name in held]
    if mine and not (lies_on and all(shard.base or shard.virtual for shard in mine)):
        command = command_to_mend(version, mine)
        if command:
            click.echo(f"To make anew what is damaged:\n  {render_command(command)}")
    old = {one.name for one in damaged if one.shard.name not in held}
    if old and (way := moving_on(version, snapshot.number, old)):
        click.echo(render_hint(way))


def _owner(base: ShardReport) -> str:
    """The version that a base shard is of."""
    return f"{base.name.partition('/')[0]}/{base.shard.owner}"


def _print_shards(report: VersionReport) -> None:
    told = [(one, "") for one in report.shards]
    told += [(one, f" (a base shard, of {_owner(one)})") for one in report.bases]
    bad = [(one, what) for one, what in told if not one.ok]
    for one, what in bad[:_SHOWN_PROBLEMS]:
        state = _state(report, one)
        mark = click.style(f"{state.upper():7}", fg="yellow" if state == "gone" else "red")
        click.echo(f"{mark} {one.name}{what}")
        for line in failure_lines(one):
            click.echo(f"        {line}")
    if len(bad) > _SHOWN_PROBLEMS:
        more = counted(len(bad) - _SHOWN_PROBLEMS, "more such shard")
        click.echo(f"        … and {more}; --json lists all")


def _print_log(version: str, log: LogReport) -> None:
    checkpoints = f", {counted(log.checkpoints, 'checkpoint')}" if log.checkpoints else ""
    entries = counted(log.entries, "entry", "entries")
    problems = f": {counted(len(log.problems), 'problem')}" if log.problems else ""
    click.echo(f"{_mark(ok=not log.problems)} log of {version}: {entries}{checkpoints}{problems}")
    for problem in log.problems[:_SHOWN_PROBLEMS]:
        click.echo(f"        entry {problem.entry}: {escaped(problem.detail)}")
    if len(log.problems) > _SHOWN_PROBLEMS:
        more = counted(len(log.problems) - _SHOWN_PROBLEMS, "more problem")
        click.echo(f"        … and {more}; --json lists all")


def _mark(*, ok: bool) -> str:
    return click.style("ok     ", fg="green") if ok else click.style("DAMAGED", fg="red")
