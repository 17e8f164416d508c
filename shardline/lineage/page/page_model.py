"""What the report page shows, as plain data: everything in it can be written as JSON.

Texts are ready to be shown, and numbers are not: the page writes those as people read them.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

    from shardline.lineage.audit.finding import Severity
    from shardline.provenance.feature_origin import FeatureChange

_MAX_TEXT = 300

PublicationStatus: TypeAlias = Literal["published", "rejected", "waiting", "unknown"]
CheckOutcome: TypeAlias = Literal["passed", "failed", "missing"]
FieldChange: TypeAlias = Literal["added", "removed", "renamed", "cast", "filled", "changed", "kept"]


@dataclass(frozen=True, slots=True)
class PageCommitInfo:
    """Who and what made entries."""

    release: str
    host: str = ""
    run: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class PageCheckResult:
    """What a check said about a snapshot.

    `shards` are how many failed or were not looked at, if it is one on shards. `needed`: what
    has not passed it is not published.
    """

    check: str
    result: CheckOutcome
    shards: int = 0
    needed: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PageEvent:
    """An entry that made no snapshot. `maker` is a place in the version's list of makers."""

    entry: int
    time: str
    operation: str
    words: str
    maker: int = 0


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """One snapshot: what made it, what it holds, and what was said about it.

    `events` are the entries behind it, up to the next snapshot; `more_events` is how many of them
    are left out, as `more_sources` is of the sources.
    """

    number: int
    entry: int
    time: str
    operation: str
    words: str
    verdict: PublicationStatus
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
    checks: tuple[PageCheckResult, ...] = ()
    events: tuple[PageEvent, ...] = ()
    more_events: int = 0


@dataclass(frozen=True, slots=True)
class PageField:
    """A feature, and how it differs from what it is made of.

    `origin` are names of versions with their features; `was` is how it was called or declared
    there. A field that is removed is not in the version.
    """

    name: str
    spec: str
    change: FieldChange
    how: FeatureChange | None = None
    origin: tuple[tuple[str, str], ...] = ()
    by: str = ""
    was: str = ""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class PageHistory:
    """What happened to a version: its newest snapshots, newest first, and its size all along.

    `sizes` has for some of the snapshots, in order: the second it was made, records, bytes, its
    number, and the first letter of its verdict.
    """

    makers: tuple[PageCommitInfo, ...] = ()
    before: tuple[PageEvent, ...] = ()
    moments: tuple[PageSnapshot, ...] = ()
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
    verdict: PublicationStatus = "unknown"
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
    fields: tuple[PageField, ...] = ()
    history: PageHistory = PageHistory()


@dataclass(frozen=True, slots=True)
class PageNode:
    """Where a version is drawn: the left upper corner."""

    version: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PageEdge:
    """That a version is made of another: by which operations, and of which snapshots last."""

    source: str
    target: str
    label: str
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PageGraph:
    """All versions and how they are made of each other, drawn in a space of this size."""

    width: int
    height: int
    nodes: tuple[PageNode, ...]
    edges: tuple[PageEdge, ...]


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
    graph: PageGraph
    versions: tuple[VersionPage, ...]
    counts: dict[str, int]
    findings: tuple[FindingRow, ...] | None = None
    severities: tuple[tuple[Severity, int], ...] = ()


def to_json_value(value: object) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """The data as JSON values. What is as it is by default is left out."""
    if is_dataclass(value):
        return {
            one.name: to_json_value(getattr(value, one.name))
            for one in fields(value)
            if one.default is MISSING or getattr(value, one.name) != one.default
        }
    if isinstance(value, tuple):
        return [to_json_value(one) for one in value]
    return value


def sanitize_text(text: object, most: int = _MAX_TEXT) -> str:
    """A foreign text without what moves or hides other text, cut if it is too long."""
    told = str(text)
    cut = told if len(told) <= most else f"{told[: most - 1]}…"
    return "\n".join(
        line if line.isprintable() else line.encode("unicode_escape").decode()
        for line in cut.split("\n")
    )


def format_second(time: datetime) -> str:
    """A time in UTC, to the second."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
