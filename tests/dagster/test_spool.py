from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from shardline.dagster.expectations.spool import KeyCounts, NumberSpool
from shardline.dagster.expectations.suite import ExpectationSpec
from shardline.dagster.expectations.tallies import create_tally
from tests.sampling import runs_whole_sweeps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TEXT = pd.StringDtype(na_value=math.nan)
EDGES: dict[str, list[Any]] = {
    "int64": [-(2**63), 2**63 - 1, 0, -1, 1],
    "float64": [-math.inf, math.inf, -0.0, 0.0, 5e-324, -1e308, 1e308],
}


def random_values(kind: str, count: int, seed: int) -> list[Any]:
    rng = Random(seed)
    if kind == "text":
        return [f"word {rng.randrange(count)}" for _ in range(count)]
    return [rng.choice([*EDGES[kind], rng.randrange(-count, count)]) for _ in range(count)]


def in_blocks(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[first : first + size] for first in range(0, len(values), size)]


@pytest.mark.parametrize("budget", [8, 500, 10**9])
@pytest.mark.parametrize("kind", ["int64", "float64"])
def test_number_spool_finds_every_rank(tmp_path: Path, kind: str, budget: int) -> None:
    values = random_values(kind, 300, budget)
    spool = NumberSpool(tmp_path, "a", budget_bytes=budget)
    for block in in_blocks(values, 70):
        spool.add(np.array(block, kind))
    ranks = [0, 1, 7, 150, 298, 299]
    assert [spool.at_rank(rank) for rank in ranks] == [sorted(values)[rank] for rank in ranks]
    assert bool(list(tmp_path.iterdir())) == (budget < 10**9)


@pytest.mark.parametrize("budget", [400, 3_000, 10**9])
@pytest.mark.parametrize("kind", ["int64", "float64", "text"])
def test_key_counts_equal_a_counter(tmp_path: Path, kind: str, budget: int) -> None:
    values = random_values(kind, 1000, budget)
    keys = KeyCounts(tmp_path, "a", budget_bytes=budget)
    dtype: Any = TEXT if kind == "text" else kind
    for block in in_blocks(values, 130):
        keys.add(pd.DataFrame({"x": pd.Series(block, dtype=dtype)}))
    counts = [int(count) for part in keys.sum_up() for count in part["count"]]
    assert sorted(counts) == sorted(Counter(values).values())
    assert bool(list(tmp_path.iterdir())) == (budget < 10**9)


def test_key_counts_distinguish_rows(tmp_path: Path) -> None:
    left = ["a", "ab", None, None, "a", "a", "1"]
    right = [1, None, 1, None, 1, 2, None]
    frame = pd.DataFrame({"x": pd.Series(left, dtype=TEXT), "y": pd.Series(right, dtype="Int64")})
    keys = KeyCounts(tmp_path, "a", budget_bytes=24)
    for first in range(len(frame)):
        keys.add(frame[first : first + 1])
    counts = sorted(int(count) for part in keys.sum_up() for count in part["count"])
    assert counts == [1, 1, 1, 1, 1, 2]


def peak_of(folder: Path, chunks: int, budget_bytes: int = 40_000) -> int:
    """The most memory that the tallies of all kinds hold while so many chunks come in."""
    column = {"column": "x"}
    partition = {"values": ["a"], "weights": [1.0]}
    rules = [
        ExpectationSpec("expect_column_median_to_be_between", column),
        ExpectationSpec("expect_column_mean_to_be_between", column),
        ExpectationSpec("expect_column_values_to_be_unique", column),
        ExpectationSpec("expect_compound_columns_to_be_unique", {"column_list": ["x", "y"]}),
        ExpectationSpec(
            "expect_column_distinct_values_to_be_in_set", {**column, "value_set": [1, 2]}
        ),
        ExpectationSpec(
            "expect_column_kl_divergence_to_be_less_than",
            {"column": "y", "partition_object": partition},
        ),
    ]
    tallies = [
        create_tally(one, folder, str(place), budget_bytes) for place, one in enumerate(rules)
    ]
    tracemalloc.start()
    for chunk in range(chunks):
        numbers = range(chunk * 1000, chunk * 1000 + 1000)
        texts = pd.Series([f"text {number}" for number in numbers], dtype=TEXT)
        for tally in tallies:
            tally.add(pd.DataFrame({"x": numbers, "y": texts}))
    for tally in tallies:
        tally.metrics()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_tallies_memory_is_bounded(tmp_path: Path) -> None:
    few, many, unbounded = (tmp_path / name for name in ("few", "many", "unbounded"))
    for folder in (few, many, unbounded):
        folder.mkdir()
    peak = peak_of(few, 8)
    assert peak_of(many, 24) < 1.5 * peak
    if runs_whole_sweeps():
        assert peak_of(unbounded, 32, 10**9) > 1.5 * peak, "else this would show nothing"
