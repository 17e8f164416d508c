"""Of what others hold by pins, vacuum keeps what their kept snapshots are read from alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import TombstonedShardError
from shardline.log.version import utc_now
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erasure.erasure_proof import prove_erasure
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from tests.cli.datasets import damage, on
from tests.errors import raises
from tests.log.versions import Clock
from tests.operations.erasures import (
    InterruptedStore,
    erased,
    files_with,
    landed,
    marker,
    opened,
)
from tests.operations.extensions import base_of, double, length, table, version_in

if TYPE_CHECKING:
    from shardline.operations.vacuum import VacuumReport

AT_ONCE = timedelta(0)
PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


def extended(base: Version, into: Version) -> Version:
    """Another version with overlays on a base, published."""
    extend(base, double, into)
    assert check_version(into).ok
    return into


def planned(side: Version, into: Version) -> Version:
    """Another version with the plan of all pairs of one, published."""
    combine(side, side, into, mode="virtual", unordered=True, **PREFIXES)
    assert check_version(into).ok
    return into


def at_once(root: Path, *, delete: bool = True) -> VacuumReport:
    return vacuum(root, "digits", retention=AT_ONCE, dry_run=not delete)


def shards_in(root: Path, dataset: str = "digits") -> set[str]:
    return {
        path.name
        for path in (root / dataset / "shards").iterdir()
        if path.suffix in {".tfrecord", ".plan"}
    }


def newest_shards(*versions: Version) -> set[str]:
    return {shard.name for one in versions for shard in opened(one).latest().shards}


def list_reasons(report: VacuumReport) -> list[tuple[str, str]]:
    return [(retainer.location, retainer.reason) for retainer in report.retainers]


def follow(root: Path, report: VacuumReport) -> None:
    """Run the first command of the first retainer."""
    result = on(root, *report.retainers[0].commands[0])
    assert result.code == 0, result.err


@pytest.mark.parametrize("plan", ["digits/pairs", "other/pairs"])
def test_vacuum_deletes_inputs_of_recreated_plan_at_once(tmp_path: Path, plan: str) -> None:
    root = tmp_path / "root"
    v1 = landed(tmp_path, (0, 4), (4, 8))
    v2 = extended(v1, version_in(tmp_path))
    pairs = planned(v2, version_in(tmp_path, plan))
    erased(tmp_path, 2)
    report = at_once(root)
    assert files_with(root, marker(2)) != []
    assert list_reasons(report) == [
        ("digits/v2@1", f"{plan} needs it"),
        ("digits/v1@1", f"digits/v2 needs it, {plan} needs that"),
    ]
    assert {one.commands for one in report.retainers} == {report.retainers[0].commands}
    assert verify_version(opened(pairs)).ok, "the plan still needs them"
    follow(root, report)
    would = at_once(root, delete=False)
    did = at_once(root)
    assert did.files == would.files
    assert did.retainers == would.retainers == []
    assert files_with(root, marker(2)) == []
    assert not prove_erasure(root, "digits").files
    owned = (v1, v2, pairs) if plan.startswith("digits") else (v1, v2)
    assert shards_in(root) == newest_shards(*owned)
    assert verify_version(opened(pairs)).ok
    assert at_once(root).files == []


def rolled_back(tmp_path: Path) -> tuple[Version, Version]:
    """A base of which a shard was rolled back, and overlays on it as it was before."""
    base = base_of(tmp_path, (0, 2))
    base_of(tmp_path, (2, 4))
    into = extended(opened(base), version_in(tmp_path))
    opened(base).restore(1)
    return opened(base), into


def test_vacuum_deletes_shard_of_shared_pin(tmp_path: Path) -> None:
    root = tmp_path / "root"
    base, into = rolled_back(tmp_path)
    report = at_once(root)
    assert report.files == []
    assert list_reasons(report) == [("digits/v1@2", "digits/v2 needs it")]
    follow(root, report)
    assert len(at_once(root, delete=False).released_pins) == 1
    assert len(opened(base).state.pins) == 2, "a dry run changes nothing"
    assert at_once(root).released_pins == ["digits/v1: digits/v2 on 2"]
    assert shards_in(root) == newest_shards(base, into)
    assert table(opened(into).latest())["double"] == [0, 2]


def test_rolled_back_version_retains_less_after_recreation(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    base = base_of(tmp_path, (0, 2))
    into = extended(base, version_in(tmp_path))
    base_of(tmp_path, (2, 4))
    extended(opened(base), opened(into))
    opened(into).restore(1)
    opened(base).restore(1)
    report = at_once(root)
    assert list_reasons(report) == [("digits/v1@2", "digits/v2 needs other shards of it")]
    follow(root, report)
    at_once(root)
    assert shards_in(root) == newest_shards(base, into)


def test_vacuum_deletes_corrupt_base_after_repair(tmp_path: Path) -> None:
    root = tmp_path / "root"
    base = base_of(tmp_path, (0, 4), (4, 8))
    into = extended(base, version_in(tmp_path))
    bad = Path(base.latest().files()[0])
    damage(bad)
    repair(base)
    assert check_version(base).ok
    report = at_once(root)
    assert bad.exists()
    follow(root, report)
    at_once(root)
    assert not bad.exists()
    assert verify_version(opened(into)).ok


def test_vacuum_reports_tag_on_overlay_as_retainer(tmp_path: Path) -> None:
    root = tmp_path / "root"
    v1 = landed(tmp_path, (0, 4), (4, 8))
    v2 = extended(v1, version_in(tmp_path))
    v2.tag("best", 1)
    erased(tmp_path, 2)
    report = at_once(root)
    assert list_reasons(report) == [
        ("digits/v2@1", "it has the tag best"),
        ("digits/v1@1", "digits/v2 needs it, and digits/v2@1 has the tag best"),
    ]
    assert table(opened(v2).snapshot(1))["id"] == list(range(8))
    follow(root, report)
    at_once(root)
    assert files_with(root, marker(2)) == []


def test_vacuum_reports_each_stacked_overlay(tmp_path: Path) -> None:
    root = tmp_path / "root"
    base = base_of(tmp_path, (0, 2), (2, 4))
    second = extended(base, version_in(tmp_path))
    third = version_in(tmp_path, "digits/v3")
    extend(second, length, third)
    assert check_version(third).ok
    rebuild(base)
    assert check_version(base).ok
    for version in ("digits/v2", "digits/v3"):
        report = at_once(root)
        assert version in report.retainers[0].hint
        assert report.files == []
        follow(root, report)
    at_once(root)
    assert shards_in(root) == newest_shards(base, second, third)
    assert verify_version(opened(third)).ok


def test_vacuum_deletes_dependencies_after_retention(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    base, into = rolled_back(tmp_path)
    extended(base, into)
    clock = Clock(utc_now())
    for _ in range(2):
        report = vacuum(root, "digits", dry_run=False, clock=clock)
        assert (report.files, report.released_pins) == ([], [])
        assert {one.kind for one in report.retainers} == {"time"}
        clock.move(days=3)
    clock.move(days=2)
    would = vacuum(root, "digits", clock=clock)
    report = vacuum(root, "digits", dry_run=False, clock=clock)
    assert would.files == report.files
    assert report.released_pins == ["digits/v1: digits/v2 on 2"], "its overlay went"
    kinds = [[one.kind for one in look.retainers] for look in (would, report)]
    assert kinds == [["time"], ["time"]]
    clock.move(days=8)
    vacuum(root, "digits", dry_run=False, clock=clock)
    assert shards_in(root) == newest_shards(base, into)


def test_lost_plan_retains_possible_inputs(tmp_path: Path) -> None:
    root = tmp_path / "root"
    v1 = landed(tmp_path, (0, 4), (4, 8))
    pairs = planned(v1, version_in(tmp_path, "digits/pairs"))
    erased(tmp_path, 2)
    (shard,) = pairs.latest().shards
    (root / pairs.shard_name(shard)).unlink()
    report = at_once(root)
    assert report.files == []
    assert len(files_with(root, marker(2))) == 1
    assert list_reasons(report) == [("digits/v1@1", "digits/pairs needs it")]


def test_plan_during_vacuum_never_reads_deleted_shard(tmp_path: Path) -> None:
    root = tmp_path / "root"
    base = base_of(tmp_path, (0, 2), (2, 4))

    def move_on() -> None:
        rebuild(opened(base))
        assert check_version(opened(base)).ok
        at_once(root)

    store = InterruptedStore(root, f"other/pairs/log/{2:020}.json", move_on)
    into = Version(store, "other/pairs")
    with raises(TombstonedShardError, "tombstoned-shard", version="other/pairs", snapshot=1):
        planned(Version(store, "digits/v1"), into)
    into = version_in(tmp_path, "other/pairs")
    assert into.latest().records == 0
    planned(opened(base), into)
    at_once(root)
    assert into.published().records == 6
    assert verify_version(into).ok


@pytest.mark.parametrize("step", [1, 2], ids=["lets go", "announces"])
def test_overlay_during_vacuum_retains_base(tmp_path: Path, step: int) -> None:
    root = tmp_path / "root"
    base = base_of(tmp_path, (0, 2), (2, 4))
    into = extended(base, version_in(tmp_path))
    old = {shard.name for shard in base.latest().shards}
    rebuild(base)
    assert check_version(base).ok
    extended(opened(base), opened(into))

    def back() -> None:
        extend(opened(base), double, opened(into), snapshot=1)

    entry = f"digits/v1/log/{opened(base).state.number + step:020}.json"
    store = InterruptedStore(root, entry, back)
    report = vacuum(store, "digits", retention=AT_ONCE, dry_run=False)
    assert store.left == []
    assert report.released_pins == ([] if step == 1 else ["digits/v1: digits/v2 on 1"])
    assert old <= shards_in(root)
    assert "digits/v2 on 1" in opened(base).state.pins
    assert table(opened(into).latest())["double"] == [0, 2, 4, 6]
    assert old <= shards_in(root)


def test_vacuum_keeps_what_an_old_snapshot_can_be_revived_with(tmp_path: Path) -> None:
    base, pairs = base_of(tmp_path, (0, 3), (3, 6)), version_in(tmp_path, "pairs/v1")
    planned(base, pairs)
    rebuild(base)
    assert check_version(base).ok
    planned(base, pairs)
    report = at_once(tmp_path / "root")
    assert report.released_pins == []
    (retainer,) = report.retainers
    assert retainer.commands[0][:2] == ("vacuum", "pairs")
    pairs.tag("old", 1)
    assert pairs.tagged("old").to_arrow().read_all().num_rows == 15


def test_vacuum_deletes_bases_once_their_dependents_are_announced(tmp_path: Path) -> None:
    base, pairs = base_of(tmp_path, (0, 3), (3, 6)), version_in(tmp_path, "pairs/v1")
    planned(base, pairs)
    old = newest_shards(base)
    rebuild(base)
    assert check_version(base).ok
    planned(base, pairs)
    vacuum(tmp_path / "root", "pairs", retention=AT_ONCE, dry_run=False)
    report = at_once(tmp_path / "root")
    assert len(report.released_pins) == 1
    assert shards_in(tmp_path / "root").isdisjoint(old)
    with pytest.raises(TombstonedShardError):
        opened(pairs).tag("old", 1)
