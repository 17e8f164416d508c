"""Versions with any number of entries, written without syncing each."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.log.append_change import Append
from shardline.log.changes import Create, build_entry
from shardline.log.log import CHECKPOINT_INTERVAL, Log
from shardline.log.model import CommitInfo, Shard, Source
from shardline.log.state import State
from shardline.schema.schema import Feature, Schema
from shardline.storage.local_store import LocalStore

if TYPE_CHECKING:
    import builtins
    from collections.abc import Iterator, Sequence

    from shardline.log.changes import Change
    from shardline.storage import ObjectInfo

NAME = "digits/v1"
_DISK = Path("/var/tmp")  # noqa: S108 - a folder of our own is made in it
_SCHEMA = Schema((Feature("image", "bytes"), Feature("label", "int64")))
_SHARD = b"x"
_RECORDS = 1000
_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)


@contextmanager
def disk_folder() -> Iterator[Path]:
    """Yield a temporary folder on a disk: in memory, a sync costs nothing."""
    parent = _DISK if _DISK.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="shardline-bench-", dir=parent) as name:
        yield Path(name)


def append_of(number: int) -> Append:
    """Return an append of one shard."""
    digest = hashlib.sha256(b"%d" % number).hexdigest()
    source = Source(path=f"landing/{number:010}.jsonl", size=number, sha256=digest)
    name = f"v1.{digest[:32]}.tfrecord"
    shard = Shard(name, _RECORDS, len(_SHARD), digest, "none", source.key)
    return Append(shards=[shard], sources=[source])


def put_shards(root: Path, append: Append) -> None:
    """Write the files of an append."""
    for shard in append.shards:
        (root / "digits/shards" / shard.name).write_bytes(_SHARD)


def make_version(root: Path, appends: int, schema: Schema = _SCHEMA) -> None:
    """Write the log of a version after so many appends. Commits do not read the shards."""
    log = Log(LocalStore(root), *NAME.split("/"))
    (root / log.folder).mkdir(parents=True)
    (root / "digits/shards").mkdir()
    state = State(log.dataset, log.version)
    newest = (appends + 1) // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL
    for number in range(1, appends + 2):
        change: Change = Create(schema) if number == 1 else append_of(number)
        now = _BEGIN + timedelta(minutes=number)
        made = build_entry(
            state, change, id=f"{number:032x}", now=now, commit_info=CommitInfo("0.1.0")
        )
        if made is None:
            raise RuntimeError(f"entry {number} was not made")
        state, _, data = made
        (root / log.entry_name(number)).write_bytes(data)
        if newest - CHECKPOINT_INTERVAL <= number <= newest and number % CHECKPOINT_INTERVAL == 0:
            log.write_checkpoint(state)


class CountingStore(LocalStore):
    """Store that counts its requests, as an object store would bill them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.requests: Counter[str] = Counter()

    def read_many(self, names: Sequence[str]) -> builtins.list[bytes | None]:
        """Count a read for each."""
        self.requests["read"] += len(names)
        return super().read_many(names)

    def read_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        """Count a read for each part."""
        self.requests["read"] += len(ranges)
        return super().read_ranges(name, ranges)

    def info(self, name: str) -> ObjectInfo | None:
        """Count a look."""
        self.requests["look"] += 1
        return super().info(name)

    def create(self, name: str, data: bytes) -> None:
        """Count a write."""
        self.requests["write"] += 1
        super().create(name, data)

    def replace(self, name: str, data: bytes) -> None:
        """Count a write."""
        self.requests["write"] += 1
        super().replace(name, data)
