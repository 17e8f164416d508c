"""NAME=VALUE on the command line: names for names, and values for features."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shardline.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


def assigned(options: Iterable[str], option: str, wanted: str) -> dict[str, str]:
    """The texts that such options give to names, each once; `wanted` shows how they are written."""
    found: dict[str, str] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise UsageError(f"{option} {text}: expected {wanted}", code="invalid-option-value")
        if name in found:
            raise UsageError(
                f"{option}: duplicate feature {name!r}", code="duplicate-feature", feature=name
            )
        found[name] = value
    return found


def assigned_values(options: Iterable[str], option: str) -> dict[str, Any]:
    """The values that such options give to features, each once."""
    texts = assigned(options, option, "NAME=VALUE, and 'NAME=\"\"' for an empty text")
    for name, text in texts.items():
        if text.strip() == "null":
            raise UsageError(
                f"{option} {name}: a feature cannot contain null",
                code="invalid-option-value",
                hint=f"for the text, write `{option} '{name}=\"null\"'`",
                feature=name,
            )
    return {name: value_of(text) for name, text in texts.items()}


def value_of(text: str) -> Any:  # noqa: ANN401 - whatever JSON can tell
    """A number, truth, list or quoted text as JSON writes it; anything else is the text itself."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    return text if value is None or isinstance(value, dict) else value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
