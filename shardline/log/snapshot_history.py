"""A version's snapshots as columns: row i is snapshot i + 1.

`released` is when a snapshot was last let go of: as the head, as the newest published one, or by a
tag or pin. `made_from` is the snapshot that it continues, 0 for none. `rejected` is the entry that
rejected it. `passed`, `failed` and `told` are what checks said about its content: snapshots with
the same content share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

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
_MAX_EDITS = 256
_MARKS = ("passed", "failed", "told")
_CHANGING = ("released", "rejected", *_MARKS)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(time: datetime) -> int:
    """A time as a number."""
    return (time - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """One snapshot's row."""

    number: int
    entry: int
    time: datetime
    totals: Totals
    content: str
    rejected: int
    passed: int = 0
    failed: int = 0
    told: int = 0


@dataclass(slots=True)
class _Row:
    numbers: dict[str, int]
    content: bytes
    again: bool


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


class SnapshotHistory:
    """All snapshots of a version. `load` gives what a checkpoint knew, when it is needed.

    Edits are kept in a list and folded in when someone looks.
    """

    def __init__(self, load: Callable[[], pa.Table] | None = None) -> None:
        self._load = load
        self._folded: Columns | None = None
        self._edits: list[_Row | _Mark | _Set] = []

    def fork(self) -> SnapshotHistory:
        """A copy that can go its own way."""
        if len(self._edits) > _MAX_EDITS:
            self._fold()
        other = SnapshotHistory(self._load)
        other._folded, other._edits = self._folded, list(self._edits)
        return other

    def add(
        self,
        entry: int,
        time: datetime,
        totals: Totals,
        content: str,
        *,
        made_from: int,
        again: bool,
    ) -> None:
        """Add the next snapshot; `again`: its content may have been there before."""
        numbers = dict.fromkeys(_NUMBERS, 0)
        numbers.update(entry=entry, time=microseconds(time), shards=totals.shards)
        numbers.update(records=totals.records, bytes=totals.bytes, made_from=made_from)
        self._edits.append(_Row(numbers, bytes.fromhex(content), again))

    def release(self, number: int, time: datetime) -> None:
        """Note that something let go of a snapshot."""
        self._edits.append(_Set("released", number, microseconds(time)))

    def reject(self, number: int, entry: int) -> None:
        """Note that a snapshot was rejected."""
        self._edits.append(_Set("rejected", number, entry))

    def mark(self, entry: int, content: str, bit: int, *, passed: bool) -> None:
        """Note what a check said about a content."""
        self._edits.append(_Mark(entry, bytes.fromhex(content), bit, passed))

    def __len__(self) -> int:
        return len(self._fold()[0]["entry"])

    def column(self, name: str) -> NDArray[Any]:
        """One of the number columns."""
        return self._fold()[0][name]

    def contents(self) -> list[str]:
        """The content digest of each snapshot."""
        data = self._fold()[1].tobytes().hex()
        return [data[at : at + 64] for at in range(0, len(data), 64)]

    def get_row(self, number: int) -> SnapshotRow:
        """The row of a snapshot that exists."""
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

    def held_at(self, time: datetime) -> int:
        """The snapshot that was the head at a time; 0 if there was none yet."""
        return int(np.searchsorted(self.column("time"), microseconds(time), side="right"))

    def of_entry(self, entry: int) -> int:
        """The snapshot that was the head after an entry; 0 if there was none yet."""
        return int(np.searchsorted(self.column("entry"), entry, side="right"))

    def of_content(self, content: str) -> list[int]:
        """The snapshots with this content."""
        contents = self._fold()[1]
        return [int(row) + 1 for row in _equal(contents, bytes.fromhex(content))]

    def to_table(self) -> pa.Table:
        """All of it, for a checkpoint."""
        numbers, contents = self._fold()
        columns = {name: pa.array(values) for name, values in numbers.items()}
        buffer = pa.py_buffer(contents.tobytes())
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(contents), [None, buffer])
        return pa.table({**columns, "content": fixed})

    def _fold(self) -> Columns:
        if self._folded is None:
            self._folded = _columns(None if self._load is None else self._load())
        if self._edits:
            folding = _Folding(*self._folded)
            for edit in self._edits:
                folding.take(edit)
            self._folded = folding.finished()
            self._edits.clear()
        return self._folded


class _Folding:
    """Edits on their way into the columns: new rows are gathered and put behind at the end."""

    def __init__(self, numbers: dict[str, NDArray[Any]], contents: NDArray[np.uint64]) -> None:
        self._numbers = dict(numbers)
        for name in _CHANGING:
            self._numbers[name] = numbers[name].copy()
        self._contents = contents
        self._new: list[_Row] = []

    def take(self, edit: _Row | _Mark | _Set) -> None:
        if isinstance(edit, _Row):
            # A fork has the same edit in its list: what is worked in here must not show there.
            row = _Row(dict(edit.numbers), edit.content, edit.again)
            if row.again:
                self._copy_marks(row)
            self._new.append(row)
        elif isinstance(edit, _Set):
            place = edit.number - 1 - len(self._contents)
            if place < 0:
                self._numbers[edit.column][edit.number - 1] = edit.value
            else:
                self._new[place].numbers[edit.column] = edit.value
        else:
            self._mark(edit)

    def finished(self) -> Columns:
        new = self._new
        for name, kind in _NUMBERS.items():
            values = np.array([row.numbers[name] for row in new], kind)
            self._numbers[name] = np.concatenate([self._numbers[name], values])
        contents = _keys(b"".join(row.content for row in new))
        return self._numbers, np.concatenate([self._contents, contents])

    def _copy_marks(self, row: _Row) -> None:
        """What was said about a content holds when the content comes back."""
        for other in reversed(self._new):
            if other.content == row.content:
                row.numbers.update({name: other.numbers[name] for name in _MARKS})
                return
        for same in _equal(self._contents, row.content)[-1:]:
            row.numbers.update({name: int(self._numbers[name][same]) for name in _MARKS})

    def _mark(self, mark: _Mark) -> None:
        rows = _equal(self._contents, mark.content)
        old = {name: self._numbers[name][rows] for name in _MARKS}
        for name, values in _marked(old, mark).items():
            self._numbers[name][rows] = values
        for row in self._new:
            if row.content == mark.content:
                row.numbers.update(_marked(row.numbers, mark))


def _marked(old: Mapping[str, Any], mark: _Mark) -> dict[str, Any]:
    flag = 1 << mark.bit
    rest = 0xFFFFFFFF ^ flag
    if mark.passed:
        return {"passed": old["passed"] | flag, "failed": old["failed"] & rest}
    told = {"told": mark.entry}
    return {"passed": old["passed"] & rest, "failed": old["failed"] | flag, **told}


def _columns(table: pa.Table | None) -> Columns:
    if table is None:
        return {name: np.empty(0, kind) for name, kind in _NUMBERS.items()}, _keys(b"")
    numbers = {name: table[name].to_numpy() for name in _NUMBERS}
    contents = [
        _keys(chunk.buffers()[1])[chunk.offset :][: len(chunk)] for chunk in table["content"].chunks
    ]
    return numbers, np.concatenate([_keys(b""), *contents])


def _keys(data: bytes | pa.Buffer) -> NDArray[np.uint64]:
    """Digests as rows of four numbers, which compare fast."""
    return np.frombuffer(data, np.uint64).reshape(-1, 4)


def _equal(contents: NDArray[np.uint64], content: bytes) -> NDArray[np.int64]:
    rows: NDArray[np.int64] = np.flatnonzero((contents == _keys(content)).all(axis=1))
    return rows
