"""Snapshots: immutable states of a version, and the difference of two."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from shardline.errors import InvalidTypeError
from shardline.log.model import Totals
from shardline.report import Report
from shardline.schema.comparison import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.model import Checks, Shard
    from shardline.schema.comparison import SchemaDiff
    from shardline.schema.schema import Schema
    from shardline.storage import Store


@dataclass(frozen=True, eq=False)
class StoredSnapshot:
    """Immutable state of a version. `published` and `rejected` are as of when it was opened.

    `version` is the name of the version, `entry` the number of the log entry, `content` the digest
    of schema and shards, `checks` has the checks that publication needs. `list_shards` looks up the
    shards on first use. `shard_name` returns the path of a shard in `store`.
    """

    version: str
    number: int
    entry: int
    time: datetime
    totals: Totals
    content: str
    schema: Schema
    published: bool
    rejected: bool
    checks: Checks
    list_shards: Callable[[], tuple[Shard, ...]] = field(repr=False)
    store: Store = field(repr=False)
    shard_name: Callable[[Shard], str] = field(repr=False)

    @property
    def records(self) -> int:
        """Number of records."""
        return self.totals.records

    @property
    def bytes(self) -> int:
        """Bytes of its shards."""
        return self.totals.bytes

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """Shards, in order."""
        return self.list_shards()

    def with_shards(self, shards: Iterable[Shard]) -> Self:
        """Return the snapshot with only these shards, and their totals."""
        shards = tuple(shards)
        return replace(self, list_shards=lambda: shards, totals=Totals.of(shards))

    def __str__(self) -> str:
        return f"{self.version}@{self.number}"

    def to_dict(self) -> Json:
        """Return the snapshot as JSON values, without its shards."""
        return {
            "version": self.version,
            "snapshot": self.number,
            "entry": self.entry,
            "time": self.time.isoformat(),
            **self.totals.to_dict(),
            "content": self.content,
            "published": self.published,
            "rejected": self.rejected,
        }


@dataclass(frozen=True, slots=True)
class SnapshotDiff(Report):
    """Difference of two snapshots: what `new` has more or less than `old`."""

    old: StoredSnapshot
    new: StoredSnapshot
    added: tuple[Shard, ...]
    removed: tuple[Shard, ...]
    records: int
    bytes: int
    schema_diff: SchemaDiff


def diff(old: StoredSnapshot, new: StoredSnapshot) -> SnapshotDiff:
    """Compare two snapshots, of the same version or of two."""
    for name, snapshot in (("old", old), ("new", new)):
        if not isinstance(snapshot, StoredSnapshot):
            raise InvalidTypeError(f"{name}: expected a Snapshot, got {type(snapshot).__name__}")
    before = {shard.name for shard in old.shards}
    after = {shard.name for shard in new.shards}
    return SnapshotDiff(
        old,
        new,
        tuple(shard for shard in new.shards if shard.name not in before),
        tuple(shard for shard in old.shards if shard.name not in after),
        new.records - old.records,
        new.bytes - old.bytes,
        compare(old.schema, new.schema),
    )
