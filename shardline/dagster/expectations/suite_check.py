"""The check `expectations`: a Great Expectations suite on the rows of a snapshot.

A failed expectation of severity `critical` fails the check, and `warning` makes it warn. `info` is
only reported. Results of Great Expectations can contain values of the data, which may be private,
so only row counts and column statistics are passed on.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from shardline.api import Snapshot
from shardline.dagster import metadata_keys as keys
from shardline.dagster.checks.check_outcome import CheckOutcome
from shardline.dagster.expectations.columns import CHUNK_ROWS, get_flat_columns
from shardline.dagster.expectations.data_docs import write_page
from shardline.dagster.expectations.engine import (
    INDEX,
    build_suite_result,
    get_raised_class,
    open_engine,
)
from shardline.dagster.expectations.evaluation import Evaluator
from shardline.dagster.expectations.rules import EVALUATIONS, Evaluation
from shardline.dagster.expectations.suite import SEVERITIES, ExpectationSpec, Suite, read_suite
from shardline.log.model import Shard
from shardline.text import format_count

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )

_MAX_ROWS = 500
_MAX_NAMES = 3
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
class ExpectationOutcome:
    """The outcome of an expectation. `unexpected` is a share of the rows that have a value."""

    expected: ExpectationSpec
    passed: bool
    observed: str = ""
    unexpected: float | None = None
    problem: str = ""


def check_expectations(
    snapshot: Snapshot,
    suite: Path,
    *,
    docs: Path | None,
    added: Collection[Shard] | None = None,
    chunk_rows: int = CHUNK_ROWS,
) -> CheckOutcome:
    """Validate a snapshot against the suite in a file.

    Rules on rows read every row of the `added` shards, by default of all shards. Other rules read
    the whole snapshot. With `docs`, a page is written below that folder and linked. Raises
    SuiteError if the suite is missing or invalid, and the errors of readers for a corrupt or
    missing shard.
    """
    parsed = read_suite(suite, snapshot.version)
    shards = snapshot.shards if added is None else added
    page: dict[str, Any] = {}
    with open_engine(suite, parsed.expectations) as engine:
        evaluator = Evaluator(engine, parsed.expectations, snapshot, shards, chunk_rows)
        results, extent = evaluator.run()
        result = build_suite_result(parsed.name, results)
        outcomes = _list_outcomes(
            parsed, result, {column.name for column in get_flat_columns(snapshot.schema)}
        )
        if docs is not None:
            page = _write_page(result, snapshot, str(extent), docs)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    critical = [outcome for outcome in failed if outcome.expected.severity == "critical"]
    counting = [outcome for outcome in failed if outcome.expected.severity != "info"]
    metadata: dict[str, Any] = {
        keys.EXPECTATIONS: len(outcomes),
        keys.FAILED_EXPECTATIONS: len(failed),
        keys.ROWS: extent.rows,
        keys.CHECKED_ROWS: extent.added,
        keys.ROWS_PER_SECOND: round(extent.rate),
        keys.CHECKED: str(extent),
        keys.SUITE_DIGEST: parsed.digest,
        keys.EXPECTATION_RESULTS: _build_table(outcomes),
        **page,
    }
    return CheckOutcome(
        not counting,
        _format_description(outcomes, failed, str(extent)),
        metadata,
        warns=bool(counting) and not critical,
    )


def has_failing_rows(snapshot: Snapshot, suite: Path, shards: Collection[Shard]) -> bool:
    """Return True if rows of some shards fail a critical rule on rows."""
    rules = [
        expected
        for expected in read_suite(suite, snapshot.version).expectations
        if expected.severity == "critical" and EVALUATIONS[expected.type] is Evaluation.ROWS
    ]
    with open_engine(suite, rules) as engine:
        results, _ = Evaluator(engine, rules, snapshot, shards).run()
    return not all(result.success for result in results)


def _write_page(
    result: "ExpectationSuiteValidationResult", snapshot: Snapshot, extent: str, docs: Path
) -> dict[str, Any]:
    """Write the page. A failure is noted in the metadata and does not fail the check."""
    try:
        page = write_page(result, snapshot, extent, docs)
    except Exception as error:  # noqa: BLE001 - whatever drawing a page may raise
        reason = getattr(error, "strerror", None) or type(error).__name__
        return {keys.DATA_DOCS: f"page not written below {docs}: {reason}"}
    return {keys.DATA_DOCS: dg.MetadataValue.path(str(page.resolve()))}


def _list_outcomes(
    suite: Suite, result: "ExpectationSuiteValidationResult", columns: set[str]
) -> list[ExpectationOutcome]:
    """Return the outcome of each expectation, in the order of the suite.

    The result is redacted in place, because the page is drawn from it.
    """
    for expectation_result in result.results:
        if (
            expectation_result.expectation_config is not None
            and expectation_result.expectation_config.meta is not None
        ):
            expectation_result.expectation_config.meta.pop(INDEX, None)
    return [
        _create_outcome(expected, expectation_result, columns)
        for expected, expectation_result in zip(suite.expectations, result.results, strict=True)
    ]


def _create_outcome(
    expected: ExpectationSpec, result: "ExpectationValidationResult", columns: set[str]
) -> ExpectationOutcome:
    passed, raised = bool(result.success), get_raised_class(result.exception_info)
    redacted = _redact_result(expected, result.result or {})
    problem = "" if passed else _format_failure(expected, redacted, raised, columns)
    result.result = redacted
    result.exception_info = {
        "raised_exception": bool(raised),
        "exception_message": problem if raised else None,
        "exception_traceback": problem if raised else None,
    }
    share = redacted.get("unexpected_percent")
    observed = redacted.get("observed_value")
    return ExpectationOutcome(
        expected,
        passed,
        "" if observed is None else _format_observed(observed),
        None if share is None else float(share) / 100,
        problem,
    )


def _redact_result(expected: ExpectationSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the numbers of a result: lists, texts and messages may contain values."""
    redacted = {name: values[name] for name in _COUNTS if values.get(name) is not None}
    if "unexpected_percent" not in redacted:
        redacted.pop("unexpected_count", None)
    observed: Any = values.get("observed_value")
    if hasattr(observed, "item"):
        observed = observed.item()
    if isinstance(observed, bool | int | float) or (
        isinstance(observed, str) and expected.type in _OBSERVES_A_TYPE
    ):
        redacted["observed_value"] = observed
    return redacted


def _format_failure(
    expected: ExpectationSpec, values: Mapping[str, Any], raised: str, columns: set[str]
) -> str:
    absent = [name for name in expected.columns if name not in columns]
    if absent:
        return f"unknown column {absent[0]!r}"
    if raised:
        return f"not evaluated: {raised}"
    unexpected, total = values.get("unexpected_count"), values.get("element_count")
    if unexpected is not None and total is not None:
        missing = int(values.get("missing_count", 0))
        suffix = f", {missing:,} missing" if missing and unexpected != missing else ""
        return f"{int(unexpected):,} of {int(total):,} values are unexpected{suffix}"
    if "observed_value" not in values:
        return "failed"
    low, high = (expected.kwargs.get(name) for name in ("min_value", "max_value"))
    parts = [f"at least {low}" * (low is not None), f"at most {high}" * (high is not None)]
    bounds = " and ".join(filter(None, parts))
    observed = _format_observed(values["observed_value"])
    return f"got {observed}, expected {bounds}" if bounds else f"got {observed}"


def _format_observed(observed: bool | float | str) -> str:  # noqa: FBT001 - a value
    if isinstance(observed, float) and not observed.is_integer():
        return f"{observed:.6g}"
    return f"{int(observed):,}" if isinstance(observed, int | float) else observed


def _format_description(
    outcomes: Sequence[ExpectationOutcome], failed: Sequence[ExpectationOutcome], extent: str
) -> str:
    if not failed:
        return f"{format_count(len(outcomes), 'expectation')} passed on {extent}"
    ordered = sorted(failed, key=lambda outcome: SEVERITIES.index(outcome.expected.severity))
    named = "; ".join(
        f"{outcome.expected.severity}: {_format_rule(outcome.expected)}: {outcome.problem}"
        for outcome in ordered[:_MAX_NAMES]
    )
    more = f"; and {len(failed) - _MAX_NAMES} more" if len(failed) > _MAX_NAMES else ""
    return f"{len(failed)} of {len(outcomes)} expectations failed on {extent}. {named}{more}"


def _format_rule(expected: ExpectationSpec) -> str:
    columns = ", ".join(expected.columns)
    return f"{expected.type} of {columns}" if columns else expected.type


def _build_table(outcomes: Sequence[ExpectationOutcome]) -> dg.TableMetadataValue:
    """Return a table with failed expectations first, by severity."""
    ordered = sorted(
        outcomes,
        key=lambda outcome: (
            outcome.passed,
            not outcome.passed and SEVERITIES.index(outcome.expected.severity),
        ),
    )
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "expectation": outcome.expected.type,
                    "column": ", ".join(outcome.expected.columns),
                    "severity": outcome.expected.severity,
                    "passed": outcome.passed,
                    "observed": outcome.observed,
                    "unexpected": "" if outcome.unexpected is None else f"{outcome.unexpected:.2%}",
                    "problem": outcome.problem,
                }
            )
            for outcome in ordered[:_MAX_ROWS]
        ],
        dg.TableSchema(
            [
                dg.TableColumn("expectation"),
                dg.TableColumn("column"),
                dg.TableColumn("severity"),
                dg.TableColumn("passed", "bool"),
                dg.TableColumn("observed"),
                dg.TableColumn("unexpected", description="share of the values"),
                dg.TableColumn("problem"),
            ]
        ),
    )
