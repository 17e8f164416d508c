"""A version of a dataset, open for reading and for committing."""

from __future__ import annotations

import operator
import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import RLock
from typing import TYPE_CHECKING, ClassVar

from shardline.errors import (
    ConflictError,
    InvalidNameError,
    InvalidTypeError,
    SnapshotNotFoundError,
    StorageError,
    VersionNotFoundError,
)
from shardline.hints import Hint
from shardline.log.append_change import Append
from shardline.log.changes import (
    Attest,
    Create,
    Derive,
    Reject,
    Replace,
    Require,
    Restore,
    SetPin,
    SetTag,
    get_snapshot_missing_error,
    validate_not_tombstoned,
)
from shardline.log.log import Log
from shardline.log.model import Checks, CommitInfo, Input
from shardline.log.parameters import RebuildParameters
from shardline.log.publication import is_published
from shardline.log.snapshot import StoredSnapshot
from shardline.log.state import REJECTION, RESTORING_OPERATIONS
from shardline.release import __version__
from shardline.schema.schema import Schema
from shardline.storage import object_uri, open_store, validate_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shardline.log.changes import Change
    from shardline.log.entry import Entry
    from shardline.log.model import Attestation, Shard
    from shardline.log.state import State
    from shardline.storage import RootLocation, Store

_LATEST, _PUBLISHED = "latest", "published"
_NAME = re.compile(r"([^/@]+)/([^/@]+)")
_MAX_DIGITS = 19
_COMPRESSING_OPERATIONS = frozenset({"append", "rebuild"})
_SHARD_COMPRESSIONS = frozenset({"none", "gzip"})
_MAX_PIN = 200


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class StoredVersion:
    """One version of a dataset, `shardline.open(root)["digits/v1"]`.

    The state is as of when the version was opened, refreshed or last committed to. `run` and `code`
    are recorded in each entry. With `keep_entries`, read entries are cached.
    """

    snapshot_type: ClassVar[type[StoredSnapshot]] = StoredSnapshot

    def __init__(
        self,
        root: RootLocation,
        name: str,
        *,
        run: str = "",
        code: str = "",
        clock: Callable[[], datetime] = utc_now,
        keep_entries: bool = False,
    ) -> None:
        parts = _NAME.fullmatch(str(name))
        if parts is None:
            raise InvalidNameError(
                f"invalid version {name!r}", hint=Hint.of("write DATASET/VERSION, as digits/v1")
            )
        self.log = Log(open_store(root), parts[1], parts[2], known={} if keep_entries else None)
        self._commit_info = CommitInfo(__version__, socket.gethostname(), run, code)
        self._clock = clock
        self._lock = RLock()
        self._known: State | None = None
        self._may_write = False

    @property
    def store(self) -> Store:
        """Store of the root."""
        return self.log.store

    @property
    def name(self) -> str:
        """Name of the version: `digits/v1`."""
        return self.log.label

    @property
    def state(self) -> State:
        """Current state."""
        with self._lock:
            if self._known is None:
                self._known = self.log.load()
            return self._known

    @property
    def exists(self) -> bool:
        """True if the version has been created."""
        return self.state.schema is not None

    @property
    def schema(self) -> Schema:
        """Schema of all its records."""
        if self.state.schema is None:
            raise VersionNotFoundError(
                f"{self.name}: version not found in {self.store.uri}",
                hint=Hint.of("check the root, or create the version: `version.create(schema)`"),
                version=self.name,
            )
        return self.state.schema

    @property
    def compression(self) -> str | None:
        """Compression of the latest data commit, "none" or "gzip": the default for the next.

        None without a data commit. Shards of older commits may have other compressions.
        """
        state = self.state
        if not state.snapshot:
            return None
        entry = self.log.entry(state.snapshot_entry)
        compression = entry.read(RebuildParameters).compression
        if entry.operation in _COMPRESSING_OPERATIONS and compression in _SHARD_COMPRESSIONS:
            return compression
        # An entry that adds no shards, such as a rejection, has no compression.
        return _find_compression(item.shard for item in reversed(entry.added)) or _find_compression(
            reversed(self.latest().shards)
        )

    def refresh(self) -> list[Entry]:
        """Read what others committed, and return their entries."""
        with self._lock:
            state, self._known = self.state, None
            new = self.log.follow(state)
            self._known = state
            return new

    def latest(self) -> StoredSnapshot:
        """Return the latest snapshot, published or not."""
        self.schema  # noqa: B018 - raises VersionNotFoundError
        if not self.state.snapshot:
            raise SnapshotNotFoundError(
                f"{self.name}: no snapshot yet",
                code="version-empty",
                hint=Hint.of("append a source first"),
                version=self.name,
            )
        return self.snapshot(self.state.snapshot)

    def published(self) -> StoredSnapshot:
        """Return the latest published snapshot."""
        self.schema  # noqa: B018 - raises VersionNotFoundError
        if self.state.published is None:
            raise SnapshotNotFoundError(
                f"{self.name}: no published snapshot",
                code="version-unpublished",
                hint=Hint.of(Hint.run("status", self.name), " to see why"),
                version=self.name,
            )
        return self.snapshot(self.state.published)

    def snapshot(self, number: int) -> StoredSnapshot:
        """Return a snapshot by its number."""
        number = self._number(number)
        with self._lock:
            return self._snapshot(self.state, self.schema, number)

    def _number(self, number: int) -> int:
        """Return the number of a snapshot. Raises InvalidTypeError for anything else."""
        try:
            return operator.index(number)
        except TypeError:
            raise InvalidTypeError(
                f"snapshot: expected a number, got {type(number).__name__}",
                hint=Hint.of("find a snapshot by tag, time or text with `version.find(...)`"),
                version=self.name,
            ) from None

    def _snapshot(self, state: State, schema: Schema, number: int) -> StoredSnapshot:
        if not 1 <= number <= state.snapshot:
            raise get_snapshot_missing_error(state, number)
        snapshot_row = (
            state.latest() if number == state.snapshot else state.snapshot_history.get_row(number)
        )
        older = number < (state.published or 0)
        return self.snapshot_type(
            self.name,
            number,
            snapshot_row.entry,
            snapshot_row.time,
            snapshot_row.totals,
            snapshot_row.content,
            schema,
            number == state.published or (older and is_published(state, number)),
            snapshot_row.rejected > 0,
            state.get_checks(number),
            lambda: self._shards(state, number),
            self.store,
            self.shard_name,
        )

    def _shards(self, state: State, number: int) -> tuple[Shard, ...]:
        with self._lock:
            return tuple(interval.shard for interval in state.shard_history.at(number))

    def tagged(self, tag: str) -> StoredSnapshot:
        """Return the snapshot of a tag."""
        tag = str(tag)
        ref = self.state.tags.get(tag)
        if ref is None or ref.snapshot is None:
            tags = ", ".join(sorted(self.state.tags)) or "none"
            raise SnapshotNotFoundError(
                f"{self.name}: tag {tag!r} not found (tags: {tags})",
                code="tag-not-found",
                version=self.name,
            )
        return self.snapshot(ref.snapshot)

    def at(self, time: datetime) -> StoredSnapshot:
        """Return the latest snapshot at a time, in UTC unless it has a zone."""
        if not isinstance(time, datetime):
            raise InvalidTypeError(
                f"time: expected a datetime, got {type(time).__name__}",
                hint=Hint.of("find a snapshot by text with `version.find(...)`"),
                version=self.name,
            )
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        with self._lock:
            number = self.state.snapshot_history.at_time(time)
        if number == 0:
            raise SnapshotNotFoundError(
                f"{self.name}: no snapshot yet at {time.isoformat()}",
                code="snapshot-not-found",
                version=self.name,
            )
        return self.snapshot(number)

    def find(self, which: str | int = _LATEST) -> StoredSnapshot:
        """Return a snapshot by reference: latest, published, a number, a tag, or a time."""
        which = str(which)
        if which == _LATEST:
            return self.latest()
        if which == _PUBLISHED:
            return self.published()
        if which.isascii() and which.isdigit() and len(which) < _MAX_DIGITS:
            return self.snapshot(int(which))
        if which in self.state.tags:
            return self.tagged(which)
        time = _as_time(which)
        if time is not None:
            return self.at(time)
        if which[:1].isdigit() or which[:1] == "-":
            raise SnapshotNotFoundError(
                f"{self.name}: invalid snapshot {which[:40]!r}",
                code="invalid-snapshot",
                hint=Hint.of(
                    f"write a number from 1 to {self.state.snapshot}, or a time as 2026-11-16T04:00"
                ),
                version=self.name,
            )
        return self.tagged(which)

    def create(self, schema: Schema, checks: Checks = Checks()) -> Entry | None:
        """Create the version; None if it exists with this schema."""
        validate_schema(schema, self.name)
        return self.commit(Create(schema, checks))

    def commit(self, change: Change) -> Entry | None:
        """Commit a change, rebased on concurrent commits. Returns None if there is nothing to do.

        Raises ConflictError if the change no longer fits.
        """
        with self._lock:
            if not self._may_write:
                self.store.check_conditions(self.log.folder)
                self._may_write = True
            self._validate_shards_exist(change)
            state, self._known = self.state, None
            self._known, entry = self.log.commit(state, change, self._commit_info, self._clock())
            return entry

    def _validate_shards_exist(self, change: Change) -> None:
        """Raise LogError for a shard that is missing or has another size."""
        if isinstance(change, (Append, Replace)):
            shards = list(change.written if isinstance(change, Append) else change.added)
        elif isinstance(change, Derive):
            shards = [item.shard for item in change.added]
        else:
            return
        names = [self.shard_name(shard) for shard in shards]
        for shard, info in zip(shards, self.store.info_many(names), strict=True):
            if info is None or info.size != shard.bytes:
                self.refresh()
                validate_not_tombstoned(self.state, shards)
                uri = object_uri(self.store, self.shard_name(shard))
                actual = "not found" if info is None else f"{info.size} bytes"
                raise StorageError(
                    f"{uri}: {actual}, expected {shard.bytes} bytes (nothing was committed)",
                    code="shard-not-found" if info is None else "shard-mismatch",
                    hint=Hint.of("write the shard again"),
                    path=uri,
                    version=self.name,
                )

    def shard_name(self, shard: Shard | str) -> str:
        """Return the path of a shard in the store."""
        name = shard if isinstance(shard, str) else shard.name
        return f"{self.log.dataset}/shards/{name}"

    def attest(self, attestations: Iterable[Attestation]) -> Entry | None:
        """Attest check results."""
        return self.commit(Attest(tuple(attestations)))

    def reject(
        self, snapshot: int, attestations: Iterable[Attestation] = (), reason: str = ""
    ) -> Entry | None:
        """Reject a snapshot and attest check results in a single entry.

        The snapshot of an erase cannot be rejected: only the check results are attested.
        """
        entry = self.log.entry(self.snapshot(snapshot).entry)
        if entry.operation == "erase" and entry.tombstones:
            return self._attest_erased(snapshot, tuple(attestations))
        if entry.operation == "reject":
            return self.commit(Reject(snapshot, attestations=tuple(attestations), reason=reason))
        added = tuple(item.shard for item in entry.added)
        removed = self.state.shard_history.named(entry.removed)
        names, sources = tuple(shard.name for shard in added), entry.sources
        if entry.operation in RESTORING_OPERATIONS:
            lifted = (
                item for item in entry.attestations if item.check == REJECTION and item.passed
            )
            names, sources = tuple(name for item in lifted for name in item.shards), ()
        return self.commit(
            Reject(
                snapshot,
                added,
                tuple(removed[name].shard for name in entry.removed),
                names,
                sources,
                tuple(attestations),
                reason,
            )
        )

    def _attest_erased(self, snapshot: int, attestations: tuple[Attestation, ...]) -> Entry | None:
        if not attestations:
            raise ConflictError(
                f"{self.name}: cannot reject snapshot {snapshot}, which an erase committed",
                code="cannot-reject-erase",
                hint=Hint.of(
                    "fix the problem instead, since a rejection would restore erased records: ",
                    Hint.run("status", self.name),
                ),
                version=self.name,
                snapshot=snapshot,
            )
        return self.commit(Attest(attestations))

    def restore(self, snapshot: int, *, head: int | None = None) -> Entry | None:
        """Restore an old snapshot as a new one; `head` must be the latest snapshot."""
        snapshot = self._number(snapshot)
        return self.commit(Restore(snapshot, self.state.snapshot if head is None else head))

    def require(self, checks: Checks) -> Entry | None:
        """Set the checks that snapshots from now on need for publication."""
        return self.commit(Require(checks))

    def tag(self, tag: str, snapshot: int | None) -> Entry | None:
        """Set a tag to a snapshot; None deletes the tag."""
        validate_name(tag, "tag")
        if tag in {_LATEST, _PUBLISHED} or tag.isdigit() or _as_time(tag) is not None:
            raise InvalidNameError(
                f"reserved tag {tag!r}: it already names a snapshot",
                code="reserved-name",
                version=self.name,
            )
        return self.commit(SetTag(tag, None if snapshot is None else self._number(snapshot)))

    def pin(self, pin: str, snapshot: int | None, reason: str = "") -> Entry | None:
        """Pin a snapshot, which vacuum retains; None releases the pin."""
        is_valid = str(pin) == pin and pin.isprintable() and 0 < len(pin) <= _MAX_PIN
        if not is_valid:
            raise InvalidNameError(
                f"invalid pin name: expected 1 to {_MAX_PIN} printable characters",
                version=self.name,
            )
        number = None if snapshot is None else self._number(snapshot)
        return self.commit(SetPin(pin, number, reason))


def validate_schema(schema: object, version: str) -> None:
    """Raise an error unless a value is a Schema."""
    if not isinstance(schema, Schema):
        raise InvalidTypeError(
            f"schema: expected a Schema, got {type(schema).__name__}", version=version
        )


def _find_compression(shards: Iterable[Shard]) -> str | None:
    """Return the compression of the first shard with records."""
    for shard in shards:
        if shard.bytes and not shard.virtual:
            return "none" if shard.compression == "none" else "gzip"
    return None


def validate_version(**versions: object) -> None:
    """Raise an error unless all values, by parameter name, are versions."""
    for parameter, value in versions.items():
        if not isinstance(value, StoredVersion):
            name = value if isinstance(value, str) and _NAME.fullmatch(value) else "digits/v1"
            raise InvalidTypeError(
                f"{parameter}: expected a Version, got {type(value).__name__}",
                hint=Hint.of(f"write `shardline.open(root)[{name!r}]`"),
            )


def _as_time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DerivedFrom:
    """A snapshot that a version is derived from, and its version."""

    version: StoredVersion
    snapshot: StoredSnapshot

    def input(self) -> Input:
        """Return the input of an entry."""
        log = self.version.log
        digest = log.entry(self.snapshot.entry).digest
        return Input(log.dataset, log.version, self.snapshot.number, digest)
