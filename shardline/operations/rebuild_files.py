"""Rebuild standalone TFRecord files: one file, or files of a target size in a new folder."""

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
from shardline.report import Report
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

_START_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class WrittenFilesReport(Report):
    """Written files, with their total records and bytes."""

    files: tuple[Path, ...]
    records: int
    bytes: int
    compression: Compression


def rebuild_files(
    paths: Sequence[Path | str],
    output: Path | str,
    *,
    target_bytes: int | None = None,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    allow_mixed: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[Path, int], None] | None = None,
) -> WrittenFilesReport:
    """Copy the records of files in order into one file, or into several files in a new folder.

    Args:
        paths: The files to read.
        output: The file to write, or with `target_bytes` the folder to create.
        target_bytes: Size of a file. Compressed files and larger records exceed it.
        compression: "none" or "gzip". By default GZIP if all files are GZIP, otherwise none.
        overwrite: Replace an existing output file.
        allow_mixed: Accept files with different types of records.
        limits: Limits of what is read.
        progress: Called with a file and the bytes read from it.

    Raises:
        CorruptFileError: If a record is corrupt. No output is left.
        MixedPayloadsError: If the files begin with different types of records.
        InvalidArgumentError: If a file is named twice.

    Example:
        rebuild_files(["a.tfrecord", "b.tfrecord"], "all.tfrecord")
    """
    files, output = parse_local_paths(paths), parse_local_path(output, "output")
    if not files:
        raise InvalidArgumentError("no files to rebuild", code="missing-argument")
    validate_files_differ(files)
    starts = [_FileStart.of(path, limits) for path in files]
    present = {start.compression for start in starts} - {None}
    parsed = Compression.GZIP if present == {Compression.GZIP} else Compression.NONE
    if compression is not None:
        parsed = parse_compression(compression)
    if not allow_mixed:
        _validate_same_kind(starts)
    if target_bytes is None:
        written = _write_single_file(files, output, parsed, limits, progress, overwrite=overwrite)
        return WrittenFilesReport((output,), written.records, written.bytes, parsed)
    validate_minimum("target_bytes", target_bytes, 1)
    return _write_folder(files, output, parsed, target_bytes, limits=limits, progress=progress)


@dataclass(frozen=True, slots=True)
class _FileStart:
    """Compression and payload of the first records of a file, None without records."""

    path: Path
    compression: Compression | None
    payload: Payload | None

    @classmethod
    def of(cls, path: Path, limits: Limits) -> _FileStart:
        with RecordFile(path, limits=limits, block_bytes=_START_BYTES) as file:
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
    """Raise MixedPayloadsError if the files have different payloads."""
    first: _FileStart | None = None
    for start in starts:
        if start.payload is None:
            continue
        first = first or start
        if first.payload is not None and start.payload != first.payload:
            raise MixedPayloadsError(str(first.path), first.payload, str(start.path), start.payload)


def _write_single_file(
    files: Sequence[Path],
    output: Path,
    compression: Compression,
    limits: Limits,
    progress: Callable[[Path, int], None] | None,
    *,
    overwrite: bool,
) -> WrittenFile:
    with DurableFile(output, overwrite=overwrite) as file:
        sink = RecordSink(file, compression)
        for path in files:
            copy_file(path, sink, limits=limits, progress=_bind_progress(path, progress))
        return sink.finish()


def _bind_progress(
    path: Path, progress: Callable[[Path, int], None] | None
) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda read, _records: progress(path, read)


def _write_folder(
    files: Sequence[Path],
    output: Path,
    compression: Compression,
    target: int,
    *,
    limits: Limits,
    progress: Callable[[Path, int], None] | None,
) -> WrittenFilesReport:
    """Write files to a hidden folder, and rename it when it is complete."""
    if output.exists() or output.is_symlink():
        raise FileExistsAlreadyError(
            f"{output}: the output exists", hint=Hint.of("choose another name"), path=output
        )
    with _open_hidden_folder(output) as hidden:
        return _write_files(
            hidden, files, output, compression, target, limits=limits, progress=progress
        )


@contextmanager
def _open_hidden_folder(output: Path) -> Iterator[Path]:
    """Create a locked folder next to `output`, after deleting those of dead processes."""
    try:
        parent = open_folder(output.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "no such folder", str(output.parent)) from None
    with ExitStack() as opened:
        opened.callback(os.close, parent)
        remove_stale_files(parent, output.name)
        while True:
            hidden = output.parent / f".{output.name[:48]}.{secrets.token_hex(6)}.tmp"
            hidden.mkdir()
            try:
                descriptor = open_folder(hidden)
            except FileNotFoundError:
                continue  # another process deleted it as stale
            opened.callback(os.close, descriptor)
            if claim_file(descriptor, str(hidden)):
                break
        yield hidden


def _write_files(
    hidden: Path,
    files: Sequence[Path],
    output: Path,
    compression: Compression,
    target: int,
    *,
    limits: Limits,
    progress: Callable[[Path, int], None] | None,
) -> WrittenFilesReport:
    writer = _FilesWriter(hidden, compression, target)
    try:
        for path in files:
            report = _bind_progress(path, progress)
            with RecordFile(path, limits=limits) as file:
                for block in file.blocks():
                    writer.add(block)
                    if report is not None:
                        report(file.stream.position, 0)
        written = writer.finish()
        count = len(written)
        names = [f"part-{index:05}-of-{count:05}.tfrecord" for index in range(count)]
        for index, name in enumerate(names):
            (hidden / writer.name(index)).rename(hidden / name)
        _sync(hidden)
        # Renaming a folder replaces an empty one at most: nothing can be overwritten.
        hidden.rename(output)
    except BaseException as error:
        writer.abandon(error)
        with suppress(OSError):
            shutil.rmtree(hidden)
        raise
    try:
        _sync(output.parent)
    except OSError as error:
        raise UnsyncedWriteError(
            f"{output}: written, but the disk did not confirm it ({error.strerror})",
            hint=Hint.of("check the disk: after a crash the output may be missing"),
            path=output,
        ) from error
    return WrittenFilesReport(
        tuple(output / name for name in names),
        sum(file.records for file in written),
        sum(file.bytes for file in written),
        compression,
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
    """Writer of consecutive files of a target size."""

    def __init__(self, folder: Path, compression: Compression, target: int) -> None:
        self._folder = folder
        self._packing = compression
        self._target = target
        self._written: list[WrittenFile] = []
        self._file: DurableFile | None = None
        self._sink: RecordSink | None = None

    def name(self, index: int) -> str:
        return f"part-{index:05}"

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
            part = slice(done, done + count)
            sink.add(block.data[offset:end], block.starts[part] - offset, block.lengths[part])
            done, offset = done + count, end

    def _open(self) -> RecordSink:
        if self._sink is None:
            # Renames instead of linking, which could leave a second name. No other process uses
            # this folder.
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
        """Discard the file that is being written."""
        if self._file is not None:
            self._file.__exit__(type(error), error, error.__traceback__)
            self._sink = self._file = None

    def finish(self) -> list[WrittenFile]:
        """Close the last file. Without records, there is one empty file."""
        if not self._written:
            self._open()
        self._close()
        return self._written
