"""What an erase will do and did, for people and for machines."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, raise_as_usage_error
from shardline.cli.options import (
    json_option,
    limit_options,
    limits,
    no_check_option,
    root_option,
    workers_option,
)
from shardline.cli.output import (
    Table,
    print_dry_run_notice,
    print_json,
    serialize_snapshot,
)
from shardline.cli.output_file import validate_output_file, validate_outside_root
from shardline.cli.progress import open_progress_executor
from shardline.cli.references import is_reference, open_root, raise_not_found, render_next_command
from shardline.cli.snapshot_check import get_snapshot_check, print_check, serialize_check
from shardline.text import escape_text, format_bytes, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn, TextIO

    from shardline.cli.snapshot_check import SnapshotCheck
    from shardline.operations.erase import ErasedVersion, ErasePlan, EraseReport
    from shardline.operations.erasure.erase_plan import VersionErasure
    from shardline.operations.erasure.erasure_proof import ErasureProof
    from shardline.operations.erasure.residual_copies import ResidualCopy
    from shardline.storage import Store
    from shardline.tfrecord import Limits


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


def serialize_plan(plan: ErasePlan, *, dry_run: bool) -> dict[str, Any]:
    """What would be done."""
    return {
        "ok": dry_run or not any(one.is_open for one in plan.residual_copies),
        "dry_run": dry_run,
        "dataset": plan.dataset,
        "features": list(plan.features),
        "records": plan.records,
        "missing_values": list(plan.missing_values),
        "versions": [_serialize_version(one) for one in plan.versions],
        "quarantine": [
            {"file": file.name, "lines": len(file.matches), "uncertain": len(file.uncertain)}
            for file in plan.quarantine
        ],
        "residual_copies": [one.to_dict(render_next_command) for one in plan.residual_copies],
    }


def _serialize_version(one: VersionErasure) -> dict[str, Any]:
    return {
        "version": one.version,
        "head": one.head,
        "records": one.records,
        "shards": [{"name": p.shard.name, "records": len(p.rows)} for p in one.shards],
        "older_shards": [shard.name for shard in one.older_shards],
        "unreadable": one.unreadable,
        "snapshots": list(one.snapshots),
    }


def serialize_report(
    report: EraseReport, checked: Sequence[SnapshotCheck], seconds: float
) -> dict[str, Any]:
    """What was done."""
    by_version = {one.after.version: serialize_check(one) for one in checked}
    return {
        **serialize_plan(report.plan, dry_run=False),
        "ok": report.ok,
        "erasure": report.erasure,
        "records": report.records,
        "lines": report.lines,
        "seconds": round(seconds, 6),
        "done": [_serialize_version_report(report, one, by_version) for one in report.versions],
    }


def _serialize_version_report(
    report: EraseReport, one: ErasedVersion, checked: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    from shardline.log.version import StoredVersion

    version = StoredVersion(report.plan.history.store, one.plan.version)
    after = None if one.snapshot is None else version.snapshot(one.snapshot)
    return {
        "version": one.plan.version,
        "entry": one.entry.number,
        "snapshot": after and serialize_snapshot(after),
        "shards": [shard.to_dict() for shard in one.shards],
        "check": checked.get(one.plan.version),
    }


def print_plan(plan: ErasePlan) -> None:
    """What would be done, and what is beyond it."""
    if plan.is_empty:
        shown = escape_text(plan.label)
        virtual = any(one.kind == "virtual" for one in plan.residual_copies)
        found = "no file of it has a record that" if virtual else "no record"
        click.echo(f"{plan.dataset}: {found} is found by {shown}: there is nothing to erase")
    elif not plan.versions:
        shown = escape_text(plan.label)
        click.echo(f"{plan.dataset}: no record is found by {shown}, but rows that were refused are")
    else:
        click.echo(f"{plan.dataset}: records found by {escape_text(plan.label)}")
        _print_versions(plan)
    _print_missing_values(plan)
    for file in plan.quarantine:
        if file.matches:
            click.echo(
                f"{format_count(len(file.matches), 'line')} of {escape_text(file.name)} to delete"
            )
    _print_plan_copies(plan)


def _print_missing_values(plan: ErasePlan) -> None:
    """Which values are in no record, by their places: they may tell of a person themselves."""
    if not plan.missing_values:
        return
    some = [f"{place:,}" for place in plan.missing_values[:_SHOWN]]
    more = len(plan.missing_values) - len(some)
    places = format_list([*some, f"{more:,} more"] if more else some)
    are = "is" if len(plan.missing_values) == 1 else "are"
    click.echo(
        f"{format_count(len(plan.missing_values), 'value')} of the list {are} in no record: "
        f"{places} of it, not counting blank lines. Erased before, or written otherwise?"
    )


def _print_versions(plan: ErasePlan) -> None:
    numbers = ("records", "shards", "bytes", "older shards", "snapshots")
    table = Table("version", *numbers, right=numbers, wide="version")
    for one in plan.versions:
        table.add_row(
            escape_text(one.version),
            f"{one.records:,}",
            f"{len(one.shards):,}",
            format_bytes(one.bytes),
            f"{len(one.older_shards):,}",
            f"{len(one.snapshots):,}",
        )
    table.print()
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
        shards = format_count(unreadable, "older shard")
        click.echo(f"{shards} cannot be read, and so not searched: given up too")


def _print_plan_copies(plan: ErasePlan) -> None:
    if plan.residual_copies:
        beyond = "These" if plan.is_empty else "Beyond that, these"
        click.echo(f"\n{beyond} hold such records, or may:")
        print_residual_copies(plan.residual_copies)


def print_residual_copies(holders: Sequence[ResidualCopy]) -> None:
    """Who holds records, and what to do: what is advised to several is told once."""
    groups: dict[tuple[str, str], list[ResidualCopy]] = {}
    for one in holders[:_SHOWN]:
        groups.setdefault((one.kind, one.hint), []).append(one)
    for (_, advice), group in groups.items():
        for one in group:
            maybe = "" if one.certain else "maybe: "
            click.echo(
                f"  {maybe}{one.kind} {escape_text(one.location)}: {escape_text(one.detail)}"
            )
        click.echo(f"      {escape_text(advice)}")
        commands = dict.fromkeys(command for one in group for command in one.commands)
        for command in commands:
            click.echo(f"        {escape_text(render_next_command(*command))}")
    if len(holders) > _SHOWN:
        click.echo(f"  … and {len(holders) - _SHOWN:,} more; --json lists all")


def print_report(report: EraseReport, checked: Sequence[SnapshotCheck], seconds: float) -> None:
    """What was done, and what to do next."""
    from shardline.provenance.retainers import get_vacuum_command

    size = sum(shard.bytes for one in report.versions for shard in one.shards)
    for one in report.versions:
        made = "" if one.snapshot is None else f"@{one.snapshot}"
        click.echo(
            f"{one.plan.version}{made}: {_format_version_report(one)} (entry {one.entry.number})"
        )
    if report.lines:
        click.echo(f"{format_count(report.lines, 'line')} deleted from quarantine files")
    click.echo(f"  {seconds:.2f} s, {format_bytes(size)} written")
    for found in checked:
        print_check(found)
    dataset = report.plan.dataset
    vacuum = render_next_command(*get_vacuum_command(dataset))
    proof = render_next_command("erase", dataset, "--proof", "proof.md")
    if report.open_copies:
        hold = "holds" if len(report.open_copies) == 1 else "hold"
        click.echo(
            f"Not all is done: {_format_kinds(report.open_copies)} listed above still {hold} such "
            "records, or may"
        )
    if report.versions:
        click.echo(
            f"To delete the files that held them, when nothing reads these any more: {vacuum}"
        )
        click.echo(f"To prove that they are gone: {proof}")


def _format_version_report(one: ErasedVersion) -> str:
    """`2 records erased, 1 shard written anew, 1 older shard given up`."""
    done = []
    if one.shards:
        done.append(f"{format_count(one.plan.records, 'record')} erased")
        done.append(f"{format_count(len(one.shards), 'shard')} written anew")
    if one.plan.older_shards:
        done.append(f"{format_count(len(one.plan.older_shards), 'older shard')} given up for good")
    return ", ".join(done)


def _format_kinds(holders: Sequence[ResidualCopy]) -> str:
    """`1 tag and 2 sources`."""
    kinds = Counter(one.kind for one in holders)
    nouns = ((_NOUNS.get(kind, kind), count) for kind, count in kinds.items())
    return format_list(format_count(count, noun, _PLURALS.get(noun, "")) for noun, count in nouns)


def print_proof(proof: ErasureProof, request: str | None) -> None:
    """What is proved, in short."""
    from shardline.provenance.retainers import get_vacuum_command

    if not proof.entries:
        under = f" under the request {escape_text(request)!r}" if request else ""
        click.echo(f"Nothing was erased from {proof.dataset}{under}: there is nothing to prove")
        return
    shards = [shard for one in proof.entries for shard in one.shards]
    records = sum(one.records for one in proof.entries)
    click.echo(
        f"{format_count(len(proof.entries), 'entry', 'entries')} erased "
        f"{format_count(records, 'record')}; "
        f"{format_count(len(shards), 'shard')} held them, of which {len(proof.shards):,} "
        f"{'is' if len(proof.shards) == 1 else 'are'} still there"
    )
    if proof.shards:
        vacuum = render_next_command(*get_vacuum_command(proof.dataset))
        click.echo(f"To delete what nobody holds, and see who holds the rest: {vacuum}")
    if proof.remaining:
        click.echo("These hold such records, or may:")
        print_residual_copies(proof.remaining)
    elif proof.complete:
        click.echo("Nothing is known that still holds them")


_MAX_PROOF_BYTES = 64 * 1024 * 1024
"""No proof is longer; what is need not be read to know that it is none."""


def validate_proof_file(
    file: Path | None, store: Store, dataset: str, values: TextIO | None, *, overwrite: bool
) -> None:
    """Refuse to write a proof in the root, or over anything but an earlier one of the dataset."""
    if file is None:
        if overwrite:
            raise UsageError(
                "--overwrite requires --proof",
                code="missing-option",
                hint="add `--proof FILE`, or leave it out",
            )
        return
    inside = store.local_path("x")
    validate_outside_root(file, None if inside is None else str(inside.parent))
    if values is not None and file.exists() and _is_proof_path(values.name, file):
        raise UsageError(
            f"{file} is the list of values",
            code="output-is-input",
            hint="name another file for the proof",
            path=file,
        )
    validate_output_file(file, store, overwrite=overwrite or _is_proof(file, dataset))


def _is_proof_path(name: str, file: Path) -> bool:
    return Path(name).exists() and file.samefile(name)


def _is_proof(file: Path, dataset: str) -> bool:
    """Whether a file is an earlier proof of the same dataset."""
    from shardline.operations.erasure.erasure_proof import get_title

    if file.is_symlink() or not file.is_file() or file.stat().st_size > _MAX_PROOF_BYTES:
        return False
    data = file.read_bytes()
    if data.startswith(f"{get_title(dataset)}\n".encode()):
        return True
    try:
        told = json.loads(data)
    except ValueError:
        return False
    known = isinstance(told, dict) and {"complete", "still_there", "remaining"} <= told.keys()
    return known and told.get("dataset") == dataset


def write_proof(
    store: Store,
    dataset: str,
    file: Path,
    plan: ErasePlan | None,
    request: str | None,
    *,
    as_json: bool,
) -> NoReturn:
    """Write what is proved, and end with whether that is all."""
    from shardline.operations.erasure.erasure_proof import prove_erasure, render_proof_page
    from shardline.storage.durable_file import DurableFile

    proof = prove_erasure(store, dataset, request=request, plan=plan)
    told = proof.to_dict(render_next_command)
    as_data = file.suffix == ".json"
    page = (
        json.dumps(told, indent=2) + "\n"
        if as_data
        else render_proof_page(proof, render_next_command)
    )
    with DurableFile(file, overwrite=file.exists()) as written:
        written.write(page.encode())
    if as_json:
        print_json({**told, "proof": str(file)})
    else:
        click.echo(f"wrote {escape_text(str(file))}")
        print_proof(proof, request)
    raise SystemExit(0 if told["ok"] else 1)


@click.command(
    epilog="""\b
Examples:
  shardline erase digits --where 'label == 3' --dry-run
  shardline erase digits --where "label == 3 and not source in ['a', 'b']"
  shardline erase users --key user_id --values ids.txt --request 'ticket 81'
  shardline erase users --where choose.py:forgotten
\b
Delete the old files, and prove the removal:
  shardline vacuum users --delete --retention 0
  shardline erase users --proof proof.md
  shardline erase users --proof proof.md --key user_id --values ids.txt

A predicate compares features with a single value: ==, !=, <, <=, >, >=, in [...], is missing, and,
or, not, brackets. Texts are in quotes. A record that matches in one version is erased from all.
With --proof and a predicate or key, every file is searched again.

The log contains neither the predicate nor the values of a key. It contains --request: do not name
persons there.""",
)
@click.argument("dataset", metavar="NAME")
@click.option(
    "--where",
    metavar="PREDICATE",
    help="Predicate that selects the records, or MODULE:OBJECT, a function.",
)
@click.option("--key", metavar="FEATURE", help="Feature whose values select the records.")
@click.option("value", "--value", multiple=True, help="Value of the key. Repeatable.")
@click.option(
    "--values",
    type=click.File("r", encoding="utf-8-sig"),
    metavar="FILE",
    help="File with one value of the key per line; - for standard input.",
)
@click.option("--request", default="", metavar="TEXT", help="Reason to record in the log.")
@click.option(
    "--quarantine",
    is_flag=True,
    help="Also delete lines of quarantine files that cannot be searched.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan without writing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option(
    "--proof",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a proof of removal, as Markdown or JSON (by the suffix). Erases nothing.",
)
@click.option(
    "--overwrite", is_flag=True, help="Let the proof replace any file, not only an earlier proof."
)
@no_check_option
@workers_option
@limit_options
@root_option
@json_option
def erase(
    dataset: str,
    *,
    where: str | None,
    key: str | None,
    value: tuple[str, ...],
    values: TextIO | None,
    request: str,
    quarantine: bool,
    dry_run: bool,
    yes: bool,
    proof: Path | None,
    overwrite: bool,
    no_check: bool,
    workers: int | None,
    max_record: int,
    max_decompressed: int,
    root: str | None,
    as_json: bool,
) -> None:
    """Erase records from every version of a dataset, or prove their removal.

    The command shows the plan and asks for confirmation. It rewrites each shard that contains the
    records. Old snapshots with the records cannot be restored, and 'shardline vacuum' deletes
    their files. Other copies of the records are listed, each with the remedy.

    Exits with 0 if the records remain only in files that vacuum deletes, and after a dry run. Exits
    with 1 if another copy exists or cannot be searched, or if a check fails. With --proof, exits
    with 1 also before vacuum, or if nothing was erased.
    """
    store = open_root(root)
    _validate_dataset(store, dataset)
    validate_proof_file(proof, store, dataset, values, overwrite=overwrite)
    within = limits(max_record, max_decompressed)
    chosen = _parse_selection(where, key, value, values)
    if proof is not None:
        asked = chosen.get("where") is not None or chosen.get("key") is not None
        again = _plan_erase(store, dataset, chosen, within, workers) if asked else None
        write_proof(store, dataset, proof, again, request or None, as_json=as_json)
    if as_json and not (yes or dry_run):
        raise UsageError(
            "--json cannot ask for confirmation",
            code="confirmation-required",
            hint="add `--yes`, or `--dry-run` to see the plan",
        )
    plan = _plan_erase(store, dataset, chosen, within, workers)
    if not as_json:
        print_plan(plan)
    nothing = plan.is_empty and not (quarantine and plan.quarantine)
    stopped = nothing and not no_check and bool(plan.unchecked)  # an erase, before its checks
    if dry_run or (nothing and not stopped):
        if as_json:
            print_json(serialize_plan(plan, dry_run=dry_run))
        elif not nothing:
            print_dry_run_notice()
        left = any(one.is_open for one in plan.residual_copies) and not dry_run
        raise SystemExit(1 if left else 0)
    if not yes and not stopped and not _confirm():
        click.echo("Nothing was changed.")
        raise SystemExit(0)
    options = {"request": request, "quarantine": quarantine, "check": not no_check}
    report, seconds = _execute_plan(plan, within, workers, options)
    checked = _list_checks(report)
    if as_json:
        print_json(serialize_report(report, checked, seconds))
    else:
        print_report(report, checked, seconds)
    raise SystemExit(0 if report.ok else 1)


def _confirm() -> bool:
    """Whether someone said yes; a usage error where nobody can."""
    try:
        return click.confirm("Erase this for good?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise UsageError(
            "no confirmation given (nothing was changed)",
            code="confirmation-required",
            hint="add `--yes` to erase without being asked",
        ) from None


def _validate_dataset(store: Store, dataset: str) -> None:
    from shardline.storage import validate_name

    if is_reference(dataset):
        raise UsageError(
            f"{dataset}: erase works on a whole dataset",
            code="dataset-required",
            hint=f"write `{dataset.partition('/')[0]}`: all versions may contain such records",
            version=dataset,
        )
    if not store.folders(validate_name(dataset, "dataset")):
        raise_not_found(store, dataset)


def _parse_selection(
    where: str | None, key: str | None, value: tuple[str, ...], values: TextIO | None
) -> dict[str, Any]:
    """What was said of which records are meant, as `plan_erase` takes it."""
    lines = [] if values is None else [line.rstrip("\r\n") for line in values]
    told = [*value, *(line for line in lines if line.strip())]
    if key is None and (value or values is not None):
        raise UsageError(
            "--value and --values require --key", code="missing-option", hint="add `--key FEATURE`"
        )
    if key is not None and not told:
        raise UsageError(
            f"--key {key}: missing values",
            code="missing-option",
            hint="add `--value VALUE` or `--values FILE`",
            feature=key,
        )
    if where is not None and key is not None:
        raise UsageError("--where and --key exclude each other", code="conflicting-options")
    if where is None:
        return {"key": key, "values": told}
    from shardline.cli.udf_options import load_filter

    return {"where": load_filter(where)}


def _plan_erase(
    store: Store, dataset: str, chosen: dict[str, Any], within: Limits, workers: int | None
) -> ErasePlan:
    from shardline.operations.erase import plan_erase

    with raise_as_usage_error(), open_progress_executor(workers) as executor:
        return plan_erase(store, dataset, **chosen, limits=within, executor=executor)


def _execute_plan(
    plan: ErasePlan, within: Limits, workers: int | None, options: dict[str, Any]
) -> tuple[EraseReport, float]:
    from shardline.operations.erase import execute_erase_plan

    began = time.perf_counter()
    with open_progress_executor(workers) as executor:
        report = execute_erase_plan(plan, **options, limits=within, executor=executor)
    return report, time.perf_counter() - began


def _list_checks(report: EraseReport) -> list[SnapshotCheck]:
    """What checking found of each version, as it stands now."""
    from shardline.log.version import StoredVersion

    store = report.plan.history.store
    return [
        get_snapshot_check(StoredVersion(store, name), check)
        for name, check in report.checks.items()
    ]
