"""`shardline lineage`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError, print_warning, render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import Tree
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.hints import Hint
from shardline.text import escape_text, format_bytes, format_count, format_list, format_time

if TYPE_CHECKING:
    from shardline.lineage.ancestry_graph import AncestryEdge, AncestryGraph, AncestryNode


_PROBLEM_LABELS = {
    "missing": "MISSING",
    "corrupt": "CORRUPT",
    "unreadable": "UNREADABLE",
    "unknown": "UNKNOWN",
}
_SHOWN_SOURCES = 3
_SHOWN_RUN = 16
_MAX_DEPTH = 12
_REST_LABEL = "… and more: --json lists all"


def print_trees(graph: AncestryGraph, *, upstream: bool, downstream: bool) -> None:
    """Print a tree for each start node."""
    if not graph.start:
        click.echo(f"no {graph.level}")
    seen: dict[str, set[str]] = {"upstream": set(), "downstream": set()}
    for start in graph.start:
        tree = Tree(format_node(graph.nodes[start]))
        for included, title in ((upstream, "upstream"), (downstream, "downstream")):
            if included:
                branch = tree.add(title)
                _add_branches(graph, start, branch, seen[title], upstream=title == "upstream")
                if not branch.children:
                    branch.label = f"{title}: none"
        tree.print()


def _add_branches(
    graph: AncestryGraph, start: str, branch: Tree, seen: set[str], *, upstream: bool
) -> None:
    """Add the nodes on one side of a node. A node that was seen is added without its branches."""
    list_edges = graph.upstream if upstream else graph.downstream
    pending = [(start, branch, 0)]
    seen.add(start)
    while pending:
        node, tree, depth = pending.pop()
        edges = list_edges(node)
        if depth == _MAX_DEPTH and edges:
            tree.add(_REST_LABEL)
            continue
        branches = []
        for edge in edges:
            other = edge.upstream if upstream else edge.downstream
            suffix = " (see above)" if other in seen and list_edges(other) else ""
            child = tree.add(f"{format_node(graph.nodes[other])}{suffix}\n{format_edge(edge)}")
            if other not in seen:
                seen.add(other)
                branches.append((other, child, depth + 1))
        pending += reversed(branches)


def format_node(node: AncestryNode) -> str:
    """Return a node in a line: id, totals and problem."""
    facts = node.facts
    if "sources" in facts:
        return _format_sources(facts["sources"])
    parts = []
    if "records" in facts:
        parts.append(format_count(facts["records"], "record"))
    if "bytes" in facts:
        parts.append(format_bytes(facts["bytes"]))
    if node.kind == "version" and "snapshot" in facts:
        parts.append(f"latest snapshot {facts['snapshot'] or '-'}")
    if "feature_kind" in facts:
        parts.append(f"{facts['feature_kind']} {facts['shape'] or ''}".strip())
    if "rejected" in facts:
        parts.append("rejected")
    text = escape_text(node.id) + (f": {', '.join(parts)}" if parts else "")
    if node.problem is None:
        return text
    return f"{text} [{_PROBLEM_LABELS[node.problem]}: {escape_text(node.reason)}]"


def _format_sources(names: list[str]) -> str:
    listed = [escape_text(name) for name in names[:_SHOWN_SOURCES]]
    rest = len(names) - len(listed)
    listed += [f"{rest:,} more"] if rest else []
    return f"{format_count(len(names), 'source')}: {format_list(listed) if listed else 'none'}"


def format_edge(edge: AncestryEdge) -> str:
    """Return an edge in a line: operation, records, entries, time, run and code."""
    parts = [f"{escape_text(edge.operation)}{f' ({escape_text(edge.how)})' if edge.how else ''}"]
    if edge.records is not None:
        parts.append(format_count(edge.records, "record"))
    if edge.entries:
        more = f" and {len(edge.entries) - 1:,} before it" if len(edge.entries) > 1 else ""
        parts.append(f"entry {edge.entries[-1]}{more}")
    parts += [format_time(edge.time)] if edge.time is not None else []
    parts += [f"run {escape_text(edge.run[:_SHOWN_RUN])}"] if edge.run else []
    parts += [f"code {escape_text(edge.code[:_SHOWN_RUN])}"] if edge.code else []
    return ", ".join(parts)


@click.command(
    epilog="""\b
Examples:
  shardline lineage digits/v2                         versions, both ways
  shardline lineage digits/v2@7 --upstream --level features
  shardline lineage digits/v1 --downstream --level shards
  shardline lineage digits/v2 --dot | dot -Tsvg > lineage.svg

Only logs are read. Deleted inputs and outputs are shown and marked.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("--upstream", is_flag=True, help="Show inputs only.")
@click.option("--downstream", is_flag=True, help="Show outputs only.")
@click.option(
    "--level",
    type=click.Choice(["versions", "snapshots", "shards", "features"]),
    default="versions",
    show_default=True,
    help="Level of detail.",
)
@click.option("--dot", is_flag=True, help="Print the graph in the DOT language of Graphviz.")
@root_option
@json_option
def lineage(
    reference: str,
    *,
    upstream: bool,
    downstream: bool,
    level: str,
    dot: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Show the inputs and outputs of a version, in all datasets of the root.

    Without SNAPSHOT, the graph is about the whole version: at level snapshots, the latest and those
    that others read; at level shards, the latest. With SNAPSHOT, it is about that snapshot and its
    inputs. Exits with 1 if a log cannot be read, since the graph may be incomplete then.
    """
    from shardline.lineage.ancestry import ANCESTRY_LEVELS, build_ancestry_graph
    from shardline.provenance.log_index import LogIndex

    if dot and as_json:
        raise UsageError("--dot and --json exclude each other", code="conflicting-options")
    store, named = open_root(root), parse_reference(reference)
    version = open_version(store, named)
    number = None if named.snapshot is None else find_snapshot(version, named).number
    graph = build_ancestry_graph(
        LogIndex(store),
        named.version,
        number,
        level=next(known for known in ANCESTRY_LEVELS if known == level),
        upstream=upstream or not downstream,
        downstream=downstream or not upstream,
    )
    if as_json:
        click.echo(json.dumps({"ok": not graph.unreadable, **graph.to_dict()}))
    elif dot:
        from shardline.lineage.ancestry_graph import format_dot

        click.echo(format_dot(graph))
    else:
        print_trees(
            graph, upstream=upstream or not downstream, downstream=downstream or not upstream
        )
    if graph.unreadable:
        if not as_json:
            _warn_unreadable_logs(graph)
        raise SystemExit(1)


def _warn_unreadable_logs(graph: AncestryGraph) -> None:
    """Warn of logs that cannot be read, and suggest to verify them."""
    from shardline.lineage.ancestry_graph import UNREADABLE_LOG

    reasons = [node.reason for node in graph.nodes.values() if node.problem]
    for name, reason in graph.unreadable.items():
        hint = Hint.run("verify", name)
        if any(reason.removeprefix(f"{UNREADABLE_LOG}: ") in other for other in reasons):
            click.echo(f"hint: {render_hint(hint)}")
        else:
            print_warning(f"{name}: inputs unknown: {reason}", hint)
