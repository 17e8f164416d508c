"""Hints: remedies of a problem, with commands and options as data.

A hint is text with structured parts. The command line adds `--root` to each command and prints
each option as a flag; Python code sees the same option as a keyword argument.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Command:
    """`shardline` command to run next: its arguments, without the root."""

    arguments: tuple[str, ...]

    @classmethod
    def of(cls, *arguments: str) -> Command:
        """Build a command from its arguments: `Command.of("repair", "digits/v1")`."""
        return cls(arguments)

    def to_argv(self, root: str | None = None) -> tuple[str, ...]:
        """Return the arguments of the command line, with the root if given."""
        extra = () if root is None else ("--root", root)
        return ("shardline", *self.arguments, *extra)

    def __str__(self) -> str:
        return shlex.join(self.to_argv())


def file_argument(path: object) -> str:
    """Return a local path as a command argument that cannot be mistaken for an option."""
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


@dataclass(frozen=True, slots=True)
class Option:
    """Option of the current operation, by its keyword; a value of True is a flag."""

    keyword: str
    value: str | int | bool | None = None

    def __str__(self) -> str:
        return self.keyword if self.value is None else f"{self.keyword}={self.value!r}"


HintPart: TypeAlias = str | Command | Option


@dataclass(frozen=True, slots=True)
class Hint:
    """Remedy of a problem: text, commands and options in order."""

    parts: tuple[HintPart, ...]

    @classmethod
    def of(cls, *parts: HintPart | Hint) -> Hint:
        """Build a hint from text, commands, options and other hints."""
        return cls(tuple(_flatten(parts)))

    @classmethod
    def run(cls, *arguments: str) -> Hint:
        """Build the hint to run a single command."""
        return cls(("run ", Command(arguments)))

    @classmethod
    def nearest(cls, name: str, known: Iterable[str], label: str) -> Hint:
        """Build the hint for an unknown name: the closest known name, or all of them."""
        names = list(dict.fromkeys(known))
        all_names = f"{label}: {', '.join(map(repr, names)) or 'none'}"
        return cls.closest(name, names) or cls((all_names,))

    @classmethod
    def closest(cls, name: str, known: Iterable[str]) -> Hint:
        """Build the hint with the closest known name; empty if none is close."""
        from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

        close = get_close_matches(name, list(known), 1)
        return cls((f"did you mean {close[0]!r}?",) if close else ())

    @classmethod
    def join(cls, separator: str, hints: Iterable[Hint]) -> Hint:
        """Join several hints with a separator between them."""
        parts: list[HintPart | Hint] = []
        for hint in hints:
            parts += [separator, hint] if parts else [hint]
        return cls.of(*parts)

    def map(self, change: Callable[[str], str]) -> Hint:
        """Return the hint with each text, argument and value changed."""
        return Hint(tuple(_map_part(part, change) for part in self.parts))

    @property
    def commands(self) -> tuple[Command, ...]:
        """Commands of the hint, in order."""
        return tuple(part for part in self.parts if isinstance(part, Command))

    def render(
        self,
        command: Callable[[Command], str] = str,
        option: Callable[[Option], str] = str,
    ) -> str:
        """Return the text, with commands and options in backticks."""
        texts = []
        for part in self.parts:
            if isinstance(part, Command):
                texts.append(f"`{command(part)}`")
            elif isinstance(part, Option):
                texts.append(f"`{option(part)}`")
            else:
                texts.append(part)
        return "".join(texts)

    def __str__(self) -> str:
        return self.render()

    def __bool__(self) -> bool:
        return bool(self.parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the hint as JSON: its text, and each command as a list of arguments."""
        return {
            "text": str(self),
            "commands": [list(command.to_argv()) for command in self.commands],
        }


def _map_part(part: HintPart, change: Callable[[str], str]) -> HintPart:
    if isinstance(part, Command):
        return Command(tuple(map(change, part.arguments)))
    if isinstance(part, Option):
        return Option(part.keyword, change(part.value)) if isinstance(part.value, str) else part
    return change(part)


def _flatten(parts: Iterable[HintPart | Hint]) -> Iterable[HintPart]:
    for part in parts:
        if isinstance(part, Hint):
            yield from part.parts
        elif part:
            yield part
