"""Columnar history of shard membership, one row per interval.

An interval is the snapshots [since, until) that contain a shard. The shards of snapshot n, in
order, are the rows with since <= n < until. Rows are only added or ended. The column `landed` is
the entry that added the shard. `passed` and `failed` are sets of checks as bits, by the latest
attestation, `once` has the checks that ever passed, `told` the entry of the latest failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import CorruptLogError
from shardline.log.columns import EditedColumns
from shardline.log.model import COMPRESSIONS, Base, Shard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from shardline.log.model import Added

LIVE = 2**62

_NUMBERS = {
    "records": np.int64,
    "bytes": np.int64,
    "compression": np.int8,
    "since": np.int64,
    "until": np.int64,
    "landed": np.int64,
    "passed": np.uint32,
    "failed": np.uint32,
    "once": np.uint32,
    "told": np.int64,
}
_TEXTS = {
    "name": pa.string(),
    "sha256": pa.binary(32),
    "source": pa.binary(32),
    "base": pa.string(),
    "base_sha256": pa.binary(),
}
Numbers: TypeAlias = "dict[str, NDArray[Any]]"
Texts: TypeAlias = "dict[str, pa.ChunkedArray]"


@dataclass(frozen=True, slots=True)
class ShardInterval:
    """A shard in a snapshot and its check results."""

    shard: Shard
    since: int
    added_entry: int
    passed: int
    failed: int
    ever_passed: int
    failed_entry: int


@dataclass(slots=True)
class _MarkedEntries:
    """Latest entries in which a check passed and failed."""

    passed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Append:
    snapshot: int
    entry: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True, slots=True)
class _Relist:
    snapshot: int
    entry: int
    added: tuple[Added, ...]
    removed: frozenset[str]
    restored: bool
    version: str


@dataclass(frozen=True, slots=True)
class _Mark:
    entry: int
    names: tuple[str, ...]
    bit: int
    passed: bool


class ShardHistory(EditedColumns[tuple["Numbers", "Texts"], "list[_Append | _Relist | _Mark]"]):
    """History of the shard list of a version."""

    max_edits = 256

    def __init__(self, load: Callable[[], pa.Table] | None = None) -> None:
        super().__init__([], load)

    def append(self, snapshot: int, entry: int, shards: tuple[Shard, ...]) -> None:
        """Add shards at the end of the list."""
        self._edits.append(_Append(snapshot, entry, shards))

    def relist(
        self,
        snapshot: int,
        entry: int,
        added: tuple[Added, ...],
        removed: Iterable[str],
        *,
        restored: bool,
        version: str,
    ) -> None:
        """Remove shards and insert others; `restored` ones keep their check results.

        `version` is the version in the error for an invalid entry.
        """
        self._edits.append(_Relist(snapshot, entry, added, frozenset(removed), restored, version))

    def mark(self, entry: int, names: tuple[str, ...], bit: int, *, passed: bool) -> None:
        """Record a check result of shards that were added before."""
        self._edits.append(_Mark(entry, names, bit, passed))

    def column(self, name: str) -> NDArray[Any]:
        """Return a number column."""
        return self._fold()[0][name]

    def names(self) -> pa.ChunkedArray:
        """Return the name of the shard of each row."""
        return self._fold()[1]["name"]

    def bases(self) -> pa.ChunkedArray:
        """Return the name of the base of each row; null for a shard that is no overlay."""
        return self._fold()[1]["base"]

    def rows_at(self, snapshot: int) -> NDArray[np.int64]:
        """Return the rows of the shards of a snapshot, in order."""
        numbers, _ = self._fold()
        return np.flatnonzero((numbers["since"] <= snapshot) & (numbers["until"] > snapshot))

    def at(self, snapshot: int) -> list[ShardInterval]:
        """Return the shards of a snapshot and their check results, in order."""
        return self._build_intervals(self.rows_at(snapshot))

    def named(self, names: Sequence[str]) -> dict[str, ShardInterval]:
        """Return the latest interval of each named shard."""
        rows = _find_last_rows(self._fold()[1]["name"], names)
        intervals = self._build_intervals(np.array(list(rows.values()), np.int64))
        return dict(zip(rows, intervals, strict=True))

    def spans(self, name: str) -> list[tuple[int, int]]:
        """Return the snapshots [since, until) of each interval of a shard."""
        numbers, texts = self._fold()
        rows = np.flatnonzero(pc.equal(texts["name"], name).to_numpy(zero_copy_only=False))
        pairs = zip(numbers["since"][rows].tolist(), numbers["until"][rows].tolist(), strict=True)
        return [(since, until) for since, until in pairs if until > since]

    def to_table(self) -> pa.Table:
        """Return all columns, for a checkpoint."""
        numbers, texts = self._fold()
        return pa.table({**{name: pa.array(values) for name, values in numbers.items()}, **texts})

    def _build_intervals(self, rows: NDArray[np.int64]) -> list[ShardInterval]:
        numbers, texts = self._fold()
        columns = [values[rows].tolist() for values in numbers.values()]
        columns += [texts[name].take(pa.array(rows)).to_pylist() for name in _TEXTS]
        return [
            _build_interval(dict(zip((*_NUMBERS, *_TEXTS), row, strict=True)))
            for row in zip(*columns, strict=True)
        ]

    def _read(self, table: pa.Table | None) -> tuple[Numbers, Texts]:
        table = _EMPTY if table is None else table
        return (
            {name: table[name].to_numpy() for name in _NUMBERS},
            {name: table[name] for name in _TEXTS},
        )

    def _apply(self, columns: tuple[Numbers, Texts]) -> tuple[Numbers, Texts]:
        numbers, texts = columns
        folding = _Folding(dict(numbers), dict(texts))
        for edit in self._edits:
            folding.take(edit)
        folding.finish()
        return folding.numbers, folding.texts


_EMPTY = pa.table(
    {
        **{name: pa.nulls(0, pa.from_numpy_dtype(kind)) for name, kind in _NUMBERS.items()},
        **{name: pa.nulls(0, kind) for name, kind in _TEXTS.items()},
    }
)


def _build_interval(row: dict[str, Any]) -> ShardInterval:
    base = row["base"] and Base(row["base"], row["base_sha256"].hex())
    shard = Shard(
        row["name"],
        row["records"],
        row["bytes"],
        row["sha256"].hex(),
        COMPRESSIONS[row["compression"]],
        row["source"] and row["source"].hex(),
        base,
    )
    marks = row["passed"], row["failed"], row["once"], row["told"]
    return ShardInterval(shard, row["since"], row["landed"], *marks)


def _find_last_rows(names: pa.ChunkedArray, requested: Sequence[str]) -> dict[str, int]:
    """Find the last row of each name."""
    matches = pc.index_in(names, value_set=pa.array(requested, pa.string()))
    rows = np.flatnonzero(matches.is_valid().to_numpy())
    pairs = zip(matches.drop_null().to_numpy().tolist(), rows.tolist(), strict=True)
    return {requested[index]: row for index, row in pairs}


class _Folding:
    """Columns while edits are folded in. Gathers rows and marks and applies them at once."""

    def __init__(self, numbers: Numbers, texts: Texts) -> None:
        self.numbers = numbers
        self.texts = texts
        self._new: list[dict[str, Any]] = []
        self._marks: dict[tuple[str, int], _MarkedEntries] = {}

    def take(self, edit: _Append | _Relist | _Mark) -> None:
        if isinstance(edit, _Append):
            self._new += [_row(shard, edit.snapshot, edit.entry) for shard in edit.shards]
        elif isinstance(edit, _Mark):
            for name in edit.names:
                entries = self._marks.setdefault((name, edit.bit), _MarkedEntries())
                if edit.passed:
                    entries.passed = edit.entry
                else:
                    entries.failed = edit.entry
        else:
            self.finish()
            self._relist(edit)

    def finish(self) -> None:
        if self._new:
            new, self._new = self._new, []
            self._extend(
                {
                    name: np.array([row[name] for row in new], kind)
                    for name, kind in _NUMBERS.items()
                },
                {name: pa.array([row[name] for row in new], kind) for name, kind in _TEXTS.items()},
            )
        if self._marks:
            marks, self._marks = self._marks, {}
            for bit in sorted({bit for _, bit in marks}):
                self._set_bit(
                    bit, {name: entries for (name, key), entries in marks.items() if key == bit}
                )

    def _extend(self, numbers: Numbers, texts: dict[str, pa.Array]) -> None:
        for name, old in self.numbers.items():
            self.numbers[name] = np.concatenate([old, numbers[name]])
        for name, kind in _TEXTS.items():
            chunks = [*self.texts[name].chunks, texts[name]]
            self.texts[name] = pa.chunked_array(chunks, kind)

    def _set_bit(self, bit: int, marks: dict[str, _MarkedEntries]) -> None:
        """Set the result of a check on all rows of shards that were added before."""
        matches = pc.index_in(self.texts["name"], value_set=pa.array(list(marks), pa.string()))
        rows = np.flatnonzero(matches.is_valid().to_numpy())
        indices = matches.drop_null().to_numpy()
        passes = np.array([entries.passed for entries in marks.values()], np.int64)[indices]
        failures = np.array([entries.failed for entries in marks.values()], np.int64)[indices]
        added = self.numbers["landed"][rows]
        flag = np.uint32(1 << bit)
        good, bad, ever, entry = (
            self.numbers[name].copy() for name in ("passed", "failed", "once", "told")
        )
        ever[rows] |= np.where(added < passes, flag, np.uint32(0))
        entry[rows] = np.maximum(entry[rows], np.where(added < failures, failures, 0))
        is_marked = added < np.maximum(passes, failures)
        rows, passed = rows[is_marked], (passes > failures)[is_marked]
        good[rows] = np.where(passed, good[rows] | flag, good[rows] & ~flag)
        bad[rows] = np.where(passed, bad[rows] & ~flag, bad[rows] | flag)
        self.numbers.update(passed=good, failed=bad, once=ever, told=entry)

    def _relist(self, edit: _Relist) -> None:
        names = self.texts["name"]
        live = np.flatnonzero(self.numbers["until"] == LIVE)
        live_names = names.take(pa.array(live)).to_pylist()
        pairs = zip(live.tolist(), live_names, strict=True)
        after: list[int | Shard] = [row for row, name in pairs if name not in edit.removed]
        if len(live) - len(after) != len(edit.removed):
            raise CorruptLogError(edit.version, edit.entry, "it removes shards that are not live")
        known = (
            _find_last_rows(names, [item.shard.name for item in edit.added])
            if edit.restored
            else {}
        )
        for item in sorted(edit.added, key=lambda item: LIVE if item.at is None else item.at):
            row = known.get(item.shard.name, item.shard)
            after.insert(len(after) if item.at is None else item.at, row)
        same = 0
        while same < min(len(live), len(after)) and after[same] == live[same]:
            same += 1
        until = self.numbers["until"].copy()
        until[live[same:]] = edit.snapshot
        self.numbers["until"] = until
        self._begin_intervals(after[same:], edit)

    def _begin_intervals(self, items: list[int | Shard], edit: _Relist) -> None:
        """Begin intervals of earlier and new shards, in order."""
        base = len(self.numbers["since"])
        new = [_row(item, edit.snapshot, edit.entry) for item in items if isinstance(item, Shard)]
        self._new += new
        self.finish()
        new_rows = iter(range(base, base + len(new)))
        rows = np.array(
            [next(new_rows) if isinstance(item, Shard) else item for item in items], np.int64
        )
        if len(rows) == len(new):
            return
        old = np.arange(base)
        numbers = {name: values[rows] for name, values in self.numbers.items()}
        numbers["since"] = np.full(len(rows), edit.snapshot, np.int64)
        numbers["until"] = np.full(len(rows), LIVE, np.int64)
        texts = {name: _combine(values.take(pa.array(rows))) for name, values in self.texts.items()}
        self.numbers = {name: values[old] for name, values in self.numbers.items()}
        self.texts = {name: values.slice(0, base) for name, values in self.texts.items()}
        self._extend(numbers, texts)


def _combine(values: pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _row(shard: Shard, snapshot: int, entry: int) -> dict[str, Any]:
    return {
        "name": shard.name,
        "records": shard.records,
        "bytes": shard.bytes,
        "sha256": bytes.fromhex(shard.sha256),
        "compression": COMPRESSIONS.index(shard.compression),
        "source": shard.source and bytes.fromhex(shard.source),
        "base": shard.base and shard.base.name,
        "base_sha256": shard.base and bytes.fromhex(shard.base.sha256),
        "since": snapshot,
        "until": LIVE,
        "landed": entry,
        "passed": 0,
        "failed": 0,
        "once": 0,
        "told": 0,
    }
