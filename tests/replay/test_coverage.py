"""Every command and option is in some script."""

from __future__ import annotations

import shlex
from collections import defaultdict

import click

from shardline.cli.app import main
from tests.replay.compare import recorded_blocks
from tests.replay.renames import read_renames
from tests.replay.script import read_script, script_names

OMITTED: dict[str, str] = {}
"""Options that no script uses, as `COMMAND --option`, each with the reason."""

_FORMS = {"-h": "help", "--help": "help", "--json": "json"}


def commands() -> dict[str, click.Command]:
    """Return every command by its name."""
    context = click.Context(main)
    names = main.list_commands(context)
    return {name: command for name in names if (command := main.get_command(context, name))}


def typed() -> dict[str, list[list[str]]]:
    """Return the words after each command, over all scripts, with today's names."""
    found, renames = defaultdict(list), read_renames()
    for name in script_names():
        for step in read_script(name):
            words = shlex.split(renames.in_step(step.line))
            if step.is_command and len(words) > 1:
                found[words[1]].append(words[2:])
    return found


def test_every_option_is_used() -> None:
    lines = typed()
    missing = [
        f"{name} {option.opts[-1]}"
        for name, command in commands().items()
        for option in command.params
        if isinstance(option, click.Option) and not any(_uses(line, option) for line in lines[name])
    ]
    assert sorted(missing) == sorted(OMITTED)


def _uses(line: list[str], option: click.Option) -> bool:
    return not {word.partition("=")[0] for word in line}.isdisjoint(option.opts)


def test_every_command_is_recorded_with_help_text_and_json() -> None:
    forms, renames = defaultdict(set), read_renames()
    for name in script_names():
        for block in map(renames.in_block, recorded_blocks(name)):
            words = block.heading.split()
            if block.heading.startswith("$ shardline ") and block.lines[0] == "exit 0":
                forms[words[2]].add(
                    next((_FORMS[word] for word in words if word in _FORMS), "text")
                )
    for name in commands():
        assert forms[name] >= {"help", "text", "json"}, name


def test_every_exit_code_is_recorded() -> None:
    codes = {
        block.lines[0]
        for name in script_names()
        for block in recorded_blocks(name)
        if block.heading.startswith("$ ")
    }
    assert codes == {"exit 0", "exit 1", "exit 2"}


def test_every_script_is_recorded() -> None:
    for name in script_names():
        steps = [step.line for step in read_script(name)]
        assert [block.heading[2:] for block in recorded_blocks(name)] == steps
