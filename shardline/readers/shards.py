"""The shards of a snapshot as files: which there are, and their records, held against the log."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from shardline.errors import (
    DamagedFileError,
    ObjectMissingError,
    StorageError,
    UnreadableSnapshotError,
)
from shardline.files.compression import Compression
from shardline.files.reader import DEFAULT_LIMITS, Block, Limits, RecordFile
from shardline.files.stored import StoredFile
from shardline.readers.below import became_of, told_below
from shardline.readers.picked import Picked, pick

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from shardline.kernel.types import IntArray
    from shardline.log.facts import Shard
    from shardline.log.snapshot import Snapshot

Some = TypeVar("Some", Block, Picked)

TF_COMPRESSIONS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
"""As TensorFlow spells them. What it does not know, `gzip` too, it silently reads as plain."""


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A shard that a snapshot needs and where it lies. `snapshot` is that as people name it."""

    snapshot: str
    shard: Shard
    file: StoredFile

    @property
    def path(self) -> str:
        """Its path on a local disk, or else its URI."""
        local = self.file.store.local_path(self.file.name)
        return str(self.file if local is None else local)

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """The files that are read for its records."""
        return (self,)

    def look(self) -> None:
        """Refuse a file that is not there, or not as long as the log says, without reading it."""
        info = self.file.store.info(self.file.name)
        if info is None:
            raise self.missing()
        self._check("bytes", info.size, self.shard.bytes)

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[Block, None, None]:
        """Every record, in blocks whose checksums were checked.

        Raises DamagedFileError at the first damage, ObjectMissingError if the file is not there,
        and StorageError if its bytes or records are not as many as the log says.
        """
        try:
            file = self.file.open()
        except ObjectMissingError:
            raise self.missing() from None
        packed = Compression(self.shard.compression) if self.shard.bytes else Compression.NONE
        records = 0
        with RecordFile(file, limits=limits, block_bytes=block_bytes, compression=packed) as opened:
            self._check("bytes", file.size, self.shard.bytes)
            blocks = opened.blocks()
            while (block := self._next(blocks)) is not None:
                records += len(block.starts)
                yield block
        self._check("records", records, self.shard.records)

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[Picked, None, None]:
        """The records of these numbers, which ascend, some at a time; the checksums of each hold.

        Raises as `blocks` does.
        """
        some = pick(self, numbers, limits=limits)
        with closing(some):
            while (picked := self._next(some)) is not None:
                yield picked

    def _next(self, some: Iterator[Some]) -> Some | None:
        """What comes next; at damage to a shard of another version it is told how to go on."""
        try:
            return next(some, None)
        except DamagedFileError as error:
            raise told_below(self.snapshot, self.file.store, (self,), error) from None

    def missing(self) -> ObjectMissingError:
        """The error to raise if the file is not there."""
        owner = f"{self.snapshot.partition('/')[0]}/{self.shard.owner}"
        gone = became_of(self.file.store, owner, self.shard)
        told = gone or f"'shardline verify {self.snapshot}' tells what became of it; or"
        return ObjectMissingError(
            f"{self.path} is not there, and {self.snapshot} needs it: {told} read another snapshot"
        )

    def _check(self, what: str, found: int, told: int) -> None:
        if found != told:
            raise StorageError(
                f"{self.path} has {found} {what}, and by the log it has {told}: it is not the file "
                f"that was committed, and {self.snapshot} needs that; 'shardline verify "
                f"{self.snapshot}' tells which others are not"
            )


def shard_file(snapshot: Snapshot, shard: Shard) -> ShardFile:
    """A shard of a snapshot, or one that those lie beside, as a file."""
    return ShardFile(str(snapshot), shard, StoredFile(snapshot.store, snapshot.shard_name(shard)))


def plain_files(snapshot: Snapshot) -> list[ShardFile]:
    """The files of a snapshot, in order, each with whole records; overlays are refused."""
    _refuse_overlays(snapshot)
    return [shard_file(snapshot, shard) for shard in snapshot.shards]


def one_compression(snapshot: Snapshot) -> str:
    """How all shards are packed, as TensorFlow spells it; refused if that is not one way.

    A file of no bytes is read alike whatever it is said to be.
    """
    _refuse_overlays(snapshot)
    found = sorted({shard.compression for shard in snapshot.shards if shard.bytes})
    if len(found) > 1:
        raise UnreadableSnapshotError(
            f"the shards of {snapshot} are packed in several ways ({', '.join(found)}), and a "
            "TFRecordDataset takes one for all its files: use to_tf(), which reads each as it is, "
            "or make them one with 'rebuild'"
        )
    return TF_COMPRESSIONS[found[0]] if found else ""


def _refuse_overlays(snapshot: Snapshot) -> None:
    for shard in snapshot.shards:
        if shard.virtual:
            raise UnreadableSnapshotError(
                f"{snapshot} is virtual: there is a plan ({shard.name}) and no file of its pairs. "
                "Read it as it is with to_tf(), which makes them, or write them to plain files "
                f"with 'shardline rebuild {snapshot.version} --into' another version"
            )
        if shard.base is not None:
            raise UnreadableSnapshotError(
                f"{snapshot} has overlays, whose files do not hold whole records ({shard.name} "
                f"lies beside {shard.base.name}): read it as it is with to_tf(), which joins them, "
                f"or fold them into plain files with 'shardline rebuild {snapshot.version} --into' "
                "another version"
            )
