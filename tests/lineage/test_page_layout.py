"""Where versions are drawn in the graph of the report page."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from shardline.lineage.page.graph_layout import NODE_HEIGHT, NODE_WIDTH, Drawing, draw_graph

NAMES = [f"set/v{number:02}" for number in range(14)]
LINES = st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=30)


def overlap(drawing: Drawing) -> bool:
    return any(
        abs(one.x - other.x) < NODE_WIDTH and abs(one.y - other.y) < NODE_HEIGHT
        for one, other in combinations(drawing.nodes.values(), 2)
    )


def is_inside(drawing: Drawing) -> bool:
    return all(
        0 <= at.x <= drawing.width - NODE_WIDTH and 0 <= at.y <= drawing.height - NODE_HEIGHT
        for at in drawing.nodes.values()
    )


@given(LINES)
def test_versions_are_right_of_their_inputs(
    lines: set[tuple[str, str]],
) -> None:
    forward = {(one, other) for one, other in lines if one < other}
    drawing = draw_graph(NAMES, forward)
    assert not overlap(drawing)
    assert is_inside(drawing)
    for one, other in forward:
        assert drawing.nodes[one].x + NODE_WIDTH < drawing.nodes[other].x
        way = drawing.lines[one, other]
        assert way[0].x == drawing.nodes[one].x + NODE_WIDTH
        assert way[-1].x == drawing.nodes[other].x


@given(LINES)
def test_cycle_is_drawn_deterministically(lines: set[tuple[str, str]]) -> None:
    drawing = draw_graph(NAMES, lines)
    assert not overlap(drawing)
    assert set(drawing.lines) == {line for line in lines if line[0] != line[1]}
    assert draw_graph(NAMES[::-1], sorted(lines)) == drawing


def test_layout_avoids_crossings() -> None:
    drawing = draw_graph(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    a, b, x, y = (drawing.nodes[name].y for name in "abxy")
    assert (a - b) * (y - x) > 0


def test_unconnected_versions_fill_rows() -> None:
    drawing = draw_graph([f"set-{number}/v1" for number in range(60)], [])
    assert 1 < drawing.width / drawing.height < 4


def test_single_version_is_centered() -> None:
    drawing = draw_graph(["only/v1"], [])
    at = drawing.nodes["only/v1"]
    assert at.x == (drawing.width - NODE_WIDTH) / 2
    assert at.y == (drawing.height - NODE_HEIGHT) / 2
    assert drawing.width > 2 * NODE_WIDTH


def test_no_versions_give_an_empty_drawing() -> None:
    assert draw_graph([], []).nodes == {}
