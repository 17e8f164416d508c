"""The suite itself: tests that share something slow run in the same worker."""

import pytest

pytestmark = pytest.mark.xdist_group("groups")


def test_groups_are_honored(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs pytest -n 2 --dist loadgroup")
    assert request.node.nodeid.endswith("@groups")
