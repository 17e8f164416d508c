"""The logs of a root, each read once and proved while it is read, with what an audit asks of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError, UnknownFormatError
from shardline.log.log import ENTRY_NAME
from shardline.log.model import INTEGRITY
from shardline.log.parameters import EraseParameters, RepairParameters
from shardline.log.replay import Replay
from shardline.log.state import BRINGS_BACK
from shardline.operations.verify_log import LogReport, read_verified_log
from shardline.pairing.coverage import get_coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.publication import ReplayedShard, ReplayedSnapshot
    from shardline.log.version import StoredVersion
    from shardline.provenance.log_index import LogIndex
    from shardline.storage import ObjectInfo, Store


MAX_CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of two machines may be apart."""


@dataclass(slots=True)
class AuditedLog:
    """A version's log, as far as it is sound.

    `data` are the entries that made a snapshot. `times` and `hosts` tell of each entry when and
    where it was made, `failures` are those that may have taken back that something is published.
    `idle` are attestations about what there never was: the entry, and what it speaks of. `repairs`
    tells the entries that repaired shards. If the log cannot be read at all, `unreadable` says why.
    `sidecars` has the committed digests of each sidecar, with their entries, the latest last.
    """

    version: StoredVersion
    report: LogReport
    ledger: Replay
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
        """The version."""
        return self.version.name

    @property
    def dataset(self) -> str:
        """Its dataset."""
        return self.version.log.dataset

    def made(self, snapshot: int) -> ReplayedSnapshot | None:
        """A snapshot; None if there is none of that number, as far as is known."""
        known = 1 <= snapshot <= self.ledger.snapshot
        return self.ledger.made[snapshot - 1] if known else None

    def entry(self, number: int) -> Entry | None:
        """An entry that made a snapshot; None if that is none, or of no sound log."""
        at = bisect_left(self.data, number, key=lambda entry: entry.number)
        found = self.data[at] if at < len(self.data) else None
        return found if found is not None and found.number == number else None

    def note(self, entry: Entry, ledger: Replay) -> None:
        """Keep what will be asked of an entry."""
        self.times.append(entry.time)
        self.hosts.append(entry.maker.host)
        for name, digest in entry.sidecars.items():
            rewrite = entry.read(EraseParameters).rewrites.get(name)
            before = None if rewrite is None else rewrite.before
            found = self.sidecars.setdefault(name, [] if before is None else [(0, before)])
            found.append((entry.number, digest))
        if entry.changes_data:
            self.data.append(entry)
            if entry.operation == "repair":
                self.repairs[entry.read(RepairParameters).shard] = entry.number
        if entry.rejects is not None or (entry.condemned and entry.operation != "vacuum"):
            self.failures.append(entry.number)
        for told in entry.attestations:
            if not told.passed:
                self.failures.append(entry.number)
            if told.content is not None:
                if not ledger.has_content(told.content):
                    self.idle.append((entry.number, f"the content {told.content[:12]}…"))
            else:
                strange = (name for name in told.shards if name not in ledger.named)
                self.idle += [(entry.number, f"shard {name}") for name in strange]

    def entry_before(self, time: datetime) -> int:
        """The newest entry from before a time; 0 if there was none yet."""
        return bisect_left(self.times, time)

    def entry_at(self, time: datetime) -> int:
        """The newest entry at a time; 0 if there was none yet."""
        return bisect_right(self.times, time)


class AuditedLogs:
    """The logs of a root. Other versions than those that are audited are read when needed.

    `doubts` are what could not be judged, and `lower` the versions that one is read from, once that
    was asked.
    """

    def __init__(self, index: LogIndex) -> None:
        self.index = index
        self._known: dict[str, AuditedLog] = {}
        self._lists: dict[tuple[str, int], list[ReplayedShard]] = {}
        self._published: dict[tuple[str, int, int], bool] = {}
        self._files: dict[str, dict[str, ObjectInfo]] = {}
        self.doubts: dict[tuple[str, str], str] = {}
        self.lower: dict[str, dict[str, None]] = {}

    @property
    def store(self) -> Store:
        """Where the root lies."""
        return self.index.store

    def names(self) -> list[str]:
        """The versions that have a log, also one whose first entry is gone."""
        return [
            name
            for name in self.index.found()
            if self.index.version(name).log.exists(1) or self._has_entries(name)
        ]

    def _has_entries(self, name: str) -> bool:
        leaves = (file.name.rpartition("/")[2] for file in self.store.list(f"{name}/log"))
        return any(ENTRY_NAME.fullmatch(leaf) for leaf in leaves)

    def of(self, name: str) -> AuditedLog | None:
        """The history of a version; None if it has none."""
        if name not in self._known:
            self._known[name] = self._read(name)
        found = self._known[name]
        return found if found.report.entries or found.unreadable else None

    def _read(self, name: str) -> AuditedLog:
        version = self.index.version(name)
        log = version.log
        history = AuditedLog(version, LogReport(0, 0, ()), Replay(log.dataset, log.version))
        try:
            proved = read_verified_log(log, history.note)
        except (UnknownFormatError, ShardlineError) as error:
            history.unreadable = error.message
            return history
        history.report, history.ledger = proved.report, proved.ledger
        history.whole = proved.whole
        return history

    def is_in_doubt(self, history: AuditedLog, other: AuditedLog | None, what: str = "") -> bool:
        """Whether something cannot be judged, because another log is damaged, or its own.

        That is remembered, with the first thing that could not be judged: who is damaged is told
        once, and not by all that follows from it.
        """
        if other is None or other.whole:
            return False
        self.doubts.setdefault((history.name, other.name), what)
        return True

    def shards(self, history: AuditedLog, snapshot: int) -> list[Shard]:
        """The shards of a snapshot, in order."""
        return [row.shard for row in self.rows(history, snapshot)]

    def rows(self, history: AuditedLog, snapshot: int) -> list[ReplayedShard]:
        """The rows of a snapshot; who asks for several mostly asks for one again."""
        key = history.name, snapshot
        if key not in self._lists:
            if len(self._lists) > 64:
                self._lists.clear()
            self._lists[key] = history.ledger.at(snapshot)
        return self._lists[key]

    def files(self, dataset: str, folder: str) -> dict[str, ObjectInfo]:
        """The files of a dataset's folder by their names, listed once."""
        where = f"{dataset}/{folder}"
        if where not in self._files:
            listed = self.store.list(where)
            self._files[where] = {file.name[len(where) + 1 :]: file for file in listed}
        return self._files[where]

    def was_published(self, history: AuditedLog, snapshot: int, entry: int) -> bool:
        """Whether a snapshot was published when an entry of its log was the newest."""
        made = history.made(snapshot)
        if made is None:
            return False
        if made.published and made.published <= entry:
            doubted = any(made.published < number <= entry for number in history.failures)
            if not doubted:
                return True
        key = history.name, snapshot, entry
        if key not in self._published:
            self._published[key] = self._replayed(history, snapshot, entry)
        return self._published[key]

    @staticmethod
    def _replayed(history: AuditedLog, snapshot: int, entry: int) -> bool:
        """The same, by reading the log up to that entry once more."""
        log = history.version.log
        ledger = Replay(log.dataset, log.version)
        for one in log.entries(1):
            if one.number > entry:
                break
            ledger.take(one)
        return snapshot <= ledger.snapshot and ledger.so_far.is_published(snapshot)


@dataclass(frozen=True, slots=True)
class ShardToRead:
    """A shard that should be there, and the version whose log tells of it.

    `brought` is the entry that brought it back, if it is read because of that.
    """

    history: AuditedLog
    row: ReplayedShard
    brought: int = 0

    @property
    def name(self) -> str:
        """Where it lies."""
        return self.history.version.shard_name(self.row.shard)

    @property
    def entry(self) -> int:
        """The entry that a finding about it belongs to."""
        return self.brought or self.row.landed

    @property
    def has_failed(self) -> bool:
        """Whether its log says that it is damaged."""
        bit = self.history.ledger.bits.get(INTEGRITY)
        return bit is not None and bool(self.row.failed >> bit & 1)

    @property
    def is_held(self) -> bool:
        """Whether the newest or the published snapshot holds it."""
        ledger, shard = self.history.ledger, self.row.shard.name
        return any(ledger.row_at(shard, one or 0) for one in (ledger.snapshot, ledger.published))

    @property
    def is_replaced(self) -> bool:
        """Whether its log says that it is damaged, and what is in use does not hold it."""
        return self.has_failed and not self.is_held

    @property
    def repaired_in(self) -> int | None:
        """The entry that put another in its place; None if there is none, or it came back since."""
        repaired = self.history.repairs.get(self.row.shard.name)
        return None if repaired is None or self.is_held else repaired


def list_shards_to_read(history: AuditedLog, since: int) -> list[ShardToRead]:
    """The shards that came from an entry on and that vacuum has not announced, each once.

    That are those that landed since, and those that were brought back since. What an entry says
    that is not sound is not held against shards.
    """
    ledger, sound = history.ledger, len(history.times)
    brought = {
        one.shard.name: entry.number
        for entry in history.data
        if entry.number >= since and entry.operation in BRINGS_BACK
        for one in entry.added
    }
    found = {}
    for row in ledger.rows:
        name = row.shard.name
        back = 0 if row.landed >= since else brought.get(name, 0)
        told = row.landed <= sound and (back or row.landed >= since)
        if told and ledger.shard_names.get(name, 0) >= 0:
            found[name] = ShardToRead(history, row, back)
    return list(found.values())


def list_dependencies_of_row(
    history: AuditedLog, row: ReplayedShard, logs: AuditedLogs
) -> list[ShardToRead]:
    """The shards that one cannot be read without, as far as the logs tell of them."""
    shard = row.shard
    if shard.base is not None:
        owner = logs.of(f"{history.dataset}/{shard.base.owner}")
        rows = None if owner is None else owner.ledger.named.get(shard.base.name)
        return [ShardToRead(owner, rows[-1])] if owner is not None and rows else []
    if not shard.virtual:
        return []
    entry = history.entry(row.landed)
    names = [] if entry is None else [one.shard.name for one in entry.added]
    if entry is None or shard.name not in names:
        return []
    cover = get_coverage(entry, names.index(shard.name))
    if cover is None:
        return []
    found = []
    for told, places in zip(entry.inputs, (cover.left, cover.right), strict=True):
        origin = logs.of(told.shown)
        if origin is not None and origin.made(told.snapshot) is not None:
            listed = logs.rows(origin, told.snapshot)[slice(*places)]
            found += [ShardToRead(origin, one) for one in listed]
    return found


def list_dependency_shards(shards: Iterable[ShardToRead], logs: AuditedLogs) -> list[ShardToRead]:
    """All that some shards are read from, each once, and none of themselves."""
    listed = list(shards)
    seen = {one.name for one in listed}
    found: list[ShardToRead] = []
    for one in listed:
        _collect_dependencies(one, logs, seen, found)
    return found


def _collect_dependencies(
    one: ShardToRead, logs: AuditedLogs, seen: set[str], found: list[ShardToRead]
) -> None:
    for under in list_dependencies_of_row(one.history, one.row, logs):
        if under.name not in seen:
            seen.add(under.name)
            found.append(under)
            _collect_dependencies(under, logs, seen, found)


def get_dependency_versions(history: AuditedLog, logs: AuditedLogs) -> dict[str, None]:
    """The versions from whose shards those of this one are read, also if their logs are damaged."""
    if history.name not in logs.lower:
        logs.lower[history.name] = _collect_dependency_versions(history, logs)
    return dict(logs.lower[history.name])


def _collect_dependency_versions(history: AuditedLog, logs: AuditedLogs) -> dict[str, None]:
    names: dict[str, None] = {}
    for row in history.ledger.rows:
        shard = row.shard
        if shard.base is not None:
            names[f"{history.dataset}/{shard.base.owner}"] = None
        elif shard.virtual and (entry := history.entry(row.landed)) is not None:
            names.update(dict.fromkeys(told.shown for told in entry.inputs))
    names.pop(history.name, None)
    for name in list(names):
        origin = logs.of(name)
        if origin is not None:
            names |= get_dependency_versions(origin, logs)
    return names


def iter_rows_in_use(history: AuditedLog) -> Iterator[tuple[int, ReplayedShard]]:
    """The rows of the published and the newest snapshot that lie on others, and the snapshot."""
    ledger = history.ledger
    for number in dict.fromkeys((ledger.published or 0, ledger.snapshot)):
        for row in ledger.at(number) if number else ():
            if row.shard.base or row.shard.virtual:
                yield number, row
