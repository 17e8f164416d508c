"""A replay shows every change, and a rename table hides a rename and nothing else."""

from __future__ import annotations

import json
import tomllib
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import click
import pytest

from tests.cli.command import Result
from tests.cli.command import shardline as run_command
from tests.replay.compare import compare, differences, recorded_blocks
from tests.replay.environment import Environment
from tests.replay.recording import (
    Block,
    command_lines,
    content_lines,
    layout,
    read_blocks,
    write_blocks,
)
from tests.replay.renames import TABLE, Renames, empty_table, read_renames
from tests.replay.script import Step, parse
from tests.replay.test_coverage import commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCRIPT = "tag"


def headings(text: str) -> list[str]:
    """Commands that a diff is about."""
    return [line.partition(": ")[2] for line in text.splitlines() if line.startswith(f"{SCRIPT}: ")]


def renames(**more: dict[str, str]) -> Renames:
    """The rename table as it is now, and more."""
    table = read_renames()
    return replace(table, **{place: {**getattr(table, place), **more[place]} for place in more})


def changed_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("-", "+"))]


def block_of(heading: str) -> Block:
    (block,) = (block for block in recorded_blocks(SCRIPT) if block.heading == heading)
    return block


@contextmanager
def printed(change: Callable[[str], str]) -> Iterator[None]:
    """Change what commands print, at the boundary to the terminal."""
    echo = click.echo

    def changed(message: Any = None, *args: Any, **options: Any) -> None:  # noqa: ANN401 - of click
        echo(change(message) if isinstance(message, str) else message, *args, **options)

    with patch.object(click, "echo", changed):
        yield


@contextmanager
def option_renamed(command: str, old: str, new: str) -> Iterator[None]:
    (option,) = (option for option in commands()[command].params if old in option.opts)
    with patch.object(option, "opts", [new]):
        yield


MESSAGE = "$ shardline tag digits/v1@1 train-1"
KEY = "$ shardline tag digits/v1 train-1 --json"
OPTION = "$ shardline consumers digits/v1 --all"
ENTRY = "$ shardline consumers digits/v1 --release report --json"


def test_changed_message_shows() -> None:
    old = next(line for line in block_of(MESSAGE).lines if line.startswith("| "))
    word = old.split()[-2]
    with printed(lambda text: text.replace(old[2:], old[2:].replace(word, "NEW"))):
        text = compare(SCRIPT)
    assert headings(text) == [MESSAGE]
    assert changed_lines(text) == [f"-{old}", f"+{old.replace(word, 'NEW')}"]


def test_changed_option_shows() -> None:
    with option_renamed("consumers", "--all", "--every"):
        text = compare(SCRIPT)
    assert headings(text) == [OPTION]
    assert "-exit 0" in changed_lines(text)
    assert "+exit 2" in changed_lines(text)


def test_changed_json_key_shows() -> None:
    with printed(lambda text: text.replace('"before":', '"previous":')):
        text = compare(SCRIPT)
    assert headings(text) == [KEY]
    removed, added = changed_lines(text)
    assert removed.replace("before", "previous")[1:] == added[1:]


def test_changed_entry_byte_shows() -> None:
    wrote = [
        block for block in recorded_blocks(SCRIPT) if any(line[0] in "+~-" for line in block.lines)
    ]
    assert wrote[-1].heading == ENTRY
    token = Environment._token

    def changed(self: Environment, size: int) -> bytes:
        data = token(self, size)
        return (
            data[:-1] + bytes([data[-1] ^ 1])
            if (self._writes, size) == (len(wrote) - 1, 16)
            else data
        )

    with patch.object(Environment, "_token", changed):
        text = compare(SCRIPT)
    assert headings(text) == [ENTRY]
    changed_keys = {line[1:].split(":")[0].strip() for line in changed_lines(text) if '"' in line}
    assert changed_keys == {'"digest"', '"id"'}
    assert sum(line.startswith("+") and "sha256" in line for line in changed_lines(text)) == 1


def test_rename_of_option_is_silent() -> None:
    with option_renamed("consumers", "--all", "--every"):
        assert compare(SCRIPT, renames(option={"--all": "--every"})) == ""
        assert compare(SCRIPT, renames(option={"consumers --all": "--every"})) == ""
        assert headings(compare(SCRIPT, renames(option={"tag --all": "--every"}))) == [OPTION]


def test_rename_of_option_in_help_is_silent() -> None:
    # Far longer: every line of the help breaks elsewhere.
    with option_renamed("append", "--skip-invalid", "--skip-whatever-is-invalid"):
        assert compare("help") != ""
        text = compare("help", renames(option={"--skip-invalid": "--skip-whatever-is-invalid"}))
    assert text == ""


def test_rename_of_key_is_silent() -> None:
    with printed(lambda text: text.replace('"before":', '"a_previous":')):
        assert compare(SCRIPT, renames(key={"before": "a_previous"})) == ""


def test_rename_of_word_is_silent() -> None:
    with printed(lambda text: text.replace("registered", "enrolled")):
        assert headings(compare(SCRIPT)) != []
        assert compare(SCRIPT, renames(word={"registered": "enrolled"})) == ""


def test_rename_hides_nothing_else() -> None:
    def change(text: str) -> str:
        return text.replace('"before": 1', '"previous": 2')

    with printed(change):
        text = compare(SCRIPT, renames(key={"before": "previous"}))
    assert headings(text) == [KEY]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"before": 1, "after": 2}', '{"after": 2}'),  # the old key is gone, not renamed
        ('{"before": 1, "ok": true}', '{"after": 1, "ok": 1}'),
        ('{"before": 1, "size": 1}', '{"after": 1, "size": 1.0}'),
    ],
)
def test_change_beside_a_renamed_key_shows(old: str, new: str) -> None:
    table = Renames(key={"before": "after"})
    before, now = (Block("$ shardline x", ("exit 0", f"| {text}")) for text in (old, new))
    assert "".join(differences("x", [before], [now], table)) != ""


def test_rename_that_did_not_happen_shows() -> None:
    assert headings(compare(SCRIPT, renames(key={"before": "previous"}))) == [KEY]


def test_renames_of_commands_and_files() -> None:
    old = [
        Block(
            "$ shardline reland digits/v1 old.jsonl",
            (
                "exit 0",
                "| To do it: shardline reland digits/v1",
                "|   reland       Append again.",
                "! see old.jsonl and the reland-list",
                "+ data/old.jsonl  3 bytes",
            ),
        )
    ]
    new = [
        Block(
            "$ shardline append --retry digits/v1 new.jsonl",
            (
                "exit 0",
                "| To do it: shardline append --retry digits/v1",
                "|   append --retry  Append again.",
                "! see new.jsonl and the reland-list",
                "+ data/new.jsonl  3 bytes",
            ),
        )
    ]
    table = Renames(command={"reland": "append --retry"}, file={"old.jsonl": "new.jsonl"})
    assert list(differences("x", old, new, table)) == []
    assert list(differences("x", old, new, Renames())) != []


def test_added_and_removed_commands_show() -> None:
    one, two = (Block(f"$ shardline {name}", ("exit 0",)) for name in ("one", "two"))
    assert "not recorded" in "".join(differences("x", [one], [one, two], Renames()))
    assert "no longer" in "".join(differences("x", [one, two], [two], Renames()))


def test_recording_emptied_of_renames(tmp_path: Path) -> None:
    table = tmp_path / "renames.toml"
    text = TABLE.read_text()
    table.write_text(text.replace("[option]", '[option]\n"--old" = "--new"\n#'))
    assert read_renames(table).option == {"--old": "--new"}
    empty_table(table)
    assert all(names == {} for names in tomllib.loads(table.read_text()).values())
    assert "[option]" in table.read_text()


def test_unknown_place_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "renames.toml"
    table.write_text('[verb]\na = "b"\n')
    with pytest.raises(TypeError, match="verb"):
        read_renames(table)


def test_recording_round_trips() -> None:
    blocks = [
        Block("% write x", ()),
        Block("$ shardline y", ("exit 0", "|", "| $ shardline z", "! a", "+ b  1 bytes", "    {}")),
    ]
    assert list(read_blocks(write_blocks(blocks))) == blocks


def test_layout_keeps_what_json_says() -> None:
    value = {"b": [1, 2.5, None, {"a": "ü" * 90}], "a": {}, "c": ["x" * 60, "y" * 60]}
    lines = layout(value)
    assert len(lines) > 5
    assert json.loads("".join(lines)) == value
    assert list(json.loads("".join(lines))) == ["b", "a", "c"]


def test_content_without_newline_shows() -> None:
    assert content_lines("a\x00") == ["| a\\x00", "| (no newline at the end)"]
    assert content_lines("a\n\nb\n") == ["| a", "|", "| b"]
    assert content_lines("") == []


def test_errors_show_how_their_lines_end() -> None:
    assert command_lines(Result(2, "", "a\n\nb\n")) == ["exit 2", "! a", "!", "! b"]
    assert command_lines(Result(2, "", "a\rb")) == [
        *("exit 2", "! a\\rb", "! (no newline at the end)")
    ]
    assert command_lines(Result(0, "", "")) == ["exit 0"]


def test_text_as_exit_code_shows() -> None:
    def end(**_: object) -> None:
        raise SystemExit("it ended")

    with patch.object(commands()["status"], "callback", end):
        result = run_command("status")
    assert (result.code, result.out, result.err) == (1, "", "it ended\n")


def test_steps_have_continuations_and_content() -> None:
    text = "# why\nshardline a \\\n    --b 'c d'\n\nwrite x\n  one\n\n    two\n\nremove x\n"
    assert list(parse(text)) == [
        Step("shardline a --b 'c d'", "\n"),
        Step("write x", "one\n\n  two\n"),
        Step("remove x", "\n"),
    ]
