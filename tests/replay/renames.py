"""Rename table: old names of a recording, and what they are called now."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.replay.recording import ERR, OUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.replay.recording import Block

TABLE = Path(__file__).parent / "renames.toml"
PLACES = ("command", "option", "key", "word", "file")


@dataclass(frozen=True)
class Renames:
    """Old and new names, by the place they apply to."""

    command: Mapping[str, str] = field(default_factory=dict)
    option: Mapping[str, str] = field(default_factory=dict)
    key: Mapping[str, str] = field(default_factory=dict)
    word: Mapping[str, str] = field(default_factory=dict)
    file: Mapping[str, str] = field(default_factory=dict)

    def in_step(self, line: str) -> str:
        """Return a line of a script with the new names of commands, options and files."""
        return line if line.startswith("#") else self._of(line)._typed(line)

    def in_block(self, block: Block) -> Block:
        """Return a recorded block with the new names."""
        mark, line = block.heading[:2], block.heading[2:]
        return replace(
            block,
            heading=mark + self.in_step(line),
            lines=tuple(map(self._of(line)._in_line, block.lines)),
        )

    def _of(self, line: str) -> Renames:
        """Choose the renames of options that apply to a command: `--old`, or `COMMAND --old`."""
        words = line.split()
        command = words[1] if words[:1] == ["shardline"] and len(words) > 1 else ""
        option = {
            old.split()[-1]: new
            for old, new in self.option.items()
            if old.split()[:-1] in ([], [command])
        }
        return replace(self, option=option)

    def _in_line(self, line: str) -> str:
        if not line.startswith((OUT, ERR)):
            return _replaced(line, self.file, "{}")
        line = self._typed(line)
        line = _replaced(line, self.command, r"(?<=^\|   ){}(?= {{2}})")  # in a list of commands
        for old, new in self.key.items():
            line = line.replace(f'"{old}":', f'"{new}":')
        return _replaced(line, self.word, r"(?<!\w){}(?!\w)")

    def _typed(self, line: str) -> str:
        line = _replaced(line, self.command, r"(?<=\bshardline ){}(?![\w-])")
        line = _replaced(line, self.option, r"(?<![\w-]){}(?![\w-])")
        return _replaced(line, self.file, "{}")


def read_renames(path: Path = TABLE) -> Renames:
    """Read the table; an unknown place is an error."""
    return Renames(**tomllib.loads(path.read_text()))


def empty_table(path: Path = TABLE) -> None:
    """Remove every rename, and keep comments and places."""
    kept = (line for line in path.read_text().splitlines() if re.match(r"#|\[|$", line))
    path.write_text(re.sub(r"\n{3,}", "\n\n", "\n".join(kept).rstrip()) + "\n")


def _replaced(line: str, names: Mapping[str, str], around: str) -> str:
    for old, new in names.items():
        line = re.sub(around.format(re.escape(old)), lambda _, new=new: new, line)  # type: ignore[misc]
    return line
