"""Every supported rule, compared with plain Great Expectations on all rows at once."""

from __future__ import annotations

import json
import math
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import shardline
from shardline.dagster.expectations.engine import open_engine
from shardline.dagster.expectations.evaluation import Evaluator
from shardline.dagster.expectations.rules import EVALUATIONS, Evaluation
from shardline.dagster.expectations.sample import take_sample
from shardline.dagster.expectations.suite import ExpectationSpec, SuiteError, read_suite
from tests.dagster.rows import snapshot_of
from tests.errors import raises
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from shardline.api import Snapshot

MIXED = shardline.Schema(
    (
        shardline.Feature("id", "int64"),
        shardline.Feature("number", "int64", required=False),
        shardline.Feature("other", "int64", required=False),
        shardline.Feature("real", "float", required=False, nan=True),
        shardline.Feature("wide", "float", required=False, nan=True),
        shardline.Feature("word", "bytes", required=False, meaning=shardline.Text()),
        shardline.Feature("json", "bytes", meaning=shardline.Text()),
        shardline.Feature("day", "bytes", meaning=shardline.Text()),
        shardline.Feature("empty", "int64", required=False),
    )
)
COUNTS = ("element_count", "missing_count", "unexpected_count", "unexpected_percent")
WORDS = ("ada", "ben", "cleo", "dan", "", "ünï", "a'b\"c")


def random_rows(count: int, seed: int) -> list[dict[str, Any]]:
    rng = Random(seed)

    def maybe(value: object) -> object:
        return None if rng.random() < 0.15 else value

    return [
        {
            "id": number if rng.random() < 0.98 else number - 1,
            "number": maybe(rng.choice([-(2**63), 2**63 - 1, 0, *range(-5, 6)])),
            "other": maybe(rng.randrange(-5, 6)),
            "real": maybe(rng.choice([-0.0, 0.0, 0.1, math.nan, rng.gauss(0, 1)])),
            "wide": maybe(rng.choice([rng.gauss(0, 1e30), math.inf, 1e-30])),
            "word": maybe(rng.choice(WORDS)),
            "json": rng.choice(['{"a": 1}', '{"a": "b"}', "{"]),
            "day": rng.choice(["2024-02-29", "2024-02-30", "yesterday"]),
            "empty": None,
        }
        for number in range(count)
    ]


def rule(kind: str, **kwargs: object) -> ExpectationSpec:
    return ExpectationSpec(f"expect_{kind}", kwargs)


def on_columns(kind: str, columns: Sequence[str], **kwargs: object) -> Iterator[ExpectationSpec]:
    for column in columns:
        yield rule(kind, column=column, **kwargs)


def row_rules() -> Iterator[ExpectationSpec]:
    """Rules on rows; `mostly` just above and just below what holds is part of them."""
    schema = {"properties": {"a": {"type": "integer"}}}
    for mostly in (1, 0.84, 0.87, 0.5, 0):
        yield from on_columns("column_values_to_not_be_null", ["number", "word"], mostly=mostly)
        yield rule("column_values_to_be_between", column="other", min_value=-4, mostly=mostly)
        yield rule("column_values_to_be_null", column="number", mostly=mostly)
    yield from on_columns("column_values_to_be_null", ["empty", "id"])
    yield from on_columns("column_values_to_not_be_null", ["id", "empty"])
    yield from on_columns("column_values_to_be_between", ["id", "real", "wide"], max_value=0.1)
    yield from on_columns("column_values_to_be_between", ["number", "empty"], min_value=0)
    yield rule("column_values_to_be_between", column="other", min_value=-5, max_value=5)
    yield rule("column_values_to_be_in_set", column="word", value_set=["ada", "ben"])
    yield rule("column_values_to_be_in_set", column="other", value_set=list(range(-5, 6)))
    yield rule("column_values_to_not_be_in_set", column="word", value_set=["eve"])
    yield rule("column_values_to_not_be_in_set", column="number", value_set=[0])
    yield rule("column_values_to_match_regex", column="word", regex="^[a-c]")
    yield rule("column_values_to_not_match_regex", column="word", regex="zz")
    yield rule("column_values_to_match_regex_list", column="word", regex_list=["^a", "n$"])
    yield rule("column_values_to_not_match_regex_list", column="word", regex_list=["^a", "n$"])
    yield rule("column_value_lengths_to_be_between", column="word", min_value=1, max_value=4)
    yield rule("column_value_lengths_to_equal", column="word", value=3, mostly=0.3)
    yield rule("column_values_to_be_json_parseable", column="json")
    yield rule("column_values_to_match_json_schema", column="json", json_schema=schema)
    yield rule("column_values_to_be_dateutil_parseable", column="day")
    yield rule("column_values_to_match_strftime_format", column="day", strftime_format="%Y-%m-%d")
    for kind in ("str", "int64", "Int64", "float32"):
        for column in ("id", "number", "real", "word"):
            yield rule("column_values_to_be_of_type", column=column, type_=kind)
        yield rule("column_values_to_be_in_type_list", column="id", type_list=[kind, "bool"])
    pair = {"column_A": "number", "column_B": "other"}
    for ignored in ("both_values_are_missing", "either_value_is_missing", "neither"):
        yield rule("column_pair_values_to_be_equal", **pair, ignore_row_if=ignored, mostly=0.1)
    either = {**pair, "ignore_row_if": "either_value_is_missing"}
    yield rule("column_pair_values_a_to_be_greater_than_b", **either, or_equal=True)
    yield rule("column_pair_values_to_be_in_set", **either, value_pairs_set=[[0, 0], [1, 1]])
    for ignored in ("all_values_are_missing", "any_value_is_missing", "never"):
        both = {"column_list": ["number", "other"], "ignore_row_if": ignored}
        yield rule("select_column_values_to_be_unique_within_record", **both)
        yield rule("multicolumn_sum_to_equal", **both, sum_total=0, mostly=0.01)
        yield rule("multicolumn_values_to_be_equal", **both)
    condition = {"row_condition": "other > 0 and number < 3", "condition_parser": "pandas"}
    yield rule("column_values_to_be_between", column="id", max_value=100, mostly=0.5, **condition)
    condition = {"row_condition": 'col("other") > 0', "condition_parser": "great_expectations"}
    yield rule("column_values_to_not_be_null", column="word", mostly=0.8, **condition)


def table_rules() -> Iterator[ExpectationSpec]:
    names = [feature.name for feature in MIXED.features]
    yield from on_columns("column_to_exist", ["id", "nothing"])
    yield rule("column_type_to_be", column="id", type_="int64")
    for count in (9, 10):
        yield rule("table_column_count_to_equal", value=count)
        yield rule("table_column_count_to_be_between", min_value=count)
    yield rule("table_columns_to_match_ordered_list", column_list=names)
    yield rule("table_columns_to_match_ordered_list", column_list=names[::-1])
    yield rule("table_columns_to_match_set", column_set=names[::-1])
    for count in (500, 501):
        yield rule("table_row_count_to_equal", value=count)
        yield rule("table_row_count_to_be_between", min_value=count)


def whole_rules() -> Iterator[ExpectationSpec]:
    for kind in ("min", "max", "sum"):
        yield rule(f"column_{kind}_to_be_between", column="number", min_value=0)
    # Of numbers near the ends of int64, Great Expectations rounds the mean.
    numbers = ["id", "other", "real", "wide", "empty"]
    for kind in ("min", "max", "mean", "median", "stdev", "sum"):
        yield from on_columns(f"column_{kind}_to_be_between", numbers, min_value=0)
        yield from on_columns(f"column_{kind}_to_be_between", numbers, max_value=0)
    yield rule("column_min_to_be_between", column="id", min_value=0, strict_min=True)
    yield rule("column_min_to_be_between", column="day", min_value="2024-01-01")
    yield rule("column_mean_to_be_between", column="word", min_value=0)
    shares = "column_proportion_of_{}_values_to_be_between"
    for column in ("id", "number", "real", "word", "empty"):
        yield rule(shares.format("non_null"), column=column, min_value=0.86)
        yield rule(shares.format("unique"), column=column, min_value=0.9)
        yield rule("column_unique_value_count_to_be_between", column=column, max_value=14)
        yield rule("column_values_to_be_unique", column=column)
        yield rule("column_values_to_be_unique", column=column, mostly=0.9)
    for how in (False, "linear", "lower", "higher", "midpoint"):
        quantiles = {"quantiles": [0, 0.1, 1 / 3, 0.5, 1], "value_ranges": [[None, 3]] * 5}
        yield from on_columns(
            "column_quantile_values_to_be_between",
            ["id", "other", "real"],
            quantile_ranges=quantiles,
            allow_relative_error=how,
        )
    for ignored in ("all_values_are_missing", "any_value_is_missing", "never"):
        given = {"column_list": ["number", "word"], "ignore_row_if": ignored}
        yield rule("compound_columns_to_be_unique", **given)
        yield rule("compound_columns_to_be_unique", **given, mostly=0.02)
    yield rule("compound_columns_to_be_unique", column_list=["id", "real", "json"])


def set_rules() -> Iterator[ExpectationSpec]:
    for words in (["ada"], [*WORDS], [*WORDS, "eve"]):
        for kind in ("be_in_set", "contain_set", "equal_set"):
            yield rule(f"column_distinct_values_to_{kind}", column="word", value_set=words)
    for kind in ("be_in_set", "contain_set", "equal_set"):
        yield rule(f"column_distinct_values_to_{kind}", column="other", value_set=[*range(-5, 6)])
    sets: list[list[Any]] = [[*WORDS], ["eve"], [0, 0.0, 1], [*range(-5, 6)]]
    for values in sets:
        for column in ("word", "other", "real", "id"):
            for ties in (True, False):
                given = {"column": column, "value_set": values, "ties_okay": ties}
                yield rule("column_most_common_value_to_be_in_set", **given)
    kind = "column_kl_divergence_to_be_less_than"
    for known in ([*WORDS], ["ada", "ben"]):
        shares = {"values": known, "weights": [1 / len(known)] * len(known)}
        yield rule(kind, column="word", partition_object=shares, threshold=0.1)
    bins = {"bins": [-1, 100, 200, 600], "weights": [0.4, 0.3, 0.3]}
    yield rule(kind, column="id", partition_object=bins, threshold=0.5)
    tails = {"bins": [50, 100, 200], "weights": [0.3, 0.3], "tail_weights": [0.2, 0.2]}
    yield rule(kind, column="id", partition_object=tails, threshold=0.01)


RULES = [*row_rules(), *table_rules(), *whole_rules(), *set_rules()]
SUPPORTED = sorted(kind for kind, how in EVALUATIONS.items() if how is not Evaluation.REFUSED)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    root = tmp_path_factory.mktemp("root")
    batches = [random_rows(count, count) for count in (1, 270, 229)]
    return snapshot_of(root, *batches, schema=MIXED)


def shown(result: Any) -> dict[str, Any]:  # noqa: ANN401 - of Great Expectations
    told = result.result or {}
    kept = {name: told[name] for name in COUNTS if told.get(name) is not None}
    observed: Any = told.get("observed_value")
    observed = observed.item() if hasattr(observed, "item") else observed
    if isinstance(observed, int | float) and not isinstance(observed, bool):
        kept["observed"] = float(observed)
    return kept


def is_close(ours: Any, plain: Any) -> bool:  # noqa: ANN401 - whatever is told
    if ours.keys() != plain.keys():
        return False
    return all(
        value == pytest.approx(plain[name], rel=1e-5, nan_ok=True) for name, value in ours.items()
    )


@pytest.mark.sweep
def test_rules_in_chunks_equal_rules_on_all_rows(snapshot: Snapshot, tmp_path: Path) -> None:
    kinds = sampled(SUPPORTED, 5, "rules")
    rules = [one for one in RULES if one.type in kinds]
    with open_engine(tmp_path / "suite.json", rules) as engine:
        plain = engine.run(take_sample(snapshot).frame, range(len(rules)))
        results, extent = Evaluator(engine, rules, snapshot, snapshot.shards, 190).run()
    assert (extent.rows, extent.added) == (500, 500)
    different = [
        (one.type, dict(one.kwargs), ours.success, shown(ours), shown(plain[place]))
        for place, (one, ours) in enumerate(zip(rules, results, strict=True))
        if bool(ours.success) != bool(plain[place].success)
        or not is_close(shown(ours), shown(plain[place]))
    ]
    assert different == []


def test_rules_of_all_supported_types_are_compared() -> None:
    assert sorted({one.type for one in RULES}) == SUPPORTED


def suite_with(tmp_path: Path, expected: ExpectationSpec) -> Path:
    path = tmp_path / "suite.json"
    first = rule("column_to_exist", column="id")
    path.write_text(json.dumps({"expectations": [first.to_dict(), expected.to_dict()]}))
    return path


@pytest.mark.parametrize("kind", sorted(set(EVALUATIONS) - set(SUPPORTED)))
def test_load_refuses_rule_without_bound(tmp_path: Path, kind: str) -> None:
    path = suite_with(tmp_path, ExpectationSpec(kind, {"column": "id"}))
    with raises(SuiteError, "unsupported-expectation", path=str(path), rule=kind) as caught:
        read_suite(path)
    assert caught.value.expectation == 2
    assert caught.value.alternatives
    assert set(caught.value.alternatives) <= set(SUPPORTED)
    assert all(name in str(caught.value.hint) for name in caught.value.alternatives)


ON_ROWS = "column_values_to_not_be_null"
WITHIN: dict[str, Any] = {"values": ["a"], "weights": [1.0]}
NOT_LOCAL: dict[str, ExpectationSpec] = {
    "mean": rule(ON_ROWS, column="id", row_condition="id > id.mean()", condition_parser="pandas"),
    "index": rule(ON_ROWS, column="id", row_condition="index > 3", condition_parser="pandas"),
    "variable": rule(ON_ROWS, column="id", row_condition="id > @x", condition_parser="pandas"),
    "filter": rule(
        ON_ROWS,
        column="id",
        row_condition={"type": "pass_through", "pass_through_filter": "id.max() > 3"},
    ),
    "nested": rule(
        ON_ROWS,
        column="id",
        row_condition={"type": "and", "conditions": [{"type": "pass_through"}]},
    ),
    "aggregate": rule("column_mean_to_be_between", column="id", row_condition="id > 3"),
    "unique": rule("column_values_to_be_unique", column="id", row_condition="id > 3"),
    "no partition": rule("column_kl_divergence_to_be_less_than", column="id", threshold=1),
    "holdout": rule(
        "column_kl_divergence_to_be_less_than",
        column="id",
        partition_object=WITHIN,
        tail_weight_holdout=0.1,
    ),
    "interpolation": rule(
        "column_quantile_values_to_be_between", column="id", allow_relative_error="guess"
    ),
}


@pytest.mark.parametrize("case", NOT_LOCAL)
def test_load_refuses_arguments_without_bound(tmp_path: Path, case: str) -> None:
    path = suite_with(tmp_path, NOT_LOCAL[case])
    with raises(SuiteError, "unsupported-expectation", path=str(path), expectation=2):
        read_suite(path)


LOCAL = ["id > 3 and `real` <= 0.5", "word in ['a', 'b'] or not (id == 1)", "-id + 2 * id != 3"]


@pytest.mark.parametrize("condition", LOCAL)
def test_load_accepts_condition_on_own_row(tmp_path: Path, condition: str) -> None:
    given = {"row_condition": condition, "condition_parser": "pandas"}
    assert len(read_suite(suite_with(tmp_path, rule(ON_ROWS, column="id", **given))).expectations)
