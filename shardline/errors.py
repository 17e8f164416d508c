"""The errors Shardline raises: a code for scripts, a message for people, a hint, and where."""

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
"""What can be wrong with an entry of a log: it is gone, its bytes are others, it stands where it
does not belong, it does not continue the one before, its time goes back, it says what cannot be
true; or the checkpoint made at it does."""


class ShardlineError(Exception):
    """Base of every error that Shardline raises on purpose. All can be sent between processes.

    `code` names the problem for scripts; `shardline.error_codes` lists all codes. `hint` is what
    to do next. The other fields say where the problem is, as far as that is known: `path`,
    `record`, `offset`, `feature`, `version` and `snapshot`. Credentials are left out of all.
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
    """Further attributes of a subclass that belong into its JSON."""

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
        """Make an error from its message, or from errno, message and file name.

        Args:
            args: what the builtin base class takes.
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


def _redacted(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can tell
    """Return a field without credentials: it may have been set after the error was made."""
    return redact(value) if isinstance(value, str) else value


def name_version(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Give errors of an operation on a version, its first argument, the name of the version."""

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
"""The fields of an error that say where the problem is."""


def _rebuild(
    kind: type[ShardlineError], args: tuple[Any, ...], state: dict[str, Any]
) -> ShardlineError:
    """Rebuild a pickled error without running its constructor again."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidArgumentError(ShardlineError, ValueError):
    """An argument that an operation does not accept."""

    code = "invalid-argument"


class InvalidTypeError(InvalidArgumentError, TypeError):
    """An argument of a type that an operation does not accept."""

    code = "invalid-type"


class CorruptFileError(ShardlineError, ValueError):
    """A corrupt TFRecord file, or a file that is not what the caller expects.

    Without a `hint`, the error suggests to salvage the file.
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
        """Build the error for a fault; `code` replaces that of the fault's kind."""
        if fault.kind == "not-tfrecord":
            return NotTFRecordError(str(path), fault.detail)
        where = (fault.record, fault.offset)
        return cls(str(path), fault.kind, *where, fault.detail, code=code)


class NotTFRecordError(CorruptFileError):
    """A file of another format where a TFRecord file is needed; `format` names it."""

    code = "not-tfrecord"
    _DETAILS = ("kind", "detail", "format")

    def __init__(self, path: str, format: str) -> None:  # noqa: A002 - the word for it
        super().__init__(path, "not-tfrecord", 0, 0, format, hint=foreign_hint(path, format))
        self.format = format


_FAULT_CODES = {
    "example": "invalid-example",
    "oversized": "record-too-large",
    "not-tfrecord": "not-tfrecord",
}
_APPENDED = ("csv", "jsonl", "parquet", "arrow")
_IMAGES = ("png", "jpeg", "gif", "tiff", "webp")


def foreign_hint(path: str, format: str) -> Hint:  # noqa: A002 - the word for it
    """Return what to do with a file of another format."""
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
    """Return what to do about a fault; None where salvage would change nothing."""
    if kind in {"example", "not-tfrecord"}:
        return None
    if code == "decompressed-too-large":
        return Hint.of("if the size is correct, raise ", Option("max_decompressed"))
    if kind == "oversized":
        return Hint.of("if the record is valid, raise ", Option("max_record"))
    return Hint.run("salvage", file_argument(path), "-o", "OUT")


class CorruptShardError(ShardlineError, ValueError):
    """A corrupt shard of a version: `problem` names the file and the position."""

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
    """A shard that is not the file that was committed."""

    code = "shard-mismatch"


class ExampleError(ShardlineError, ValueError):
    """A payload that is not an Example or SequenceExample on which every parser agrees.

    `record` counts from the start of the block that was looked at, `offset` from the start of
    the payload. The payload itself is never part of the message.
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
    """A feature whose values do not fit the column asked for."""

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
    """A source that cannot be read, or that changed while it was."""

    code = "invalid-source"


class ChangedSourceError(ShardlineError, ValueError):
    """A path or batch that has landed and now has other content.

    `entry` is the entry of its latest landing.
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
    """Rows that cannot become records of a version, more of them than were allowed.

    `bad` of `rows` rows were refused; those of them that are told in the message are `refused`.
    `complete` is False if the work stopped before it had tried every row: then `bad` is at least
    so many, of the first `rows` rows.
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
        """The refused rows that the message lists, for JSON."""
        return list(self.refused)


class FieldsError(ShardlineError, ValueError):
    """A function or a table that does not make the fields that were declared."""

    code = "udf-error"


class BudgetError(ShardlineError, ValueError):
    """Work that would write more than it may. `pairs` and `bytes` tell how much, about."""

    code = "budget-exceeded"
    _DETAILS = ("pairs", "bytes")

    def __init__(self, message: str, pairs: int, size: int, *, hint: Hint | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pairs = pairs
        self.bytes = size


class CancelledError(ShardlineError):
    """Work that was stopped because someone asked for that."""

    code = "cancelled"


class NothingToSalvageError(ShardlineError, ValueError):
    """A file in which no intact record was found."""

    code = "no-intact-record"


class MixedPayloadsError(InvalidArgumentError):
    """Files whose records are of different payload kinds, where one file is to be written.

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
    """A file that would have been overwritten."""

    code = "file-exists"


class FolderNotFoundError(ShardlineError, FileNotFoundError):
    """A folder that an output needs and that does not exist."""

    code = "folder-not-found"


class NotAFolderError(ShardlineError, NotADirectoryError):
    """A path that should be a folder and is something else."""

    code = "not-a-folder"


class NotAFileError(ShardlineError, OSError):
    """A path that should be a regular file: a folder, a pipe or a device."""

    code = "not-a-file"


class IndexMismatchError(ShardlineError, ValueError):
    """An offset index that does not belong to the file beside it."""

    code = "index-mismatch"


class KernelUnavailableError(ShardlineError, ImportError):
    """The kernel that was asked for by name cannot be loaded."""

    code = "kernel-unavailable"


class UnreadableSnapshotError(ShardlineError, ValueError):
    """A snapshot that cannot, or should not, be read in the way that was asked for."""

    code = "snapshot-unreadable"


class PackageMissingError(ShardlineError, ImportError):
    """A package that is only needed for what was asked for, and is not installed."""

    code = "package-missing"


class UnknownArgumentError(InvalidArgumentError, TypeError):
    """A keyword argument that an operation does not have."""

    code = "unknown-argument"


class InvalidNameError(ShardlineError, ValueError):
    """A name, path or URI that is refused before anything is done with it."""

    code = "invalid-name"


class StorageError(ShardlineError, OSError):
    """Storage that did not do what it was asked. The message never holds credentials.

    `transient` says that the same may well work when it is tried again a little later.
    """

    code = "storage-error"
    transient = False


class UnavailableError(StorageError):
    """Storage that did not answer, or asked to come back later."""

    code = "storage-unavailable"
    transient = True


class ObjectNotFoundError(StorageError, FileNotFoundError):
    """An object that is not there."""

    code = "object-not-found"


class ObjectExistsError(StorageError, FileExistsError):
    """An object that was to be created and is there already."""

    code = "object-exists"


class CommitStateUnknownError(StorageError):
    """A write that may or may not have happened: the answer was lost, or the sync failed."""

    code = "commit-state-unknown"
    transient = True


class UnsyncedWriteError(CommitStateUnknownError):
    """A write that can be seen but may not survive a power cut: the sync failed."""

    code = "unsynced-write"
    transient = False


class IncompleteOperationError(StorageError):
    """An operation that failed after it had changed something, and can be run again.

    `done` names what it had done by then.
    """

    code = "incomplete-operation"
    _DETAILS: ClassVar[tuple[str, ...]] = ("done",)
    done: tuple[str, ...] = ()


class VacuumStoppedError(IncompleteOperationError):
    """A vacuum that failed after it had announced or deleted something.

    `announced` are the shards that it announced, `deleted` the files that it deleted, and
    `released_pins` the pins that it released.
    """

    code = "vacuum-incomplete"
    _DETAILS: ClassVar[tuple[str, ...]] = ("announced", "deleted", "released_pins")
    announced: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    released_pins: tuple[str, ...] = ()


class ConditionsIgnoredError(StorageError):
    """A store on which create-if-absent overwrites: two writers could destroy each other's work."""

    code = "conditional-write-unsupported"


class LogError(ShardlineError):
    """Base of what can go wrong with a version's log."""

    code = "log-error"


class VersionNotFoundError(LogError, LookupError):
    """A version that does not exist."""

    code = "version-not-found"


class SnapshotNotFoundError(LogError, LookupError):
    """A snapshot, tag or time that a version does not have."""

    code = "snapshot-not-found"


class CorruptLogError(LogError, ValueError):
    """A log whose entries are not what was written. `entry` is the number of the first bad one."""

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
    """A log that is missing, or shorter than other logs, pins or checkpoints imply.

    `missing` lists what is missing: of which `version`, which `snapshot`, `entry` or `shard`, and
    `by` whom it is named. `version` and `snapshot` are those of the first.
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
    """A log written by a newer release, which this one must not touch.

    `entry` is the number of the entry that it cannot read.
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
    """A commit that does not fit what others committed meanwhile. Nothing was changed."""

    code = "commit-conflict"


class TombstonedShardError(ConflictError):
    """A commit with shards that were erased, or that vacuum has decided to delete: make others.

    `names` are those shards.
    """

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
    """Data or a declaration that does not fit a version's schema."""

    code = "schema-mismatch"


class RecordNotFoundError(ShardlineError, IndexError):
    """A record number that a snapshot does not have."""

    code = "record-not-found"


class DagsterRecordMissingError(ShardlineError, LookupError):
    """A folder that should be a DAGSTER_HOME, and in which nothing was recorded."""

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
    """One damaged spot: what kind, at which record, at which byte, and why we think so."""

    kind: FaultKind
    record: int
    offset: int
    detail: str
