"""The parts of a dataset card that tell how a snapshot came to be, and what it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.lineage.exports.gone import words_for
from shardline.lineage.exports.markdown import table, text
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.lineage.exports.gone import GoneFile
    from shardline.log.entry import Entry
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.catalog import Catalog

_SHOWN_ENTRIES = 20
_SHOWN_RUN = 12
_SHOWN_GONE = 50


def what_is_gone(snapshot: StoredSnapshot, gone: Sequence[GoneFile]) -> Iterator[str]:
    """Which files were erased or given to vacuum, and what can be read instead."""
    own = {one.shard.name for one in gone if one.version == snapshot.version}
    lost = sum(shard.records for shard in snapshot.shards if shard.name in own)
    files = counted(len(gone), "file")
    yield from ("## What is gone", "")
    was, them = ("was", "it") if len(gone) == 1 else ("were", "them")
    yield (
        f"{files} of those that this snapshot needs {was} erased or given to vacuum"
        + (f", {lost:,} of its {counted(snapshot.records, 'record')} with {them}" if own else "")
        + f": {words_for(gone)}. What follows is what the log tells. `shardline status "
        f"{snapshot.version}` tells which snapshot can be read now."
    )
    yield ""
    rows = (
        (one.version, f"`{one.shard.name}`", f"{one.shard.records:,}", one.why)
        for one in gone[:_SHOWN_GONE]
    )
    yield from table(("version", "file", "records", "what happened"), rows)
    left = len(gone) - _SHOWN_GONE
    if left > 0:
        yield from ("", f"And {counted(left, 'more file')}: `shardline log` tells of them.")
    yield ""


def history(catalog: Catalog, snapshot: StoredSnapshot) -> Iterator[str]:
    """What was done to the version up to the snapshot, the newest last."""
    changes = _changes(catalog, snapshot)
    yield from ("## History", "")
    left = len(changes) - _SHOWN_ENTRIES
    if left > 0:
        yield from (f"The last {_SHOWN_ENTRIES} of {len(changes):,} changes.", "")
    headings = ("snapshot", "time (UTC)", "what", "records then", "by")
    yield from table(headings, map(_row, changes[-_SHOWN_ENTRIES:]))
    yield ""


def _changes(catalog: Catalog, snapshot: StoredSnapshot) -> list[Entry]:
    told = catalog.entries(snapshot.version)
    return [one for one in told if one.changes_data and one.snapshot <= snapshot.number]


def _row(entry: Entry) -> tuple[str, ...]:
    run = entry.maker.run
    return (
        f"{entry.snapshot}",
        f"{entry.time:%Y-%m-%d %H:%M}",
        _what(entry),
        f"{entry.totals.records:,}",
        f"run {text(run[:_SHOWN_RUN])}" if run else "",
    )


def _what(entry: Entry) -> str:
    """`append: +2 shards, 12,000 records`."""
    told = []
    if entry.restores is not None:
        told.append(f"snapshot {entry.restores} again")
    if entry.rejects is not None:
        told.append(f"snapshot {entry.rejects}")
    if entry.added:
        records = sum(one.shard.records for one in entry.added)
        told += [f"+{counted(len(entry.added), 'shard')}", counted(records, "record")]
    if entry.removed:
        told.append(f"-{counted(len(entry.removed), 'shard')}")
    if entry.inputs:
        read = dict.fromkeys(f"{one.shown}@{one.snapshot}" for one in entry.inputs)
        itself = " and itself" if len(read) < len(entry.inputs) else ""
        told.append(f"from {' and '.join(read)}{itself}")
    elif entry.sources and entry.operation == "append":
        told.append(counted(len(entry.sources), "source"))
    return f"{text(entry.operation)}: {text(', '.join(told))}"


def lineage(catalog: Catalog, snapshot: StoredSnapshot) -> Iterator[str]:
    """What the snapshot was made from, and each of its fields."""
    derived = [one for one in _changes(catalog, snapshot) if one.inputs]
    if not derived:
        return
    entry = derived[-1]
    yield from ("## Made from", "")
    for one in dict.fromkeys(entry.inputs):
        yield f"- {one.shown}@{one.snapshot} (entry `{one.entry}`)"
    yield ""
    origins = catalog.origins(entry)
    if origins:
        rows = (
            (
                text(feature),
                origin.how,
                text(", ".join(f"{version}: {name}" for version, name in origin.of)),
                text(origin.by),
            )
            for feature, origin in origins.items()
        )
        yield from table(("field", "is", "from", "by"), rows)
        yield ""
