"""Evidence that logs are complete: what the logs of a root say about each other.

Vacuum relies on a log for what nobody needs. A log that was moved away, or an older copy of it,
says too little: every later shard looks as if it had never been committed. Other logs remember. An
entry names the snapshots that it read, an overlay its base, a pin the version that holds it, and a
checkpoint the entry at which it was written. All of these must exist before vacuum deletes.
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

_PUT_BACK = "put the log back from a copy of the root, then run again"


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """Something that a log lacks, and the log that names it."""

    version: str
    problem: str
    by: str
    snapshot: int | None = None
    entry: int | None = None
    shard: str | None = None
    hint: Hint = field(default=Hint.of(_PUT_BACK), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            name: getattr(self, name)
            for name in ("version", "snapshot", "entry", "shard", "problem", "by")
        }


@dataclass(slots=True)
class _LogRecord:
    """One log, each entry read once: its end, and what it says about other logs."""

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
        implied = list(self._implied())
        try:
            for entry in self.log.entries(self.number + 1):
                self._take(entry)
        except CorruptLogError as error:
            if error.kind != "missing-entry":
                raise
            raise make_incomplete_log_error([self._without(error.entry, "a later entry")]) from None
        lacking = [self._without(number, by) for number, by in implied if number > self.number]
        if lacking:
            raise make_incomplete_log_error(lacking)

    def _implied(self) -> Iterator[tuple[int, str]]:
        """Yield the entries that listed files imply. Listing comes before reading."""
        for file in self.log.store.list(self.log.folder):
            leaf = file.name.rpartition("/")[2]
            if found := ENTRY_NAME.fullmatch(leaf):
                self.times.note_stored(int(found[1]), file.modified)
                yield int(found[1]), leaf
            elif found := CHECKPOINT_NAME.fullmatch(leaf):
                yield int(found[1]), leaf
        if hinted := self.log.read_hint():
            yield hinted, "newest-checkpoint.json"

    def _without(self, number: int, by: str) -> MissingEvidence:
        entry = min(number, self.number + 1)
        return MissingEvidence(
            self.log.label,
            f"entry {entry} is missing",
            f"{by} of {self.log.label}",
            entry=entry,
            hint=Hint.of(_PUT_BACK, "; a checkpoint that is wrong can be deleted"),
        )

    def _take(self, entry: Entry) -> None:
        if entry.previous != self.digest:
            what = f"it does not follow entry {self.number} as that is here"
            raise CorruptLogError(self.log.label, entry.number, what, "broken-chain")
        self.number, self.digest = entry.number, entry.digest
        self.times.take(entry)
        if entry.changes_data:
            self.snapshots[entry.snapshot] = entry.digest
        for told in entry.inputs:
            self.inputs.setdefault(told, entry.number)
        bases = [one.shard.base.name for one in entry.added if one.shard.base is not None]
        # With inputs, what the shards are made of is in the snapshots that these name.
        for name in (*bases, *(() if entry.inputs else entry.bases)):
            if not name.startswith(f"{self.log.version}."):
                self.shards.setdefault(name, entry.number)
        if entry.pin is not None:
            change = self.pins.discard if entry.pin.snapshot is None else self.pins.add
            change(entry.pin.name)


class LogEvidence:
    """All logs of a root, read for what the vacuum of a dataset must know before it deletes."""

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
        """Raise IncompleteLogError if a log that vacuum relies on lacks what others name.

        `owners` are the versions of the dataset that have files.
        """
        missing = list(dict.fromkeys(self._missing(owners)))
        if missing:
            raise make_incomplete_log_error(missing)

    def _missing(self, owners: Collection[str]) -> Iterator[MissingEvidence]:
        believed = {f"{self._dataset}/{owner}" for owner in owners}
        holders = self._holders()
        for name, record in self._logs.items():
            for told, number in record.inputs.items():
                if told.label in believed | holders:
                    yield from self._input(told, f"{name} entry {number}")
            known: dict[str, State] = {}
            for shard, number in record.shards.items():
                owner = f"{record.log.dataset}/{shard.split('.', 1)[0]}"
                if owner in believed | holders:
                    yield from self._shard(owner, shard, f"{name} entry {number}", known)
            for pin in sorted(record.pins):
                holder = parse_pin_holder(pin)
                needed = holder in believed or name in believed | holders
                if holder is not None and needed and not self.has_log(holder):
                    yield _make_missing_holder(name, pin, holder)

    def _holders(self) -> set[str]:
        """Return the versions whose pins retain shards of the dataset, directly or not."""
        found: set[str] = set()
        left = [name for name in self._logs if name.startswith(f"{self._dataset}/")]
        while left:
            record = self._logs.get(left.pop())
            holders = set() if record is None else set(map(parse_pin_holder, record.pins))
            new = {one for one in holders if one is not None} - found
            found |= new
            left += new
        return found

    def _input(self, told: Input, by: str) -> Iterator[MissingEvidence]:
        if not self.has_log(told.label):
            yield MissingEvidence(told.label, "its log is missing", by, told.snapshot)
            return
        snapshots = self._logs[told.label].snapshots
        if told.snapshot not in snapshots:
            last = max(snapshots, default=0)
            yield MissingEvidence(told.label, f"its log ends at snapshot {last}", by, told.snapshot)
        elif snapshots[told.snapshot] != told.entry:
            yield MissingEvidence(told.label, "its log has another entry there", by, told.snapshot)

    def _shard(
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
            f"{_PUT_BACK}; if {holder} was never committed, derive it again or release the pin: "
            f"`{release}`"
        ),
    )


def make_incomplete_log_error(missing: list[MissingEvidence]) -> IncompleteLogError:
    """Build the error to raise for what logs lack."""
    first = missing[0]
    what = f"snapshot {first.snapshot}" if first.snapshot else first.shard or "it"
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    return IncompleteLogError(
        f"{first.version}: {first.problem}, but {first.by} implies {what}{more}",
        tuple(one.to_dict() for one in missing),
        hint=first.hint,
        version=first.version,
        snapshot=first.snapshot,
    )
