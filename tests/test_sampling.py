"""Samples of sweeps: stable for a seed, whole in `make torture`."""

import time

import pytest

from tests.sampling import (
    MINUTES_VARIABLE,
    SEED_VARIABLE,
    SHARES,
    START_VARIABLE,
    SWEEP_VARIABLE,
    WORKERS_VARIABLE,
    drawn,
    sampled,
    sweep_variable_problem,
    torture_end,
    torture_seconds,
)

CASES = range(1000)


@pytest.fixture(autouse=True)
def sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWEEP_VARIABLE, raising=False)
    monkeypatch.setenv(SEED_VARIABLE, "a day")


def test_sample_keeps_count_and_order() -> None:
    sample = sampled(CASES, 20, "sweep")
    assert len(set(sample)) == 20
    assert sample == sorted(sample)
    assert set(sample) < set(CASES)


def test_sample_depends_on_seed_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = sampled(CASES, 20, "sweep")
    assert sampled(CASES, 20, "sweep") == sample
    assert sampled(CASES, 20, "other") != sample
    monkeypatch.setenv(SEED_VARIABLE, "another day")
    assert sampled(CASES, 20, "sweep") != sample


def test_sample_of_few_cases_is_whole() -> None:
    assert sampled(CASES[:5], 20, "sweep") == list(range(5))


def test_torture_runs_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWEEP_VARIABLE, "all")
    assert sampled(CASES, 20, "sweep") == list(CASES)


def test_property_tests_draw_a_quarter_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(300) == 75
    monkeypatch.setenv(SWEEP_VARIABLE, "all")
    assert drawn(300) == 300


@pytest.mark.parametrize("value", ["", "all", "no fault", "rename 2 a: kill"])
def test_torture_takes_all_or_a_label(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(SWEEP_VARIABLE, value)
    assert sweep_variable_problem() is None


@pytest.mark.parametrize("value", ["1", "yes", "ALL"])
def test_torture_refuses_what_would_skip_every_sweep(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(SWEEP_VARIABLE, value)
    assert sweep_variable_problem() is not None


def test_torture_without_budget_runs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MINUTES_VARIABLE, raising=False)
    assert torture_end() is None
    assert torture_seconds() is None


def test_torture_budget_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.time()
    monkeypatch.setenv(START_VARIABLE, str(start))
    monkeypatch.setenv(MINUTES_VARIABLE, str(SHARES))
    monkeypatch.setenv(WORKERS_VARIABLE, "2")
    assert torture_end() == start + 60 * SHARES
    assert torture_seconds() == 2 * 60
    assert torture_seconds(10) == 10 * 2 * 60
    monkeypatch.setenv(START_VARIABLE, str(start - 60 * SHARES))
    assert torture_seconds() == 0
