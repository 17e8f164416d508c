"""Who still holds erased records where the erase itself does not reach, and what to do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from shardline.errors import ShardlineError
from shardline.log.model import DERIVING_OPERATIONS
from shardline.log.parameters import RejectParameters
from shardline.provenance.commands import get_recreate_words
from shardline.provenance.log_index import ERASE
from shardline.provenance.pins import parse_pin_holder
from shardline.provenance.record_ancestry import (
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
from shardline.storage import open_store

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
    """Something that holds erased records, and what to do about it; or may hold them.

    `where` is a version, a snapshot, or a file. `commands` are those that help, as arguments.
    """

    kind: CopyKind
    location: str
    detail: str
    hint: str
    commands: tuple[tuple[str, ...], ...] = ()
    certain: bool = True

    @property
    def is_open(self) -> bool:
        """Whether there is still something to do before the records count as gone.

        What was done to a source since the records came from it is known to its owner alone, and
        a record that others are made of too need not tell of what was erased.
        """
        return self.certain or self.kind not in {"source", "shared"}

    def to_dict(self, command: Command = get_plain_command) -> Json:
        """The holder for machines, with its commands as people paste them."""
        told = {name: getattr(self, name) for name in self.__slots__}
        return {**told, "commands": [command(*one) for one in self.commands]}


def list_snapshot_copies(one: VersionHistory, gone: Collection[str]) -> Iterator[ResidualCopy]:
    """The tags, pins and consumers of snapshots that hold shards which go."""
    state = one.version.state
    held = set(one.list_snapshots_with(set(gone)))
    for name, hold in sorted(state.tags.items()):
        if hold.snapshot in held:
            where = f"{one.name}@{hold.snapshot}"
            what = f"the tag {name} keeps it from vacuum"
            yield ResidualCopy("tag", where, what, *get_tag_release(one.name, name))
    for name, hold in sorted(state.pins.items()):
        if hold.snapshot not in held:
            continue
        where = f"{one.name}@{hold.snapshot}"
        reason = f" ({hold.reason})" if hold.reason else ""
        kind, advice, commands = get_pin_release(one.name, name)
        if kind == "consumer":
            anew = "what was trained on the records may remember them: train it anew, and "
            what = f"{format_consumer_pin(name)} read it{reason}"
            yield ResidualCopy("consumer", where, what, anew + advice, commands)
        elif kind == "pin":
            what = f"the pin {name!r} keeps it from vacuum{reason}"
            yield ResidualCopy("pin", where, what, advice, commands)
        # A version that is read with it is told of as a descendant.


def list_plan_copies(
    history: DatasetHistory,
    found: RelatedRows,
    of: Mapping[str, Collection[str]] | None = None,
) -> Iterator[ResidualCopy]:
    """The virtual combinations of the dataset itself, which pair records that go.

    `of` tells of a plan the versions of whose records its pairs are, where that is not this erase's
    own business: they are found by what they are called in the pairs.
    """
    for one in history.versions.values():
        plans = [shard for shard in one.live if shard.virtual and shard.name in found.rows]
        if not plans:
            continue
        names = [shard.name for shard in plans]
        pairs = sum(found.pairs.get(name, len(found.rows[name])) for name in names)
        beyond = sorted({version for name in names for version in (of or {}).get(name, ())})
        datasets = (*(name.split("/")[0] for name in beyond), history.dataset)
        first = (
            f"erase the records of {', '.join(beyond)} too, by what they are called there; then "
        )
        yield ResidualCopy(
            "virtual",
            f"{one.name}@{one.version.state.snapshot}",
            f"its plan makes {pairs:,} {'pair' if pairs == 1 else 'pairs'} of them when it is read"
            + (f", of records of {', '.join(beyond)}" if beyond else ""),
            f"{first if beyond else ''}combine it anew when the erase is done and checked, and "
            "vacuum",
            (
                *_get_recreate_command(one.entries, names, "combine"),
                *map(get_vacuum_command, dict.fromkeys(datasets)),
            ),
        )


def _get_recreate_command(
    entries: Iterable[Entry], shards: Collection[str], *operations: str
) -> Iterator[tuple[str, ...]]:
    """The command that makes a version anew, by the last entry that added one of these shards."""
    made = [
        entry
        for entry in entries
        if entry.inputs and entry.operation in operations
        if not set(shards).isdisjoint(added.shard.name for added in entry.added)
    ]
    for entry in made[-1:]:
        yield get_recreate_words(entry)


def list_source_copies(
    history: DatasetHistory,
    rows: Mapping[str, object],
    refused: Collection[str] = (),
    unread: Collection[str] = (),
    uncertain: Collection[str] = (),
) -> Iterator[ResidualCopy]:
    """The files that the records came from, if they are still there.

    `refused` are the paths of sources with such rows that gave no record, `uncertain` those with
    rows that cannot be parsed. What gave the shards that were given up `unread`, or could not land
    at all, was never searched, and may hold anything.
    """
    keys = {history.shards[name].source for name in rows if name in history.shards}
    unknown = {history.shards[name].source for name in unread if name in history.shards}
    aside: set[str] = set()
    told: dict[str, Source] = {}
    for one in history.versions.values():
        for entry in one.entries:
            told |= {source.key: source for source in entry.sources if source.path is not None}
            parameters = entry.read(RejectParameters)
            if parameters.rejected:
                aside |= {source.key for source in entry.sources}
                aside -= {duplicate.source for duplicate in parameters.duplicates}
    # A duplicate that was skipped holds the same records.
    contents = {told[key].sha256 for key in keys if key in told}
    for key, source in sorted(told.items(), key=lambda one: one[1].shown):
        meant = source.sha256 in contents or _is_one_of(source, refused)
        doubted = _is_one_of(source, uncertain)
        if not meant and not doubted and key not in unknown | aside:
            continue
        size = _get_size(source.path or "")
        if size is not None:
            lost = (
                _UNREADABLE_RECORDS
                if key in unknown
                else _UNSEARCHABLE_ROWS
                if doubted
                else _REJECTED_SOURCE
            )
            why = "" if meant else lost
            yield _make_source_copy(source, why, same=size in {-1, source.size})


def _is_one_of(source: Source, paths: Collection[str]) -> bool:
    return any(f"/{source.path}".endswith(f"/{path}") for path in paths)


_UNSEARCHABLE_ROWS = "it has rows that were refused and cannot be searched"
_UNREADABLE_RECORDS = "records came from it that could not be read any more, and so not searched"
_REJECTED_SOURCE = "it could not land, and so was not searched"


def _make_source_copy(source: Source, unsearched: str, *, same: bool) -> ResidualCopy:
    """A source that is there; `unsearched` is why it is not known what it holds, if it is not."""
    if unsearched and (same or unsearched == _REJECTED_SOURCE):
        advice = "look into it, and take such rows out of it, or delete it"
        return ResidualCopy("unsearched", source.shown, unsearched, advice, certain=False)
    if not same:
        what = "records came from it; it was changed since"
        advice = "look whether the rows are out of it: elsewhere they could land again"
        return ResidualCopy("source", source.shown, what, advice, certain=False)
    advice = "take the rows out of it, or delete it: elsewhere they could land again"
    return ResidualCopy("source", source.shown, "records came from it", advice)


def _get_size(path: str) -> int | None:
    """How large a source is, -1 for a folder; None if it is not there."""
    try:
        if "://" in path:
            folder, _, name = path.rpartition("/")
            info = open_store(folder).info(name)
            return None if info is None else info.size
        found = Path(path)
        return -1 if found.is_dir() else found.stat().st_size
    except (OSError, ShardlineError):
        return None


def list_descendant_copies(
    history: DatasetHistory, gone: Mapping[str, Collection[str]], rows: ShardRows
) -> Iterator[ResidualCopy]:
    """The versions of other datasets that were made of what goes, and of those, and so on.

    `rows` are the records that go: what was erased elsewhere may be others.
    """
    remains = RemainingRecords(history, rows)
    tainted: dict[str, set[str]] = {
        f"{history.dataset}/{name}": set(names) for name, names in gone.items()
    }
    index = history.index
    others = {
        name: index.version(name)
        for name in index.found()
        if not name.startswith(f"{history.dataset}/")
    }
    opened = {f"{history.dataset}/{name}": one.version for name, one in history.versions.items()}
    known = _SnapshotLists(others | opened)
    logs = {name: index.entries(name) for name in others}
    order: dict[str, None] = {}
    grown = True
    while grown:
        grown = False
        for name, entries in logs.items():
            own = tainted.setdefault(name, set())
            before = len(own)
            for entry in entries:
                own |= _list_tainted_shards(entry, own, tainted, known, remains)
            grown |= len(own) > before
            order |= {name: None} if own else {}
    # Each stands behind those that it is made of, and can be made anew in this order.
    for name in order:
        version = others[name]
        there = [shard for shard in tainted[name] if version.state.condemned_in(shard) is None]
        if there:
            dataset = name.split("/")[0]
            held = any(
                parse_pin_holder(pin) == name for one in opened.values() for pin in one.state.pins
            )
            after = [dataset, history.dataset] if held else [dataset]
            yield ResidualCopy(
                "descendant",
                name,
                f"{len(there):,} of its shards {'is' if len(there) == 1 else 'are'} made of "
                f"such records of {history.dataset}",
                "make it anew of the newest snapshots, or erase there too; then vacuum "
                + " and after that ".join(after),
                (
                    *_get_live_recreate_command(version, logs[name], there),
                    *map(get_vacuum_command, after),
                ),
            )


def _get_live_recreate_command(
    version: StoredVersion, entries: Iterable[Entry], shards: Collection[str]
) -> Iterator[tuple[str, ...]]:
    """The command that makes a version anew, if its newest snapshot has one of these shards."""
    live = {stay.shard.name for stay in version.state.stays.at(version.state.snapshot)}
    if not live.isdisjoint(shards):
        yield from _get_recreate_command(entries, shards, *DERIVING_OPERATIONS, "rebuild")


@dataclass(frozen=True, slots=True)
class _SnapshotLists:
    """The lists of snapshots of all versions."""

    versions: Mapping[str, StoredVersion]

    def names(self, version: str, snapshot: int) -> list[str]:
        state = self.versions[version].state
        return [stay.shard.name for stay in state.stays.at(snapshot)]


def _list_tainted_shards(
    entry: Entry,
    own: set[str],
    tainted: Mapping[str, set[str]],
    known: _SnapshotLists,
    remains: RemainingRecords,
) -> set[str]:
    """The shards of an entry that hold something of what goes."""
    added = [one.shard.name for one in entry.added]
    if entry.operation in {ERASE, "append"}:
        made = zip(entry.added, entry.bases, strict=False)
        shards = (one.shard for one, base in made if base in own)
        return {shard.name for shard in shards if remains.hold(entry.dataset, shard)}
    if not entry.inputs:
        return set(added) if own & set(entry.removed) else set()
    bad = {
        shard
        for told in entry.inputs
        if (name := told.shown) in tainted and tainted[name]
        for shard in known.names(name, told.snapshot)
        if shard in tainted[name]
    }
    of = entry.bases
    if len(of) == len(added):
        return {name for name, base in zip(added, of, strict=True) if base in bad}
    return set(added) if bad else set()


OriginKey: TypeAlias = "tuple[str, str]"
"""A dataset, and a shard of it."""
_NO_ROWS = np.zeros(0, np.int64)


def list_origin_copies(
    history: DatasetHistory, rows: ShardRows, unread: Collection[str] = ()
) -> Iterator[ResidualCopy]:
    """The versions of other datasets whose records those rows were made of, and so on above.

    `unread` are shards that were given up since they could not be read.
    """
    index = history.index
    known: dict[str, ShardRows] = {history.dataset: rows}
    shared: set[OriginKey] = set()
    maybe: set[Input] = set()
    waiting = deque([history.dataset])
    while waiting:
        dataset = waiting.popleft()
        first = dataset == history.dataset
        found = RecordAncestry(index.dataset(dataset))
        found.look(known[dataset], set(unread) if first else set(), plans=not first)
        maybe |= found.maybe
        shared |= found.shared
        for other, more in found.by_dataset().items():
            before = known.get(other, {})
            grown = spread_rows(_union(before, more), list_mappings(index.dataset(other))).rows
            if other != history.dataset and _count(grown) > _count(before):
                known[other] = grown
                waiting.append(other)
    del known[history.dataset]
    yield from _make_origin_copies(history, known, shared, maybe)


def _make_origin_copies(
    history: DatasetHistory,
    known: Mapping[str, ShardRows],
    shared: set[OriginKey],
    maybe: set[Input],
) -> Iterator[ResidualCopy]:
    """What is found, as far as it is still there; of each version what is most certain."""
    held = {(dataset, name) for dataset, rows in known.items() for name in rows if len(rows[name])}
    erased, index = history.dataset, history.index
    inputs = ((told.dataset, list_input_shards(index, told)) for told in maybe)
    listed = {(dataset, shard.name) for dataset, shards in inputs for shard in shards}
    for dataset in sorted({*known, *(dataset for dataset, _ in shared | listed)}):
        for one in index.dataset(dataset).versions.values():
            there = {
                (dataset, name)
                for name, shard in one.shards.items()
                if not one.is_condemned(name) and not shard.virtual and dataset != erased
            }
            if there & held:
                count = len(there & held)
                shards = "1 of its shards holds" if count == 1 else f"{count:,} of its shards hold"
                what = f"{shards} records that those of {erased} were made of"
                yield _make_origin_copy(one, what, certain=True)
            elif there & listed:
                what = f"records of {erased} were made of its own; of which ones cannot be told"
                yield _make_origin_copy(one, what, certain=False)
            elif there & shared:
                yield ResidualCopy(
                    "shared",
                    one.name,
                    f"records of {erased} were made of some of its own, of which others are made "
                    "too that stay",
                    "look whether these tell of what was erased; if so, erase them there",
                    certain=False,
                )


def _make_origin_copy(one: VersionHistory, what: str, *, certain: bool) -> ResidualCopy:
    dataset = one.version.log.dataset
    return ResidualCopy(
        "origin",
        one.name,
        what,
        "erase there too, by what they are called there: else they can be made of it again",
        (("erase", dataset, "--where", "PREDICATE"),),
        certain=certain,
    )


def _union(some: ShardRows, more: ShardRows) -> ShardRows:
    return {
        name: np.union1d(some.get(name, _NO_ROWS), more.get(name, _NO_ROWS))
        for name in {*some, *more}
    }


def _count(rows: ShardRows) -> int:
    return sum(map(len, rows.values()))
