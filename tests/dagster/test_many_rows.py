"""A version with more rows than any sample: a small bad batch must not get through."""

import json
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from tests.dagster.platforms import GROWING, REBUILT, get_evaluations, make_platform, reported

MANY = 200_001
SUITE = [
    {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "id", "min_value": 0},
        "severity": "critical",
    },
    {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}},
]


def test_small_bad_batch_among_many_rows_is_rejected(tmp_path: Path) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"expectations": SUITE}))
    notes = make_platform(tmp_path, suite=suite)
    with dg.DagsterInstance.ephemeral() as instance:
        ids = pa.array(range(MANY))
        table = pa.table({"id": ids, "name": ids.cast(pa.string())})
        pq.write_table(table, notes.landing / "many.parquet")
        assert notes.run(instance).success
        assert notes.version().published().records == MANY
        notes.land("bad", [-7] * 5)
        result = notes.run(instance)
        told = get_evaluations(result)["notes_v1:expectations"]
        assert (result.success, told.passed) == (False, False)
        assert told.metadata["shardline/checked_rows"].value == 5
        assert told.metadata["shardline/rows"].value == MANY + 5
        assert float(str(told.metadata["shardline/rows_per_second"].value)) > 0
        assert notes.version().published().records == MANY
        assert notes.version("notes/single").latest().records == MANY
        assert len(reported(instance, REBUILT)) == 1
        notes.land("twice", [MANY, 0])
        assert not get_evaluations(notes.run(instance, GROWING))["notes_v1:expectations"].passed
        assert notes.version().published().records == MANY
