"""What most tests of the platform begin with."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.opened_files import OpenedFiles
from tests.dagster.platforms import Platform, make_platform


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A real instance, in memory."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def notes(tmp_path: Path) -> Platform:
    """A platform to which nothing has landed yet."""
    return make_platform(tmp_path)


@pytest.fixture(scope="session")
def opened_files() -> OpenedFiles:
    """What this process opens."""
    return OpenedFiles()
