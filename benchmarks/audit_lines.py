"""Lines about an audit: the cost of proving a whole history, compared with reading its entries."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.lines import Line, Target
from benchmarks.timing import Side
from benchmarks.versions import disk_folder
from shardline.lineage.audit.root_audit import audit
from shardline.log.append_change import Append
from shardline.log.changes import Attest, Create, Derive, SetPin, build_entry, diff_shards
from shardline.log.log import CHECKPOINT_INTERVAL, Log
from shardline.log.model import RECEIPT, Attestation, Base, CommitInfo, Input, Shard, Source
from shardline.log.state import State
from shardline.operations.append_task import AppendOptions, make_append_identity
from shardline.operations.shard_slice import make_rebuild_identity
from shardline.operations.shard_writer import make_stem
from shardline.operations.transform import make_transform_identity
from shardline.provenance.log_index import LogIndex
from shardline.provenance.pins import get_pin_name
from shardline.schema.schema import Feature, Schema
from shardline.storage.local_store import LocalStore
from shardline.udf.transform import get_transform_identity, map_unchanged_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.canonical_json import Json
    from shardline.log.changes import Change

VERSIONS, ENTRIES = 50, 20_000
_EACH_DATASET = 5
_NAMES = (
    "audit: a root without reading shards",
    "audit: a root without reading shards, beside bare JSON",
)
_BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
_SHARD = b"x"
_RECORDS = 1000
_IN_ONE = 10
_SCHEMA = Schema((Feature("image", "bytes"), Feature("label", "int64")))
_WIDER = Schema((*_SCHEMA.features, Feature("area", "int64")))
_AREA: Json = {"maker": "batch function", "function": "fields:area", "code": "1"}
_CHECKS = ("integrity", "schema")


def all_lines(
    only: str = "", *, versions: int = VERSIONS, entries: int = ENTRIES
) -> Iterator[Line]:
    """Yield every line whose name contains `only`. The root stays on disk until the last.

    The baseline is stated in each line: either the work of every log reader for an entry (read and
    decode the file, compare its digest, parse its facts), or only reading the file and its JSON.
    """
    if not any(only in name for name in _NAMES):
        return
    with disk_folder() as folder:
        root = folder / "root"
        made = make_root(root, folder / "landing", versions, entries)
        logs = [Log(LocalStore(root), *name.split("/")) for name in made]
        ours = Side(f"{versions} versions, {entries:,} entries", partial(_audit, root))
        limits = (
            Side("each entry read, decoded, its digest compared", partial(_read, logs)),
            Side("each file read, json.loads", partial(_bare, root, logs)),
        )
        targets = (Target(of_limit=1 / 2), Target())
        for name, limit, target in zip(_NAMES, limits, targets, strict=True):
            if only in name:
                yield Line(name, 0, (), (limit,), ours, target, unit="entry")


def _audit(root: Path) -> int:
    report = audit(LogIndex(root), shards=False)
    if report.findings:
        raise RuntimeError(f"the root is not as it should be: {report.findings[0]}")
    return report.entries


def _read(logs: list[Log]) -> int:
    return sum(len(list(log.entries(1))) for log in logs)


def _bare(root: Path, logs: list[Log]) -> int:
    done = 0
    for log in logs:
        for path in (root / log.folder).glob("*0*.json"):
            json.loads(path.read_bytes())
            done += 1
    return done


def make_root(root: Path, landing: Path, versions: int, entries: int) -> list[str]:
    """Write datasets with appended, extended, rebuilt and tagged versions. Returns their names."""
    landing.mkdir(parents=True)
    each = entries // versions
    names = []
    for number in range(versions // _EACH_DATASET):
        dataset = _Dataset(root, landing, f"data{number:02}", each)
        names += dataset.make()
    return names


@dataclass
class _Writer:
    """Writer of the log of a version, without waiting for the disk."""

    root: Path
    dataset: str
    version: str
    most: int
    state: State = field(init=False)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.log = Log(LocalStore(self.root), self.dataset, self.version)
        self.state = State(self.dataset, self.version)
        (self.root / self.log.folder).mkdir(parents=True)
        (self.root / self.dataset / "shards").mkdir(exist_ok=True)

    @property
    def room(self) -> int:
        """Return the number of entries left to write."""
        return self.most - self.state.number

    def commit(self, change: Change, minutes: int) -> None:
        """Commit at `minutes` after the start."""
        commit_info = CommitInfo("0.1.0", "bench", run=f"{self.version}-{minutes}")
        now = _BEGIN + timedelta(minutes=minutes)
        name = hashlib.sha256(f"{self.log.label} {self.state.number}".encode()).hexdigest()[:32]
        made = build_entry(self.state, change, id=name, now=now, commit_info=commit_info)
        if made is None:
            raise RuntimeError("an entry was not made")
        self.state, entry, data = made
        (self.root / self.log.entry_name(entry.number)).write_bytes(data)
        if entry.number % CHECKPOINT_INTERVAL == 0:
            self.log.write_checkpoint(self.state)

    def put(
        self, identity: Json, records: int, source: str | None = None, base: Base | None = None
    ) -> Shard:
        """Write a shard file of one byte, and its receipt."""
        name = f"{self.version}.{make_stem(identity)}.tfrecord"
        digest = hashlib.sha256(name.encode()).hexdigest()
        folder = self.root / self.dataset / "shards"
        (folder / name).write_bytes(_SHARD)
        (folder / f"{name}{RECEIPT}").write_bytes(_SHARD)
        return Shard(name, records, len(_SHARD), digest, "none", source, base)

    def shards(self) -> list[Shard]:
        """Return the shards of the latest snapshot."""
        return [interval.shard for interval in self.state.shard_history.at(self.state.snapshot)]

    def attest(self, minutes: int, *, again: bool = False) -> None:
        """Attest that the new shards passed, or with `again`, the last shard."""
        intervals = self.state.shard_history.at(self.state.snapshot)
        new = [interval.shard.name for interval in intervals if not interval.passed]
        names = (intervals[-1].shard.name,) if again else tuple(new)
        told = tuple(Attestation(check, passed=True, shards=names) for check in _CHECKS)
        self.commit(Attest(told), minutes)

    def input(self) -> Input:
        """Return the latest snapshot as an input of a derived version."""
        digest = self.log.entry(self.state.snapshot_entry).digest
        return Input(self.dataset, self.version, self.state.snapshot, digest)


@dataclass
class _Dataset:
    """Version that grows, a second version, and three derived versions."""

    root: Path
    landing: Path
    name: str
    each: int

    def make(self) -> list[str]:
        """Write the logs in turns, until each has its number of entries."""
        base, other, wide, copy, single = writers = [
            _Writer(self.root, self.name, version, self.each)
            for version in ("v1", "other", "wide", "copy", "single")
        ]
        for writer in writers:
            schema = _WIDER if writer in (wide, copy) else _SCHEMA
            writer.commit(Create(schema), 0)
        for turn in range(1, self.each):
            minutes = 10 * turn
            if other.room > 1:
                self._land(other, minutes)
            if base.room > 3:
                self._land(base, minutes)
                _pin(base, wide, minutes + 2)
                _extend(base, wide, minutes + 3)
                _extend(base, copy, minutes + 3)
                _rebuild(base, single, minutes + 3)
        for writer in writers:
            while writer.room:
                writer.attest(10 * self.each, again=True)
        return [writer.log.label for writer in writers]

    def _land(self, writer: _Writer, minutes: int) -> None:
        path = self.landing / f"{self.name}-{writer.version}-{minutes:06}.jsonl"
        path.write_bytes(_SHARD)
        source = Source(str(path), len(_SHARD), hashlib.sha256(str(path).encode()).hexdigest())
        options = AppendOptions()
        told = make_append_identity(source.key, _SCHEMA.fingerprint, options)
        shard = writer.put({**told, "run": "", "part": 0}, _RECORDS, source.key)
        append = Append(
            shards=[shard], sources=[source], parameters=options.to_parameters().to_dict()
        )
        writer.commit(append, minutes)
        writer.attest(minutes + 1)


def _pin(base: _Writer, into: _Writer, minutes: int) -> None:
    """Pin the latest snapshot and release the previous pin, as an overlay does."""
    new = base.state.snapshot
    base.commit(SetPin(get_pin_name(into.log.label, new), new, "it is read with it"), minutes)
    if new > 1:
        base.commit(SetPin(get_pin_name(into.log.label, new - 1), None), minutes)


def _extend(base: _Writer, into: _Writer, minutes: int) -> None:
    """Add a shard computed from what is new in the base."""
    shard = base.shards()[-1]
    mode = "overlay" if into.version == "wide" else "rewrite"
    fingerprints = _SCHEMA.fingerprint, _WIDER.fingerprint
    transform = get_transform_identity(fingerprints, map_unchanged_names(_SCHEMA), [_AREA])
    identity = make_transform_identity("extend", mode, shard, transform, "none", quarantined=False)
    below = Base(shard.name, shard.content) if mode == "overlay" else None
    made = into.put(identity, shard.records, base=below)
    commit_info = {
        "by": "function 'area'",
        "features": ["area"],
        "reads": ["image"],
        "identity": _AREA,
    }
    told: Json = {"mode": mode, "fields": [commit_info], "of": [shard.name]}
    _derive(base, into, [*into.shards(), made], "extend", told, minutes=minutes)


def _rebuild(base: _Writer, into: _Writer, minutes: int) -> None:
    """Merge ten shards into one. Full shards stay."""
    shards = base.shards()
    full = (len(shards) - 1) // _IN_ONE
    rest = shards[full * _IN_ONE :]
    pieces: list[Json] = [{"sha256": shard.content} for shard in rest]
    made = into.put(make_rebuild_identity(pieces, "none"), _RECORDS * len(rest))
    told: Json = {"snapshot": base.state.snapshot, "compression": "none", "target_bytes": _IN_ONE}
    _derive(base, into, [*into.shards()[:full], made], "rebuild", told, minutes=minutes)


def _derive(
    base: _Writer,
    into: _Writer,
    shards: list[Shard],
    operation: str,
    told: Json,
    *,
    minutes: int,
) -> None:
    added, removed = diff_shards(into.state, shards)
    counts = {"computed": len(added), "reused": len(shards) - len(added)}
    change = Derive(
        head=into.state.snapshot,
        removed=removed,
        added=added,
        operation=operation,
        parameters={**told, **counts},
        inputs=(base.input(),),
    )
    into.commit(change, minutes)
    into.attest(minutes + 1)
