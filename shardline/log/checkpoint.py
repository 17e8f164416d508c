"""Checkpoints: the state of a log at an entry, in a file that loads without a replay.

A checkpoint is derived. It has the digest of its entry and is used only if the entry has this
digest. The log is replayed instead of a corrupt or missing checkpoint.

    8 bytes   "SHRDCKP1"
    8 bytes   size of the header, little-endian
    header    canonical JSON: small values, and the offset, size and sha256 of each table
    32 bytes  sha256 of everything before
    tables    Arrow IPC streams, one after the other

The header is read at once, each table when it is needed and compared with its digest.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from shardline import canonical_json as canonical
from shardline.errors import StorageError
from shardline.log.indexes import DigestIndex, SourceIndex
from shardline.log.model import COMPRESSIONS, PLAN, Checks, Ref, Totals
from shardline.log.shard_history import ShardHistory
from shardline.log.snapshot_history import SnapshotHistory, to_microseconds
from shardline.log.state import BEGINNING, RESERVED_CHECKS, Policy, State
from shardline.schema.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from shardline.log.publication import ReplayedShard, ReplayedSnapshot
    from shardline.log.replay import Replay
    from shardline.storage import Store

    Getter: TypeAlias = Callable[[Any], Any]


MAGIC = b"SHRDCKP1"
FORMAT = 1
VIRTUAL_FORMAT = 2
"""Format of versions with virtual shards: earlier releases must reject it."""
SIDECAR_FORMAT = 3
"""Format of logs with digests of sidecars, which has another table."""
_ATTRIBUTES = {
    "stays": "shard_history",
    "timeline": "snapshot_history",
    "landings": "appended_sources",
}
"""Attributes of the state whose tables have other names."""
_FORMATS = frozenset({FORMAT, VIRTUAL_FORMAT, SIDECAR_FORMAT})
_FIXED_BYTES = 16
_DIGEST_BYTES = 32
_FIRST_READ_BYTES = 16 * 1024
_logger = logging.getLogger(__name__)


class CheckpointError(ValueError):
    """Checkpoint that is corrupt, of another release, or of another log."""


def write_checkpoint(state: State) -> bytes:
    """Serialize a state to a checkpoint."""
    tables = {
        "stays": state.shard_history.to_table(),
        "timeline": state.snapshot_history.to_table(),
        "sources": state.sources.to_table(),
        "open_sources": state.open_sources.to_table(),
        "shard_names": state.shard_names.to_table(),
        "landings": state.appended_sources.to_table(),
    }
    if state.uses_sidecars:
        tables["sidecars"] = state.sidecars.to_table()
    # A single sink for all tables saves a copy of millions of rows.
    sink = pa.BufferOutputStream()
    offsets = [0]
    for table in tables.values():
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        offsets.append(sink.tell())
    data = memoryview(sink.getvalue())
    locations = {
        name: {
            "offset": begin,
            "size": end - begin,
            "sha256": hashlib.sha256(data[begin:end]).hexdigest(),
        }
        for name, (begin, end) in zip(tables, pairwise(offsets), strict=True)
    }
    header = canonical.encode(
        {**_list_values(state), "format": _choose_format(state), "tables": locations}
    )
    start = MAGIC + len(header).to_bytes(8, "little") + header
    return b"".join([start, hashlib.sha256(start).digest(), data])


def _choose_format(state: State) -> int:
    if state.uses_sidecars:
        return SIDECAR_FORMAT
    virtual = pc.any(pc.ends_with(state.shard_history.names(), pattern=PLAN)).as_py()
    return VIRTUAL_FORMAT if virtual else FORMAT


def _list_values(state: State) -> dict[str, Any]:
    return {
        "dataset": state.dataset,
        "version": state.version,
        "number": state.number,
        "digest": state.digest,
        "time": state.time.isoformat(),
        "schema": state.schema and state.schema.to_dict(),
        "policies": [[policy.since, policy.checks.to_dict()] for policy in state.policies],
        "bits": state.bits,
        "snapshot": state.snapshot,
        "snapshot_entry": state.snapshot_entry,
        "snapshot_time": state.snapshot_time.isoformat(),
        "snapshot_rejected": state.snapshot_rejected,
        "published": state.published,
        "totals": state.totals.to_dict(),
        "content": state.content,
        "tags": [tag.to_dict() for tag in state.tags.values()],
        "pins": [pin.to_dict() for pin in state.pins.values()],
    }


def read_checkpoint(
    store: Store,
    name: str,
    dataset: str,
    version: str,
    *,
    fallback: Callable[[], State] | None = None,
) -> State:
    """Read the state of a checkpoint. Tables are read when they are needed.

    Raises CheckpointError, or StorageError if it cannot be read. `fallback` replays the log, for a
    table that is corrupt or missing later.
    """
    facts, start = _read_header(store, name)
    if (facts["dataset"], facts["version"]) != (dataset, version):
        raise CheckpointError("of another version")

    has_sidecars = facts["format"] == SIDECAR_FORMAT

    def load(table: str) -> Callable[[], pa.Table]:
        location = facts["tables"].get(table)

        def read() -> pa.Table:
            try:
                if location is not None:
                    return _read_table(store, name, start + location["offset"], location)
                if fallback is None:
                    raise CheckpointError("written by an earlier release")
            except (CheckpointError, StorageError):
                if fallback is None:
                    raise
                label, number = f"{dataset}/{version}", facts["number"]
                _logger.warning("%s: corrupt checkpoint at entry %d", label, number)
            return getattr(fallback(), _ATTRIBUTES.get(table, table)).to_table()

        return read

    return State(
        dataset=dataset,
        version=version,
        number=facts["number"],
        digest=facts["digest"],
        time=datetime.fromisoformat(facts["time"]),
        schema=facts["schema"] and Schema.from_dict(facts["schema"]),
        policies=tuple(Policy(s, Checks.from_dict(checks)) for s, checks in facts["policies"]),
        bits=facts["bits"],
        snapshot=facts["snapshot"],
        snapshot_entry=facts["snapshot_entry"],
        snapshot_time=datetime.fromisoformat(facts["snapshot_time"]),
        snapshot_rejected=facts["snapshot_rejected"],
        published=facts["published"],
        totals=Totals.from_dict(facts["totals"]),
        content=facts["content"],
        tags={tag["name"]: Ref.from_dict(tag) for tag in facts["tags"]},
        pins={pin["name"]: Ref.from_dict(pin) for pin in facts["pins"]},
        shard_history=ShardHistory(load("stays")),
        snapshot_history=SnapshotHistory(load("timeline")),
        sources=DigestIndex(load("sources")),
        open_sources=DigestIndex(load("open_sources"), stored="open_sources" in facts["tables"]),
        shard_names=DigestIndex(load("shard_names")),
        sidecars=DigestIndex(load("sidecars") if has_sidecars else None),
        uses_sidecars=has_sidecars,
        appended_sources=SourceIndex(load("landings"), stored="landings" in facts["tables"]),
        checkpoint=facts["number"],
    )


def _read_header(store: Store, name: str) -> tuple[dict[str, Any], int]:
    """Read the header, and the offset of the tables."""
    info = store.info(name)
    if info is None:
        raise CheckpointError("not found")
    (head,) = store.read_ranges(name, [(0, min(info.size, _FIRST_READ_BYTES))])
    size = int.from_bytes(head[8:_FIXED_BYTES], "little")
    start = _FIXED_BYTES + size + _DIGEST_BYTES
    if head[:8] != MAGIC or start > info.size:
        raise CheckpointError("not a checkpoint")
    if start > len(head):
        head += store.read_ranges(name, [(len(head), start - len(head))])[0]
    sealed = head[: start - _DIGEST_BYTES]
    if hashlib.sha256(sealed).digest() != head[start - _DIGEST_BYTES : start]:
        raise CheckpointError("header digest mismatch")
    facts: dict[str, Any] = canonical.decode(sealed[_FIXED_BYTES:])
    reserved = {check: bit for bit, check in enumerate(RESERVED_CHECKS)}
    if facts["format"] not in _FORMATS or not reserved.items() <= facts["bits"].items():
        raise CheckpointError("of another release")
    if info.size != start + sum(table["size"] for table in facts["tables"].values()):
        raise CheckpointError("size mismatch")
    return facts, start


def _read_table(store: Store, name: str, offset: int, location: dict[str, Any]) -> pa.Table:
    (data,) = store.read_ranges(name, [(offset, location["size"])])
    if hashlib.sha256(data).hexdigest() != location["sha256"]:
        raise CheckpointError(f"{name}: table digest mismatch")
    try:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise CheckpointError(f"{name}: table is not valid Arrow data") from error
    return table


_VALUES = (
    "number",
    "digest",
    "time",
    "schema",
    "policies",
    "bits",
    "snapshot",
    "published",
    "totals",
    "content",
    "tags",
    "pins",
    "uses_sidecars",
)


def matches_replay(replay: Replay, state: State) -> bool:
    """Return True if a state, as of a checkpoint, equals a replay."""
    if any(getattr(replay, name) != getattr(state, name) for name in _VALUES):
        return False
    last = replay.snapshots[-1] if replay.snapshots else None
    latest = (state.snapshot_entry, state.snapshot_time, state.snapshot_rejected)
    if latest != ((last.entry, last.time, last.rejected) if last else (0, BEGINNING, 0)):
        return False
    indexes = ["sources", "shard_names", "sidecars"]
    indexes += ["open_sources"] if state.open_sources.stored else []
    indexes += ["appended_sources"] if state.appended_sources.stored else []
    return (
        _equals_numbers(replay.rows, _SHARD_NUMBERS, state.shard_history.column)
        and _equals_others(replay.rows, _SHARD_OTHERS, state.shard_history.to_table())
        and _equals_numbers(replay.snapshots, _SNAPSHOT_NUMBERS, state.snapshot_history.column)
        and [row.content for row in replay.snapshots] == state.snapshot_history.contents()
        and all(
            getattr(replay, name).to_table().equals(getattr(state, name).to_table())
            for name in indexes
        )
    )


def _equals_numbers(
    rows: Sequence[Any], columns: dict[str, Getter], column: Callable[[str], NDArray[Any]]
) -> bool:
    return all(column(name).tolist() == list(map(get, rows)) for name, get in columns.items())


def _equals_others(rows: Sequence[Any], columns: dict[str, Getter], table: pa.Table) -> bool:
    return all(table[name].to_pylist() == list(map(get, rows)) for name, get in columns.items())


def _digest(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _base(row: ReplayedShard) -> tuple[str | None, bytes | None]:
    base = row.shard.base
    return (None, None) if base is None else (base.name, bytes.fromhex(base.sha256))


def _get_release_time(row: ReplayedSnapshot) -> int:
    return 0 if row.unreferenced is None else to_microseconds(row.unreferenced)


_MARKS: dict[str, Getter] = {
    "passed": attrgetter("passed"),
    "failed": attrgetter("failed"),
    "told": attrgetter("failed_entry"),
}
_SHARD_NUMBERS: dict[str, Getter] = {
    **_MARKS,
    **{name: attrgetter(name) for name in ("since", "until")},
    "landed": attrgetter("added_entry"),
    "once": attrgetter("ever_passed"),
    **{name: attrgetter(f"shard.{name}") for name in ("records", "bytes")},
    "compression": lambda row: COMPRESSIONS.index(row.shard.compression),
}
_SHARD_OTHERS: dict[str, Getter] = {
    "name": attrgetter("shard.name"),
    "sha256": lambda row: bytes.fromhex(row.shard.sha256),
    "source": lambda row: _digest(row.shard.source),
    "base": lambda row: _base(row)[0],
    "base_sha256": lambda row: _base(row)[1],
}
_SNAPSHOT_NUMBERS: dict[str, Getter] = {
    **_MARKS,
    **{name: attrgetter(name) for name in ("entry", "rejected")},
    "made_from": attrgetter("parent"),
    **{name: attrgetter(f"totals.{name}") for name in ("records", "bytes", "shards")},
    "time": lambda row: to_microseconds(row.time),
    "released": _get_release_time,
}
