"""A graph of ancestry as trees in the terminal: upwards and downwards from where one looks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from shardline.cli.errors import UsageError, print_warning, render_hint
from shardline.cli.options import json_option, root_option
from shardline.cli.output import plain_console
from shardline.cli.references import (
    find_snapshot,
    open_root,
    open_version,
    parse_reference,
)
from shardline.hints import Hint
from shardline.text import counted, escaped, human_bytes, listed, when

if TYPE_CHECKING:
    from rich.tree import Tree

    from shardline.lineage.ancestry_graph import Edge, Graph, Node


_LACKS = {
    "gone": "GONE",
    "damaged": "DAMAGED",
    "unreadable": "NOT READABLE",
    "unknown": "NOT KNOWN",
}
_SHOWN_SOURCES = 3
_SHOWN_RUN = 16
_AGAIN = " (see above)"
_DEEPEST = 12
_DEEPER = "… and more before it: --json tells all"


def print_trees(graph: Graph, *, up: bool, down: bool) -> None:
    """Print a tree for each node that one looks at, with what is before it and behind it."""
    from rich.tree import Tree

    console = plain_console()
    if not graph.start:
        console.print(f"there are no {graph.level} to tell of")
    seen: dict[bool, set[str]] = {True: set(), False: set()}
    for start in graph.start:
        tree = Tree(node_words(graph.nodes[start]), highlight=False)
        for wanted, title, upwards in ((up, "made of", True), (down, "made into", False)):
            if wanted:
                branch = tree.add(title)
                _grow(graph, start, branch, seen[upwards], upwards=upwards)
                if not branch.children:
                    branch.label = f"{title}: nothing that the logs tell of"
        console.print(tree)


def _grow(graph: Graph, start: str, branch: Tree, seen: set[str], *, upwards: bool) -> None:
    """Put what lies above or below a node into a tree; what was shown before is only named.

    A tree that is deeper than a terminal is wide is cut off, and says so.
    """
    waiting = [(start, branch, 0)]
    seen.add(start)
    while waiting:
        node, tree, depth = waiting.pop()
        found = []
        next_to = graph.parents(node) if upwards else graph.children(node)
        if depth == _DEEPEST and next_to:
            tree.add(_DEEPER if upwards else _DEEPER.replace("before", "behind"))
            continue
        for edge in next_to:
            other = edge.of if upwards else edge.made
            again = other in seen
            more = (graph.parents(other) if upwards else graph.children(other)) if again else ()
            label = f"{node_words(graph.nodes[other])}{_AGAIN if more else ''}"
            child = tree.add(f"{label}\n{edge_words(edge)}")
            if not again:
                seen.add(other)
                found.append((other, child, depth + 1))
        waiting += reversed(found)


def node_words(node: Node) -> str:
    """A node in one line: what it is, how much it holds, and whether it is gone."""
    facts = node.facts
    told = []
    if "sources" in facts:
        return _source_words(facts["sources"])
    if "records" in facts:
        told.append(counted(facts["records"], "record"))
    if "bytes" in facts:
        told.append(human_bytes(facts["bytes"]))
    if node.kind == "version" and "snapshot" in facts:
        told.append(f"newest snapshot {facts['snapshot'] or '-'}")
    if "kind_of_values" in facts:
        told.append(f"{facts['kind_of_values']} {facts['shape'] or ''}".strip())
    if "rejected" in facts:
        told.append("rejected")
    text = escaped(node.id) + (f": {', '.join(told)}" if told else "")
    return f"{text} [{_LACKS[node.lack]}: {escaped(node.gone)}]" if node.gone else text


def _source_words(names: list[str]) -> str:
    shown = [escaped(name) for name in names[:_SHOWN_SOURCES]]
    left = len(names) - len(shown)
    shown += [f"{left:,} more"] if left else []
    return f"{counted(len(names), 'source')}: {listed(shown) if shown else 'none'}"


def edge_words(edge: Edge) -> str:
    """How it was made, by which entries, when, and by whom."""
    told = [f"{escaped(edge.operation)}{f' ({escaped(edge.how)})' if edge.how else ''}"]
    if edge.records is not None:
        told.append(counted(edge.records, "record"))
    if edge.entries:
        more = f" and {len(edge.entries) - 1:,} before it" if len(edge.entries) > 1 else ""
        told.append(f"entry {edge.entries[-1]}{more}")
    told += [when(edge.time)] if edge.time is not None else []
    told += [f"run {escaped(edge.run[:_SHOWN_RUN])}"] if edge.run else []
    told += [f"code {escaped(edge.code[:_SHOWN_RUN])}"] if edge.code else []
    return ", ".join(told)


@click.command(
    short_help="Tell what a version was made of, and what was made of it.",
    epilog="""\b
Examples:
  shardline lineage digits/v2                       both ways, by versions
  shardline lineage digits/v2@7 --up --level fields where each field comes from
  shardline lineage digits/v1 --down --level shards
  shardline lineage digits/v2 --dot | dot -Tsvg > lineage.svg

Logs are read, and no shard. What was deleted since is shown too, and says so.""",
)
@click.argument("reference", metavar="NAME/VERSION[@SNAPSHOT]")
@click.option("--up", is_flag=True, help="Only what it was made of.")
@click.option("--down", is_flag=True, help="Only what was made of it.")
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
    up: bool,
    down: bool,
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
    from shardline.lineage.ancestry import LEVELS, ancestry
    from shardline.provenance.catalog import Catalog

    if dot and as_json:
        raise UsageError("--dot and --json exclude each other", code="conflicting-options")
    store, named = open_root(root), parse_reference(reference)
    version = open_version(store, named)
    number = None if named.snapshot is None else find_snapshot(version, named).number
    graph = ancestry(
        Catalog(store),
        named.version,
        number,
        level=next(one for one in LEVELS if one == level),
        up=up or not down,
        down=down or not up,
    )
    if as_json:
        click.echo(json.dumps({"ok": not graph.unread, **graph.to_json()}))
    elif dot:
        from shardline.lineage.ancestry_graph import to_dot

        click.echo(to_dot(graph))
    else:
        print_trees(graph, up=up or not down, down=down or not up)
    if graph.unread:
        if not as_json:
            _warn_of_others(graph)
        raise SystemExit(1)


def _warn_of_others(graph: Graph) -> None:
    """Warn of logs that cannot be read, and suggest to verify them."""
    from shardline.lineage.ancestry_graph import UNREAD

    shown = [node.gone for node in graph.nodes.values() if node.gone]
    for name, why in graph.unread.items():
        hint = Hint.run("verify", name)
        if any(why.removeprefix(f"{UNREAD}: ") in one for one in shown):
            click.echo(f"hint: {render_hint(hint)}")
        else:
            print_warning(f"{name}: inputs unknown: {why}", hint)
