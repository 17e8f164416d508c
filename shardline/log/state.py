"""State of a version, replayed from its log. Reads no shard."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from shardline.errors import CorruptLogError
from shardline.log.indexes import DigestIndex, SourceIndex
from shardline.log.model import Checks, Ref, Totals, get_sidecar_shard
from shardline.log.parameters import DismissParameters
from shardline.log.shard_history import ShardHistory
from shardline.log.snapshot_history import SnapshotHistory, SnapshotRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shardline.errors import LogFault
    from shardline.log.entry import Entry
    from shardline.log.model import Added, Shard
    from shardline.log.parameters import Dismissal
    from shardline.schema.schema import Schema

REJECTION = "rejection"
VACUUM = "vacuum"
RESERVED_CHECKS = (REJECTION, VACUUM)
MAX_CHECKS = 31  # bits of a column, less the bit of checks that were never attested
DISMISS = "dismiss"
"""Operation of an entry that dismisses rejected sources."""
RESTORING_OPERATIONS = frozenset({"reject", "restore"})
BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Policy:
    """Checks that snapshots from `since` on need for publication."""

    since: int
    checks: Checks


class ShardChanges(Protocol):
    """Shard history that entries change."""

    def append(self, snapshot: int, entry: int, shards: tuple[Shard, ...]) -> None:
        """Add shards at the end."""

    def relist(
        self,
        snapshot: int,
        entry: int,
        added: tuple[Added, ...],
        removed: Iterable[str],
        *,
        restored: bool,
        version: str,
    ) -> None:
        """Remove shards and insert others; `restored` ones keep their check results."""

    def mark(self, entry: int, names: tuple[str, ...], bit: int, *, passed: bool) -> None:
        """Record a check result of shards that were added before."""


class SnapshotChanges(Protocol):
    """Snapshot history that entries change."""

    def add(
        self,
        entry: int,
        time: datetime,
        totals: Totals,
        content: str,
        *,
        parent: int,
        restored: bool,
    ) -> None:
        """Add a snapshot; a `restored` content keeps its check results."""

    def release(self, number: int, time: datetime) -> None:
        """Record when a snapshot lost a reference."""

    def reject(self, number: int, entry: int) -> None:
        """Record that a snapshot was rejected."""

    def mark(self, entry: int, content: str, bit: int, *, passed: bool) -> None:
        """Record a check result of all snapshots with a content."""


@dataclass(slots=True, kw_only=True)
class LogState:
    """State of a log after entry `number`, and its replay; 0 is an empty log.

    `State` has the histories as columns, `Replay` as lists.

    `sidecars` maps each rewritten sidecar to the entry of its latest digest. `uses_sidecars` is
    True if any entry has digests of sidecars. `open_sources` maps each path or batch to the entry
    that last rejected or skipped it, unless it was dismissed.
    """

    dataset: str = field(kw_only=False)
    version: str = field(kw_only=False)
    number: int = 0
    digest: str | None = None
    time: datetime = BEGINNING
    schema: Schema | None = None
    policies: tuple[Policy, ...] = ()
    bits: dict[str, int] = field(default_factory=lambda: {REJECTION: 0, VACUUM: 1})
    snapshot: int = 0
    snapshot_entry: int = 0
    snapshot_time: datetime = BEGINNING
    snapshot_rejected: int = 0
    published: int | None = None
    totals: Totals = Totals()
    content: str | None = None
    tags: dict[str, Ref] = field(default_factory=dict)
    pins: dict[str, Ref] = field(default_factory=dict)
    shard_history: ShardChanges
    snapshot_history: SnapshotChanges
    sources: DigestIndex = field(default_factory=DigestIndex)
    open_sources: DigestIndex = field(default_factory=DigestIndex)
    shard_names: DigestIndex = field(default_factory=DigestIndex)
    sidecars: DigestIndex = field(default_factory=DigestIndex)
    uses_sidecars: bool = False
    appended_sources: SourceIndex = field(default_factory=SourceIndex)

    @property
    def name(self) -> str:
        """Name of the version: `digits/v1`."""
        return f"{self.dataset}/{self.version}"

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the schema; None before the version is created."""
        return None if self.schema is None else self.schema.fingerprint

    @property
    def checks(self) -> Checks:
        """Checks that the next snapshot needs."""
        return self.policies[-1].checks if self.policies else Checks()

    def has_shard_name(self, shard: str) -> bool:
        """Return True if a shard of this name was ever added or tombstoned."""
        return self.shard_names.get(get_name_key(shard)) is not None

    def has_shard(self, shard: str) -> bool:
        """Return True if a shard of this name was added and is not tombstoned."""
        return (self.shard_names.get(get_name_key(shard)) or 0) > 0

    def get_tombstone(self, shard: str) -> int | None:
        """Return the entry that tombstoned a shard; None if there is none."""
        entry = self.shard_names.get(get_name_key(shard)) or 0
        return -entry if entry < 0 else None

    def apply(self, entry: Entry) -> None:
        """Replay the next entry. Raises CorruptLogError for an entry that cannot be next."""
        validate_next_entry(self, entry)
        self.apply_changes(entry)
        if entry.changes_data:
            self.add_snapshot(entry)
        self.apply_results(entry)
        self.accept_claims(entry)

    def apply_changes(self, entry: Entry) -> None:
        """Apply the changes of an entry, without its claims."""
        if entry.schema is not None:
            self.schema = entry.schema
        if entry.checks is not None:
            self.policies += (Policy(self.snapshot + 1, entry.checks),)
        if (
            entry.added
            and not entry.removed
            and all(item.at is None for item in entry.added)
            and entry.operation not in RESTORING_OPERATIONS
        ):
            self.shard_history.append(
                entry.snapshot, entry.number, tuple(item.shard for item in entry.added)
            )
        elif entry.changes_data:
            self.shard_history.relist(
                entry.snapshot,
                entry.number,
                entry.added,
                entry.removed,
                restored=entry.operation in RESTORING_OPERATIONS,
                version=self.name,
            )
        self._note_sources(entry)
        if entry.operation not in RESTORING_OPERATIONS:
            for item in entry.added:
                self.shard_names.put(get_name_key(item.shard.name), entry.number)
        self._note_sidecars(entry)
        for name in entry.tombstones:
            self.shard_names.put(get_name_key(name), -entry.number)
        if entry.tombstones:
            self.shard_history.mark(entry.number, entry.tombstones, self.bits[VACUUM], passed=False)

    def _note_sidecars(self, entry: Entry) -> None:
        self.uses_sidecars |= bool(entry.sidecars)
        for name in list_rewritten_sidecars(entry):
            self.sidecars.put(get_name_key(name), entry.number)

    def _note_sources(self, entry: Entry) -> None:
        rejected = entry.operation == "reject"
        for source in entry.sources:
            self.sources.put(source.key, -entry.number if rejected else entry.number)
            if rejected:
                self.open_sources.put(source.location_key, entry.number)
            else:
                self.open_sources.remove(source.location_key)
                self.appended_sources.add(source, entry.number)
        for dismissal in list_dismissals(entry):
            if self.open_sources.get(dismissal.location_key) == dismissal.entry:
                self.open_sources.remove(dismissal.location_key)

    def add_snapshot(self, entry: Entry) -> None:
        """Add the snapshot of an entry."""
        if self.snapshot:
            self.snapshot_history.release(self.snapshot, entry.time)
        if entry.content is None:
            raise CorruptLogError(self.name, entry.number, "snapshot without content")
        self.snapshot_history.add(
            entry.number,
            entry.time,
            entry.totals,
            entry.content,
            parent=self._get_parent(entry),
            restored=entry.operation in RESTORING_OPERATIONS,
        )
        self.snapshot, self.totals, self.content = entry.snapshot, entry.totals, entry.content
        self.snapshot_entry, self.snapshot_time = entry.number, entry.time
        self.snapshot_rejected = 0

    def _get_parent(self, entry: Entry) -> int:
        if entry.restores is not None:
            return entry.restores
        return self.snapshot - 1 if entry.rejects == self.snapshot else self.snapshot

    def apply_results(self, entry: Entry) -> None:
        """Apply the attestations, rejection, tag and pin of an entry."""
        for attestation in entry.attestations:
            check, passed = attestation.check, attestation.passed
            bit = self.bits.setdefault(check, len(self.bits))
            if bit >= MAX_CHECKS:
                raise CorruptLogError(self.name, entry.number, f"more than {MAX_CHECKS} checks")
            if attestation.content is None:
                self.shard_history.mark(entry.number, attestation.shards, bit, passed=passed)
            else:
                self.snapshot_history.mark(entry.number, attestation.content, bit, passed=passed)
        if entry.rejects is not None:
            self.snapshot_history.reject(entry.rejects, entry.number)
            if entry.rejects == self.snapshot:
                self.snapshot_rejected = entry.number
        self._move_ref(self.tags, entry.tag, entry.time)
        self._move_ref(self.pins, entry.pin, entry.time)

    def accept_claims(self, entry: Entry) -> None:
        """Set the state that an entry claims."""
        if self.published is not None and entry.published != self.published:
            self.snapshot_history.release(self.published, entry.time)
        self.published = entry.published
        self.number, self.digest, self.time = entry.number, entry.digest, entry.time

    def _move_ref(self, refs: dict[str, Ref], ref: Ref | None, time: datetime) -> None:
        if ref is None:
            return
        old = refs.pop(ref.name, None)
        if old is not None and old.snapshot is not None:
            self.snapshot_history.release(old.snapshot, time)
        if ref.snapshot is not None:
            refs[ref.name] = ref


@dataclass(slots=True, kw_only=True)
class State(LogState):
    """State of a version with columnar histories. `checkpoint` is the entry of its checkpoint."""

    shard_history: ShardHistory = field(default_factory=ShardHistory)
    snapshot_history: SnapshotHistory = field(default_factory=SnapshotHistory)
    checkpoint: int = 0

    def get_checks(self, snapshot: int) -> Checks:
        """Return the checks that a snapshot needs."""
        checks = [policy.checks for policy in self.policies if policy.since <= snapshot]
        return checks[-1] if checks else Checks()

    def latest(self) -> SnapshotRow:
        """Return the row of the latest snapshot without check results. Loads no table."""
        return SnapshotRow(
            self.snapshot,
            self.snapshot_entry,
            self.snapshot_time,
            self.totals,
            self.content or "",
            self.snapshot_rejected,
        )

    def iter_ancestors(self) -> Iterator[int]:
        """Yield the latest snapshot, its parent, and so on to the first.

        Leaves out what a restore or a rejection of the latest snapshot rolled back.
        """
        number = self.snapshot
        parents = self.snapshot_history.column("made_from") if number else ()
        while number:
            yield number
            number = int(parents[number - 1])

    def fork(self) -> State:
        """Return a copy that can diverge."""
        other = copy.copy(self)
        other.bits, other.tags, other.pins = dict(self.bits), dict(self.tags), dict(self.pins)
        other.shard_history, other.snapshot_history = (
            self.shard_history.fork(),
            self.snapshot_history.fork(),
        )
        other.sources, other.shard_names = self.sources.fork(), self.shard_names.fork()
        other.sidecars, other.open_sources = self.sidecars.fork(), self.open_sources.fork()
        other.appended_sources = self.appended_sources.fork()
        return other


def list_dismissals(entry: Entry) -> tuple[Dismissal, ...]:
    """Return the dismissals of an entry. Raises CorruptLogError if they cannot be parsed."""
    if entry.operation != DISMISS:
        return ()
    parameters = entry.read(DismissParameters)
    if problem := parameters.problems.get("dismissed"):
        raise CorruptLogError(entry.label, entry.number, problem, "false-entry")
    return parameters.dismissed


def validate_next_entry(state: LogState, entry: Entry) -> None:
    """Raise CorruptLogError for an entry that cannot be the next one."""
    problem = None
    kind: LogFault = "false-entry"
    if entry.number != state.number + 1:
        problem, kind = f"follows entry {state.number}", "moved-entry"
    elif entry.previous != state.digest:
        kind = "broken-chain"
        problem = f"does not continue entry {state.number}, one of them was replaced or moved"
    elif entry.time < state.time:
        problem, kind = "time before that of the previous entry", "back-dated-entry"
    elif entry.snapshot != state.snapshot + entry.changes_data:
        problem = f"invalid snapshot {entry.snapshot} after snapshot {state.snapshot}"
    elif state.schema is None and entry.schema is None and entry.operation != "vacuum":
        problem = "no earlier entry created the version"
    elif any(not 1 <= number <= entry.snapshot for number in entry.named_snapshots()):
        problem = "refers to an unknown snapshot"
    if problem:
        raise CorruptLogError(state.name, entry.number, problem, kind)


def list_rewritten_sidecars(entry: Entry) -> list[str]:
    """List the sidecars in an entry that belong to no shard it adds.

    The entry that added a shard has the digests of its other sidecars.
    """
    if not entry.sidecars:
        return []
    added = {item.shard.name for item in entry.added}
    return [name for name in entry.sidecars if get_sidecar_shard(name) not in added]


def get_name_key(name: str) -> str:
    """Return the key of the name of a shard or sidecar."""
    return hashlib.sha256(name.encode()).hexdigest()


def content_digest(fingerprint: str | None, shards: Iterable[Shard]) -> str:
    """Return the content digest of a list of shards."""
    start = hashlib.sha256(b"shardline content\n" + (fingerprint or "").encode()).hexdigest()
    return extend_digest(start, shards)


def extend_digest(content: str, shards: Iterable[Shard]) -> str:
    """Return a content digest extended by shards. Costs what is new."""
    digest = bytes.fromhex(content)
    for shard in shards:
        base = b"" if shard.base is None else bytes.fromhex(shard.base.sha256)
        digest = hashlib.sha256(digest + bytes.fromhex(shard.sha256) + base).digest()
    return digest.hex()
