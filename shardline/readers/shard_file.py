"""Whether the file of a shard is the committed one: by its ends, or by reading all of it.

A small file is hashed and compared with the committed sha256; its index is not used. Of a large
file, the index tells the checksum of the first and last bytes. If these agree, the file is taken to
be the committed one: a swapped file differs there. If they do not, or there is no good index, the
file is read whole and compared with the committed sha256.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shardline import kernel
from shardline.errors import (
    CorruptFileError,
    IndexMismatchError,
    ObjectNotFoundError,
    StorageError,
    UnreadableSnapshotError,
    WrongShardError,
)
from shardline.hints import Command, Hint
from shardline.kernel.types import FRAME_BYTES
from shardline.readers.read_errors import describe_fate, locate_error, split_snapshot
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import (
    compute_fingerprint,
    compute_stored_fingerprint,
    fill_index,
    fingerprint_in,
    read_fingerprint,
    read_offsets,
)
from shardline.tfrecord.indexed_file import IndexedFile
from shardline.tfrecord.open_file import LocalFile, StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile
from shardline.tfrecord.record_block import RecordBlock, whole_block

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.tfrecord.open_file import OpenFile
    from shardline.tfrecord.reader import Limits


SMALL_BYTES = 64 * 1024
"""A shard up to this size is hashed at once, which costs no more than to open its index."""


def is_committed(file: ShardFile, opened: OpenFile, content: bytes | None = None) -> bool | None:
    """Compare a small shard, or the ends of a large one; None if that has no good index.

    `content` is all that the file holds, if the caller has read it.
    """
    stored, shard = file.file, file.shard
    if shard.bytes <= SMALL_BYTES:
        data = opened.pread(shard.bytes, 0) if content is None else content
        return hashlib.sha256(data).hexdigest() == shard.sha256
    known = read_fingerprint(stored.store, stored.name, shard.bytes, shard.sha256, opened)
    if known is None:
        return None
    if content is not None:
        return fingerprint_in(content) == known
    if isinstance(opened, LocalFile):
        return compute_fingerprint(opened, shard.bytes) == known
    return compute_stored_fingerprint(stored.store, stored.name, shard.bytes) == known


def refuse_swapped(file: ShardFile, limits: Limits) -> None:
    """Refuse a file that is not the committed shard, before any record of it is used.

    What is only damaged passes: reading it tells where. Raises WrongShardError.
    """
    with closing(file.file.open()) as opened:
        same = is_committed(file, opened)
    if same is None:
        rebuild_index(file, limits)
    elif not same:
        validate_full_content(file, limits)


def validate_full_content(file: ShardFile, limits: Limits) -> None:
    """Read a file whole. Raises WrongShardError if it is intact and not the committed shard."""
    hashed = HashedFile(file.file.open())
    try:
        with RecordFile(hashed, limits=limits) as opened:
            for _ in opened.blocks():
                pass
            digest = hashed.finish()
    except CorruptFileError:
        return
    if digest != file.shard.sha256:
        raise file.other_content()


def rebuild_index(file: ShardFile, limits: Limits) -> bool:
    """Read a shard whole and write its index again, if it may be written.

    Returns False if there is no new index: the shard is damaged, or the store is read-only. Raises
    WrongShardError if the file is intact and not the committed shard.
    """
    stored = file.file
    try:
        with (
            closing(HashedFile(stored.open())) as hashed,
            stored.store.writer(f"{stored.name}.index", derived=True) as index,
        ):
            fill_index(index, hashed, limits=limits, finish=hashed.finish)
            if hashed.finish() != file.shard.sha256:
                raise file.other_content()
    except CorruptFileError:
        return False
    except (StorageError, OSError):
        validate_full_content(file, limits)
        return False
    return True


_PIECE_BYTES = 1024 * 1024
_SPAN_BYTES = 32 * 1024 * 1024
"""Parts of an object that lie close together come in one answer, with what is between them."""


def select_records(
    file: ShardFile, numbers: IntArray, *, limits: Limits
) -> Generator[RecordBlock, None, None]:
    """See `ShardFile.pick`."""
    if not len(numbers):
        return
    file.look()
    read = _through_index(file)
    if read is None:
        yield from _streamed(file, numbers, limits)
        return
    done = 0
    try:
        for picked in read(file, numbers, limits):
            yield picked
            done += len(picked.numbers)
    except (IndexMismatchError, CorruptFileError) as error:
        # The index or the shard is corrupt: reading all of the shard tells which.
        if rebuild_index(file, limits):
            yield from read(file, numbers[done:], limits)
        elif isinstance(error, CorruptFileError):
            raise
        else:
            yield from _streamed(file, numbers[done:], limits)


def _through_index(
    file: ShardFile,
) -> Callable[[ShardFile, IntArray, Limits], Iterator[RecordBlock]] | None:
    """Return how to read a shard through its index; None if it has no random access.

    What it returns raises IndexMismatchError, maybe late, if the index is lost or corrupt.
    """
    if file.shard.bytes <= SMALL_BYTES:
        return None
    local = file.file.store.local_path(file.file.name) is not None
    if file.shard.compression == "none" and not local:
        return _from_afar
    return None if file.shard.compression == "zlib" or not local else _from_disk


def _from_disk(file: ShardFile, numbers: IntArray, limits: Limits) -> Iterator[RecordBlock]:
    with IndexedFile(file.path, limits=limits, sha256=file.shard.sha256) as indexed:
        if len(indexed) != file.shard.records:
            raise IndexMismatchError(f"{file.path}: index of another file", path=file.path)
        if indexed.is_plain:
            done = 0
            for data, starts, lengths in indexed.frames(numbers, _PIECE_BYTES):
                yield RecordBlock.select(data, starts, lengths, numbers[done : done + len(starts)])
                done += len(starts)
            return
        payloads: list[bytes] = []
        size = done = 0
        for first, last in _runs(numbers):
            for payload in indexed.read(first, last):
                payloads.append(payload)
                size += len(payload)
                if size >= _PIECE_BYTES:
                    yield _joined(payloads, numbers[done:])
                    done += len(payloads)
                    payloads, size = [], 0
        if payloads:
            yield _joined(payloads, numbers[done:])


def _runs(numbers: IntArray) -> Iterator[tuple[int, int]]:
    """Numbers that follow each other together, as the first and the one behind the last."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, cuts):
        yield int(run[0]), int(run[-1]) + 1


def _joined(payloads: list[bytes], numbers: IntArray) -> RecordBlock:
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    starts = np.cumsum(lengths) - lengths
    return RecordBlock.select(b"".join(payloads), starts, lengths, numbers[: len(payloads)])


def _from_afar(file: ShardFile, numbers: IntArray, limits: Limits) -> Iterator[RecordBlock]:
    """Parts of an object, each asked for with those near it."""
    with closing(file.file.open()) as opened:
        if not is_committed(file, opened):
            raise IndexMismatchError(f"{file.path}: index of another file", path=file.path)
    begins, ends = _spans(file, numbers)
    longest = limits.max_record_bytes + FRAME_BYTES
    if (ends - begins > longest).any():
        raise IndexMismatchError(f"{file.path}: index has too large records", path=file.path)
    first = 0
    while first < len(numbers):
        within = np.searchsorted(ends, begins[first] + _SPAN_BYTES, "right")
        some = slice(first, max(int(within), first + 1))
        ranges = list(zip(begins[some].tolist(), (ends - begins)[some].tolist(), strict=True))
        data = b"".join(file.file.store.read_ranges(file.file.name, ranges))
        scan = kernel.scan(data, max_record_bytes=limits.max_record_bytes)
        if scan.consumed != len(data) or len(scan.starts) != len(ranges):
            bad = first + min(len(scan.starts), len(ranges) - 1)
            raise CorruptFileError(
                file.path,
                "data-crc",
                int(numbers[bad]),
                int(begins[bad]),
                "the indexed record is not intact (corrupt file, or index of another file)",
            )
        yield RecordBlock.select(data, scan.starts, scan.lengths, numbers[some])
        first = some.stop


def _spans(file: ShardFile, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Where the frames of these records begin and end."""
    begins, ends = np.zeros_like(numbers), np.zeros_like(numbers)
    first = 0
    shard = file.shard
    stored = file.file
    known = read_offsets(stored.store, stored.name, shard.bytes, shard.records, shard.sha256)
    for offsets in known:
        for found, wanted in ((begins, numbers), (ends, numbers + 1)):
            low, high = np.searchsorted(wanted, (first, first + len(offsets)))
            found[low:high] = offsets[wanted[low:high] - first]
        first += len(offsets)
        if first > numbers[-1] + 1:
            break
    return begins, ends


def _streamed(file: ShardFile, numbers: IntArray, limits: Limits) -> Iterator[RecordBlock]:
    done = 0
    for block in file.blocks(limits=limits, block_bytes=_PIECE_BYTES):
        last = int(np.searchsorted(numbers, block.record + len(block.starts)))
        if last > done:
            chosen = numbers[done:last] - block.record
            yield RecordBlock.select(
                block.data, block.starts[chosen], block.lengths[chosen], numbers[done:last]
            )
        done = last
        if done == len(numbers):
            return


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

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Every record, in blocks whose checksums were checked.

        Raises CorruptFileError at the first damage, ObjectNotFoundError if the file is not there,
        StorageError if its bytes or records are not as many as the log says, and WrongShardError
        if it is another file than the committed one: at the start, or at the end if its index is
        lost.
        """
        try:
            file = self.file.open()
        except ObjectNotFoundError:
            raise self.missing() from None
        packed = Compression(self.shard.compression) if self.shard.bytes else Compression.NONE
        records = 0
        with closing(file):
            self._check("bytes", file.size, self.shard.bytes)
            is_small = packed is Compression.NONE and file.size <= block_bytes
            content = file.pread(file.size, 0) if is_small and isinstance(file, LocalFile) else None
            same = is_committed(self, file, content)
            if same is False:
                validate_full_content(self, limits)
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
    ) -> Generator[RecordBlock, None, None]:
        """The records of these numbers, which ascend, some at a time; the checksums of each hold.

        Raises as `blocks` does.
        """
        blocks = select_records(self, numbers, limits=limits)
        with closing(blocks):
            while (block := self._next(blocks)) is not None:
                yield block

    def _next(self, blocks: Iterator[RecordBlock]) -> RecordBlock | None:
        """What comes next; at damage to a shard of another version it is told how to go on."""
        try:
            return next(blocks, None)
        except CorruptFileError as error:
            raise locate_error(self.snapshot, self.file.store, (self,), error) from None

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

    def missing(self) -> ObjectNotFoundError:
        """The error to raise if the file is not there."""
        owner = f"{self.snapshot.partition('/')[0]}/{self.shard.owner}"
        deleted = describe_fate(self.file.store, owner, self.shard)
        version, number = split_snapshot(self.snapshot)
        hint = Hint.of("read another snapshot")
        if not deleted:
            hint = Hint.of(self._verify(), " to see which files are affected, or ", hint)
        return ObjectNotFoundError(
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


def open_shard_file(snapshot: StoredSnapshot, shard: Shard) -> ShardFile:
    """A shard of a snapshot, or one that those lie beside, as a file."""
    return ShardFile(str(snapshot), shard, StoredFile(snapshot.store, snapshot.shard_name(shard)))


def list_plain_files(snapshot: StoredSnapshot) -> list[ShardFile]:
    """The files of a snapshot, in order, each with whole records; overlays are refused."""
    _refuse_overlays(snapshot)
    return [open_shard_file(snapshot, shard) for shard in snapshot.shards]


def get_common_compression(snapshot: StoredSnapshot) -> str:
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
