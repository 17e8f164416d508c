"""Layout of a graph of versions: layers from left to right, with few crossings.

The method of Sugiyama: each version is right of its upstream versions, and a line gets a slot in
each layer that it crosses. Sweeps reorder the slots by the mean of their neighbors, then move them
towards their neighbors. The same graph always gives the same drawing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

GraphLine: TypeAlias = tuple[str, str]
NODE_WIDTH, NODE_HEIGHT = 208, 78
_ACROSS, _BETWEEN, _APART = 150, 22, 48
_LINE_HEIGHT = 14
_MARGIN = 20
_MIN_SIZE = (700, 330)
_ASPECT = 2.0
_SWEEPS = 8


class GraphPoint(NamedTuple):
    """A point of the drawing."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """The upper left corner of each version, and the points of each line."""

    width: float
    height: float
    nodes: Mapping[str, GraphPoint]
    lines: Mapping[GraphLine, Sequence[GraphPoint]]


@dataclass(slots=True)
class _LayeredGraph:
    """A connected part of the graph. A slot is the name of a version, or a line and a layer."""

    layers: list[list[object]]
    upstream: dict[object, list[object]] = field(default_factory=lambda: defaultdict(list))
    downstream: dict[object, list[object]] = field(default_factory=lambda: defaultdict(list))
    routes: dict[GraphLine, list[object]] = field(default_factory=dict)

    def join(self, source: object, target: object) -> None:
        self.downstream[source].append(target)
        self.upstream[target].append(source)


def draw_graph(names: Sequence[str], lines: Iterable[GraphLine]) -> Drawing:
    """Return the positions of versions and of the lines between them."""
    drawn_lines = sorted({line for line in lines if line[0] != line[1]})
    parts = [
        _draw_component(part, drawn_lines) for part in _list_components(sorted(names), drawn_lines)
    ]
    parts.sort(key=lambda part: (-len(part.nodes), min(part.nodes)))
    return _pack_components(parts)


def _list_components(names: Sequence[str], lines: Sequence[GraphLine]) -> list[list[str]]:
    """Return the connected parts of the graph."""
    group = {name: {name} for name in names}
    for source, target in lines:
        if group[source] is not group[target]:
            merged = group[source] | group[target]
            group |= dict.fromkeys(merged, merged)
    return [sorted(part) for part in {id(part): part for part in group.values()}.values()]


def _draw_component(names: Sequence[str], lines: Sequence[GraphLine]) -> Drawing:
    inside = set(names)
    layered = _assign_layers(names, [line for line in lines if line[0] in inside])
    _order_layers(layered)
    heights = _compute_heights(layered)
    top = min(heights.values())
    points = {
        slot: GraphPoint(column * (NODE_WIDTH + _ACROSS), heights[slot] - top)
        for column, layer in enumerate(layered.layers)
        for slot in layer
    }
    nodes = {name: points[name] for name in names}
    return Drawing(
        (len(layered.layers) - 1) * (NODE_WIDTH + _ACROSS) + NODE_WIDTH,
        max(points[slot].y + _get_height(slot) for slot in points),
        nodes,
        {line: _route_line(route, points) for line, route in layered.routes.items()},
    )


def _assign_layers(names: Sequence[str], lines: Sequence[GraphLine]) -> _LayeredGraph:
    forward = _drop_cycles(names, lines)
    depth = _compute_depths(names, forward)
    layered = _LayeredGraph([[] for _ in range(max(depth.values()) + 1)])
    for name in names:
        layered.layers[depth[name]].append(name)
    for line in lines:
        source, target = line if line in forward else (line[1], line[0])
        route: list[object] = [source]
        for layer in range(depth[source] + 1, depth[target]):
            route.append((line, layer))
            layered.layers[layer].append((line, layer))
        route.append(target)
        for pair in pairwise(route):
            layered.join(*pair)
        layered.routes[line] = route if line in forward else route[::-1]
    return layered


def _drop_cycles(names: Sequence[str], lines: Sequence[GraphLine]) -> set[GraphLine]:
    """Return the lines without those that close a cycle in a depth-first walk."""
    targets: dict[str, list[str]] = defaultdict(list)
    for source, target in lines:
        targets[source].append(target)
    forward: set[GraphLine] = set()
    done: set[str] = set()
    for start in names:
        path: dict[str, None] = {start: None}
        stack = [] if start in done else [(start, iter(targets[start]))]
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                done.add(name)
                del path[name]
            elif following not in path:
                forward.add((name, following))
                if following not in done:
                    path[following] = None
                    stack.append((following, iter(targets[following])))
    return forward


def _compute_depths(names: Sequence[str], lines: Iterable[GraphLine]) -> dict[str, int]:
    """Return the layer of each version, as far left as possible; roots right before the rest."""
    sources: dict[str, list[str]] = {name: [] for name in names}
    targets: dict[str, list[str]] = {name: [] for name in names}
    for source, target in lines:
        sources[target].append(source)
        targets[source].append(target)
    depth: dict[str, int] = {}
    for name in TopologicalSorter(sources).static_order():
        depth[name] = max((depth[source] + 1 for source in sources[name]), default=0)
    for name in names:
        if targets[name] and not sources[name]:
            depth[name] = min(depth[target] for target in targets[name]) - 1
    return depth


def _order_layers(layered: _LayeredGraph) -> None:
    """Sort each layer by the mean of its neighbors, and keep the order with fewest crossings."""
    best, fewest = [list(layer) for layer in layered.layers], _count_crossings(layered)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        forth = sweep % 2 == 0
        layers = layered.layers[1:] if forth else layered.layers[-2::-1]
        neighbors = layered.upstream if forth else layered.downstream
        for layer in layers:
            rank = _get_ranks(layered)
            middle = {
                slot: _compute_mean([rank[other] for other in neighbors[slot]], rank[slot])
                for slot in layer
            }
            layer.sort(key=middle.__getitem__)
        crossings = _count_crossings(layered)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layered.layers], crossings
    layered.layers[:] = best


def _get_ranks(layered: _LayeredGraph) -> dict[object, int]:
    return {slot: rank for layer in layered.layers for rank, slot in enumerate(layer)}


def _count_crossings(layered: _LayeredGraph) -> int:
    rank = _get_ranks(layered)
    count = 0
    for layer in layered.layers[:-1]:
        ends = [
            rank[other]
            for slot in layer
            for other in sorted(layered.downstream[slot], key=rank.__getitem__)
        ]
        count += sum(ends[i] > ends[j] for i in range(len(ends)) for j in range(i + 1, len(ends)))
    return count


def _compute_heights(layered: _LayeredGraph) -> dict[object, float]:
    """Return the upper edge of each slot, near the middle of its neighbors."""
    middles: dict[object, float] = {}
    for layer in layered.layers:
        middles |= _spread_layer(layer, dict.fromkeys(layer, 0.0))
    for sweep in range(_SWEEPS):
        layers = layered.layers if sweep % 2 == 0 else layered.layers[::-1]
        for layer in layers:
            targets = {}
            for slot in layer:
                neighbors = layered.upstream[slot] + layered.downstream[slot]
                targets[slot] = _compute_mean(
                    [middles[other] for other in neighbors], middles[slot]
                )
            middles |= _spread_layer(layer, targets)
    return {slot: middle - _get_height(slot) / 2 for slot, middle in middles.items()}


def _spread_layer(layer: Sequence[object], targets: Mapping[object, float]) -> dict[object, float]:
    """Return middles as close to the targets as the order and heights of the slots allow."""
    offsets = [0.0]
    for upper, lower in pairwise(layer):
        offsets.append(offsets[-1] + (_get_height(upper) + _get_height(lower)) / 2 + _BETWEEN)
    blocks: list[tuple[float, int]] = []
    for slot, offset in zip(layer, offsets, strict=True):
        mean, count = targets[slot] - offset, 1
        while blocks and blocks[-1][0] > mean:
            upper_mean, size = blocks.pop()
            mean, count = (mean * count + upper_mean * size) / (count + size), count + size
        blocks.append((mean, count))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return dict(zip(layer, map(sum, zip(shifts, offsets, strict=True)), strict=True))


def _compute_mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _get_height(slot: object) -> int:
    return NODE_HEIGHT if isinstance(slot, str) else _LINE_HEIGHT


def _route_line(route: Sequence[object], points: Mapping[object, GraphPoint]) -> list[GraphPoint]:
    """Return the points of a line from the edge of its source to the edge of its target."""
    first, last = points[route[0]], points[route[-1]]
    backwards = first.x > last.x
    half = NODE_HEIGHT / 2
    line_points = [GraphPoint(first.x + (0 if backwards else NODE_WIDTH), first.y + half)]
    for slot in route[1:-1]:
        point = points[slot]
        ends = [point.x, point.x + NODE_WIDTH]
        line_points += [
            GraphPoint(x, point.y + _LINE_HEIGHT / 2) for x in (ends[::-1] if backwards else ends)
        ]
    return [*line_points, GraphPoint(last.x + (NODE_WIDTH if backwards else 0), last.y + half)]


def _pack_components(parts: Sequence[Drawing]) -> Drawing:
    """Put the parts in rows, so that the drawing has the shape of a screen."""
    area = sum((part.width + _APART) * (part.height + _APART) for part in parts)
    row_width = max([sqrt(area * _ASPECT), *(part.width for part in parts)], default=0)
    nodes: dict[str, GraphPoint] = {}
    lines: dict[GraphLine, list[GraphPoint]] = {}
    x = y = row_height = right = 0.0
    for part in parts:
        if x and x + part.width > row_width:
            x, y, row_height = 0.0, y + row_height + _APART, 0.0
        nodes |= {name: GraphPoint(point.x + x, point.y + y) for name, point in part.nodes.items()}
        lines |= {
            line: [GraphPoint(point.x + x, point.y + y) for point in line_points]
            for line, line_points in part.lines.items()
        }
        right, row_height = max(right, x + part.width), max(row_height, part.height)
        x += part.width + _APART
    return _frame_drawing(right, y + row_height, nodes, lines)


def _frame_drawing(
    width: float,
    height: float,
    nodes: dict[str, GraphPoint],
    lines: dict[GraphLine, list[GraphPoint]],
) -> Drawing:
    """Center the drawing in a space of a minimum size, so that few nodes stay small."""
    size = (max(width + 2 * _MARGIN, _MIN_SIZE[0]), max(height + 2 * _MARGIN, _MIN_SIZE[1]))
    x, y = (size[0] - width) / 2, (size[1] - height) / 2
    return Drawing(
        *size,
        {name: GraphPoint(point.x + x, point.y + y) for name, point in nodes.items()},
        {
            line: [GraphPoint(point.x + x, point.y + y) for point in line_points]
            for line, line_points in lines.items()
        },
    )
