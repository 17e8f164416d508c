"""The two kernels as fixtures: each test that takes `kernel` runs on both."""

import importlib
from types import ModuleType

import pytest

from shardline.kernel import reference as plain


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"shardline.kernel.{name}")
    except ImportError as error:
        pytest.skip(f"the {name} kernel is not built: {error}")


@pytest.fixture(scope="session", params=["reference", "compiled"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    return _load(request.param)


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    return plain


@pytest.fixture(scope="session")
def compiled() -> ModuleType:
    return _load("compiled")
