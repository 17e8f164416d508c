"""The fields of a version, and how they differ from those of the versions it is made of."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.lineage.page.graph_layout import draw_graph
from shardline.lineage.page.page_model import (
    FindingRow,
    PageEdge,
    PageField,
    PageGraph,
    PageNode,
    ReportPage,
    VersionPage,
    format_second,
    sanitize_text,
    to_json_value,
)
from shardline.lineage.page.version_history import VersionLog, make_version_history
from shardline.log.entry import Entry
from shardline.log.version import utc_now
from shardline.operations.verify_log import read_log_history
from shardline.release import __version__
from shardline.storage.durable_file import DurableFile
from shardline.templates import render_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.lineage.audit.finding import Finding, Severity
    from shardline.lineage.page.graph_layout import GraphLine, GraphPoint
    from shardline.lineage.page.page_model import FieldChange
    from shardline.provenance.feature_origin import FeatureOrigin
    from shardline.provenance.log_index import LogIndex
    from shardline.schema.schema import Feature, Schema


_NAME = 120


def compare_fields(
    index: LogIndex, schema: Schema, entries: Sequence[Entry], elder: str | None
) -> tuple[tuple[str, ...], tuple[PageField, ...]]:
    """What a version is compared with, and its fields; those that are gone are behind the others.

    It is compared with the versions it was last made of. One that is made of none is compared with
    `elder`, the version of the dataset before it.
    """
    made = next((entry for entry in reversed(entries) if entry.inputs), None)
    names = [] if made is None else list(dict.fromkeys(one.shown for one in made.inputs))
    try:
        origins = {} if made is None else index.origins(made)
        old = {name: index.version(name).schema for name in names}
    except (ShardlineError, LookupError, TypeError, ValueError, AttributeError):
        return (), tuple(_iter_declared_fields(schema))  # it, or what it is made of, cannot be read
    if origins:
        return tuple(names), (
            *_iter_derived_fields(schema, origins, old),
            *_iter_removed_fields(origins, old),
        )
    if elder is None:
        return (), tuple(_iter_declared_fields(schema))
    try:
        before = index.version(elder).schema
    except ShardlineError:
        return (), tuple(_iter_declared_fields(schema))
    return (elder,), tuple(_iter_compared_fields(schema, before))


def _iter_declared_fields(schema: Schema) -> Iterator[PageField]:
    for feature in schema.features:
        yield _make_field(feature, "kept")


def _iter_derived_fields(
    schema: Schema, origins: Mapping[str, FeatureOrigin], old: Mapping[str, Schema]
) -> Iterator[PageField]:
    declared = {
        (name, feature.name): str(feature)
        for name, before in old.items()
        for feature in before.features
    }
    for feature in schema.features:
        origin = origins.get(feature.name)
        if origin is None:
            yield _make_field(feature, "added")
            continue
        was = declared.get(origin.of[0], "") if len(origin.of) == 1 else ""
        change = _classify_change(feature, origin, was)
        told = was if change in {"cast", "changed"} and was != str(feature) else ""
        yield PageField(
            sanitize_text(feature.name, _NAME),
            sanitize_text(feature),
            change,
            origin.how,
            tuple((version, sanitize_text(name, _NAME)) for version, name in origin.of),
            sanitize_text(origin.by),
            sanitize_text(told),
            sanitize_text(feature.doc),
        )


def _classify_change(feature: Feature, origin: FeatureOrigin, was: str) -> FieldChange:
    if origin.how == "computed" or not origin.of:
        return "added"
    if origin.how != "kept":
        return origin.how
    return "kept" if was in {"", str(feature)} else "changed"


def _iter_removed_fields(
    origins: Mapping[str, FeatureOrigin], old: Mapping[str, Schema]
) -> Iterator[PageField]:
    """The fields that a version does not have any more, under whatever name."""
    taken = {of for one in origins.values() if one.how != "computed" for of in one.of}
    for name, schema in old.items():
        for feature in schema.features:
            if (name, feature.name) not in taken:
                origin = ((name, sanitize_text(feature.name, _NAME)),)
                yield _make_field(feature, "removed", origin=origin)


def _iter_compared_fields(schema: Schema, before: Schema) -> Iterator[PageField]:
    old = {feature.key: feature for feature in before.features}
    for feature in schema.features:
        other = old.pop(feature.key, None)
        if other is None:
            yield _make_field(feature, "added")
        elif str(other) == str(feature):
            yield _make_field(feature, "kept")
        else:
            yield _make_field(feature, "changed", was=sanitize_text(other))
    for feature in old.values():
        yield _make_field(feature, "removed")


def _make_field(
    feature: Feature,
    change: FieldChange,
    *,
    origin: tuple[tuple[str, str], ...] = (),
    was: str = "",
) -> PageField:
    name, spec, doc = (
        sanitize_text(feature.name, _NAME),
        sanitize_text(feature),
        sanitize_text(feature.doc),
    )
    return PageField(name, spec, change, origin=origin, was=was, doc=doc)


MOST_SNAPSHOTS, LEAST_SNAPSHOTS, ALL_SNAPSHOTS = 200, 10, 1500
"""How many snapshots of a version are told in full at most, at least, and of all together."""
MOST_FINDINGS = 500
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_MOST_PINS = 40
_LAST = datetime.max.replace(tzinfo=UTC)


def build_report_page(
    index: LogIndex,
    *,
    now: datetime,
    names: Iterable[str] | None = None,
    findings: Sequence[Finding] | None = None,
) -> ReportPage:
    """What the page shows of all versions, or of `names` with all they are related to."""
    known = {name: _read_version(index, name) for name in index.names()}
    lines = _map_input_lines(one for one, _ in known.values())
    everything = {*known, *(name for line in lines for name in line)}
    wanted = sorted(everything if names is None else _list_related_versions(set(names), lines))
    most = max(LEAST_SNAPSHOTS, min(MOST_SNAPSHOTS, ALL_SNAPSHOTS // max(len(wanted), 1)))
    elders = _map_previous_versions([known[name][0] for name in wanted if name in known])
    versions = [
        _make_version_page(index, *known[name], elders.get(name), most)
        if name in known
        else VersionPage(name, absent=True)
        for name in wanted
    ]
    told = (
        None if findings is None else _select_findings(findings, None if names is None else wanted)
    )
    return ReportPage(
        index.store.uri,
        format_second(now),
        __version__,
        _make_graph(wanted, lines),
        tuple(versions),
        _get_counts(versions),
        None if told is None else tuple(map(_make_finding_row, told[:MOST_FINDINGS])),
        tuple(_count_severities(told or ())),
    )


def _read_version(index: LogIndex, name: str) -> tuple[VersionLog, str]:
    """What is known of a version, and what is wrong with its log."""
    try:
        return VersionLog(name, index.entries(name), index.version(name).state), ""
    except ShardlineError as error:
        log = index.version(name).log
        return VersionLog(name, _read_entries(read_log_history(log)), None), sanitize_text(error)


def _read_entries(told: Iterable[object]) -> list[Entry]:
    return [entry for entry in told if isinstance(entry, Entry)][::-1]


def _map_input_lines(known: Iterable[VersionLog]) -> dict[GraphLine, list[Entry]]:
    """Which versions were made of which, and the entries that did it."""
    found: dict[GraphLine, list[Entry]] = defaultdict(list)
    for one in known:
        for entry in one.entries:
            for name in dict.fromkeys(one.shown for one in entry.inputs):
                found[name, one.name].append(entry)
    return found


def _list_related_versions(names: set[str], lines: Iterable[GraphLine]) -> set[str]:
    """Versions, all that they are made of, and all that is made of them."""
    found = set(names)
    for here, there in ((0, 1), (1, 0)):
        near: dict[str, set[str]] = defaultdict(set)
        for line in lines:
            near[line[here]].add(line[there])
        reached, new = set(names), set(names)
        while new:
            new = {other for name in new for other in near[name]} - reached
            reached |= new
        found |= reached
    return found


def _map_previous_versions(known: Sequence[VersionLog]) -> dict[str, str]:
    """Of each version the one of its dataset that was created before it."""
    found: dict[str, str] = {}
    last: dict[str, str] = {}
    dated = [(one.entries[0].time if one.entries else _LAST, one.name) for one in known]
    for _, name in sorted(dated):
        dataset = name.partition("/")[0]
        if dataset in last:
            found[name] = last[dataset]
        last[dataset] = name
    return found


def _make_version_page(
    index: LogIndex, known: VersionLog, problem: str, elder: str | None, most: int
) -> VersionPage:
    entries, state = known.entries, known.state
    if not entries:
        return VersionPage(known.name, problem=problem)
    last = entries[-1]
    verdicts = known.verdicts()
    schema = next((one.schema for one in reversed(entries) if one.schema is not None), None)
    compared, fields = ((), ()) if schema is None else compare_fields(index, schema, entries, elder)
    counts = Counter(sanitize_text(one.operation, 80) for one in entries if one.changes_data)
    checks = () if state is None else (*state.checks.shard, *state.checks.snapshot)
    tags, pins = ({}, {}) if state is None else (state.tags, state.pins)
    return VersionPage(
        known.name,
        problem=problem,
        created=format_second(entries[0].time),
        changed=format_second(last.time),
        entries=len(entries),
        snapshots=last.snapshot,
        good=sum(one == "published" for one in verdicts.values()),
        published=last.published,
        verdict=verdicts.get(last.snapshot, "unknown"),
        records=last.totals.records,
        bytes=last.totals.bytes,
        shards=last.totals.shards,
        payload="" if schema is None else schema.payload,
        doc="" if schema is None else sanitize_text(schema.doc),
        fingerprint=last.fingerprint or "",
        checks=tuple(sanitize_text(check, 80) for check in checks),
        tags=tuple(
            (sanitize_text(name), hold.snapshot or 0) for name, hold in sorted(tags.items())
        ),
        pins=tuple(
            (sanitize_text(name), hold.snapshot or 0, sanitize_text(hold.reason))
            for name, hold in sorted(pins.items())[:_MOST_PINS]
        ),
        operations=tuple(counts.most_common()),
        compared=compared,
        fields=fields,
        history=make_version_history(known, most),
    )


def _make_graph(names: Sequence[str], lines: Mapping[GraphLine, Sequence[Entry]]) -> PageGraph:
    wanted = {line: made for line, made in lines.items() if set(line) <= set(names)}
    drawing = draw_graph(names, wanted)
    nodes = [PageNode(name, round(at.x), round(at.y)) for name, at in drawing.nodes.items()]
    edges = []
    for line, way in drawing.lines.items():
        middle = _get_label_point(way)
        label = _format_edge_label(line[0], wanted[line])
        edges.append(
            PageEdge(*line, label, _format_svg_path(way), round(middle.x), round(middle.y))
        )
    return PageGraph(
        round(drawing.width),
        round(drawing.height),
        tuple(sorted(nodes, key=lambda node: node.version)),
        tuple(sorted(edges, key=lambda edge: (edge.source, edge.target))),
    )


def _format_edge_label(source: str, made: Sequence[Entry]) -> str:
    """`extend @3 → @3`: by what, and of which snapshot which came last."""
    operations = ", ".join(
        dict.fromkeys(sanitize_text(entry.operation, 40) for entry in reversed(made))
    )
    newest = [one.snapshot for one in made[-1].inputs if one.shown == source]
    return f"{operations} @{max(newest)} → @{made[-1].snapshot}"


def _format_svg_path(way: Sequence[GraphPoint]) -> str:
    """A line that leaves and arrives level, as SVG writes it."""
    parts = [f"M{way[0].x:.0f} {way[0].y:.0f}"]
    for one, other in pairwise(way):
        half = (one.x + other.x) / 2
        bend = f"C{half:.0f} {one.y:.0f} {half:.0f} {other.y:.0f}"
        parts.append(f"{bend} {other.x:.0f} {other.y:.0f}")
    return "".join(parts)


def _get_label_point(way: Sequence[GraphPoint]) -> GraphPoint:
    """Where the label goes: on the last stretch, where a line has the target to itself."""
    one, other = way[-2:]
    return type(one)((one.x + other.x) / 2, (one.y + other.y) / 2)


def _get_counts(versions: Sequence[VersionPage]) -> dict[str, int]:
    here = [one for one in versions if not one.absent]
    return {
        "datasets": len({one.name.partition("/")[0] for one in here}),
        "versions": len(here),
        "snapshots": sum(one.snapshots for one in here),
        "published": sum(one.good for one in here),
        "entries": sum(one.entries for one in here),
        "bytes": sum(one.bytes for one in here),
        "listed": sum(len(one.history.moments) for one in here),
    }


def _select_findings(findings: Sequence[Finding], names: Sequence[str] | None) -> list[Finding]:
    """The findings about these versions and about the root, the worst first."""
    told = [one for one in findings if names is None or not one.version or one.version in names]
    return sorted(told, key=lambda one: (_SEVERITIES.index(one.severity), one.version))


def _count_severities(findings: Sequence[Finding]) -> list[tuple[Severity, int]]:
    counts = Counter(one.severity for one in findings)
    return [(severity, counts[severity]) for severity in _SEVERITIES if counts[severity]]


def _make_finding_row(finding: Finding) -> FindingRow:
    return FindingRow(
        finding.severity,
        sanitize_text(finding.kind, 80),
        sanitize_text(finding.version),
        sanitize_text(finding.place),
        sanitize_text(finding.detail, 1000),
        sanitize_text(str(finding.advice), 1000),
    )


_SCRIPTS = ("elements.js", "plot.js", "version.js", "graph.js", "page.js")


def render_page(
    index: LogIndex,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> str:
    """The page of a root, or of the versions `names` and all they are related to.

    `findings` are those of an audit; None says that there was none. The same root and the same
    `now` give the same page.
    """
    return render_document(
        build_report_page(index, findings=findings, names=names, now=now or utc_now())
    )


def write_page(
    index: LogIndex,
    path: Path | str,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the page to a file, whole or not at all; one that is there is replaced."""
    page = build_report_page(index, findings=findings, names=names, now=now or utc_now())
    return write_document(page, path)


def write_document(page: ReportPage, path: Path | str) -> Path:
    """Write what a page shows to a file."""
    with DurableFile(Path(path), overwrite=True) as file:
        file.write(render_document(page).encode())
    return Path(path)


def render_document(page: ReportPage) -> str:
    """Render the HTML file of a page.

    Its policy permits only the style and the script in the file, by their hashes.
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
