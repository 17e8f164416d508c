"""What a snapshot needs of other versions, and what of it is no longer sound."""

from __future__ import annotations

from pathlib import Path

from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.repair import repair
from shardline.provenance.dependencies import list_broken_dependencies
from tests.cli.datasets import damage
from tests.operations.extensions import base_of, double, length, version_in

PREFIXES = {"on_collision": "prefix", "right_prefix": "b_", "mode": "virtual"}


def problems(tmp_path: Path, name: str) -> list[tuple[str, str]]:
    version = version_in(tmp_path, name)
    return [(found.version, found.problem) for found in list_broken_dependencies(version, 1)]


def test_repaired_base_breaks_overlays_and_plans(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 5), (5, 9))
    extend(base, double, version_in(tmp_path))
    assert check_version(version_in(tmp_path)).ok
    extend(version_in(tmp_path), length, version_in(tmp_path, "digits/v3"))
    extend(base, double, version_in(tmp_path, "digits/whole"), mode="rewrite")
    combine(base, base, version_in(tmp_path, "pairs/plan"), **PREFIXES)  # type: ignore[arg-type]
    derived = ("digits/v2", "digits/v3", "pairs/plan", "digits/whole")
    assert [problems(tmp_path, name) for name in derived] == [[], [], [], []]
    damage(Path(base.latest().files()[1]))
    (repaired,) = repair(base).repaired
    broken = [("digits/v1", "integrity")]
    assert [problems(tmp_path, name) for name in derived] == [broken, broken, broken, []]
    (found,) = list_broken_dependencies(version_in(tmp_path), 1)
    assert found.shard == repaired.shard.name


def test_remade_overlay_depends_on_the_repaired_shard(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 5), (5, 9))
    derived, plan = version_in(tmp_path), version_in(tmp_path, "pairs/plan")
    extend(base, double, derived)
    combine(base, base, plan, **PREFIXES)  # type: ignore[arg-type]
    damage(Path(base.latest().files()[1]))
    repair(base)
    assert check_version(base).ok
    extend(base, double, derived)
    combine(base, base, plan, **PREFIXES)  # type: ignore[arg-type]
    for version in (derived, plan):
        assert version.latest().number == 2
        assert list_broken_dependencies(version, 2) == []
        assert list_broken_dependencies(version, 1) != []


def test_corrupt_log_of_a_base_is_a_broken_dependency(tmp_path: Path) -> None:
    base = base_of(tmp_path, (0, 5))
    extend(base, double, version_in(tmp_path))
    entry = tmp_path / "root" / base.log.entry_name(2)
    entry.write_bytes(entry.read_bytes().replace(b"append", b"appond"))
    assert problems(tmp_path, "digits/v2") == [("digits/v1", "log")]
