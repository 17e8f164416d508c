"""What differs between two snapshots, as people read it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from shardline.text import escape_text, format_bytes, format_count, format_signed_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.log.model import Shard
    from shardline.log.snapshot import SnapshotDiff
    from shardline.schema.comparison import SchemaChange, SchemaDiff

_SHOWN_SHARDS = 5
_PLAIN = frozenset({"kind", "nan", "required", "sequence"})
"""Changes whose words say themselves what they are about."""


def print_totals(diff: SnapshotDiff) -> None:
    """How much there is more or less: three lines of numbers under each other."""
    old, new = diff.old, diff.new
    changed = f"+{len(diff.added):,} -{len(diff.removed):,}"
    rows = [
        ("shards", changed, f"{old.totals.shards:,} → {new.totals.shards:,}"),
        ("records", f"{diff.records:+,}", f"{old.records:,} → {new.records:,}"),
        (
            "bytes",
            format_signed_bytes(diff.bytes),
            f"{format_bytes(old.bytes)} → {format_bytes(new.bytes)}",
        ),
    ]
    width = max(len(change) for _, change, _ in rows)
    for what, change, amounts in rows:
        click.echo(f"  {what:8} {change:>{width}}   ({amounts})")


def print_shard_changes(diff: SnapshotDiff, *, every: bool) -> None:
    """Which shards came and which went; the first few unless `every` is asked for."""
    for sign, title, shards in (("+", "added", diff.added), ("-", "removed", diff.removed)):
        if shards:
            click.echo(f"{title}:")
            _print_shards(sign, shards, every=every)


def _print_shards(sign: str, shards: Sequence[Shard], *, every: bool) -> None:
    for shard in shards if every else shards[:_SHOWN_SHARDS]:
        amount = f"{format_count(shard.records, 'record')}, {format_bytes(shard.bytes)}"
        click.echo(f"  {sign} {shard.name}  {amount}")
    if not every and len(shards) > _SHOWN_SHARDS:
        click.echo(f"  … and {len(shards) - _SHOWN_SHARDS:,} more; --all shows them")


def print_schema_changes(diff: SnapshotDiff) -> None:
    """Which fields differ."""
    if not diff.fields.changes:
        click.echo("fields: the same")
        return
    click.echo("fields:")
    for line in diff.fields.lines():
        click.echo(f"  {escape_text(line)}")


def print_planned_changes(fields: SchemaDiff) -> None:
    """Which fields come, go or change by what is planned."""
    click.echo("fields:" if fields.changes else "fields: as they are")
    print_change_lines(fields)


def print_change_lines(fields: SchemaDiff) -> None:
    """`+ double: int64 [] required`, and what else comes, goes or changes."""
    for name, changes in groupby(fields.changes, key=lambda change: change.feature):
        shown = "the schema" if name is None else escape_text(name)
        click.echo(f"  {escape_text(_format_change(shown, list(changes)))}")


def _format_change(name: str, changes: list[SchemaChange]) -> str:
    first = changes[0]
    if first.what == "added":
        return f"+ {name}: {first.new}"
    if first.what == "removed":
        return f"- {name}: {first.old}"
    told = [
        f"{'' if one.what in _PLAIN else f'{one.what} '}{one.old} → {one.new}"
        for one in changes
        if one.what != "doc"
    ]
    return f"~ {name}: {', '.join(told) or 'doc'}"
