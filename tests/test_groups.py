"""The suite itself: tests that share something slow run in the same worker."""

import os

import pytest

pytestmark = pytest.mark.xdist_group("groups")


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="needs pytest -n")
def test_groups_are_honored(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@groups")
