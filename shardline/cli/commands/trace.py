"""`shardline trace`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.references import (
    SNAPSHOT_HELP,
    find_snapshot,
    open_root,
    parse_reference,
    render_next_command,
)
from shardline.text import escape_text, format_bytes, format_count, format_list, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shardline.hints import Hint
    from shardline.lineage.trace import Descendants
    from shardline.lineage.trace_step import (
        DescendantCounts,
        DescendantRecord,
        EntryRef,
        Removal,
        TraceGap,
        TraceStep,
    )
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.feature_origin import FeatureOrigin
    from shardline.provenance.log_index import LogIndex
    from shardline.provenance.row_mapping import SourceRow


_SIDES = ("left", "right")


def format_step(step: TraceStep) -> Iterator[str]:
    """Yield the lines of a trace, upstream below; the two records of a pair are indented."""
    from shardline.lineage.trace_step import TraceStep

    # A loop, since a record that was rebuilt every day has many steps.
    pending: list[tuple[str, TraceStep | SourceRow | TraceGap, str]] = [("", step, "")]
    while pending:
        indent, origin, side = pending.pop()
        if not isinstance(origin, TraceStep):
            yield f"{indent}{side}{_format_leaf(origin)}"
            continue
        erased = _format_erasure(origin, first=origin is step)
        yield f"{indent}{side}{origin.version}@{origin.snapshot} record {origin.record}{erased}"
        reused = f", reused in entry {origin.reused}" if origin.reused is not None else ""
        yield f"{indent}│ {format_operation(origin.origin)}{reused}"
        yield f"{indent}│ record {origin.shard_record} of {origin.shard}"
        yield from (f"{indent}│ {line}" for line in _format_features(origin.features))
        if origin.removal is not None and not origin.is_erased:
            yield f"{indent}│ {_format_removal(origin.removal)}"
        if origin.remark:
            yield f"{indent}│ {escape_text(origin.remark)}"
        is_pair = len(origin.upstream) > 1
        for index, upstream in reversed(list(enumerate(origin.upstream))):
            label = f"{_SIDES[index]}: " if is_pair else ""
            pending.append((indent + "  " * is_pair, upstream, label))


def _format_erasure(step: TraceStep, *, first: bool) -> str:
    """Return that a record, or for the first step an upstream record, was erased."""
    if step.removal is not None and step.is_erased:
        return (
            f": ERASED in entry {step.removal.entry}, {format_time(step.removal.time)}"
            f" ({_format_file_state(step.removal)})"
        )
    erased = next((other for other in step.steps if other.is_erased), None) if first else None
    if erased is None:
        return ""
    return f": from {erased.version}@{erased.snapshot} record {erased.record}, which was ERASED"


def _format_removal(removal: Removal) -> str:
    reason = " with erased records" if removal.operation == "erase" else " by vacuum"
    return f"shard removed in entry {removal.entry}{reason} ({_format_file_state(removal)})"


def _format_file_state(removal: Removal) -> str:
    return "file exists until vacuum" if removal.file_exists else "file deleted"


def format_operation(ref: EntryRef) -> str:
    """Return `append, entry 4, 2026-11-16 04:00, run 1a2b, code 9f3e`."""
    parts = [escape_text(ref.operation), f"entry {ref.entry}", format_time(ref.time)]
    parts += [f"run {escape_text(ref.commit_info.run)}"] if ref.commit_info.run else []
    parts += [f"code {escape_text(ref.commit_info.code)}"] if ref.commit_info.code else []
    return ", ".join(parts)


def _format_features(origins: Mapping[str, FeatureOrigin]) -> Iterator[str]:
    """Yield the kept features in a line, then the origin of each other feature."""
    kept = [name for name, origin in origins.items() if origin.change == "kept"]
    versions = {version for origin in origins.values() for version, _ in origin.upstream}
    if kept:
        yield f"kept: {escape_text(format_list(kept))}"
    for name, origin in origins.items():
        if origin.change != "kept":
            names = [
                f"{version}:{feature}" if len(versions) > 1 else feature
                for version, feature in origin.upstream
            ]
            source = f" from {escape_text(format_list(names))}" if names else ""
            by = f" by {escape_text(origin.function)}" if origin.function else ""
            yield f"{escape_text(name)}: {origin.change}{by}{source}"


def _format_leaf(leaf: SourceRow | TraceGap) -> str:
    from shardline.provenance.row_mapping import SourceRow

    if not isinstance(leaf, SourceRow):
        return f"origin unknown: {escape_text(leaf.reason)}{_format_hint(leaf.hint)}"
    source = leaf.source
    text = f"{escape_text(source.label)}, {leaf.where}"
    if source.sha256 is not None and source.size is not None:
        text += f" ({format_bytes(source.size)}, sha256 {source.sha256[:12]}…)"
    if leaf.refused:
        text += f"; {format_count(leaf.refused, 'row')} before it quarantined"
    elif leaf.without_record:
        text += f"; {format_count(leaf.without_record, 'row')} before it without a record"
    return text


def format_downstream(descendants: Descendants, command: str) -> Iterator[str]:
    """Yield counts by version, then the listed records; `command` lists all of them."""
    versions = descendants.versions
    yield "Descendants of this record, itself included:"
    yield from _format_table(versions)
    for counts in versions:
        yield ""
        yield counts.version
        for record in descendants.records(counts.version):
            yield f"  {_format_record(record)}"
        if counts.listed < counts.ever:
            yield f"  … and {counts.ever - counts.listed:,} more: {command}"


def _format_table(versions: Sequence[DescendantCounts]) -> Iterator[str]:
    has_gaps = any(counts.gaps for counts in versions)
    rows = [("version", "now", "ever", *(["gaps"] if has_gaps else []), "snapshots")]
    for counts in versions:
        spans = format_list(map(_format_span, counts.snapshots)) if counts.snapshots else "none"
        cells = [f"{counts.now:,}", f"{counts.ever:,}"]
        cells += [f"{counts.gaps:,}"] if has_gaps else []
        rows.append((counts.version, *cells, spans))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *numbers, last in rows:
        aligned = (f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:-1], strict=True))
        yield "  ".join((f"{first:{widths[0]}}", *aligned, last))
    for counts in versions:
        for name in counts.consumers:
            yield f"consumer of {counts.version}: {escape_text(name)}"


def _format_record(record: DescendantRecord) -> str:
    operation = format_operation(record.origin)
    if record.record is None:
        reason = escape_text(record.reason)
        shard = "" if record.shard in record.reason else f" ({record.shard})"
        return f"{operation}: {reason}{shard}{_format_hint(record.hint)}"
    spans = [_format_span(span) for span in record.snapshots]
    snapshots = f", in snapshots {format_list(spans)}" if spans != [f"{record.snapshot}"] else ""
    return f"{record.version}@{record.snapshot} record {record.record}{snapshots}; {operation}"


def _format_hint(hint: Hint | None) -> str:
    return "" if hint is None else f"; {render_hint(hint)}"


def _format_span(span: tuple[int, int]) -> str:
    return f"{span[0]}" if span[0] == span[1] else f"{span[0]} to {span[1]}"


_DEFAULT_LIMIT = 5
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_NEGATIVE = re.compile(r"-\d+", re.ASCII)


class _RecordNumber(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """The number of a record: `537`."""

    name = "record"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's own signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Read the number from the command line."""
        if not _WHOLE.fullmatch(str(value)):
            self.fail(
                f"invalid record number {value!r}: expected an integer from 0",
                param,
                ctx,
            )
        return int(value)


class _TraceCommand(click.Command):
    """Takes -1 for a number, and not for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args:
            negative = [one for one in args if _NEGATIVE.fullmatch(one)]
            args = [one for one in args if one not in negative]
            args += ["--", *negative] if negative else []
        return super().parse_args(ctx, args)


@click.command(
    cls=_TraceCommand,
    epilog="""\b
Examples:
  shardline trace digits/v2@7 1234              to its source file and row
  shardline trace digits/v1@3 17 --downstream   to its copies in every version
  shardline trace pairs/v1 0 --json | jq '.steps[].operation'

RECORD is a number from 0, over all shards, as in Snapshot.take. With --downstream, a table counts
the copies in each version: now (in the latest snapshot) and ever (in any). The first copies are
listed below it. Only logs and sidecars are read.

"""
    + SNAPSHOT_HELP,
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.argument("record", type=_RecordNumber(), metavar="RECORD")
@click.option("--downstream", is_flag=True, help="Trace to the copies of the record.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="With --downstream: number of copies to list per version.",
)
@click.option("everything", "--all", is_flag=True, help="With --downstream: list all copies.")
@root_option
@json_option
def trace(
    reference: str,
    record: int,
    *,
    downstream: bool,
    limit: int,
    everything: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Trace a record to its source, or with --downstream to its copies.

    The trace follows every operation: an appended record to the row of its source, a pair to both
    of its records, any other record to the record before it. Exits with 1 if the trace does not end
    at a source, or with --downstream if a copy may be missing; the reason is shown.
    """
    from shardline.cli.references import open_version
    from shardline.provenance.log_index import LogIndex

    store, named = open_root(root), parse_reference(reference)
    snapshot = find_snapshot(open_version(store, named), named)
    if record >= snapshot.records:
        raise UsageError(
            f"{snapshot}: unknown record {record} ({format_count(snapshot.records, 'record')})",
            code="record-not-found",
            hint="records are numbered from 0",
            record=record,
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    if everything and not downstream:
        raise UsageError(
            "--all requires --downstream", code="missing-option", hint="add `--downstream`"
        )
    catalog = LogIndex(store)
    raise SystemExit(
        _trace_downstream(catalog, snapshot, record, None if everything else limit, as_json=as_json)
        if downstream
        else _trace_upstream(catalog, snapshot, record, as_json=as_json)
    )


def _trace_upstream(
    catalog: LogIndex, snapshot: StoredSnapshot, record: int, *, as_json: bool
) -> int:
    from shardline.lineage.trace import trace as trace_upstream
    from shardline.lineage.trace_step import TraceGap

    step = trace_upstream(catalog, snapshot, record)
    known = not any(isinstance(leaf, TraceGap) for leaf in step.leaves)
    if as_json:
        click.echo(json.dumps({"ok": known, "erased": step.is_erased, "steps": step.to_list()}))
    else:
        click.echo("\n".join(format_step(step)))
    return 0 if known else 1


def _trace_downstream(
    catalog: LogIndex, snapshot: StoredSnapshot, record: int, limit: int | None, *, as_json: bool
) -> int:
    from shardline.lineage.trace import RecordTracer

    descendants = RecordTracer(catalog).trace_downstream(snapshot, record, limit)
    is_complete = descendants.is_complete
    if not as_json:
        command = render_next_command("trace", str(snapshot), f"{record}", "--downstream", "--all")
        for line in format_downstream(descendants, command):
            click.echo(line)
        return 0 if is_complete else 1
    versions = descendants.versions
    payload = {
        "ok": is_complete,
        "complete": all(counts.listed == counts.ever for counts in versions),
        "versions": [counts.to_dict() for counts in versions],
    }
    # Record by record: all of them as text may not fit into memory.
    click.echo(f'{json.dumps(payload)[:-1]}, "records": [', nl=False)
    for index, descendant in enumerate(descendants.records()):
        click.echo(f"{', ' if index else ''}{json.dumps(descendant.to_dict())}", nl=False)
    click.echo("]}")
    return 0 if is_complete else 1
