"""Tables and lines for people: no markup is obeyed, and nothing is coloured by guesswork."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.hints import file_argument
from shardline.text import escape_text, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table

    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.verify_log import LogProblem
    from shardline.schema.comparison import SchemaDiff


def create_console() -> Console:
    """A console that prints what it is given."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise  # noqa: PLE0704 - the error that is being handled: rich would exit with 1

    return Plain(markup=False, highlight=False, emoji=False)


def create_table(*headings: str, right: tuple[str, ...] = (), wide: str = "") -> Table:
    """A table with a line under its headings only.

    `right` are the columns of numbers, `wide` the one that takes the room that is left.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="fold",
            no_wrap=heading != wide,
            ratio=1 if heading == wide else None,
        )
    return table


_STDOUT = "shardline.stdout"


def reserve_stdout() -> None:
    """Send to stderr what is printed until the command ends, but for what `print_json` tells.

    It is asked for before any code of the user's is run. Errors are told when the command has
    ended, so they find stdout as it was.
    """
    context = click.get_current_context(silent=True)
    if context is None or not context.params.get("as_json") or _STDOUT in context.meta:
        return
    context.meta[_STDOUT] = sys.stdout
    context.with_resource(redirect_stdout(sys.stderr))


def print_json(told: Any) -> None:  # noqa: ANN401 - whatever JSON can tell
    """Print what a command tells with --json."""
    click.echo(json.dumps(told), file=click.get_current_context().meta.get(_STDOUT))


def serialize_snapshot(snapshot: StoredSnapshot) -> dict[str, Any]:
    """Return a snapshot as JSON, without its shards."""
    return snapshot.to_dict()


def serialize_schema_diff(fields: SchemaDiff) -> dict[str, Any]:
    """Return the difference of two schemas as JSON."""
    return fields.to_dict()


def serialize_entry(entry: Entry | LogProblem) -> dict[str, Any]:
    """An entry as it lies in the log, or what is wrong with it."""
    from shardline.log.entry import Entry

    if isinstance(entry, Entry):
        return {**entry.to_dict(), "digest": entry.digest}
    return {"number": entry.entry, "error": entry.detail}


def locate_object(version: StoredVersion, name: str) -> str:
    """Where an object of a version's store lies: its path on a local disk, or else its URI."""
    from shardline.storage import object_uri

    return str(version.store.local_path(name) or object_uri(version.store, name))


def format_source(source: Source) -> str:
    """A source by its path, from the folder on in which the command runs, or by its batch."""
    return escape_text(source.label if source.path is None else get_source_argument(source))


def get_source_argument(source: Source) -> str:
    """Return a source as an argument of a command: its path or the name of its batch."""
    if source.path is None:
        return source.batch or ""
    path, here = Path(source.path), Path.cwd()
    return file_argument(path.relative_to(here) if path.is_relative_to(here) else source.path)


_SKIPPED = "shardline.skipped"
_SHOWN = 3
_LISTED = 100


def record_skipped_files(files: Iterable[Path]) -> None:
    """Remember files of a folder that are left out, and print them when the command ends."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    if _SKIPPED not in context.meta:
        context.meta[_SKIPPED] = {}
        context.call_on_close(lambda: _print_skipped_files(context))
    context.meta[_SKIPPED].update(dict.fromkeys(files))


def add_skipped_files(told: dict[str, Any]) -> dict[str, Any]:
    """Add the files that were left out, if any, to the JSON of a command."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_SKIPPED)
    if not found:
        return told
    names = [str(file) for file in list(found)[:_LISTED]]
    return {**told, "skipped_files": {"count": len(found), "files": names}}


def _print_skipped_files(context: click.Context) -> None:
    found = list(context.meta[_SKIPPED])
    if not found or context.params.get("as_json"):
        return
    names = ", ".join(escape_text(str(file)) for file in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    click.echo(f"skipped {format_count(len(found), 'file')}: {names}{more}", err=True)


def print_dry_run_notice() -> None:
    """The end of a dry run."""
    click.echo("Nothing was changed. To do it, leave out --dry-run")
