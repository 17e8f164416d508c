"""Markdown and YAML in which foreign texts stay texts."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MEANS_SOMETHING = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")


def text(value: object) -> str:
    """A foreign text in a line of Markdown: nothing in it means anything."""
    line = " ".join(str(value).split())
    printable = "".join(one if one.isprintable() else "�" for one in line)
    return _MEANS_SOMETHING.sub(r"\\\1", printable)


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """A table, whose cells are Markdown."""
    headings = list(headings)
    yield f"| {' | '.join(headings)} |"
    yield f"|{'|'.join('---' for _ in headings)}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def yaml(told: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A mapping as YAML; texts and numbers are written as JSON, which YAML contains."""
    for name, value in told.items():
        key = json.dumps(name) if name.isdigit() else name
        if isinstance(value, dict):
            yield f"{indent}{key}:"
            yield from yaml(value, f"{indent}  ")
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            for one in value:
                yield from _item(one, indent)
        else:
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"


def _item(one: object, indent: str) -> Iterator[str]:
    if not isinstance(one, dict):
        yield f"{indent}- {json.dumps(one, ensure_ascii=False)}"
        return
    first, *rest = yaml(one, f"{indent}  ")
    yield f"{indent}- {first.strip()}"
    yield from rest
