"""Errors of Shardline: a code for scripts, a message for people, a hint and the location."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, Self, TypeAlias, TypeVar

from shardline.hints import Command, Hint, Option, file_argument
from shardline.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_P = ParamSpec("_P")
_R = TypeVar("_R")

LogFault: TypeAlias = Literal[
    "missing-entry",
    "edited-entry",
    "moved-entry",
    "broken-chain",
    "back-dated-entry",
    "false-entry",
    "bad-checkpoint",
]
"""Faults of log entries and checkpoints.

An entry may be missing, edited, moved to another number, older than the previous entry, false, or
not linked to the previous entry. A checkpoint may differ from the replay of its log.
"""


class ShardlineError(Exception):
    """Base of all errors that Shardline raises on purpose. Errors can be pickled.

    `code` names the problem for scripts; `shardline.error_codes` lists all codes. `hint` is the
    remedy. The location is `path`, `record`, `offset`, `feature`, `version` and `snapshot`, each
    None if unknown. Credentials are redacted in all fields.
    """

    code: str = "error"
    hint: Hint | None = None
    path: str | None = None
    record: int | None = None
    offset: int | None = None
    feature: str | None = None
    version: str | None = None
    snapshot: int | None = None

    _DETAILS: ClassVar[tuple[str, ...]] = ()
    """Further attributes of a subclass in its JSON."""

    def __init__(  # noqa: D417 - the fields are described above
        self,
        *args: object,
        code: str | None = None,
        hint: Hint | None = None,
        path: Path | str | None = None,
        record: int | None = None,
        offset: int | None = None,
        feature: str | None = None,
        version: str | None = None,
        snapshot: int | None = None,
    ) -> None:
        """Build an error from its message, or from errno, message and file name.

        Args:
            args: Arguments of the builtin base class.
        """
        super().__init__(*(redact(arg) if isinstance(arg, str) else arg for arg in args))
        if code is not None:
            self.code = code
        self.path = None if path is None else redact(str(path))
        self.record = record
        self.offset = offset
        self.feature = feature
        self.version = version
        self.snapshot = snapshot
        if hint is not None:
            self.set_hint(hint)

    def set_hint(self, hint: Hint) -> Self:
        """Replace the hint, also where a traceback shows it."""
        self.hint = hint = hint.map(redact)
        self.__notes__ = [f"hint: {hint}"]
        return self

    @property
    def message(self) -> str:
        """The problem in one sentence, without the hint."""
        if isinstance(self, OSError) and self.strerror:
            where = "" if self.filename is None else f"{self.filename}: "
            return f"{where}{self.strerror}"
        return str(self)

    def describe(self) -> str:
        """Return message and hint as text, for places that show an error in one string."""
        return self.message if self.hint is None else f"{self.message}. Hint: {self.hint}"

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": None if self.hint is None else self.hint.to_dict(),
            **{name: _redacted(getattr(self, name)) for name in LOCATION},
            **{name: _redacted(getattr(self, name)) for name in self._DETAILS},
        }

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self, OSError):
            return super().__reduce__()  # type: ignore[return-value] # a tuple, for exceptions
        return _rebuild, (type(self), self.args, self.__dict__)


def _redacted(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a field without credentials, also if it was set later."""
    return redact(value) if isinstance(value, str) else value


def name_version(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Set the version of the errors of an operation, whose first argument is the version."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except ShardlineError as error:
            version = args[0] if args else kwargs.get("version")
            if error.version is None:
                error.version = getattr(version, "name", None)
            raise

    return run


LOCATION = ("path", "record", "offset", "feature", "version", "snapshot")
"""Fields of an error that locate the problem."""


def _rebuild(
    kind: type[ShardlineError], args: tuple[Any, ...], state: dict[str, Any]
) -> ShardlineError:
    """Rebuild a pickled error without running its constructor again."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidArgumentError(ShardlineError, ValueError):
    """Invalid argument."""

    code = "invalid-argument"


class InvalidTypeError(InvalidArgumentError, TypeError):
    """Argument of an invalid type."""

    code = "invalid-type"


class CorruptFileError(ShardlineError, ValueError):
    """Corrupt TFRecord file, or an unexpected file.

    The default hint is to salvage the file.
    """

    code = "corrupt-file"
    _DETAILS: ClassVar[tuple[str, ...]] = ("kind", "detail")

    record: int
    offset: int
    path: str

    def __init__(
        self,
        path: str,
        kind: FaultKind,
        record: int,
        offset: int,
        detail: str,
        *,
        code: str | None = None,
        hint: Hint | None = None,
    ) -> None:
        code = code or _FAULT_CODES.get(kind)
        problem = f"{kind} at record {record}, offset {offset}: {detail}"
        super().__init__(
            f"{path}: {f'not a TFRecord file ({detail})' if kind == 'not-tfrecord' else problem}",
            code=code,
            hint=salvage_hint(path, kind, code) if hint is None else hint,
            path=path,
            record=record,
            offset=offset,
        )
        self.kind = kind
        self.detail = detail

    @classmethod
    def of(cls, path: object, fault: Fault, *, code: str | None = None) -> CorruptFileError:
        """Build the error for a fault; `code` replaces the code of its kind."""
        if fault.kind == "not-tfrecord":
            return NotTFRecordError(str(path), fault.detail)
        where = (fault.record, fault.offset)
        return cls(str(path), fault.kind, *where, fault.detail, code=code)


class NotTFRecordError(CorruptFileError):
    """File of another format where a TFRecord file is needed; `format` names it."""

    code = "not-tfrecord"
    _DETAILS = ("kind", "detail", "format")

    def __init__(self, path: str, format: str) -> None:  # noqa: A002 - named like the field
        super().__init__(path, "not-tfrecord", 0, 0, format, hint=foreign_hint(path, format))
        self.format = format


_FAULT_CODES = {
    "example": "invalid-example",
    "oversized": "record-too-large",
    "not-tfrecord": "not-tfrecord",
}
_APPENDED = ("csv", "jsonl", "parquet", "arrow")
_IMAGES = ("png", "jpeg", "gif", "tiff", "webp")


def foreign_hint(path: str, format: str) -> Hint:  # noqa: A002 - named like the field
    """Return the hint for a file of another format."""
    if format.endswith("(not UTF-8)"):
        return Hint.of("convert the text to UTF-8 and append it to a version")
    if format.startswith(_APPENDED):
        return Hint.of("to make records of it, run ", Command.of("append", "NAME/VERSION", path))
    if format.startswith("json"):
        return Hint.of("write a JSON object per line and append the file to a version")
    if format in _IMAGES:
        return Hint.of("to make records of images, append their folder to a version")
    if "text" in format or "HTML" in format:
        return Hint.of("check the path")
    return Hint.of("extract or convert the file first")


def salvage_hint(path: str, kind: FaultKind, code: str | None = None) -> Hint | None:
    """Return the hint for a fault; None if salvage would change nothing."""
    if kind in {"example", "not-tfrecord"}:
        return None
    if code == "decompressed-too-large":
        return Hint.of("if the size is correct, raise ", Option("max_decompressed"))
    if kind == "oversized":
        return Hint.of("if the record is valid, raise ", Option("max_record"))
    return Hint.run("salvage", file_argument(path), "-o", "OUT")


class CorruptShardError(ShardlineError, ValueError):
    """Corrupt shard of a version; `problem` has the file and position."""

    code = "corrupt-shard"
    version: str

    def __init__(
        self,
        version: str,
        problem: str,
        *,
        path: str | None = None,
        record: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(
            problem,
            hint=Hint.run("repair", version),
            path=path,
            record=record,
            offset=offset,
            version=version,
        )
        self.problem = problem

    @classmethod
    def of(cls, version: str, error: CorruptFileError) -> CorruptShardError:
        """Build the error for a corrupt file that is a shard of a version."""
        return cls(
            version, error.message, path=error.path, record=error.record, offset=error.offset
        )


class WrongShardError(ShardlineError, ValueError):
    """Shard that differs from the committed file."""

    code = "shard-mismatch"


class ExampleError(ShardlineError, ValueError):
    """Payload that is not an Example or SequenceExample that every parser reads alike.

    `record` counts from the start of the block, `offset` from the start of the payload. The message
    never contains the payload.
    """

    code = "invalid-example"
    _DETAILS = ("detail",)
    record: int
    offset: int

    def __init__(self, record: int, offset: int, feature: str | None, detail: str) -> None:
        where = f"record {record}, byte {offset} of its payload"
        named = "" if feature is None else f", feature {feature!r}"
        super().__init__(f"{where}{named}: {detail}", record=record, offset=offset, feature=feature)
        self.detail = detail


class ColumnError(ShardlineError, ValueError):
    """Feature whose values do not fit the requested column."""

    code = "value-mismatch"
    _DETAILS = ("detail",)
    record: int
    feature: str

    def __init__(
        self,
        record: int,
        feature: str,
        detail: str,
        *,
        code: str | None = None,
        hint: Hint | None = None,
    ) -> None:
        super().__init__(
            f"record {record}, feature {feature!r}: {detail}",
            code=code,
            hint=hint,
            record=record,
            feature=feature,
        )
        self.detail = detail


class SourceError(ShardlineError, ValueError):
    """Source that cannot be read, or that changed while it was read."""

    code = "invalid-source"


class ChangedSourceError(ShardlineError, ValueError):
    """Appended path or batch that now has other content.

    `entry` appended it last.
    """

    code = "changed-since-append"
    _DETAILS = ("entry",)

    def __init__(
        self,
        message: str,
        entry: int,
        *,
        hint: Hint | None = None,
        path: str | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, path=path, version=version)
        self.entry = entry


class InvalidRecordsError(ShardlineError, ValueError):
    """More invalid rows than allowed.

    `bad` of `rows` rows are invalid, `refused` are those that the message lists. If `complete` is
    False, the work stopped early: at least `bad` of the first `rows` rows are invalid.
    """

    code = "invalid-rows"
    _DETAILS = ("bad", "rows", "complete", "reasons")

    def __init__(
        self,
        message: str,
        refused: tuple[object, ...],
        bad: int,
        rows: int,
        *,
        complete: bool = True,
        code: str | None = None,
        hint: Hint | None = None,
        path: str | None = None,
        record: int | None = None,
        feature: str | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(
            message,
            code=code,
            hint=hint,
            path=path,
            record=record,
            feature=feature,
            version=version,
        )
        self.refused = refused
        self.bad = bad
        self.rows = rows
        self.complete = complete

    @property
    def reasons(self) -> list[object]:
        """Invalid rows that the message lists, for JSON."""
        return list(self.refused)


class UDFError(ShardlineError, ValueError):
    """UDF or table join that does not produce the declared features."""

    code = "udf-error"


class BudgetError(ShardlineError, ValueError):
    """Operation that would exceed its budget. `pairs` and `bytes` are estimates."""

    code = "budget-exceeded"
    _DETAILS = ("pairs", "bytes")

    def __init__(self, message: str, pairs: int, size: int, *, hint: Hint | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pairs = pairs
        self.bytes = size


class CancelledError(ShardlineError):
    """Cancelled operation."""

    code = "cancelled"


class NothingToSalvageError(ShardlineError, ValueError):
    """File without an intact record."""

    code = "no-intact-record"


class MixedPayloadsError(InvalidArgumentError):
    """Input files of different payload kinds for a single output file.

    `payloads` are the kinds of `path` and of the first file that differs, `other_path`.
    """

    code = "mixed-payloads"
    _DETAILS = ("other_path", "payloads")

    def __init__(self, path: str, payload: str, other_path: str, other_payload: str) -> None:
        super().__init__(
            f"{other_path}: contains {_PAYLOADS[other_payload]}, "
            f"but {path} contains {_PAYLOADS[payload]}",
            hint=Hint.of("name files of a single kind, or set ", Option("allow_mixed", value=True)),
            path=path,
        )
        self.other_path = other_path
        self.payloads = (payload, other_payload)


_PAYLOADS = {
    "example": "Examples",
    "sequence_example": "SequenceExamples",
    "opaque": "other payloads",
}


class FileExistsAlreadyError(ShardlineError, FileExistsError):
    """Output file that exists already."""

    code = "file-exists"


class FolderNotFoundError(ShardlineError, FileNotFoundError):
    """Missing folder of an output."""

    code = "folder-not-found"


class NotAFolderError(ShardlineError, NotADirectoryError):
    """Path that is not a folder."""

    code = "not-a-folder"


class NotAFileError(ShardlineError, OSError):
    """Path of a folder, pipe or device instead of a file."""

    code = "not-a-file"


class IndexMismatchError(ShardlineError, ValueError):
    """Offset index that does not belong to its file."""

    code = "index-mismatch"


class KernelUnavailableError(ShardlineError, ImportError):
    """Requested kernel that cannot be loaded."""

    code = "kernel-unavailable"


class UnreadableSnapshotError(ShardlineError, ValueError):
    """Snapshot that cannot be read in the requested way."""

    code = "snapshot-unreadable"


class PackageMissingError(ShardlineError, ImportError):
    """Optional package that is not installed."""

    code = "package-missing"


class UnknownArgumentError(InvalidArgumentError, TypeError):
    """Unknown keyword argument."""

    code = "unknown-argument"


class InvalidNameError(ShardlineError, ValueError):
    """Invalid name, path or URI."""

    code = "invalid-name"


class StorageError(ShardlineError, OSError):
    """Failed storage request. The message never contains credentials.

    `transient` is True if a retry may succeed.
    """

    code = "storage-error"
    transient = False


class UnavailableError(StorageError):
    """Storage that did not answer, or asked for a later retry."""

    code = "storage-unavailable"
    transient = True


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """Missing object."""

    code = "object-not-found"


class ObjectExistsError(StorageError, FileExistsError):
    """Object to create that exists already."""

    code = "object-exists"


class CommitStateUnknownError(StorageError):
    """Write in an unknown state: the reply was lost, or the sync failed."""

    code = "commit-state-unknown"
    transient = True


class UnsyncedWriteError(CommitStateUnknownError):
    """Visible write that may not survive a power failure: the sync failed."""

    code = "unsynced-write"
    transient = False


class IncompleteOperationError(StorageError):
    """Operation that failed after a change and can be run again.

    `done` lists the completed changes.
    """

    code = "incomplete-operation"
    _DETAILS: ClassVar[tuple[str, ...]] = ("done",)
    done: tuple[str, ...] = ()


class VacuumStoppedError(IncompleteOperationError):
    """Vacuum that failed after a change.

    `announced` are the announced shards, `deleted` the deleted files, `released_pins` the released
    pins.
    """

    code = "vacuum-incomplete"
    _DETAILS: ClassVar[tuple[str, ...]] = ("announced", "deleted", "released_pins")
    announced: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    released_pins: tuple[str, ...] = ()


class ConditionsIgnoredError(StorageError):
    """Store on which create-if-absent overwrites, so concurrent commits could be lost."""

    code = "conditional-write-unsupported"


class LogError(ShardlineError):
    """Base of errors of a log."""

    code = "log-error"


class VersionNotFoundError(LogError, LookupError):
    """Missing version."""

    code = "version-not-found"


class SnapshotNotFoundError(LogError, LookupError):
    """Unknown snapshot, tag or time."""

    code = "snapshot-not-found"


class CorruptLogError(LogError, ValueError):
    """Log that differs from what was written. `entry` is the first corrupt entry."""

    code = "corrupt-log"
    _DETAILS = ("entry", "kind", "detail")
    version: str

    def __init__(
        self, version: str, entry: int, detail: str, kind: LogFault = "false-entry"
    ) -> None:
        super().__init__(
            f"{version}: entry {entry} of the log: {detail}",
            hint=Hint.run("verify", version),
            version=version,
        )
        self.entry = entry
        self.detail = detail
        self.kind = kind


class IncompleteLogError(LogError):
    """Log that is missing, or shorter than other logs, pins or checkpoints imply.

    Each item of `missing` has the `version`, the `snapshot`, `entry` or `shard`, and in `by` the
    object that refers to it. The error has the `version` and `snapshot` of the first.
    """

    code = "incomplete-log"
    _DETAILS = ("missing",)
    missing: tuple[dict[str, Any], ...] = ()

    def __init__(
        self,
        message: str,
        missing: tuple[dict[str, Any], ...] = (),
        *,
        hint: Hint | None = None,
        version: str | None = None,
        snapshot: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, version=version, snapshot=snapshot)
        self.missing = missing


class UnknownFormatError(LogError):
    """Log of a newer release, which this release must not change.

    `entry` is the number of the unreadable entry.
    """

    code = "unknown-format"
    _DETAILS = ("entry",)

    def __init__(
        self,
        message: str,
        entry: int | None = None,
        *,
        hint: Hint | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, version=version)
        self.entry = entry


class ConflictError(LogError):
    """Commit that conflicts with a concurrent commit. Nothing was changed."""

    code = "commit-conflict"


class TombstonedShardError(ConflictError):
    """Commit with tombstoned shards, whose names are `names`."""

    code = "tombstoned-shard"
    _DETAILS = ("names",)

    def __init__(
        self,
        message: str,
        names: tuple[str, ...],
        *,
        hint: Hint | None = None,
        version: str | None = None,
        snapshot: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint, version=version, snapshot=snapshot)
        self.names = names


class SchemaMismatchError(LogError, ValueError):
    """Data or declaration that does not fit the schema of a version."""

    code = "schema-mismatch"


class RecordNotFoundError(ShardlineError, IndexError):
    """Unknown record number."""

    code = "record-not-found"


class DagsterRecordMissingError(ShardlineError, LookupError):
    """DAGSTER_HOME folder without Dagster records."""

    code = "dagster-record-not-found"


FaultKind: TypeAlias = Literal[
    "length-crc",
    "data-crc",
    "truncated",
    "trailing-bytes",
    "oversized",
    "compression",
    "example",
    "not-tfrecord",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a TFRecord file: its kind, record, byte offset and detail."""

    kind: FaultKind
    record: int
    offset: int
    detail: str
