"""Rebuild loose TFRecord files: one file of them, or files of a target size in a new folder."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline import kernel
from shardline.arguments import (
    parse_local_path,
    parse_local_paths,
    validate_files_differ,
    validate_minimum,
)
from shardline.errors import (
    ExampleError,
    FileExistsAlreadyError,
    InvalidArgumentError,
    MixedPayloadsError,
    UnsyncedWriteError,
)
from shardline.hints import Hint
from shardline.operations.shard_slice import copy_file
from shardline.storage.durable_file import DurableFile, open_folder
from shardline.storage.temporary_files import claim_file, remove_stale_files
from shardline.tfrecord.compression import Compression, get_frame_ends, parse_compression
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile
from shardline.tfrecord.writer import RecordSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from shardline.schema.schema import Payload
    from shardline.tfrecord.record_block import RecordBlock
    from shardline.tfrecord.writer import WrittenFile

_LOOKED_AT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class WrittenFilesReport:
    """What was written: the files, and how much is in them together."""

    files: tuple[Path, ...]
    records: int
    bytes: int
    compression: Compression


def rebuild_files(
    paths: Sequence[Path | str],
    out: Path | str,
    *,
    target_bytes: int | None = None,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    allow_mixed: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[Path, int], None] | None = None,
) -> WrittenFilesReport:
    """Copy the records of files, in order and byte for byte, into one file, or several in a folder.

    With `target_bytes`, `out` is a new folder, which must not be there. Its files have at most so
    many bytes each, as long as no record is larger; packed ones end soon after they have so many.
    The output is packed as the inputs are if all are plain or all
    are GZIP, else not, unless told. Raises CorruptFileError at damage, and leaves nothing behind.

    Raises MixedPayloadsError if some files begin with Examples and others with SequenceExamples or
    other payloads, unless `allow_mixed`; InvalidArgumentError if a file is named twice.
    """
    files, out = parse_local_paths(paths), parse_local_path(out, "out")
    if not files:
        raise InvalidArgumentError("no files to rebuild", code="missing-argument")
    validate_files_differ(files)
    wanted = None if compression is None else parse_compression(compression)
    starts = [_FileStart.of(path, limits) for path in files]
    found = {one.compression for one in starts} - {None}
    packing = wanted or (Compression.GZIP if found == {Compression.GZIP} else Compression.NONE)
    if not allow_mixed:
        _validate_same_kind(starts)
    if target_bytes is None:
        written = _write_single_file(files, out, packing, limits, progress, overwrite=overwrite)
        return WrittenFilesReport((out,), written.records, written.bytes, packing)
    validate_minimum("target_bytes", target_bytes, 1)
    return _write_folder(files, out, packing, target_bytes, limits=limits, progress=progress)


@dataclass(frozen=True, slots=True)
class _FileStart:
    """What a file begins with; None where it could be anything."""

    path: Path
    compression: Compression | None
    payload: Payload | None

    @classmethod
    def of(cls, path: Path, limits: Limits) -> _FileStart:
        with RecordFile(path, limits=limits, block_bytes=_LOOKED_AT_BYTES) as file:
            compression = file.compression if file.stream.size else None
            return cls(path, compression, _infer_payload(next(iter(file.blocks()), None)))


def _infer_payload(block: RecordBlock | None) -> Payload | None:
    if block is None:
        return None
    try:
        facts = kernel.facts(block.data, block.starts, block.lengths)
    except ExampleError:
        return "opaque"
    if any(fact.sequence for fact in facts):
        return "sequence_example"
    return "example" if facts else None


def _validate_same_kind(starts: Iterable[_FileStart]) -> None:
    """Refuse files whose records no reader would expect in one file."""
    first: _FileStart | None = None
    for one in starts:
        if one.payload is None:
            continue
        first = first or one
        if first.payload is not None and one.payload != first.payload:
            raise MixedPayloadsError(str(first.path), first.payload, str(one.path), one.payload)


def _write_single_file(
    files: Sequence[Path],
    out: Path,
    packing: Compression,
    limits: Limits,
    progress: Callable[[Path, int], None] | None,
    *,
    overwrite: bool,
) -> WrittenFile:
    with DurableFile(out, overwrite=overwrite) as file:
        sink = RecordSink(file, packing)
        for path in files:
            copy_file(path, sink, limits=limits, tell=_tell(path, progress))
        return sink.finish()


def _tell(
    path: Path, progress: Callable[[Path, int], None] | None
) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda read, _records: progress(path, read)


def _write_folder(
    files: Sequence[Path],
    out: Path,
    packing: Compression,
    target: int,
    *,
    limits: Limits,
    progress: Callable[[Path, int], None] | None,
) -> WrittenFilesReport:
    """Fill a hidden folder beside the final one, and give it its name when it is whole."""
    if out.exists() or out.is_symlink():
        raise FileExistsAlreadyError(
            f"{out}: the output exists", hint=Hint.of("choose another name"), path=out
        )
    with _open_hidden_folder(out) as hidden:
        return _fill(hidden, files, out, packing, target, limits=limits, progress=progress)


@contextmanager
def _open_hidden_folder(out: Path) -> Iterator[Path]:
    """A new folder next to `out`, locked, after those that dead processes left are deleted."""
    try:
        above = open_folder(out.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "no such folder", str(out.parent)) from None
    with ExitStack() as opened:
        opened.callback(os.close, above)
        remove_stale_files(above, out.name)
        while True:
            hidden = out.parent / f".{out.name[:48]}.{secrets.token_hex(6)}.tmp"
            hidden.mkdir()
            try:
                descriptor = open_folder(hidden)
            except FileNotFoundError:
                continue  # Taken for abandoned.
            opened.callback(os.close, descriptor)
            if claim_file(descriptor, str(hidden)):
                break
        yield hidden


def _fill(
    hidden: Path,
    files: Sequence[Path],
    out: Path,
    packing: Compression,
    target: int,
    *,
    limits: Limits,
    progress: Callable[[Path, int], None] | None,
) -> WrittenFilesReport:
    parts = _FilesWriter(hidden, packing, target)
    try:
        for path in files:
            tell = _tell(path, progress)
            with RecordFile(path, limits=limits) as file:
                for block in file.blocks():
                    parts.add(block)
                    if tell is not None:
                        tell(file.stream.position, 0)
        written = parts.end()
        names = [f"part-{at:05}-of-{len(written):05}.tfrecord" for at in range(len(written))]
        for at, name in enumerate(names):
            (hidden / parts.name(at)).rename(hidden / name)
        _sync(hidden)
        # A folder takes the place of an empty one at most: nothing can be overwritten.
        hidden.rename(out)
    except BaseException as error:
        parts.abandon(error)
        with suppress(OSError):
            shutil.rmtree(hidden)
        raise
    try:
        _sync(out.parent)
    except OSError as error:
        raise UnsyncedWriteError(
            f"{out}: written, but the disk did not confirm it ({error.strerror})",
            hint=Hint.of("check the disk: after a crash the output may be missing"),
            path=out,
        ) from error
    return WrittenFilesReport(
        tuple(out / name for name in names),
        sum(part.records for part in written),
        sum(part.bytes for part in written),
        packing,
    )


def _sync(folder: Path) -> None:
    descriptor = open_folder(folder)
    try:
        os.fsync(descriptor)
    except OSError as error:
        error.filename = str(folder)
        raise
    finally:
        os.close(descriptor)


class _FilesWriter:
    """Files that are filled one after the other."""

    def __init__(self, folder: Path, packing: Compression, target: int) -> None:
        self._folder = folder
        self._packing = packing
        self._target = target
        self._written: list[WrittenFile] = []
        self._file: DurableFile | None = None
        self._sink: RecordSink | None = None

    def name(self, at: int) -> str:
        return f"part-{at:05}"

    def add(self, block: RecordBlock) -> None:
        ends = get_frame_ends(block.starts, block.lengths)
        done, offset = 0, 0
        while done < len(ends):
            sink = self._open()
            count = sink.fitting(ends[done:] - offset, self._target)
            if not count:
                self._close()
                continue
            end = int(ends[done + count - 1])
            piece = slice(done, done + count)
            sink.add(block.data[offset:end], block.starts[piece] - offset, block.lengths[piece])
            done, offset = done + count, end

    def _open(self) -> RecordSink:
        if self._sink is None:
            # Nobody else has this folder. A file that is moved to its name, and not linked,
            # leaves no second name behind, which could not be taken away any more.
            path = self._folder / self.name(len(self._written))
            self._file = DurableFile(path, overwrite=True)
            self._sink = RecordSink(self._file, self._packing)
        return self._sink

    def _close(self) -> None:
        if self._sink is not None and self._file is not None:
            self._written.append(self._sink.finish())
            file, self._sink, self._file = self._file, None, None
            file.__exit__(None, None, None)

    def abandon(self, error: BaseException) -> None:
        """Let go of the one that is being filled."""
        if self._file is not None:
            self._file.__exit__(type(error), error, error.__traceback__)
            self._sink = self._file = None

    def end(self) -> list[WrittenFile]:
        """Close the last one; there is one even if there was no record."""
        if not self._written:
            self._open()
        self._close()
        return self._written
