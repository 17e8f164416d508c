"""Recordings: what a script did, as text that a person reviews in a diff.

A block has a heading, `$ COMMAND` or `% VERB`, and lines with a mark:

    exit 0      the exit code
    |           stdout
    !           stderr
    + - ~       a file that the command created, removed or changed, with bytes and sha256
    (indent)    the JSON of a log entry, or of the sidecar of an export
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.cli.command import Result

WIDTH = 98
OUT, ERR = "| ", "! "
_DISK_TIME = re.compile(r'("modified": ?)\d{19}\b')
"""The time that the disk gave an exported file, in nanoseconds: all that varies in our output."""


@dataclass(frozen=True)
class Block:
    """A step of a script and what it did."""

    heading: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((self.heading, *self.lines)) + "\n"


def read_blocks(text: str) -> Iterator[Block]:
    """Parse a recording."""
    heading, lines = "", list[str]()
    for line in [*text.splitlines(), "$ "]:
        if line.startswith(("$ ", "% ")):
            if heading:
                yield Block(heading, tuple(lines))
            heading, lines = line, []
        elif line:
            lines.append(line)


def write_blocks(blocks: Iterable[Block]) -> str:
    """Format a recording: an empty line between two blocks."""
    return "\n".join(map(str, blocks))


def command_lines(result: Result) -> list[str]:
    """Format how a command ended and what it printed."""
    out = _DISK_TIME.sub(r'\1"TIME"', result.out)
    return [f"exit {result.code}", *content_lines(out), *_error_lines(result.err)]


def _error_lines(text: str) -> list[str]:
    """Format stderr: only a newline ends a line."""
    lines = [f"{ERR}{_printable(line)}".rstrip(" ") for line in text.removesuffix("\n").split("\n")]
    if text and not text.endswith("\n"):
        lines.append(f"{ERR}(no newline at the end)")
    return lines if text else []


def content_lines(text: str) -> list[str]:
    """Format text as stdout shows it; JSON is spread over lines.

    The layout keeps the order of keys and loses nothing but whitespace between tokens.
    """
    lines = []
    for line in text.split("\n")[: -1 if text.endswith("\n") else None] if text else ():
        lines += [f"{OUT}{_printable(part)}".rstrip(" ") for part in _layout_line(line)]
    if text and not text.endswith("\n"):
        lines.append(f"{OUT}(no newline at the end)")
    return lines


def _layout_line(line: str) -> list[str]:
    if not line.startswith(("{", "[")) or len(line) <= WIDTH:
        return [line]
    try:
        value = json.loads(line)
    except ValueError:
        return [line]
    if json.dumps(value) != line:
        return [line]
    return layout(value)


def layout(value: Any, before: str = "", indent: int = 0, after: str = "") -> list[str]:  # noqa: ANN401 - any JSON
    """Lay out JSON: what fits is one line, anything else a line for each member."""
    margin = " " * indent
    flat = f"{margin}{before}{json.dumps(value, ensure_ascii=False)}{after}"
    if len(flat) <= WIDTH or not isinstance(value, dict | list) or not value:
        return [flat]
    pairs = (
        [(f"{json.dumps(key, ensure_ascii=False)}: ", item) for key, item in value.items()]
        if isinstance(value, dict)
        else [("", item) for item in value]
    )
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    lines = [f"{margin}{before}{opening}"]
    for number, (key, item) in enumerate(pairs, 1):
        lines += layout(item, key, indent + 1, "," if number < len(pairs) else "")
    return [*lines, f"{margin}{closing}{after}"]


def _printable(line: str) -> str:
    """Escape what does not belong in a text file."""
    return "".join(
        letter
        if letter.isprintable() or letter == " "
        else letter.encode("unicode_escape").decode()
        for letter in line
    )


class Tree:
    """Files below a folder, and how they changed since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before: dict[str, str] = {}
        self._stamps: dict[str, tuple[int, ...]] = {}
        self.changed: list[Path] = []

    def changes(self) -> list[str]:
        """Return lines about files that came, went or changed; `changed` has their paths."""
        found, lines = {}, list[str]()
        self.changed = []
        for path in sorted(self._folder.rglob("*")):
            if path.is_dir():
                continue
            name = path.relative_to(self._folder).as_posix()
            if self._stamps.get(name) == _stamp(path):
                found[name] = self._before[name]
                continue
            found[name] = _described(path)
            if found[name] == self._before.get(name):
                continue
            self.changed.append(path)
            lines.append(f"{'~' if name in self._before else '+'} {name}  {found[name]}")
            lines += _json_lines(path)
        lines += [f"- {name}" for name in sorted(self._before.keys() - found.keys())]
        self._before = found
        return lines

    def settle(self) -> None:
        """Remember the files as they are now."""
        paths = {name: self._folder / name for name in self._before}
        self._stamps = {name: _stamp(path) for name, path in paths.items()}


def _stamp(path: Path) -> tuple[int, ...]:
    status = path.lstat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _described(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".export":
        return f"{len(data):,} bytes"
    return f"{len(data):,} bytes  sha256 {hashlib.sha256(data).hexdigest()[:16]}"


def _json_lines(path: Path) -> list[str]:
    """Lay out a log entry or the sidecar of an export; other files have no lines."""
    is_entry = path.parent.name == "log" and path.suffix == ".json" and path.stem.isdigit()
    if not is_entry and path.suffix != ".export":
        return []
    try:
        value = json.loads(_DISK_TIME.sub(r'\1"TIME"', path.read_text()))
    except ValueError:
        return ["    (not JSON)"]
    return layout(value, indent=4)
