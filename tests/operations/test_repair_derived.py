"""Repairing what extend, combine and migrate made: they make it anew, unless it is given up."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from tests.cli.datasets import damage, on
from tests.operations.extensions import base_of, double, table, version_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.api import Version


def extended(base: Version, into: Version) -> None:
    extend(base, double, into, mode="rewrite")


def combined(base: Version, into: Version) -> None:
    combine(base, base, into, on_collision="prefix", right_prefix="b_")


def migrated(base: Version, into: Version) -> None:
    migrate(base, MigrationSpec(rename={"name": "called"}), into)


MAKERS = [extended, combined, migrated]


def derived_by(tmp_path: Path, make: Callable[[Version, Version], None]) -> Version:
    """A published version of three shards that were derived."""
    derived = version_in(tmp_path)
    make(base_of(tmp_path, (0, 5), (5, 9), (9, 15)), derived)
    assert check_version(derived).ok
    return derived


@pytest.mark.parametrize("harm", [damage, Path.unlink])
@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_lost_and_the_command_that_is_told_makes_it_whole(
    tmp_path: Path,
    make: Callable[[Version, Version], None],
    harm: Callable[[Path], None],
) -> None:
    derived = derived_by(tmp_path, make)
    before, records = table(derived.published()), derived.latest().shards[0].records
    harm(Path(derived.latest().files()[0]))
    root = tmp_path / "root"
    told, foreseen = (on(root, "repair", derived.name, *dry) for dry in ([], ["--dry-run"]))
    assert (told.code, foreseen.code, told.out) == (1, 0, foreseen.out)
    assert "has changed" not in told.out
    lost = records if harm is Path.unlink else 1
    assert f"lose {lost} record" in told.out
    derived.refresh()
    assert derived.state.snapshot == 1
    check, again = re.findall(r"`(shardline [^`]+)`", told.out)[:2]
    assert on(root, *shlex.split(check)[1:]).code == 1
    for arguments in (["status", derived.name], ["verify", f"{derived.name}@latest"]):
        assert again.strip() in on(root, *arguments).out
        assert "shardline repair" not in on(root, *arguments).out
    assert on(root, *shlex.split(again)[1:]).code == 0
    derived.refresh()
    assert derived.published().number == derived.latest().number
    assert table(derived.published()) == before
    entry = derived.log.entry(derived.published().entry)
    assert (entry.parameters["computed"], entry.parameters["reused"]) == (
        1,
        len(derived.latest().shards) - 1,
    )


def test_what_is_left_is_kept_only_if_that_is_asked_for(tmp_path: Path) -> None:
    derived = derived_by(tmp_path, extended)
    damage(Path(derived.latest().files()[0]))
    (left,) = repair(derived).unrepaired
    assert (left.method, left.lost_records, left.entry) == ("again", 1, None)
    assert left.command is not None
    assert left.command.arguments[:4] == ("extend", "digits/v1", "--into", "v2")
    told = on(tmp_path / "root", "repair", derived.name, "--allow-data-loss")
    assert told.code == 1
    assert "derived by extend from digits/v1@1" in told.out
    assert "has changed" not in told.out
    derived.refresh()
    assert derived.published().records == 14


def test_a_copy_that_was_rebuilt_makes_a_derived_shard_anew(tmp_path: Path) -> None:
    derived = derived_by(tmp_path, extended)
    before = table(derived.published())
    rebuild(derived, into=version_in(tmp_path, "digits/plain"))
    Path(derived.latest().files()[0]).unlink()
    (repaired,) = repair(derived).repaired
    assert (repaired.method, repaired.lost_records) == ("copies", 0)
    assert check_version(derived).ok
    assert table(derived.published()) == before


def test_another_file_in_its_place_is_no_reason_to_give_anything_up(tmp_path: Path) -> None:
    derived = derived_by(tmp_path, extended)
    first, second, _ = map(Path, derived.latest().files())
    first.write_bytes(second.read_bytes())
    (left,) = repair(derived).unrepaired
    assert (left.method, left.lost_records) == ("again", left.shard.records)
