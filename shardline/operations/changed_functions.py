"""Refuse to continue a version with a function that changed while its code version did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import FieldsError
from shardline.hints import Hint, Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.canonical_json import Json
    from shardline.log.version import StoredVersion
    from shardline.udf.base import Fields

FUNCTIONS = "functions"
"""The parameter of an entry that tells the source digest of each function."""


def describe_functions(makers: Iterable[Fields]) -> list[Json]:
    """Return the functions as an entry tells them: name, code version and source digest."""
    told: list[Json] = []
    for maker in makers:
        identity = maker.identity()
        digest = getattr(maker, "source_digest", lambda: None)()
        if identity is not None and digest is not None:
            told.append(
                {"function": identity["function"], "code": identity["code"], "source": digest}
            )
    return told


def checked_digests(makers: Iterable[Fields]) -> tuple[str, ...]:
    """Return the source digests of the functions whose source is compared."""
    checked = [maker for maker in makers if getattr(maker, "check_source", True)]
    return tuple(one["source"] for one in describe_functions(checked))


def refuse_changed_functions(into: StoredVersion, operation: str, makers: Sequence[Fields]) -> None:
    """Raise FieldsError if the latest results of a version came from another source text.

    Older entries that tell no digest are accepted, and so are digests of different methods.
    """
    checked = [maker for maker in makers if getattr(maker, "check_source", True)]
    given = describe_functions(checked)
    if not given or not into.state.snapshot:
        return
    known = {(one["function"], one["code"]): one["source"] for one in _latest(into, operation)}
    for one in given:
        before = known.get((one["function"], one["code"]))
        if before is None or before == one["source"] or _method(before) != _method(one["source"]):
            continue
        raise FieldsError(
            f"{into.name}: function {one['function']!r} has changed, its code {one['code']!r} "
            "has not",
            code="changed-function",
            hint=Hint.of(
                "change ",
                Option("code"),
                " to compute all results again; if they are the same, set ",
                Option("check_source", value=False),
            ),
            version=into.name,
        )


def _latest(into: StoredVersion, operation: str) -> list[Json]:
    """Return the functions of the latest entry of an operation, behind rebuilds and the like."""
    state = into.state
    for number in state.line():
        entry = into.log.entry(into.snapshot(number).entry)
        if entry.operation == operation:
            told = entry.parameters.get(FUNCTIONS, [])
            return [one for one in told if _is_told(one)] if isinstance(told, list) else []
    return []


def _is_told(one: object) -> bool:
    keys = ("function", "code", "source")
    return isinstance(one, dict) and all(isinstance(one.get(key), str) for key in keys)


def _method(digest: str) -> str:
    return digest.partition(":")[0]
