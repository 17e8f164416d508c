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
    WrongShardError,
)
from shardline.hints import Command, Hint
from shardline.readers.content import is_committed, refuse_other_content, refuse_swapped
from shardline.readers.picked import pick
from shardline.readers.read_errors import became_of, split_snapshot, told_below
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.open_file import LocalFile, StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, Block, Limits, Picked, RecordFile, whole_block

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot

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
        StorageError if its bytes or records are not as many as the log says, and WrongShardError
        if it is another file than the committed one: at the start, or at the end if its index is
        lost.
        """
        try:
            file = self.file.open()
        except ObjectMissingError:
            raise self.missing() from None
        packed = Compression(self.shard.compression) if self.shard.bytes else Compression.NONE
        records = 0
        with closing(file):
            self._check("bytes", file.size, self.shard.bytes)
            is_small = packed is Compression.NONE and file.size <= block_bytes
            content = file.pread(file.size, 0) if is_small and isinstance(file, LocalFile) else None
            same = is_committed(self, file, content)
            if same is False:
                refuse_other_content(self, limits)
            hashed = HashedFile(file) if same is None else None
            whole = None if content is None or hashed else whole_block(content, limits)
            if whole is not None:
                records = len(whole.starts)
                yield whole
            else:
                read = RecordFile(
                    hashed or file, limits=limits, block_bytes=block_bytes, compression=packed
                )
                blocks = read.blocks()
                while (block := self._next(blocks)) is not None:
                    records += len(block.starts)
                    yield block
            digest = self.shard.sha256 if hashed is None else hashed.finish()
        if digest != self.shard.sha256:
            raise self.other_content()
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

    def refuse_swapped(self, limits: Limits = DEFAULT_LIMITS) -> None:
        """Refuse a file that is not the committed one, for those who read it by other means."""
        refuse_swapped(self, limits)

    def other_content(self) -> WrongShardError:
        """The error to raise if the file is intact, and not the committed one."""
        version, number = split_snapshot(self.snapshot)
        return WrongShardError(
            f"{self.path}: not the committed shard of {self.snapshot} (other content)",
            hint=Hint.of(self._verify(), " to see which files are affected"),
            path=self.path,
            version=version,
            snapshot=number,
        )

    def missing(self) -> ObjectMissingError:
        """The error to raise if the file is not there."""
        owner = f"{self.snapshot.partition('/')[0]}/{self.shard.owner}"
        deleted = became_of(self.file.store, owner, self.shard)
        version, number = split_snapshot(self.snapshot)
        hint = Hint.of("read another snapshot")
        if not deleted:
            hint = Hint.of(self._verify(), " to see which files are affected, or ", hint)
        return ObjectMissingError(
            f"{self.path}: missing shard of {self.snapshot}{deleted and f' ({deleted})'}",
            hint=hint,
            path=self.path,
            version=version,
            snapshot=number,
        )

    def _check(self, what: str, found: int, told: int) -> None:
        if found != told:
            version, number = split_snapshot(self.snapshot)
            raise StorageError(
                f"{self.path}: not the committed shard of {self.snapshot} "
                f"(expected {told} {what}, got {found})",
                code="shard-mismatch",
                hint=Hint.of(self._verify(), " to see which files are affected"),
                path=self.path,
                version=version,
                snapshot=number,
            )

    def _verify(self) -> Hint:
        return Hint.run("verify", self.snapshot)


def shard_file(snapshot: StoredSnapshot, shard: Shard) -> ShardFile:
    """A shard of a snapshot, or one that those lie beside, as a file."""
    return ShardFile(str(snapshot), shard, StoredFile(snapshot.store, snapshot.shard_name(shard)))


def plain_files(snapshot: StoredSnapshot) -> list[ShardFile]:
    """The files of a snapshot, in order, each with whole records; overlays are refused."""
    _refuse_overlays(snapshot)
    return [shard_file(snapshot, shard) for shard in snapshot.shards]


def one_compression(snapshot: StoredSnapshot) -> str:
    """How all shards are packed, as TensorFlow spells it; refused if that is not one way.

    A file of no bytes is read alike whatever it is said to be.
    """
    _refuse_overlays(snapshot)
    found = sorted({shard.compression for shard in snapshot.shards if shard.bytes})
    if len(found) > 1:
        raise UnreadableSnapshotError(
            f"{snapshot}: shards have several compressions ({', '.join(found)})",
            code="mixed-compression",
            hint=Hint.of(
                "a TFRecordDataset takes a single compression: read with `to_tf()`, or run ",
                Command.of("rebuild", snapshot.version),
            ),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    return TF_COMPRESSIONS[found[0]] if found else ""


def _refuse_overlays(snapshot: StoredSnapshot) -> None:
    for shard in snapshot.shards:
        if shard.virtual:
            raise UnreadableSnapshotError(
                f"{snapshot}: virtual snapshot has no record files (plan {shard.name})",
                code="virtual-snapshot",
                hint=_rewrite_hint(snapshot, "which computes the pairs"),
                path=snapshot.shard_name(shard),
                version=snapshot.version,
                snapshot=snapshot.number,
            )
        if shard.base is not None:
            raise UnreadableSnapshotError(
                f"{snapshot}: overlay files do not contain whole records "
                f"(overlay {shard.name}, base {shard.base.name})",
                code="overlay-snapshot",
                hint=_rewrite_hint(snapshot, "which joins the layers"),
                path=snapshot.shard_name(shard),
                version=snapshot.version,
                snapshot=snapshot.number,
            )


def _rewrite_hint(snapshot: StoredSnapshot, why: str) -> Hint:
    """Return the two ways to whole records: `to_tf`, or plain files in another version."""
    rebuild = Command.of("rebuild", snapshot.version, "--into", "VERSION")
    return Hint.of(f"read with `to_tf()`, {why}, or write plain files: run ", rebuild)
