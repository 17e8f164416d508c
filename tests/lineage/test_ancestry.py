"""Ancestry: what the graph tells at each level, and that what is gone is in it, and says so."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shardline.lineage.ancestry import ANCESTRY_LEVELS, build_ancestry_graph
from shardline.lineage.ancestry_graph import AncestryEdge, AncestryGraph, AncestryNode, format_dot
from shardline.operations.append import append
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.operations.restore import restore_version
from shardline.operations.vacuum import vacuum
from shardline.provenance.log_index import LogIndex
from tests.operations.extensions import base_of, double, grown, version_in

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Version

NEWEST: dict[str, Any] = {"snapshot": "latest"}


@pytest.fixture
def base(tmp_path: Path) -> Version:
    """A version that was rebuilt in place, extended, migrated into another dataset and paired."""
    base = base_of(tmp_path, (0, 3), (3, 6))
    extended, other = version_in(tmp_path), version_in(tmp_path, "other/v1")
    extend(base, double, extended)
    migrate(extended, MigrationSpec(rename={"name": "title"}, drop=["double"]), other, **NEWEST)
    rebuild(base, snapshot="latest")
    grown(base, tmp_path / "landing", (6, 8))
    pairs: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    prefixes: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}
    combine(base, other, version_in(tmp_path, "pairs/v1"), **pairs, **prefixes)
    return base


def test_self_paired_shard_is_upstream_once(
    tmp_path: Path,
) -> None:
    base, pairs = base_of(tmp_path, (0, 3)), version_in(tmp_path, "pairs/v1")
    prefixes: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}
    combine(base, base, pairs, mode="virtual", **prefixes)
    graph = build_graph(pairs, level="shards", downstream=False)
    (edge,) = graph.upstream(graph.start[0])
    assert edge.records == 9


def build_graph(version: Version, *asked: Any, **options: Any) -> AncestryGraph:  # noqa: ANN401 - as they come
    return build_ancestry_graph(LogIndex(version.store), version.name, *asked, **options)


def arrows(graph: AncestryGraph) -> set[tuple[str, str, str]]:
    return {(edge.upstream, edge.operation, edge.downstream) for edge in graph.edges}


def test_versions_link_versions_and_sources(tmp_path: Path, base: Version) -> None:
    graph = build_graph(base)
    assert arrows(graph) == {
        ("sources of digits/v1", "append", "digits/v1"),
        ("digits/v1", "extend", "digits/v2"),
        ("digits/v2", "migrate", "other/v1"),
        ("digits/v1", "combine", "pairs/v1"),
        ("other/v1", "combine", "pairs/v1"),
    }
    assert len(graph.nodes["sources of digits/v1"].facts["sources"]) == 3
    (appended,) = graph.upstream("digits/v1")
    assert (appended.records, len(appended.entries)) == (8, 2)
    up = build_graph(version_in(tmp_path, "other/v1"), downstream=False)
    assert arrows(up) == {
        ("sources of digits/v1", "append", "digits/v1"),
        ("digits/v1", "extend", "digits/v2"),
        ("digits/v2", "migrate", "other/v1"),
    }


def test_version_at_snapshot_omits_later_entries(tmp_path: Path, base: Version) -> None:
    first = build_graph(base, 1)
    assert arrows(first) == {
        ("sources of digits/v1@1", "append", "digits/v1@1"),
        ("digits/v1@1", "extend", "digits/v2@1"),
        ("digits/v2@1", "migrate", "other/v1@1"),
        ("other/v1@1", "combine", "pairs/v1@1"),
    }
    assert first.nodes["digits/v1@1"].facts["records"] == 6
    assert len(first.nodes["sources of digits/v1@1"].facts["sources"]) == 2
    (appended,) = first.upstream("digits/v1@1")
    assert appended.records == 6
    migrated = build_graph(version_in(tmp_path, "other/v1"), 1, downstream=False)
    (appended,) = migrated.upstream("digits/v1@1")
    assert appended.records == 6


def test_rebuilt_version_at_snapshot_links_sources(
    base: Version,
) -> None:
    graph = build_graph(base, 3)
    assert arrows(graph) == {
        ("sources of digits/v1@3", "append", "digits/v1@3"),
        ("digits/v1@3", "combine", "pairs/v1@1"),
    }
    (appended,) = graph.upstream("digits/v1@3")
    assert (appended.records, len(appended.entries)) == (8, 2)
    assert len(graph.nodes["sources of digits/v1@3"].facts["sources"]) == 3


def test_reused_shard_counts_records_once(tmp_path: Path) -> None:
    base, extended = base_of(tmp_path, (0, 3)), version_in(tmp_path)
    extend(base, double, extended)
    grown(base, tmp_path / "landing", (3, 5))
    rebuild(base, snapshot="latest")
    extend(base, double, extended, **NEWEST)
    restore_version(base, "1")
    extend(base, double, extended, **NEWEST)
    graph = build_graph(extended, level="shards")
    (edge,) = graph.upstream(graph.start[0])
    assert (edge.records, len(edge.entries)) == (3, 2)
    down = build_graph(base, level="shards", upstream=False)
    (edge,) = (one for one in down.edges if one.downstream == graph.start[0])
    assert edge.records == 3


def test_snapshots_link_by_their_shards(base: Version) -> None:
    graph = build_graph(base, 3, level="snapshots")
    assert graph.start == ("digits/v1@3",)
    assert arrows(graph) == {
        ("digits/v1@1", "rebuild", "digits/v1@3"),
        ("sources of digits/v1@1", "append", "digits/v1@1"),
        ("sources of digits/v1@3", "append", "digits/v1@3"),
        ("digits/v1@3", "combine", "pairs/v1@1"),
    }
    down = build_graph(base, 1, level="snapshots", upstream=False)
    assert ("digits/v1@1", "extend", "digits/v2@1") in arrows(down)
    assert ("other/v1@1", "combine", "pairs/v1@1") in arrows(down)
    assert build_graph(base, level="snapshots").start == ("digits/v1@1", "digits/v1@3")


def test_shards_link_shards_and_sources(tmp_path: Path, base: Version) -> None:
    pairs = version_in(tmp_path, "pairs/v1")
    (made,) = pairs.latest().shards
    graph = build_graph(pairs, level="shards", downstream=False)
    assert graph.start == (f"pairs/{made.name}",)
    of = {edge.upstream for edge in graph.upstream(graph.start[0])}
    other = version_in(tmp_path, "other/v1").latest().shards
    rebuilt, grown_by = base.latest().shards
    assert of == {
        *(f"digits/{shard.name}" for shard in (rebuilt, grown_by)),
        *(f"other/{shard.name}" for shard in other),
    }
    first = base.snapshot(1).shards
    assert {edge.upstream for edge in graph.upstream(f"digits/{rebuilt.name}")} == {
        f"digits/{shard.name}" for shard in first
    }
    (source,) = graph.upstream(f"digits/{first[0].name}")
    assert source.upstream == f"source {tmp_path}/landing/000000-000003.jsonl"
    down = build_graph(base, 1, level="shards", upstream=False)
    assert {edge.downstream for edge in down.downstream(f"digits/{first[1].name}")} == {
        f"digits/{version_in(tmp_path).latest().shards[1].name}",
        f"digits/{rebuilt.name}",
    }


def test_features_link_features(tmp_path: Path, base: Version) -> None:
    graph = build_graph(version_in(tmp_path), level="features")
    computed = "computed by function 'double'"
    assert {(edge.upstream, edge.how, edge.downstream) for edge in graph.edges} == {
        ("digits/v1:id", "kept", "digits/v2:id"),
        ("digits/v1:name", "kept", "digits/v2:name"),
        ("digits/v1:id", computed, "digits/v2:double"),
        ("digits/v2:id", "kept", "other/v1:id"),
        ("digits/v2:name", "renamed", "other/v1:title"),
        ("other/v1:id", "renamed", "pairs/v1:b_id"),
        ("other/v1:title", "renamed", "pairs/v1:b_title"),
    }
    assert build_graph(base, level="features", downstream=False).edges == ()


def test_features_of_snapshot_omit_other_snapshots(base: Version) -> None:
    made = {
        number: {
            edge.downstream
            for edge in build_graph(base, number, level="features").downstream("digits/v1:id")
        }
        for number in (1, 2, 3)
    }
    assert made == {1: {"digits/v2:id", "digits/v2:double"}, 2: set(), 3: {"pairs/v1:a_id"}}


@pytest.mark.parametrize("level", ANCESTRY_LEVELS)
def test_deleted_input_is_missing(tmp_path: Path, base: Version, level: str) -> None:
    shutil.rmtree(tmp_path / "root/digits/v1")
    graph = build_graph(version_in(tmp_path), level=level, downstream=False)
    gone = [node for node in graph.nodes.values() if node.problem]
    assert gone
    assert "no log" in gone[0].reason
    assert all(
        edge.downstream in graph.nodes and edge.upstream in graph.nodes for edge in graph.edges
    )
    assert base.name in gone[0].id or base.name in gone[0].reason


def test_corrupt_log_is_a_problem(tmp_path: Path, base: Version) -> None:
    del base
    entry = tmp_path / "root/digits/v2/log/00000000000000000001.json"
    entry.write_bytes(entry.read_bytes().replace(b"create", b"crEate"))
    graph = build_graph(version_in(tmp_path, "other/v1"), downstream=False)
    assert "cannot be read" in graph.nodes["digits/v2"].reason
    assert graph.nodes["digits/v2"].to_dict()["reason"] == graph.unreadable["digits/v2"]
    assert arrows(graph) == {("digits/v2", "migrate", "other/v1")}


@pytest.mark.parametrize("level", ANCESTRY_LEVELS)
@pytest.mark.parametrize("up", [True, False])
def test_corrupt_log_is_listed_at_every_level(
    tmp_path: Path,
    base: Version,
    level: str,
    up: bool,  # noqa: FBT001 - a parameter
) -> None:
    entry = tmp_path / "root/digits/v2/log/00000000000000000002.json"
    entry.write_bytes(entry.read_bytes().replace(b"extend", b"extent"))
    asked = version_in(tmp_path, "other/v1") if up else base
    graph = build_graph(asked, level=level, upstream=up, downstream=not up)
    assert list(graph.unreadable) == ["digits/v2"]
    assert any(node.problem == "corrupt" for node in graph.nodes.values()) == up


def test_vacuumed_shard_is_missing(base: Version) -> None:
    base.pin("digits/v2 on 1", None)
    later = datetime.now(UTC) + timedelta(days=1)
    vacuum(base.store, "digits", retention=timedelta(0), dry_run=False, clock=lambda: later)
    base.refresh()
    old = build_graph(base, level="snapshots").nodes["digits/v1@1"]
    assert old.problem == "missing"
    assert re.findall(r"\d+", old.reason) == ["2", "2"]
    shards = [f"digits/{shard.name}" for shard in base.snapshot(1).shards]
    graph = build_graph(base, level="shards", downstream=False)
    assert ["vacuum" in graph.nodes[shard].reason for shard in shards] == [True, True]


def test_consumers_are_downstream(base: Version) -> None:
    base.pin("consumer training", 3, "run 9")
    assert ("digits/v1", "read", "consumer training") in arrows(build_graph(base))
    assert ("digits/v1@3", "read", "consumer training") in arrows(
        build_graph(base, level="snapshots")
    )
    assert ("digits/v1", "read", "consumer training") not in arrows(build_graph(base, 1))


def test_appends_merge_into_an_edge(base: Version) -> None:
    append(base, [{"id": 100, "name": "x"}], batch="more")
    (edge,) = build_graph(base, downstream=False).edges
    assert len(edge.entries) == 3
    assert build_graph(base, 1, downstream=False).edges[0].entries == (edge.entries[0],)


def test_format_dot_quotes_hostile_names() -> None:
    hostile = 'a"] b\\l\x1b'
    graph = AncestryGraph(
        "versions",
        (hostile,),
        {
            hostile: AncestryNode(hostile, "version"),
            "x": AncestryNode("x", "version", problem="missing", reason="it is\nlost"),
        },
        (AncestryEdge("x", hostile, "extend", how='by "f"'),),
    )
    lines = format_dot(graph).splitlines()
    quoted = '"a\\"] b\\\\l�"'
    expected = [
        f'  {quoted} [shape=box, label={quoted}, style="bold"];',
        '  "x" [shape=box, label="x\\nit is\\nlost", style="dashed"];',
        f'  "x" -> {quoted} [label="by \\"f\\""];',
    ]
    assert lines[3:6] == expected
