"""A root with a history, made once, and a copy of it for each test that changes something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lineage.roots import make_root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lineage.roots import Root


@pytest.fixture(scope="session")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """The root as it was made."""
    return make_root(tmp_path_factory.mktemp("history"))


@pytest.fixture
def root(untouched: Root, tmp_path: Path) -> Root:
    """A copy of it."""
    return untouched.copied(tmp_path / "root")
