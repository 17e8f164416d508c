"""Every test of a sweep is one of its samples: `make torture` runs them whole."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder as sweeps."""
    for item in items:
        if "torture" in item.path.parts:
            item.add_marker(pytest.mark.sweep)
