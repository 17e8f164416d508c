"""Inputs and outputs of the kernel, with the messages that both implementations share.

Every message in which the two kernels could differ is built here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from shardline.errors import ColumnError, ExampleError, Fault, FaultKind, InvalidArgumentError
from shardline.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    IntArray: TypeAlias = NDArray[np.int64]

Buffer: TypeAlias = bytes | bytearray | memoryview
Kind: TypeAlias = Literal["bytes", "float", "int64"]
Layout: TypeAlias = Literal["scalar", "fixed", "variable", "ragged"]

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
DEFAULT_MAX_RECORD_BYTES = 256 * 1024 * 1024
LARGEST_OFFSET = 2**31 - 1
LARGEST_MAX_RECORD_BYTES = LARGEST_OFFSET - FRAME_BYTES

KINDS: tuple[Kind, ...] = ("bytes", "float", "int64")
"""Kinds in the order of their field numbers in `tensorflow.Feature`, starting at 1."""
LAYOUTS: tuple[Layout, ...] = ("scalar", "fixed", "variable", "ragged")


@dataclass(frozen=True, slots=True)
class Scan:
    """Intact frames at the start of a buffer, and why the scan stopped.

    `starts` and `lengths` are those of the payloads. `consumed` is the offset of the first
    incomplete or corrupt frame. If the buffer ends inside a frame and more data may follow,
    `needed` is the number of bytes required from `consumed` on. Otherwise it is 0.
    """

    starts: IntArray
    lengths: IntArray
    consumed: int
    needed: int
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class Search:
    """Result of a search for an intact frame.

    If `found`, an intact frame begins at `offset`. Otherwise none begins before `offset`, and
    `needed` more bytes are required from that offset to continue (0 if no data is left).
    """

    found: bool
    offset: int
    needed: int


def frame_fault(kind: FaultKind, record: int, offset: int, length: int, bound: int) -> Fault:
    """Describe a fault: `length` is the stated record length, `bound` the value it violates."""
    framed = length + FRAME_BYTES
    details: dict[FaultKind, str] = {
        "length-crc": "the length field does not match its checksum",
        "data-crc": f"the {length} bytes of data do not match their checksum",
        "truncated": f"the record takes {framed} bytes with its frame, of which {bound} are there",
        "trailing-bytes": f"{bound} stray bytes at the end, too few for a record header",
        "oversized": f"the record states {length} bytes of data, over the limit of {bound}",
    }
    return Fault(kind, record, offset, details[kind])


class Reason(IntEnum):
    """Reason why a payload is invalid. The value is the return code of the compiled kernel."""

    VARINT = 1
    LENGTH = 2
    UNKNOWN_FIELD = 3
    FEATURES_FIELD = 4
    ENTRY = 5
    KEY_UTF8 = 6
    DUPLICATE_KEY = 7
    NO_KIND = 8
    AFTER_KIND = 9
    LIST_FIELD = 10
    LIST_CHUNKS = 11
    FLOAT_BYTES = 12
    STEP_FIELD = 13
    MIXED_KINDS = 14


_REASONS = {
    Reason.VARINT: "a varint is cut off or does not fit 64 bits",
    Reason.LENGTH: "a length does not fit the message around it",
    Reason.UNKNOWN_FIELD: "a field that neither Example nor SequenceExample has",
    Reason.FEATURES_FIELD: "something other than a map entry between the features",
    Reason.ENTRY: "a map entry that is not exactly one key followed by one value",
    Reason.KEY_UTF8: "a feature name that is not UTF-8",
    Reason.DUPLICATE_KEY: "the feature is there twice",
    Reason.NO_KIND: "the feature holds neither a bytes, a float nor an int64 list",
    Reason.AFTER_KIND: "the feature holds something after its list, such as a second list",
    Reason.LIST_FIELD: "the list holds something other than its values",
    Reason.LIST_CHUNKS: "the list's values are in several chunks, of which TensorFlow reads one",
    Reason.FLOAT_BYTES: "the packed floats are not a multiple of four bytes",
    Reason.STEP_FIELD: "the feature list holds something other than features",
    Reason.MIXED_KINDS: "the steps of the feature list are of different kinds",
}


def example_error(reason: int, record: int, offset: int, name: bytes | None) -> ExampleError:
    """Build the error for an invalid payload."""
    field = None if name is None else name.decode("utf-8", "backslashreplace")
    return ExampleError(record, offset, field, _REASONS[Reason(reason)])


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """Facts about one feature in a block of records.

    A feature that occurs with two kinds has two of these. `sequence` is true for a feature in the
    feature_lists of a SequenceExample. `steps` then counts its features per record, and `kind` is
    None if no record has a step. `lengths` counts values per list, `sizes` bytes per value. `low`
    and `high` ignore NaN.
    """

    name: str
    sequence: bool
    kind: Kind | None
    present: int
    steps: tuple[int, int] | None
    lengths: tuple[int, int] | None
    low: float | None
    high: float | None
    nans: int
    sizes: tuple[int, int] | None
    utf8: bool

    def merged(self, other: FeatureFacts) -> FeatureFacts:
        """Return the merged facts of both blocks."""
        return replace(
            self,
            present=self.present + other.present,
            steps=_wider(self.steps, other.steps),
            lengths=_wider(self.lengths, other.lengths),
            low=_pick(min, self.low, other.low),
            high=_pick(max, self.high, other.high),
            nans=self.nans + other.nans,
            sizes=_wider(self.sizes, other.sizes),
            utf8=self.utf8 and other.utf8,
        )


FactsKey: TypeAlias = tuple[bool, str, str]


def merge_facts(into: dict[FactsKey, FeatureFacts], facts: Iterable[FeatureFacts]) -> None:
    """Merge a block's facts into `into`, by feature and kind."""
    for fact in facts:
        key = (fact.sequence, fact.name, fact.kind or "")
        seen = into.get(key)
        into[key] = fact if seen is None else seen.merged(fact)


def _wider(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


def _pick(
    choose: Callable[[float, float], float], a: float | None, b: float | None
) -> float | None:
    if a is None or b is None:
        return b if a is None else a
    return choose(a, b)


@dataclass(frozen=True, slots=True)
class Column:
    """Feature as a column: name, kind and layout of its lists.

    `scalar`: one value per record. `fixed`: `size` values per record. `variable`: any number.
    `ragged`: a feature of the feature_lists, with any number of steps of any number of values.
    """

    name: str
    kind: Kind
    layout: Layout = "scalar"
    size: int = 1

    def __post_init__(self) -> None:
        """Raise InvalidArgumentError for an unknown kind or layout."""
        if self.kind not in KINDS:
            raise InvalidArgumentError(
                f"column {self.name!r}: unknown kind {self.kind!r}, expected {', '.join(KINDS)}",
                feature=self.name,
            )
        if self.layout not in LAYOUTS:
            known = ", ".join(LAYOUTS)
            raise InvalidArgumentError(
                f"column {self.name!r}: unknown layout {self.layout!r}, expected {known}",
                feature=self.name,
            )

    @property
    def sequence(self) -> bool:
        """Return True if the feature is in the feature_lists of a SequenceExample."""
        return self.layout == "ragged"

    @property
    def width(self) -> int | None:
        """Number of values in each record, or None if it varies."""
        return {"scalar": 1, "fixed": self.size}.get(self.layout)


@dataclass(frozen=True, slots=True)
class ColumnBuffers:
    """Values of a column for a block of records, in Arrow layout.

    `valid` has one byte per record, 0 if the record lacks the feature. Record i owns the lists
    (ragged: steps; otherwise: values) from `rows[i]` up to `rows[i + 1]`. `steps` splits the steps
    of ragged columns into values. `sizes` splits the `values` of bytes columns into values.
    """

    column: Column
    valid: NDArray[np.uint8]
    rows: NDArray[np.int32]
    steps: NDArray[np.int32] | None
    sizes: NDArray[np.int32] | None
    values: NDArray[np.int64] | NDArray[np.float32] | NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Insides:
    """Features of a block of records as wire bytes, without the enclosing messages.

    The context features of record i are the `lengths[0, i]` bytes of `data` from `starts[0, i]`.
    The position of its feature_lists is at `[1, i]`.
    """

    data: Buffer
    starts: IntArray
    lengths: IntArray

    @property
    def records(self) -> int:
        """Number of records."""
        return len(self.starts[0])


@dataclass(frozen=True, slots=True)
class Framed:
    """Concatenated frames, with the `starts` and `lengths` of their payloads."""

    data: bytes
    starts: IntArray
    lengths: IntArray


def wrong_kind_error(record: int, column: Column, kind: Kind) -> ColumnError:
    """Build the error for a feature whose kind differs from that of its column."""
    detail = f"holds {kind} values, not {column.kind}"
    return ColumnError(record, column.name, detail, code="kind-mismatch")


def wrong_width_error(record: int, column: Column, count: int) -> ColumnError:
    """Build the error for a feature whose number of values differs from that of its column."""
    detail = f"holds {count} values, not {column.width}"
    return ColumnError(record, column.name, detail, code="length-mismatch")


class Keyed(Protocol):
    """Column, or the feature that it becomes."""

    @property
    def name(self) -> str:
        """Name of the feature."""
        ...

    @property
    def sequence(self) -> bool:
        """Return True if the feature is in the feature_lists."""
        ...


def check_distinct(columns: Iterable[Keyed]) -> None:
    """Raise InvalidArgumentError if two columns have the same feature."""
    seen: set[tuple[bool, str]] = set()
    for column in columns:
        key = (column.sequence, column.name)
        if key in seen:
            raise InvalidArgumentError(
                f"duplicate feature {column.name!r}", code="duplicate-feature", feature=column.name
            )
        seen.add(key)


def check_offsets(count: int) -> None:
    """Raise InvalidArgumentError if `count` exceeds the 32-bit offsets of a block."""
    if count > LARGEST_OFFSET:
        raise InvalidArgumentError(
            f"too many values for one block ({count})",
            code="block-too-large",
            hint=Hint.of("read fewer records at a time"),
        )


_SHORT_ROWS = 1024 + 1
_BYTE, _OFFSET = np.dtype("u1"), np.dtype("i4")
_VALUE_DTYPES: dict[Kind, np.dtype[Any]] = {
    "bytes": _BYTE,
    "float": np.dtype("f4"),
    "int64": np.dtype("i8"),
}


def check_columns(columns: Iterable[ColumnBuffers], records: int) -> None:
    """Validate the buffers of columns. Rows that scalar columns share are checked once."""
    counting: NDArray[np.int32] | None = None
    for buffers in columns:
        check_buffers(buffers, records, counting)
        rows = buffers.rows
        is_short = len(rows) <= _SHORT_ROWS  # in long columns, values cost more than these checks
        if is_short and rows is not counting and np.array_equal(rows, np.arange(len(rows))):
            counting = rows


def check_buffers(
    buffers: ColumnBuffers, records: int, counting: NDArray[np.int32] | None = None
) -> None:
    """Check the types, offsets and widths of buffers. Raises ValueError or ColumnError.

    `counting` are rows that are known to be 0, 1, 2 and so on.
    """
    column = buffers.column
    parts = (
        ("values", buffers.values, _VALUE_DTYPES[column.kind]),
        ("sizes", buffers.sizes, _OFFSET if column.kind == "bytes" else None),
        ("steps", buffers.steps, _OFFSET if column.sequence else None),
        ("rows", buffers.rows, _OFFSET),
        ("valid", buffers.valid, _BYTE),
    )
    for part, array, dtype in parts:
        if (array is None) != (dtype is None) or (
            array is not None
            and (array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous)
        ):
            expected = "none" if dtype is None else f"one contiguous array of {dtype.str[1:]}"
            raise ValueError(f"column {column.name!r}: its {part} must be {expected}")
    inner = len(buffers.values)
    for offsets in (buffers.sizes, buffers.steps, buffers.rows):
        if offsets is None:
            continue
        if offsets is counting:
            is_sound = len(offsets) <= inner + 1
        else:
            is_sound = len(offsets) > 0 and offsets[0] >= 0 and offsets[-1] <= inner
            is_sound = is_sound and not (offsets[1:] < offsets[:-1]).any()
        if not is_sound:
            raise ValueError(f"column {buffers.column.name!r}: offsets do not fit its values")
        inner = len(offsets) - 1
    if inner < records or len(buffers.valid) < records:
        raise ValueError(f"column {buffers.column.name!r} has fewer than {records} records")
    if column.width is not None and not (column.width == 1 and buffers.rows is counting):
        counts = buffers.rows[1 : records + 1] - buffers.rows[:records]
        wrong = (counts != column.width) & (buffers.valid[:records] != 0)
        if wrong.any():
            record = int(wrong.argmax())
            raise wrong_width_error(record, column, int(counts[record]))


def check_names(names: Mapping[tuple[bool, str], str | None]) -> None:
    """Raise InvalidArgumentError if two features would get the same name."""
    seen: dict[tuple[bool, str], str] = {}
    for (sequence, name), renamed in names.items():
        if renamed is None:
            continue
        if (sequence, renamed) in seen:
            raise InvalidArgumentError(
                f"features {seen[sequence, renamed]!r} and {name!r} would both be {renamed!r}",
                code="duplicate-feature",
                feature=renamed,
            )
        seen[sequence, renamed] = name


def unknown_feature_error(record: int, name: str, *, sequence: bool) -> ColumnError:
    """Build the error for a feature that is not in the schema."""
    side = "in the feature_lists, " if sequence else ""
    return ColumnError(record, name, f"{side}not in the schema", code="unknown-feature")


def check_insides(parts: Sequence[Insides], rows: Sequence[IntArray]) -> int:
    """Check that rows and insides are within their parts. Returns the number of rows."""
    count = check_parts(parts, rows)
    for part, row in zip(parts, rows, strict=True):
        if count and (row.min() < -1 or row.max() >= part.records):
            raise ValueError(f"a row outside of the {part.records} of its part")
        size = memoryview(part.data).nbytes
        if (part.lengths < 0).any() or (part.starts < 0).any():
            raise ValueError("insides outside of the bytes of their part")
        if (part.lengths > size - part.starts).any():
            raise ValueError("insides outside of the bytes of their part")
    return count


def check_parts(parts: Sequence[Insides], rows: Sequence[IntArray]) -> int:
    """Check the types and shapes of the arrays. Returns the number of rows."""
    if not parts or len(parts) != len(rows):
        raise ValueError(f"{len(parts)} parts but rows of {len(rows)}")
    count = len(rows[0])
    for part, row in zip(parts, rows, strict=True):
        for name, array, shape in (
            ("starts", part.starts, (2, part.records)),
            ("lengths", part.lengths, (2, part.records)),
            ("rows", row, (count,)),
        ):
            if array.dtype != "i8" or array.shape != shape or not array.flags.c_contiguous:
                raise ValueError(f"the {name} of a part must be contiguous int64 of shape {shape}")
    return count


def too_large_error(record: int, size: int) -> InvalidArgumentError:
    """Build the error for a record that no frame can hold."""
    return InvalidArgumentError(
        f"record {record}: {size} bytes exceed the format's limit of {LARGEST_MAX_RECORD_BYTES}",
        code="record-too-large",
        record=record,
    )
