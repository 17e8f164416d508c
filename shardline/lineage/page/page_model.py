"""Data of the report page: plain types whose JSON the script of the page draws.

Texts are sanitized. Numbers are raw, since the script formats them.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

    from shardline.lineage.audit.audit_report import Severity
    from shardline.lineage.check_results import CheckStatus
    from shardline.provenance.feature_origin import FeatureChange

_MAX_TEXT = 300
MAX_NAME = 120

PublicationStatus: TypeAlias = Literal["published", "rejected", "waiting", "unknown"]
PageChange: TypeAlias = Literal["added", "removed", "renamed", "cast", "filled", "changed", "kept"]


@dataclass(frozen=True, slots=True)
class PageCommitInfo:
    """The writer of an entry."""

    release: str
    host: str = ""
    run: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class PageCheckResult:
    """The result of a check on a snapshot.

    `shards` counts the shards that failed or have no result, if the check is on shards.
    """

    check: str
    result: CheckStatus
    shards: int = 0
    required: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PageEvent:
    """An entry without a snapshot. `commit` is an index into the commits of the version."""

    entry: int
    time: str
    operation: str
    text: str
    commit: int = 0


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """A snapshot with its origin, totals and check results.

    `events` are the entries up to the next snapshot. `more_events` and `more_sources` count those
    that are left out.
    """

    number: int
    entry: int
    time: str
    operation: str
    text: str
    status: PublicationStatus
    records: int
    bytes: int
    shards: int
    content: str
    digest: str
    commit: int = 0
    inputs: tuple[tuple[str, int], ...] = ()
    sources: tuple[str, ...] = ()
    more_sources: int = 0
    refs: tuple[str, ...] = ()
    checks: tuple[PageCheckResult, ...] = ()
    events: tuple[PageEvent, ...] = ()
    more_events: int = 0


@dataclass(frozen=True, slots=True)
class PageFeature:
    """A feature and its difference to the versions that it is compared with.

    `origin` has pairs of version and feature. `previous` is the name or the declaration there. A
    removed feature is not in the version.
    """

    name: str
    spec: str
    change: PageChange
    how: FeatureChange | None = None
    origin: tuple[tuple[str, str], ...] = ()
    by: str = ""
    previous: str = ""
    doc: str = ""


@dataclass(frozen=True, slots=True)
class PageHistory:
    """The latest snapshots of a version, latest first, and a sample of its sizes over time.

    `first_events` are the entries before the first snapshot. Each row of `sizes` has the commit
    time in seconds, records, bytes, snapshot, and the first letter of its status.
    """

    commits: tuple[PageCommitInfo, ...] = ()
    first_events: tuple[PageEvent, ...] = ()
    snapshots: tuple[PageSnapshot, ...] = ()
    sizes: tuple[tuple[int, int, int, int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class VersionPage:
    """A version. `problem` describes a corrupt log; an `absent` version has no log in the root."""

    name: str
    absent: bool = False
    problem: str = ""
    created: str = ""
    changed: str = ""
    entries: int = 0
    snapshots: int = 0
    published_snapshots: int = 0
    published: int | None = None
    status: PublicationStatus = "unknown"
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
    features: tuple[PageFeature, ...] = ()
    history: PageHistory = PageHistory()


@dataclass(frozen=True, slots=True)
class PageNode:
    """A version in the graph, by its upper left corner."""

    version: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PageEdge:
    """A derivation of a version from another: its path, and its label with a position."""

    source: str
    target: str
    label: str
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PageGraph:
    """The graph of versions in a drawing of this size."""

    width: int
    height: int
    nodes: tuple[PageNode, ...]
    edges: tuple[PageEdge, ...]


@dataclass(frozen=True, slots=True)
class PageFinding:
    """A finding of an audit."""

    severity: Severity
    kind: str
    version: str
    subject: str
    detail: str
    hint: str


@dataclass(frozen=True, slots=True)
class ReportPage:
    """All data of the page. `findings` is None without an audit."""

    root: str
    time: str
    release: str
    graph: PageGraph
    versions: tuple[VersionPage, ...]
    counts: dict[str, int]
    findings: tuple[PageFinding, ...] | None = None
    severities: tuple[tuple[Severity, int], ...] = ()


def to_json_value(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return page data as JSON values, without fields that have their default."""
    if is_dataclass(value):
        return {
            field.name: to_json_value(getattr(value, field.name))
            for field in fields(value)
            if field.default is MISSING or getattr(value, field.name) != field.default
        }
    return [to_json_value(item) for item in value] if isinstance(value, tuple) else value


def sanitize_text(value: object, limit: int = _MAX_TEXT) -> str:
    """Escape the characters that move or hide other text, and cut a long text."""
    text = str(value)
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "\n".join(
        line if line.isprintable() else line.encode("unicode_escape").decode()
        for line in cut.split("\n")
    )


def format_second(time: datetime) -> str:
    """Return a UTC time in ISO format, to the second."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
