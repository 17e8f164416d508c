"""Verification of standalone TFRecord files, without changing anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.arguments import list_items
from shardline.errors import CorruptFileError, Fault
from shardline.execution.threads import divide_workers, run_tasks
from shardline.report import Report, to_json_value
from shardline.tfrecord.examples import find_example_faults, validate_examples
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.reader import DEFAULT_LIMITS, Corruption, Limits, RecordFile
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.canonical_json import Json
    from shardline.tfrecord.compression import Compression
    from shardline.tfrecord.input_file import Source


@dataclass(frozen=True, slots=True)
class FileReport(Report):
    """Result of verifying a file. `bytes` is its stored size.

    Of a file with faults, `records` counts the intact records that were found.
    """

    file: str
    records: int
    bytes: int
    compression: Compression
    faults: list[Fault] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return True if the file has no fault."""
        return not self.faults

    @property
    def foreign(self) -> str | None:
        """The format of a file that is not a TFRecord file; None for TFRecord files."""
        first = self.faults[0] if self.faults else None
        return first.detail if first is not None and first.kind == "not-tfrecord" else None

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {
            "file": self.file,
            "records": self.records,
            "bytes": self.bytes,
            "compression": self.compression.value,
            "ok": self.ok,
            "complete": self.ok,
            **({"format": self.foreign} if self.foreign else {}),
            "faults": to_json_value(self.faults),
        }


def verify_file(
    source: Source,
    *,
    examples: bool = False,
    every_fault: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> FileReport:
    """Verify both checksums of every record.

    Args:
        source: Path, or object in a store.
        examples: Also validate each payload as an Example.
        every_fault: Report every fault, not only the first.
        limits: Limits of records and decompression.
        workers: Number of threads.
        progress: Called with the position in the file.

    Example:
        >>> verify_file("train.tfrecord").ok
    """
    source = Path(source) if isinstance(source, str) else source
    with RecordFile(source, limits=limits) as file:
        size, compression = file.stream.size, file.compression
        if every_fault:
            records, faults = _find_every_fault(file, examples=examples, progress=progress)
            return FileReport(str(source), records, size, compression, faults)

    def check(block: RecordBlock) -> int:
        if examples:
            validate_examples(source, block)
        return len(block.starts)

    try:
        counts = map_blocks(source, check, limits=limits, workers=workers, progress=progress)
        return FileReport(str(source), sum(counts), size, compression, [])
    except CorruptFileError as error:
        fault = Fault(error.kind, error.record, error.offset, error.detail)
        return FileReport(str(source), error.record, size, compression, [fault])


def _find_every_fault(
    file: RecordFile, *, examples: bool, progress: Callable[[int], None] | None
) -> tuple[int, list[Fault]]:
    records = 0
    faults: list[Fault] = []
    for event in file.events(go_on=True):
        if isinstance(event, Corruption):
            faults.append(event.fault)
        elif isinstance(event, RecordBlock):
            records += len(event.starts)
            if examples:
                faults.extend(find_example_faults(event))
        if progress is not None:
            progress(file.stream.position)
    return records, faults


def verify_files(
    paths: Sequence[Path | str],
    *,
    examples: bool = False,
    every_fault: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[Path, int], None] | None = None,
) -> list[FileReport]:
    """Verify several files in parallel; the reports are in the order of the paths.

    See `verify_file`. `progress` is called with a path and the position in it.
    """
    paths = list(list_items(paths, "paths"))  # type: ignore[arg-type] # each is checked when opened
    file_workers = divide_workers(len(paths), workers)

    def verify_path(path: Path) -> FileReport:
        return verify_file(
            path,
            workers=file_workers,
            examples=examples,
            every_fault=every_fault,
            limits=limits,
            progress=None if progress is None else lambda position: progress(path, position),
        )

    return list(run_tasks(verify_path, [Path(path) for path in paths], workers=workers))
