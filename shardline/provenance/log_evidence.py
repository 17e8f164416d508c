"""Evidence that logs are complete: references between the logs of a root.

Vacuum trusts a log to list all shards in use. If a log is missing or an older copy, later shards
look as if they were never committed. Other logs show that: an entry names the snapshots that it
read, an overlay its base, a pin its holder, and a checkpoint its entry. All of these must exist
before vacuum deletes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shardline.errors import CorruptLogError, IncompleteLogError
from shardline.hints import Hint
from shardline.log.log import CHECKPOINT_NAME, ENTRY_NAME, Log
from shardline.log.retention import ReleaseTimes
from shardline.log.version import StoredVersion
from shardline.provenance.catalog import find_all_versions
from shardline.provenance.pins import parse_pin_holder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    import numpy as np
    from numpy.typing import NDArray

    from shardline.log.entry import Entry
    from shardline.log.model import Input
    from shardline.log.state import State
    from shardline.storage import Store

_RESTORE_HINT = "restore the log from a copy of the root, then run again"


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """An entry, snapshot or shard that a log lacks, and the log that refers to it."""

    version: str
    problem: str
    by: str
    snapshot: int | None = None
    entry: int | None = None
    shard: str | None = None
    hint: Hint = field(default=Hint.of(_RESTORE_HINT), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            name: getattr(self, name)
            for name in ("version", "snapshot", "entry", "shard", "problem", "by")
        }


@dataclass(slots=True)
class _LogRecord:
    """The end of a log and its references to other logs, each entry read once."""

    log: Log
    number: int = 0
    digest: str | None = None
    snapshots: dict[int, str] = field(default_factory=dict)
    inputs: dict[Input, int] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)
    pins: set[str] = field(default_factory=set)
    times: ReleaseTimes = field(default_factory=ReleaseTimes)

    def follow(self) -> None:
        """Read new entries. Raises IncompleteLogError if a log ends before what is listed."""
        implied = list(self._iter_implied_entries())
        try:
            for entry in self.log.entries(self.number + 1):
                self._add(entry)
        except CorruptLogError as error:
            if error.kind != "missing-entry":
                raise
            missing = [self._make_missing_entry(error.entry, "a later entry")]
            raise make_incomplete_log_error(missing) from None
        missing = [
            self._make_missing_entry(number, by) for number, by in implied if number > self.number
        ]
        if missing:
            raise make_incomplete_log_error(missing)

    def _iter_implied_entries(self) -> Iterator[tuple[int, str]]:
        """Yield the entries that listed files imply. Listing comes before reading."""
        for file in self.log.store.list(self.log.folder):
            leaf = file.name.rpartition("/")[2]
            if match := ENTRY_NAME.fullmatch(leaf):
                self.times.note_stored(int(match[1]), file.modified)
                yield int(match[1]), leaf
            elif match := CHECKPOINT_NAME.fullmatch(leaf):
                yield int(match[1]), leaf
        if hinted := self.log.read_hint():
            yield hinted, "newest-checkpoint.json"

    def _make_missing_entry(self, number: int, by: str) -> MissingEvidence:
        entry = min(number, self.number + 1)
        return MissingEvidence(
            self.log.label,
            f"entry {entry} is missing",
            f"{by} of {self.log.label}",
            entry=entry,
            hint=Hint.of(_RESTORE_HINT, "; an invalid checkpoint can be deleted"),
        )

    def _add(self, entry: Entry) -> None:
        if entry.previous != self.digest:
            problem = f"it does not follow entry {self.number}"
            raise CorruptLogError(self.log.label, entry.number, problem, "broken-chain")
        self.number, self.digest = entry.number, entry.digest
        self.times.take(entry)
        if entry.changes_data:
            self.snapshots[entry.snapshot] = entry.digest
        for source in entry.inputs:
            self.inputs.setdefault(source, entry.number)
        shards = (added.shard for added in entry.added)
        bases = [shard.base.name for shard in shards if shard.base is not None]
        # The bases of an entry with inputs are shards of these snapshots.
        for name in (*bases, *(() if entry.inputs else entry.bases)):
            if not name.startswith(f"{self.log.version}."):
                self.shards.setdefault(name, entry.number)
        if entry.pin is not None:
            change = self.pins.discard if entry.pin.snapshot is None else self.pins.add
            change(entry.pin.name)


class LogEvidence:
    """All logs of a root, to validate before a vacuum of a dataset."""

    def __init__(self, store: Store, dataset: str) -> None:
        self._store = store
        self._dataset = dataset
        self._logs: dict[str, _LogRecord] = {}

    def follow(self, owners: Collection[str]) -> None:
        """Read new entries. Raises IncompleteLogError if a log ends before what is listed."""
        own = {f"{self._dataset}/{owner}" for owner in owners}
        for name in sorted(own.union(find_all_versions(self._store))):
            if name not in self._logs:
                self._logs[name] = _LogRecord(Log(self._store, *name.split("/")))
            self._logs[name].follow()

    def has_log(self, name: str) -> bool:
        """Return True if a version has an entry."""
        return name in self._logs and self._logs[name].number > 0

    def get_release_times(
        self, state: State, now: datetime, *, erased: bool = False
    ) -> NDArray[np.int64] | None:
        """Return when the snapshots of a version were released; None if its log is unknown."""
        record = self._logs.get(state.name)
        return None if record is None else record.times.column(state, now, erased=erased)

    def validate(self, owners: Collection[str]) -> None:
        """Raise IncompleteLogError if a log that vacuum relies on lacks what others refer to.

        `owners` are the versions of the dataset that have files.
        """
        missing = list(dict.fromkeys(self._iter_missing(owners)))
        if missing:
            raise make_incomplete_log_error(missing)

    def _iter_missing(self, owners: Collection[str]) -> Iterator[MissingEvidence]:
        trusted = {f"{self._dataset}/{owner}" for owner in owners}
        holders = self._list_holders()
        for name, record in self._logs.items():
            for source, number in record.inputs.items():
                if source.label in trusted | holders:
                    yield from self._iter_missing_input(source, f"{name} entry {number}")
            known: dict[str, State] = {}
            for shard, number in record.shards.items():
                owner = f"{record.log.dataset}/{shard.split('.', 1)[0]}"
                if owner in trusted | holders:
                    yield from self._iter_missing_shard(
                        owner, shard, f"{name} entry {number}", known
                    )
            for pin in sorted(record.pins):
                holder = parse_pin_holder(pin)
                needed = holder in trusted or name in trusted | holders
                if holder is not None and needed and not self.has_log(holder):
                    yield _make_missing_holder(name, pin, holder)

    def _list_holders(self) -> set[str]:
        """Return the versions whose pins retain shards of the dataset, directly or not."""
        known: set[str] = set()
        pending = [name for name in self._logs if name.startswith(f"{self._dataset}/")]
        while pending:
            record = self._logs.get(pending.pop())
            holders = set() if record is None else set(map(parse_pin_holder, record.pins))
            new = {holder for holder in holders if holder is not None} - known
            known |= new
            pending += new
        return known

    def _iter_missing_input(self, source: Input, by: str) -> Iterator[MissingEvidence]:
        if not self.has_log(source.label):
            yield MissingEvidence(source.label, "its log is missing", by, source.snapshot)
            return
        snapshots = self._logs[source.label].snapshots
        if source.snapshot not in snapshots:
            last = max(snapshots, default=0)
            yield MissingEvidence(
                source.label, f"its log ends at snapshot {last}", by, source.snapshot
            )
        elif snapshots[source.snapshot] != source.entry:
            yield MissingEvidence(
                source.label, "its log has another entry there", by, source.snapshot
            )

    def _iter_missing_shard(
        self, owner: str, shard: str, by: str, known: dict[str, State]
    ) -> Iterator[MissingEvidence]:
        if not self.has_log(owner):
            yield MissingEvidence(owner, "its log is missing", by, shard=shard)
            return
        if owner not in known:
            known[owner] = StoredVersion(self._store, owner).state
        if not known[owner].has_shard_name(shard):
            yield MissingEvidence(owner, "its log does not know the shard", by, shard=shard)


def _make_missing_holder(name: str, pin: str, holder: str) -> MissingEvidence:
    release = f"shardline.open(root)[{name!r}].pin({pin!r}, None)"
    return MissingEvidence(
        holder,
        "its log is missing",
        f"pin {pin!r} of {name}",
        hint=Hint.of(
            f"{_RESTORE_HINT}; if {holder} was never committed, derive it again or release the "
            f"pin: `{release}`"
        ),
    )


def make_incomplete_log_error(missing: list[MissingEvidence]) -> IncompleteLogError:
    """Build the error to raise for what logs lack."""
    first = missing[0]
    subject = f"snapshot {first.snapshot}" if first.snapshot else first.shard or "it"
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    return IncompleteLogError(
        f"{first.version}: {first.problem}, but {first.by} implies {subject}{more}",
        tuple(evidence.to_dict() for evidence in missing),
        hint=first.hint,
        version=first.version,
        snapshot=first.snapshot,
    )
