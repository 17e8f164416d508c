"""Export: write the records of a snapshot to a single file under a stable path.

The sidecar `NAME.export` describes the file, so that a repeated export has nothing to do. Readers
see the old file or the new one, never a part.
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
from shardline.log.version import validate_version
from shardline.operations.rebuild import choose_compression, copy_slices
from shardline.operations.shard_slice import list_whole_slices
from shardline.readers.records import list_records
from shardline.report import Report
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.tfrecord.writer import RecordSink

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.canonical_json import Json
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
    """Content of an exported file, as its sidecar stores it. `modified` is its time in ns."""

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
class ExportReport(Report):
    """Result of an export: the content of the file. `written` is False if it was current."""

    path: Path
    exported: ExportRecord
    written: bool

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {"file": str(self.path), "written": self.written, **self.exported.to_dict()}


@dataclass(frozen=True, slots=True)
class ExportTask:
    """Shards to copy to a file.

    `claim` is stored in the sidecar before the file gets its name, so that an interrupted export
    can be repeated.
    """

    store: Store
    slices: tuple[ShardSlice, ...]
    path: Path
    compression: Compression
    limits: Limits
    claim: ExportRecord | None = None

    step: ClassVar[str] = "exporting"

    @property
    def label(self) -> str:
        """Name for progress and messages."""
        return str(self.path)

    @property
    def size(self) -> int:
        """Number of bytes to read."""
        return sum(part.bytes for part in self.slices)


def export(
    version: StoredVersion,
    path: Path | str,
    *,
    snapshot: str | int = "published",
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    executor: Executor | None = None,
    progress: ProgressListener | None = None,
) -> ExportReport:
    """Write the records of a snapshot to a file, unless it contains them already.

    Args:
        version: The version to read.
        path: The file to write. An earlier export of the same version is replaced.
        snapshot: Snapshot to read: "published", "latest", a number, a tag or a time.
        compression: "none" or "gzip". By default that of the earlier export, else of the shards.
        overwrite: Replace any existing file.
        limits: Limits of what is read.
        executor: Runs the task. By default on threads.
        progress: Called with the progress of the task.

    Raises:
        FileExistsAlreadyError: If the file exists and is not an export of the version.
        CorruptFileError: If a record is corrupt. The file does not change.

    Example:
        export(root["digits/v1"], "digits.tfrecord")
    """
    validate_version(version=version)
    path = parse_local_path(path)
    version.refresh()
    source = version.find(snapshot)
    before = read_export(path)
    if compression is None and before is not None:
        compression = before.compression
    packing = choose_compression(source, compression)
    if before is not None and _is_current(path, before, source, packing):
        return ExportReport(path, before, written=False)
    is_own = before is not None and before.version == version.name
    if (path.exists() or path.is_symlink()) and not overwrite and not is_own:
        raise FileExistsAlreadyError(
            f"{path}: the file exists and is not an export of {version.name}",
            hint=Hint.of("choose another name, or set ", Option("overwrite", value=True)),
            path=path,
            version=version.name,
        )
    claim = ExportRecord(
        version.name, source.number, source.content, packing.value, 0, 0, "", modified=0
    )
    task = ExportTask(
        version.store,
        tuple(list_whole_slices(source)),
        path,
        packing,
        limits,
        None if is_own else claim,
    )
    try:
        (written,) = (executor or ThreadExecutor()).run(_write_file, [task], progress)
    except ObjectNotFoundError:
        for records in list_records(source):
            records.look()  # raises an error with the reason, if a file was deleted
        raise
    exported = replace(
        claim,
        records=written.records,
        bytes=written.bytes,
        sha256=written.sha256,
        modified=path.stat().st_mtime_ns,
    )
    _write_sidecar(path, exported)
    return ExportReport(path, exported, written=True)


def _write_sidecar(path: Path, exported: ExportRecord) -> None:
    with DurableFile(_get_sidecar_path(path), overwrite=True) as file:
        file.write(canonical.encode(exported.to_dict()) + b"\n")


def _get_sidecar_path(path: Path) -> Path:
    return path.with_name(path.name + ".export")


def read_export(path: Path) -> ExportRecord | None:
    """Return the content of the sidecar of an exported file; None if there is no valid one."""
    try:
        data = _get_sidecar_path(path).read_bytes()
        return ExportRecord.from_dict(canonical.decode(data.removesuffix(b"\n")))
    except (OSError, ValueError):
        return None


def _is_current(
    path: Path, exported: ExportRecord, snapshot: StoredSnapshot, compression: Compression
) -> bool:
    """Return True if the file is unchanged and has the records of the snapshot."""
    if not path.is_file():
        return False
    status = path.stat()
    return (
        exported.bytes,
        exported.modified,
        exported.version,
        exported.content,
        exported.compression,
    ) == (
        status.st_size,
        status.st_mtime_ns,
        snapshot.version,
        snapshot.content,
        compression.value,
    )


def _write_file(task: ExportTask, running: TaskContext) -> WrittenFile:
    with DurableFile(task.path, overwrite=True) as file:
        with closing(RecordSink(file, task.compression, aside=running.workers > 1)) as sink:
            copy_slices(task.store, task.slices, sink, task.limits, running)
            written = sink.finish()
        if task.claim is not None:
            _write_sidecar(task.path, task.claim)
    return written
