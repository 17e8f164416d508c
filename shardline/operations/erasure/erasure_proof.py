"""Proof of an erasure: what was removed, and what still holds it.

Each file that should be gone is looked for, and residual copies are found again from the logs.
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
from shardline.provenance.related_rows import get_erased_rows, list_mappings, spread_rows
from shardline.provenance.retainers import get_plain_command, get_vacuum_command
from shardline.release import __version__
from shardline.storage import open_store, validate_name
from shardline.templates import render_template
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.operations.erase import ErasePlan
    from shardline.provenance.log_index import DatasetHistory, VersionHistory
    from shardline.provenance.related_rows import ShardRows
    from shardline.provenance.retainers import Command
    from shardline.storage import RootLocation

_FILE_SUFFIXES = ("", ".index")
_TEMPLATE = "operations/erasure/erasure_proof.md"
_COPY_LABELS = {
    "descendant": "a version derived from them",
    "origin": "a version that they derive from",
    "shared": "a version that they and other records derive from",
    "virtual": "a version whose pairs are computed when it is read",
    "quarantine": "a quarantine file",
    "uncommitted": "a file that was never committed",
    "source": "a source file",
    "found": "a version",
    "unsearched": "not searched",
}
"""Labels of residual copies whose kind is not plain English."""


@dataclass(frozen=True, slots=True)
class ErasedShard:
    """A shard that had erased records, and its `files` that still exist.

    `vacuumed` is the entry by which vacuum deleted it; None if it did not.
    """

    shard: Shard
    vacuumed: int | None
    vacuumed_at: datetime | None
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErasureEntry:
    """An entry of an erase, with its condemned shards and the snapshots that contained them."""

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
        """Number of records removed from the latest snapshot of that time."""
        return sum(self.parameters.records)

    @property
    def request(self) -> str:
        """Text of the request."""
        return self.parameters.request


@dataclass(frozen=True, slots=True)
class ErasureProof:
    """What the erasures of a dataset removed, as of a time.

    `remaining` are copies that still hold some of the records, or may. `searched` is True if every
    remaining file was searched again with the condition of the caller.
    """

    dataset: str
    root: str
    time: datetime
    entries: tuple[ErasureEntry, ...]
    remaining: tuple[ResidualCopy, ...]
    searched: bool = False

    @property
    def files(self) -> list[str]:
        """Files that should be gone and still exist."""
        return [file for entry in self.entries for shard in entry.shards for file in shard.files]

    @property
    def shards(self) -> list[ErasedShard]:
        """Shards that had the records and still have files."""
        return [shard for entry in self.entries for shard in entry.shards if shard.files]

    @property
    def certain_copies(self) -> list[ResidualCopy]:
        """Copies that certainly hold some of the records."""
        return [copy for copy in self.remaining if copy.certain]

    @property
    def complete(self) -> bool:
        """True if no known file still holds the records, or may hold them unsearched."""
        return not self.files and not any(copy.is_open for copy in self.remaining)

    def to_dict(self, command: Command = get_plain_command) -> Json:
        """Return the proof as JSON; `command` renders the commands in it."""
        return {
            "ok": self.complete and bool(self.entries),
            "complete": self.complete,
            "dataset": self.dataset,
            "root": self.root,
            "time": self.time.isoformat(),
            "release": __version__,
            "searched": self.searched,
            "entries": [_serialize_entry(entry) for entry in self.entries],
            "still_there": self.files,
            "remaining": [copy.to_dict(command) for copy in self.remaining],
        }


def _serialize_entry(erasure: ErasureEntry) -> Json:
    entry = erasure.entry
    return {
        "version": erasure.version,
        "entry": entry.number,
        "digest": entry.digest,
        "time": entry.time.isoformat(),
        "erasure": erasure.parameters.erasure,
        "request": erasure.request,
        "features": list(erasure.parameters.features),
        "records": erasure.records,
        "snapshots": list(erasure.snapshots),
        "shards": [
            {
                "name": erased.shard.name,
                "sha256": erased.shard.sha256,
                "records": erased.shard.records,
                "bytes": erased.shard.bytes,
                "vacuum_entry": erased.vacuumed,
                "vacuum_time": erased.vacuumed_at and erased.vacuumed_at.isoformat(),
                "still_there": list(erased.files),
            }
            for erased in erasure.shards
        ],
    }


def prove_erasure(
    root: RootLocation,
    dataset: str,
    *,
    request: str | None = None,
    plan: ErasePlan | None = None,
) -> ErasureProof:
    """Find what is left of everything that was erased from a dataset.

    Args:
        root: The root of the dataset.
        dataset: The dataset.
        request: Prove only the erasures with this request.
        plan: The plan of erasing the same records again, which shows that a search finds none.

    Returns:
        The proof, complete or not.

    Raises:
        VersionNotFoundError: If there is no such dataset.
    """
    store = open_store(root)
    history = LogIndex(store).dataset(validate_name(dataset, "dataset"))
    if not history.versions:
        raise VersionNotFoundError(
            f"{dataset}: no such dataset in {store.uri}", code="dataset-not-found"
        )
    erasures = [
        (version, entry)
        for version in history.versions.values()
        for entry in version.entries
        if entry.operation == ERASE and entry.tombstones
        if request is None or entry.parameters.get("request", "") == request
    ]
    entries = (_make_erasure_entry(history, *erasure) for erasure in erasures)
    # The search comes last: what it finds replaces what the logs alone imply.
    remaining = {_get_copy_key(copy): copy for copy in _list_remaining(history, erasures, plan)}
    return ErasureProof(
        dataset,
        store.uri,
        utc_now(),
        tuple(sorted(entries, key=lambda erasure: erasure.entry.time)),
        tuple(remaining.values()),
        plan is not None,
    )


def _get_copy_key(copy: ResidualCopy) -> tuple[str, ...]:
    """Return what two reports of the same copy have in common."""
    if copy.kind in {"virtual", "found", "quarantine"}:
        return copy.kind, copy.location
    return copy.kind, copy.location, copy.detail


def _make_erasure_entry(
    history: DatasetHistory, version: VersionHistory, entry: Entry
) -> ErasureEntry:
    first_clean = entry.snapshot + (not entry.changes_data)
    snapshots = version.list_snapshots_with(set(entry.tombstones))
    return ErasureEntry(
        version.name,
        entry,
        tuple(_make_erased_shard(history, version, name) for name in entry.tombstones),
        tuple(number for number in snapshots if number < first_clean),
    )


def _make_erased_shard(history: DatasetHistory, version: VersionHistory, name: str) -> ErasedShard:
    vacuums = (
        entry
        for entry in version.entries
        if entry.operation == "vacuum" and name in entry.tombstones
    )
    vacuum = next(vacuums, None)
    files = (f"{name}{suffix}" for suffix in _FILE_SUFFIXES)
    return ErasedShard(
        version.shards[name],
        None if vacuum is None else vacuum.number,
        None if vacuum is None else vacuum.time,
        tuple(f"{history.dataset}/shards/{file}" for file in files if file in history.files),
    )


def _list_remaining(
    history: DatasetHistory,
    erasures: Sequence[tuple[VersionHistory, Entry]],
    plan: ErasePlan | None,
) -> Iterator[ResidualCopy]:
    condemned: dict[str, set[str]] = {}
    for version, entry in erasures:
        condemned.setdefault(version.version.log.version, set()).update(entry.tombstones)
    names = set().union(*condemned.values())
    erased = {name: rows for name, rows in get_erased_rows(history).items() if name in names}
    related = spread_rows(erased, list_mappings(history))
    rows = related.rows
    # Entries without features reverted a commit: their shards were never searched.
    searched = [entry for _, entry in erasures if entry.read(EraseParameters).features]
    unread = {name for entry in searched for name in entry.tombstones if name not in rows}
    existing = {name for name in names if name in history.files}
    for short, shards in condemned.items():
        yield from list_snapshot_copies(history.versions[short], shards & existing)
    yield from _list_live_shards(history, rows)
    yield from list_plan_copies(history, related)
    yield from list_descendant_copies(history, condemned, rows)
    yield from list_origin_copies(history, rows, unread)
    sources = {
        path for _, entry in erasures for path in entry.read(EraseParameters).quarantine_sources
    }
    yield from list_source_copies(history, rows, sources, unread)
    features = dict.fromkeys(entry.read(EraseParameters).features for entry in searched)
    conditions = [ReadabilityCondition(names) for names in features]
    yield from list_quarantine_copies(history, search_quarantine(history, conditions, rows))
    if plan is None:
        yield from list_uncommitted_copies(history, None)
    else:
        yield from _list_found_again(plan)


def _list_live_shards(history: DatasetHistory, rows: ShardRows) -> Iterator[ResidualCopy]:
    """Yield versions with shards that have erased records and that no erase condemned."""
    for version in history.versions.values():
        live = [
            name
            for name, shard in version.shards.items()
            if name in rows and not version.is_condemned(name) and not shard.virtual
        ]
        if live:
            yield ResidualCopy(
                "found",
                version.name,
                f"{format_count(len(live), 'shard')} of it still "
                f"{'has' if len(live) == 1 else 'have'} some of the records",
                "the erase was stopped: run it again",
            )


def _list_found_again(plan: ErasePlan) -> Iterator[ResidualCopy]:
    for version in plan.versions:
        yield ResidualCopy(
            "found",
            version.version,
            f"the search found {format_count(version.records, 'record')} in its latest snapshot, "
            f"and {format_count(len(version.older_shards), 'shard')} of older snapshots",
            "they were added since, or the erase was stopped: erase again",
        )
    yield from list_quarantine_copies(plan.history, plan.quarantine)
    kinds = {"unsearched", "uncommitted", "virtual"}
    yield from (copy for copy in plan.residual_copies if copy.kind in kinds)


def get_title(dataset: str) -> str:
    """Return the first line of a proof, which identifies it."""
    return f"# Erasure in {dataset}"


def render_proof_page(proof: ErasureProof, command: Command = get_plain_command) -> str:
    """Return the proof as Markdown; `command` renders the commands in it."""
    commands: dict[str, dict[str, None]] = {}
    for copy in proof.remaining:
        lines = (command(*arguments) for arguments in copy.commands)
        commands.setdefault(copy.hint, {}).update(dict.fromkeys(lines))
    return render_template(
        _TEMPLATE,
        title=get_title(proof.dataset),
        proof=proof,
        release=__version__,
        vacuum=command(*get_vacuum_command(proof.dataset)),
        hints=list(commands),
        commands=commands,
        copy_labels=_COPY_LABELS,
        format_numbers=_format_numbers,
        format_time="{:%Y-%m-%d %H:%M:%S}".format,
    )


def _format_numbers(numbers: Sequence[int]) -> str:
    """Return numbers as ranges, such as "1-4, 6"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans) or "none"
