"""Random sequences of what happens to a platform, on a real instance."""

import random
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.model import Model
from tests.dagster.model_steps import SAMPLE, STEPS, SUITE_STEPS, deal_steps, take_step
from tests.sampling import runs_whole_sweeps, sample_seed

SEQUENCES = 500
LONG = 12
"""How many steps a sequence has in `make torture`."""


def sampled_seeds() -> range:
    """Return the seeds of all sequences in `make torture`, else those of today's deck."""
    if runs_whole_sweeps():
        return range(SEQUENCES)
    first = SAMPLE * random.Random(f"{sample_seed()} model").randrange(SEQUENCES // SAMPLE)
    return range(first, first + SAMPLE)


def steps_of(seed: int) -> list[str]:
    """Return the steps of a sequence: those that are dealt, and random steps in `make torture`."""
    steps = deal_steps(seed)
    if not runs_whole_sweeps():
        return steps
    has_suite = not SUITE_STEPS.isdisjoint(steps)
    known = sorted(STEPS if has_suite else STEPS.keys() - SUITE_STEPS)
    return steps + random.Random(f"steps {seed}").choices(known, k=LONG - len(steps))


@pytest.mark.sweep(keep=SAMPLE)
@pytest.mark.parametrize("seed", sampled_seeds())
def test_random_steps_reach_agreement(
    tmp_path: Path, instance: dg.DagsterInstance, seed: int
) -> None:
    steps = steps_of(seed)
    model = Model(tmp_path, instance, seed, needs_suite=not SUITE_STEPS.isdisjoint(steps))
    try:
        for step in steps:
            take_step(model, step)
            model.assert_safe()
            model.round()
            model.assert_safe()
            model.assert_settled()
    except BaseException as error:
        error.add_note(model.describe())
        raise


@pytest.mark.parametrize("first", range(0, SEQUENCES, SAMPLE))
def test_sampled_sequences_take_every_step(first: int) -> None:
    dealt = [step for seed in range(first, first + SAMPLE) for step in deal_steps(seed)]
    assert set(dealt) == set(STEPS)
