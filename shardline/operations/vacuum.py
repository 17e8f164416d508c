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

from shardline.errors import BadNameError, SnapshotMissingError
from shardline.execution.threads import run_tasks
from shardline.log.changes import Condemn
from shardline.log.facts import SHARD_NAME
from shardline.log.log import CHECKPOINT_NAME
from shardline.log.retention import unreferenced
from shardline.log.sidecars import RECEIPT, ROWS
from shardline.log.version import Version, utc_now
from shardline.operations.keepers import keepers_of
from shardline.operations.needs import Needs, needless_pins
from shardline.operations.pins import holder_of
from shardline.storage import PROBE_NAME, TEMPORARY_NAME, check_name, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime
    from pathlib import Path

    from shardline.log.state import State
    from shardline.operations.keepers import Keeper
    from shardline.storage import ObjectInfo, Store

DEFAULT_KEEP = timedelta(days=7)
_KEPT_CHECKPOINTS = 2
_BESIDE = re.compile(r"\.(index|receipt|rows)$")

Why: TypeAlias = Literal[
    "in no snapshot that is kept",
    "written and never committed",
    "it held erased records",
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
    """What vacuum deleted, or would have without `dry_run`; `kept` files it leaves alone.

    `keepers` keep shards that the newest snapshots do without. `let_go` are pins that nothing needs
    any more: what they held goes when the time to keep has passed.
    """

    dataset: str
    dry_run: bool
    files: list[Doomed] = field(default_factory=list)
    kept: int = 0
    keepers: list[Keeper] = field(default_factory=list)
    let_go: list[str] = field(default_factory=list)

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
    or pin, and of all that were one of these until less than `keep` ago. Pins of derived versions
    that no longer need them are let go of: what only they held was in use until then.
    """
    check_name(dataset, "dataset")
    store = open_store(root)
    files = _shards_folder(store, dataset)
    names = {*_versions(store, dataset), *_owners(files)}
    versions = _holders_first(Version(store, f"{dataset}/{one}", clock=clock) for one in names)
    at_once = delete and not keep
    needless = _let_go(versions, keep, clock) if at_once else {}
    # What was let go of just now was in use until just now.
    now = clock()
    needs = Needs(store, now, keep)
    if not at_once:
        needless = {version.name: needless_pins(version, needs) for version in versions}
    doomed: list[Doomed] = []
    keepers: list[Keeper] = []
    for version in versions:
        own = _own(version, files)
        erased = _erased(version, own)
        let_go = needless[version.name]
        # With a time to keep, what they held was in use until now.
        but = let_go if not delete and not keep else ()
        going = _shards_to_go(version, files, erased, needs, but, delete=delete)
        gone = {_leaf(file.name) for file in going}
        staying = {name: file for name, file in own.items() if name not in gone}
        keepers += keepers_of(version, staying, erased, needs, let_go)
        doomed += going
        doomed += _checkpoints_to_go(version, now - keep)
    doomed += _leftovers(store, dataset, now - keep)
    if delete:
        _delete(store, doomed, progress)
    if delete and not at_once:
        needless = _let_go(versions, keep, clock)
    kept = len(files) - _shard_files(doomed)
    pins = [f"{name}: {pin}" for name, found in sorted(needless.items()) for pin in found]
    return VacuumReport(dataset, not delete, doomed, kept, keepers, pins)


def _holders_first(versions: Iterable[Version]) -> list[Version]:
    """The versions of a dataset in an order in which those that hold others come before these.

    What a holder gives up is announced in its own log before it is looked at what it needs: so it
    cannot be brought back while what it is read from goes.
    """
    left = {version.name: version for version in versions}
    order: list[Version] = []

    def place(name: str) -> None:
        version = left.pop(name, None)
        if version is not None:
            for holder in sorted(filter(None, map(holder_of, version.state.pins))):
                place(holder)
            order.append(version)

    for name in sorted(left):
        place(name)
    return order


def _let_go(
    versions: list[Version], keep: timedelta, clock: Callable[[], datetime]
) -> dict[str, list[str]]:
    """Let go of the pins that nothing needs, and tell which, by version.

    Whoever derives a version pins its inputs before and behind its commit. So it is looked once
    more behind letting go: either its commit is seen here, or it sees that the pin is gone.
    """
    found = {}
    for version in versions:
        pins = needless_pins(version, Needs(version.store, clock(), keep))
        held = {pin: version.state.pins[pin] for pin in pins}
        for pin in pins:
            with contextlib.suppress(SnapshotMissingError):  # another vacuum was faster
                version.pin(pin, None)
        if held:
            pins = needless_pins(version, Needs(version.store, clock(), keep), held)
        for pin in held.keys() - set(pins):
            version.pin(pin, held[pin].snapshot, held[pin].reason)
        found[version.name] = pins
    return found


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
    erased: set[str],
    needs: Needs,
    but: Collection[str],
    *,
    delete: bool,
) -> list[Doomed]:
    """The shards of one version that may go, announced in its log if they are to be deleted.

    The pins in `but` are as good as let go of.
    """
    now, keep = needs.now, needs.keep
    own, oldest = _own(version, files), now - keep

    def choose(state: State) -> dict[str, Why]:
        free = unreferenced(state, now, keep, but=but)
        free_of_erased = _free_of_erased(state, needs) if erased else set()
        known = set(state.stays.names().to_pylist())
        chosen: dict[str, Why] = {}
        for name, file in own.items():
            if name in erased & free_of_erased:
                chosen[name] = "it held erased records"
            elif state.condemned_in(name) is not None:
                continue
            elif name in free:
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
        condemned = version.state.condemned_in(name) is not None
        if condemned and name not in chosen and name not in erased:
            chosen[name] = "announced by an earlier vacuum"
    doomed = [_doomed(own[name], why) for name, why in chosen.items()]
    doomed += _files_beside_to_go(version, files, set(own) - set(chosen), set(chosen), oldest)
    return doomed + _quarantine_to_go(version, set(own), set(chosen), oldest)


def _own(version: Version, files: list[ObjectInfo]) -> dict[str, ObjectInfo]:
    """The files that are shards of a version, by their names."""
    return {
        name: file
        for file in files
        if (match := SHARD_NAME.fullmatch(name := _leaf(file.name)))
        and match["version"] == version.log.version
    }


def _erased(version: Version, names: Iterable[str]) -> set[str]:
    """The shards that an erase gave up, and no vacuum has announced yet.

    They never come back, but whoever holds a snapshot with them may read it for as long as before.
    """
    found = [(name, version.state.condemned_in(name)) for name in names]
    entries = {number for _, number in found if number is not None}
    erasing = {number for number in entries if version.log.entry(number).operation == "erase"}
    return {name for name, number in found if number in erasing}


def _free_of_erased(state: State, needs: Needs) -> set[str]:
    """The shards that stay neither for a snapshot of their own version nor for those of others.

    Of erased shards, a version that holds a snapshot with them by a pin keeps only what it needs.
    """
    needs.refresh()
    pins = {pin for pin in state.pins if holder_of(pin) is not None}
    free = unreferenced(state, needs.now, needs.keep, but=pins)
    return free.difference(*needs.of(needs.opened(state.name)).values())


def _files_beside_to_go(
    version: Version,
    files: list[ObjectInfo],
    staying: set[str],
    going: set[str],
    oldest: datetime,
) -> list[Doomed]:
    """What lies beside shards that go or are gone: indexes, and of those never committed all.

    The receipt and the row map of a shard that was committed stay: what was made of it can still
    be traced.
    """
    known = set(version.state.stays.names().to_pylist())
    doomed = []
    for file in files:
        shard, beside = _BESIDE.subn("", _leaf(file.name))
        match = SHARD_NAME.fullmatch(shard)
        if not beside or not match or shard in staying:
            continue
        if shard in known and file.name.endswith((RECEIPT, ROWS)):
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
