"""The check of expectations: a suite of Great Expectations on the rows of a snapshot.

A failed expectation of severity `critical` fails the check, one of `warning` makes it a warning,
one of `info` is only told. What Great Expectations tells of a failure can hold values of the data,
which may be private: only numbers of rows and numbers that sum up a column are passed on.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import dagster as dg

from checks.data_docs import write_page
from checks.sample import LIMIT, Sample, sample
from checks.suite import SEVERITIES, Expected, Suite, SuiteError, read_suite
from checks.verdict import Verdict
from shardline.hints import Hint
from shardline.log.snapshot import Snapshot

if TYPE_CHECKING:
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.expectations.expectation import Expectation

_SHOWN = 500
_NAMED = 3
_PLACE = "shardline_place"
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
_ONE_AT_A_TIME = Lock()
"""Great Expectations keeps its context in a global, and runs of one process may share it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one expectation. `unexpected` is a share of the rows that have a value."""

    expected: Expected
    passed: bool
    observed: str = ""
    unexpected: float | None = None
    wrong: str = ""


def judge(
    snapshot: Snapshot, suite: Path, *, docs: Path | None, limit: int = LIMIT, seed: int = 0
) -> Verdict:
    """Validate the rows of a snapshot, or a sample of them, against the suite in a file.

    With `docs`, a page is written below that folder and linked. Raises SuiteError if the suite is
    not there or is none, and what the readers raise if a shard is damaged or missing.
    """
    told = read_suite(suite, snapshot.version)
    taken = sample(snapshot, limit=limit, seed=seed)
    page: dict[str, Any] = {}
    with _ONE_AT_A_TIME:
        result = _validated(suite, told, taken)
        outcomes = _outcomes(told, result, set(taken.frame.columns))
        if docs is not None:
            page = _page(result, snapshot, taken.said, docs)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    critical = [outcome for outcome in failed if outcome.expected.severity == "critical"]
    counting = [outcome for outcome in failed if outcome.expected.severity != "info"]
    metadata: dict[str, Any] = {
        "expectations": len(outcomes),
        "expectations_failed": len(failed),
        "rows": taken.of,
        "rows_checked": taken.rows,
        "checked": taken.said,
        "results": _table(outcomes),
        **page,
    }
    return Verdict(
        not counting,
        _described(outcomes, failed, taken),
        metadata,
        warns=bool(counting) and not critical,
    )


def _validated(path: Path, suite: Suite, taken: Sample) -> "ExpectationSuiteValidationResult":
    # Read when Great Expectations is loaded: nothing is to leave this machine.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx  # noqa: PLC0415 - takes seconds to load
    from great_expectations.data_context.types.base import (  # noqa: PLC0415 - takes seconds
        ProgressBarsConfig,
    )

    expectations = [_expectation(path, place, one) for place, one in enumerate(suite.expectations)]
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(enable=False)
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    try:
        batch = context.data_sources.pandas_default.read_dataframe(taken.frame)
        return batch.validate(
            gx.ExpectationSuite(name=suite.name, expectations=expectations),
            result_format={"result_format": "SUMMARY", "partial_unexpected_count": 0},
        )
    except Exception as error:
        # What it says may hold values of the data.
        raise SuiteError(
            f"Great Expectations cannot validate it: {type(error).__name__}",
            path=path,
            hint=Hint.of("remove expectations one by one to find the one that fails"),
        ) from error


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


def _expectation(path: Path, place: int, expected: Expected) -> "Expectation":
    """The expectation as Great Expectations knows it: a suite would leave out what it does not."""
    from great_expectations.exceptions.exceptions import (  # noqa: PLC0415 - takes seconds to load
        ExpectationNotFoundError,
        GreatExpectationsError,
    )
    from great_expectations.expectations.expectation_configuration import (  # noqa: PLC0415
        ExpectationConfiguration,
    )

    what = f"expectation {place + 1} ({expected.type})"
    told = expected.to_json()
    told["meta"] = {**(told.get("meta") or {}), _PLACE: place}
    try:
        return ExpectationConfiguration(**told).to_domain_obj()
    except ExpectationNotFoundError:
        raise SuiteError(
            f"{what}: unknown type",
            path=path,
            code="unknown-expectation",
            hint=Hint.of("correct its name, or remove it"),
            expectation=place + 1,
        ) from None
    except (GreatExpectationsError, TypeError, ValueError) as error:
        why = "; ".join(str(error).split("\n")[1:]) or str(error)
        raise SuiteError(
            f"{what}: Great Expectations rejects it: {why}",
            path=path,
            code="invalid-expectation",
            expectation=place + 1,
        ) from None


def _outcomes(
    suite: Suite, result: "ExpectationSuiteValidationResult", columns: set[str]
) -> list[Outcome]:
    """What became of each expectation, in the order of the suite.

    The result is left with what may be told: a page is drawn from it.
    """
    found = []
    for one in result.results:
        config = one.expectation_config
        place: int = config.meta.pop(_PLACE) if config is not None else 0
        found.append((place, one, _outcome(suite.expectations[place], one, columns)))
    found.sort(key=lambda told: told[0])
    result.results = [one for _, one, _ in found]
    return [outcome for _, _, outcome in found]


def _outcome(
    expected: Expected, result: "ExpectationValidationResult", columns: set[str]
) -> Outcome:
    passed, raised = bool(result.success), _raised(result.exception_info)
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


def _raised(info: Mapping[str, Any] | None) -> str:
    """The class of what was raised; Great Expectations tells it of one metric, or of several."""
    told = info or {}
    for one in (told, *told.values()):
        if isinstance(one, Mapping) and one.get("raised_exception"):
            last = str(one.get("exception_traceback") or "").strip().split("\n")[-1]
            return last.partition(":")[0].rpartition(".")[2] or "an error"
    return ""


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


def _described(outcomes: Sequence[Outcome], failed: Sequence[Outcome], taken: Sample) -> str:
    if not failed:
        return f"all {len(outcomes)} expectations hold on {taken.said}"
    ordered = sorted(failed, key=lambda outcome: SEVERITIES.index(outcome.expected.severity))
    named = "; ".join(
        f"{one.expected.severity}: {one.expected.type}"
        f"{f' of {_listed(one.expected)}' if one.expected.columns else ''}: {one.wrong}"
        for one in ordered[:_NAMED]
    )
    more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
    return f"{len(failed)} of {len(outcomes)} expectations failed on {taken.said}. {named}{more}"


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
