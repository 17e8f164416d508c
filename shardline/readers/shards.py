"""The shards of a snapshot as files: which there are, and their records, held against the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import ObjectMissingError, StorageError, UnreadableSnapshotError
from shardline.files.compression import Compression
from shardline.files.reader import Block, Limits, RecordFile
from shardline.files.stored import StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.facts import Shard
    from shardline.log.snapshot import Snapshot

TF_COMPRESSIONS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
"""As TensorFlow spells them. What it does not know, `gzip` too, it silently reads as plain."""


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A shard of a snapshot and where it lies. `snapshot` is that as people name it."""

    snapshot: str
    shard: Shard
    file: StoredFile

    @property
    def path(self) -> str:
        """Its path on a local disk, or else its URI."""
        local = self.file.store.local_path(self.file.name)
        return str(self.file if local is None else local)

    def look(self) -> None:
        """Refuse a file that is not there, or not as long as the log says, without reading it."""
        info = self.file.store.info(self.file.name)
        if info is None:
            raise self._missing()
        self._check("bytes", info.size, self.shard.bytes)

    def blocks(self, *, limits: Limits, block_bytes: int) -> Iterator[Block]:
        """Every record, in blocks whose checksums were checked.

        Raises DamagedFileError at the first damage, ObjectMissingError if the file is not there,
        and StorageError if its bytes or records are not as many as the log says.
        """
        try:
            file = self.file.open()
        except ObjectMissingError:
            raise self._missing() from None
        packed = Compression(self.shard.compression) if self.shard.bytes else Compression.NONE
        records = 0
        with RecordFile(file, limits=limits, block_bytes=block_bytes, compression=packed) as opened:
            self._check("bytes", file.size, self.shard.bytes)
            for block in opened.blocks():
                records += len(block.starts)
                yield block
        self._check("records", records, self.shard.records)

    def _missing(self) -> ObjectMissingError:
        return ObjectMissingError(
            f"{self.path} is not there, and {self.snapshot} needs it: 'shardline verify "
            f"{self.snapshot}' tells what became of it; or read another snapshot"
        )

    def _check(self, what: str, found: int, told: int) -> None:
        if found != told:
            raise StorageError(
                f"{self.path} has {found} {what}, and by the log of {self.snapshot} it has {told}: "
                f"it is not the file that was committed; 'shardline verify {self.snapshot}' tells "
                "which others are not"
            )


def shard_files(snapshot: Snapshot) -> list[ShardFile]:
    """The files of a snapshot, in order; overlays are refused."""
    files = []
    for shard in snapshot.shards:
        if shard.base is not None:
            raise UnreadableSnapshotError(
                f"{snapshot} has overlays ({shard.name} lies beside {shard.base.name}): this "
                "release cannot read them, a later one will; fold them in with 'rebuild', or read "
                "the snapshot that they were made of"
            )
        file = StoredFile(snapshot.store, snapshot.shard_name(shard))
        files.append(ShardFile(str(snapshot), shard, file))
    return files


def one_compression(snapshot: Snapshot) -> str:
    """How all shards are packed, as TensorFlow spells it; refused if that is not one way.

    A file of no bytes is read alike whatever it is said to be.
    """
    found = sorted({shard.compression for shard in snapshot.shards if shard.bytes})
    if len(found) > 1:
        raise UnreadableSnapshotError(
            f"the shards of {snapshot} are packed in several ways ({', '.join(found)}), and a "
            "TFRecordDataset takes one for all its files: use to_tf(), which reads each as it is, "
            "or make them one with 'rebuild'"
        )
    return TF_COMPRESSIONS[found[0]] if found else ""
