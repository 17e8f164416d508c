"""What every test shares: temporary folders in memory, steady property tests, S3 servers."""

import gc
import os
import random
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.sampling import (
    SEED_VARIABLE,
    sample_seed,
    sampled,
    sweep_variable_problem,
    take_cases,
    torture_end,
)
from tests.storage.servers import careless_s3_root, rclone, s3_root, seaweedfs

__all__ = ["careless_s3_root", "rclone", "s3_root", "seaweedfs"]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# TensorFlow imports Keras, and Keras scikit-learn, unless it is to use a Keras that is not
# installed. That halves its import. `import keras` works as ever.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

os.environ[SEED_VARIABLE] = sample_seed()  # the same in every worker, also at midnight

TESTS = Path(__file__).parent
CASES = "cases"
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
_MEMORY_NEEDED = 4 * 2**30

if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK)
    and shutil.disk_usage(_MEMORY).free >= _MEMORY_NEEDED
):
    # Thousands of commits sync their files: on a disk that takes most of the time.
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None

PLATFORM = ("dagster",)
"""Folders whose tests import Dagster and Great Expectations, which takes seconds."""


def pytest_configure() -> None:
    """Refuse a value of SHARDLINE_TORTURE with which every sweep would be skipped."""
    if (problem := sweep_variable_problem()) is not None:
        raise pytest.UsageError(problem)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Run the tests of the platform in a single worker, and keep a sample of each sweep.

    The sample is drawn from what `-k` and `-m` leave.
    """
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in PLATFORM and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("platform"))
    yield
    left_out = items_left_out(items)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if torture_end() is not None:
        random.Random(sample_seed()).shuffle(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the cases of sweeps that no longer fit into the time budget of `make torture`."""
    end = torture_end()
    if end is None or item.get_closest_marker("sweep") is None:
        return
    if time.time() > end:
        pytest.skip("the time budget is used up")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Report how many cases a test ran that counts them."""
    take_cases()
    try:
        return (yield)
    finally:
        if count := take_cases():
            item.user_properties.append((CASES, count))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how many cases all tests ran that count them."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    called = [report for report in reports if getattr(report, "when", "") == "call"]
    count = sum(value for one in called for name, value in one.user_properties if name == CASES)
    if count:
        terminalreporter.write_line(f"cases in sweeps: {count:,}")


def items_left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the cases of sweeps that are not in today's sample.

    `sweep(keep=3)` keeps three cases of a test, `sweep(keep=3, of="name")` three of all tests
    with that name.
    """
    sweeps = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("sweep")
        if mark is not None and "keep" in mark.kwargs:
            name = mark.kwargs.get("of") or item.nodeid.partition("[")[0]
            sweeps[name, mark.kwargs["keep"]].append(item)
    return {
        item
        for (name, count), cases in sweeps.items()
        for item in set(cases).difference(sampled(cases, count, name))
    }


def pytest_report_header() -> str:
    """Show the seed of the samples."""
    return f"samples: {SEED_VARIABLE}={sample_seed()}"


settings.register_profile(
    "shardline",
    derandomize=True,
    max_examples=50,  # the same ones on every run, so more of them find nothing new
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shardline")


def pytest_collection_finish() -> None:
    """Exclude what is imported by now from garbage collection: TensorFlow alone takes 0.4 s."""
    gc.collect()
    gc.freeze()
