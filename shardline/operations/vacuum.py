"""Vacuum: delete the files of a dataset that no snapshot in retention needs.

A shard belongs to the version in its name, and only the log of that version can add it. Vacuum
first announces in this log which shards it deletes. So a shard is either committed before the
announcement, which then omits it, or its commit comes later and is refused. This holds for any
clocks: the retention is for readers, and saves slow writers from writing again.
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
from shardline.provenance.dependencies import Dependencies, list_needless_pins
from shardline.provenance.log_evidence import LogEvidence
from shardline.provenance.pins import parse_pin_holder
from shardline.provenance.retainers import iter_logless_retainers, iter_retainers
from shardline.report import Report
from shardline.storage import PROBE_NAME, TEMPORARY_NAME, open_store, validate_name
from shardline.storage.store import probe_time
from shardline.storage.temporary_files import is_abandoned, remove_abandoned
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.state import State
    from shardline.provenance.retainers import Retainer
    from shardline.storage import ObjectInfo, RootLocation, Store

DEFAULT_RETENTION = timedelta(days=7)
_RETAINED_CHECKPOINTS = 2
_PROBE_LIFETIME = timedelta(hours=1)
"""Upper bound of the time that a probe is in use."""
_SIDECAR = re.compile(r"\.(index|receipt|rows)$")

VacuumReason: TypeAlias = Literal[
    "in no retained snapshot",
    "never committed",
    "contains erased records",
    "announced by an earlier vacuum",
    "sidecar of a deleted shard",
    "quarantine file of an uncommitted append",
    "temporary file of a stopped writer",
    "replaced by a newer checkpoint",
]

_ABANDONED: VacuumReason = "temporary file of a stopped writer"


@dataclass(frozen=True, slots=True)
class VacuumCandidate:
    """File that vacuum deletes."""

    name: str
    bytes: int
    modified: datetime
    reason: VacuumReason


@dataclass(frozen=True, slots=True)
class VacuumReport(Report):
    """Result of a vacuum, or its plan with `dry_run`.

    `kept_files` counts the retained files in the shards folder. `retainers` retain shards that the
    latest snapshots do not need. `released_pins` are pins without a dependent: their shards can be
    deleted after the retention time.
    """

    dataset: str
    dry_run: bool
    files: list[VacuumCandidate] = field(default_factory=list)
    kept_files: int = 0
    retainers: list[Retainer] = field(default_factory=list)
    released_pins: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Total size of the deleted files."""
        return sum(file.bytes for file in self.files)

    def to_dict(self) -> Json:
        """Return the report as JSON values."""
        return {
            "dataset": self.dataset,
            "dry_run": self.dry_run,
            "bytes": self.bytes,
            "kept_files": self.kept_files,
            "retainers": [retainer.to_dict() for retainer in self.retainers],
            "released_pins": self.released_pins,
            "files": [
                {
                    "file": file.name,
                    "bytes": file.bytes,
                    "modified": file.modified.isoformat(),
                    "reason": file.reason,
                }
                for file in self.files
            ],
        }


@dataclass(slots=True)
class _VacuumRun:
    """Vacuum in progress: its arguments, and what it has changed so far."""

    store: Store
    dataset: str
    retention: timedelta
    now: datetime
    evidence: LogEvidence
    without_log: Collection[str]
    announced: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    released_pins: list[str] = field(default_factory=list)

    def read_dependencies(self) -> Dependencies:
        """Return the current dependencies between versions."""
        return Dependencies(self.store, self.now, self.retention, self.evidence)

    def is_old(self, file: ObjectInfo) -> bool:
        """Return True for a file that is older than the retention time."""
        return not self.retention or file.modified < self.now - self.retention

    def is_known(self, version: StoredVersion) -> bool:
        """Return True if a version has a log, or never had one according to the caller."""
        return self.evidence.has_log(version.name) or version.log.version in self.without_log

    @contextmanager
    def report_changes(self) -> Iterator[None]:
        """Convert an error after the first change to VacuumStoppedError."""
        try:
            yield
        except ShardlineError as error:
            if not (self.announced or self.deleted or self.released_pins):
                raise
            raise self._make_stopped_error(error) from error

    def _make_stopped_error(self, error: ShardlineError) -> VacuumStoppedError:
        done = (
            f"{self.dataset}: vacuum announced "
            f"{format_count(len(self.announced), 'shard')}, deleted "
            f"{format_count(len(self.deleted), 'file')} and released "
            f"{format_count(len(self.released_pins), 'pin')}"
        )
        remedy = "run again: the next vacuum deletes what was announced"
        stopped = make_incomplete_error(VacuumStoppedError, done, error, remedy)
        stopped.announced, stopped.deleted = tuple(self.announced), tuple(self.deleted)
        stopped.released_pins = tuple(self.released_pins)
        return stopped


def vacuum(
    root: RootLocation,
    dataset: str,
    *,
    retention: timedelta = DEFAULT_RETENTION,
    dry_run: bool = True,
    without_log: Collection[str] = (),
    clock: Callable[[], datetime] | None = None,
    progress: Callable[[VacuumCandidate], None] | None = None,
) -> VacuumReport:
    """Delete the files that a dataset no longer needs, or list them with `dry_run`.

    Vacuum retains the shards of the latest and published snapshot of each version, of snapshots
    with a tag or pin, and of all that were one of these within `retention`. It releases pins of
    derived versions that no longer need them.

    Args:
        root: Root of the dataset.
        dataset: Name of the dataset.
        retention: How long unreferenced files stay.
        dry_run: Plan without writing.
        without_log: Versions that never had a log, whose files can be deleted. The files of other
            versions without a log are retained.
        clock: Current time; by default that of this machine or of the store, whichever is earlier.
        progress: Called with each deleted file.

    Raises:
        IncompleteLogError: A log is missing or shorter than others imply. Nothing was changed.
        VacuumStoppedError: The vacuum failed after it changed something.

    Example:
        >>> vacuum(root, "digits").bytes
    """
    validate_name(dataset, "dataset")
    store = open_store(root)
    files = _list_shards_folder(store, dataset)
    names = {*_list_versions(store, dataset), *_list_owners(files)}
    evidence = LogEvidence(store, dataset)
    evidence.follow(names)
    evidence.validate(_list_owners(files))
    probe = not dry_run and bool(retention)
    now = clock() if clock else _get_current_time(store, dataset, probe=probe)
    run = _VacuumRun(store, dataset, retention, now, evidence, frozenset(without_log))
    with run.report_changes():
        return _run_vacuum(run, files, names, clock or utc_now, progress, delete=not dry_run)


def _run_vacuum(
    run: _VacuumRun,
    files: list[ObjectInfo],
    names: set[str],
    clock: Callable[[], datetime],
    progress: Callable[[VacuumCandidate], None] | None,
    *,
    delete: bool,
) -> VacuumReport:
    versions = _sort_dependents_first(
        StoredVersion(run.store, f"{run.dataset}/{name}", clock=clock) for name in names
    )
    release_first = delete and not run.retention
    needless: dict[str, list[str]] = {}
    dependencies = run.read_dependencies()
    dead: set[str] = set()
    candidates: list[VacuumCandidate] = []
    retainers: list[Retainer] = []
    for version in versions:
        own = _list_own_shards(version, files)
        if release_first:
            needless[version.name] = _release_pins(version, run)
            dependencies.refresh()
        else:
            needless[version.name] = list_needless_pins(version, dependencies, dead=dead)
        if not run.is_known(version):
            retainers += iter_logless_retainers(version, own)
            continue
        erased = _list_erased_shards(version, own)
        # With a retention time, the shards of a released pin were in use until now.
        ignored = needless[version.name] if not delete and not run.retention else ()
        shards = _list_shard_candidates(
            version, files, run, dependencies, erased=erased, ignored_pins=ignored, delete=delete
        )
        names_to_delete = {_get_leaf(file.name) for file in shards}
        dead |= names_to_delete
        retained = {name: file for name, file in own.items() if name not in names_to_delete}
        retainers += iter_retainers(version, retained, erased, dependencies, needless[version.name])
        candidates += shards
        candidates += _list_checkpoint_candidates(version, run)
    candidates += _list_temporary_candidates(run)
    if delete:
        # Logs that were restored concurrently may contain more than those that were read.
        run.evidence.follow(names)
        run.evidence.validate(_list_owners(files))
        _delete(run, candidates, progress)
    if delete and not release_first:
        needless = {version.name: _release_pins(version, run) for version in versions}
    return VacuumReport(
        run.dataset,
        not delete,
        candidates,
        len(files) - _count_shard_files(candidates),
        retainers,
        [f"{name}: {pin}" for name, pins in sorted(needless.items()) for pin in pins],
    )


def _get_current_time(store: Store, dataset: str, *, probe: bool) -> datetime:
    """Return the time of this machine or, with a probe file, of the store: the earlier one.

    So a fast clock does not make any file look old.
    """
    now = utc_now()
    return min(now, probe_time(store, dataset)) if probe else now


def _sort_dependents_first(versions: Iterable[StoredVersion]) -> list[StoredVersion]:
    """Return versions in an order where dependents precede the versions that they depend on.

    A dependent announces its deletions before its dependencies are read. So its shards cannot be
    restored while their dependencies are deleted.
    """
    pending = {version.name: version for version in versions}
    order: list[StoredVersion] = []

    def visit(name: str) -> None:
        version = pending.pop(name, None)
        if version is not None:
            for dependent in sorted(filter(None, map(parse_pin_holder, version.state.pins))):
                visit(dependent)
            order.append(version)

    for name in sorted(pending):
        visit(name)
    return order


def _release_pins(version: StoredVersion, run: _VacuumRun) -> list[str]:
    """Release and return the pins on a version that no other version needs.

    A derivation pins its inputs before and after its commit. So the second look after the release
    sees its commit, or the derivation sees that the pin is missing.
    """
    pins = list_needless_pins(version, run.read_dependencies())
    refs = {pin: version.state.pins[pin] for pin in pins}
    for pin in pins:
        with contextlib.suppress(SnapshotNotFoundError):  # Released by another vacuum.
            version.pin(pin, None)
            run.released_pins.append(f"{version.name}: {pin}")
    if refs:
        pins = list_needless_pins(version, run.read_dependencies(), refs)
    for pin in refs.keys() - set(pins):
        version.pin(pin, refs[pin].snapshot, refs[pin].reason)
        if f"{version.name}: {pin}" in run.released_pins:
            run.released_pins.remove(f"{version.name}: {pin}")
    return pins


def _delete(
    run: _VacuumRun,
    candidates: list[VacuumCandidate],
    progress: Callable[[VacuumCandidate], None] | None,
) -> None:
    def delete_file(file: VacuumCandidate) -> VacuumCandidate:
        path = run.store.local_path(file.name) if file.reason == _ABANDONED else None
        # Deleted under its lock: a live writer may just have created the file.
        removed = None if path is None else remove_abandoned(str(path))
        if removed:
            run.deleted.append(file.name)
        elif removed is None:
            with _record_deletion(run.deleted, file.name):
                run.store.delete(file.name)
        return file

    for file in run_tasks(delete_file, candidates, workers=run.store.requests_at_once):
        if progress is not None:
            progress(file)


@contextmanager
def _record_deletion(done: list[str], name: str) -> Iterator[None]:
    """Record a deletion, also if the disk did not confirm it."""
    try:
        yield
    except UnsyncedWriteError:
        done.append(name)
        raise
    done.append(name)


def _list_versions(store: Store, dataset: str) -> set[str]:
    """Return the versions with a folder. Other folders do not belong to the dataset."""
    versions = set()
    for name in store.folders(dataset):
        with contextlib.suppress(InvalidNameError):
            versions.add(validate_name(name, "version"))
    return versions


def _list_shards_folder(store: Store, dataset: str) -> list[ObjectInfo]:
    """Return the files of the shards folder, without those of subfolders."""
    folder = f"{dataset}/shards"
    return [file for file in store.list(folder) if file.name == f"{folder}/{_get_leaf(file.name)}"]


def _list_owners(files: list[ObjectInfo]) -> set[str]:
    """Return the versions in the names of the files of the shards folder."""
    owners = set()
    for file in files:
        match = SHARD_NAME.fullmatch(_SIDECAR.sub("", _get_leaf(file.name)))
        if match:
            with contextlib.suppress(InvalidNameError):
                owners.add(validate_name(match["version"], "version"))
    return owners


def _get_leaf(name: str) -> str:
    return name.rpartition("/")[2]


def _count_shard_files(candidates: list[VacuumCandidate]) -> int:
    return sum(
        "/shards/" in file.name and not _get_leaf(file.name).startswith(".") for file in candidates
    )


def _list_shard_candidates(
    version: StoredVersion,
    files: list[ObjectInfo],
    run: _VacuumRun,
    dependencies: Dependencies,
    *,
    erased: set[str],
    ignored_pins: Collection[str],
    delete: bool,
) -> list[VacuumCandidate]:
    """Return the shards of a version to delete; with `delete` announce them in its log first."""
    own = _list_own_shards(version, files)

    def choose(state: State) -> dict[str, VacuumReason]:
        released = run.evidence.get_release_times(state, run.now)
        free = find_unreferenced(
            state, run.now, run.retention, ignored_pins=ignored_pins, released=released
        )
        free_of_erased = _list_unneeded_erased(state, dependencies) if erased else set()
        known = set(state.shard_history.names().to_pylist())
        chosen: dict[str, VacuumReason] = {}
        for name, file in own.items():
            if name in erased & free_of_erased:
                chosen[name] = "contains erased records"
            elif state.get_tombstone(name) is not None:
                continue
            elif name in free:
                chosen[name] = "in no retained snapshot"
            elif name not in known and run.is_old(file):
                chosen[name] = "never committed"
        return chosen

    chosen = choose(version.state)
    if delete and chosen:
        parameters = VacuumParameters(retention_seconds=int(run.retention.total_seconds()))
        entry = version.commit(
            AddTombstones(lambda state: sorted(choose(state)), parameters.to_dict())
        )
        announced = set(entry.tombstones) if entry else set()
        run.announced += sorted(announced)
        chosen = {name: reason for name, reason in chosen.items() if name in announced}
    for name in own:
        condemned = version.state.get_tombstone(name) is not None
        if condemned and name not in chosen and name not in erased:
            chosen[name] = "announced by an earlier vacuum"
    candidates = [_build_candidate(own[name], reason) for name, reason in chosen.items()]
    candidates += _list_sidecar_candidates(version, files, set(own) - set(chosen), set(chosen), run)
    return candidates + _list_quarantine_candidates(version, set(own), set(chosen), run)


def _list_own_shards(version: StoredVersion, files: list[ObjectInfo]) -> dict[str, ObjectInfo]:
    """Return the shard files of a version by shard name."""
    return {
        name: file
        for file in files
        if (match := SHARD_NAME.fullmatch(name := _get_leaf(file.name)))
        and match["version"] == version.log.version
    }


def _list_erased_shards(version: StoredVersion, names: Iterable[str]) -> set[str]:
    """Return the shards that an erase replaced and no vacuum has announced yet.

    They never return, but snapshots with them stay readable for the retention time.
    """
    tombstones = [(name, version.state.get_tombstone(name)) for name in names]
    entries = {number for _, number in tombstones if number is not None}
    erasing = {number for number in entries if version.log.entry(number).operation == "erase"}
    return {name for name, number in tombstones if number in erasing}


def _list_unneeded_erased(state: State, dependencies: Dependencies) -> set[str]:
    """Return the shards that neither a snapshot of their version nor a dependent needs.

    The pin of a dependent retains of erased shards only those that the dependent needs.
    """
    dependencies.refresh()
    now, retention = dependencies.now, dependencies.retention
    pins = {pin for pin in state.pins if parse_pin_holder(pin) is not None}
    released = dependencies.get_release_times(state, erased=True)
    free = find_unreferenced(state, now, retention, ignored_pins=pins, released=released)
    return free.difference(
        *dependencies.get_needs_by_holder(dependencies.get_version(state.name)).values()
    )


def _list_sidecar_candidates(
    version: StoredVersion,
    files: list[ObjectInfo],
    retained: set[str],
    deleted: set[str],
    run: _VacuumRun,
) -> list[VacuumCandidate]:
    """Return the sidecars of deleted shards.

    The receipt and the row map of a committed shard stay, for traces through the shard.
    """
    known = set(version.state.shard_history.names().to_pylist())
    candidates = []
    for file in files:
        shard, is_sidecar = _SIDECAR.subn("", _get_leaf(file.name))
        match = SHARD_NAME.fullmatch(shard)
        if not is_sidecar or not match or shard in retained:
            continue
        if shard in known and file.name.endswith((RECEIPT, ROWS)):
            continue
        is_deleted = shard in deleted or version.state.get_tombstone(shard) is not None
        if match["version"] == version.log.version and (is_deleted or run.is_old(file)):
            candidates.append(_build_candidate(file, "sidecar of a deleted shard"))
    return candidates


def _list_quarantine_candidates(
    version: StoredVersion, shards: set[str], deleted: set[str], run: _VacuumRun
) -> list[VacuumCandidate]:
    """Return the quarantine files of uncommitted shards, and of parts without a shard."""
    known = set(version.state.shard_history.names().to_pylist())
    files: list[ObjectInfo] = []
    without_shard: list[ObjectInfo] = []
    for file in version.store.list(f"{version.log.dataset}/quarantine"):
        shard = f"{_get_leaf(file.name).removesuffix('.jsonl')}.tfrecord"
        match = SHARD_NAME.fullmatch(shard)
        if match is None or match["version"] != version.log.version or shard in known:
            continue
        if shard in deleted or version.state.get_tombstone(shard) is not None:
            files.append(file)
        elif shard not in shards and run.is_old(file):
            without_shard.append(file)
    if without_shard:
        # If no row gave a record, the entry refers to the quarantine file without a shard.
        referenced = _list_referenced_quarantine(version)
        files += [file for file in without_shard if file.name not in referenced]
    return [_build_candidate(file, "quarantine file of an uncommitted append") for file in files]


def _list_referenced_quarantine(version: StoredVersion) -> set[str]:
    """Return the quarantine files that log entries refer to."""
    return {
        name
        for entry in version.log.entries(1)
        for rows in entry.read(EntryParameters).quarantine
        for name in rows.files
    }


def _list_checkpoint_candidates(version: StoredVersion, run: _VacuumRun) -> list[VacuumCandidate]:
    checkpoints = [
        file
        for file in version.store.list(version.log.folder)
        if CHECKPOINT_NAME.fullmatch(_get_leaf(file.name))
    ]
    return [
        _build_candidate(file, "replaced by a newer checkpoint")
        for file in checkpoints[:-_RETAINED_CHECKPOINTS]
        if run.is_old(file)
    ]


def _list_temporary_candidates(run: _VacuumRun) -> list[VacuumCandidate]:
    """Return the temporary files and probes of stopped writers."""
    return [
        _build_candidate(file, _ABANDONED)
        for file in run.store.list(run.dataset, hidden=True)
        if _is_abandoned(file, run)
    ]


def _is_abandoned(file: ObjectInfo, run: _VacuumRun) -> bool:
    """Return True for a temporary file without a live writer, and for an old probe.

    On a local disk a live writer holds a lock on its file.
    """
    is_old = file.modified < run.now - max(run.retention, _PROBE_LIFETIME)
    if TEMPORARY_NAME.fullmatch(_get_leaf(file.name)):
        path = run.store.local_path(file.name)
        abandoned = None if path is None else is_abandoned(path)
        return is_old if abandoned is None else abandoned
    return is_old and PROBE_NAME.fullmatch(_get_leaf(file.name)) is not None


def _build_candidate(file: ObjectInfo, reason: VacuumReason) -> VacuumCandidate:
    return VacuumCandidate(file.name, file.size, file.modified, reason)
