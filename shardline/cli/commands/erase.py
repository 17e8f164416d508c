"""`shardline erase`."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, print_hint, raise_as_usage_error
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
)
from shardline.cli.output_file import validate_output_file, validate_outside_root
from shardline.cli.progress import open_progress_executor
from shardline.cli.references import is_reference, open_root, raise_not_found, render_next_command
from shardline.cli.snapshot_check import get_snapshot_check, print_check, serialize_check
from shardline.hints import Command
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


_MAX_LINES = 20
_NOUNS = {
    "virtual": "virtual version",
    "quarantine": "quarantine file",
    "uncommitted": "uncommitted file",
    "origin": "input version",
    "unsearched": "unsearched location",
}
_MAX_PROOF_BYTES = 64 * 1024 * 1024
"""Upper bound of a proof. A larger file is not read, since it cannot be a proof."""


def _serialize_plan(plan: ErasePlan, *, dry_run: bool) -> dict[str, Any]:
    return {
        "ok": dry_run or not any(copy.is_open for copy in plan.residual_copies),
        "dry_run": dry_run,
        "dataset": plan.dataset,
        "features": list(plan.features),
        "records": plan.records,
        "missing_values": list(plan.missing_values),
        "versions": [_serialize_version(erasure) for erasure in plan.versions],
        "quarantine": [
            {"file": file.name, "lines": len(file.matches), "uncertain": len(file.uncertain)}
            for file in plan.quarantine
        ],
        "residual_copies": [copy.to_dict(render_next_command) for copy in plan.residual_copies],
    }


def _serialize_version(erasure: VersionErasure) -> dict[str, Any]:
    return {
        "version": erasure.version,
        "head": erasure.head,
        "records": erasure.records,
        "shards": [
            {"name": matches.shard.name, "records": len(matches.rows)} for matches in erasure.shards
        ],
        "older_shards": [shard.name for shard in erasure.older_shards],
        "unreadable": erasure.unreadable,
        "snapshots": list(erasure.snapshots),
    }


def _serialize_report(
    report: EraseReport, checks: Sequence[SnapshotCheck], seconds: float
) -> dict[str, Any]:
    check_payloads = {check.snapshot.version: serialize_check(check) for check in checks}
    return {
        **_serialize_plan(report.plan, dry_run=False),
        "ok": report.ok,
        "erasure": report.erasure,
        "records": report.records,
        "lines": report.lines,
        "seconds": round(seconds, 6),
        "done": [
            _serialize_version_report(report, erased, check_payloads) for erased in report.versions
        ],
    }


def _serialize_version_report(
    report: EraseReport, erased: ErasedVersion, check_payloads: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    from shardline.log.version import StoredVersion

    version = StoredVersion(report.plan.history.store, erased.plan.version)
    snapshot = None if erased.snapshot is None else version.snapshot(erased.snapshot)
    return {
        "version": erased.plan.version,
        "entry": erased.entry.number,
        "snapshot": snapshot and snapshot.to_dict(),
        "shards": [shard.to_dict() for shard in erased.shards],
        "check": check_payloads.get(erased.plan.version),
    }


def _print_plan(plan: ErasePlan) -> None:
    selection = escape_text(plan.label)
    if plan.is_empty:
        virtual = any(copy.kind == "virtual" for copy in plan.residual_copies)
        matches = "no file has a record that matches" if virtual else "no record matches"
        click.echo(f"{plan.dataset}: nothing to erase, {matches} {selection}")
    elif not plan.versions:
        click.echo(f"{plan.dataset}: only quarantined rows match {selection}")
    else:
        click.echo(f"{plan.dataset}: records that match {selection}")
        _print_versions(plan)
    _print_missing_values(plan)
    for file in plan.quarantine:
        if file.matches:
            click.echo(
                f"{format_count(len(file.matches), 'line')} of {escape_text(file.name)} to delete"
            )
    _print_plan_copies(plan)


def _print_missing_values(plan: ErasePlan) -> None:
    """Print the positions of values without a record. The values may be personal data."""
    if not plan.missing_values:
        return
    positions = [f"{position:,}" for position in plan.missing_values[:_MAX_LINES]]
    more = len(plan.missing_values) - len(positions)
    listed = format_list([*positions, f"{more:,} more"] if more else positions)
    click.echo(
        f"no record matches {format_count(len(plan.missing_values), 'value')} of the list: "
        f"{listed} (without blank lines)"
    )


def _print_versions(plan: ErasePlan) -> None:
    numbers = ("records", "shards", "bytes", "older shards", "snapshots")
    table = Table("version", *numbers, right=numbers, wide="version")
    for erasure in plan.versions:
        table.add_row(
            escape_text(erasure.version),
            f"{erasure.records:,}",
            f"{len(erasure.shards):,}",
            format_bytes(erasure.bytes),
            f"{len(erasure.older_shards):,}",
            f"{len(erasure.snapshots):,}",
        )
    table.print()
    if plan.records:
        click.echo(
            "The records are removed from the latest snapshots, and their shards are rewritten."
        )
    click.echo(
        "Older shards with such records are condemned. Snapshots that contain them can no longer "
        "be\nrestored, tagged or pinned."
    )
    unreadable = sum(erasure.unreadable for erasure in plan.versions)
    if unreadable:
        shards = format_count(unreadable, "older shard")
        click.echo(f"{shards} cannot be read or searched, and are condemned too")


def _print_plan_copies(plan: ErasePlan) -> None:
    if plan.residual_copies:
        copies = "Copies" if plan.is_empty else "Other copies"
        click.echo(f"\n{copies} of such records, certain or possible:")
        _print_residual_copies(plan.residual_copies)


def _print_residual_copies(copies: Sequence[ResidualCopy]) -> None:
    """Print the copies of records, with each hint once."""
    groups: dict[tuple[str, str], list[ResidualCopy]] = {}
    for copy in copies[:_MAX_LINES]:
        groups.setdefault((copy.kind, copy.hint), []).append(copy)
    for (_, hint), group in groups.items():
        for copy in group:
            maybe = "" if copy.certain else "maybe: "
            click.echo(
                f"  {maybe}{copy.kind} {escape_text(copy.location)}: {escape_text(copy.detail)}"
            )
        click.echo(f"      {escape_text(hint)}")
        commands = dict.fromkeys(command for copy in group for command in copy.commands)
        for command in commands:
            click.echo(f"        {escape_text(render_next_command(*command))}")
    if len(copies) > _MAX_LINES:
        click.echo(f"  … and {len(copies) - _MAX_LINES:,} more; --json lists all")


def _print_report(report: EraseReport, checks: Sequence[SnapshotCheck], seconds: float) -> None:
    from shardline.provenance.retainers import get_vacuum_command

    size = sum(shard.bytes for erased in report.versions for shard in erased.shards)
    for erased in report.versions:
        snapshot = "" if erased.snapshot is None else f"@{erased.snapshot}"
        click.echo(
            f"{erased.plan.version}{snapshot}: {_format_version_report(erased)} "
            f"(entry {erased.entry.number})"
        )
    if report.lines:
        click.echo(f"{format_count(report.lines, 'line')} deleted from quarantine files")
    click.echo(f"  {seconds:.2f} s, {format_bytes(size)} written")
    for check in checks:
        print_check(check)
    dataset = report.plan.dataset
    vacuum = Command.of(*get_vacuum_command(dataset))
    proof = Command.of("erase", dataset, "--proof", "proof.md")
    if report.open_copies:
        click.echo(f"Incomplete: {_format_kinds(report.open_copies)} above may have such records")
    if report.versions:
        print_hint("to delete the old files when they are no longer read, run ", vacuum)
        print_hint("to prove the removal, run ", proof)


def _format_version_report(erased: ErasedVersion) -> str:
    """`2 records erased, 1 shard rewritten, 1 older shard condemned`."""
    parts = []
    if erased.shards:
        parts.append(f"{format_count(erased.plan.records, 'record')} erased")
        parts.append(f"{format_count(len(erased.shards), 'shard')} rewritten")
    if erased.plan.older_shards:
        parts.append(f"{format_count(len(erased.plan.older_shards), 'older shard')} condemned")
    return ", ".join(parts)


def _format_kinds(copies: Sequence[ResidualCopy]) -> str:
    """`1 tag and 2 sources`."""
    kinds = Counter(copy.kind for copy in copies)
    return format_list(format_count(count, _NOUNS.get(kind, kind)) for kind, count in kinds.items())


def _print_proof(proof: ErasureProof, request: str | None) -> None:
    from shardline.provenance.retainers import get_vacuum_command

    if not proof.entries:
        scope = f" under the request {escape_text(request)!r}" if request else ""
        click.echo(f"{proof.dataset}: nothing to prove, nothing was erased{scope}")
        return
    shards = sum(len(entry.shards) for entry in proof.entries)
    records = sum(entry.records for entry in proof.entries)
    click.echo(
        f"{format_count(len(proof.entries), 'entry', 'entries')} erased "
        f"{format_count(records, 'record')} from {format_count(shards, 'shard')}, "
        f"{len(proof.shards):,} not deleted yet"
    )
    if proof.shards:
        vacuum = Command.of(*get_vacuum_command(proof.dataset))
        print_hint("to delete unreferenced files and list the others, run ", vacuum)
    if proof.remaining:
        click.echo("Copies of such records, certain or possible:")
        _print_residual_copies(proof.remaining)
    elif proof.complete:
        click.echo("no known copies")


def _validate_proof_file(
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
    """Return True if a file is an earlier proof of the dataset."""
    from shardline.operations.erasure.erasure_proof import get_title

    if file.is_symlink() or not file.is_file() or file.stat().st_size > _MAX_PROOF_BYTES:
        return False
    data = file.read_bytes()
    if data.startswith(f"{get_title(dataset)}\n".encode()):
        return True
    try:
        payload = json.loads(data)
    except ValueError:
        return False
    keys = {"complete", "still_there", "remaining"}
    is_proof = isinstance(payload, dict) and keys <= payload.keys()
    return is_proof and payload.get("dataset") == dataset


def _write_proof(
    store: Store,
    dataset: str,
    file: Path,
    plan: ErasePlan | None,
    request: str | None,
    *,
    as_json: bool,
) -> NoReturn:
    """Write a proof of removal. Exits with 1 unless the removal is complete."""
    from shardline.operations.erasure.erasure_proof import prove_erasure, render_proof_page
    from shardline.storage.durable_file import DurableFile

    proof = prove_erasure(store, dataset, request=request, plan=plan)
    payload = proof.to_dict(render_next_command)
    if file.suffix == ".json":
        text = json.dumps(payload, indent=2) + "\n"
    else:
        text = render_proof_page(proof, render_next_command)
    with DurableFile(file, overwrite=file.exists()) as output:
        output.write(text.encode())
    if as_json:
        print_json({**payload, "proof": str(file)})
    else:
        click.echo(f"wrote {escape_text(str(file))}")
        _print_proof(proof, request)
    raise SystemExit(0 if payload["ok"] else 1)


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
    _validate_proof_file(proof, store, dataset, values, overwrite=overwrite)
    file_limits = limits(max_record, max_decompressed)
    selection = _parse_selection(where, key, value, values)
    if proof is not None:
        has_selection = selection.get("where") is not None or selection.get("key") is not None
        search = (
            _plan_erase(store, dataset, selection, file_limits, workers) if has_selection else None
        )
        _write_proof(store, dataset, proof, search, request or None, as_json=as_json)
    if as_json and not (yes or dry_run):
        raise UsageError(
            "--json cannot ask for confirmation",
            code="confirmation-required",
            hint="add `--yes`, or `--dry-run` to see the plan",
        )
    plan = _plan_erase(store, dataset, selection, file_limits, workers)
    if not as_json:
        _print_plan(plan)
    is_empty = plan.is_empty and not (quarantine and plan.quarantine)
    # An earlier erase was interrupted before its checks.
    only_checks = is_empty and not no_check and bool(plan.unchecked)
    if dry_run or (is_empty and not only_checks):
        if as_json:
            print_json(_serialize_plan(plan, dry_run=dry_run))
        elif not is_empty:
            print_dry_run_notice()
        has_copies = any(copy.is_open for copy in plan.residual_copies) and not dry_run
        raise SystemExit(1 if has_copies else 0)
    if not yes and not only_checks and not _confirm():
        click.echo("nothing was changed")
        raise SystemExit(0)
    options = {"request": request, "quarantine": quarantine, "check": not no_check}
    report, seconds = _execute_plan(plan, file_limits, workers, options)
    checks = _list_checks(report)
    if as_json:
        print_json(_serialize_report(report, checks, seconds))
    else:
        _print_report(report, checks, seconds)
    raise SystemExit(0 if report.ok else 1)


def _confirm() -> bool:
    """Ask for confirmation. Raises UsageError if the input has ended."""
    try:
        return click.confirm("Erase these records permanently?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise UsageError(
            "no confirmation given (nothing was changed)",
            code="confirmation-required",
            hint="add `--yes` to erase without confirmation",
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
    """Return the arguments of `plan_erase` that select records."""
    lines = [] if values is None else [line.rstrip("\r\n") for line in values]
    keys = [*value, *(line for line in lines if line.strip())]
    if key is None and (value or values is not None):
        raise UsageError(
            "--value and --values require --key", code="missing-option", hint="add `--key FEATURE`"
        )
    if key is not None and not keys:
        raise UsageError(
            f"--key {key}: missing values",
            code="missing-option",
            hint="add `--value VALUE` or `--values FILE`",
            feature=key,
        )
    if where is not None and key is not None:
        raise UsageError("--where and --key exclude each other", code="conflicting-options")
    if where is None:
        return {"key": key, "values": keys}
    from shardline.cli.udf_options import load_filter

    return {"where": load_filter(where)}


def _plan_erase(
    store: Store, dataset: str, selection: dict[str, Any], limits: Limits, workers: int | None
) -> ErasePlan:
    from shardline.operations.erase import plan_erase

    with raise_as_usage_error(), open_progress_executor(workers) as executor:
        return plan_erase(store, dataset, **selection, limits=limits, executor=executor)


def _execute_plan(
    plan: ErasePlan, limits: Limits, workers: int | None, options: dict[str, Any]
) -> tuple[EraseReport, float]:
    from shardline.operations.erase import execute_erase_plan

    began = time.perf_counter()
    with open_progress_executor(workers) as executor:
        report = execute_erase_plan(plan, **options, limits=limits, executor=executor)
    return report, time.perf_counter() - began


def _list_checks(report: EraseReport) -> list[SnapshotCheck]:
    """Return the check of each version with its current state."""
    from shardline.log.version import StoredVersion

    store = report.plan.history.store
    return [
        get_snapshot_check(StoredVersion(store, name), check)
        for name, check in report.checks.items()
    ]
