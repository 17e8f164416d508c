"""Random sequences of what happens to a platform, on a real instance."""

from pathlib import Path

import dagster as dg
import pytest

from tests.dagster_project.model import Model
from tests.sampling import runs_whole_sweeps

STEPS = 3


@pytest.mark.sweep(keep=20)
@pytest.mark.parametrize("seed", range(500))
def test_random_steps_leave_no_hole_and_nothing_stuck(
    tmp_path: Path, instance: dg.DagsterInstance, seed: int
) -> None:
    model = Model(tmp_path, instance, seed)
    try:
        for _ in range(4 * STEPS if runs_whole_sweeps() else STEPS):
            model.step()
            model.assert_safe()
            model.round()
            model.assert_safe()
            model.assert_settled()
    except BaseException as error:
        told = (f"seed {seed}, {model.kind}, suite: {model.has_suite}", *model.trace)
        error.add_note("\n".join(told))
        raise
