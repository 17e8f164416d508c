"""Residual copies: what still holds erased records beyond the reach of an erase."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from shardline.errors import ShardlineError
from shardline.log.model import DERIVING_OPERATIONS
from shardline.log.parameters import RejectParameters
from shardline.provenance.commands import list_recreate_arguments
from shardline.provenance.log_index import ERASE
from shardline.provenance.pins import parse_pin_holder
from shardline.provenance.record_ancestry import (
    AncestorKey,
    RecordAncestry,
    RemainingRecords,
    list_input_shards,
)
from shardline.provenance.related_rows import list_mappings, spread_rows
from shardline.provenance.retainers import (
    format_consumer_pin,
    get_pin_release,
    get_plain_command,
    get_tag_release,
    get_vacuum_command,
)
from shardline.provenance.shard_mapping import NO_ROWS
from shardline.storage import open_store
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Input, Source
    from shardline.log.version import StoredVersion
    from shardline.provenance.log_index import DatasetHistory, VersionHistory
    from shardline.provenance.related_rows import RelatedRows, ShardRows
    from shardline.provenance.retainers import Command


CopyKind: TypeAlias = Literal[
    "descendant",
    "origin",
    "shared",
    "virtual",
    "tag",
    "pin",
    "consumer",
    "quarantine",
    "uncommitted",
    "source",
    "found",
    "unsearched",
]


@dataclass(frozen=True, slots=True)
class ResidualCopy:
    """A version, snapshot or file that holds erased records, or may hold them.

    `commands` are the arguments of commands that follow the hint.
    """

    kind: CopyKind
    location: str
    detail: str
    hint: str
    commands: tuple[tuple[str, ...], ...] = ()
    certain: bool = True

    @property
    def is_open(self) -> bool:
        """True if the copy needs an action before the records count as removed.

        Only its owner knows what a changed source holds. A record that other records derive from
        as well need not reveal what was erased.
        """
        return self.certain or self.kind not in {"source", "shared"}

    def to_dict(self, command: Command = get_plain_command) -> Json:
        """Return the copy as JSON; `command` renders the commands in it."""
        payload = {name: getattr(self, name) for name in self.__slots__}
        return {**payload, "commands": [command(*arguments) for arguments in self.commands]}


def list_snapshot_copies(
    version: VersionHistory, condemned: Collection[str]
) -> Iterator[ResidualCopy]:
    """Yield the tags, pins and consumers of snapshots with condemned shards."""
    state = version.version.state
    snapshots = set(version.list_snapshots_with(set(condemned)))
    for name, ref in sorted(state.tags.items()):
        if ref.snapshot in snapshots:
            snapshot = f"{version.name}@{ref.snapshot}"
            detail = f"the tag {name} retains it"
            yield ResidualCopy("tag", snapshot, detail, *get_tag_release(version.name, name))
    for name, ref in sorted(state.pins.items()):
        if ref.snapshot not in snapshots:
            continue
        snapshot = f"{version.name}@{ref.snapshot}"
        reason = f" ({ref.reason})" if ref.reason else ""
        kind, hint, commands = get_pin_release(version.name, name)
        if kind == "consumer":
            hint = f"a model trained on the records may remember them: train it again, and {hint}"
            detail = f"{format_consumer_pin(name)} read it{reason}"
            yield ResidualCopy("consumer", snapshot, detail, hint, commands)
        elif kind == "pin":
            detail = f"the pin {name!r} retains it{reason}"
            yield ResidualCopy("pin", snapshot, detail, hint, commands)
        # A version that is read with it is a descendant.


def list_plan_copies(
    history: DatasetHistory,
    related: RelatedRows,
    inputs: Mapping[str, Collection[str]] | None = None,
) -> Iterator[ResidualCopy]:
    """Yield the virtual combinations of the dataset itself that pair erased records.

    `inputs` has the versions outside the dataset whose records a plan pairs.
    """
    for version in history.versions.values():
        plans = [
            shard.name for shard in version.live if shard.virtual and shard.name in related.rows
        ]
        if not plans:
            continue
        pairs = sum(related.pairs.get(name, len(related.rows[name])) for name in plans)
        others = sorted({other for name in plans for other in (inputs or {}).get(name, ())})
        names = ", ".join(others)
        datasets = (*(name.split("/")[0] for name in others), history.dataset)
        first = (
            f"erase the records of {names} too, by their features there; then " if others else ""
        )
        yield ResidualCopy(
            "virtual",
            f"{version.name}@{version.version.state.snapshot}",
            f"its plan makes {format_count(pairs, 'pair')} of them when it is read"
            + (f", from records of {names}" if others else ""),
            f"{first}combine it again when the erase is done and checked, and vacuum",
            (
                *_get_recreate_command(version.entries, plans, "combine"),
                *map(get_vacuum_command, dict.fromkeys(datasets)),
            ),
        )


def _get_recreate_command(
    entries: Iterable[Entry], shards: Collection[str], *operations: str
) -> Iterator[tuple[str, ...]]:
    """Yield the command that repeats the last entry that added one of the shards, if any."""
    matches = [
        entry
        for entry in entries
        if entry.inputs and entry.operation in operations
        if not set(shards).isdisjoint(added.shard.name for added in entry.added)
    ]
    for entry in matches[-1:]:
        yield list_recreate_arguments(entry)


_UNSEARCHABLE_ROWS = "it has quarantined rows that cannot be searched"
_UNREADABLE_RECORDS = "its records could not be read, and were not searched"
_REJECTED_SOURCE = "it was rejected, and not searched"


def list_source_copies(
    history: DatasetHistory,
    rows: Mapping[str, object],
    quarantined: Collection[str] = (),
    unread: Collection[str] = (),
    uncertain: Collection[str] = (),
) -> Iterator[ResidualCopy]:
    """Yield the existing source files of erased records.

    Args:
        history: The dataset.
        rows: Shards with erased records.
        quarantined: Paths of sources with matching rows in quarantine.
        unread: Condemned shards that could not be read.
        uncertain: Paths of sources with quarantined rows that cannot be searched.

    Yields:
        Sources that hold the records, and those that were never searched.
    """
    keys = {history.shards[name].source for name in rows if name in history.shards}
    unreadable = {history.shards[name].source for name in unread if name in history.shards}
    rejected: set[str] = set()
    sources: dict[str, Source] = {}
    for version in history.versions.values():
        for entry in version.entries:
            sources |= {source.key: source for source in entry.sources if source.path is not None}
            parameters = entry.read(RejectParameters)
            if parameters.rejected:
                rejected |= {source.key for source in entry.sources}
                rejected -= {duplicate.source for duplicate in parameters.duplicates}
    # A skipped duplicate holds the same records.
    contents = {sources[key].sha256 for key in keys if key in sources}
    for key, source in sorted(sources.items(), key=lambda item: item[1].label):
        is_match = source.sha256 in contents or _is_one_of(source, quarantined)
        is_uncertain = _is_one_of(source, uncertain)
        if not is_match and not is_uncertain and key not in unreadable | rejected:
            continue
        size = _get_size(source.path or "")
        if size is None:
            continue
        problem = ""
        if not is_match and key in unreadable:
            problem = _UNREADABLE_RECORDS
        elif not is_match:
            problem = _UNSEARCHABLE_ROWS if is_uncertain else _REJECTED_SOURCE
        yield _make_source_copy(source, problem, is_unchanged=size in {-1, source.size})


def _is_one_of(source: Source, paths: Collection[str]) -> bool:
    return any(f"/{source.path}".endswith(f"/{path}") for path in paths)


def _make_source_copy(source: Source, problem: str, *, is_unchanged: bool) -> ResidualCopy:
    """Return the copy of an existing source; `problem` says why it was not searched."""
    if problem and (is_unchanged or problem == _REJECTED_SOURCE):
        hint = "inspect it, and remove such rows from it or delete it"
        return ResidualCopy("unsearched", source.label, problem, hint, certain=False)
    if not is_unchanged:
        detail = "records came from it, and it has changed since"
        hint = "check that the rows are gone from it: another root could append them again"
        return ResidualCopy("source", source.label, detail, hint, certain=False)
    hint = "remove the rows from it, or delete it: another root could append them again"
    return ResidualCopy("source", source.label, "records came from it", hint)


def _get_size(path: str) -> int | None:
    """Return the size of a source, -1 for a folder; None if it is missing."""
    try:
        if "://" in path:
            folder, _, name = path.rpartition("/")
            info = open_store(folder).info(name)
            return None if info is None else info.size
        return -1 if Path(path).is_dir() else Path(path).stat().st_size
    except (OSError, ShardlineError):
        return None


def list_descendant_copies(
    history: DatasetHistory, condemned: Mapping[str, Collection[str]], rows: ShardRows
) -> Iterator[ResidualCopy]:
    """Yield the versions of other datasets with shards derived from erased records, at any depth.

    `rows` are the erased records: an earlier erase there may have removed others.
    """
    remains = RemainingRecords(history, rows)
    index, own = history.index, history.dataset
    tainted: dict[str, set[str]] = {
        f"{own}/{name}": set(shards) for name, shards in condemned.items()
    }
    others = [name for name in index.list_folders() if not name.startswith(f"{own}/")]
    order: dict[str, None] = {}
    has_grown = True
    while has_grown:
        has_grown = False
        for name in others:
            shards = tainted.setdefault(name, set())
            before = len(shards)
            for entry in index.entries(name):
                shards |= _list_tainted_shards(history, entry, tainted, remains)
            has_grown |= len(shards) > before
            order |= {name: None} if shards else {}
    # Each version comes after its inputs, so that the commands work in this order.
    for name in order:
        version = index.version(name)
        remaining = [shard for shard in tainted[name] if version.state.get_tombstone(shard) is None]
        if not remaining:
            continue
        dataset = name.split("/")[0]
        pins = (
            pin
            for version_history in history.versions.values()
            for pin in version_history.version.state.pins
        )
        is_pinned = any(parse_pin_holder(pin) == name for pin in pins)
        datasets = [dataset, own] if is_pinned else [dataset]
        derives = "derives" if len(remaining) == 1 else "derive"
        yield ResidualCopy(
            "descendant",
            name,
            f"{format_count(len(remaining), 'shard')} of it {derives} from such records of {own}",
            "derive it again from the latest snapshots, or erase there too; then vacuum "
            + " and after that ".join(datasets),
            (
                *_get_live_recreate_command(version, index.entries(name), remaining),
                *map(get_vacuum_command, datasets),
            ),
        )


def _get_live_recreate_command(
    version: StoredVersion, entries: Iterable[Entry], shards: Collection[str]
) -> Iterator[tuple[str, ...]]:
    """Yield the command that derives a version again if its latest snapshot has such a shard."""
    live = {
        interval.shard.name for interval in version.state.shard_history.at(version.state.snapshot)
    }
    if not live.isdisjoint(shards):
        yield from _get_recreate_command(entries, shards, *DERIVING_OPERATIONS, "rebuild")


def _list_tainted_shards(
    history: DatasetHistory,
    entry: Entry,
    tainted: Mapping[str, set[str]],
    remains: RemainingRecords,
) -> set[str]:
    """Return the shards of an entry with records that derive from erased ones."""
    added, own = [new.shard.name for new in entry.added], tainted[entry.label]
    if entry.operation in {ERASE, "append"}:
        rewritten = zip(entry.added, entry.bases, strict=False)
        shards = (new.shard for new, base in rewritten if base in own)
        return {shard.name for shard in shards if remains.derive(entry.dataset, shard)}
    if not entry.inputs:
        return set(added) if own & set(entry.removed) else set()
    inputs = {
        interval.shard.name
        for source in entry.inputs
        if tainted.get(source.label)
        for interval in history.index.version(source.label).state.shard_history.at(source.snapshot)
        if interval.shard.name in tainted[source.label]
    }
    if len(entry.bases) == len(added):
        return {name for name, base in zip(added, entry.bases, strict=True) if base in inputs}
    return set(added) if inputs else set()


def list_origin_copies(
    history: DatasetHistory, rows: ShardRows, unread: Collection[str] = ()
) -> Iterator[ResidualCopy]:
    """Yield the versions of other datasets that erased records derive from, at any depth.

    `unread` are condemned shards that could not be read.
    """
    index = history.index
    known: dict[str, ShardRows] = {history.dataset: rows}
    shared: set[AncestorKey] = set()
    uncertain: set[Input] = set()
    waiting = deque([history.dataset])
    while waiting:
        dataset = waiting.popleft()
        is_own = dataset == history.dataset
        ancestry = RecordAncestry(index.dataset(dataset))
        ancestry.search(known[dataset], set(unread) if is_own else set(), plans=not is_own)
        uncertain |= ancestry.uncertain
        shared |= ancestry.shared
        for other, more in ancestry.group_exclusive().items():
            before = known.get(other, {})
            related = spread_rows(_join(before, more), list_mappings(index.dataset(other))).rows
            if other != history.dataset and _count(related) > _count(before):
                known[other] = related
                waiting.append(other)
    del known[history.dataset]
    yield from _make_origin_copies(history, known, shared, uncertain)


def _make_origin_copies(
    history: DatasetHistory,
    known: Mapping[str, ShardRows],
    shared: set[AncestorKey],
    uncertain: set[Input],
) -> Iterator[ResidualCopy]:
    """Yield one copy for each version that still has such shards, the most certain."""
    own, index = history.dataset, history.index
    certain = {
        (dataset, name) for dataset, rows in known.items() for name in rows if len(rows[name])
    }
    possible = {
        (source.dataset, shard.name)
        for source in uncertain
        for shard in list_input_shards(index, source)
    }
    for dataset in sorted({*known, *(dataset for dataset, _ in shared | possible)} - {own}):
        for version in index.dataset(dataset).versions.values():
            existing = {
                (dataset, name)
                for name, shard in version.shards.items()
                if not version.is_condemned(name) and not shard.virtual
            }
            if count := len(existing & certain):
                has = f"{format_count(count, 'shard')} of it {'has' if count == 1 else 'have'}"
                detail = f"{has} records that those of {own} derive from"
                yield _make_origin_copy(version, detail, certain=True)
            elif existing & possible:
                detail = f"records of {own} derive from its records; which ones is unknown"
                yield _make_origin_copy(version, detail, certain=False)
            elif existing & shared:
                yield ResidualCopy(
                    "shared",
                    version.name,
                    f"records of {own} derive from some of its records, and so do others that stay",
                    "check if they reveal what was erased; if so, erase them there",
                    certain=False,
                )


def _make_origin_copy(version: VersionHistory, detail: str, *, certain: bool) -> ResidualCopy:
    return ResidualCopy(
        "origin",
        version.name,
        detail,
        "erase there too, by the features there: otherwise they can be derived again",
        (("erase", version.version.log.dataset, "--where", "PREDICATE"),),
        certain=certain,
    )


def _join(rows: ShardRows, more: ShardRows) -> ShardRows:
    return {
        name: np.union1d(rows.get(name, NO_ROWS), more.get(name, NO_ROWS))
        for name in {*rows, *more}
    }


def _count(rows: ShardRows) -> int:
    return sum(map(len, rows.values()))
