"""Shard files, compared with the committed shard by their ends or in full.

A small file is hashed and compared with the committed SHA-256. Its index is not used. For a large
file, the index holds a checksum of the first and last bytes. If that matches, the file counts as
committed: a swapped file differs there. If it does not, or without a valid index, the whole file is
read and compared with the committed SHA-256.
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
from shardline.tfrecord.input_file import LocalFile, StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile
from shardline.tfrecord.record_block import RecordBlock, scan_block

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from shardline.kernel.types import IntArray
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.tfrecord.input_file import OpenFile
    from shardline.tfrecord.reader import Limits


SMALL_SHARD_BYTES = 64 * 1024
"""Largest shard that is hashed at once, which costs no more than opening its index."""


def is_committed(file: ShardFile, opened: OpenFile, content: bytes | None = None) -> bool | None:
    """Return True if a small shard, or the ends of a large shard, match the commit.

    Returns None for a large shard without a valid index. `content` is the content of the file, if
    the caller has read all of it.
    """
    stored, shard = file.file, file.shard
    if shard.bytes <= SMALL_SHARD_BYTES:
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


def validate_not_swapped(file: ShardFile, limits: Limits) -> None:
    """Raise WrongShardError for a file that is not the committed shard.

    The check comes before any record is used. A corrupt file passes: reading it locates the
    corruption.
    """
    with closing(file.file.open()) as opened:
        same = is_committed(file, opened)
    if same is None:
        rebuild_index(file, limits)
    elif not same:
        validate_full_content(file, limits)


def validate_full_content(file: ShardFile, limits: Limits) -> None:
    """Read a whole file. Raises WrongShardError if it is intact but not the committed shard."""
    hashed = HashedFile(file.file.open())
    try:
        with RecordFile(hashed, limits=limits) as opened:
            for _ in opened.blocks():
                pass
            digest = hashed.finish()
    except CorruptFileError:
        return
    if digest != file.shard.sha256:
        raise file.make_wrong_content_error()


def rebuild_index(file: ShardFile, limits: Limits) -> bool:
    """Read a whole shard, and rewrite its index if possible.

    Returns False without a new index: the shard is corrupt, or the store is read-only. Raises
    WrongShardError if the file is intact but not the committed shard.
    """
    stored = file.file
    try:
        with (
            closing(HashedFile(stored.open())) as hashed,
            stored.store.writer(f"{stored.name}.index", derived=True) as index,
        ):
            fill_index(index, hashed, limits=limits, finish=hashed.finish)
            if hashed.finish() != file.shard.sha256:
                raise file.make_wrong_content_error()
    except CorruptFileError:
        return False
    except (StorageError, OSError):
        validate_full_content(file, limits)
        return False
    return True


_PIECE_BYTES = 1024 * 1024
_SPAN_BYTES = 32 * 1024 * 1024
"""Nearby parts of an object come in one response, together with the gaps between them."""


def select_records(
    file: ShardFile, numbers: IntArray, *, limits: Limits
) -> Generator[RecordBlock, None, None]:
    """Yield selected records. See `ShardFile.pick`."""
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
        # The index or the shard is corrupt. Reading the whole shard shows which.
        if rebuild_index(file, limits):
            yield from read(file, numbers[done:], limits)
        elif isinstance(error, CorruptFileError):
            raise
        else:
            yield from _streamed(file, numbers[done:], limits)


def _through_index(
    file: ShardFile,
) -> Callable[[ShardFile, IntArray, Limits], Iterator[RecordBlock]] | None:
    """Return the function that reads a shard by its index. None without random access.

    The function raises IndexMismatchError, possibly late, if the index is missing or corrupt.
    """
    if file.shard.bytes <= SMALL_SHARD_BYTES:
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
    """Yield runs of consecutive numbers, each as its first number and its end."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, cuts):
        yield int(run[0]), int(run[-1]) + 1


def _joined(payloads: list[bytes], numbers: IntArray) -> RecordBlock:
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    starts = np.cumsum(lengths) - lengths
    return RecordBlock.select(b"".join(payloads), starts, lengths, numbers[: len(payloads)])


def _from_afar(file: ShardFile, numbers: IntArray, limits: Limits) -> Iterator[RecordBlock]:
    """Read selected records of an object, with nearby records in one request."""
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
        part = slice(first, max(int(within), first + 1))
        ranges = list(zip(begins[part].tolist(), (ends - begins)[part].tolist(), strict=True))
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
        yield RecordBlock.select(data, scan.starts, scan.lengths, numbers[part])
        first = part.stop


def _spans(file: ShardFile, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Return where the frames of these records begin and end."""
    begins, ends = np.zeros_like(numbers), np.zeros_like(numbers)
    first = 0
    shard = file.shard
    stored = file.file
    known = read_offsets(stored.store, stored.name, shard.bytes, shard.records, shard.sha256)
    for offsets in known:
        for cuts, marks in ((begins, numbers), (ends, numbers + 1)):
            low, high = np.searchsorted(marks, (first, first + len(offsets)))
            cuts[low:high] = offsets[marks[low:high] - first]
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
"""TensorFlow's names. Unknown names, including `gzip`, are silently read as plain."""


@dataclass(frozen=True, slots=True)
class ShardFile:
    """File of a shard that a snapshot needs.

    `snapshot` is the label of the snapshot, such as `digits/v1@3`.
    """

    snapshot: str
    shard: Shard
    file: StoredFile

    @property
    def path(self) -> str:
        """Path on a local disk, or else the URI."""
        local = self.file.store.local_path(self.file.name)
        return str(self.file if local is None else local)

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """Files that hold the records."""
        return (self,)

    def look(self) -> None:
        """Check that the file exists and has its logged size, without reading it."""
        info = self.file.store.info(self.file.name)
        if info is None:
            raise self.missing()
        self._check("bytes", info.size, self.shard.bytes)

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Yield all records in blocks with verified checksums.

        Raises CorruptFileError at the first corruption, and ObjectNotFoundError if the file is
        missing. Raises StorageError if its bytes or records differ in number from the log. Raises
        WrongShardError if it is not the committed file: at the start, or at the end if the index is
        missing.
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
            whole = None if content is None or hashed else scan_block(content, limits)
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
            raise self.make_wrong_content_error()
        self._check("records", records, self.shard.records)

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """Yield the records with these ascending numbers in pieces, with verified checksums.

        Raises the errors of `blocks`.
        """
        blocks = select_records(self, numbers, limits=limits)
        with closing(blocks):
            while (block := self._next(blocks)) is not None:
                yield block

    def _next(self, blocks: Iterator[RecordBlock]) -> RecordBlock | None:
        """Return the next item. Adds the snapshot and a hint to corruption errors."""
        try:
            return next(blocks, None)
        except CorruptFileError as error:
            raise locate_error(self.snapshot, self.file.store, (self,), error) from None

    def validate_not_swapped(self, limits: Limits = DEFAULT_LIMITS) -> None:
        """Raise WrongShardError if the file is not the committed shard.

        For callers that read the file by other means.
        """
        validate_not_swapped(self, limits)

    def make_wrong_content_error(self) -> WrongShardError:
        """Build the error for an intact file that is not the committed shard."""
        version, number = split_snapshot(self.snapshot)
        return WrongShardError(
            f"{self.path}: not the committed shard of {self.snapshot} (other content)",
            hint=Hint.of(self._verify(), " to see which files are affected"),
            path=self.path,
            version=version,
            snapshot=number,
        )

    def missing(self) -> ObjectNotFoundError:
        """Build the error for a missing file."""
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

    def _check(self, unit: str, actual: int, expected: int) -> None:
        if actual != expected:
            version, number = split_snapshot(self.snapshot)
            raise StorageError(
                f"{self.path}: not the committed shard of {self.snapshot} "
                f"(expected {expected} {unit}, got {actual})",
                code="shard-mismatch",
                hint=Hint.of(self._verify(), " to see which files are affected"),
                path=self.path,
                version=version,
                snapshot=number,
            )

    def _verify(self) -> Hint:
        return Hint.run("verify", self.snapshot)


def open_shard_file(snapshot: StoredSnapshot, shard: Shard) -> ShardFile:
    """Return the file of a shard of a snapshot, or of a shard below it."""
    return ShardFile(str(snapshot), shard, StoredFile(snapshot.store, snapshot.shard_name(shard)))


def list_plain_files(snapshot: StoredSnapshot) -> list[ShardFile]:
    """List the files of a snapshot in order. Raises UnreadableSnapshotError for overlays.

    Each file has whole records. Virtual snapshots, which have none, raise the same error.
    """
    _validate_no_overlays(snapshot)
    return [open_shard_file(snapshot, shard) for shard in snapshot.shards]


def get_common_compression(snapshot: StoredSnapshot) -> str:
    """Return TensorFlow's name for the compression of all shards.

    Raises UnreadableSnapshotError if the shards differ. An empty file fits any compression.
    """
    _validate_no_overlays(snapshot)
    names = sorted({shard.compression for shard in snapshot.shards if shard.bytes})
    if len(names) > 1:
        raise UnreadableSnapshotError(
            f"{snapshot}: shards have several compressions ({', '.join(names)})",
            code="mixed-compression",
            hint=Hint.of(
                "a TFRecordDataset takes a single compression: read with `to_tf()`, or run ",
                Command.of("rebuild", snapshot.version),
            ),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    return TF_COMPRESSIONS[names[0]] if names else ""


def _validate_no_overlays(snapshot: StoredSnapshot) -> None:
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


def _rewrite_hint(snapshot: StoredSnapshot, reason: str) -> Hint:
    """Return the hint for whole records: `to_tf`, or plain files in another version."""
    rebuild = Command.of("rebuild", snapshot.version, "--into", "VERSION")
    return Hint.of(f"read with `to_tf()`, {reason}, or write plain files: run ", rebuild)
