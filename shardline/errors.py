"""The errors Shardline raises: each says what happened and where, and if it can, what to do."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.kernel.types import Fault, FaultKind

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
    """Base of every error that Shardline raises on purpose. All can be sent between processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self, OSError):
            return super().__reduce__()  # type: ignore[return-value] # a tuple, for exceptions
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    kind: type[ShardlineError], args: tuple[Any, ...], state: dict[str, Any]
) -> ShardlineError:
    """An error as it was: what its class makes of its parts has been made already."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class DamagedFileError(ShardlineError, ValueError):
    """A TFRecord file whose bytes are not what was written, or not what was asked for.

    Unless `advice` says something else, it is told how to salvage the file.
    """

    def __init__(
        self,
        file: str,
        kind: FaultKind,
        record: int,
        offset: int,
        detail: str,
        *,
        advice: str | None = None,
    ) -> None:
        advice = salvage_advice(file, kind) if advice is None else advice
        super().__init__(
            f"{file}: {kind} at record {record}, offset {offset}: {detail}"
            + (f". {advice}" if advice else "")
        )
        self.file = file
        self.kind = kind
        self.record = record
        self.offset = offset
        self.detail = detail
        self.advice = advice

    def advised(self, advice: str) -> DamagedFileError:
        """The same with other advice."""
        where = self.record, self.offset
        return DamagedFileError(self.file, self.kind, *where, self.detail, advice=advice)

    @classmethod
    def of(cls, file: Path | str, fault: Fault) -> DamagedFileError:
        """The error to raise for a fault."""
        return cls(str(file), fault.kind, fault.record, fault.offset, fault.detail)


def salvage_advice(file: str, kind: FaultKind) -> str:
    """What to do about a fault of this kind; nothing where salvage would change nothing."""
    if kind == "example":
        return ""
    if kind == "oversized":
        return "If it is meant to be that large, raise the limit: --max-record"
    return f"To keep the intact records: shardline salvage {shlex.quote(file)} OUT"


class DamagedShardError(ShardlineError, ValueError):
    """A shard that a version holds and that cannot be read: `problem` tells file and place."""

    def __init__(self, version: str, problem: str) -> None:
        super().__init__(f"{problem}. To make it anew: shardline repair {version}")
        self.version = version
        self.problem = problem

    @classmethod
    def of(cls, version: str, error: DamagedFileError) -> DamagedShardError:
        """The error to raise for a damaged file that is a shard of a version."""
        where = f"{error.kind} at record {error.record}, offset {error.offset}"
        return cls(version, f"{error.file}: {where}: {error.detail}")


class WrongShardError(ShardlineError, ValueError):
    """A shard that is not the file that was committed."""


class ExampleError(ShardlineError, ValueError):
    """A payload that is not an Example or SequenceExample on which every parser agrees.

    `record` counts from the start of the block that was looked at, `offset` from the start of
    the payload. The payload itself is never part of the message.
    """

    def __init__(self, record: int, offset: int, field: str | None, detail: str) -> None:
        where = f"record {record}, byte {offset} of its payload"
        named = "" if field is None else f", feature {field!r}"
        super().__init__(f"{where}{named}: {detail}")
        self.record = record
        self.offset = offset
        self.field = field
        self.detail = detail


class ColumnError(ShardlineError, ValueError):
    """A feature whose values do not fit the column asked for."""

    def __init__(self, record: int, field: str, detail: str) -> None:
        super().__init__(f"record {record}, feature {field!r}: {detail}")
        self.record = record
        self.field = field
        self.detail = detail


class SourceError(ShardlineError, ValueError):
    """A source that cannot be read, or that changed while it was."""


class BadRecordsError(ShardlineError, ValueError):
    """Rows that cannot become records of a version, more of them than were allowed.

    `bad` of `rows` rows were refused; those of them that are told in the message are `refused`.
    """

    def __init__(self, message: str, refused: tuple[object, ...], bad: int, rows: int) -> None:
        super().__init__(message)
        self.refused = refused
        self.bad = bad
        self.rows = rows


class FieldsError(ShardlineError, ValueError):
    """A function or a table that does not make the fields that were declared."""


class BudgetError(ShardlineError, ValueError):
    """Work that would write more than it may. `pairs` and `bytes` tell how much, about."""

    def __init__(self, message: str, pairs: int, size: int) -> None:
        super().__init__(message)
        self.pairs = pairs
        self.bytes = size


class CancelledError(ShardlineError):
    """Work that was stopped because someone asked for that."""


class NothingToSalvageError(ShardlineError, ValueError):
    """A file in which no intact record was found."""


class FileExistsAlreadyError(ShardlineError, FileExistsError):
    """A file that would have been overwritten."""


class IndexMismatchError(ShardlineError, ValueError):
    """An offset index that does not belong to the file beside it."""


class KernelUnavailableError(ShardlineError, ImportError):
    """The kernel that was asked for by name cannot be loaded."""


class UnreadableSnapshotError(ShardlineError, ValueError):
    """A snapshot that cannot, or should not, be read in the way that was asked for."""


class PackageMissingError(ShardlineError, ImportError):
    """A package that is only needed for what was asked for, and is not installed."""


class BadNameError(ShardlineError, ValueError):
    """A name, path or URI that is refused before anything is done with it."""


class StorageError(ShardlineError, OSError):
    """Storage that did not do what it was asked. The message never holds credentials.

    `transient` says that the same may well work when it is tried again a little later.
    """

    transient = False


class UnavailableError(StorageError):
    """Storage that did not answer, or asked to come back later."""

    transient = True


class ObjectMissingError(StorageError, FileNotFoundError):
    """An object that is not there."""


class ObjectExistsError(StorageError, FileExistsError):
    """An object that was to be created and is there already."""


class UncertainWriteError(StorageError):
    """A write that may or may not have happened: the answer was lost, or the sync failed."""

    transient = True


class UnsyncedWriteError(UncertainWriteError):
    """A write that can be seen but may not survive a power cut: the sync failed."""

    transient = False


class ConditionsIgnoredError(StorageError):
    """A store on which create-if-absent overwrites: two writers could destroy each other's work."""


class LogError(ShardlineError):
    """Base of what can go wrong with a version's log."""


class VersionMissingError(LogError, LookupError):
    """A version that does not exist."""


class SnapshotMissingError(LogError, LookupError):
    """A snapshot, tag or time that a version does not have."""


class DamagedLogError(LogError, ValueError):
    """A log whose entries are not what was written. `entry` is the number of the first bad one."""

    def __init__(
        self, version: str, entry: int, detail: str, kind: LogFault = "false-entry"
    ) -> None:
        super().__init__(
            f"{version}: entry {entry} of the log: {detail}. To look at all of it: shardline "
            f"verify {version}"
        )
        self.version = version
        self.entry = entry
        self.detail = detail
        self.kind = kind


class UnknownFormatError(LogError):
    """A log written by a newer release, which this one must not touch."""


class ConflictError(LogError):
    """A commit that does not fit what others committed meanwhile. Nothing was changed."""


class CondemnedShardError(ConflictError):
    """A commit with shards that were erased, or that vacuum has decided to delete: make others.

    `names` are those shards.
    """

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names


class SchemaMismatchError(LogError, ValueError):
    """Data or a declaration that does not fit a version's schema."""


class DagsterRecordMissingError(ShardlineError, LookupError):
    """A folder that should be a DAGSTER_HOME, and in which nothing was recorded."""
