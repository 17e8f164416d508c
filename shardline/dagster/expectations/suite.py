"""Expectation suites in files, written by the `draft` command and edited by people.

A file has one expectation per line and no ids, so that a change shows as a single line.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardline.dagster.expectations.rules import EVALUATIONS, find_unsupported_rule
from shardline.errors import ShardlineError
from shardline.hints import Hint

SEVERITIES = ("critical", "warning", "info")
SUITES = Path("checks", "expectations")
"""Folder of suites, relative to the working directory."""
_KEYS = ("type", "kwargs", "severity", "meta", "notes", "description")


class SuiteError(ShardlineError, ValueError):
    """A missing or invalid suite.

    `expectation` is the number of the invalid expectation, from 1, and `rule` is its type.
    `alternatives` are types of expectations to use instead.
    """

    code = "invalid-suite"
    _DETAILS = ("expectation", "rule", "alternatives")

    def __init__(
        self,
        message: str,
        *,
        path: Path,
        code: str | None = None,
        hint: Hint | None = None,
        expectation: int | None = None,
        rule: str | None = None,
        alternatives: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{path}: {message}", code=code, hint=hint, path=path)
        self.expectation = expectation
        self.rule = rule
        self.alternatives = alternatives


@dataclass(frozen=True, slots=True)
class ExpectationSpec:
    """An expectation of a suite. If it fails at severity `critical`, the check fails."""

    type: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    severity: str = "critical"
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the rule names, none for a rule about the table."""
        named = (self.kwargs.get(name) for name in ("column", "column_A", "column_B"))
        listed = self.kwargs.get("column_list") or ()
        return tuple(str(name) for name in (*named, *listed) if name is not None)

    def to_dict(self) -> dict[str, Any]:
        """Serialize to the JSON of a suite file."""
        payload = {"type": self.type, "kwargs": dict(self.kwargs), "severity": self.severity}
        return {**payload, **self.more}


@dataclass(frozen=True, slots=True)
class Suite:
    """The expectations on a version, in order."""

    name: str
    expectations: tuple[ExpectationSpec, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the rules: types, arguments and severities, in order."""
        rules = [
            [expected.type, dict(expected.kwargs), expected.severity]
            for expected in self.expectations
        ]
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()

    def to_text(self) -> str:
        """Return the text of the suite file."""
        lines = ",\n".join(
            f"    {json.dumps(expected.to_dict())}" for expected in self.expectations
        )
        head = f'  "name": {json.dumps(self.name)},\n  "meta": {json.dumps(dict(self.meta))},\n'
        return f'{{\n{head}  "expectations": [\n{lines}\n  ]\n}}\n'


def get_suite_path(version: str, folder: Path = SUITES) -> Path:
    """Return the path of a version's suite, such as `checks/expectations/digits_v1.json`."""
    return folder / f"{version.replace('/', '_')}.json"


def read_suite(path: Path, version: str = "DATASET/VERSION") -> Suite:
    """Read a suite from a file. Raises SuiteError if it is missing or invalid.

    Rules that cannot be evaluated on every row in bounded memory are invalid (see `rules`). Great
    Expectations validates the arguments when the suite is used. `version` is named in the hint that
    drafts a missing suite.
    """
    draft_hint = Hint.of(f"to draft one, run `shardline draft {version} --output {path}`")
    try:
        payload = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SuiteError(
            "suite not found", path=path, code="suite-not-found", hint=draft_hint
        ) from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}"
        raise SuiteError(
            f"invalid JSON at {position}: {error.msg}", path=path, code="invalid-json"
        ) from None
    except (UnicodeDecodeError, RecursionError):
        raise SuiteError(
            "invalid JSON, or nested too deeply", path=path, code="invalid-json", hint=draft_hint
        ) from None
    except OSError as error:
        raise SuiteError(
            f"cannot be read: {error.strerror}", path=path, code="system-error"
        ) from None
    if not isinstance(payload, dict) or not isinstance(payload.get("expectations"), list):
        raise SuiteError(
            "expected an object with 'name' and a list of 'expectations'",
            path=path,
            hint=draft_hint,
        )
    if not payload["expectations"]:
        raise SuiteError("no expectations", path=path, code="suite-empty", hint=draft_hint)
    name, meta = payload.get("name", path.stem), payload.get("meta") or {}
    if not isinstance(name, str) or not name or not isinstance(meta, dict):
        raise SuiteError("'name' must be text and 'meta' an object", path=path)
    read = [
        _parse_expectation(path, number, expectation)
        for number, expectation in enumerate(payload["expectations"], 1)
    ]
    return Suite(name, tuple(read), meta)


def validate_columns(path: Path, suite: Suite, columns: Collection[str]) -> None:
    """Raise SuiteError for an expectation on an unknown column."""
    for number, expected in enumerate(suite.expectations, 1):
        for column in expected.columns:
            if column not in columns:
                raise SuiteError(
                    f"expectation {number} ({expected.type}): unknown column {column!r}",
                    path=path,
                    code="unknown-column",
                    hint=Hint.nearest(column, columns, "columns"),
                    expectation=number,
                    rule=expected.type,
                )


def _parse_expectation(path: Path, number: int, payload: object) -> ExpectationSpec:
    if not isinstance(payload, dict) or not isinstance(payload.get("type"), str):
        raise SuiteError(
            f"expectation {number}: missing 'type'",
            path=path,
            code="invalid-expectation",
            hint=Hint.of("add a type such as expect_column_to_exist"),
            expectation=number,
        )
    unknown = sorted(set(payload) - {*_KEYS, "id", "rendered_content"})
    kwargs, severity = payload.get("kwargs", {}), payload.get("severity", SEVERITIES[0])
    hint = None
    if unknown:
        problem, hint = (
            f"unknown key {unknown[0]!r}",
            Hint.of(f"the keys are {', '.join(_KEYS)}"),
        )
    elif not isinstance(kwargs, dict):
        problem, hint = "'kwargs' must be an object", Hint.of('write {"column": "label"}')
    elif severity not in SEVERITIES:
        problem = f"invalid severity: expected {', '.join(SEVERITIES)}"
    else:
        more = {key: payload[key] for key in _KEYS[3:] if payload.get(key)}
        expected = ExpectationSpec(payload["type"], kwargs, severity, more)
        _validate_rule(path, number, expected)
        return expected
    raise SuiteError(
        f"expectation {number} ({payload['type']}): {problem}",
        path=path,
        code="invalid-expectation",
        hint=hint,
        expectation=number,
    )


def _validate_rule(path: Path, number: int, expected: ExpectationSpec) -> None:
    """Raise SuiteError for a rule that is unknown or cannot be evaluated on all rows."""
    subject = f"expectation {number} ({expected.type})"
    if expected.type not in EVALUATIONS:
        raise SuiteError(
            f"{subject}: unknown type",
            path=path,
            code="unknown-expectation",
            hint=Hint.nearest(expected.type, EVALUATIONS, "types"),
            expectation=number,
            rule=expected.type,
        )
    refusal = find_unsupported_rule(expected.type, expected.kwargs)
    if refusal is None:
        return
    advice = f"use {' or '.join(refusal.alternatives)}" if refusal.alternatives else "remove it"
    raise SuiteError(
        f"{subject}: {refusal.reason}",
        path=path,
        code="unsupported-expectation",
        hint=Hint.of(advice),
        expectation=number,
        rule=expected.type,
        alternatives=refusal.alternatives,
    )
