"""Who gives something else where a version is needed is told what to write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import shardline
from shardline import Version
from shardline.operations.restore import restore_version
from tests.operations.extensions import base_of, double

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


STEPS = shardline.MigrationSpec(drop=["name"])
CALLS: dict[str, tuple[str, Callable[[Any, Version], object]]] = {
    "append": ("version", lambda wrong, _: Version.append(wrong, [])),
    "check": ("version", lambda wrong, _: Version.check(wrong)),
    "verify": ("version", lambda wrong, _: Version.verify(wrong)),
    "status": ("version", lambda wrong, _: Version.status(wrong)),
    "repair": ("version", lambda wrong, _: Version.repair(wrong)),
    "restore": ("version", lambda wrong, _: restore_version(wrong, "1")),
    "export": ("version", lambda wrong, _: Version.export(wrong, "out")),
    "rebuild": ("version", lambda wrong, _: Version.rebuild(wrong)),
    "rebuild into": ("into", lambda wrong, good: good.rebuild(into=wrong)),
    "extend": ("version", lambda wrong, good: Version.extend(wrong, double, good)),
    "extend into": ("into", lambda wrong, good: good.extend(double, into=wrong)),
    "migrate": ("version", lambda wrong, good: Version.migrate(wrong, STEPS, good)),
    "migrate into": ("into", lambda wrong, good: good.migrate(STEPS, wrong)),
    "combine, left": ("left", lambda wrong, good: Version.combine(wrong, good, good)),
    "combine, right": ("right", lambda wrong, good: good.combine(wrong, good)),
    "combine into": ("into", lambda wrong, good: good.combine(good, wrong)),
    "plan a combination": ("into", lambda wrong, good: good.plan_combine(good, wrong)),
}


@pytest.mark.parametrize("what", CALLS)
def test_what_is_no_version_is_refused_with_what_to_write(tmp_path: Path, what: str) -> None:
    parameter, call = CALLS[what]
    good = base_of(tmp_path, (0, 2))
    for wrong, name in (("notes/v2", "notes/v2"), ("v2", "digits/v1"), (tmp_path, "digits/v1")):
        with pytest.raises(TypeError) as caught:
            call(wrong, good)
        told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
        assert re.match(rf"{parameter}\b.* {type(wrong).__name__}\b", told[0])
        assert f"(root)[{name!r}]" in " ".join(told)
