"""Printed differences of snapshots and schemas."""

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

_MAX_SHARDS = 5
_UNLABELED = frozenset({"kind", "nan", "required", "sequence"})
"""Changes whose values need no label."""


def print_totals(diff: SnapshotDiff) -> None:
    """Print the changes of the shard, record and byte totals in aligned lines."""
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
    for label, change, amounts in rows:
        click.echo(f"  {label:8} {change:>{width}}   ({amounts})")


def print_shard_changes(diff: SnapshotDiff, *, every: bool) -> None:
    """Print added and removed shards: the first few, or with `every` all."""
    for sign, title, shards in (("+", "added", diff.added), ("-", "removed", diff.removed)):
        if shards:
            click.echo(f"{title}:")
            _print_shards(sign, shards, every=every)


def _print_shards(sign: str, shards: Sequence[Shard], *, every: bool) -> None:
    for shard in shards if every else shards[:_MAX_SHARDS]:
        amount = f"{format_count(shard.records, 'record')}, {format_bytes(shard.bytes)}"
        click.echo(f"  {sign} {shard.name}  {amount}")
    if not every and len(shards) > _MAX_SHARDS:
        click.echo(f"  … and {len(shards) - _MAX_SHARDS:,} more; --all shows them")


def print_schema_changes(diff: SnapshotDiff) -> None:
    """Print the changed features of two snapshots."""
    if not diff.schema_diff.changes:
        click.echo("features: unchanged")
        return
    click.echo("features:")
    for line in diff.schema_diff.lines():
        click.echo(f"  {escape_text(line)}")


def print_planned_changes(fields: SchemaDiff) -> None:
    """Print the features that a plan adds, removes or changes."""
    click.echo("features:" if fields.changes else "features: unchanged")
    print_change_lines(fields)


def print_change_lines(fields: SchemaDiff) -> None:
    """Print a line per changed feature, such as `+ double: int64 [] required`."""
    for name, changes in groupby(fields.changes, key=lambda change: change.feature):
        label = "the schema" if name is None else escape_text(name)
        click.echo(f"  {escape_text(_format_change(label, list(changes)))}")


def _format_change(name: str, changes: list[SchemaChange]) -> str:
    first = changes[0]
    if first.what == "added":
        return f"+ {name}: {first.new}"
    if first.what == "removed":
        return f"- {name}: {first.old}"
    details = [
        f"{'' if change.what in _UNLABELED else f'{change.what} '}{change.old} → {change.new}"
        for change in changes
        if change.what != "doc"
    ]
    return f"~ {name}: {', '.join(details) or 'doc'}"
