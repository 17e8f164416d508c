"""A snapshot that is read from other versions is restored only if it can be read from then on."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shardline.errors import TombstonedShardError
from shardline.log.changes import AddTombstones
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.restore import restore_version
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from tests.errors import raises
from tests.operations.erasures import opened
from tests.operations.extensions import base_of, double, version_in

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Version


def follow(base: Version, wide: Version, pairs: Version) -> None:
    """Lay overlays on what is new in the base, and plan their pairs."""
    extend(opened(base), double, opened(wide))
    assert check_version(opened(wide)).ok
    side = opened(wide)
    combine(
        side,
        side,
        opened(pairs),
        mode="virtual",
        unordered=True,
        on_collision="prefix",
        left_prefix="a_",
        right_prefix="b_",
    )
    assert check_version(opened(pairs)).ok


@pytest.fixture
def plan(tmp_path: Path) -> Version:
    """Two snapshots of pairs of overlays: of a shard, and of that and another."""
    base, wide = base_of(tmp_path, (0, 2)), version_in(tmp_path, "digits/wide")
    pairs = version_in(tmp_path, "other/pairs")
    for grown in (False, True):
        base = base_of(tmp_path, (2, 4)) if grown else base
        follow(base, wide, pairs)
    return opened(pairs)


def vacuumed(plan: Version, dataset: str) -> None:
    vacuum(plan.store, dataset, retention=timedelta(0), dry_run=False)


def announce_old_shards(version: Version) -> None:
    """Announce what the latest snapshot does not contain, as vacuum once did despite dependents."""
    latest = version.latest()
    for name, pin in version.state.pins.items():
        if pin.snapshot != latest.number:
            version.pin(name, None)
    names = set(version.state.shard_history.names().to_pylist())
    old = sorted(names - {shard.name for shard in latest.shards})
    version.commit(AddTombstones(lambda _: old))


def test_restore_after_vacuum_pins_dependencies_again(tmp_path: Path, plan: Version) -> None:
    vacuumed(plan, "digits")
    restored = restore_version(opened(plan), "1")
    assert restored.published
    base = version_in(tmp_path, "digits/v1")
    rebuild(base)
    assert check_version(opened(base)).ok
    vacuumed(plan, "other")
    vacuumed(plan, "digits")
    assert verify_version(opened(plan)).ok


def test_restore_with_tombstoned_dependency_raises(tmp_path: Path, plan: Version) -> None:
    base, wide = version_in(tmp_path, "digits/v1"), version_in(tmp_path, "digits/wide")
    rebuild(base)
    assert check_version(opened(base)).ok
    follow(base, wide, plan)
    announce_old_shards(opened(wide))
    before = opened(plan).state.number
    for dry_run in (True, False):
        where = {"version": "other/pairs", "snapshot": 1}
        with raises(TombstonedShardError, "tombstoned-shard", **where) as caught:
            restore_version(opened(plan), "1", dry_run=dry_run)
        assert caught.value.names[0].startswith("wide.")
    assert opened(plan).state.number == before
