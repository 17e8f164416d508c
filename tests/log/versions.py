"""Small versions for tests: real shard files of a few bytes, each known by a label of its own.

A label is the whole content of a shard's file and the name of its source, so a list of labels tells
what a snapshot holds.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shardline.api import Version
from shardline.errors import ObjectExistsError
from shardline.log.append_change import Append
from shardline.log.changes import Derive, Replace, build_entry
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.log.model import Added, Attestation, Checks, CommitInfo, Shard, Source
from shardline.log.version import utc_now
from shardline.schema.schema import Feature, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from shardline.api import Snapshot
    from shardline.log.changes import Change
    from shardline.log.entry import Entry
    from shardline.log.state import State
    from shardline.storage import Store

NAME = "digits/v1"
SCHEMA = Schema((Feature("x", "int64"),))
OTHER_SCHEMA = Schema((Feature("y", "float"),))
CHECKS = Checks(("integrity", "schema"))
TABLES = (
    *(
        "shard_history",
        "snapshot_history",
        "sources",
        "open_sources",
        "shard_names",
        "appended_sources",
    ),
    "sidecars",
)
WITH_SNAPSHOT_CHECK = Checks(("integrity", "schema"), ("counts",))


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: datetime = field(default_factory=lambda: datetime(2026, 3, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        """The time."""
        return self.now

    def move(self, **much: float) -> None:
        """Let time pass: `move(days=8)`."""
        self.now += timedelta(**much)


def make_version(
    root: Store | Path | str,
    name: str = NAME,
    *,
    checks: Checks = CHECKS,
    clock: Callable[[], datetime] = utc_now,
) -> Version:
    """A version that exists and holds nothing yet."""
    version = Version(root, name, clock=clock)
    version.create(SCHEMA, checks)
    return version


def shard_name(label: str, version: str = "v1") -> str:
    """The name of the shard of a label."""
    return f"{version}.{hashlib.sha256(label.encode()).hexdigest()[:32]}.tfrecord"


def source_of(label: str) -> Source:
    """The source of a label: a batch of that name."""
    return Source(batch=label)


def shard_of(label: str, version: str = "v1", *, source: Source | None = None) -> Shard:
    """The shard of a label, as many records as the label has letters; its file is not written."""
    data = label.encode()
    return Shard(
        shard_name(label, version),
        len(label),
        len(data),
        hashlib.sha256(data).hexdigest(),
        source=None if source is None else source.key,
    )


def write_shard(version: Version, label: str, *, source: Source | None = None) -> Shard:
    """The shard of a label, with its file; one that is there already is used again."""
    shard = shard_of(label, version.log.version, source=source)
    try:
        version.store.create(version.shard_name(shard), label.encode())
    except ObjectExistsError:
        assert version.store.read(version.shard_name(shard)) == label.encode()
    return shard


def append(version: Version, *labels: str, retry_rejected: bool = False) -> Entry | None:
    """Append one shard for each label."""
    for label in labels:
        write_shard(version, label, source=source_of(label))
    return version.commit(
        append_of(*labels, version=version.log.version, retry_rejected=retry_rejected)
    )


def append_of(*labels: str, version: str = "v1", retry_rejected: bool = False) -> Append:
    """The append of one shard for each label; the files are not written."""
    sources = [source_of(label) for label in labels]
    shards = [shard_of(label, version, source=source_of(label)) for label in labels]
    return Append(shards=shards, sources=sources, retry_rejected=retry_rejected)


def rebuild(version: Version, labels: Iterable[str], into: str) -> Entry | None:
    """Put one shard in the place of those with these labels."""
    write_shard(version, into)
    return version.commit(rebuild_of(labels, into, version.log.version))


def rebuild_of(labels: Iterable[str], into: str, version: str = "v1") -> Replace:
    """The rebuild of the shards of labels into one; the file is not written."""
    removed = [shard_name(label, version) for label in labels]
    return Replace(removed=removed, added=[shard_of(into, version)])


def erase(version: Version, labels: Iterable[str], *, head: int | None = None) -> Entry | None:
    """Take shards out of the list for good."""
    removed = [shard_name(label, version.log.version) for label in labels]
    head = version.state.snapshot if head is None else head
    return version.commit(Derive(head=head, removed=removed, added=[], operation="erase"))


def derive(version: Version, *labels: str, head: int) -> Entry | None:
    """Put shards behind the list of a version that was planned on the snapshot `head`."""
    added = [Added(write_shard(version, label)) for label in labels]
    return version.commit(Derive(head=head, removed=[], added=added, operation="extend"))


def shard_results(
    labels: Iterable[str],
    *,
    passed: bool = True,
    checks: Iterable[str] = CHECKS.shard,
    version: str = "v1",
) -> list[Attestation]:
    """What shard checks say about the shards of labels."""
    names = tuple(shard_name(label, version) for label in labels)
    return results_of(names, passed=passed, checks=checks)


def results_of(
    names: tuple[str, ...], *, passed: bool = True, checks: Iterable[str] = CHECKS.shard
) -> list[Attestation]:
    """What shard checks say about the shards of these names."""
    return [Attestation(check, passed, names) for check in checks]


def snapshot_result(
    version: Version, snapshot: int, *, passed: bool = True, check: str = "counts"
) -> Attestation:
    """What a snapshot check says about a snapshot."""
    return Attestation(check, passed, content=version.snapshot(snapshot).content)


def attest_shards(
    version: Version, *labels: str, passed: bool = True, checks: Iterable[str] = CHECKS.shard
) -> Entry | None:
    """Attest the shards of labels."""
    owner = version.log.version
    return version.attest(shard_results(labels, passed=passed, checks=checks, version=owner))


def attest_snapshot(version: Version, snapshot: int, *, passed: bool = True) -> Entry | None:
    """Attest a snapshot itself."""
    return version.attest([snapshot_result(version, snapshot, passed=passed)])


def grow(version: Version, changes: Iterable[Change], *, checkpoints_from: int = 0) -> Version:
    """Commit changes as fast as they can be sealed, and open the version again.

    Nothing is synced and no shard is looked at.
    """
    log, state = version.log, version.state
    for change in changes:
        made = build_entry(
            state, change, id="0" * 32, now=utc_now(), commit_info=CommitInfo("test")
        )
        if made is None:
            continue
        state, entry, data = made
        path = log.store.local_path(log.entry_name(entry.number))
        if path is None:
            log.store.create(log.entry_name(entry.number), data)
        else:
            path.write_bytes(data)
        if entry.number % CHECKPOINT_INTERVAL == 0 and entry.number >= checkpoints_from:
            log.write_checkpoint(state)
    return Version(log.store, version.name)


def held(version: Version, snapshot: Snapshot | None = None) -> list[str]:
    """The labels that a snapshot holds, the newest unless told, as its files have them."""
    shown = snapshot or version.latest()
    return [version.store.read(version.shard_name(shard)).decode() for shard in shown.shards]


def names_at(state: State, snapshot: int) -> list[str]:
    """The names of a snapshot's shards, by the log alone."""
    return [interval.shard.name for interval in state.shard_history.at(snapshot)]


def facts_of(state: State) -> dict[str, object]:
    """All that a state knows, its tables included, in values that can be compared."""
    told = {one.name: getattr(state, one.name) for one in fields(state) if one.name != "checkpoint"}
    for name in TABLES:
        told[name] = told[name].to_table().to_pydict()
    return told
