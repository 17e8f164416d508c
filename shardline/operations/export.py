"""Export: a snapshot as one file under a stable path, which is replaced when the version moves on.

Beside the file lies `NAME.export`, which says what is in it, so that nothing is done when nothing
is new. Whoever reads the file sees the old one or the new one, whole.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from shardline import canonical_json as canonical
from shardline.arguments import parse_local_path
from shardline.codec import JsonObject
from shardline.errors import FileExistsAlreadyError, ObjectNotFoundError
from shardline.execution.executor import ThreadExecutor
from shardline.hints import Hint, Option
from shardline.log.version import refuse_no_version
from shardline.operations.rebuild import choose_compression, copy_slices
from shardline.operations.shard_slice import list_whole_slices
from shardline.readers.records import list_records
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.tfrecord.writer import RecordSink

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.execution.executor import Executor, ProgressListener, TaskContext
    from shardline.log.snapshot import StoredSnapshot
    from shardline.log.version import StoredVersion
    from shardline.operations.shard_slice import ShardSlice
    from shardline.storage import Store
    from shardline.tfrecord.compression import Compression
    from shardline.tfrecord.reader import Limits
    from shardline.tfrecord.writer import WrittenFile


@dataclass(frozen=True, slots=True)
class ExportRecord(JsonObject):
    """What an exported file holds, as it is told beside it. `modified` is the file's time."""

    json_label: ClassVar = "an export"
    version: str
    snapshot: int
    content: str
    compression: str
    records: int
    bytes: int
    sha256: str
    modified: int


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What is in the file now; `written` is False if it was there already."""

    path: Path
    exported: ExportRecord
    written: bool


@dataclass(frozen=True, slots=True)
class ExportTask:
    """A snapshot's shards to be copied into a file.

    `claim` is what to say beside it before it has its name, so that it is known as an export even
    if nothing more can be said.
    """

    store: Store
    slices: tuple[ShardSlice, ...]
    path: Path
    compression: Compression
    limits: Limits
    claim: ExportRecord | None = None

    step = "exporting"

    @property
    def label(self) -> str:
        """What people call it."""
        return str(self.path)

    @property
    def size(self) -> int:
        """How many bytes it reads."""
        return sum(piece.bytes for piece in self.slices)


def export(
    version: StoredVersion,
    path: Path | str,
    which: str | int = "published",
    *,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> ExportReport:
    """Write the records of a snapshot to one file, unless it holds just them already.

    It is packed as the export before it was, or else as the shards are, unless `compression` is
    told. A file that is there is replaced if it is an earlier export of the same version,
    whatever it is if `overwrite` is set, and else refused. Raises CorruptFileError at a damaged
    record; the file is then as it was.
    """
    refuse_no_version(version=version)
    path = parse_local_path(path)
    version.refresh()
    snapshot = version.find(which)
    before = read_export(path)
    if compression is None and before is not None:
        compression = before.compression  # whoever reads the path reads it as it was
    packing = choose_compression(snapshot, compression)
    if before is not None and _is_current(path, before, snapshot, packing):
        return ExportReport(path, before, written=False)
    ours = before is not None and before.version == version.name
    if (path.exists() or path.is_symlink()) and not overwrite and not ours:
        raise FileExistsAlreadyError(
            f"{path}: the file exists and is not an export of {version.name}",
            hint=Hint.of("choose another name, or set ", Option("overwrite", value=True)),
            path=path,
            version=version.name,
        )
    claim = ExportRecord(
        version.name, snapshot.number, snapshot.content, packing.value, 0, 0, "", modified=0
    )
    task = ExportTask(
        version.store,
        tuple(list_whole_slices(snapshot)),
        path,
        packing,
        limits,
        None if ours else claim,
    )
    try:
        (written,) = (executor or ThreadExecutor()).run(_write, [task], progress)
    except ObjectNotFoundError:
        for records in list_records(snapshot):
            records.look()  # says what became of the one that is gone
        raise
    exported = replace(
        claim,
        records=written.records,
        bytes=written.bytes,
        sha256=written.sha256,
        modified=path.stat().st_mtime_ns,
    )
    _write_record(path, exported)
    return ExportReport(path, exported, written=True)


def _write_record(path: Path, exported: ExportRecord) -> None:
    with DurableFile(_get_record_path(path), overwrite=True) as told:
        told.write(canonical.encode(exported.to_dict()) + b"\n")


def _get_record_path(path: Path) -> Path:
    return path.with_name(path.name + ".export")


def read_export(path: Path) -> ExportRecord | None:
    """What is told beside a file of what was exported to it; None if nothing is."""
    try:
        told = canonical.decode(_get_record_path(path).read_bytes().removesuffix(b"\n"))
        return ExportRecord.from_dict(told)
    except (OSError, ValueError):
        return None


def _is_current(
    path: Path, told: ExportRecord, snapshot: StoredSnapshot, packing: Compression
) -> bool:
    """Whether the file is the one that is told of, and holds what is wanted."""
    if not path.is_file():
        return False
    status = path.stat()
    return (told.bytes, told.modified, told.version, told.content, told.compression) == (
        status.st_size,
        status.st_mtime_ns,
        snapshot.version,
        snapshot.content,
        packing.value,
    )


def _write(task: ExportTask, running: TaskContext) -> WrittenFile:
    with DurableFile(task.path, overwrite=True) as file:
        with closing(RecordSink(file, task.compression, aside=running.workers > 1)) as sink:
            copy_slices(task.store, task.slices, sink, task.limits, running)
            written = sink.finish()
        if task.claim is not None:
            _write_record(task.path, task.claim)
    return written
