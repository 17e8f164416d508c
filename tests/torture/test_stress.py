"""Concurrent operations with kills and wrong clocks lose nothing and leave nothing false."""

import pytest

from tests.sampling import count_cases, runs_whole_sweeps, sample_seed, torture_seconds
from tests.torture.stress import run

pytestmark = [pytest.mark.sweep, pytest.mark.slow]
TORTURE_MINUTES = 10
SAMPLE_MINUTES = 0.15
SHARES = 10
"""Shares of the time budget."""


def test_stress_leaves_root_as_expected() -> None:
    minutes = SAMPLE_MINUTES
    if runs_whole_sweeps():
        seconds = torture_seconds(SHARES)
        minutes = TORTURE_MINUTES if seconds is None else seconds / 60
    tally = run(minutes, sample_seed())
    count_cases(tally.outcomes.total())
    assert tally.problems == []
