"""What the report page shows, as plain data: everything in it can be written as JSON.

Texts are ready to be shown, and numbers are not: the page writes those as people read them.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from shardline.lineage.audit.finding import Severity
    from shardline.provenance.catalog import How

Verdict: TypeAlias = Literal["published", "rejected", "waiting", "unknown"]
Result: TypeAlias = Literal["passed", "failed", "missing"]
Change: TypeAlias = Literal["added", "removed", "renamed", "cast", "filled", "changed", "kept"]


@dataclass(frozen=True, slots=True)
class Maker:
    """Who and what made entries."""

    release: str
    host: str = ""
    run: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check said about a snapshot.

    `shards` are how many failed or were not looked at, if it is one on shards. `needed`: what
    has not passed it is not published.
    """

    check: str
    result: Result
    shards: int = 0
    needed: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An entry that made no snapshot. `maker` is a place in the version's list of makers."""

    entry: int
    time: str
    operation: str
    words: str
    maker: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """One snapshot: what made it, what it holds, and what was said about it.

    `events` are the entries behind it, up to the next snapshot; `more_events` is how many of them
    are left out, as `more_sources` is of the sources.
    """

    number: int
    entry: int
    time: str
    operation: str
    words: str
    verdict: Verdict
    records: int
    bytes: int
    shards: int
    content: str
    digest: str
    maker: int = 0
    inputs: tuple[tuple[str, int], ...] = ()
    sources: tuple[str, ...] = ()
    more_sources: int = 0
    holds: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    events: tuple[Event, ...] = ()
    more_events: int = 0


@dataclass(frozen=True, slots=True)
class Field:
    """A feature, and how it differs from what it is made of.

    `origin` are names of versions with their features; `was` is how it was called or declared
    there. A field that is removed is not in the version.
    """

    name: str
    spec: str
    change: Change
    how: How | None = None
    origin: tuple[tuple[str, str], ...] = ()
    by: str = ""
    was: str = ""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """What happened to a version: its newest snapshots, newest first, and its size all along.

    `sizes` has for some of the snapshots, in order: the second it was made, records, bytes, its
    number, and the first letter of its verdict.
    """

    makers: tuple[Maker, ...] = ()
    before: tuple[Event, ...] = ()
    moments: tuple[Moment, ...] = ()
    sizes: tuple[tuple[int, int, int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class VersionPage:
    """One version. `problem` says why its log cannot be trusted, `absent` that it has none here."""

    name: str
    absent: bool = False
    problem: str = ""
    created: str = ""
    changed: str = ""
    entries: int = 0
    snapshots: int = 0
    good: int = 0
    published: int | None = None
    verdict: Verdict = "unknown"
    records: int = 0
    bytes: int = 0
    shards: int = 0
    payload: str = ""
    doc: str = ""
    fingerprint: str = ""
    checks: tuple[str, ...] = ()
    tags: tuple[tuple[str, int], ...] = ()
    pins: tuple[tuple[str, int, str], ...] = ()
    operations: tuple[tuple[str, int], ...] = ()
    compared: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    history: History = History()


@dataclass(frozen=True, slots=True)
class Node:
    """Where a version is drawn: the left upper corner."""

    version: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Edge:
    """That a version is made of another: by which operations, and of which snapshots last."""

    source: str
    target: str
    label: str
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Graph:
    """All versions and how they are made of each other, drawn in a space of this size."""

    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding of an audit, ready to be shown."""

    severity: Severity
    kind: str
    version: str
    place: str
    detail: str
    advice: str


@dataclass(frozen=True, slots=True)
class ReportPage:
    """Everything on the page. `findings` is None if no audit was run for it."""

    root: str
    made: str
    release: str
    graph: Graph
    versions: tuple[VersionPage, ...]
    counts: dict[str, int]
    findings: tuple[FindingRow, ...] | None = None
    severities: tuple[tuple[Severity, int], ...] = ()


def as_json(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """The data as JSON values. What is as it is by default is left out."""
    if is_dataclass(value):
        return {
            one.name: as_json(getattr(value, one.name))
            for one in fields(value)
            if one.default is MISSING or getattr(value, one.name) != one.default
        }
    if isinstance(value, tuple):
        return [as_json(one) for one in value]
    return value
