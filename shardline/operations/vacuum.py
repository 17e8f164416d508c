"""Vacuum: delete the files of a dataset that nothing has needed for long enough.

A shard belongs to one version, told by its name, and only that version's log lets it in. Vacuum
announces in the same log which shards it will delete, and deletes them only after that: so a shard
is either committed before the announcement, which then leaves it alone, or the commit comes after
it and is refused. That holds whatever the clocks say; the time to keep is for readers, and so that
slow writers need not do their work again.
"""

from __future__ import annotations

import contextlib
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.errors import (
    InvalidNameError,
    ShardlineError,
    SnapshotNotFoundError,
    UnsyncedWriteError,
    VacuumStoppedError,
)
from shardline.execution.threads import run_tasks
from shardline.log.changes import AddTombstones
from shardline.log.log import CHECKPOINT_NAME
from shardline.log.model import RECEIPT, ROWS, SHARD_NAME
from shardline.log.parameters import EntryParameters, VacuumParameters
from shardline.log.retention import find_unreferenced
from shardline.log.version import StoredVersion, utc_now
from shardline.operations.partial_commit import make_incomplete_error
from shardline.provenance.dependencies import Dependencies, list_needless_pins, parse_pin_holder
from shardline.provenance.log_evidence import LogEvidence
from shardline.provenance.retainers import iter_logless_retainers, iter_retainers
from shardline.storage import PROBE_NAME, TEMPORARY_NAME, open_store, validate_name
from shardline.storage.store import probe_time
from shardline.storage.temporary_files import is_abandoned, remove_abandoned
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

    from shardline.log.state import State
    from shardline.provenance.retainers import Retainer
    from shardline.storage import ObjectInfo, RootLocation, Store

DEFAULT_RETENTION = timedelta(days=7)
_RETAINED_CHECKPOINTS = 2
_PROBE_LIFETIME = timedelta(hours=1)
"""How long a probe may be in use: far longer than it takes."""
_BESIDE = re.compile(r"\.(index|receipt|rows)$")

VacuumReason: TypeAlias = Literal[
    "in no snapshot that is kept",
    "written and never committed",
    "it held erased records",
    "announced by an earlier vacuum",
    "beside a shard that goes or is gone",
    "refused rows of an append that was never committed",
    "left behind by a writer that was stopped",
    "a newer checkpoint replaces it",
]

_ABANDONED: VacuumReason = "left behind by a writer that was stopped"


@dataclass(frozen=True, slots=True)
class VacuumCandidate:
    """A file that vacuum deletes, or would."""

    name: str
    bytes: int
    modified: datetime
    why: VacuumReason


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What vacuum deleted, or would have without `dry_run`; `kept` files it leaves alone.

    `keepers` keep shards that the newest snapshots do without. `let_go` are pins that nothing needs
    any more: what they held goes when the time to keep has passed.
    """

    dataset: str
    dry_run: bool
    files: list[VacuumCandidate] = field(default_factory=list)
    kept: int = 0
    keepers: list[Retainer] = field(default_factory=list)
    let_go: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How many bytes that frees."""
        return sum(file.bytes for file in self.files)


@dataclass(slots=True)
class _VacuumRun:
    """A vacuum at work: what it goes by, and what it has done so far."""

    store: Store
    dataset: str
    retention: timedelta
    now: datetime
    evidence: LogEvidence
    without_log: Collection[str]
    announced: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    released_pins: list[str] = field(default_factory=list)

    def needs(self) -> Dependencies:
        """What versions need of others, as the logs are now."""
        return Dependencies(self.store, self.now, self.retention, self.evidence)

    def is_old(self, file: ObjectInfo) -> bool:
        """Return True for a file from before the time to keep; without one, for every file."""
        return not self.retention or file.modified < self.now - self.retention

    def believes(self, version: StoredVersion) -> bool:
        """Return True if a version has a log, or is said to have had none ever."""
        return self.evidence.has_log(version.name) or version.log.version in self.without_log

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Make an error say what was done before it."""
        try:
            yield
        except ShardlineError as error:
            if not (self.announced or self.deleted or self.released_pins):
                raise
            raise self._stopped(error) from error

    def _stopped(self, error: ShardlineError) -> VacuumStoppedError:
        done = (
            f"{self.dataset}: vacuum announced "
            f"{format_count(len(self.announced), 'shard')}, deleted "
            f"{format_count(len(self.deleted), 'file')} and released "
            f"{format_count(len(self.released_pins), 'pin')}"
        )
        again = "run again: the next vacuum deletes what was announced"
        stopped = make_incomplete_error(VacuumStoppedError, done, error, again)
        stopped.announced, stopped.deleted = tuple(self.announced), tuple(self.deleted)
        stopped.released_pins = tuple(self.released_pins)
        return stopped


def vacuum(
    root: RootLocation,
    dataset: str,
    *,
    retention: timedelta = DEFAULT_RETENTION,
    delete: bool = False,
    without_log: Collection[str] = (),
    clock: Callable[[], datetime] | None = None,
    progress: Callable[[VacuumCandidate], None] | None = None,
) -> VacuumReport:
    """Find what a dataset no longer needs, and with `delete` delete it.

    Kept are the shards of each version's newest and newest published snapshot, of all with a tag or
    pin, and of all that were one of these until less than `retention` ago. Pins of derived versions
    that no longer need them are let go of: what only they held was in use until then. The files of
    a version without a log are kept, unless `without_log` names it: set that only for a version
    that never had a log. `clock` gives the time; by default it is that of this machine or of the
    store, whichever is earlier.

    Raises IncompleteLogError, before anything is changed, if a log is missing or shorter than
    others imply. Raises VacuumStoppedError if it fails after it has changed something.
    """
    validate_name(dataset, "dataset")
    store = open_store(root)
    files = _list_shards_folder(store, dataset)
    names = {*_list_versions(store, dataset), *_list_owners(files)}
    evidence = LogEvidence(store, dataset)
    evidence.follow(names)
    evidence.validate(_list_owners(files))
    now = clock() if clock else _get_current_time(store, dataset, probe=delete and bool(retention))
    run = _VacuumRun(store, dataset, retention, now, evidence, frozenset(without_log))
    with run.reporting():
        return _run_vacuum(run, files, names, clock or utc_now, progress, delete=delete)


def _run_vacuum(
    run: _VacuumRun,
    files: list[ObjectInfo],
    names: set[str],
    clock: Callable[[], datetime],
    progress: Callable[[VacuumCandidate], None] | None,
    *,
    delete: bool,
) -> VacuumReport:
    versions = _sort_holders_first(
        StoredVersion(run.store, f"{run.dataset}/{one}", clock=clock) for one in names
    )
    at_once = delete and not run.retention
    needless = _release_pins(versions, run) if at_once else {}
    needs = run.needs()
    if not at_once:
        needless = {version.name: list_needless_pins(version, needs) for version in versions}
    doomed: list[VacuumCandidate] = []
    keepers: list[Retainer] = []
    for version in versions:
        own = _list_own_shards(version, files)
        if not run.believes(version):
            keepers += iter_logless_retainers(version, own)
            continue
        erased = _list_erased_shards(version, own)
        let_go = needless[version.name]
        # With a time to retention, what they held was in use until now.
        but = let_go if not delete and not run.retention else ()
        going = _list_shard_candidates(
            version, files, run, needs, erased=erased, but=but, delete=delete
        )
        gone = {_get_leaf(file.name) for file in going}
        staying = {name: file for name, file in own.items() if name not in gone}
        keepers += iter_retainers(version, staying, erased, needs, let_go)
        doomed += going
        doomed += _list_checkpoint_candidates(version, run)
    doomed += _list_temporary_candidates(run)
    if delete:
        # Others may have put logs back meanwhile that say more than those that were read.
        run.evidence.follow(names)
        run.evidence.validate(_list_owners(files))
        _delete(run, doomed, progress)
    if delete and not at_once:
        needless = _release_pins(versions, run)
    kept = len(files) - _list_shard_files(doomed)
    pins = [f"{name}: {pin}" for name, found in sorted(needless.items()) for pin in found]
    return VacuumReport(run.dataset, not delete, doomed, kept, keepers, pins)


def _get_current_time(store: Store, dataset: str, *, probe: bool) -> datetime:
    """Return the time by this machine and by the store, whichever is earlier.

    The store is asked with a `probe`, a small file. A clock that is ahead must not make anything
    look old.
    """
    now = utc_now()
    return min(now, probe_time(store, dataset)) if probe else now


def _sort_holders_first(versions: Iterable[StoredVersion]) -> list[StoredVersion]:
    """The versions of a dataset in an order in which those that hold others come before these.

    What a holder gives up is announced in its own log before it is looked at what it needs: so it
    cannot be brought back while what it is read from goes.
    """
    left = {version.name: version for version in versions}
    order: list[StoredVersion] = []

    def place(name: str) -> None:
        version = left.pop(name, None)
        if version is not None:
            for holder in sorted(filter(None, map(parse_pin_holder, version.state.pins))):
                place(holder)
            order.append(version)

    for name in sorted(left):
        place(name)
    return order


def _release_pins(versions: list[StoredVersion], run: _VacuumRun) -> dict[str, list[str]]:
    """Let go of the pins that nothing needs, and tell which, by version.

    Whoever derives a version pins its inputs before and behind its commit. So it is looked once
    more behind letting go: either its commit is seen here, or it sees that the pin is gone.
    """
    found = {}
    for version in versions:
        pins = list_needless_pins(version, run.needs())
        held = {pin: version.state.pins[pin] for pin in pins}
        for pin in pins:
            with contextlib.suppress(SnapshotNotFoundError):  # another vacuum was faster
                version.pin(pin, None)
                run.released_pins.append(f"{version.name}: {pin}")
        if held:
            pins = list_needless_pins(version, run.needs(), held)
        for pin in held.keys() - set(pins):
            version.pin(pin, held[pin].snapshot, held[pin].reason)
            if f"{version.name}: {pin}" in run.released_pins:
                run.released_pins.remove(f"{version.name}: {pin}")
        found[version.name] = pins
    return found


def _delete(
    run: _VacuumRun,
    doomed: list[VacuumCandidate],
    progress: Callable[[VacuumCandidate], None] | None,
) -> None:
    def delete_one(file: VacuumCandidate) -> VacuumCandidate:
        path = run.store.local_path(file.name) if file.why == _ABANDONED else None
        if path is not None and is_abandoned(path) is not None:
            # Only under its lock: its writer may have created it a moment ago.
            if remove_abandoned(str(path)):
                run.deleted.append(file.name)
        else:
            with _record_deletion(run.deleted, file.name):
                run.store.delete(file.name)
        return file

    for file in run_tasks(delete_one, doomed, workers=run.store.requests_at_once):
        if progress is not None:
            progress(file)


@contextmanager
def _record_deletion(done: list[str], name: str) -> Iterator[None]:
    """Note what was done, also if the disk did not confirm it."""
    try:
        yield
    except UnsyncedWriteError:
        done.append(name)
        raise
    done.append(name)


def _list_versions(store: Store, dataset: str) -> set[str]:
    """The versions that have a folder; one of another name is not ours."""
    found = set()
    for name in store.folders(dataset):
        with contextlib.suppress(InvalidNameError):
            found.add(validate_name(name, "version"))
    return found


def _list_shards_folder(store: Store, dataset: str) -> list[ObjectInfo]:
    """The files right in the shards folder; what lies in folders below it is not ours."""
    folder = f"{dataset}/shards"
    return [file for file in store.list(folder) if file.name == f"{folder}/{_get_leaf(file.name)}"]


def _list_owners(files: list[ObjectInfo]) -> set[str]:
    """The versions to which the files in the shards folder belong, by their names."""
    found = set()
    for file in files:
        match = SHARD_NAME.fullmatch(_BESIDE.sub("", _get_leaf(file.name)))
        if match:
            with contextlib.suppress(InvalidNameError):
                found.add(validate_name(match["version"], "version"))
    return found


def _get_leaf(name: str) -> str:
    return name.rpartition("/")[2]


def _list_shard_files(doomed: list[VacuumCandidate]) -> int:
    return sum(
        "/shards/" in file.name and not _get_leaf(file.name).startswith(".") for file in doomed
    )


def _list_shard_candidates(
    version: StoredVersion,
    files: list[ObjectInfo],
    run: _VacuumRun,
    needs: Dependencies,
    *,
    erased: set[str],
    but: Collection[str],
    delete: bool,
) -> list[VacuumCandidate]:
    """The shards of one version that may go, announced in its log if they are to be deleted.

    The pins in `but` are as good as let go of.
    """
    own = _list_own_shards(version, files)

    def choose(state: State) -> dict[str, VacuumReason]:
        released = run.evidence.released(state, run.now)
        free = find_unreferenced(state, run.now, run.retention, but=but, released=released)
        free_of_erased = _list_unneeded_erased(state, needs) if erased else set()
        known = set(state.stays.names().to_pylist())
        chosen: dict[str, VacuumReason] = {}
        for name, file in own.items():
            if name in erased & free_of_erased:
                chosen[name] = "it held erased records"
            elif state.condemned_in(name) is not None:
                continue
            elif name in free:
                chosen[name] = "in no snapshot that is kept"
            elif name not in known and run.is_old(file):
                chosen[name] = "written and never committed"
        return chosen

    chosen = choose(version.state)
    if delete and chosen:
        parameters = VacuumParameters(retention_seconds=int(run.retention.total_seconds()))
        entry = version.commit(
            AddTombstones(lambda state: sorted(choose(state)), parameters.to_dict())
        )
        announced = set(entry.condemned) if entry else set()
        run.announced += sorted(announced)
        chosen = {name: why for name, why in chosen.items() if name in announced}
    for name in own:
        condemned = version.state.condemned_in(name) is not None
        if condemned and name not in chosen and name not in erased:
            chosen[name] = "announced by an earlier vacuum"
    doomed = [_make_candidate(own[name], why) for name, why in chosen.items()]
    doomed += _list_sidecar_candidates(version, files, set(own) - set(chosen), set(chosen), run)
    return doomed + _list_quarantine_candidates(version, set(own), set(chosen), run)


def _list_own_shards(version: StoredVersion, files: list[ObjectInfo]) -> dict[str, ObjectInfo]:
    """The files that are shards of a version, by their names."""
    return {
        name: file
        for file in files
        if (match := SHARD_NAME.fullmatch(name := _get_leaf(file.name)))
        and match["version"] == version.log.version
    }


def _list_erased_shards(version: StoredVersion, names: Iterable[str]) -> set[str]:
    """The shards that an erase gave up, and no vacuum has announced yet.

    They never come back, but whoever holds a snapshot with them may read it for as long as before.
    """
    found = [(name, version.state.condemned_in(name)) for name in names]
    entries = {number for _, number in found if number is not None}
    erasing = {number for number in entries if version.log.entry(number).operation == "erase"}
    return {name for name, number in found if number in erasing}


def _list_unneeded_erased(state: State, needs: Dependencies) -> set[str]:
    """The shards that stay neither for a snapshot of their own version nor for those of others.

    Of erased shards, a version that holds a snapshot with them by a pin keeps only what it needs.
    """
    needs.refresh()
    pins = {pin for pin in state.pins if parse_pin_holder(pin) is not None}
    released = needs.released(state, erased=True)
    free = find_unreferenced(state, needs.now, needs.retention, but=pins, released=released)
    return free.difference(*needs.of(needs.opened(state.name)).values())


def _list_sidecar_candidates(
    version: StoredVersion,
    files: list[ObjectInfo],
    staying: set[str],
    going: set[str],
    run: _VacuumRun,
) -> list[VacuumCandidate]:
    """What lies beside shards that go or are gone: indexes, and of those never committed all.

    The receipt and the row map of a shard that was committed stay: what was made of it can still
    be traced.
    """
    known = set(version.state.stays.names().to_pylist())
    doomed = []
    for file in files:
        shard, beside = _BESIDE.subn("", _get_leaf(file.name))
        match = SHARD_NAME.fullmatch(shard)
        if not beside or not match or shard in staying:
            continue
        if shard in known and file.name.endswith((RECEIPT, ROWS)):
            continue
        gone = shard in going or version.state.condemned_in(shard) is not None
        if match["version"] == version.log.version and (gone or run.is_old(file)):
            doomed.append(_make_candidate(file, "beside a shard that goes or is gone"))
    return doomed


def _list_quarantine_candidates(
    version: StoredVersion, shards: set[str], going: set[str], run: _VacuumRun
) -> list[VacuumCandidate]:
    """The refused rows of parts that were never committed: with their shard, or without one."""
    known = set(version.state.stays.names().to_pylist())
    doomed: list[ObjectInfo] = []
    alone: list[ObjectInfo] = []
    for file in version.store.list(f"{version.log.dataset}/quarantine"):
        shard = f"{_get_leaf(file.name).removesuffix('.jsonl')}.tfrecord"
        match = SHARD_NAME.fullmatch(shard)
        if match is None or match["version"] != version.log.version or shard in known:
            continue
        if shard in going or version.state.condemned_in(shard) is not None:
            doomed.append(file)
        elif shard not in shards and run.is_old(file):
            alone.append(file)
    if alone:
        # A part of which no row gave a record has no shard to be known by.
        told = _list_referenced_quarantine(version)
        doomed += [file for file in alone if file.name not in told]
    why: VacuumReason = "refused rows of an append that was never committed"
    return [_make_candidate(file, why) for file in doomed]


def _list_referenced_quarantine(version: StoredVersion) -> set[str]:
    """The quarantine files that entries refer to."""
    return {
        name
        for entry in version.log.entries(1)
        for rows in entry.read(EntryParameters).quarantine
        for name in rows.files
    }


def _list_checkpoint_candidates(version: StoredVersion, run: _VacuumRun) -> list[VacuumCandidate]:
    found = version.store.list(version.log.folder)
    checkpoints = [file for file in found if CHECKPOINT_NAME.fullmatch(_get_leaf(file.name))]
    return [
        _make_candidate(file, "a newer checkpoint replaces it")
        for file in checkpoints[:-_RETAINED_CHECKPOINTS]
        if run.is_old(file)
    ]


def _list_temporary_candidates(run: _VacuumRun) -> list[VacuumCandidate]:
    """Temporary files and probes of writers that were stopped."""
    return [
        _make_candidate(file, _ABANDONED)
        for file in run.store.list(run.dataset, hidden=True)
        if _is_abandoned(file, run)
    ]


def _is_abandoned(file: ObjectInfo, run: _VacuumRun) -> bool:
    """Return True for a temporary file that no live writer has, and for an old probe.

    On a local disk a live writer has a lock on its file, whatever the clocks say.
    """
    is_old = file.modified < run.now - max(run.retention, _PROBE_LIFETIME)
    if TEMPORARY_NAME.fullmatch(_get_leaf(file.name)):
        path = run.store.local_path(file.name)
        abandoned = None if path is None else is_abandoned(path)
        return is_old if abandoned is None else abandoned
    return is_old and PROBE_NAME.fullmatch(_get_leaf(file.name)) is not None


def _make_candidate(file: ObjectInfo, why: VacuumReason) -> VacuumCandidate:
    return VacuumCandidate(file.name, file.size, file.modified, why)
