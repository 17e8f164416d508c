"""Tracing records: what is found at the source is what the record holds, and forward again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from shardline.lineage.trace import RecordTracer
from shardline.provenance.log_index import LogIndex
from shardline.provenance.row_mapping import SourceRow
from tests.lineage.histories import lived, read_source, shown, sides
from tests.sampling import runs_whole_sweeps

if TYPE_CHECKING:
    from shardline.api import Snapshot
    from shardline.lineage.trace_step import DescendantRecord, TraceStep
    from tests.lineage.histories import History

EACH = 60 if runs_whole_sweeps() else 25


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return lived(tmp_path_factory.mktemp("history"))


def assert_traced(
    tracer: RecordTracer, snapshot: Snapshot, count: int, seed: int
) -> list[TraceStep]:
    """Draw records, and compare what they hold with what stands in the rows they lead to."""
    numbers = random.Random(seed).sample(range(snapshot.records), min(count, snapshot.records))
    steps = [tracer.trace_upstream(snapshot, record) for record in numbers]
    for step, values in zip(steps, snapshot.take(numbers).to_pylist(), strict=True):
        leaves = step.leaves
        rows = [leaf for leaf in leaves if isinstance(leaf, SourceRow)]
        assert rows == leaves, step
        assert [shown(read_source(row)) for row in rows] == sides(values), step
    return steps


@pytest.mark.sweep
def test_records_of_every_snapshot_trace_to_rows(
    history: History,
) -> None:
    tracer = RecordTracer(LogIndex(history.root))
    operations = set()
    for version in history.versions:
        for number in range(1, version.state.snapshot + 1):
            for step in assert_traced(tracer, version.snapshot(number), EACH, number):
                operations |= {one.origin.operation for one in step.steps}
    assert operations == {"append", "rebuild", "erase", "extend", "migrate", "combine"}


def test_upstream_records_trace_down_again(history: History) -> None:
    tracer = RecordTracer(LogIndex(history.root))
    for version in history.versions:
        for step in assert_traced(tracer, version.latest(), 2, 1):
            for one in step.steps:
                origin = history.version(one.version).snapshot(one.snapshot)
                places = list(tracer.trace_downstream(origin, one.record).records())
                assert (places[0].shard, places[0].shard_record) == (one.shard, one.shard_record)
                found = {(p.version, p.shard, p.shard_record) for p in places}
                assert (step.version, step.shard, step.shard_record) in found
                for place in random.Random(1).sample(places, min(3, len(places))):
                    assert_comes_from(history, tracer, place, one)


def assert_comes_from(
    history: History, tracer: RecordTracer, place: DescendantRecord, origin: TraceStep
) -> None:
    """Trace a place back, and find where it was said to come from."""
    if place.record is None or place.snapshot is None:
        assert place.reason
        return
    step = tracer.trace_upstream(
        history.version(place.version).snapshot(place.snapshot), place.record
    )
    assert (step.shard, step.shard_record) == (place.shard, place.shard_record)
    found = {(one.version, one.shard, one.shard_record) for one in step.steps}
    assert (origin.version, origin.shard, origin.shard_record) in found
