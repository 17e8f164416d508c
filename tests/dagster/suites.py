"""Small suites of expectations for tests."""

import json
from pathlib import Path
from typing import Any


def at_most(column: str, most: float, severity: str = "critical") -> dict[str, Any]:
    """An expectation that a column has no value above a limit."""
    return {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": column, "max_value": most},
        "severity": severity,
    }


def write_suite(path: Path, *expectations: dict[str, Any]) -> Path:
    """A file of expectations."""
    suite = {"name": path.stem, "expectations": list(expectations), "meta": {}}
    path.write_text(json.dumps(suite))
    return path
