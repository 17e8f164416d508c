"""The logs of a root, each verified while it is read, with the questions of an audit to them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.lineage.audit.audit_report import Finding
from shardline.log.log import ENTRY_NAME
from shardline.log.model import INTEGRITY
from shardline.log.parameters import EraseParameters, RepairParameters
from shardline.log.replay import Replay
from shardline.log.state import RESTORING_OPERATIONS
from shardline.operations.verify_log import LogReport, read_verified_log
from shardline.pairing.coverage import get_coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from shardline.hints import Hint
    from shardline.lineage.audit.audit_report import Severity
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Shard
    from shardline.log.publication import ReplayedShard, ReplayedSnapshot
    from shardline.log.version import StoredVersion
    from shardline.provenance.log_index import LogIndex
    from shardline.storage import ObjectInfo, Store

MAX_CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two machines may differ."""
_MAX_CACHED_LISTS = 64


@dataclass(slots=True)
class AuditedLog:
    """The log of a version, up to the first corrupt entry.

    Attributes:
        version: The version.
        report: The problems of the log.
        replay: The state after the last valid entry.
        whole: True if every entry is valid.
        data: The entries that committed a snapshot.
        times: The time of each entry.
        hosts: The host of each entry.
        failures: The entries that may have unpublished a snapshot.
        idle: Attestations about unknown shards or contents: the entry and the subject.
        repairs: The repairing entry of each repaired shard.
        unreadable: Why the log cannot be read at all.
        sidecars: The committed digests of each sidecar with their entries, latest last.
    """

    version: StoredVersion
    report: LogReport
    replay: Replay
    whole: bool = False
    data: list[Entry] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    idle: list[tuple[int, str]] = field(default_factory=list)
    repairs: dict[str, int] = field(default_factory=dict)
    unreadable: str = ""
    sidecars: dict[str, list[tuple[int, str]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the version."""
        return self.version.name

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.version.log.dataset

    def snapshot(self, number: int) -> ReplayedSnapshot | None:
        """Return a snapshot, or None if the valid entries do not commit it."""
        known = 1 <= number <= self.replay.snapshot
        return self.replay.snapshots[number - 1] if known else None

    def entry(self, number: int) -> Entry | None:
        """Return a valid entry that committed a snapshot, or None."""
        index = bisect_left(self.data, number, key=lambda entry: entry.number)
        entry = self.data[index] if index < len(self.data) else None
        return entry if entry is not None and entry.number == number else None

    def count_before(self, time: datetime) -> int:
        """Return the number of entries before a time."""
        return bisect_left(self.times, time)

    def count_until(self, time: datetime) -> int:
        """Return the number of entries up to a time, inclusive."""
        return bisect_right(self.times, time)

    def make_finding(
        self,
        kind: str,
        subject: str,
        detail: str,
        hint: Hint,
        entry: int = 0,
        *,
        severity: Severity = "error",
    ) -> Finding:
        """Return a finding about the version."""
        return Finding(severity, kind, self.name, subject, detail, hint, entry)

    def record(self, entry: Entry, replay: Replay) -> None:
        """Record an entry, after the replay took it."""
        self.times.append(entry.time)
        self.hosts.append(entry.commit_info.host)
        for name, digest in entry.sidecars.items():
            rewrite = entry.read(EraseParameters).rewrites.get(name)
            before = None if rewrite is None else rewrite.before
            digests = self.sidecars.setdefault(name, [] if before is None else [(0, before)])
            digests.append((entry.number, digest))
        if entry.changes_data:
            self.data.append(entry)
            if entry.operation == "repair":
                self.repairs[entry.read(RepairParameters).shard] = entry.number
        if entry.rejects is not None or (entry.tombstones and entry.operation != "vacuum"):
            self.failures.append(entry.number)
        for attestation in entry.attestations:
            if not attestation.passed:
                self.failures.append(entry.number)
            if attestation.content is None:
                unknown = (name for name in attestation.shards if name not in replay.named)
                self.idle += [(entry.number, f"shard {name}") for name in unknown]
            elif not replay.has_content(attestation.content):
                self.idle.append((entry.number, f"the content {attestation.content[:12]}…"))


class AuditedLogs:
    """The verified logs of a root, each read when it is needed.

    `doubts` maps a version and a corrupt log to the first question that the log leaves open.
    """

    def __init__(self, index: LogIndex) -> None:
        self.index = index
        self.doubts: dict[tuple[str, str], str] = {}
        self._logs: dict[str, AuditedLog] = {}
        self._rows: dict[tuple[str, int], list[ReplayedShard]] = {}
        self._published: dict[tuple[str, int, int], bool] = {}
        self._files: dict[str, dict[str, ObjectInfo]] = {}
        self._dependencies: dict[str, dict[str, None]] = {}

    @property
    def store(self) -> Store:
        """The store of the root."""
        return self.index.store

    def names(self) -> list[str]:
        """Return the versions with a log, even if its first entry is missing."""
        return [
            name
            for name in self.index.list_folders()
            if self.index.version(name).log.exists(1) or self._has_entries(name)
        ]

    def _has_entries(self, name: str) -> bool:
        leaves = (file.name.rpartition("/")[2] for file in self.store.list(f"{name}/log"))
        return any(ENTRY_NAME.fullmatch(leaf) for leaf in leaves)

    def get(self, name: str) -> AuditedLog | None:
        """Return the log of a version, or None if there is none."""
        if name not in self._logs:
            self._logs[name] = self._read(name)
        log = self._logs[name]
        return log if log.report.entries or log.unreadable else None

    def _read(self, name: str) -> AuditedLog:
        version = self.index.version(name)
        replay = Replay(version.log.dataset, version.log.version)
        log = AuditedLog(version, LogReport(0, 0, ()), replay)
        try:
            verified = read_verified_log(version.log, log.record)
        except ShardlineError as error:
            log.unreadable = error.message
            return log
        log.report, log.replay, log.whole = verified.report, verified.ledger, verified.whole
        return log

    def is_in_doubt(self, log: AuditedLog, other: AuditedLog | None, question: str) -> bool:
        """Return True if a corrupt log, the other or its own, leaves a question open.

        The audit reports the corrupt log once, and not everything that follows from it.
        """
        if other is None or other.whole:
            return False
        self.doubts.setdefault((log.name, other.name), question)
        return True

    def input(self, source: Input) -> tuple[AuditedLog, ReplayedSnapshot] | None:
        """Return the snapshot that an entry read, or None if its log has another or none."""
        log = self.get(source.label)
        snapshot = None if log is None else log.snapshot(source.snapshot)
        if log is None or snapshot is None or snapshot.digest != source.entry:
            return None
        return log, snapshot

    def shards(self, log: AuditedLog, snapshot: int) -> list[Shard]:
        """Return the shards of a snapshot, in order."""
        return [row.shard for row in self.rows(log, snapshot)]

    def rows(self, log: AuditedLog, snapshot: int) -> list[ReplayedShard]:
        """Return the shards of a snapshot with their check results, in order."""
        key = log.name, snapshot
        if key not in self._rows:
            if len(self._rows) > _MAX_CACHED_LISTS:
                self._rows.clear()
            self._rows[key] = log.replay.at(snapshot)
        return self._rows[key]

    def files(self, dataset: str, folder: str) -> dict[str, ObjectInfo]:
        """Return the files in a folder of a dataset by name, listed once."""
        path = f"{dataset}/{folder}"
        if path not in self._files:
            listed = self.store.list(path)
            self._files[path] = {file.name[len(path) + 1 :]: file for file in listed}
        return self._files[path]

    def was_published(self, log: AuditedLog, number: int, entry: int) -> bool:
        """Return True if a snapshot was published when an entry of its log was the latest."""
        snapshot = log.snapshot(number)
        if snapshot is None:
            return False
        if snapshot.published and snapshot.published <= entry:
            failed = any(snapshot.published < failure <= entry for failure in log.failures)
            if not failed:
                return True
        key = log.name, number, entry
        if key not in self._published:
            self._published[key] = _replay_publication(log, number, entry)
        return self._published[key]

    def dependencies(self, log: AuditedLog) -> dict[str, None]:
        """Return the versions that shards of a version are read from, even with corrupt logs."""
        if log.name not in self._dependencies:
            names: dict[str, None] = {}
            for row in log.replay.rows:
                if row.shard.base is not None:
                    names[f"{log.dataset}/{row.shard.base.owner}"] = None
                elif row.shard.virtual and (entry := log.entry(row.added_entry)) is not None:
                    names |= dict.fromkeys(source.label for source in entry.inputs)
            names.pop(log.name, None)
            for name in list(names):
                upstream = self.get(name)
                names |= {} if upstream is None else self.dependencies(upstream)
            self._dependencies[log.name] = names
        return self._dependencies[log.name]


def _replay_publication(log: AuditedLog, snapshot: int, last: int) -> bool:
    """Return True if replaying the log up to an entry publishes a snapshot."""
    replay = Replay(log.version.log.dataset, log.version.log.version)
    for entry in log.version.log.entries(1):
        if entry.number > last:
            break
        replay.take(entry)
    return snapshot <= replay.snapshot and replay.publication.is_published(snapshot)


@dataclass(frozen=True, slots=True)
class AuditedShard:
    """A shard that should exist, and the log that contains it.

    `returned` is the entry that brought the shard back, if the audit reads it because of that.
    """

    log: AuditedLog
    row: ReplayedShard
    returned: int = 0

    @property
    def shard(self) -> Shard:
        """The shard as committed."""
        return self.row.shard

    @property
    def path(self) -> str:
        """The name of its object in the store."""
        return self.log.version.shard_name(self.shard)

    @property
    def landing(self) -> Entry | None:
        """The entry that added the shard."""
        return self.log.entry(self.row.added_entry)

    @property
    def has_failed(self) -> bool:
        """True if its log says that it is corrupt."""
        return self.has_mark(INTEGRITY, passed=False)

    @property
    def is_in_use(self) -> bool:
        """True if the latest or the published snapshot contains it."""
        replay = self.log.replay
        numbers = (replay.snapshot, replay.published or 0)
        return any(replay.row_at(self.shard.name, number) for number in numbers)

    @property
    def is_replaced(self) -> bool:
        """True if its log says that it is corrupt, and no snapshot in use contains it."""
        return self.has_failed and not self.is_in_use

    @property
    def repaired_in(self) -> int | None:
        """The entry that replaced the shard; None if there is none, or if it came back since."""
        repaired = self.log.repairs.get(self.shard.name)
        return None if repaired is None or self.is_in_use else repaired

    def has_mark(self, check: str, *, passed: bool = True) -> bool:
        """Return True if the log says that the shard passed (or failed) a check."""
        bit = self.log.replay.bits.get(check)
        marks = self.row.passed if passed else self.row.failed
        return bit is not None and bool(marks >> bit & 1)

    def make_finding(
        self, kind: str, detail: str, hint: Hint, *, severity: Severity = "error"
    ) -> Finding:
        """Return a finding about the shard."""
        entry, subject = self.returned or self.row.added_entry, f"shard {self.shard.name}"
        return self.log.make_finding(kind, subject, detail, hint, entry, severity=severity)


def list_shards(log: AuditedLog, since: int) -> list[AuditedShard]:
    """List the shards that entries from `since` on added or brought back, without vacuumed ones.

    Leaves out shards of invalid entries.
    """
    replay = log.replay
    returned = {
        added.shard.name: entry.number
        for entry in log.data
        if entry.number >= since and entry.operation in RESTORING_OPERATIONS
        for added in entry.added
    }
    shards = {}
    for row in replay.rows:
        name = row.shard.name
        entry = 0 if row.added_entry >= since else returned.get(name, 0)
        is_new = row.added_entry >= since or entry
        if is_new and row.added_entry <= len(log.times) and replay.get_tombstone(name) is None:
            shards[name] = AuditedShard(log, row, entry)
    return list(shards.values())


def list_direct_dependencies(shard: AuditedShard, logs: AuditedLogs) -> list[AuditedShard]:
    """List the shards that a shard is read from: its base, or the shards that its plan pairs."""
    base = shard.shard.base
    if base is not None:
        owner = logs.get(f"{shard.log.dataset}/{base.owner}")
        rows = None if owner is None else owner.replay.named.get(base.name)
        return [AuditedShard(owner, rows[-1])] if owner is not None and rows else []
    entry = shard.landing
    if not shard.shard.virtual or entry is None:
        return []
    names = [added.shard.name for added in entry.added]
    if shard.shard.name not in names:
        return []
    coverage = get_coverage(entry, names.index(shard.shard.name))
    if coverage is None:
        return []
    dependencies = []
    for source, span in zip(entry.inputs, (coverage.left, coverage.right), strict=True):
        log = logs.get(source.label)
        if log is not None and log.snapshot(source.snapshot) is not None:
            rows = logs.rows(log, source.snapshot)[slice(*span)]
            dependencies += [AuditedShard(log, row) for row in rows]
    return dependencies


def list_dependencies(shards: Iterable[AuditedShard], logs: AuditedLogs) -> list[AuditedShard]:
    """List all shards that some shards are read from, each once, without these shards."""
    listed = list(shards)
    seen = {shard.path for shard in listed}
    dependencies: list[AuditedShard] = []

    def collect(shard: AuditedShard) -> None:
        for dependency in list_direct_dependencies(shard, logs):
            if dependency.path not in seen:
                seen.add(dependency.path)
                dependencies.append(dependency)
                collect(dependency)

    for shard in listed:
        collect(shard)
    return dependencies


def iter_dependents_in_use(log: AuditedLog) -> Iterator[tuple[int, AuditedShard]]:
    """Yield the overlays and virtual shards of the published and the latest snapshot."""
    replay = log.replay
    for number in dict.fromkeys((replay.published or 0, replay.snapshot)):
        for row in replay.at(number) if number else ():
            if row.shard.base or row.shard.virtual:
                yield number, AuditedShard(log, row)
