"""Scripts: commands as a user types them, and a few verbs that prepare files."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import textwrap
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.replay.environment import Environment
from tests.replay.recording import Block, Tree, command_lines, content_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.replay.renames import Renames

SCRIPTS = Path(__file__).parent / "scripts"
TESTS = Path(__file__).parents[1]
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


@dataclass(frozen=True)
class Step:
    """A line of a script, and the indented lines after it."""

    line: str
    content: str = ""

    @property
    def words(self) -> list[str]:
        """Split as a shell does, without expanding anything."""
        return shlex.split(self.line)

    @property
    def is_command(self) -> bool:
        """Return True for a command, False for a verb."""
        return self.line.startswith("shardline ") or self.line == "shardline"


def script_names() -> list[str]:
    """List the scripts."""
    return sorted(path.stem for path in SCRIPTS.glob("*.replay"))


def parse(text: str) -> Iterator[Step]:
    """Read the steps of a script; comments and empty lines separate them."""
    line, content = "", list[str]()
    for row in [*re.sub(r" *\\\n *", " ", text).splitlines(), "#"]:
        if row.startswith("  ") or (not row and content):
            content.append(row)
            continue
        if line:
            yield Step(line, textwrap.dedent("\n".join(content)).rstrip("\n") + "\n")
        line, content = "" if row.startswith("#") else row.strip(), []


def read_script(name: str) -> list[Step]:
    """Read a script by its name."""
    return list(parse((SCRIPTS / f"{name}.replay").read_text()))


def write_renamed(name: str, renames: Renames) -> None:
    """Write the new names of what was renamed into a script."""
    path = SCRIPTS / f"{name}.replay"
    lines = path.read_text().split("\n")
    path.write_text("\n".join(map(renames.in_step, lines)))


def play(name: str, renames: Renames) -> list[Block]:
    """Run a script, with the new names of what was renamed, and return its blocks."""
    environment = Environment(name)
    blocks = []
    with environment.entered():
        player = _Player(environment)
        for step in read_script(name):
            line = renames.in_step(step.line)
            lines = player.run(Step(line, step.content))
            blocks.append(Block(f"{'$' if step.is_command else '%'} {line}", tuple(lines)))
    return blocks


class _Player:
    """Runs the steps of one script."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._folder = environment.folder
        self._tree = Tree(self._folder)

    def run(self, step: Step) -> list[str]:
        words = step.words
        if step.is_command:
            return self._command(words[1:])
        verb, *arguments = words
        try:
            method = getattr(self, f"verb_{verb}")
        except AttributeError:
            raise ValueError(f"unknown verb {verb!r} in: {step.line}") from None
        lines = method(step.content, *arguments)
        self._settle()
        return list(lines or ())

    def _settle(self) -> list[str]:
        """Date the files that are new, and return the lines about what changed."""
        changes = self._tree.changes()
        for path in self._tree.changed:
            # An export and its sidecar agree about the time of the file.
            if not path.with_name(f"{path.name}.export").exists():
                self._environment.date(path)
        self._tree.settle()
        return changes

    def _command(self, words: list[str]) -> list[str]:
        stdin = b""
        if "<" in words:
            stdin = self._one(words[words.index("<") + 1]).read_bytes()
            words = words[: words.index("<")]
        result = self._environment.run(words, stdin)
        changes = self._settle()
        if changes:
            self._environment.move_on()
        return [*command_lines(result), *changes]

    def _one(self, pattern: str) -> Path:
        """Find the file that a path or pattern names; `PATTERN@1` is the second of several."""
        pattern, _, index = pattern.partition("@")
        found = sorted(self._folder.glob(pattern))
        if not found or (len(found) > 1 and not index):
            raise ValueError(f"{pattern} names {len(found)} files, expected 1")
        return found[int(index or 0)]

    def verb_write(self, content: str, name: str) -> None:
        """Write a file with the indented lines."""
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def verb_copy(self, _: str, source: str, name: str) -> None:
        """Copy a file or folder of `tests/`, or of the script's own folder."""
        path, target = TESTS / source, self._folder / name
        if not path.exists():
            path = self._one(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, target, copy_function=shutil.copy, dirs_exist_ok=True)
        else:
            shutil.copy(path, target)

    def verb_flip(self, _: str, pattern: str, offset: str) -> None:
        """Change one bit of the byte at an offset."""
        path = self._one(pattern)
        data = bytearray(path.read_bytes())
        data[int(offset)] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)

    def verb_cut(self, _: str, pattern: str, count: str) -> None:
        """Cut bytes off the end of a file."""
        path = self._one(pattern)
        path.chmod(0o644)
        os.truncate(path, path.stat().st_size - int(count))

    def verb_replace(self, _: str, pattern: str, old: str, new: str) -> None:
        """Replace a text in a file, which must contain it."""
        path = self._one(pattern)
        data = path.read_bytes()
        if old.encode() not in data:
            raise ValueError(f"{pattern} does not contain {old!r}")
        path.chmod(0o644)
        path.write_bytes(data.replace(old.encode(), new.encode()))

    def verb_move(self, _: str, pattern: str, name: str) -> None:
        """Move a file or folder."""
        shutil.move(self._one(pattern), self._folder / name)

    def verb_remove(self, _: str, pattern: str) -> None:
        """Remove a file or folder."""
        path = self._one(pattern)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    def verb_later(self, _: str, span: str) -> None:
        """Move the clock on, as by 8d, 3h or 20m."""
        self._environment.now += timedelta(**{_UNITS[span[-1]]: int(span[:-1])})

    def verb_export(self, _: str, assignment: str) -> None:
        """Set an environment variable, or unset it with an empty value."""
        name, _, value = assignment.partition("=")
        self._environment.variables.pop(name, None)
        if value:
            self._environment.variables[name] = value

    def verb_show(self, _: str, pattern: str) -> list[str]:
        """Record the text of a file."""
        return content_lines(self._one(pattern).read_text())
