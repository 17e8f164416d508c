"""Expectation suites in files: `checks.draft` writes them, people edit them, checks read them.

A file has one expectation on each line and no ids, so that a change of one shows as one line.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardline.errors import ShardlineError

SEVERITIES = ("critical", "warning", "info")
SUITES = Path(__file__).with_name("expectations")
_KEYS = ("type", "kwargs", "severity", "meta", "notes", "description")


class SuiteError(ShardlineError, ValueError):
    """A suite that is not there, or that is none."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One expectation, as Great Expectations takes it. What fails at `critical` blocks."""

    type: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    severity: str = "critical"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about; none if it is about the table."""
        named = (self.kwargs.get(name) for name in ("column", "column_A", "column_B"))
        listed = self.kwargs.get("column_list") or ()
        return tuple(str(name) for name in (*named, *listed) if name is not None)

    def to_json(self) -> dict[str, Any]:
        """The expectation as it stands in a file."""
        told = {"type": self.type, "kwargs": dict(self.kwargs), "severity": self.severity}
        return {**told, **self.more}


@dataclass(frozen=True, slots=True)
class Suite:
    """The expectations on a version, in order."""

    name: str
    expectations: tuple[Expected, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def to_text(self) -> str:
        """The suite as its file has it."""
        lines = ",\n".join(f"    {json.dumps(one.to_json())}" for one in self.expectations)
        head = f'  "name": {json.dumps(self.name)},\n  "meta": {json.dumps(dict(self.meta))},\n'
        return f'{{\n{head}  "expectations": [\n{lines}\n  ]\n}}\n'


def suite_path(version: str, folder: Path = SUITES) -> Path:
    """Where the suite of a version lies: `checks/expectations/digits_v1.json`."""
    return folder / f"{version.replace('/', '_')}.json"


def read_suite(path: Path, version: str = "DATASET/VERSION") -> Suite:
    """The suite in a file; SuiteError says what is wrong with it, and where.

    Whether Great Expectations knows what is in it shows when it is used. `version` is named in the
    command that drafts a suite which is not there.
    """
    drafts = f"python -m checks.draft {version} --output {path}"
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SuiteError(f"there is no suite {path}; to draft one: {drafts}") from None
    except json.JSONDecodeError as error:
        raise SuiteError(
            f"{path}: this is no JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except (UnicodeDecodeError, RecursionError):
        raise SuiteError(
            f"{path}: this is no JSON, or too deep; to draft another: {drafts}"
        ) from None
    except OSError as error:
        raise SuiteError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(told, dict) or not isinstance(told.get("expectations"), list):
        raise SuiteError(
            f"{path}: a suite is an object with 'name' and a list of 'expectations'; to draft "
            f"one: {drafts}"
        )
    if not told["expectations"]:
        raise SuiteError(f"{path} expects nothing: add expectations, or draft them: {drafts}")
    name, meta = told.get("name", path.stem), told.get("meta") or {}
    if not isinstance(name, str) or not name or not isinstance(meta, dict):
        raise SuiteError(f"{path}: 'name' is a text that is not empty, and 'meta' an object")
    read = [_expected(path, place, one) for place, one in enumerate(told["expectations"], 1)]
    return Suite(name, tuple(read), meta)


def _expected(path: Path, place: int, told: object) -> Expected:
    if not isinstance(told, dict) or not isinstance(told.get("type"), str):
        raise SuiteError(
            f"{path}: expectation {place} has no 'type', such as expect_column_to_exist"
        )
    what = f"{path}: expectation {place} ({told['type']})"
    unknown = sorted(set(told) - {*_KEYS, "id", "rendered_content"})
    if unknown:
        raise SuiteError(
            f"{what} has an unknown field {unknown[0]!r}: it may have {_listed(_KEYS)}"
        )
    kwargs = told.get("kwargs", {})
    if not isinstance(kwargs, dict):
        raise SuiteError(f'{what}: \'kwargs\' is an object, such as {{"column": "label"}}')
    severity = told.get("severity", SEVERITIES[0])
    if severity not in SEVERITIES:
        raise SuiteError(f"{what}: 'severity' is one of {_listed(SEVERITIES)}")
    more = {key: told[key] for key in _KEYS[3:] if told.get(key)}
    return Expected(told["type"], kwargs, severity, more)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
