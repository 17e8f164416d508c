"""Columnar history of the snapshots of a version: row i is snapshot i + 1.

`released` is when a snapshot last lost a reference: as latest, as published, or by a tag or pin.
`made_from` is its parent, 0 for none, `rejected` the entry that rejected it. `passed`, `failed` and
`told` are check results of its content, which snapshots of the same content share.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from shardline.log.columns import EditedColumns
from shardline.log.model import Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Columns: TypeAlias = tuple[dict[str, NDArray[Any]], NDArray[np.uint64]]

_NUMBERS = {
    "entry": np.int64,
    "time": np.int64,
    "released": np.int64,
    "records": np.int64,
    "bytes": np.int64,
    "shards": np.int64,
    "made_from": np.int64,
    "rejected": np.int64,
    "passed": np.uint32,
    "failed": np.uint32,
    "told": np.int64,
}
_MARKS = ("passed", "failed", "told")
_CHANGING = ("released", "rejected", *_MARKS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_microseconds(time: datetime) -> int:
    """Convert a time to microseconds since 1970."""
    return (time - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """Row of a snapshot."""

    number: int
    entry: int
    time: datetime
    totals: Totals
    content: str
    rejected: int
    passed: int = 0
    failed: int = 0
    failed_entry: int = 0


@dataclass(slots=True)
class _Row:
    numbers: dict[str, int]
    content: bytes
    restored: bool


@dataclass(frozen=True, slots=True)
class _Mark:
    entry: int
    content: bytes
    bit: int
    passed: bool


@dataclass(frozen=True, slots=True)
class _Set:
    column: str
    number: int
    value: int


class SnapshotHistory(EditedColumns["Columns", "list[_Row | _Mark | _Set]"]):
    """History of the snapshots of a version."""

    max_edits = 256

    def __init__(self, load: Callable[[], pa.Table] | None = None) -> None:
        super().__init__([], load)

    def add(
        self,
        entry: int,
        time: datetime,
        totals: Totals,
        content: str,
        *,
        parent: int,
        restored: bool,
    ) -> None:
        """Add a snapshot; a `restored` content keeps its check results."""
        numbers = dict.fromkeys(_NUMBERS, 0)
        numbers.update(entry=entry, time=to_microseconds(time), shards=totals.shards)
        numbers.update(records=totals.records, bytes=totals.bytes, made_from=parent)
        self._edits.append(_Row(numbers, bytes.fromhex(content), restored))

    def release(self, number: int, time: datetime) -> None:
        """Record when a snapshot lost a reference."""
        self._edits.append(_Set("released", number, to_microseconds(time)))

    def reject(self, number: int, entry: int) -> None:
        """Record that a snapshot was rejected."""
        self._edits.append(_Set("rejected", number, entry))

    def mark(self, entry: int, content: str, bit: int, *, passed: bool) -> None:
        """Record a check result of all snapshots with a content."""
        self._edits.append(_Mark(entry, bytes.fromhex(content), bit, passed))

    def __len__(self) -> int:
        return len(self._fold()[0]["entry"])

    def column(self, name: str) -> NDArray[Any]:
        """Return a number column."""
        return self._fold()[0][name]

    def contents(self) -> list[str]:
        """Return the content digest of each snapshot."""
        data = self._fold()[1].tobytes().hex()
        return [data[start : start + 64] for start in range(0, len(data), 64)]

    def get_row(self, number: int) -> SnapshotRow:
        """Return the row of a snapshot that exists."""
        numbers, contents = self._fold()
        row = {name: int(values[number - 1]) for name, values in numbers.items()}
        return SnapshotRow(
            number,
            row["entry"],
            _EPOCH + row["time"] * _MICROSECOND,
            Totals(row["records"], row["bytes"], row["shards"]),
            contents[number - 1].tobytes().hex(),
            row["rejected"],
            row["passed"],
            row["failed"],
            row["told"],
        )

    def at_time(self, time: datetime) -> int:
        """Return the latest snapshot at a time; 0 if there was none."""
        return int(np.searchsorted(self.column("time"), to_microseconds(time), side="right"))

    def of_entry(self, entry: int) -> int:
        """Return the latest snapshot after an entry; 0 if there was none."""
        return int(np.searchsorted(self.column("entry"), entry, side="right"))

    def of_content(self, content: str) -> list[int]:
        """Return the snapshots with a content."""
        contents = self._fold()[1]
        return [int(row) + 1 for row in _find_content(contents, bytes.fromhex(content))]

    def to_table(self) -> pa.Table:
        """Return all columns, for a checkpoint."""
        numbers, contents = self._fold()
        columns = {name: pa.array(values) for name, values in numbers.items()}
        buffer = pa.py_buffer(contents.tobytes())
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(contents), [None, buffer])
        return pa.table({**columns, "content": fixed})

    def _read(self, table: pa.Table | None) -> Columns:
        return _read_columns(table)

    def _apply(self, columns: Columns) -> Columns:
        folding = _Folding(*columns)
        for edit in self._edits:
            folding.take(edit)
        return folding.finish()


class _Folding:
    """Columns while edits are folded in. New rows are appended at the end."""

    def __init__(self, numbers: dict[str, NDArray[Any]], contents: NDArray[np.uint64]) -> None:
        self._numbers = dict(numbers)
        for name in _CHANGING:
            self._numbers[name] = numbers[name].copy()
        self._contents = contents
        self._new: list[_Row] = []

    def take(self, edit: _Row | _Mark | _Set) -> None:
        if isinstance(edit, _Row):
            # Forks share the edit, so it must not change.
            row = _Row(dict(edit.numbers), edit.content, edit.restored)
            if row.restored:
                self._copy_marks(row)
            self._new.append(row)
        elif isinstance(edit, _Set):
            index = edit.number - 1 - len(self._contents)
            if index < 0:
                self._numbers[edit.column][edit.number - 1] = edit.value
            else:
                self._new[index].numbers[edit.column] = edit.value
        else:
            self._mark(edit)

    def finish(self) -> Columns:
        new = self._new
        for name, kind in _NUMBERS.items():
            values = np.array([row.numbers[name] for row in new], kind)
            self._numbers[name] = np.concatenate([self._numbers[name], values])
        contents = _split_digests(b"".join(row.content for row in new))
        return self._numbers, np.concatenate([self._contents, contents])

    def _copy_marks(self, row: _Row) -> None:
        """Copy the check results of the same content."""
        for other in reversed(self._new):
            if other.content == row.content:
                row.numbers.update({name: other.numbers[name] for name in _MARKS})
                return
        for same in _find_content(self._contents, row.content)[-1:]:
            row.numbers.update({name: int(self._numbers[name][same]) for name in _MARKS})

    def _mark(self, mark: _Mark) -> None:
        rows = _find_content(self._contents, mark.content)
        old = {name: self._numbers[name][rows] for name in _MARKS}
        for name, values in _apply_mark(old, mark).items():
            self._numbers[name][rows] = values
        for row in self._new:
            if row.content == mark.content:
                row.numbers.update(_apply_mark(row.numbers, mark))


def _apply_mark(old: Mapping[str, Any], mark: _Mark) -> dict[str, Any]:
    flag = 1 << mark.bit
    rest = 0xFFFFFFFF ^ flag
    if mark.passed:
        return {"passed": old["passed"] | flag, "failed": old["failed"] & rest}
    return {"passed": old["passed"] & rest, "failed": old["failed"] | flag, "told": mark.entry}


def _read_columns(table: pa.Table | None) -> Columns:
    if table is None:
        return {name: np.empty(0, kind) for name, kind in _NUMBERS.items()}, _split_digests(b"")
    numbers = {name: table[name].to_numpy() for name in _NUMBERS}
    contents = [
        _split_digests(chunk.buffers()[1])[chunk.offset :][: len(chunk)]
        for chunk in table["content"].chunks
    ]
    return numbers, np.concatenate([_split_digests(b""), *contents])


def _split_digests(data: bytes | pa.Buffer) -> NDArray[np.uint64]:
    """Split digests into rows of four numbers, which compare fast."""
    return np.frombuffer(data, np.uint64).reshape(-1, 4)


def _find_content(contents: NDArray[np.uint64], content: bytes) -> NDArray[np.int64]:
    rows: NDArray[np.int64] = np.flatnonzero((contents == _split_digests(content)).all(axis=1))
    return rows
