"""A graph of ancestry as trees in the terminal: upwards and downwards from where one looks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError, print_warning, render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import create_console
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.hints import Hint
from shardline.text import escape_text, format_bytes, format_count, format_list, format_time

if TYPE_CHECKING:
    from rich.tree import Tree

    from shardline.lineage.ancestry_graph import AncestryEdge, AncestryGraph, AncestryNode


_PROBLEM_LABELS = {
    "gone": "GONE",
    "damaged": "DAMAGED",
    "unreadable": "NOT READABLE",
    "unknown": "NOT KNOWN",
}
_SHOWN_SOURCES = 3
_SHOWN_RUN = 16
_SEEN_SUFFIX = " (see above)"
_MAX_DEPTH = 12
_MORE_LABEL = "… and more before it: --json tells all"


def print_trees(graph: AncestryGraph, *, upstream: bool, downstream: bool) -> None:
    """Print a tree for each node that one looks at, with what is before it and behind it."""
    from rich.tree import Tree

    console = create_console()
    if not graph.start:
        console.print(f"there are no {graph.level} to tell of")
    seen: dict[bool, set[str]] = {True: set(), False: set()}
    for start in graph.start:
        tree = Tree(format_node(graph.nodes[start]), highlight=False)
        for wanted, title, upwards in (
            (upstream, "made of", True),
            (downstream, "made into", False),
        ):
            if wanted:
                branch = tree.add(title)
                _add_branches(graph, start, branch, seen[upwards], upwards=upwards)
                if not branch.children:
                    branch.label = f"{title}: nothing that the logs tell of"
        console.print(tree)


def _add_branches(
    graph: AncestryGraph, start: str, branch: Tree, seen: set[str], *, upwards: bool
) -> None:
    """Put what lies above or below a node into a tree; what was shown before is only named.

    A tree that is deeper than a terminal is wide is cut off, and says so.
    """
    waiting = [(start, branch, 0)]
    seen.add(start)
    while waiting:
        node, tree, depth = waiting.pop()
        found = []
        next_to = graph.parents(node) if upwards else graph.children(node)
        if depth == _MAX_DEPTH and next_to:
            tree.add(_MORE_LABEL if upwards else _MORE_LABEL.replace("before", "behind"))
            continue
        for edge in next_to:
            other = edge.of if upwards else edge.made
            again = other in seen
            more = (graph.parents(other) if upwards else graph.children(other)) if again else ()
            label = f"{format_node(graph.nodes[other])}{_SEEN_SUFFIX if more else ''}"
            child = tree.add(f"{label}\n{format_edge(edge)}")
            if not again:
                seen.add(other)
                found.append((other, child, depth + 1))
        waiting += reversed(found)


def format_node(node: AncestryNode) -> str:
    """A node in one line: what it is, how much it holds, and whether it is gone."""
    facts = node.facts
    told = []
    if "sources" in facts:
        return _format_sources(facts["sources"])
    if "records" in facts:
        told.append(format_count(facts["records"], "record"))
    if "bytes" in facts:
        told.append(format_bytes(facts["bytes"]))
    if node.kind == "version" and "snapshot" in facts:
        told.append(f"newest snapshot {facts['snapshot'] or '-'}")
    if "kind_of_values" in facts:
        told.append(f"{facts['kind_of_values']} {facts['shape'] or ''}".strip())
    if "rejected" in facts:
        told.append("rejected")
    text = escape_text(node.id) + (f": {', '.join(told)}" if told else "")
    return f"{text} [{_PROBLEM_LABELS[node.lack]}: {escape_text(node.gone)}]" if node.gone else text


def _format_sources(names: list[str]) -> str:
    shown = [escape_text(name) for name in names[:_SHOWN_SOURCES]]
    left = len(names) - len(shown)
    shown += [f"{left:,} more"] if left else []
    return f"{format_count(len(names), 'source')}: {format_list(shown) if shown else 'none'}"


def format_edge(edge: AncestryEdge) -> str:
    """How it was made, by which entries, when, and by whom."""
    told = [f"{escape_text(edge.operation)}{f' ({escape_text(edge.how)})' if edge.how else ''}"]
    if edge.records is not None:
        told.append(format_count(edge.records, "record"))
    if edge.entries:
        more = f" and {len(edge.entries) - 1:,} before it" if len(edge.entries) > 1 else ""
        told.append(f"entry {edge.entries[-1]}{more}")
    told += [format_time(edge.time)] if edge.time is not None else []
    told += [f"run {escape_text(edge.run[:_SHOWN_RUN])}"] if edge.run else []
    told += [f"code {escape_text(edge.code[:_SHOWN_RUN])}"] if edge.code else []
    return ", ".join(told)


@click.command(
    epilog="""\b
Examples:
  shardline lineage digits/v2                       both ways, by versions
  shardline lineage digits/v2@7 --upstream --level fields where each field comes from
  shardline lineage digits/v1 --downstream --level shards
  shardline lineage digits/v2 --dot | dot -Tsvg > lineage.svg

Logs are read, and no shard. What was deleted since is shown too, and says so.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("--upstream", is_flag=True, help="Only what it was made of.")
@click.option("--downstream", is_flag=True, help="Only what was made of it.")
@click.option(
    "--level",
    type=click.Choice(["versions", "snapshots", "shards", "fields"]),
    default="versions",
    show_default=True,
    help="What to tell of.",
)
@click.option("--dot", is_flag=True, help="Print the graph in the DOT language, for Graphviz.")
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
    """Tell what a version was made of, and what was made of it, in all datasets of the root.

    Without a snapshot all of a version is meant: at the level of snapshots those that others read
    and the newest, at that of shards the shards of the newest. With one, only that is told of, and
    what was read for it: at the level of versions without the steps inside a version. Exits with 1
    if a log that may tell of it cannot be read: what it would tell is missing.
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
        level=next(one for one in ANCESTRY_LEVELS if one == level),
        up=upstream or not downstream,
        down=downstream or not upstream,
    )
    if as_json:
        click.echo(json.dumps({"ok": not graph.unread, **graph.to_dict()}))
    elif dot:
        from shardline.lineage.ancestry_graph import format_dot

        click.echo(format_dot(graph))
    else:
        print_trees(
            graph, upstream=upstream or not downstream, downstream=downstream or not upstream
        )
    if graph.unread:
        if not as_json:
            _warn_unreadable_logs(graph)
        raise SystemExit(1)


def _warn_unreadable_logs(graph: AncestryGraph) -> None:
    """Warn of logs that cannot be read, and suggest to verify them."""
    from shardline.lineage.ancestry_graph import UNREADABLE_LOG

    shown = [node.gone for node in graph.nodes.values() if node.gone]
    for name, why in graph.unread.items():
        hint = Hint.run("verify", name)
        if any(why.removeprefix(f"{UNREADABLE_LOG}: ") in one for one in shown):
            click.echo(f"hint: {render_hint(hint)}")
        else:
            print_warning(f"{name}: inputs unknown: {why}", hint)
