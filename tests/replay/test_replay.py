from __future__ import annotations

import pytest

from tests.replay.compare import compare
from tests.replay.script import script_names

RECORD = "To record what happens now: make replay ARGS=--record"


@pytest.mark.parametrize("name", script_names())
def test_script_does_as_recorded(name: str) -> None:
    differences = compare(name)
    assert not differences, f"\n{differences}{RECORD}"
