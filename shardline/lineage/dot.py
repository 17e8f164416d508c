"""A graph of ancestry in the DOT language, for Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.text import counted

if TYPE_CHECKING:
    from shardline.lineage.graph import Edge, Graph, Node

_SHAPES = {
    "version": "box",
    "snapshot": "box",
    "shard": "note",
    "field": "ellipse",
    "source": "folder",
    "consumer": "component",
}


def to_dot(graph: Graph) -> str:
    """The graph from left to right: what was made of something stands to the right of it."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [fontname="Helvetica"];']
    lines += [_node(node, bold=node.id in graph.start) for node in graph.nodes.values()]
    lines += [_edge(edge) for edge in graph.edges]
    return "\n".join([*lines, "}"])


def _node(node: Node, *, bold: bool) -> str:
    told = [node.id]
    if "records" in node.facts:
        told.append(counted(node.facts["records"], "record"))
    if "sources" in node.facts:
        told.append(f"{len(node.facts['sources']):,} in all")
    told += [node.gone] if node.gone else []
    style = ["dashed"] if node.gone else []
    style += ["bold"] if bold else []
    look = f", style={_quoted(','.join(style))}" if style else ""
    label = _quoted("\n".join(told))
    return f"  {_quoted(node.id)} [shape={_SHAPES[node.kind]}, label={label}{look}];"


def _edge(edge: Edge) -> str:
    label = _quoted(edge.how or edge.operation)
    return f"  {_quoted(edge.of)} -> {_quoted(edge.made)} [label={label}];"


def _quoted(text: str) -> str:
    """A text as DOT reads it: of what it would obey, only line ends are left."""
    plain = "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)
    told = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{told}"'
