"""Reports: the results of operations as JSON values and as HTML tables for notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from shardline.text import escape_text

_MAX_ROWS = 20


class Report:
    """Base of frozen dataclasses that hold the result of an operation.

    The JSON of a report has its fields, without those of `repr=False`, after the properties that
    `JSON_PROPERTIES` names. A report whose JSON differs overrides `to_dict`.
    """

    __slots__ = ()

    JSON_PROPERTIES: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values: exactly what the command prints with `--json`."""
        properties = {name: to_json_value(getattr(self, name)) for name in self.JSON_PROPERTIES}
        return {**properties, **_serialize_fields(self)}

    def _repr_html_(self) -> str:
        return render_html_table(type(self).__name__, self.to_dict())


def to_json_value(value: Any) -> Any:  # noqa: ANN401 - any value of a report
    """Return a value of a report as JSON: text, number, boolean, None, list or dictionary.

    Raises TypeError for a value that has no JSON, such as bytes: reports hold no record values.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    for method in ("to_dict", "isoformat", "total_seconds"):
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        return _serialize_fields(value)
    return _serialize_collection(value)


def _serialize_collection(value: object) -> dict[str, Any] | list[Any]:
    if isinstance(value, Mapping):
        return {str(key): to_json_value(inner) for key, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [to_json_value(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} has no JSON value")


def _serialize_fields(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    return {
        field.name: to_json_value(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.repr
    }


def render_html_table(title: str, values: Mapping[str, Any]) -> str:
    """Return JSON values as an HTML table, at most 20 rows of each list."""
    rows = "".join(
        f'<tr><th style="text-align:left">{_escape(name)}</th>'
        f'<td style="text-align:left">{_render_cell(value)}</td></tr>'
        for name, value in values.items()
    )
    caption = f'<caption style="text-align:left">{_escape(title)}</caption>' if title else ""
    return f"<table>{caption}{rows}</table>"


def _render_cell(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return render_html_table("", value) if value else ""
    if not isinstance(value, list):
        return _render_scalar(value)
    if not all(isinstance(row, Mapping) for row in value):
        return "<br>".join([*map(_render_cell, value[:_MAX_ROWS]), *_render_rest(value)])
    names = list(dict.fromkeys(name for row in value[:_MAX_ROWS] for name in row))
    if not names:
        return ""
    heading = "".join(f"<th>{_escape(name)}</th>" for name in names)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_render_cell(row.get(name))}</td>' for name in names)}</tr>"
        for row in value[:_MAX_ROWS]
    )
    return f"<table><tr>{heading}</tr>{rows}</table>{''.join(_render_rest(value))}"


def _render_scalar(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else _escape(value)


def _render_rest(values: list[Any]) -> list[str]:
    rest = len(values) - _MAX_ROWS
    return [f"and {rest:,} more"] if rest > 0 else []


def _escape(value: object) -> str:
    return escape(escape_text(str(value)))
