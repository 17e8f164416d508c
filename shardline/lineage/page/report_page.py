"""The fields of a version, and how they differ from those of the versions it is made of."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter, defaultdict
from datetime import UTC, datetime
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.lineage.page.graph_layout import draw
from shardline.lineage.page.page_model import (
    Edge,
    Field,
    FindingRow,
    Graph,
    Node,
    ReportPage,
    VersionPage,
    as_json,
)
from shardline.lineage.page.page_text import second, shown
from shardline.lineage.page.version_history import Known, history_of
from shardline.log.entry import Entry
from shardline.log.version import utc_now
from shardline.operations.verify_log import history
from shardline.release import __version__
from shardline.storage.durable_file import DurableFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.lineage.audit.finding import Finding, Severity
    from shardline.lineage.page.graph_layout import Line, Point
    from shardline.lineage.page.page_model import Change
    from shardline.provenance.catalog import Catalog, FieldOrigin
    from shardline.schema.schema import Feature, Schema


_NAME = 120


def fields_of(
    catalog: Catalog, schema: Schema, entries: Sequence[Entry], elder: str | None
) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """What a version is compared with, and its fields; those that are gone are behind the others.

    It is compared with the versions it was last made of. One that is made of none is compared with
    `elder`, the version of the dataset before it.
    """
    made = next((entry for entry in reversed(entries) if entry.inputs), None)
    names = [] if made is None else list(dict.fromkeys(one.shown for one in made.inputs))
    try:
        origins = {} if made is None else catalog.origins(made)
        old = {name: catalog.version(name).schema for name in names}
    except (ShardlineError, LookupError, TypeError, ValueError, AttributeError):
        return (), tuple(_declared(schema))  # it, or what it is made of, cannot be read
    if origins:
        return tuple(names), (*_derived(schema, origins, old), *_gone(origins, old))
    if elder is None:
        return (), tuple(_declared(schema))
    try:
        before = catalog.version(elder).schema
    except ShardlineError:
        return (), tuple(_declared(schema))
    return (elder,), tuple(_compared(schema, before))


def _declared(schema: Schema) -> Iterator[Field]:
    for feature in schema.features:
        yield _field(feature, "kept")


def _derived(
    schema: Schema, origins: Mapping[str, FieldOrigin], old: Mapping[str, Schema]
) -> Iterator[Field]:
    declared = {
        (name, feature.name): str(feature)
        for name, before in old.items()
        for feature in before.features
    }
    for feature in schema.features:
        origin = origins.get(feature.name)
        if origin is None:
            yield _field(feature, "added")
            continue
        was = declared.get(origin.of[0], "") if len(origin.of) == 1 else ""
        change = _change(feature, origin, was)
        told = was if change in {"cast", "changed"} and was != str(feature) else ""
        yield Field(
            shown(feature.name, _NAME),
            shown(feature),
            change,
            origin.how,
            tuple((version, shown(name, _NAME)) for version, name in origin.of),
            shown(origin.by),
            shown(told),
            shown(feature.doc),
        )


def _change(feature: Feature, origin: FieldOrigin, was: str) -> Change:
    if origin.how == "computed" or not origin.of:
        return "added"
    if origin.how != "kept":
        return origin.how
    return "kept" if was in {"", str(feature)} else "changed"


def _gone(origins: Mapping[str, FieldOrigin], old: Mapping[str, Schema]) -> Iterator[Field]:
    """The fields that a version does not have any more, under whatever name."""
    taken = {of for one in origins.values() if one.how != "computed" for of in one.of}
    for name, schema in old.items():
        for feature in schema.features:
            if (name, feature.name) not in taken:
                origin = ((name, shown(feature.name, _NAME)),)
                yield _field(feature, "removed", origin=origin)


def _compared(schema: Schema, before: Schema) -> Iterator[Field]:
    old = {feature.key: feature for feature in before.features}
    for feature in schema.features:
        other = old.pop(feature.key, None)
        if other is None:
            yield _field(feature, "added")
        elif str(other) == str(feature):
            yield _field(feature, "kept")
        else:
            yield _field(feature, "changed", was=shown(other))
    for feature in old.values():
        yield _field(feature, "removed")


def _field(
    feature: Feature,
    change: Change,
    *,
    origin: tuple[tuple[str, str], ...] = (),
    was: str = "",
) -> Field:
    name, spec, doc = shown(feature.name, _NAME), shown(feature), shown(feature.doc)
    return Field(name, spec, change, origin=origin, was=was, doc=doc)


MOST_SNAPSHOTS, LEAST_SNAPSHOTS, ALL_SNAPSHOTS = 200, 10, 1500
"""How many snapshots of a version are told in full at most, at least, and of all together."""
MOST_FINDINGS = 500
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_MOST_PINS = 40
_LAST = datetime.max.replace(tzinfo=UTC)


def page_data(
    catalog: Catalog,
    *,
    now: datetime,
    names: Iterable[str] | None = None,
    findings: Sequence[Finding] | None = None,
) -> ReportPage:
    """What the page shows of all versions, or of `names` with all they are related to."""
    known = {name: _known(catalog, name) for name in catalog.names()}
    lines = _lines(one for one, _ in known.values())
    everything = {*known, *(name for line in lines for name in line)}
    wanted = sorted(everything if names is None else _related(set(names), lines))
    most = max(LEAST_SNAPSHOTS, min(MOST_SNAPSHOTS, ALL_SNAPSHOTS // max(len(wanted), 1)))
    elders = _elders([known[name][0] for name in wanted if name in known])
    versions = [
        _version(catalog, *known[name], elders.get(name), most)
        if name in known
        else VersionPage(name, absent=True)
        for name in wanted
    ]
    told = None if findings is None else _about(findings, None if names is None else wanted)
    return ReportPage(
        catalog.store.uri,
        second(now),
        __version__,
        _graph(wanted, lines),
        tuple(versions),
        _counts(versions),
        None if told is None else tuple(map(_row, told[:MOST_FINDINGS])),
        tuple(_severities(told or ())),
    )


def _known(catalog: Catalog, name: str) -> tuple[Known, str]:
    """What is known of a version, and what is wrong with its log."""
    try:
        return Known(name, catalog.entries(name), catalog.version(name).state), ""
    except ShardlineError as error:
        log = catalog.version(name).log
        return Known(name, _readable(history(log)), None), shown(error)


def _readable(told: Iterable[object]) -> list[Entry]:
    return [entry for entry in told if isinstance(entry, Entry)][::-1]


def _lines(known: Iterable[Known]) -> dict[Line, list[Entry]]:
    """Which versions were made of which, and the entries that did it."""
    found: dict[Line, list[Entry]] = defaultdict(list)
    for one in known:
        for entry in one.entries:
            for name in dict.fromkeys(one.shown for one in entry.inputs):
                found[name, one.name].append(entry)
    return found


def _related(names: set[str], lines: Iterable[Line]) -> set[str]:
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


def _elders(known: Sequence[Known]) -> dict[str, str]:
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


def _version(
    catalog: Catalog, known: Known, problem: str, elder: str | None, most: int
) -> VersionPage:
    entries, state = known.entries, known.state
    if not entries:
        return VersionPage(known.name, problem=problem)
    last = entries[-1]
    verdicts = known.verdicts()
    schema = next((one.schema for one in reversed(entries) if one.schema is not None), None)
    compared, fields = ((), ()) if schema is None else fields_of(catalog, schema, entries, elder)
    counts = Counter(shown(one.operation, 80) for one in entries if one.changes_data)
    checks = () if state is None else (*state.checks.shard, *state.checks.snapshot)
    tags, pins = ({}, {}) if state is None else (state.tags, state.pins)
    return VersionPage(
        known.name,
        problem=problem,
        created=second(entries[0].time),
        changed=second(last.time),
        entries=len(entries),
        snapshots=last.snapshot,
        good=sum(one == "published" for one in verdicts.values()),
        published=last.published,
        verdict=verdicts.get(last.snapshot, "unknown"),
        records=last.totals.records,
        bytes=last.totals.bytes,
        shards=last.totals.shards,
        payload="" if schema is None else schema.payload,
        doc="" if schema is None else shown(schema.doc),
        fingerprint=last.fingerprint or "",
        checks=tuple(shown(check, 80) for check in checks),
        tags=tuple((shown(name), hold.snapshot or 0) for name, hold in sorted(tags.items())),
        pins=tuple(
            (shown(name), hold.snapshot or 0, shown(hold.reason))
            for name, hold in sorted(pins.items())[:_MOST_PINS]
        ),
        operations=tuple(counts.most_common()),
        compared=compared,
        fields=fields,
        history=history_of(known, most),
    )


def _graph(names: Sequence[str], lines: Mapping[Line, Sequence[Entry]]) -> Graph:
    wanted = {line: made for line, made in lines.items() if set(line) <= set(names)}
    drawing = draw(names, wanted)
    nodes = [Node(name, round(at.x), round(at.y)) for name, at in drawing.nodes.items()]
    edges = []
    for line, way in drawing.lines.items():
        middle = _middle(way)
        label = _label(line[0], wanted[line])
        edges.append(Edge(*line, label, _path(way), round(middle.x), round(middle.y)))
    return Graph(
        round(drawing.width),
        round(drawing.height),
        tuple(sorted(nodes, key=lambda node: node.version)),
        tuple(sorted(edges, key=lambda edge: (edge.source, edge.target))),
    )


def _label(source: str, made: Sequence[Entry]) -> str:
    """`extend @3 → @3`: by what, and of which snapshot which came last."""
    operations = ", ".join(dict.fromkeys(shown(entry.operation, 40) for entry in reversed(made)))
    newest = [one.snapshot for one in made[-1].inputs if one.shown == source]
    return f"{operations} @{max(newest)} → @{made[-1].snapshot}"


def _path(way: Sequence[Point]) -> str:
    """A line that leaves and arrives level, as SVG writes it."""
    parts = [f"M{way[0].x:.0f} {way[0].y:.0f}"]
    for one, other in pairwise(way):
        half = (one.x + other.x) / 2
        bend = f"C{half:.0f} {one.y:.0f} {half:.0f} {other.y:.0f}"
        parts.append(f"{bend} {other.x:.0f} {other.y:.0f}")
    return "".join(parts)


def _middle(way: Sequence[Point]) -> Point:
    """Where the label goes: on the last stretch, where a line has the target to itself."""
    one, other = way[-2:]
    return type(one)((one.x + other.x) / 2, (one.y + other.y) / 2)


def _counts(versions: Sequence[VersionPage]) -> dict[str, int]:
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


def _about(findings: Sequence[Finding], names: Sequence[str] | None) -> list[Finding]:
    """The findings about these versions and about the root, the worst first."""
    told = [one for one in findings if names is None or not one.version or one.version in names]
    return sorted(told, key=lambda one: (_SEVERITIES.index(one.severity), one.version))


def _severities(findings: Sequence[Finding]) -> list[tuple[Severity, int]]:
    counts = Counter(one.severity for one in findings)
    return [(severity, counts[severity]) for severity in _SEVERITIES if counts[severity]]


def _row(finding: Finding) -> FindingRow:
    return FindingRow(
        finding.severity,
        shown(finding.kind, 80),
        shown(finding.version),
        shown(finding.place),
        shown(finding.detail, 1000),
        shown(str(finding.advice), 1000),
    )


_SCRIPTS = ("elements.js", "plot.js", "version.js", "graph.js", "page.js")
_HARMLESS = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page_html(
    catalog: Catalog,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> str:
    """The page of a root, or of the versions `names` and all they are related to.

    `findings` are those of an audit; None says that there was none. The same root and the same
    `now` give the same page.
    """
    return document(page_data(catalog, findings=findings, names=names, now=now or utc_now()))


def write_page(
    catalog: Catalog,
    path: Path | str,
    *,
    findings: Sequence[Finding] | None = None,
    names: Iterable[str] | None = None,
    now: datetime | None = None,
) -> Path:
    """Write the page to a file, whole or not at all; one that is there is replaced."""
    page = page_data(catalog, findings=findings, names=names, now=now or utc_now())
    return write_document(page, path)


def write_document(page: ReportPage, path: Path | str) -> Path:
    """Write what a page shows to a file."""
    with DurableFile(Path(path), overwrite=True) as file:
        file.write(document(page).encode())
    return Path(path)


def document(page: ReportPage) -> str:
    """The HTML of what a page shows."""
    style = _part("page.css")
    script = "".join(("'use strict';\n(() => {\n", *map(_part, _SCRIPTS), "})();\n"))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    data = json.dumps(as_json(page), separators=(",", ":")).translate(_HARMLESS)
    return Template(_part("page.html")).substitute(
        policy=policy, style=style, script=script, data=data
    )


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
