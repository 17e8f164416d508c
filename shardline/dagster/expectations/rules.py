"""How each type of rule is evaluated.

| evaluation | reads                           | how                                               |
|------------|---------------------------------|---------------------------------------------------|
| ROWS       | every added row                 | Great Expectations on chunks; counts are added up |
| COLUMNS    | names and types of columns      | Great Expectations on a frame without rows        |
| TOTAL      | the log                         | number of records of the snapshot                 |
| NUMBERS    | every row of the snapshot       | minimum, maximum, sum, mean, deviation, presence  |
| ORDER      | every row of the snapshot       | exact ranks of numbers that are spooled to disk   |
| COUNTS     | every row of the snapshot       | count of each value, spooled to disk              |
| VALUES     | every row of the snapshot       | which of the given values occur                   |
| SHARES     | every row of the snapshot       | count of each part of a given partition           |
| REFUSED    | nothing                         | impossible in bounded memory, or not on rows      |

A refused rule fails when its suite is loaded. So does a row condition that depends on other rows.
"""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Evaluation(Enum):
    """How a rule is evaluated."""

    ROWS = auto()
    COLUMNS = auto()
    TOTAL = auto()
    NUMBERS = auto()
    ORDER = auto()
    COUNTS = auto()
    VALUES = auto()
    SHARES = auto()
    REFUSED = auto()


_BETWEEN = "expect_column_values_to_be_between"
_IN_SET = "expect_column_values_to_be_in_set"
_QUANTILES = "expect_column_quantile_values_to_be_between"
_TOTAL = "expect_table_row_count_to_be_between"
_WITHIN = "expect_select_column_values_to_be_unique_within_record"
_KL = "expect_column_kl_divergence_to_be_less_than"

_TYPES: dict[Evaluation, tuple[str, ...]] = {
    Evaluation.ROWS: (
        _BETWEEN,
        _IN_SET,
        _WITHIN,
        "expect_column_pair_values_a_to_be_greater_than_b",
        "expect_column_pair_values_to_be_equal",
        "expect_column_pair_values_to_be_in_set",
        "expect_column_value_lengths_to_be_between",
        "expect_column_value_lengths_to_equal",
        "expect_column_values_to_be_dateutil_parseable",
        "expect_column_values_to_be_in_type_list",
        "expect_column_values_to_be_json_parseable",
        "expect_column_values_to_be_null",
        "expect_column_values_to_be_of_type",
        "expect_column_values_to_match_json_schema",
        "expect_column_values_to_match_regex",
        "expect_column_values_to_match_regex_list",
        "expect_column_values_to_match_strftime_format",
        "expect_column_values_to_not_be_in_set",
        "expect_column_values_to_not_be_null",
        "expect_column_values_to_not_match_regex",
        "expect_column_values_to_not_match_regex_list",
        "expect_multicolumn_sum_to_equal",
        "expect_multicolumn_values_to_be_equal",
    ),
    Evaluation.COLUMNS: (
        "expect_column_to_exist",
        "expect_column_type_to_be",
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
    ),
    Evaluation.TOTAL: (_TOTAL, "expect_table_row_count_to_equal"),
    Evaluation.NUMBERS: (
        "expect_column_max_to_be_between",
        "expect_column_mean_to_be_between",
        "expect_column_min_to_be_between",
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_stdev_to_be_between",
        "expect_column_sum_to_be_between",
    ),
    Evaluation.ORDER: ("expect_column_median_to_be_between", _QUANTILES),
    Evaluation.COUNTS: (
        "expect_column_most_common_value_to_be_in_set",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_column_values_to_be_unique",
        "expect_compound_columns_to_be_unique",
    ),
    Evaluation.VALUES: (
        "expect_column_distinct_values_to_be_in_set",
        "expect_column_distinct_values_to_contain_set",
        "expect_column_distinct_values_to_equal_set",
    ),
    Evaluation.SHARES: (_KL,),
}

_ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "expect_column_bootstrapped_ks_test_p_value_to_be_greater_than": (_QUANTILES, _KL),
    "expect_column_chisquare_test_p_value_to_be_greater_than": (_KL,),
    "expect_column_pair_cramers_phi_value_to_be_less_than": (
        "expect_column_pair_values_to_be_in_set",
    ),
    "expect_column_parameterized_distribution_ks_test_p_value_to_be_greater_than": (
        _QUANTILES,
        _KL,
    ),
    "expect_column_value_z_scores_to_be_less_than": (_BETWEEN,),
    "expect_column_values_to_be_decreasing": (_BETWEEN,),
    "expect_column_values_to_be_increasing": (_BETWEEN,),
    "expect_column_values_to_match_like_pattern": ("expect_column_values_to_match_regex",),
    "expect_column_values_to_match_like_pattern_list": (
        "expect_column_values_to_match_regex_list",
    ),
    "expect_column_values_to_not_be_outliers": (_BETWEEN, _QUANTILES),
    "expect_column_values_to_not_match_like_pattern": ("expect_column_values_to_not_match_regex",),
    "expect_column_values_to_not_match_like_pattern_list": (
        "expect_column_values_to_not_match_regex_list",
    ),
    "expect_multicolumn_values_to_be_unique": (_WITHIN,),
    "expect_query_results_to_match_comparison": (_TOTAL,),
    "expect_table_row_count_to_equal_other_table": (_TOTAL,),
    "unexpected_rows_expectation": (_BETWEEN, _IN_SET),
}
"""Refused rules, and the rules to use instead."""

EVALUATIONS: dict[str, Evaluation] = {
    **{kind: evaluation for evaluation, kinds in _TYPES.items() for kind in kinds},
    **dict.fromkeys(_ALTERNATIVES, Evaluation.REFUSED),
}
"""Every type of expectation, and how it is evaluated."""

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")
_LOCAL_CONDITIONS = ("comparison", "nullity", "and", "or", "pass_through")
_OWN_PARSERS = ("great_expectations", "great_expectations__experimental__")
_LOCAL_NODES = (
    ast.Expression,
    ast.BoolOp,
    ast.boolop,
    ast.UnaryOp,
    ast.unaryop,
    ast.BinOp,
    ast.operator,
    ast.Compare,
    ast.cmpop,
    ast.Name,
    ast.expr_context,
    ast.Constant,
    ast.List,
    ast.Tuple,
)
_QUOTED = re.compile(r"`[^`]*`")
_COLUMN_CALL = re.compile(r"col\(\s*(?:\"[^\"]*\"|'[^']*')\s*\)(?:\.(?:notNull|isNull)\(\s*\))?")
_FRAME_NAMES = re.compile(r"index|columns|ilevel_.*")


@dataclass(frozen=True, slots=True)
class UnsupportedRule:
    """Why a rule cannot be evaluated, and the types of rules to use instead."""

    reason: str
    alternatives: tuple[str, ...] = ()


def find_unsupported_rule(kind: str, kwargs: Mapping[str, Any]) -> UnsupportedRule | None:
    """Return why a rule of a known type is refused, None if it can be evaluated."""
    evaluation = EVALUATIONS[kind]
    if evaluation is Evaluation.REFUSED:
        reason = "cannot be evaluated on every row in bounded memory"
        return UnsupportedRule(reason, _ALTERNATIVES[kind])
    condition = kwargs.get("row_condition")
    if condition is not None:
        if evaluation is not Evaluation.ROWS:
            return UnsupportedRule("cannot have a row_condition", (_BETWEEN, _IN_SET))
        if not _is_local(condition, kwargs.get("condition_parser")):
            return UnsupportedRule("row_condition depends on more than its own row")
    if kind == _KL:
        return _find_unsupported_partition(kwargs)
    if kind == _QUANTILES:
        how = kwargs.get("allow_relative_error") or "nearest"
        if how not in _INTERPOLATIONS:
            return UnsupportedRule("allow_relative_error must name an interpolation of pandas")
    return None


def get_condition_text(kwargs: Mapping[str, Any]) -> str:
    """Return the row condition as text, which names the columns that it needs."""
    condition = kwargs.get("row_condition")
    return "" if condition is None else json.dumps(condition, default=str, ensure_ascii=False)


def _find_unsupported_partition(kwargs: Mapping[str, Any]) -> UnsupportedRule | None:
    partition = kwargs.get("partition_object")
    if not isinstance(partition, Mapping) or not ("values" in partition or "bins" in partition):
        return UnsupportedRule(
            "needs a partition_object with values or bins", (_QUANTILES, _IN_SET)
        )
    if "values" in partition and kwargs.get("tail_weight_holdout"):
        reason = "tail_weight_holdout on values needs every distinct value in memory"
        return UnsupportedRule(reason, (_IN_SET,))
    return None


def _is_local(condition: object, parser: object) -> bool:
    """Return True if a condition depends on a single row."""
    if isinstance(condition, Mapping):
        if condition.get("type") not in _LOCAL_CONDITIONS:
            return False
        if condition["type"] == "pass_through":
            return _is_local(condition.get("pass_through_filter"), "pandas")
        parts = condition.get("conditions", [])
        return isinstance(parts, list) and all(_is_local(part, parser) for part in parts)
    if not isinstance(condition, str):
        return False
    text = condition
    if parser in _OWN_PARSERS:
        text = _COLUMN_CALL.sub("x", text)
    try:
        tree = ast.parse(_QUOTED.sub("x", text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(
        isinstance(node, _LOCAL_NODES)
        and not (isinstance(node, ast.Name) and _FRAME_NAMES.fullmatch(node.id))
        for node in ast.walk(tree)
    )
