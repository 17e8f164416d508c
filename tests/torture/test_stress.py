"""Concurrent operations with kills and wrong clocks lose nothing and leave nothing false."""

import pytest

from tests.sampling import runs_whole_sweeps, sample_seed, torture_minutes
from tests.torture.stress import run

pytestmark = [pytest.mark.sweep, pytest.mark.slow]
TORTURE_MINUTES = 10
SAMPLE_MINUTES = 0.15


def test_stress_leaves_root_as_expected() -> None:
    minutes = SAMPLE_MINUTES
    if runs_whole_sweeps():
        minutes = (torture_minutes() or 2 * TORTURE_MINUTES) / 2
    tally = run(minutes, sample_seed())
    assert tally.problems == []
