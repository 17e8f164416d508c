"""What an erase will do and did, for people and for machines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.checked import checked_json, print_checked
from shardline.cli.json_forms import snapshot_json
from shardline.cli.references import next_command
from shardline.cli.tables import plain_console, plain_table
from shardline.text import counted, escaped, human_bytes, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.cli.checked import Checked
    from shardline.operations.erase import ErasedVersion, ErasePlan, EraseReport
    from shardline.operations.erasing.holders import Holder
    from shardline.operations.erasing.plan import VersionErasure
    from shardline.operations.erasing.proof import ErasureProof

_SHOWN = 20
_NOUNS = {
    "virtual": "virtual version",
    "quarantine": "quarantine file",
    "uncommitted": "uncommitted file",
    "origin": "version that they were made of",
    "unsearched": "place that was not searched",
}
_PLURALS = {
    "place that was not searched": "places that were not searched",
    "version that they were made of": "versions that they were made of",
}


def plan_json(plan: ErasePlan, *, dry_run: bool) -> dict[str, Any]:
    """What would be done."""
    return {
        "ok": dry_run or not any(one.open for one in plan.holders),
        "dry_run": dry_run,
        "dataset": plan.dataset,
        "features": list(plan.features),
        "records": plan.records,
        "unmet": list(plan.unmet),
        "versions": [_version_json(one) for one in plan.versions],
        "quarantine": [
            {"file": file.name, "lines": len(file.meant), "doubtful": len(file.doubtful)}
            for file in plan.quarantine
        ],
        "holders": [one.to_json(next_command) for one in plan.holders],
    }


def _version_json(one: VersionErasure) -> dict[str, Any]:
    return {
        "version": one.version,
        "head": one.head,
        "records": one.records,
        "shards": [{"name": p.shard.name, "records": len(p.rows)} for p in one.shards],
        "given_up": [shard.name for shard in one.given_up],
        "unreadable": one.unreadable,
        "snapshots": list(one.snapshots),
    }


def erased_json(report: EraseReport, checked: Sequence[Checked], seconds: float) -> dict[str, Any]:
    """What was done."""
    by_version = {one.after.version: checked_json(one) for one in checked}
    return {
        **plan_json(report.plan, dry_run=False),
        "ok": report.ok,
        "erasure": report.erasure,
        "records": report.records,
        "lines": report.lines,
        "seconds": round(seconds, 6),
        "done": [_done_json(report, one, by_version) for one in report.versions],
    }


def _done_json(
    report: EraseReport, one: ErasedVersion, checked: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    from shardline.log.version import StoredVersion

    version = StoredVersion(report.plan.history.store, one.plan.version)
    after = None if one.snapshot is None else version.snapshot(one.snapshot)
    return {
        "version": one.plan.version,
        "entry": one.entry.number,
        "snapshot": after and snapshot_json(after),
        "shards": [shard.to_json() for shard in one.made],
        "check": checked.get(one.plan.version),
    }


def print_plan(plan: ErasePlan) -> None:
    """What would be done, and what is beyond it."""
    if plan.idle:
        shown = escaped(plan.shown)
        virtual = any(one.kind == "virtual" for one in plan.holders)
        found = "no file of it has a record that" if virtual else "no record"
        click.echo(f"{plan.dataset}: {found} is found by {shown}: there is nothing to erase")
    elif not plan.versions:
        shown = escaped(plan.shown)
        click.echo(f"{plan.dataset}: no record is found by {shown}, but rows that were refused are")
    else:
        click.echo(f"{plan.dataset}: records found by {escaped(plan.shown)}")
        _print_versions(plan)
    _print_unmet(plan)
    for file in plan.quarantine:
        if file.meant:
            click.echo(f"{counted(len(file.meant), 'line')} of {escaped(file.name)} to delete")
    _print_holders(plan)


def _print_unmet(plan: ErasePlan) -> None:
    """Which values are in no record, by their places: they may tell of a person themselves."""
    if not plan.unmet:
        return
    some = [f"{place:,}" for place in plan.unmet[:_SHOWN]]
    more = len(plan.unmet) - len(some)
    places = listed([*some, f"{more:,} more"] if more else some)
    are = "is" if len(plan.unmet) == 1 else "are"
    click.echo(
        f"{counted(len(plan.unmet), 'value')} of the list {are} in no record: {places} of it, not "
        "counting blank lines. Erased before, or written otherwise?"
    )


def _print_versions(plan: ErasePlan) -> None:
    numbers = ("records", "shards", "bytes", "older shards", "snapshots")
    table = plain_table("version", *numbers, right=numbers, wide="version")
    for one in plan.versions:
        table.add_row(
            escaped(one.version),
            f"{one.records:,}",
            f"{len(one.shards):,}",
            human_bytes(one.bytes),
            f"{len(one.given_up):,}",
            f"{len(one.snapshots):,}",
        )
    plain_console().print(table)
    if plan.records:
        click.echo(
            "These records go from the newest snapshots, and the shards that hold them are written "
            "anew."
        )
    click.echo(
        "Older shards with such records are given up, and none of the snapshots that hold them can "
        "be\nrestored, tagged or pinned again."
    )
    unreadable = sum(one.unreadable for one in plan.versions)
    if unreadable:
        shards = counted(unreadable, "older shard")
        click.echo(f"{shards} cannot be read, and so not searched: given up too")


def _print_holders(plan: ErasePlan) -> None:
    if plan.holders:
        beyond = "These" if plan.idle else "Beyond that, these"
        click.echo(f"\n{beyond} hold such records, or may:")
        print_holders(plan.holders)


def print_holders(holders: Sequence[Holder]) -> None:
    """Who holds records, and what to do: what is advised to several is told once."""
    groups: dict[tuple[str, str], list[Holder]] = {}
    for one in holders[:_SHOWN]:
        groups.setdefault((one.kind, one.advice), []).append(one)
    for (_, advice), group in groups.items():
        for one in group:
            maybe = "" if one.certain else "maybe: "
            click.echo(f"  {maybe}{one.kind} {escaped(one.where)}: {escaped(one.what)}")
        click.echo(f"      {escaped(advice)}")
        commands = dict.fromkeys(command for one in group for command in one.commands)
        for command in commands:
            click.echo(f"        {escaped(next_command(*command))}")
    if len(holders) > _SHOWN:
        click.echo(f"  … and {len(holders) - _SHOWN:,} more; --json lists all")


def print_erased(report: EraseReport, checked: Sequence[Checked], seconds: float) -> None:
    """What was done, and what to do next."""
    from shardline.provenance.retainers import vacuum_command

    size = sum(shard.bytes for one in report.versions for shard in one.made)
    for one in report.versions:
        made = "" if one.snapshot is None else f"@{one.snapshot}"
        click.echo(f"{one.plan.version}{made}: {_done_words(one)} (entry {one.entry.number})")
    if report.lines:
        click.echo(f"{counted(report.lines, 'line')} deleted from quarantine files")
    click.echo(f"  {seconds:.2f} s, {human_bytes(size)} written")
    for found in checked:
        print_checked(found)
    dataset = report.plan.dataset
    vacuum = next_command(*vacuum_command(dataset))
    proof = next_command("erase", dataset, "--proof", "proof.md")
    if report.open:
        hold = "holds" if len(report.open) == 1 else "hold"
        click.echo(
            f"Not all is done: {_kinds(report.open)} listed above still {hold} such records, or may"
        )
    if report.versions:
        click.echo(
            f"To delete the files that held them, when nothing reads these any more: {vacuum}"
        )
        click.echo(f"To prove that they are gone: {proof}")


def _done_words(one: ErasedVersion) -> str:
    """`2 records erased, 1 shard written anew, 1 older shard given up`."""
    done = []
    if one.made:
        done.append(f"{counted(one.plan.records, 'record')} erased")
        done.append(f"{counted(len(one.made), 'shard')} written anew")
    if one.plan.given_up:
        done.append(f"{counted(len(one.plan.given_up), 'older shard')} given up for good")
    return ", ".join(done)


def _kinds(holders: Sequence[Holder]) -> str:
    """`1 tag and 2 sources`."""
    kinds = Counter(one.kind for one in holders)
    nouns = ((_NOUNS.get(kind, kind), count) for kind, count in kinds.items())
    return listed(counted(count, noun, _PLURALS.get(noun, "")) for noun, count in nouns)


def print_proof(proof: ErasureProof, request: str | None) -> None:
    """What is proved, in short."""
    from shardline.provenance.retainers import vacuum_command

    if not proof.entries:
        under = f" under the request {escaped(request)!r}" if request else ""
        click.echo(f"Nothing was erased from {proof.dataset}{under}: there is nothing to prove")
        return
    shards = [shard for one in proof.entries for shard in one.shards]
    records = sum(one.records for one in proof.entries)
    click.echo(
        f"{counted(len(proof.entries), 'entry', 'entries')} erased {counted(records, 'record')}; "
        f"{counted(len(shards), 'shard')} held them, of which {len(proof.shards):,} "
        f"{'is' if len(proof.shards) == 1 else 'are'} still there"
    )
    if proof.shards:
        vacuum = next_command(*vacuum_command(proof.dataset))
        click.echo(f"To delete what nobody holds, and see who holds the rest: {vacuum}")
    if proof.remaining:
        click.echo("These hold such records, or may:")
        print_holders(proof.remaining)
    elif proof.complete:
        click.echo("Nothing is known that still holds them")
