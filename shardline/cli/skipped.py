"""Report the files of folders that a command leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardline.text import counted, escaped

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SKIPPED = "shardline.skipped"
_SHOWN = 3
_LISTED = 100


def note_skipped(files: Iterable[Path]) -> None:
    """Remember files of a folder that are left out, and print them when the command ends."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    if _SKIPPED not in context.meta:
        context.meta[_SKIPPED] = {}
        context.call_on_close(lambda: _print(context))
    context.meta[_SKIPPED].update(dict.fromkeys(files))


def with_skipped(told: dict[str, Any]) -> dict[str, Any]:
    """Add the files that were left out, if any, to the JSON of a command."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_SKIPPED)
    if not found:
        return told
    names = [str(file) for file in list(found)[:_LISTED]]
    return {**told, "skipped_files": {"count": len(found), "files": names}}


def _print(context: click.Context) -> None:
    found = list(context.meta[_SKIPPED])
    if not found or context.params.get("as_json"):
        return
    names = ", ".join(escaped(str(file)) for file in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    click.echo(f"skipped {counted(len(found), 'file')}: {names}{more}", err=True)
