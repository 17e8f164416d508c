"""Who gives something else where a version is needed is told what to write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import shardline
from shardline.operations.restore import restore_version
from tests.operations.extensions import base_of, double

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.api import Version

STEPS = shardline.MigrationSpec(drop=["name"])
CALLS: dict[str, tuple[str, Callable[[Any, Version], object]]] = {
    "append": ("version", lambda wrong, _: shardline.append(wrong, [])),
    "check": ("version", lambda wrong, _: shardline.check_version(wrong)),
    "verify": ("version", lambda wrong, _: shardline.verify_version(wrong)),
    "status": ("version", lambda wrong, _: shardline.get_status(wrong)),
    "repair": ("version", lambda wrong, _: shardline.repair(wrong)),
    "restore": ("version", lambda wrong, _: restore_version(wrong, "1")),
    "export": ("version", lambda wrong, _: shardline.export(wrong, "out")),
    "rebuild": ("version", lambda wrong, _: shardline.rebuild(wrong)),
    "rebuild into": ("into", lambda wrong, good: shardline.rebuild(good, into=wrong)),
    "extend": ("base", lambda wrong, good: shardline.extend(wrong, double, good)),
    "extend into": ("into", lambda wrong, good: shardline.extend(good, double, into=wrong)),
    "migrate": ("base", lambda wrong, good: shardline.migrate(wrong, good, STEPS)),
    "migrate into": ("into", lambda wrong, good: shardline.migrate(good, wrong, STEPS)),
    "combine, left": ("left", lambda wrong, good: shardline.combine(wrong, good, good)),
    "combine, right": ("right", lambda wrong, good: shardline.combine(good, wrong, good)),
    "combine into": ("into", lambda wrong, good: shardline.combine(good, good, wrong)),
    "plan a combination": ("into", lambda wrong, good: shardline.plan_combine(good, good, wrong)),
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
        assert f"Version(root, {name!r})" in " ".join(told)
