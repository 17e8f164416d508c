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
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.errors import BadNameError
from shardline.execution.threads import run_tasks
from shardline.log.changes import Condemn
from shardline.log.facts import SHARD_NAME
from shardline.log.log import CHECKPOINT_NAME
from shardline.log.retention import unreferenced
from shardline.log.version import Version, utc_now
from shardline.storage import PROBE_NAME, TEMPORARY_NAME, check_name, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from shardline.log.state import State
    from shardline.storage import ObjectInfo, Store

DEFAULT_KEEP = timedelta(days=7)
_KEPT_CHECKPOINTS = 2
_BESIDE = re.compile(r"\.(index|receipt)$")

Why: TypeAlias = Literal[
    "in no snapshot that is kept",
    "written and never committed",
    "announced by an earlier vacuum",
    "beside a shard that goes or is gone",
    "refused rows of an append that was never committed",
    "left behind by a writer that was stopped",
    "a newer checkpoint replaces it",
]


@dataclass(frozen=True, slots=True)
class Doomed:
    """A file that vacuum deletes, or would."""

    name: str
    bytes: int
    modified: datetime
    why: Why


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """What vacuum deleted, or would have without `dry_run`; `kept` files it leaves alone."""

    dataset: str
    dry_run: bool
    files: list[Doomed] = field(default_factory=list)
    kept: int = 0

    @property
    def bytes(self) -> int:
        """How many bytes that frees."""
        return sum(file.bytes for file in self.files)


def vacuum(
    root: Store | Path | str,
    dataset: str,
    *,
    keep: timedelta = DEFAULT_KEEP,
    delete: bool = False,
    clock: Callable[[], datetime] = utc_now,
    progress: Callable[[Doomed], None] | None = None,
) -> VacuumReport:
    """Find what a dataset no longer needs, and with `delete` delete it.

    Kept are the shards of each version's newest and newest published snapshot, of all with a tag
    or pin, and of all that were one of these until less than `keep` ago.
    """
    check_name(dataset, "dataset")
    store = open_store(root)
    now = clock()
    files = _shards_folder(store, dataset)
    doomed: list[Doomed] = []
    for name in sorted({*_versions(store, dataset), *_owners(files)}):
        version = Version(store, f"{dataset}/{name}", clock=clock)
        doomed += _shards_to_go(version, files, now - keep, now, keep, delete=delete)
        doomed += _checkpoints_to_go(version, now - keep)
    doomed += _leftovers(store, dataset, now - keep)
    report = VacuumReport(dataset, not delete, doomed, len(files) - _shard_files(doomed))
    if delete:
        _delete(store, doomed, progress)
    return report


def _delete(store: Store, doomed: list[Doomed], progress: Callable[[Doomed], None] | None) -> None:
    def delete_one(file: Doomed) -> Doomed:
        store.delete(file.name)
        return file

    for file in run_tasks(delete_one, doomed, workers=store.requests_at_once):
        if progress is not None:
            progress(file)


def _versions(store: Store, dataset: str) -> set[str]:
    """The versions that have a folder; one of another name is not ours."""
    found = set()
    for name in store.folders(dataset):
        with contextlib.suppress(BadNameError):
            found.add(check_name(name, "version"))
    return found


def _shards_folder(store: Store, dataset: str) -> list[ObjectInfo]:
    """The files right in the shards folder; what lies in folders below it is not ours."""
    folder = f"{dataset}/shards"
    return [file for file in store.list(folder) if file.name == f"{folder}/{_leaf(file.name)}"]


def _owners(files: list[ObjectInfo]) -> set[str]:
    """The versions to which the files in the shards folder belong, by their names."""
    found = set()
    for file in files:
        match = SHARD_NAME.fullmatch(_BESIDE.sub("", _leaf(file.name)))
        if match:
            with contextlib.suppress(BadNameError):
                found.add(check_name(match["version"], "version"))
    return found


def _leaf(name: str) -> str:
    return name.rpartition("/")[2]


def _shard_files(doomed: list[Doomed]) -> int:
    return sum("/shards/" in file.name and not _leaf(file.name).startswith(".") for file in doomed)


def _shards_to_go(
    version: Version,
    files: list[ObjectInfo],
    oldest: datetime,
    now: datetime,
    keep: timedelta,
    *,
    delete: bool,
) -> list[Doomed]:
    """The shards of one version that may go, announced in its log if they are to be deleted."""
    own = {
        name: file
        for file in files
        if (match := SHARD_NAME.fullmatch(name := _leaf(file.name)))
        and match["version"] == version.log.version
    }

    def choose(state: State) -> dict[str, Why]:
        free = unreferenced(state, now, keep)
        known = set(state.stays.names().to_pylist())
        chosen: dict[str, Why] = {}
        for name, file in own.items():
            if state.condemned_in(name) is not None:
                continue
            if name in free:
                chosen[name] = "in no snapshot that is kept"
            elif name not in known and file.modified < oldest:
                chosen[name] = "written and never committed"
        return chosen

    chosen = choose(version.state)
    if delete and chosen:
        parameters = {"keep_seconds": int(keep.total_seconds())}
        entry = version.commit(Condemn(lambda state: sorted(choose(state)), parameters))
        announced = set(entry.condemned) if entry else set()
        chosen = {name: why for name, why in chosen.items() if name in announced}
    for name in own:
        if name not in chosen and version.state.condemned_in(name) is not None:
            chosen[name] = "announced by an earlier vacuum"
    doomed = [_doomed(own[name], why) for name, why in chosen.items()]
    doomed += _files_beside_to_go(version, files, set(own) - set(chosen), set(chosen), oldest)
    return doomed + _quarantine_to_go(version, set(own), set(chosen), oldest)


def _files_beside_to_go(
    version: Version,
    files: list[ObjectInfo],
    staying: set[str],
    going: set[str],
    oldest: datetime,
) -> list[Doomed]:
    """The indexes and receipts of shards that go or are gone."""
    doomed = []
    for file in files:
        shard, beside = _BESIDE.subn("", _leaf(file.name))
        match = SHARD_NAME.fullmatch(shard)
        if not beside or not match or shard in staying:
            continue
        gone = shard in going or version.state.condemned_in(shard) is not None
        if match["version"] == version.log.version and (gone or file.modified < oldest):
            doomed.append(_doomed(file, "beside a shard that goes or is gone"))
    return doomed


def _quarantine_to_go(
    version: Version, shards: set[str], going: set[str], oldest: datetime
) -> list[Doomed]:
    """The refused rows of parts that were never committed: with their shard, or without one."""
    known = set(version.state.stays.names().to_pylist())
    doomed: list[ObjectInfo] = []
    alone: list[ObjectInfo] = []
    for file in version.store.list(f"{version.log.dataset}/quarantine"):
        shard = f"{_leaf(file.name).removesuffix('.jsonl')}.tfrecord"
        match = SHARD_NAME.fullmatch(shard)
        if match is None or match["version"] != version.log.version or shard in known:
            continue
        if shard in going or version.state.condemned_in(shard) is not None:
            doomed.append(file)
        elif shard not in shards and file.modified < oldest:
            alone.append(file)
    if alone:
        # A part of which no row gave a record has no shard to be known by.
        told = _files_told(version)
        doomed += [file for file in alone if file.name not in told]
    why: Why = "refused rows of an append that was never committed"
    return [_doomed(file, why) for file in doomed]


def _files_told(version: Version) -> set[str]:
    """The quarantine files that entries refer to."""
    return {
        name
        for entry in version.log.entries(1)
        for told in entry.parameters.get("quarantine", ())
        for name in told.get("files", ())
    }


def _checkpoints_to_go(version: Version, oldest: datetime) -> list[Doomed]:
    found = version.store.list(version.log.folder)
    checkpoints = [file for file in found if CHECKPOINT_NAME.fullmatch(_leaf(file.name))]
    return [
        _doomed(file, "a newer checkpoint replaces it")
        for file in checkpoints[:-_KEPT_CHECKPOINTS]
        if file.modified < oldest
    ]


def _leftovers(store: Store, dataset: str, oldest: datetime) -> list[Doomed]:
    """Temporary files and probes of writers that were stopped."""
    return [
        _doomed(file, "left behind by a writer that was stopped")
        for file in store.list(dataset, hidden=True)
        if file.modified < oldest
        and (TEMPORARY_NAME.fullmatch(_leaf(file.name)) or PROBE_NAME.fullmatch(_leaf(file.name)))
    ]


def _doomed(file: ObjectInfo, why: Why) -> Doomed:
    return Doomed(file.name, file.size, file.modified, why)
