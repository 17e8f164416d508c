"""What people and runs do to a version, as data: each step can be taken on a real one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shardline.log.append_change import Append
from shardline.log.model import Checks, Source
from tests.log import versions
from tests.log.versions import CHECKS

if TYPE_CHECKING:
    from shardline.api import Version


class Step(Protocol):
    """One thing that someone does."""

    def take(self, version: Version) -> None:
        """Do it."""
        ...


@dataclass(frozen=True)
class Appended:
    labels: str
    retry: bool = False

    def take(self, version: Version) -> None:
        versions.append(version, *self.labels, retry_rejected=self.retry)


@dataclass(frozen=True)
class Dropped:
    """An append of which nothing is left."""

    labels: str

    def take(self, version: Version) -> None:
        assert versions.append(version, *self.labels) is None


@dataclass(frozen=True)
class LandedFile:
    """An append of a file that a landing folder has under one path, with these bytes."""

    label: str
    path: str = "landing/today.csv"
    lands: bool = True

    def take(self, version: Version) -> None:
        sha256 = versions.shard_of(self.label).sha256
        source = Source(path=self.path, size=len(self.label), sha256=sha256)
        shard = versions.write_shard(version, self.label, source=source)
        entry = version.commit(Append(shards=[shard], sources=[source]))
        assert (entry is not None) == self.lands


@dataclass(frozen=True)
class Passed:
    """Every shard check passed, or those that are told."""

    labels: str
    checks: tuple[str, ...] = CHECKS.shard

    def take(self, version: Version) -> None:
        versions.attest_shards(version, *self.labels, checks=self.checks)


@dataclass(frozen=True)
class Failed:
    """A shard check failed and nobody rejected anything."""

    labels: str
    check: str = "integrity"

    def take(self, version: Version) -> None:
        versions.attest_shards(version, *self.labels, passed=False, checks=(self.check,))


@dataclass(frozen=True)
class SnapshotPassed:
    snapshot: int

    def take(self, version: Version) -> None:
        versions.attest_snapshot(version, self.snapshot)


@dataclass(frozen=True)
class SnapshotFailed:
    """A snapshot check failed and nobody rejected anything."""

    snapshot: int

    def take(self, version: Version) -> None:
        versions.attest_snapshot(version, self.snapshot, passed=False)


@dataclass(frozen=True)
class Rejected:
    """A blocking check failed: on shards if labels are told, else on the snapshot itself."""

    snapshot: int
    labels: str = ""

    def take(self, version: Version) -> None:
        if self.labels:
            told = versions.shard_results(self.labels, passed=False, checks=("integrity",))
        else:
            told = [versions.snapshot_result(version, self.snapshot, passed=False)]
        version.reject(self.snapshot, told)


@dataclass(frozen=True)
class Restored:
    snapshot: int

    def take(self, version: Version) -> None:
        assert version.restore(self.snapshot) is not None


@dataclass(frozen=True)
class Rebuilt:
    labels: str
    into: str

    def take(self, version: Version) -> None:
        versions.rebuild(version, self.labels, self.into)


@dataclass(frozen=True)
class Erased:
    labels: str

    def take(self, version: Version) -> None:
        versions.erase(version, self.labels)


@dataclass(frozen=True)
class Required:
    shard: tuple[str, ...] = ()
    snapshot: tuple[str, ...] = ()

    def take(self, version: Version) -> None:
        version.require(Checks(self.shard, self.snapshot))
