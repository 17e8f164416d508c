"""The part of Great Expectations that is used: rules on a frame, and rules on metrics.

Only one thread uses it at a time, because its context is global.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from shardline.dagster.expectations.suite import ExpectationSpec, SuiteError
from shardline.hints import Hint

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.core.expectation_validation_result import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )
    from great_expectations.expectations.expectation import Expectation


INDEX = "shardline_index"
"""Key in the meta of an expectation with its position in the suite."""

_FORMAT = {"result_format": "SUMMARY", "partial_unexpected_count": 0}
_LOCK = Lock()


class RuleEngine:
    """An evaluator of the rules of a suite. Errors name its `path`."""

    def __init__(self, path: Path, expectations: Sequence[ExpectationSpec]) -> None:
        # Read when Great Expectations is imported: it must not report usage.
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
        with defer_imports("altair", "scipy.stats"):  # used by two expectations only
            import great_expectations as gx  # noqa: PLC0415 - takes seconds to load
            from great_expectations.data_context.types.base import (  # noqa: PLC0415
                ProgressBarsConfig,
            )

        self._path = path
        self._rules = [
            _create_rule(path, index, expected) for index, expected in enumerate(expectations)
        ]
        self._context = gx.get_context(mode="ephemeral")
        self._context.enable_analytics(enable=False)
        self._context.variables.progress_bars = ProgressBarsConfig(globally=False)

    def run(
        self, frame: "pd.DataFrame", places: Sequence[int]
    ) -> dict[int, "ExpectationValidationResult"]:
        """Evaluate the rules at these positions on a frame. Returns results by position."""
        import great_expectations as gx  # noqa: PLC0415 - takes seconds to load

        if not places:
            return {}
        suite = gx.ExpectationSuite(name="rules")
        suite.expectations = [self._rules[index] for index in places]
        try:
            batch = self._context.data_sources.pandas_default.read_dataframe(frame)
            validation = batch.validate(suite, result_format=dict(_FORMAT))
        except Exception as error:
            # The message may contain values of the data.
            raise SuiteError(
                f"Great Expectations cannot validate the data: {type(error).__name__}",
                path=self._path,
                hint=Hint.of("remove expectations one by one to find the one that fails"),
            ) from error
        return {
            result.expectation_config.meta[INDEX]: result
            for result in validation.results
            if result.expectation_config is not None
        }

    def decide(self, index: int, metrics: Mapping[str, Any]) -> "ExpectationValidationResult":
        """Let a rule decide on metrics that were computed elsewhere."""
        from great_expectations.core.expectation_validation_result import (  # noqa: PLC0415
            ExpectationValidationResult,
        )

        rule = self._rules[index]
        # The method that Great Expectations itself calls with the metrics that it computed.
        validation = rule._validate(  # noqa: SLF001
            metrics=dict(metrics), runtime_configuration={"result_format": dict(_FORMAT)}
        )
        if isinstance(validation, ExpectationValidationResult):
            validation.expectation_config = rule.configuration
            return validation
        return ExpectationValidationResult(
            success=validation["success"],
            result=validation.get("result", {}),
            expectation_config=rule.configuration,
            meta={},
            exception_info=_create_exception_info(""),
        )

    def combine_results(
        self, index: int, results: Sequence["ExpectationValidationResult"]
    ) -> "ExpectationValidationResult":
        """Decide a rule on rows from its results on chunks.

        Counts add up. Results without counts must all hold.
        """
        for result in results:
            if get_raised_class(result.exception_info):
                return result
        counts = [result.result or {} for result in results]
        if any(result.get("element_count") is None for result in counts):
            return next((result for result in results if not result.success), results[0])
        elements, missing, unexpected = (
            sum(int(result.get(name) or 0) for result in counts)
            for name in ("element_count", "missing_count", "unexpected_count")
        )
        name = getattr(self._rules[index], "map_metric", "")
        metrics = {
            "table.row_count": elements,
            "column_values.nonnull.unexpected_count": missing,
            f"{name}.filtered_row_count": elements - missing,
            f"{name}.unexpected_count": unexpected,
        }
        return self.decide(index, metrics)

    def create_raised_result(self, index: int, error: Exception) -> "ExpectationValidationResult":
        """Return the result of a rule that could not be evaluated."""
        from great_expectations.core.expectation_validation_result import (  # noqa: PLC0415
            ExpectationValidationResult,
        )

        return ExpectationValidationResult(
            success=False,
            result={},
            expectation_config=self._rules[index].configuration,
            meta={},
            exception_info=_create_exception_info(type(error).__name__),
        )


@contextmanager
def open_engine(path: Path, expectations: Sequence[ExpectationSpec]) -> Iterator[RuleEngine]:
    """Yield an engine for a suite. Other threads wait."""
    with _LOCK:
        yield RuleEngine(path, expectations)


def build_suite_result(
    name: str, results: Sequence["ExpectationValidationResult"]
) -> "ExpectationSuiteValidationResult":
    """Return the results of all rules in the form that a page is drawn from."""
    import great_expectations as gx  # noqa: PLC0415 - takes seconds to load
    from great_expectations.core.expectation_validation_result import (  # noqa: PLC0415
        ExpectationSuiteValidationResult,
    )

    passed = sum(bool(result.success) for result in results)
    return ExpectationSuiteValidationResult(
        success=passed == len(results),
        results=list(results),
        suite_name=name,
        statistics={
            "evaluated_expectations": len(results),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(results) - passed,
            "success_percent": 100 * passed / len(results) if results else None,
        },
        meta={"great_expectations_version": gx.__version__},
    )


def get_raised_class(info: Mapping[str, Any] | None) -> str:
    """Return the class of a raised error, empty if none was raised."""
    infos = info or {}
    for entry in (infos, *infos.values()):
        if isinstance(entry, Mapping) and entry.get("raised_exception"):
            line = str(entry.get("exception_traceback") or "").strip().split("\n")[-1]
            return line.partition(":")[0].rpartition(".")[2] or "an error"
    return ""


def _create_exception_info(name: str) -> dict[str, Any]:
    return {
        "raised_exception": bool(name),
        "exception_message": name or None,
        "exception_traceback": name or None,
    }


def _create_rule(path: Path, index: int, expected: ExpectationSpec) -> "Expectation":
    """Return the expectation of Great Expectations. Raises SuiteError if it rejects the rule."""
    from great_expectations.exceptions.exceptions import (  # noqa: PLC0415 - takes seconds to load
        ExpectationNotFoundError,
        GreatExpectationsError,
    )
    from great_expectations.expectations.expectation_configuration import (  # noqa: PLC0415
        ExpectationConfiguration,
    )

    subject = f"expectation {index + 1} ({expected.type})"
    payload = expected.to_dict()
    payload["meta"] = {**(payload.get("meta") or {}), INDEX: index}
    try:
        return ExpectationConfiguration(**payload).to_domain_obj()
    except ExpectationNotFoundError:
        raise SuiteError(
            f"{subject}: unknown type",
            path=path,
            code="unknown-expectation",
            hint=Hint.of("correct its name, or remove it"),
            expectation=index + 1,
            rule=expected.type,
        ) from None
    except (GreatExpectationsError, TypeError, ValueError) as error:
        reason = "; ".join(str(error).split("\n")[1:]) or str(error)
        raise SuiteError(
            f"{subject}: rejected by Great Expectations: {reason}",
            path=path,
            code="invalid-expectation",
            expectation=index + 1,
            rule=expected.type,
        ) from None


class _DeferredModule(ModuleType):
    """A placeholder that imports its module when an attribute is first used."""

    def __getattr__(self, attribute: str) -> Any:  # noqa: ANN401 - attributes have any type
        _remove_placeholder(self)
        return getattr(importlib.import_module(self.__name__), attribute)


@contextmanager
def defer_imports(*names: str) -> Iterator[None]:
    """Defer imports of the named modules inside the block until their first use.

    Modules that are loaded already, or not installed, are left alone. Imports after the block load
    the real modules.
    """
    placeholders = []
    for name in names:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            placeholder = _DeferredModule(name)
            placeholder.__spec__ = spec
            sys.modules[name] = placeholder
            placeholders.append(placeholder)
    try:
        yield
    finally:
        for placeholder in placeholders:
            _remove_placeholder(placeholder)


def _remove_placeholder(placeholder: ModuleType) -> None:
    if sys.modules.get(placeholder.__name__) is placeholder:
        del sys.modules[placeholder.__name__]
