"""The check of expectations: a suite of Great Expectations on the rows of a snapshot.

A failed expectation of severity `critical` fails the check, one of `warning` makes it a warning,
one of `info` is only told. What Great Expectations tells of a failure can hold values of the data,
which may be private: only numbers of rows and numbers that sum up a column are passed on.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from shardline.api import Snapshot
from shardline.dagster.checks.check_outcome import Verdict
from shardline.dagster.expectations.data_docs import write_page
from shardline.dagster.expectations.engine import PLACE, engine_of, raised_class, suite_result
from shardline.dagster.expectations.evaluation import Evaluator
from shardline.dagster.expectations.rules import Evaluation, evaluation_of
from shardline.dagster.expectations.sample import CHUNK_ROWS, columns_of
from shardline.dagster.expectations.suite import SEVERITIES, Expected, Suite, read_suite
from shardline.log.model import Shard

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )

_SHOWN = 500
_NAMED = 3
_COUNTS = (
    "element_count",
    "unexpected_count",
    "unexpected_percent",
    "unexpected_percent_total",
    "unexpected_percent_nonmissing",
    "missing_count",
    "missing_percent",
)
_OBSERVES_A_TYPE = (
    "expect_column_values_to_be_of_type",
    "expect_column_values_to_be_in_type_list",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one expectation. `unexpected` is a share of the rows that have a value."""

    expected: Expected
    passed: bool
    observed: str = ""
    unexpected: float | None = None
    wrong: str = ""


def judge(
    snapshot: Snapshot,
    suite: Path,
    *,
    docs: Path | None,
    added: Collection[Shard] | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> Verdict:
    """Validate a snapshot against the suite in a file.

    Rules on rows see every row of the shards that were `added`, all shards if None. Other rules
    see the whole snapshot. With `docs`, a page is written below that folder and linked. Raises
    SuiteError if the suite is missing or invalid, and what the readers raise if a shard is damaged
    or missing.
    """
    told = read_suite(suite, snapshot.version)
    shards = snapshot.shards if added is None else added
    page: dict[str, Any] = {}
    with engine_of(suite, told.expectations) as engine:
        evaluator = Evaluator(engine, told.expectations, snapshot, shards, chunk_rows)
        results, extent = evaluator.run()
        result = suite_result(told.name, results)
        outcomes = _outcomes(told, result, {column.name for column in columns_of(snapshot.schema)})
        if docs is not None:
            page = _page(result, snapshot, str(extent), docs)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    critical = [outcome for outcome in failed if outcome.expected.severity == "critical"]
    counting = [outcome for outcome in failed if outcome.expected.severity != "info"]
    metadata: dict[str, Any] = {
        "expectations": len(outcomes),
        "expectations_failed": len(failed),
        "rows": extent.rows,
        "rows_checked": extent.added,
        "rows_per_second": round(extent.rate),
        "checked": str(extent),
        "suite_digest": told.digest,
        "results": _table(outcomes),
        **page,
    }
    return Verdict(
        not counting,
        _described(outcomes, failed, str(extent)),
        metadata,
        warns=bool(counting) and not critical,
    )


def rows_fail(snapshot: Snapshot, suite: Path, shards: Collection[Shard]) -> bool:
    """Return True if the rows of some shards fail a critical rule on rows of the suite."""
    rules = [
        one
        for one in read_suite(suite, snapshot.version).expectations
        if one.severity == "critical" and evaluation_of(one.type) is Evaluation.ROWS
    ]
    with engine_of(suite, rules) as engine:
        results, _ = Evaluator(engine, rules, snapshot, shards).run()
    return not all(result.success for result in results)


def _page(
    result: "ExpectationSuiteValidationResult", snapshot: Snapshot, said: str, docs: Path
) -> dict[str, Any]:
    """The page for people. The data is no worse where it cannot be written."""
    try:
        page = write_page(result, snapshot, said, docs)
    except Exception as error:  # noqa: BLE001 - whatever drawing a page may raise
        why = getattr(error, "strerror", None) or type(error).__name__
        return {"data_docs": f"no page could be written below {docs}: {why}"}
    return {"data_docs": dg.MetadataValue.path(str(page.resolve()))}


def _outcomes(
    suite: Suite, result: "ExpectationSuiteValidationResult", columns: set[str]
) -> list[Outcome]:
    """Return what became of each expectation, in the order of the suite.

    The result is left with what may be told: a page is drawn from it.
    """
    for one in result.results:
        if one.expectation_config is not None and one.expectation_config.meta is not None:
            one.expectation_config.meta.pop(PLACE, None)
    return [
        _outcome(expected, one, columns)
        for expected, one in zip(suite.expectations, result.results, strict=True)
    ]


def _outcome(
    expected: Expected, result: "ExpectationValidationResult", columns: set[str]
) -> Outcome:
    passed, raised = bool(result.success), raised_class(result.exception_info)
    told = _harmless(expected, result.result or {})
    wrong = "" if passed else _wrong(expected, told, raised, columns)
    result.result = told
    result.exception_info = {
        "raised_exception": bool(raised),
        "exception_message": wrong if raised else None,
        "exception_traceback": wrong if raised else None,
    }
    share = told.get("unexpected_percent")
    observed = told.get("observed_value")
    return Outcome(
        expected,
        passed,
        "" if observed is None else _shown(observed),
        None if share is None else float(share) / 100,
        wrong,
    )


def _harmless(expected: Expected, told: Mapping[str, Any]) -> dict[str, Any]:
    """Of a result the numbers alone: lists, texts and messages may hold values of the data."""
    kept = {name: told[name] for name in _COUNTS if told.get(name) is not None}
    if "unexpected_percent" not in kept:
        kept.pop("unexpected_count", None)
    observed: Any = told.get("observed_value")
    if hasattr(observed, "item"):
        observed = observed.item()
    if isinstance(observed, bool | int | float) or (
        isinstance(observed, str) and expected.type in _OBSERVES_A_TYPE
    ):
        kept["observed_value"] = observed
    return kept


def _wrong(expected: Expected, told: Mapping[str, Any], raised: str, columns: set[str]) -> str:
    absent = [name for name in expected.columns if name not in columns]
    if absent:
        return f"there is no column {absent[0]!r}"
    if raised:
        return f"it could not be told: {raised}"
    bad, of = told.get("unexpected_count"), told.get("element_count")
    if bad is not None and of is not None:
        missing = int(told.get("missing_count", 0))
        beside = f", {missing:,} are missing" if missing and bad != missing else ""
        return f"{int(bad):,} of {int(of):,} values are not as expected{beside}"
    if "observed_value" not in told:
        return "it does not hold"
    low, high = (expected.kwargs.get(name) for name in ("min_value", "max_value"))
    bounds = [f"at least {low}" * (low is not None), f"at most {high}" * (high is not None)]
    wanted = " and ".join(filter(None, bounds))
    return f"it is {_shown(told['observed_value'])}{f', not {wanted}' if wanted else ''}"


def _shown(observed: bool | float | str) -> str:  # noqa: FBT001 - a value
    if isinstance(observed, float) and not observed.is_integer():
        return f"{observed:.6g}"
    return f"{int(observed):,}" if isinstance(observed, int | float) else observed


def _described(outcomes: Sequence[Outcome], failed: Sequence[Outcome], said: str) -> str:
    if not failed:
        return f"all {len(outcomes)} expectations hold on {said}"
    ordered = sorted(failed, key=lambda outcome: SEVERITIES.index(outcome.expected.severity))
    named = "; ".join(
        f"{one.expected.severity}: {one.expected.type}"
        f"{f' of {_listed(one.expected)}' if one.expected.columns else ''}: {one.wrong}"
        for one in ordered[:_NAMED]
    )
    more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return f"{len(failed)} of {len(outcomes)} expectations failed on {said}. {named}{more}"


def _listed(expected: Expected) -> str:
    return ", ".join(expected.columns)


def _table(outcomes: Sequence[Outcome]) -> dg.TableMetadataValue:
    """Those that failed first, the worst before the others."""
    ordered = sorted(
        outcomes,
        key=lambda one: (one.passed, not one.passed and SEVERITIES.index(one.expected.severity)),
    )
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "expectation": one.expected.type,
                    "column": _listed(one.expected),
                    "severity": one.expected.severity,
                    "passed": one.passed,
                    "observed": one.observed,
                    "unexpected": "" if one.unexpected is None else f"{one.unexpected:.2%}",
                    "what went wrong": one.wrong,
                }
            )
            for one in ordered[:_SHOWN]
        ],
        dg.TableSchema(
            [
                dg.TableColumn("expectation"),
                dg.TableColumn("column"),
                dg.TableColumn("severity"),
                dg.TableColumn("passed", "bool"),
                dg.TableColumn("observed"),
                dg.TableColumn("unexpected", description="the share of the values"),
                dg.TableColumn("what went wrong"),
            ]
        ),
    )
