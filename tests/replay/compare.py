"""Comparison of a recording with what happens now, as a diff for each command."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING

from tests.replay.recording import OUT, read_blocks, write_blocks
from tests.replay.renames import Renames, empty_table, read_renames
from tests.replay.script import SCRIPTS, play, script_names, write_renamed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.replay.recording import Block

_Pairs = list[tuple[str, object]]


def _pairs(pairs: _Pairs) -> tuple[str, _Pairs]:
    """Sort the members of an object. Keep a duplicate key: a rename can create it."""
    return "object", sorted(pairs, key=lambda pair: (pair[0], repr(pair[1])))


# Numbers as written: 1, 1.0 and true are equal in Python.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_int=lambda text: ("number", text),
    parse_float=lambda text: ("number", text),
)


def recording_path(name: str) -> Path:
    """Return the path of a recording: next to its script."""
    return SCRIPTS / f"{name}.recorded"


def recorded_blocks(name: str) -> list[Block]:
    """Read a recording; empty if the script was never recorded."""
    path = recording_path(name)
    return list(read_blocks(path.read_text())) if path.exists() else []


def compare(name: str, renames: Renames | None = None) -> str:
    """Run a script and return what differs from its recording; empty if nothing does."""
    renames = read_renames() if renames is None else renames
    return "".join(differences(name, recorded_blocks(name), play(name, renames), renames))


def record(names: Sequence[str]) -> None:
    """Record scripts as they run now; when all are recorded, empty the rename table.

    The scripts get the new names of the table too.
    """
    renames = read_renames()
    recorded = {name: write_blocks(play(name, renames)) for name in names}
    for name, text in recorded.items():
        recording_path(name).write_text(text)
        write_renamed(name, renames)
    if set(names) == set(script_names()):
        empty_table()


def differences(
    name: str, recorded: Sequence[Block], now: Sequence[Block], renames: Renames
) -> Iterator[str]:
    """Compare blocks with the same heading, and name those that only one side has."""
    mapped = [renames.in_block(block) for block in recorded]
    headings = [block.heading for block in mapped], [block.heading for block in now]
    matcher = difflib.SequenceMatcher(None, *headings, autojunk=False)
    for tag, start, end, now_start, now_end in matcher.get_opcodes():
        if tag != "equal":
            for block in mapped[start:end]:
                yield f"{name}: {block.heading}\n  recorded, and no longer in the script\n\n"
            for block in now[now_start:now_end]:
                yield f"{name}: {block.heading}\n  in the script, and not recorded\n\n"
            continue
        for index, new in zip(range(start, end), now[now_start:now_end], strict=True):
            if not _same(recorded[index], mapped[index], new):
                yield _diff(name, mapped[index], new)


def _same(recorded: Block, mapped: Block, now: Block) -> bool:
    if mapped.lines == now.lines:
        return True
    # A new name has another length: where one applies, line breaks and columns may move.
    return mapped != recorded and _loosened(mapped) == _loosened(now)


def _loosened(block: Block) -> tuple[object, ...]:
    """Return the content of a block without its layout and without the order of keys and files."""
    out = [line[2:] for line in block.lines if line.startswith(OUT.strip())]
    rest = [line for line in block.lines if not line.startswith(OUT.strip())]
    errors = [line[2:] for line in rest if line.startswith("!")]
    others = sorted(line for line in rest if not line.startswith("!"))
    return _values("\n".join(out)), " ".join(" ".join(errors).split()), others


def _values(text: str) -> object:
    """Parse JSON documents; text that is not JSON is returned without its line breaks."""
    values, at = list[object](), 0
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except ValueError:
            return " ".join(re.sub("[─━]+", "─", text).split())
        values.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return values


def _diff(name: str, recorded: Block, now: Block) -> str:
    lines = difflib.unified_diff(recorded.lines, now.lines, "recorded", "now", lineterm="", n=2)
    return "\n".join((f"{name}: {now.heading}", *list(lines)[2:])) + "\n\n"
