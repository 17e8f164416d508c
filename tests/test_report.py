"""Reports as JSON values and as HTML."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pytest

from shardline.report import Report, to_json_value
from shardline.tfrecord import Compression


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    machinery: object = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ExampleReport(Report):
    JSON_PROPERTIES: ClassVar = ("ok",)

    version: str
    parts: tuple[Part, ...] = ()
    store: object = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        return not self.parts


def test_report_to_dict_holds_fields_and_properties() -> None:
    report = ExampleReport("a/v1", (Part("x", object()),), object())
    assert report.to_dict() == {"ok": False, "version": "a/v1", "parts": [{"name": "x"}]}
    assert json.loads(json.dumps(report.to_dict())) == report.to_dict()


def test_json_value_types() -> None:
    time = datetime(2026, 1, 2, tzinfo=UTC)
    values = (Path("a"), time, {1: {2}}, Compression.GZIP, None, True, 1.5)
    assert to_json_value(values) == [
        "a",
        "2026-01-02T00:00:00+00:00",
        {"1": [2]},
        "gzip",
        None,
        True,
        1.5,
    ]


@pytest.mark.parametrize("value", [b"record", object()])
def test_json_value_rejects_others(value: object) -> None:
    with pytest.raises(TypeError):
        to_json_value([value])


def test_report_html_is_escaped_and_limited() -> None:
    report = ExampleReport("<b>\0", tuple(Part(f"part{n}") for n in range(25)))
    html = report._repr_html_()
    assert "&lt;b&gt;\\x00" in html
    assert "<b>" not in html
    assert "part19" in html
    assert "part20" not in html
