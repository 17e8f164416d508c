"""Pairs chosen by a predicate, in the language of erase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import InvalidArgumentError, SchemaMismatchError
from shardline.lineage.audit.recompute_audit import RecomputeOptions
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import RecordTracer
from shardline.log.parameters import CombineParameters
from shardline.operations.combine import combine
from shardline.operations.combine_files import combine_files
from shardline.pairing.combine_spec import CombineSpec, list_arguments, list_stored_udfs
from shardline.provenance.commands import list_recreate_arguments
from shardline.provenance.log_index import LogIndex
from shardline.provenance.row_mapping import SourceRow
from tests.errors import raises
from tests.kernel.frames import framed
from tests.operations.combinations import combined, land_shards, lefts, rights
from tests.operations.extensions import base_of, version_in
from tests.operations.test_combine_fields import added, sums, two
from tests.tfrecord.samples import records_of

if TYPE_CHECKING:
    from pathlib import Path

PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a == 3", lambda a, _: a == 3),
        ("left.a == 3 and b in [1, 2]", lambda a, b: a == 3 and b in {1, 2}),
        ("right.b < 2 or left.a > 3", lambda a, b: b < 2 or a > 3),
        ("left.a <= 2 and a != 1 and not right.word == ''", lambda a, b: a in {0, 2} and b % 3),
    ],
)
def test_predicate_chooses_pairs_like_nested_loops(
    tmp_path: Path,
    where: str,
    expected: Any,  # noqa: ANN401 - a function of two numbers
) -> None:
    left, right, into = two(tmp_path, 1, 1)
    report = combined(left, right, into, where=where, udfs=added)
    pairs = [(a, b) for a in range(5) for b in range(5) if expected(a, b)]
    assert sums(into) == pairs
    assert report.records == len(pairs)


def test_predicate_matches_collided_names_of_both_sides(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 4)), version_in(tmp_path, "pairs/v1")
    combine(base, base, into, where="left.id > 1 and right.id == 0 and b_id < 9", **PREFIXES)
    table = into.latest().to_arrow(["a_id", "b_id"]).read_all()
    assert table.to_pydict() == {"a_id": [2, 3], "b_id": [0, 0]}


def test_own_name_of_pair_precedes_name_of_side(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 3)), version_in(tmp_path, "pairs/v1")
    names: dict[str, Any] = {"on_collision": "prefix", "right_prefix": "left."}
    combine(base, base, into, where="left.id == 2 and id == 1", **names)
    table = into.latest().to_arrow(["id", "left.id"]).read_all()
    assert table.to_pydict() == {"id": [1], "left.id": [2]}


def test_left_join_predicate_finds_records_without_match(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 2, 1)
    combined(left, right, into, on={"a": "b"}, how="left", where="right.b is missing and a != 7")
    table = into.latest().to_arrow(["a", "b"]).read_all()
    assert table.to_pydict() == {"a": [5, 6, 8, 9], "b": [None] * 4}


def test_predicate_combination_computes_only_new_shards(tmp_path: Path) -> None:
    left, right, into = two(tmp_path)
    first = combined(left, right, into, where="a == 11 or b == 2")
    assert combined(left, right, into, where="a == 11 or b == 2").entry is None
    land_shards(left, lefts(10, 12))
    more = combined(left, right, into, where="a == 11 or b == 2")
    assert more.reused == first.written
    assert len(sums(into)) == 10 + 2 + 9
    other = combined(left, right, into, where="a == 11")
    assert (other.reused, other.records) == ((), 10)


def test_predicate_is_stored_and_repeated_by_command(tmp_path: Path) -> None:
    left, right, into = two(tmp_path, 1, 1)
    entry = combined(left, right, into, where="a in [1, 2]", limit=3).entry
    assert entry is not None
    stored = entry.parameters["rule"]["where"]
    assert stored["identity"] == {"predicate": "a in [1, 2]"}
    assert list_stored_udfs(entry.read(CombineParameters)) == []
    assert ("--where", "a in [1, 2]") in list(list_arguments(entry.parameters))
    assert "a in [1, 2]" in list_recreate_arguments(entry)
    spec = CombineSpec.from_entry(entry.parameters, lambda _: [])
    assert spec.get_rule("") == entry.parameters["rule"]
    assert sums(into) == [(1, 0), (1, 1), (1, 2)]


def test_pairs_of_predicate_are_traced_and_recomputed(tmp_path: Path) -> None:
    base, into = base_of(tmp_path, (0, 4), (4, 8)), version_in(tmp_path, "pairs/v1")
    combine(base, base, into, where="left.id == 6 or b_id == 1", **PREFIXES)
    tracer = RecordTracer(LogIndex(base.store))
    table = into.latest().to_arrow(["a_id", "b_id"]).read_all().to_pylist()
    for record, pair in enumerate(table):
        leaves = tracer.trace_upstream(into.latest(), record).leaves
        rows = [leaf for leaf in leaves if isinstance(leaf, SourceRow)]
        assert [leaf.row + 4 * ("000004-" in leaf.source.label) for leaf in rows] == [
            *pair.values()
        ]
    report = audit(LogIndex(base.store), recompute=RecomputeOptions(100))
    assert (report.findings, report.not_recomputed) == ((), ())
    assert report.recomputed == report.shards


def test_files_are_combined_by_predicate(tmp_path: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    left.write_bytes(framed(*lefts(0, 4)))
    right.write_bytes(framed(*rights(0, 4)))
    combine_files([left], [right], tmp_path / "out", where="right.b == 2 and a >= 2")
    assert len(records_of(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("where", "code"),
    [("left.b == 1", "unknown-feature"), ("a == 'x'", "invalid-value")],
)
def test_predicate_that_does_not_fit_is_refused(tmp_path: Path, where: str, code: str) -> None:
    left, right, into = two(tmp_path, 1, 1)
    with raises(SchemaMismatchError, code):
        combined(left, right, into, where=where)
    assert not into.exists


def test_invalid_or_virtual_predicate_is_refused(tmp_path: Path) -> None:
    with raises(InvalidArgumentError, "invalid-predicate"):
        CombineSpec.of(where="a = 1")
    left, right, into = two(tmp_path, 1, 1)
    with raises(InvalidArgumentError, "conflicting-arguments"):
        combined(left, right, into, where="a == 1", mode="virtual")
    assert not Version(tmp_path, "pairs/v1").exists
