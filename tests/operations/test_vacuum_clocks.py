"""A wrong clock may delay a deletion, but never causes an early one."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.changes import Derive
from shardline.log.version import utc_now
from shardline.operations.vacuum import vacuum
from shardline.storage import open_store
from tests.log import versions
from tests.log.versions import NAME, Clock, shard_name
from tests.sampling import drawn
from tests.storage.faulty import FaultyStore

if TYPE_CHECKING:
    import builtins
    from pathlib import Path

    from shardline.storage import ObjectInfo

DATASET = "digits"
WEEK = timedelta(days=7)
DAY = timedelta(days=1)
AT_ONCE = timedelta(0)


def at(root: Path, time: datetime) -> Version:
    """The version, open in a process whose clock shows a time."""
    return Version(root, NAME, clock=Clock(time))


def there(root: Path) -> set[str]:
    return {path.read_text() for path in (root / DATASET / "shards").glob("*.tfrecord")}


def run(root: Path, now: datetime, keep: timedelta = WEEK) -> set[str]:
    """Vacuum by a right clock; gives the labels that are left."""
    vacuum(root, DATASET, retention=keep, dry_run=False, clock=Clock(now))
    return there(root)


def erase(version: Version, label: str) -> None:
    """Take a shard out of the list, and give it up for good."""
    name = shard_name(label)
    head = version.state.snapshot
    version.commit(
        Derive(head=head, removed=[name], added=[], operation="erase", tombstones=[name])
    )


def replaced(root: Path, *offsets: float) -> datetime:
    """Each shard replaced by the next, by clocks so many days off; gives the time now."""
    now = utc_now()
    version = versions.make_version(root, clock=Clock(now))
    versions.append(version, "0")
    for number, days in enumerate(offsets):
        writer = at(root, now + timedelta(days=days))
        versions.rebuild(writer, str(number), str(number + 1))
    return now


def test_vacuum_clock_ahead_delays_only_its_own_shards(tmp_path: Path) -> None:
    now = replaced(tmp_path, 0, 30, 0, 0)
    assert run(tmp_path, now + 6 * DAY) == {"0", "1", "2", "3", "4"}
    assert run(tmp_path, now + 8 * DAY) == {"1", "4"}
    assert run(tmp_path, now + 36 * DAY) == {"1", "4"}
    assert run(tmp_path, now + 38 * DAY) == {"4"}


def test_vacuum_keep_zero_ignores_clocks(tmp_path: Path) -> None:
    now = replaced(tmp_path, 0, 3000, 0)
    orphan = versions.write_shard(at(tmp_path, now), "orphan")
    path = tmp_path / DATASET / "shards" / orphan.name
    os.utime(path, (4e9, 4e9))
    assert run(tmp_path, now, AT_ONCE) == {"3"}


@pytest.mark.parametrize("days", [-3000, -30, 30, 3000])
def test_vacuum_erased_shards_ignore_clocks(tmp_path: Path, days: int) -> None:
    now = utc_now()
    version = versions.make_version(tmp_path, clock=Clock(now))
    versions.append(version, "a", "b")
    erase(at(tmp_path, now + timedelta(days=days)), "a")
    assert run(tmp_path, now + 6 * DAY) == {"a", "b"}
    assert run(tmp_path, now + 8 * DAY) == {"b"}


def test_vacuum_keep_zero_deletes_erased_shards_of_any_clock(tmp_path: Path) -> None:
    now = utc_now()
    version = versions.make_version(tmp_path, clock=Clock(now))
    versions.append(version, "a", "b")
    erase(at(tmp_path, now + 3000 * DAY), "a")
    assert run(tmp_path, now, AT_ONCE) == {"b"}


@pytest.mark.parametrize("days", [-30, -8])
def test_vacuum_clock_behind_deletes_nothing_early(tmp_path: Path, days: int) -> None:
    now = replaced(tmp_path, days)
    assert run(tmp_path, now) == {"0", "1"}
    assert run(tmp_path, now + 6 * DAY) == {"0", "1"}
    assert run(tmp_path, now + 8 * DAY) == {"1"}


class SlowClock(FaultyStore):
    """A store whose clock is right, where that of this machine is 30 days ahead."""

    def info(self, name: str) -> ObjectInfo | None:
        found = super().info(name)
        return None if found is None else earlier(found)

    def list(self, folder: str, *, hidden: bool = False) -> builtins.list[ObjectInfo]:
        return [earlier(one) for one in super().list(folder, hidden=hidden)]


def earlier(file: ObjectInfo) -> ObjectInfo:
    return type(file)(file.name, file.size, file.modified - 30 * DAY)


def test_vacuum_by_clock_ahead_deletes_nothing_early(tmp_path: Path) -> None:
    truth = utc_now() - 30 * DAY
    version = versions.make_version(tmp_path, clock=Clock(truth))
    versions.append(version, "0")
    versions.rebuild(version, "0", "1")
    versions.write_shard(version, "orphan")
    report = vacuum(SlowClock(open_store(tmp_path)), DATASET, dry_run=False)
    assert report.files == []
    assert vacuum(tmp_path, DATASET, retention=DAY, clock=Clock(truth + 2 * DAY)).files


@pytest.mark.sweep(keep=1, of="clocks")
@pytest.mark.parametrize("seed", range(8))
def test_vacuum_random_clocks_keep_what_was_released_lately(tmp_path: Path, seed: int) -> None:
    """Processes whose clocks are days apart, and a store with a right one: the truth."""
    draw = random.Random(seed)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    root = tmp_path / "root"
    log = root / DATASET / "v1" / "log"
    released: dict[str, datetime] = {}
    honest: set[str] = set()
    seen: set[str] = set()

    def stamp() -> None:
        """Let the store's clock show the truth."""
        for path in log.glob("*.json"):
            if path.name not in seen:
                seen.add(path.name)
                os.utime(path, (now.timestamp(),) * 2)

    versions.append(versions.make_version(root, clock=Clock(now)), "0")
    stamp()
    labels = ["0"]
    for _ in range(drawn(40)):
        now += timedelta(days=draw.choice([0, 0.5, 3]))
        off = draw.choice([-30, -3, 0, 0, 0, 3, 30])
        writer = at(root, now + timedelta(days=off))
        if draw.random() < 0.7:
            freed = labels[-1]
            labels.append(str(len(labels)))
            versions.rebuild(writer, [freed], labels[-1])
        else:
            freed = draw.choice(sorted(there(root)))
            writer.tag("t", labels.index(freed) + 1)
            writer.tag("t", None)
        released[freed] = now
        honest.difference_update({freed})
        honest.update({freed} if off <= 0 else ())
        stamp()
        before = there(root)
        left = run(root, now)
        stamp()
        for label in before - left:
            assert released[label] <= now - WEEK, label
        for label in (honest & left) - {labels[-1]}:
            assert released[label] >= now - WEEK, label
