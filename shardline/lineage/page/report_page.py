"""The report page: the history of a root in a self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.lineage.page.graph_layout import draw_graph
from shardline.lineage.page.page_model import (
    PageEdge,
    PageFinding,
    PageGraph,
    PageNode,
    ReportPage,
    VersionPage,
    format_second,
    sanitize_text,
    to_json_value,
)
from shardline.lineage.page.version_page import VersionLog, build_version_page
from shardline.log.version import utc_now
from shardline.provenance.log_index import group_by_input
from shardline.release import __version__
from shardline.storage.durable_file import DurableFile
from shardline.templates import render_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shardline.lineage.audit.audit_report import Finding, Severity
    from shardline.lineage.page.graph_layout import GraphLine, GraphPoint
    from shardline.log.entry import Entry
    from shardline.provenance.log_index import LogIndex

MAX_SNAPSHOTS, MIN_SNAPSHOTS, MAX_ALL_SNAPSHOTS = 200, 10, 1500
"""How many snapshots to list: of a version at most and at least, and of all versions together."""
MAX_FINDINGS = 500
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_SCRIPTS = ("elements.js", "plot.js", "version.js", "graph.js", "page.js")
_NEVER = datetime.max.replace(tzinfo=UTC)


def build_report_page(
    index: LogIndex,
    *,
    now: datetime,
    names: Iterable[str] | None = None,
    findings: Sequence[Finding] | None = None,
) -> ReportPage:
    """Build the data of the page.

    Args:
        index: The logs of the root.
        now: The time of the page.
        names: The versions to show with all upstream and downstream versions, by default all.
        findings: Findings of an audit, or None without an audit.
    """
    logs = {name: VersionLog.read(index, name) for name in index.list_versions()}
    derivations = _group_derivations(logs.values())
    all_names = {*logs, *(name for line in derivations for name in line)}
    listed = sorted(all_names if names is None else _find_related(set(names), derivations))
    limit = max(MIN_SNAPSHOTS, min(MAX_SNAPSHOTS, MAX_ALL_SNAPSHOTS // max(len(listed), 1)))
    previous = _map_previous_versions([logs[name] for name in listed if name in logs])
    versions = tuple(
        build_version_page(index, logs[name], previous.get(name), limit)
        if name in logs
        else VersionPage(name, absent=True)
        for name in listed
    )
    # Findings without a version are about the root.
    selected = [
        finding
        for finding in findings or ()
        if names is None or not finding.version or finding.version in listed
    ]
    selected.sort(key=lambda finding: (_SEVERITIES.index(finding.severity), finding.version))
    counts = Counter(finding.severity for finding in selected)
    return ReportPage(
        index.store.uri,
        format_second(now),
        __version__,
        _build_graph(listed, derivations),
        versions,
        _count_totals(versions),
        None if findings is None else tuple(map(_make_page_finding, selected[:MAX_FINDINGS])),
        tuple((severity, counts[severity]) for severity in _SEVERITIES if counts[severity]),
    )


def _group_derivations(logs: Iterable[VersionLog]) -> dict[GraphLine, list[Entry]]:
    """Group the entries that read other versions by upstream and downstream version."""
    return {
        (name, log.name): entries
        for log in logs
        for name, entries in group_by_input(log.entries).items()
    }


def _find_related(names: set[str], lines: Iterable[GraphLine]) -> set[str]:
    """Return the versions with all their upstream and all their downstream versions."""
    related = set(names)
    for start, end in ((0, 1), (1, 0)):
        neighbors: dict[str, set[str]] = defaultdict(set)
        for line in lines:
            neighbors[line[start]].add(line[end])
        reached, new = set(names), set(names)
        while new:
            new = {other for name in new for other in neighbors[name]} - reached
            reached |= new
        related |= reached
    return related


def _map_previous_versions(logs: Sequence[VersionLog]) -> dict[str, str]:
    """Map each version to the version of its dataset that was created before it."""
    previous: dict[str, str] = {}
    latest: dict[str, str] = {}
    dated = [(log.entries[0].time if log.entries else _NEVER, log.name) for log in logs]
    for _, name in sorted(dated):
        dataset = name.partition("/")[0]
        if dataset in latest:
            previous[name] = latest[dataset]
        latest[dataset] = name
    return previous


def _build_graph(
    names: Sequence[str], derivations: Mapping[GraphLine, Sequence[Entry]]
) -> PageGraph:
    drawing = draw_graph(names, [line for line in derivations if set(line) <= set(names)])
    nodes = (
        PageNode(name, round(point.x), round(point.y)) for name, point in drawing.nodes.items()
    )
    edges = []
    for line, points in drawing.lines.items():
        # The label is on the last stretch, which no other line to the target shares.
        before, end = points[-2:]
        edges.append(
            PageEdge(
                *line,
                _format_edge_label(line[0], derivations[line]),
                _format_svg_path(points),
                round((before.x + end.x) / 2),
                round((before.y + end.y) / 2),
            )
        )
    return PageGraph(
        round(drawing.width),
        round(drawing.height),
        tuple(sorted(nodes, key=lambda node: node.version)),
        tuple(sorted(edges, key=lambda edge: (edge.source, edge.target))),
    )


def _format_edge_label(source: str, entries: Sequence[Entry]) -> str:
    """Return operations and latest snapshots: `extend @3 → @3`."""
    operations = dict.fromkeys(sanitize_text(entry.operation, 40) for entry in reversed(entries))
    latest = max(read.snapshot for read in entries[-1].inputs if read.label == source)
    return f"{', '.join(operations)} @{latest} → @{entries[-1].snapshot}"


def _format_svg_path(points: Sequence[GraphPoint]) -> str:
    """Return an SVG path that leaves and arrives horizontally."""
    parts = [f"M{points[0].x:.0f} {points[0].y:.0f}"]
    for start, end in pairwise(points):
        half = (start.x + end.x) / 2
        curve = f"C{half:.0f} {start.y:.0f} {half:.0f} {end.y:.0f}"
        parts.append(f"{curve} {end.x:.0f} {end.y:.0f}")
    return "".join(parts)


def _count_totals(versions: Sequence[VersionPage]) -> dict[str, int]:
    present = [version for version in versions if not version.absent]
    return {
        "datasets": len({version.name.partition("/")[0] for version in present}),
        "versions": len(present),
        "snapshots": sum(version.snapshots for version in present),
        "published": sum(version.published_snapshots for version in present),
        "entries": sum(version.entries for version in present),
        "bytes": sum(version.bytes for version in present),
        "listed": sum(len(version.history.snapshots) for version in present),
    }


def _make_page_finding(finding: Finding) -> PageFinding:
    return PageFinding(
        finding.severity,
        sanitize_text(finding.kind, 80),
        sanitize_text(finding.version),
        sanitize_text(finding.subject),
        sanitize_text(finding.detail, 1000),
        sanitize_text(str(finding.hint), 1000),
    )


def render_page(
    index: LogIndex,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> str:
    """Render the page as HTML. Options as in `build_report_page`.

    The same root and the same `now` give the same page.
    """
    page = build_report_page(index, findings=findings, names=names, now=now or utc_now())
    return render_document(page)


def write_page(
    index: LogIndex,
    path: Path | str,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the page to a file, atomically. Options as in `build_report_page`."""
    page = build_report_page(index, findings=findings, names=names, now=now or utc_now())
    return write_document(page, path)


def write_document(page: ReportPage, path: Path | str) -> Path:
    """Write page data to an HTML file, atomically."""
    with DurableFile(Path(path), overwrite=True) as file:
        file.write(render_document(page).encode())
    return Path(path)


def render_document(page: ReportPage) -> str:
    """Render page data as HTML.

    The policy of the file permits only its own style and script, by their hashes.
    """
    style = _read_part("page.css")
    script = "".join(("'use strict';\n(() => {\n", *map(_read_part, _SCRIPTS), "})();\n"))
    return render_template(
        "lineage/page/report.html",
        style=style,
        style_hash=_hash_text(style),
        script=script,
        script_hash=_hash_text(script),
        data=to_json_value(page),
    )


def _read_part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash_text(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
