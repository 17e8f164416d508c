"""`shardline audit`."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, render_hint, serialize_hint
from shardline.cli.options import json_option, root_option, workers_option
from shardline.cli.output import print_json
from shardline.cli.output_file import validate_outside_root, validate_report_file
from shardline.cli.progress import show_step_progress
from shardline.cli.references import open_root, render_next_command, select_versions
from shardline.errors import CorruptLogError, UnknownFormatError
from shardline.text import escape_text, format_bytes, format_count, format_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.lineage.audit.audit_report import AuditReport, Finding, Severity
    from shardline.lineage.audit.recompute_audit import RecomputeOptions
    from shardline.provenance.log_index import LogIndex

_MAX_FINDINGS = 30
_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "blue"}


@click.command(
    epilog="""\b
Examples:
  shardline audit                          everything in the root
  shardline audit digits                   every version of a dataset
  shardline audit digits/v1 --quick        without reading shards
  shardline audit --since 2026-11-01       findings about recent entries
  shardline audit --recompute --sample 50 --udf fields:area --join names.csv
  shardline audit --dagster-home ~/dagster
  shardline audit --report report.html     also write the report page
  shardline audit --json | jq '.findings[] | select(.severity == "error")'

A writer of the root can remove the latest entries of a log, or forge a log from its first entry.
Derived versions and Dagster's records reveal that.""",
)
@click.argument("name", metavar="[NAME[/VERSION]]", required=False)
@click.option(
    "--quick",
    "--no-shards",
    is_flag=True,
    help="Do not read shards or sources, only compare their sizes.",
)
@click.option("--no-sources", is_flag=True, help="Do not read source files.")
@click.option("--recompute", is_flag=True, help="Recompute a sample of shards and compare them.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    help="Number of shards for --recompute.  [default: 20]",
)
@click.option("--seed", type=int, help="Seed of the sample.  [default: 0]")
@click.option(
    "udfs",
    "--udf",
    multiple=True,
    metavar="MODULE:OBJECT",
    help="Function for --recompute. Repeatable.",
)
@click.option(
    "tables",
    "--join",
    multiple=True,
    metavar="TABLE",
    help="Join table for --recompute. Repeatable.",
)
@click.option(
    "--since",
    metavar="TIME|SNAPSHOT",
    help="Show only findings about entries after a UTC time, or after a snapshot of the version.",
)
@click.option(
    "--dagster-home",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Compare with the records of this Dagster instance.",
)
@click.option(
    "--dagster-root",
    metavar="ROOT",
    help="Root as Dagster knows it, for an audit of a copy. Requires --dagster-home.",
)
@click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the report page, with the findings.",
)
@workers_option
@root_option
@json_option
def audit(
    name: str | None,
    *,
    quick: bool,
    no_sources: bool,
    recompute: bool,
    sample: int | None,
    seed: int | None,
    udfs: tuple[str, ...],
    tables: tuple[str, ...],
    since: str | None,
    dagster_home: Path | None,
    dagster_root: str | None,
    page: Path | None,
    workers: int | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Verify the whole history of datasets from the files in the root. Changes nothing.

    Entries must be unchanged and form a chain. Their claims, inputs and shard names must follow
    from earlier entries. Shards must be the committed files and match their attestations. Exits
    with 0 if no finding is worse than a note, with 1 otherwise.
    """
    from shardline.lineage.audit.audited_logs import AuditedLogs
    from shardline.lineage.audit.root_audit import audit as audit_root
    from shardline.provenance.log_index import LogIndex

    if not recompute and (sample is not None or seed is not None or udfs or tables):
        raise UsageError(
            "--sample, --seed, --udf and --join require --recompute",
            code="missing-option",
            hint="add `--recompute`",
        )
    if dagster_root is not None and dagster_home is None:
        raise UsageError(
            "--dagster-root requires --dagster-home",
            code="missing-option",
            hint="add `--dagster-home FOLDER`",
        )
    catalog = LogIndex(open_root(root))
    names = None
    if name is not None:
        names = select_versions(catalog.store, AuditedLogs(catalog).names(), name)
    if page is not None:
        validate_report_file(page)
        validate_outside_root(page, root)
    start = _parse_since(since, name)
    if isinstance(start, int):
        _validate_snapshot(catalog, name or "", start)
    began = time.perf_counter()
    with _open_instance(dagster_home) as instance, show_step_progress("reading logs") as progress:
        report = audit_root(
            catalog,
            names,
            shards=not quick,
            sources=not no_sources,
            recompute=_get_recompute_options(sample, seed, udfs, tables) if recompute else None,
            since=start,
            recorded=instance,
            dagster_root=dagster_root,
            workers=workers,
            progress=progress,
        )
    if page is not None:
        from shardline.lineage.page import write_page

        write_page(catalog, page, findings=report.findings, names=names)
        if not as_json:
            click.echo(f"wrote {escape_text(str(page))}")
    if as_json:
        payload = _serialize_report(report)
        print_json(payload if page is None else {**payload, "page": str(page)})
    else:
        _print_report(report, time.perf_counter() - began, quick=quick)
    raise SystemExit(0 if report.ok else 1)


def _get_recompute_options(
    sample: int | None, seed: int | None, udfs: tuple[str, ...], tables: tuple[str, ...]
) -> RecomputeOptions:
    from shardline.cli.udf_options import load_udfs
    from shardline.lineage.audit.recompute_audit import DEFAULT_SAMPLE, RecomputeOptions

    for text in udfs:
        if ":" not in text and Path(text).is_file():
            raise UsageError(
                f"--udf {text}: expected a function, got a file",
                code="invalid-udf",
                hint="pass a table with `--join`",
                path=text,
            )
    for table in tables:
        if "://" not in table and not Path(table).is_file():
            raise UsageError(f"--join {table}: file not found", code="file-not-found", path=table)
    return RecomputeOptions(sample or DEFAULT_SAMPLE, seed or 0, load_udfs(udfs), tables)


def _parse_since(since: str | None, name: str | None) -> datetime | int | None:
    if since is None:
        return None
    if since.isascii() and since.isdigit() and len(since) < len("20260101"):
        if name is None or "/" not in name:
            raise UsageError(
                f"--since {since}: a snapshot number requires a single version",
                code="missing-version",
                hint="name the version, as in `digits/v1`, or give a time, as in `2026-11-16`",
            )
        return int(since)
    try:
        time = datetime.fromisoformat(since)
    except ValueError:
        raise UsageError(
            f"invalid --since {since!r}: expected a UTC time or a snapshot number",
            code="invalid-option-value",
            hint="write a time like `2026-11-16` or `2026-11-16T04:00`",
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _validate_snapshot(catalog: LogIndex, name: str, snapshot: int) -> None:
    """Refuse a snapshot that a version does not have. The audit reports a corrupt log."""
    try:
        known = catalog.version(name).state.snapshot
    except (CorruptLogError, UnknownFormatError):
        return
    if not 1 <= snapshot <= known:
        raise UsageError(
            f"--since {snapshot}: {name} has {format_count(known, 'snapshot')}",
            code="snapshot-not-found",
            version=name,
            snapshot=snapshot,
        )


@contextmanager
def _open_instance(home: Path | None) -> Iterator[Any]:
    """Open the records of a Dagster instance, if one is given."""
    if home is None:
        yield None
        return
    from shardline.dagster.instance_records import InstanceRecords, open_instance

    with open_instance(home) as instance:
        yield InstanceRecords(instance)


def _serialize_report(report: AuditReport) -> dict[str, Any]:
    payload = report.to_dict()
    for finding, row in zip(report.findings, payload["findings"], strict=True):
        row["hint"] = serialize_hint(finding.hint)
    for skipped, row in zip(report.not_recomputed, payload["not_recomputed"], strict=True):
        if skipped.reason.hint is not None:
            row["hint"] = serialize_hint(skipped.reason.hint)
    return payload


def _print_report(report: AuditReport, seconds: float, *, quick: bool) -> None:
    for finding in report.findings[:_MAX_FINDINGS]:
        _print_finding(finding)
    if len(report.findings) > _MAX_FINDINGS:
        more = format_count(len(report.findings) - _MAX_FINDINGS, "more finding")
        click.echo(f"… and {more}; --json lists all")
    for skipped in report.not_recomputed:
        shards = format_count(skipped.shards, "shard")
        hint = skipped.reason.hint
        reason = escape_text(skipped.reason.text)
        click.echo(f"not recomputed: {shards} of {escape_text(skipped.version)}: {reason}")
        if hint is not None:
            click.echo(f"        {click.style(f'hint: {render_hint(hint)}', dim=True)}")
    counts = Counter(finding.severity for finding in report.findings)
    findings = [
        format_count(counts[severity], severity) for severity in _COLOURS if counts[severity]
    ]
    result = format_list(findings or ["no findings"])
    size = format_bytes(report.bytes) + (", not read" if quick else "")
    audited = [
        format_count(len(report.versions), "version") + _format_extent(report),
        format_count(report.entries, "entry", "entries"),
        f"{format_count(report.shards, 'shard')} ({size})",
    ]
    if report.recomputed:
        audited.append(f"{format_count(report.recomputed, 'shard')} recomputed")
    mark = click.style("ok", fg="green") if report.ok else click.style("NOT VERIFIED", fg="red")
    click.echo(f"{mark}: {format_list(audited)} in {seconds:.2f} s; {result}")
    if report.not_in_dagster:
        names = format_list(escape_text(name) for name in report.not_in_dagster)
        click.echo(f"not compared with Dagster, which has no record: {names}")
    if report.not_audited:
        others = format_count(len(report.not_audited), "other version")
        click.echo(f"not audited: {others}, which may show that a log was rewritten")
        click.echo(f"hint: run `{render_next_command('audit')}` for all versions")


def _format_extent(report: AuditReport) -> str:
    """Return the upstream versions that the audit also read."""
    return f" (with {format_list(report.dependencies)} upstream)" if report.dependencies else ""


def _print_finding(finding: Finding) -> None:
    mark = click.style(f"{finding.severity.upper():8}", fg=_COLOURS[finding.severity])
    subject = ", ".join(filter(None, (finding.version, finding.subject)))
    click.echo(f"{mark}{finding.kind}: {escape_text(subject)}")
    click.echo(f"        {escape_text(finding.detail)}")
    click.echo(f"        {click.style(f'hint: {render_hint(finding.hint)}', dim=True)}")
