"""Where the versions of a graph are drawn: in layers, left to right, with few crossings.

The way of Sugiyama: each version stands right of all it is made of; a line that passes layers gets
a place in each of them; the order in a layer is improved by looking at the neighbours; and then
everything is moved towards its neighbours as far as the others allow. The same graph always gives
the same picture.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
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
_LEAST = (700, 330)
_SHAPE = 2.0
_SWEEPS = 8


class GraphPoint(NamedTuple):
    """A place in the drawing."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """Where each version stands (left upper corner), and through which points each line goes."""

    width: float
    height: float
    nodes: Mapping[str, GraphPoint]
    lines: Mapping[GraphLine, Sequence[GraphPoint]]


@dataclass(slots=True)
class _Layered:
    """One connected part of the graph. A place is the name of a version, or a line and a layer."""

    layers: list[list[object]]
    before: dict[object, list[object]] = field(default_factory=lambda: defaultdict(list))
    behind: dict[object, list[object]] = field(default_factory=lambda: defaultdict(list))
    routes: dict[GraphLine, list[object]] = field(default_factory=dict)

    def join(self, one: object, other: object) -> None:
        self.behind[one].append(other)
        self.before[other].append(one)


def draw_graph(names: Sequence[str], lines: Iterable[GraphLine]) -> Drawing:
    """Place versions and the lines between them."""
    wanted = sorted({line for line in lines if line[0] != line[1]})
    parts = [_draw_component(part, wanted) for part in _list_components(sorted(names), wanted)]
    parts.sort(key=lambda part: (-len(part.nodes), min(part.nodes)))
    return _pack_components(parts)


def _list_components(names: Sequence[str], lines: Sequence[GraphLine]) -> list[list[str]]:
    """The versions that hang together."""
    group = {name: {name} for name in names}
    for one, other in lines:
        if group[one] is not group[other]:
            merged = group[one] | group[other]
            group |= dict.fromkeys(merged, merged)
    return [sorted(part) for part in {id(part): part for part in group.values()}.values()]


def _draw_component(names: Sequence[str], lines: Sequence[GraphLine]) -> Drawing:
    inside = set(names)
    layered = _assign_layers(names, [line for line in lines if line[0] in inside])
    _order_layers(layered)
    heights = _compute_heights(layered)
    top = min(heights.values())
    points = {
        place: GraphPoint(number * (NODE_WIDTH + _ACROSS), heights[place] - top)
        for number, layer in enumerate(layered.layers)
        for place in layer
    }
    nodes = {name: points[name] for name in names}
    return Drawing(
        (len(layered.layers) - 1) * (NODE_WIDTH + _ACROSS) + NODE_WIDTH,
        max(points[place].y + _get_height(place) for place in points),
        nodes,
        {line: _route_line(route, points) for line, route in layered.routes.items()},
    )


def _assign_layers(names: Sequence[str], lines: Sequence[GraphLine]) -> _Layered:
    forward = _drop_cycles(names, lines)
    depth = _compute_depths(names, forward)
    layered = _Layered([[] for _ in range(max(depth.values()) + 1)])
    for name in names:
        layered.layers[depth[name]].append(name)
    for line in lines:
        one, other = line if line in forward else (line[1], line[0])
        route: list[object] = [one]
        for layer in range(depth[one] + 1, depth[other]):
            route.append((line, layer))
            layered.layers[layer].append((line, layer))
        route.append(other)
        for pair in pairwise(route):
            layered.join(*pair)
        layered.routes[line] = route if line in forward else route[::-1]
    return layered


def _drop_cycles(names: Sequence[str], lines: Sequence[GraphLine]) -> set[GraphLine]:
    """The lines that do not lead back to where a walk came from."""
    after = _map_successors(lines)
    kept: set[GraphLine] = set()
    done: set[str] = set()
    for first in names:
        way: dict[str, None] = {first: None}
        walk = [] if first in done else [(first, iter(after[first]))]
        while walk:
            name, rest = walk[-1]
            following = next(rest, None)
            if following is None:
                walk.pop()
                done.add(name)
                del way[name]
            elif following not in way:
                kept.add((name, following))
                if following not in done:
                    way[following] = None
                    walk.append((following, iter(after[following])))
    return kept


def _map_successors(lines: Iterable[GraphLine]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for one, other in lines:
        found[one].append(other)
    return found


def _compute_depths(names: Sequence[str], lines: Iterable[GraphLine]) -> dict[str, int]:
    """Each behind all it is made of; what is made of nothing, just before what is made of it."""
    lines = sorted(lines)
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for one, other in lines:
            depth[other] = max(depth[other], depth[one] + 1)
    made = {other for _, other in lines}
    for name, following in _map_successors(lines).items():
        if name not in made:
            depth[name] = min(depth[other] for other in following) - 1
    return depth


def _order_layers(layered: _Layered) -> None:
    """Let neighbours stand side by side, to and fro, and keep the order that crosses least."""
    best, fewest = [list(layer) for layer in layered.layers], _count_crossings(layered)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        forth = sweep % 2 == 0
        layers = layered.layers[1:] if forth else layered.layers[-2::-1]
        towards = layered.before if forth else layered.behind
        for layer in layers:
            rank = _get_ranks(layered)
            middle = {
                place: _compute_mean([rank[one] for one in towards[place]], rank[place])
                for place in layer
            }
            layer.sort(key=middle.__getitem__)
        crossings = _count_crossings(layered)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layered.layers], crossings
    layered.layers[:] = best


def _get_ranks(layered: _Layered) -> dict[object, int]:
    return {place: rank for layer in layered.layers for rank, place in enumerate(layer)}


def _count_crossings(layered: _Layered) -> int:
    rank = _get_ranks(layered)
    count = 0
    for layer in layered.layers[:-1]:
        ends = [
            rank[other]
            for place in layer
            for other in sorted(layered.behind[place], key=rank.__getitem__)
        ]
        count += sum(ends[i] > ends[j] for i in range(len(ends)) for j in range(i + 1, len(ends)))
    return count


def _compute_heights(layered: _Layered) -> dict[object, float]:
    """The upper edge of each place, near the middle of its neighbours."""
    middles: dict[object, float] = {}
    for layer in layered.layers:
        middles |= _spread_layer(layer, dict.fromkeys(layer, 0.0))
    for sweep in range(_SWEEPS):
        layers = layered.layers if sweep % 2 == 0 else layered.layers[::-1]
        for layer in layers:
            wanted = {}
            for place in layer:
                around = [middles[one] for one in layered.before[place] + layered.behind[place]]
                wanted[place] = _compute_mean(around, middles[place])
            middles |= _spread_layer(layer, wanted)
    return {place: middle - _get_height(place) / 2 for place, middle in middles.items()}


def _spread_layer(layer: Sequence[object], wanted: Mapping[object, float]) -> dict[object, float]:
    """The middles of a layer, as near to where they should be as their order and size allow."""
    offsets = [0.0]
    for one, other in pairwise(layer):
        offsets.append(offsets[-1] + (_get_height(one) + _get_height(other)) / 2 + _BETWEEN)
    blocks: list[tuple[float, int]] = []
    for place, offset in zip(layer, offsets, strict=True):
        mean, count = wanted[place] - offset, 1
        while blocks and blocks[-1][0] > mean:
            other, many = blocks.pop()
            mean, count = (mean * count + other * many) / (count + many), count + many
        blocks.append((mean, count))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return dict(zip(layer, map(sum, zip(shifts, offsets, strict=True)), strict=True))


def _compute_mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _get_height(place: object) -> int:
    return NODE_HEIGHT if isinstance(place, str) else _LINE_HEIGHT


def _route_line(route: Sequence[object], points: Mapping[object, GraphPoint]) -> list[GraphPoint]:
    """From the edge of the first version, through the layers, to the edge of the last."""
    first, last = points[route[0]], points[route[-1]]
    back = first.x > last.x
    half = NODE_HEIGHT / 2
    way = [GraphPoint(first.x + (0 if back else NODE_WIDTH), first.y + half)]
    for place in route[1:-1]:
        point = points[place]
        ends = [point.x, point.x + NODE_WIDTH]
        way += [GraphPoint(x, point.y + _LINE_HEIGHT / 2) for x in (ends[::-1] if back else ends)]
    return [*way, GraphPoint(last.x + (NODE_WIDTH if back else 0), last.y + half)]


def _pack_components(parts: Sequence[Drawing]) -> Drawing:
    """The parts on shelves, so that the whole is about as wide as a screen."""
    area = sum((part.width + _APART) * (part.height + _APART) for part in parts)
    wide = max([sqrt(area * _SHAPE), *(part.width for part in parts)], default=0)
    nodes: dict[str, GraphPoint] = {}
    lines: dict[GraphLine, list[GraphPoint]] = {}
    x = y = tall = right = 0.0
    for part in parts:
        if x and x + part.width > wide:
            x, y, tall = 0.0, y + tall + _APART, 0.0
        nodes |= {name: GraphPoint(at.x + x, at.y + y) for name, at in part.nodes.items()}
        lines |= {
            line: [GraphPoint(at.x + x, at.y + y) for at in way] for line, way in part.lines.items()
        }
        right, tall = max(right, x + part.width), max(tall, part.height)
        x += part.width + _APART
    return _frame_drawing(right, y + tall, nodes, lines)


def _frame_drawing(
    width: float,
    height: float,
    nodes: dict[str, GraphPoint],
    lines: dict[GraphLine, list[GraphPoint]],
) -> Drawing:
    """Put in the middle of a space that is not too small: a node is not a poster."""
    full = (max(width + 2 * _MARGIN, _LEAST[0]), max(height + 2 * _MARGIN, _LEAST[1]))
    x, y = (full[0] - width) / 2, (full[1] - height) / 2
    return Drawing(
        *full,
        {name: GraphPoint(at.x + x, at.y + y) for name, at in nodes.items()},
        {line: [GraphPoint(at.x + x, at.y + y) for at in way] for line, way in lines.items()},
    )
