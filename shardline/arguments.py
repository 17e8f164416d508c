"""Validation and parsing of arguments: paths, sizes, numbers and options."""

from __future__ import annotations

import numbers
import os
import re
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import (
    InvalidArgumentError,
    InvalidNameError,
    InvalidTypeError,
    UnknownArgumentError,
)
from shardline.hints import Hint, Option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def resolve_path(path: Path | str) -> Path:
    """Return a path without symbolic links. Unlike `Path.resolve`, never fails at a loop."""
    return Path(os.path.realpath(path))


def parse_local_path(value: object, name: str = "path") -> Path:
    """Parse the path argument `name`. Raises InvalidTypeError for other types."""
    if not isinstance(value, str | Path):
        raise InvalidTypeError(f"{name}: expected a path, got {type(value).__name__}")
    if "\0" in str(value):
        raise InvalidNameError(f"{name}: invalid path: contains a null byte")
    return Path(value)


def parse_local_paths(values: object, name: str = "paths") -> list[Path]:
    """Parse the argument `name`: a path or several."""
    if isinstance(values, str | Path):
        return [parse_local_path(values, name)]
    return [parse_local_path(value, name) for value in list_items(values, name)]


def list_items(values: object, name: str) -> Iterable[object]:
    """Return values to iterate over. Raises InvalidTypeError for a single value or for text."""
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__iter__"):
        raise InvalidTypeError(f"{name}: expected a list, got {type(values).__name__}")
    items: Iterable[object] = values
    return items


TARGET_BYTES = 128 * 1024 * 1024


_SIZE = re.compile(r"(\d{1,30})\s*(|[kmgt])i?b?", re.IGNORECASE)


def validate_files_differ(files: Iterable[Path]) -> None:
    """Raise InvalidArgumentError if a file is named twice, such as by a glob and a name.

    Dropping the second would lose requested records, keeping it would duplicate them.
    """
    named: dict[Path, Path] = {}
    for file in files:
        real = resolve_path(file)
        first = named.get(real)
        if first is not None:
            also = "" if first == file else f" (also named {first})"
            raise InvalidArgumentError(
                f"{file}: file named twice{also}",
                code="duplicate-file",
                hint=Hint.of("name each file once; to repeat its records, copy the file"),
                path=file,
            )
        named[real] = file


def validate_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Raise InvalidArgumentError if the value is not among the known values."""
    if value not in known:
        raise InvalidArgumentError(
            f"invalid {name} {value!r}: expected {', '.join(known)}", code="invalid-choice"
        )


def validate_minimum(name: str, value: int | None, least: int) -> None:
    """Raise InvalidArgumentError if a number is given and less than the minimum."""
    if value is not None:
        validate_number(name, value)
    if value is not None and value < least:
        raise InvalidArgumentError(
            f"{name}: expected {least} or more, got {value}", code="out-of-range"
        )


def validate_number(name: str, value: object, kind: type = numbers.Integral) -> None:
    """Raise InvalidTypeError if a value is not a number of this kind."""
    if not isinstance(value, kind) or isinstance(value, bool):
        expected = "an integer" if kind is numbers.Integral else "a number"
        raise InvalidTypeError(f"{name}: expected {expected}, got {type(value).__name__}")


def parse_size(text: str) -> int:
    """Return a number of bytes. Raises InvalidArgumentError if the text is not a size.

    Example:
        parse_size("128MB")  # 134217728: units are powers of 1024
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidArgumentError(
            f"invalid size {text!r}: expected 1000000, 64KB or 256MB", code="invalid-argument"
        )
    power = " kmgt".index(match[2].lower() or " ")
    return int(match[1]) * int(1024**power)


def validate_share(name: str, value: float) -> None:
    """Raise InvalidArgumentError if a share is not from 0 to 1."""
    validate_number(name, value, numbers.Real)
    if not 0 <= value <= 1:
        raise InvalidArgumentError(f"{name}: expected 0 to 1, got {value}", code="out-of-range")


def validate_option_names(
    function: Callable[..., object], options: Iterable[str], *known: Iterable[str]
) -> None:
    """Raise UnknownArgumentError for a keyword argument that a function does not take.

    `known` are the keywords of its `**options`.
    """
    own = [
        parameter.name
        for parameter in signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    names = list(dict.fromkeys([*(name for group in known for name in group), *own]))
    for name in options:
        if name not in names:
            near = get_close_matches(name.lower(), names, 1)
            raise UnknownArgumentError(
                f"{function.__name__}: unknown argument {name!r} (known: {', '.join(names)})",
                hint=Hint.of("did you mean ", Option(near[0]), "?") if near else None,
            )
