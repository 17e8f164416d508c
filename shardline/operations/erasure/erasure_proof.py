"""The proof of an erasure: what was asked, which shards and snapshots are gone, and what is left.

It says nothing that it has not looked at: each file that should be gone is looked for, and whoever
could still hold the records is worked out again from the logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.errors import VersionNotFoundError
from shardline.log.parameters import EraseParameters
from shardline.log.version import utc_now
from shardline.operations.erasure.condition import ReadabilityCondition
from shardline.operations.erasure.quarantine import list_quarantine_copies, search_quarantine
from shardline.operations.erasure.residual_copies import (
    ResidualCopy,
    list_descendant_copies,
    list_origin_copies,
    list_plan_copies,
    list_snapshot_copies,
    list_source_copies,
)
from shardline.operations.erasure.uncommitted_files import list_uncommitted_copies
from shardline.provenance.log_index import ERASE, LogIndex
from shardline.provenance.related_rows import (
    get_erased_rows,
    list_mappings,
    spread_rows,
)
from shardline.provenance.retainers import get_plain_command
from shardline.release import __version__
from shardline.storage import open_store, validate_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.operations.erase import ErasePlan
    from shardline.provenance.log_index import DatasetHistory, VersionHistory
    from shardline.provenance.related_rows import ShardRows
    from shardline.provenance.retainers import Command
    from shardline.storage import RootLocation

_BESIDE = ("", ".index")


@dataclass(frozen=True, slots=True)
class ErasedShard:
    """A shard that held erased records. `files` of it are still there: none, if it is gone.

    `vacuumed` is the entry by which vacuum deleted it, None if that has not happened.
    """

    shard: Shard
    vacuumed: int | None
    vacuumed_at: datetime | None
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErasureEntry:
    """One entry of an erase, with the shards that it gave up and the snapshots that held them."""

    version: str
    entry: Entry
    shards: tuple[ErasedShard, ...]
    snapshots: tuple[int, ...]

    @property
    def parameters(self) -> EraseParameters:
        """Parameters of the entry."""
        return self.entry.read(EraseParameters)

    @property
    def records(self) -> int:
        """Number of records erased from the latest snapshot."""
        return sum(self.parameters.records)

    @property
    def request(self) -> str:
        """Reason or ticket of the request."""
        return self.parameters.request


@dataclass(frozen=True, slots=True)
class ErasureProof:
    """What is proved of the erasures of a dataset, at a time.

    `searched` says that every file was searched once more for the records, by a condition that the
    caller gave. `remaining` is what still holds some of them, or may.
    """

    dataset: str
    root: str
    time: datetime
    entries: tuple[ErasureEntry, ...]
    remaining: tuple[ResidualCopy, ...]
    searched: bool = False

    @property
    def files(self) -> list[str]:
        """The files that should be gone and are there."""
        return [file for one in self.entries for shard in one.shards for file in shard.files]

    @property
    def shards(self) -> list[ErasedShard]:
        """The shards that held the records and of which there still are files."""
        return [shard for one in self.entries for shard in one.shards if shard.files]

    @property
    def holders(self) -> list[ResidualCopy]:
        """What surely holds some of the records."""
        return [one for one in self.remaining if one.certain]

    @property
    def complete(self) -> bool:
        """Whether nothing is known of that still holds them, or could and was not searched."""
        return not self.files and not any(one.open for one in self.remaining)

    def to_dict(self, command: Command = get_plain_command) -> Json:
        """The proof for machines; `command` words the commands in it."""
        return {
            "ok": self.complete and bool(self.entries),
            "complete": self.complete,
            "dataset": self.dataset,
            "root": self.root,
            "time": self.time.isoformat(),
            "release": __version__,
            "searched": self.searched,
            "entries": [_entry_json(one) for one in self.entries],
            "still_there": self.files,
            "remaining": [one.to_dict(command) for one in self.remaining],
        }


def _entry_json(one: ErasureEntry) -> Json:
    entry = one.entry
    return {
        "version": one.version,
        "entry": entry.number,
        "digest": entry.digest,
        "time": entry.time.isoformat(),
        "erasure": one.parameters.erasure,
        "request": one.request,
        "features": list(one.parameters.features),
        "records": one.records,
        "snapshots": list(one.snapshots),
        "shards": [
            {
                "name": gone.shard.name,
                "sha256": gone.shard.sha256,
                "records": gone.shard.records,
                "bytes": gone.shard.bytes,
                "vacuum_entry": gone.vacuumed,
                "vacuum_time": gone.vacuumed_at and gone.vacuumed_at.isoformat(),
                "still_there": list(gone.files),
            }
            for gone in one.shards
        ],
    }


def prove_erasure(
    root: RootLocation,
    dataset: str,
    *,
    request: str | None = None,
    plan: ErasePlan | None = None,
) -> ErasureProof:
    """Look what is left of all that was erased from a dataset, or of one request.

    With the `plan` of erasing the same once more, it is also proved that nothing is found any more.
    """
    store = open_store(root)
    history = LogIndex(store).dataset(validate_name(dataset, "dataset"))
    if not history.versions:
        raise VersionNotFoundError(
            f"{dataset}: no such dataset in {store.uri}", code="dataset-not-found"
        )
    asked = [
        (one, entry)
        for one in history.versions.values()
        for entry in one.entries
        if entry.operation == ERASE and entry.condemned
        if request is None or entry.read(EraseParameters).request == request
    ]
    entries = tuple(_make_erasure_entry(history, one, entry) for one, entry in asked)
    # What the search of now found of a place comes last, and tells more than the logs alone.
    remaining = {_get_copy_key(one): one for one in _list_remaining(history, asked, plan)}
    return ErasureProof(
        dataset,
        store.uri,
        utc_now(),
        tuple(sorted(entries, key=lambda one: one.entry.time)),
        tuple(remaining.values()),
        plan is not None,
    )


def _get_copy_key(one: ResidualCopy) -> tuple[str, ...]:
    """What two holders have in common that tell of the same."""
    once = one.kind in {"virtual", "found", "quarantine"}
    return (one.kind, one.where) if once else (one.kind, one.where, one.what)


def _make_erasure_entry(history: DatasetHistory, one: VersionHistory, entry: Entry) -> ErasureEntry:
    names = set(entry.condemned)
    return ErasureEntry(
        one.name,
        entry,
        tuple(_make_erased_shard(history, one, name) for name in entry.condemned),
        tuple(number for number in one.holding(names) if number < _find_clean_snapshot(entry)),
    )


def _find_clean_snapshot(entry: Entry) -> int:
    """The first snapshot that does not hold what an erase took out."""
    return entry.snapshot + (not entry.changes_data)


def _make_erased_shard(history: DatasetHistory, one: VersionHistory, name: str) -> ErasedShard:
    vacuumed = [
        entry for entry in one.entries if entry.operation == "vacuum" and name in entry.condemned
    ]
    files = [f"{name}{suffix}" for suffix in _BESIDE if f"{name}{suffix}" in history.files]
    return ErasedShard(
        one.shards[name],
        vacuumed[0].number if vacuumed else None,
        vacuumed[0].time if vacuumed else None,
        tuple(f"{history.dataset}/shards/{file}" for file in files),
    )


def _list_remaining(
    history: DatasetHistory,
    asked: list[tuple[VersionHistory, Entry]],
    plan: ErasePlan | None,
) -> Iterator[ResidualCopy]:
    gone: dict[str, set[str]] = {}
    for one, entry in asked:
        gone.setdefault(one.version.log.version, set()).update(entry.condemned)
    names = set().union(*gone.values())
    found = spread_rows(
        {name: some for name, some in get_erased_rows(history).items() if name in names},
        list_mappings(history),
    )
    rows = found.rows
    # What was taken back was searched by nobody, and follows from what was erased elsewhere.
    chosen = [entry for _, entry in asked if entry.read(EraseParameters).features]
    unread = {name for entry in chosen for name in entry.condemned if name not in rows}
    there = {name for name in names if name in history.files}
    for version, shards in gone.items():
        yield from list_snapshot_copies(history.versions[version], shards & there)
    yield from _list_live_shards(history, rows)
    yield from list_plan_copies(history, found)
    yield from list_descendant_copies(history, gone, rows)
    yield from list_origin_copies(history, rows, unread)
    refused = {
        path for _, entry in asked for path in entry.read(EraseParameters).quarantine_sources
    }
    yield from list_source_copies(history, rows, refused, unread)
    chosen_by = dict.fromkeys(entry.read(EraseParameters).features for entry in chosen)
    files = tuple(
        search_quarantine(history, [ReadabilityCondition(names) for names in chosen_by], rows)
    )
    yield from list_quarantine_copies(history, files)
    if plan is None:
        yield from list_uncommitted_copies(history, None)
    else:
        yield from _search_again(plan)


def _list_live_shards(history: DatasetHistory, rows: ShardRows) -> Iterator[ResidualCopy]:
    """Shards that were made of erased records and that no erase gave up."""
    for one in history.versions.values():
        left = [
            name
            for name, shard in one.shards.items()
            if name in rows and not one.is_gone(name) and not shard.virtual
        ]
        if left:
            yield ResidualCopy(
                "found",
                one.name,
                f"{len(left):,} of its shards still {'holds' if len(left) == 1 else 'hold'} some "
                "of the records",
                "the erase was stopped: run it again",
            )


def _search_again(plan: ErasePlan) -> Iterator[ResidualCopy]:
    for one in plan.versions:
        records, shards = one.records, len(one.given_up)
        yield ResidualCopy(
            "found",
            one.version,
            f"the search found {records:,} {'record' if records == 1 else 'records'} in its newest "
            f"snapshot, and {shards:,} {'shard' if shards == 1 else 'shards'} of older ones",
            "they came in since, or the erase was stopped: erase again",
        )
    yield from list_quarantine_copies(plan.history, plan.quarantine)
    yield from (one for one in plan.holders if one.kind in {"unsearched", "uncommitted", "virtual"})
