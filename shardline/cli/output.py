"""Output of commands: tables, trees, JSON and notices."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from contextlib import redirect_stdout
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shardline.hints import file_argument
from shardline.text import escape_text, format_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.verify_log import LogProblem
    from shardline.schema.comparison import SchemaDiff


_GAP = 2
_MIN_WIDTH = 12


class Table:
    """A table with a line under its headings.

    A line is never wrapped in a pipe or file. On a terminal, or if COLUMNS is set, the column
    `wide` is wrapped to the available width.
    """

    def __init__(self, *headings: str, right: Sequence[str] = (), wide: str = "") -> None:
        self._headings = headings
        self._right = frozenset(right)
        self._wide = wide
        self._rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row. Missing cells at its end are empty."""
        self._rows.append(cells + ("",) * (len(self._headings) - len(cells)))

    def print(self) -> None:
        """Print the table on stdout."""
        available = get_output_width()
        widths = [
            max(_measure(line) for row in rows for line in row.splitlines() or [""])
            for rows in zip(self._headings, *self._rows, strict=True)
        ]
        if available is not None and self._wide in self._headings:
            at = self._headings.index(self._wide)
            rest = sum(widths) - widths[at] + _GAP * (len(widths) - 1)
            widths[at] = min(widths[at], max(available - rest, _MIN_WIDTH))
        _print_lines(
            [
                *self._list_lines(self._headings, widths),
                "─" * (sum(widths) + _GAP * (len(widths) - 1)),
                *(line for row in self._rows for line in self._list_lines(row, widths)),
            ]
        )

    def _list_lines(self, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        cells = [
            _wrap(cell, width) if heading == self._wide else cell.splitlines()
            for cell, width, heading in zip(row, widths, self._headings, strict=True)
        ]
        for lines in zip_longest(*cells, fillvalue=""):
            padded = (
                " " * (width - _measure(line)) + line
                if heading in self._right
                else line + " " * (width - _measure(line))
                for line, width, heading in zip(lines, widths, self._headings, strict=True)
            )
            yield (" " * _GAP).join(padded).rstrip()


def _print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout, with escapes for what its encoding cannot print."""
    sys.stdout.write("\n".join([*lines, ""]))
    sys.stdout.flush()


def get_output_width() -> int | None:
    """Return the columns of stdout; None for a pipe or file, unless COLUMNS is set."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    return None


def _measure(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))


def _wrap(text: str, width: int) -> list[str]:
    """Break a text at spaces, and words that are too long anywhere."""
    lines = []
    for line in text.splitlines():
        current = ""
        for piece in re.findall(r"\S+\s*", line):
            word = piece
            while _measure((current + word).rstrip()) > width:
                if current:
                    lines.append(current.rstrip())
                    current = ""
                    continue
                head = next(end for end in range(len(word), 0, -1) if _measure(word[:end]) <= width)
                lines.append(word[:head])
                word = word[head:]
            current += word
        lines.append(current.rstrip())
    return lines


class Tree:
    """A tree of labels."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.children: list[Tree] = []

    def add(self, label: str) -> Tree:
        """Add a child and return it."""
        self.children.append(Tree(label))
        return self.children[-1]

    def print(self) -> None:
        """Print the tree on stdout."""
        available = get_output_width()
        drawn = [self.label]
        pending = [("", child, child is self.children[-1]) for child in reversed(self.children)]
        while pending:
            indent, tree, is_last = pending.pop()
            below = indent + ("    " if is_last else "│   ")
            width = None if available is None else max(available - len(below), _MIN_WIDTH)
            lines = tree.label.splitlines() if width is None else _wrap(tree.label, width)
            drawn.append(f"{indent}{'└── ' if is_last else '├── '}{lines[0]}")
            drawn += [f"{below}{line}" for line in lines[1:]]
            pending += [
                (below, child, child is tree.children[-1]) for child in reversed(tree.children)
            ]
        _print_lines(drawn)


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


def print_limited(lines: Iterable[str], *, limit: int = 10, total: int | None = None) -> None:
    """Print the first lines, indented, and how many more there are of them, or of `total`."""
    rows = list(lines)
    for row in rows[:limit]:
        click.echo(f"  {row}")
    if len(rows) > limit:
        click.echo(f"  … and {len(rows) - limit:,} more; --json lists all")
    elif total is not None and total > len(rows):
        click.echo(f"  … and {total - len(rows):,} more")


def print_dry_run_notice() -> None:
    """Print how to apply the plan of a dry run."""
    click.echo("nothing was changed\nhint: to apply the plan, leave out `--dry-run`")
