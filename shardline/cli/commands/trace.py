"""The steps of a record, and the places it went to, as lines for people."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click

from shardline.cli.errors import UsageError, render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.references import find_snapshot, open_root, parse_reference, render_next_command
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
    """A record and what it was made of, one below the other; the two records of a pair indented.

    Not by recursion: a record that was rebuilt each day has come a long way.
    """
    from shardline.lineage.trace_step import TraceStep

    waiting: list[tuple[str, TraceStep | SourceRow | TraceGap, str]] = [("", step, "")]
    while waiting:
        indent, one, side = waiting.pop()
        if not isinstance(one, TraceStep):
            yield f"{indent}{side}{_format_leaf(one)}"
            continue
        erased = _format_erasure(one, first=one is step)
        yield f"{indent}{side}{one.version}@{one.snapshot} record {one.record}{erased}"
        reused = f"; reused in entry {one.reused}" if one.reused is not None else ""
        yield f"{indent}│ {format_operation(one.made)}{reused}"
        yield f"{indent}│ record {one.shard_record} of {one.shard}"
        yield from (f"{indent}│ {line}" for line in _format_features(one.fields))
        if one.fate is not None and not one.erased:
            yield f"{indent}│ {_format_removal(one.fate)}"
        if one.remark:
            yield f"{indent}│ {escape_text(one.remark)}"
        pair = len(one.of) > 1
        for at, other in reversed(list(enumerate(one.of))):
            waiting.append((indent + "  " * pair, other, f"{_SIDES[at]}: " if pair else ""))


def _format_erasure(step: TraceStep, *, first: bool) -> str:
    """That a record was erased, or the first of all is of one that was."""
    if step.fate is not None and step.erased:
        return (
            f": ERASED in entry {step.fate.entry}, {format_time(step.fate.time)}; "
            f"{_format_removed_file(step.fate)}"
        )
    of = next((one for one in step.steps if one.erased), None) if first else None
    if of is None:
        return ""
    return f": made of {of.version}@{of.snapshot} record {of.record}, which was ERASED"


def _format_removal(fate: Removal) -> str:
    if fate.operation == "erase":
        return (
            f"its shard was given up in entry {fate.entry} for erased records; "
            f"{_format_removed_file(fate)}"
        )
    return f"its shard went to vacuum in entry {fate.entry}; {_format_removed_file(fate)}"


def _format_removed_file(fate: Removal) -> str:
    return "its file is there until vacuum deletes it" if fate.there else "its file is deleted"


def format_operation(made: EntryRef) -> str:
    """`append, entry 4, 2026-11-16 04:00, run 1a2b, code 9f3e`."""
    told = [escape_text(made.operation), f"entry {made.entry}", format_time(made.time)]
    told += [f"run {escape_text(made.maker.run)}"] if made.maker.run else []
    told += [f"code {escape_text(made.maker.code)}"] if made.maker.code else []
    return ", ".join(told)


def _format_features(fields: Mapping[str, FeatureOrigin]) -> Iterator[str]:
    """Which features were taken over as they are, and where the others come from."""
    kept = [name for name, one in fields.items() if one.how == "kept"]
    several = len({version for one in fields.values() for version, _ in one.of}) > 1
    if kept:
        yield f"kept: {escape_text(format_list(kept))}"
    for name, one in fields.items():
        if one.how != "kept":
            names = [f"{pair[0]}:{pair[1]}" if several else pair[1] for pair in one.of]
            word = "of" if one.how == "computed" else "from"
            of = f" {word} {escape_text(format_list(names))}" if names else ""
            by = f" by {escape_text(one.by)}" if one.by else ""
            yield f"{escape_text(name)}: {one.how}{by}{of}"


def _format_leaf(leaf: SourceRow | TraceGap) -> str:
    from shardline.provenance.row_mapping import SourceRow

    if not isinstance(leaf, SourceRow):
        return f"not known: {escape_text(leaf.why)}{_format_hint(leaf.hint)}"
    source = leaf.source
    told = f"{escape_text(source.shown)}, {leaf.where}"
    if source.sha256 is not None and source.size is not None:
        told += f" ({format_bytes(source.size)}, sha256 {source.sha256[:12]}…)"
    if leaf.refused:
        told += f"; {format_count(leaf.refused, 'row')} before it went to quarantine"
    elif leaf.without_record:
        told += f"; {format_count(leaf.without_record, 'row')} before it gave no record"
    return told


def format_downstream(found: Descendants, all_of_it: str) -> Iterator[str]:
    """What was made of a record: how much of it each version has, then the first of each."""
    versions = found.versions
    yield "records that are it, or were made of it, by version:"
    yield from _format_table(versions)
    for one in versions:
        yield ""
        yield one.version
        for place in found.places(one.version):
            yield f"  {_format_position(place)}"
        if one.listed < one.ever:
            yield f"  … and {one.ever - one.listed:,} more: {all_of_it}"


def _format_table(versions: Sequence[DescendantCounts]) -> Iterator[str]:
    """A row for each version, then who saw any of it."""
    gaps = any(one.gaps for one in versions)
    rows = [("version", "now", "ever", *(["gaps"] if gaps else []), "snapshots")]
    for one in versions:
        held = format_list(map(_format_span, one.held)) if one.held else "none"
        counts = [f"{one.now:,}", f"{one.ever:,}", *([f"{one.gaps:,}"] if gaps else [])]
        rows.append((one.version, *counts, held))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *counts, last in rows:
        numbers = (f"{cell:>{width}}" for cell, width in zip(counts, widths[1:-1], strict=True))
        yield "  ".join((f"{first:{widths[0]}}", *numbers, last))
    for one in versions:
        for name in one.consumers:
            yield f"seen by {escape_text(name)} of {one.version}"


def _format_position(place: DescendantRecord) -> str:
    made = format_operation(place.made)
    if place.record is None:
        why = escape_text(place.why)
        named = "" if place.shard in place.why else f" ({place.shard})"
        return f"{made}: {why}{named}{_format_hint(place.hint)}"
    others = [_format_span(span) for span in place.held]
    held = f", in snapshots {format_list(others)}" if others != [f"{place.snapshot}"] else ""
    return f"{place.version}@{place.snapshot} record {place.record}{held}; {made}"


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
  shardline trace digits/v2@7 1234              back to its source file and row
  shardline trace digits/v1@3 17 --downstream   what was made of it, in every version
  shardline trace pairs/v1 0 --json | jq '.steps[].operation'

With --downstream, a table tells how many records of each version are this record or were made of
it: now, in the newest snapshot, and ever, in any. Below it stand the first of them.

RECORD is a number as Snapshot.take has them, counted from 0 over all shards. Logs are read, and
what lies beside the shards: never a shard itself.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.argument("record", type=_RecordNumber(), metavar="RECORD")
@click.option("--downstream", is_flag=True, help="Tell what was made of it instead.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="With --downstream, how many records of each version to list; all are counted.",
)
@click.option("everything", "--all", is_flag=True, help="With --downstream, list all of them.")
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
    """Tell where one record came from, or with --downstream what was made of it.

    Every operation is followed: what was appended to its source file and row, what was rebuilt,
    extended, migrated, repaired or erased to the record before it, a pair to both of its records.
    What was erased since says so. Exits with 1 if the way back ends without a source, or with
    --downstream if it cannot be told what became of it somewhere, and says why.
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
    from shardline.lineage.trace import trace as trace_back
    from shardline.lineage.trace_step import TraceGap

    step = trace_back(catalog, snapshot, record)
    known = not any(isinstance(leaf, TraceGap) for leaf in step.leaves)
    if as_json:
        click.echo(json.dumps({"ok": known, "erased": step.erased, "steps": step.to_list()}))
    else:
        click.echo("\n".join(format_step(step)))
    return 0 if known else 1


def _trace_downstream(
    catalog: LogIndex, snapshot: StoredSnapshot, record: int, limit: int | None, *, as_json: bool
) -> int:
    from shardline.lineage.trace import RecordTracer

    found = RecordTracer(catalog).descendants(snapshot, record, limit)
    if not as_json:
        again = render_next_command("trace", str(snapshot), f"{record}", "--downstream", "--all")
        for line in format_downstream(found, again):
            click.echo(line)
        return 0 if found.told else 1
    versions = found.versions
    complete = all(one.listed == one.ever for one in versions)
    told = {"ok": found.told, "complete": complete, "versions": [one.to_dict() for one in versions]}
    # Piece by piece: there may be more places than should be in memory as text.
    click.echo(f'{json.dumps(told)[:-1]}, "places": [', nl=False)
    for at, place in enumerate(found.places()):
        click.echo(f"{', ' if at else ''}{json.dumps(place.to_dict())}", nl=False)
    click.echo("]}")
    return 0 if found.told else 1
