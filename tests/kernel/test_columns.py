"""Features into columns and columns into records, against protobuf."""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from shardline.errors import ColumnError, ExampleError, InvalidArgumentError
from shardline.kernel.columns import get_encoded_insides
from shardline.kernel.types import KINDS, Column, ColumnBuffers
from tests.errors import raises
from tests.kernel.examples import (
    FLOAT_BITS,
    FLOAT_TAG,
    NAMES,
    Writer,
    block,
    bytes_feature,
    delimited,
    entry,
    example,
    feature_list,
    feature_lists,
    float_bits,
    float_feature,
    int64_feature,
    random_count,
    random_payload,
    random_values,
    seeded,
)
from tests.kernel.frames import framed
from tests.kernel.parsers import comparable, read_by_protobuf
from tests.kernel.splices import pieces
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random
    from types import ModuleType

    from shardline.kernel.types import Kind, Layout
    from tests.kernel.examples import Values
    from tests.kernel.parsers import Content, Items

LAYOUTS: tuple[Layout, ...] = ("scalar", "fixed", "variable", "ragged")
DTYPES = {"bytes": np.uint8, "float": np.float32, "int64": np.int64}


def decoded(kernel: ModuleType, payloads: Sequence[bytes], *columns: Column) -> list[ColumnBuffers]:
    laid = block(payloads)
    buffers: list[ColumnBuffers] = kernel.decode(laid.data, laid.starts, laid.lengths, columns)
    return buffers


def exact(buffers: ColumnBuffers, first: int, last: int) -> Items:
    """Values from `first` up to `last`; floats by all of their bits."""
    if buffers.sizes is not None:
        cuts = buffers.sizes[first : last + 1].tolist()
        data = buffers.values.tobytes()
        return [data[a:b] for a, b in itertools.pairwise(cuts)]
    values = buffers.values[first:last]
    return list((values.view(np.uint32) if values.dtype == np.float32 else values).tolist())


def rows_of(buffers: ColumnBuffers) -> list[Any]:
    """Per record: None, its values, or for ragged columns the values of each step."""
    rows: list[Any] = []
    cuts = buffers.rows.tolist()
    for valid, first, last in zip(buffers.valid.tolist(), cuts, cuts[1:], strict=False):
        if not valid:
            rows.append(None)
        elif buffers.steps is None:
            rows.append(exact(buffers, first, last))
        else:
            steps = buffers.steps[first : last + 1].tolist()
            rows.append([exact(buffers, a, b) for a, b in itertools.pairwise(steps)])
    return rows


def same(one: ColumnBuffers, other: ColumnBuffers) -> bool:
    """Whether two kernels gave the same column, byte for byte."""
    parts = ("valid", "rows", "steps", "sizes", "values")
    pairs = [(getattr(one, part), getattr(other, part)) for part in parts]
    return one.column == other.column and all(
        a is b is None or (a.dtype == b.dtype and a.tobytes() == b.tobytes()) for a, b in pairs
    )


def column_of(column: Column, rows: Sequence[Any]) -> ColumnBuffers:
    """The buffers for rows as `rows_of` gives them."""
    valid = np.array([row is not None for row in rows], np.uint8)
    cuts, steps, items = [0], [0], []
    for row in rows:
        if column.sequence:
            for step in row or ():
                items += step
                steps.append(len(items))
        else:
            blank: Any = b"" if column.kind == "bytes" else 0
            items += [blank] * (column.width or 0) if row is None else row
        cuts.append(len(steps) - 1 if column.sequence else len(items))
    sizes = None
    if column.kind == "bytes":
        sizes = np.cumsum([0, *map(len, items)], dtype=np.int32)
        values: Any = np.frombuffer(b"".join(items), np.uint8)
    elif column.kind == "float":
        values = np.array(items, np.uint32).view(np.float32)
    else:
        values = np.array(items, np.int64)
    inner = np.array(steps, np.int32) if column.sequence else None
    return ColumnBuffers(column, valid, np.array(cuts, np.int32), inner, sizes, values)


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, and per column its rows."""

    columns: list[Column]
    rows: list[list[Any]]
    records: int

    def buffers(self) -> list[ColumnBuffers]:
        return [column_of(c, rows) for c, rows in zip(self.columns, self.rows, strict=True)]

    def contents(self) -> list[tuple[dict[str, Values], dict[str, list[Values]]]]:
        """The same, record by record, for a Writer."""
        made: list[tuple[dict[str, Values], dict[str, list[Values]]]] = []
        for record in range(self.records):
            context, lists = {}, {}
            for column, rows in zip(self.columns, self.rows, strict=True):
                if rows[record] is None:
                    continue
                if column.sequence:
                    lists[column.name] = [(column.kind, step) for step in rows[record]]
                else:
                    context[column.name] = column.kind, rows[record]
            made.append((context, lists))
        return made


def random_table(rng: Random, names: Sequence[str] = NAMES, *, sequence: bool) -> Table:
    records = rng.choice((1, 2, 5, 20))
    columns = []
    for name in rng.sample(names, rng.randrange(1, 6)):
        layout = rng.choice(LAYOUTS if sequence else LAYOUTS[:3])
        size = rng.randrange(4) if layout == "fixed" else 1
        columns.append(Column(name, rng.choice(KINDS), layout, size))

    def row(column: Column) -> Any:  # noqa: ANN401 - a row as `rows_of` gives it
        if rng.random() < 0.2:
            return None
        if column.sequence:
            counts = [random_count(rng) for _ in range(rng.randrange(4))]
            return [random_values(rng, column.kind, count)[1] for count in counts]
        count = random_count(rng) if column.width is None else column.width
        return random_values(rng, column.kind, count)[1]

    return Table(columns, [[row(c) for _ in range(records)] for c in columns], records)


def quiet(items: Items) -> Items:
    """Python's protobuf turns signalling NaNs into quiet ones; so do we, to compare."""
    bits = np.array(items, np.uint32)
    return comparable(bits.view(np.float32))


def by_protobuf(content: tuple[dict[str, Values], dict[str, list[Values]]]) -> Any:  # noqa: ANN401
    """The record as a protobuf message."""

    def fill(feature: Any, values: Values) -> None:  # noqa: ANN401 - a protobuf message
        kind, items = values
        target = getattr(feature, f"{kind}_list")
        target.SetInParent()
        if kind == "float":
            numbers = [struct.unpack("<f", struct.pack("<I", b))[0] for b in quiet(items)]
            target.value.extend(numbers)
        else:
            target.value.extend(items)

    context, lists = content
    message = tf.train.SequenceExample()
    for name, values in context.items():
        fill(message.context.feature[name], values)
    for name, steps in lists.items():
        message.feature_lists.feature_list[name].SetInParent()
        for values in steps:
            fill(message.feature_lists.feature_list[name].feature.add(), values)
    return message


@pytest.mark.parametrize("seed", range(40))
def test_decoded_columns_hold_what_was_written(kernel: ModuleType, seed: int) -> None:
    rng = seeded(seed)
    table = random_table(rng, sequence=seed % 2 == 1)
    writer = Writer(rng)
    payloads = [writer.message(*content) for content in table.contents()]
    buffers = decoded(kernel, payloads, *table.columns)
    assert [rows_of(column) for column in buffers] == table.rows
    for column, made in zip(table.columns, buffers, strict=True):
        assert made.column == column
        assert made.values.dtype == DTYPES[column.kind]
        assert same(made, column_of(column, table.rows[table.columns.index(column)]))


@pytest.mark.parametrize("seed", range(20))
def test_decoded_columns_hold_what_protobuf_reads(kernel: ModuleType, seed: int) -> None:
    rng = seeded(seed)
    payloads = [random_payload(rng, sequence=True) for _ in range(20)]
    contents = [read_by_protobuf(payload) for payload in payloads]

    def kinds(content: Content) -> set[tuple[bool, str, Kind]]:
        found = {(False, name, kind) for name, (kind, _) in content.context.items()}
        return found | {(True, name, s[0][0]) for name, s in content.lists.items() if s}

    for sequence, name, kind in sorted(set().union(*map(kinds, contents))):
        fitting = [
            at
            for at, content in enumerate(contents)
            if not {(sequence, name, other) for other in KINDS if other != kind} & kinds(content)
        ]
        column = Column(name, kind, "ragged" if sequence else "variable")
        (buffers,) = decoded(kernel, [payloads[at] for at in fitting], column)
        for at, row in zip(fitting, rows_of(buffers), strict=True):
            if sequence:
                steps = contents[at].lists.get(name)
                want: Any = steps and [items for _, items in steps]
                got = row and [quiet(step) if kind == "float" else step for step in row]
            else:
                feature = contents[at].context.get(name)
                want = feature and feature[1]
                got = quiet(row) if kind == "float" and row else row
            assert got == want


@pytest.mark.parametrize("seed", range(40))
def test_encoded_records_are_protobufs_own_bytes(kernel: ModuleType, seed: int) -> None:
    """Where no name begins another: Python's protobuf (upb) puts the longer one first there."""
    rng = seeded(seed)
    names = [name for name in NAMES if name not in {"", "image"}]
    table = random_table(rng, names, sequence=seed % 2 == 1)
    rows = [
        [row and [quiet(s) for s in row] if c.sequence else row and quiet(row) for row in rows]
        if c.kind == "float"
        else rows
        for c, rows in zip(table.columns, table.rows, strict=True)
    ]
    table = replace(table, rows=rows)
    messages = [by_protobuf(content) for content in table.contents()]
    buffers = table.buffers()
    rng.shuffle(buffers)
    want = framed(*(message.SerializeToString(deterministic=True) for message in messages))
    assert kernel.encode(buffers, table.records).data == want


@pytest.mark.parametrize("seed", range(40))
def test_encoding_and_decoding_is_a_round_trip(
    reference: ModuleType, compiled: ModuleType, seed: int
) -> None:
    table = random_table(seeded(1000 + seed), sequence=seed % 2 == 1)
    made, again = (
        kernel.encode(table.buffers(), table.records) for kernel in (reference, compiled)
    )
    file = made.data
    assert again.data == file
    scan = compiled.scan(file)
    assert (len(scan.starts), scan.fault) == (table.records, None)
    for one in (made, again):
        assert (one.starts.tolist(), one.lengths.tolist()) == (
            scan.starts.tolist(),
            scan.lengths.tolist(),
        )
    decodings = [
        kernel.decode(file, scan.starts, scan.lengths, table.columns)
        for kernel in (reference, compiled)
    ]
    for one, other, given in zip(*decodings, table.buffers(), strict=True):
        assert same(one, other)
        assert same(one, given)


def test_every_nan_keeps_its_bits(kernel: ModuleType) -> None:
    payload = example(
        entry("p", delimited(FLOAT_TAG, float_bits(*FLOAT_BITS))),
        entry("u", delimited(FLOAT_TAG, float_bits(*FLOAT_BITS, packed=False))),
    )
    columns = [Column("p", "float", "variable"), Column("u", "float", "fixed", len(FLOAT_BITS))]
    buffers = decoded(kernel, [payload], *columns)
    assert [rows_of(column) for column in buffers] == [[list(FLOAT_BITS)]] * 2
    file = kernel.encode(buffers, 1).data
    assert file.count(struct.pack(f"<{len(FLOAT_BITS)}I", *FLOAT_BITS)) == 2


def test_missing_feature_is_null_in_every_layout(kernel: ModuleType) -> None:
    for kind, feature in (
        ("int64", int64_feature(5)),
        ("float", float_feature(5)),
        ("bytes", bytes_feature(b"5")),
    ):
        payloads = [b"", example(entry("a", feature)), example(entry("b", feature))]
        for layout in ("scalar", "fixed", "variable"):
            (buffers,) = decoded(kernel, payloads, Column("a", kind, layout))  # type: ignore[arg-type]
            assert buffers.valid.tolist() == [0, 1, 0]
            assert buffers.rows.tolist() == ([0, 0, 1, 1] if layout == "variable" else [0, 1, 2, 3])
        listed = [b"", feature_lists(entry("a", feature_list(feature, feature)))]
        (buffers,) = decoded(kernel, listed, Column("a", kind, "ragged"))  # type: ignore[arg-type]
        assert (buffers.valid.tolist(), buffers.rows.tolist()) == ([0, 1], [0, 0, 2])


def test_what_fills_a_null_is_zero_or_empty(kernel: ModuleType) -> None:
    columns = [Column(kind, kind, "fixed", 3) for kind in KINDS]
    made = decoded(kernel, [b"", b""], *columns)
    assert [exact(buffers, 0, 6) for buffers in made] == [[b""] * 6, [0] * 6, [0] * 6]


def test_present_but_empty_is_not_null(kernel: ModuleType) -> None:
    payload = example(entry("a", int64_feature())) + feature_lists(entry("s", b""))
    columns = [Column("a", "int64", "variable"), Column("s", "bytes", "ragged")]
    assert [rows_of(b) for b in decoded(kernel, [payload, b""], *columns)] == [[[], None]] * 2


def test_layout_selects_context_or_lists(kernel: ModuleType) -> None:
    payload = example(entry("a", int64_feature(1))) + feature_lists(
        entry("a", feature_list(bytes_feature(b"x")))
    )
    columns = [Column("a", "int64"), Column("a", "bytes", "ragged")]
    assert [rows_of(b) for b in decoded(kernel, [payload], *columns)] == [[[1]], [[[b"x"]]]]


def test_decoding_nothing_gives_empty_columns(kernel: ModuleType) -> None:
    assert decoded(kernel, [b"", b""]) == []
    for kind in KINDS:
        columns = [Column("a", kind), Column("b", kind, "variable"), Column("c", kind, "ragged")]
        for buffers in decoded(kernel, [], *columns):
            assert (rows_of(buffers), buffers.rows.tolist(), len(buffers.values)) == ([], [0], 0)


@pytest.mark.parametrize(
    ("payload", "column", "detail"),
    [
        (example(entry("a", bytes_feature(b"x"))), Column("a", "int64"), "bytes values, not int64"),
        (
            example(entry("a", int64_feature())),
            Column("a", "float", "variable"),
            "int64 values, not float",
        ),
        (
            feature_lists(entry("a", feature_list(float_feature(1)))),
            Column("a", "bytes", "ragged"),
            "float values, not bytes",
        ),
        (example(entry("a", int64_feature(1, 2))), Column("a", "int64"), "2 values, not 1"),
        (example(entry("a", int64_feature())), Column("a", "int64"), "0 values, not 1"),
        (
            example(entry("a", bytes_feature(b"x"))),
            Column("a", "bytes", "fixed", 3),
            "1 values, not 3",
        ),
        (
            example(entry("a", float_feature(1))),
            Column("a", "float", "fixed", 0),
            "1 values, not 0",
        ),
    ],
)
def test_a_feature_that_does_not_fit_its_column_is_refused_by_name(
    kernel: ModuleType, payload: bytes, column: Column, detail: str
) -> None:
    other = Column("z", "int64")
    with pytest.raises(ColumnError) as raised:
        decoded(kernel, [b"", b"", payload], other, column)
    assert (raised.value.record, raised.value.feature) == (2, "a")
    assert raised.value.detail == f"holds {detail}"
    lengths = detail[0].isdigit()
    assert raised.value.code == ("length-mismatch" if lengths else "kind-mismatch")


def test_the_first_of_several_misfits_is_told(kernel: ModuleType) -> None:
    payloads = [
        example(entry("a", int64_feature(1)), entry("b", int64_feature(1))),
        example(entry("a", int64_feature(1, 2)), entry("b", bytes_feature(b""))),
    ]
    for columns in (["a", "b"], ["b", "a"]):
        with pytest.raises(ColumnError) as raised:
            decoded(kernel, payloads, *(Column(name, "int64") for name in columns))
        assert (raised.value.record, raised.value.feature) == (1, columns[0])


def test_invalid_example_precedes_mismatch(kernel: ModuleType) -> None:
    payload = example(entry("a", bytes_feature(b"x"))) + b"\xff"
    with pytest.raises(ExampleError):
        decoded(kernel, [payload], Column("a", "int64"))


def test_the_same_feature_twice_is_refused(kernel: ModuleType) -> None:
    column = Column("a", "int64")
    with raises(InvalidArgumentError, "duplicate-feature", feature="a"):
        decoded(kernel, [b""], column, Column("a", "bytes"))
    with raises(InvalidArgumentError, "duplicate-feature", feature="a"):
        kernel.encode([column_of(column, [[1]]), column_of(column, [[1]])], 1)


@pytest.mark.parametrize(("starts", "lengths"), [([0], [5]), ([-1], [0]), ([5], [0]), ([0], [])])
def test_spans_outside_the_buffer_are_refused(
    kernel: ModuleType, starts: list[int], lengths: list[int]
) -> None:
    spans = np.array(starts, np.int64), np.array(lengths, np.int64)
    with pytest.raises(ValueError, match=r"the buffer|0 lengths"):
        kernel.decode(b"\0\0\0\0", *spans, [Column("a", "int64")])


def test_a_record_with_nothing_is_written_with_nothing(kernel: ModuleType) -> None:
    column = column_of(Column("a", "int64"), [None, [1], None])
    one = example(entry("a", int64_feature(1)))
    assert kernel.encode([column], 3).data == framed(b"", one, b"")
    assert kernel.encode([], 2).data == framed(b"", b"")
    assert kernel.encode([column], 0).data == kernel.encode([], 0).data == b""


@pytest.mark.sweep
@pytest.mark.parametrize("around", [0, 120, 127, 16376, 16383, 2097144, 2097151])
def test_the_length_of_an_encoded_record_tells_where_its_features_begin(
    kernel: ModuleType, around: int
) -> None:
    column = Column("a", "bytes")
    sizes = range(max(0, around - 20), around + 8)
    few = 3 if kernel.NAME == "reference" and around > 2**20 else len(sizes)
    values = [None, [b"x"], *([b"x" * size] for size in sampled(sizes, few, f"{around}"))]
    made = kernel.encode([column_of(column, values)], len(values))
    found = (made.data, made.starts, made.lengths)
    assert pieces(get_encoded_insides(*found)) == pieces(
        kernel.insides(*found, {(False, "a"): "a"})
    )


def test_names_are_ordered_by_their_bytes_and_kept_apart_by_place(kernel: ModuleType) -> None:
    names = ["b", "a", "", "é", "\uffff", "\U0001f600"]
    columns = [column_of(Column(name, "int64"), [[1]]) for name in names]
    columns.append(column_of(Column("a", "int64", "ragged"), [[[2]]]))
    want = example(*(entry(name, int64_feature(1)) for name in sorted(names, key=str.encode)))
    want += feature_lists(entry("a", feature_list(int64_feature(2))))
    assert kernel.encode(columns, 1).data == framed(want)


def test_fewer_records_than_a_column_has_may_be_written(kernel: ModuleType) -> None:
    column = column_of(Column("a", "bytes"), [[b"x"], [b"y"], [b"z"]])
    assert kernel.encode([column], 2).data == framed(
        example(entry("a", bytes_feature(b"x"))), example(entry("a", bytes_feature(b"y")))
    )


def test_offsets_may_begin_anywhere(kernel: ModuleType) -> None:
    """As they do in a slice of an Arrow array."""
    whole = column_of(Column("a", "bytes", "variable"), [[b"x"], [b"y", b"zz"], []])
    part = replace(whole, rows=whole.rows[1:].copy(), valid=whole.valid[1:].copy())
    want = framed(
        example(entry("a", bytes_feature(b"y", b"zz"))), example(entry("a", bytes_feature()))
    )
    assert kernel.encode([part], 2).data == want


INTS = column_of(Column("a", "int64"), [[1], [2]])
TEXT = column_of(Column("a", "bytes", "variable"), [[b"x", b"yy"], []])
STEPS = column_of(Column("a", "float", "ragged"), [[[1], [2, 3]], []])


def i32(*values: int) -> Any:  # noqa: ANN401 - an array, of the right type or not
    return np.array(values, np.int32)


BROKEN: dict[str, ColumnBuffers] = {
    "rows past the values": replace(INTS, rows=i32(0, 1, 3)),
    "rows before the values": replace(INTS, rows=i32(-1, 1, 2)),
    "rows that go back": replace(INTS, rows=i32(0, 2, 1)),
    "rows that go far back": replace(INTS, rows=i32(0, -(2**31), 2)),
    "no rows": replace(INTS, rows=i32()),
    "too few rows": replace(INTS, rows=i32(0, 1)),
    "too few valid": replace(INTS, valid=INTS.valid[:1]),
    "sizes past the bytes": replace(TEXT, sizes=i32(0, 1, 4)),
    "sizes that go back": replace(TEXT, sizes=i32(0, 3, 1)),
    "negative sizes": replace(TEXT, sizes=i32(-2, 1, 3)),
    "no sizes at all": replace(TEXT, sizes=i32()),
    "rows past the sizes": replace(TEXT, rows=i32(0, 2, 3)),
    "steps past the values": replace(STEPS, steps=i32(0, 1, 4)),
    "steps that go back": replace(STEPS, steps=i32(0, 2, 1)),
    "rows past the steps": replace(STEPS, rows=i32(0, 2, 3)),
    "bytes without sizes": replace(TEXT, sizes=None),
    "numbers with sizes": replace(INTS, sizes=i32(0, 1, 2)),
    "ragged without steps": replace(STEPS, steps=None),
    "steps without ragged": replace(INTS, steps=i32(0, 1, 2)),
    "values of half the width": replace(INTS, values=np.array([1, 2], np.int32)),  # type: ignore[arg-type]
    "values of another kind": replace(INTS, values=np.array([1, 2], np.float32)),
    "wide floats": replace(STEPS, values=np.array([1, 2, 3], np.float64)),  # type: ignore[arg-type]
    "numbers as bytes": replace(TEXT, values=np.array([1, 2, 3], np.int64)),
    "values in another byte order": replace(INTS, values=np.array([1, 2], ">i8")),
    "values in two dimensions": replace(INTS, values=np.ones((2, 1), np.int64)),
    "wide rows": replace(INTS, rows=np.array([0, 1, 2], np.int64)),
    "valid as booleans": replace(INTS, valid=np.array([True, True])),
    "rows with gaps": replace(INTS, rows=i32(0, 9, 1, 9, 2)[::2]),
    "another layout": replace(INTS, column=Column("a", "int64", "ragged")),
    "another kind": replace(INTS, column=Column("a", "bytes")),
    "a narrower kind": replace(STEPS, column=Column("a", "int64", "ragged")),
}  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_buffers_that_do_not_fit_each_other_are_refused(
    kernel: ModuleType, broken: ColumnBuffers
) -> None:
    with pytest.raises(ValueError, match="column 'a'"):
        kernel.encode([broken], 2)


def test_both_kernels_refuse_buffers_with_the_same_words(
    reference: ModuleType, compiled: ModuleType
) -> None:
    for broken in BROKEN.values():
        words = []
        for kernel in (reference, compiled):
            with pytest.raises(ValueError, match="column 'a'") as raised:
                kernel.encode([broken], 2)
            words.append(str(raised.value))
        assert words[0] == words[1]


def test_tensorflow_reads_what_we_encode(kernel: ModuleType) -> None:
    columns = [
        column_of(Column("label", "int64"), [[7], [8]]),
        column_of(Column("image", "bytes"), [[b"\x89PNG"], [b"GIF"]]),
        column_of(Column("box", "float", "fixed", 2), [[0x3F800000, 0], [0, 0xC0000000]]),
    ]
    file = kernel.encode(columns, 2).data
    scan = kernel.scan(file)
    payloads = [file[s : s + n] for s, n in zip(scan.starts, scan.lengths, strict=True)]
    spec = {
        "label": tf.io.FixedLenFeature([], tf.int64),
        "image": tf.io.FixedLenFeature([], tf.string),
        "box": tf.io.FixedLenFeature([2], tf.float32),
    }
    parsed = tf.io.parse_example(payloads, spec)
    assert parsed["label"].numpy().tolist() == [7, 8]
    assert parsed["image"].numpy().tolist() == [b"\x89PNG", b"GIF"]
    assert parsed["box"].numpy().tolist() == [[1.0, 0.0], [0.0, -2.0]]


def test_columns_that_share_rows_are_each_checked(kernel: ModuleType) -> None:
    shared = np.arange(4, dtype=np.int32)
    valid = np.ones(3, np.uint8)
    sound = ColumnBuffers(
        Column("a", "int64"), valid, shared, None, None, np.arange(3, dtype=np.int64)
    )
    short = replace(sound, column=Column("b", "int64"), values=np.arange(2, dtype=np.int64))
    few = replace(sound, column=Column("c", "int64"), valid=valid[:2])
    kernel.encode([sound, replace(sound, column=Column("d", "int64"))], 3)
    for column in (short, few):
        with pytest.raises(ValueError, match=f"column '{column.column.name}'"):
            kernel.encode([sound, column], 3)
