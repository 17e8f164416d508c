"""JSON lines: reading blocks at once gives what reading line by line gives, and lines are told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import SourceError
from shardline.schema.arrow_types import find_mismatch
from shardline.schema.schema import Array, Category, Feature, Image, Schema, Text
from shardline.sources import open_source
from shardline.sources.json_source import JsonLines, JsonLinesChunk
from shardline.tfrecord.reader import Limits
from tests.errors import raises
from tests.sampling import drawn
from tests.sources.reading import take, taken
from tests.tfrecord.samples import made

SCHEMA = Schema(
    (
        Feature("i", "int64", required=False),
        Feature("f", "float", required=False, nan=True),
        Feature("t", "bytes", required=False, meaning=Text()),
        Feature("l", "int64", (None,), required=False),
        Feature("g", "float", (2, 2), required=False),
        Feature("s", "bytes", (None,), required=False, sequence=True),
        Feature("r", "bytes", required=False, meaning=Array("uint8", (None,))),
        Feature("p", "bytes", required=False, meaning=Image("png")),
        Feature("c", "bytes", required=False, meaning=Category(("x", "y"))),
    ),
    "sequence_example",
)
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65),
    st.integers(-5, 5),
    st.floats(),
    st.sampled_from([-(2**63), 2**63, -(2**63) - 1, 2**53 + 1, 1e39, -0.0, 5e-324]),
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(), st.just("iVBORw0KGgo=")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=6,
)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1) | st.booleans(),
    "f": st.floats(width=32) | st.integers(-100, 100),
    "t": st.text(),
    "l": st.lists(st.integers(-5, 2**40), max_size=4),
    "g": st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=2), min_size=2, max_size=2),
    "s": st.lists(st.lists(st.text(max_size=3), max_size=3), max_size=3),
    "r": st.just("AAEC") | st.lists(st.integers(0, 255), max_size=3),
    "p": st.just("iVBORw0KGgo="),
    "c": st.sampled_from(["x", "y"]),
}
LINES = st.one_of(
    st.fixed_dictionaries({}, optional=FITTING).map(json.dumps),
    st.fixed_dictionaries({}, optional=FITTING).map(json.dumps),
    st.fixed_dictionaries({}, optional=dict.fromkeys(FITTING, ANYTHING)).map(json.dumps),
    st.sampled_from(
        ["", "  ", "{}", "{}{}", '{"i": 1', '{"i": -0}', '{"f": -0}', '{"f": -NaN}', '{"f": Inf}',
         '{"f": Infinity}', '{"f": NaN}', '{"f": 1e400}', '{"i": 1.0}', '{"i": 1e2}', '{"i": 01}',
         '{"t": "\\ud800"}', '{"t": "\\u0000"}', '{"i": 1, "i": 2}', '{"z": 1}', "[]", "null",
         ' {"i": 1} ', '{"i": 1}\r', "\x00", '{"t": "a\tb"}', '{"f": 9223372036854775809}',
         '{"f": -9223372036854775809}', '{"g": [1, 2, 3, 4]}', '{"l": [1, null]}', '{"i":',
         '{"r": []}', '{"f": ' + "1" * 500 + "}"]
    ),
)  # fmt: skip


def by_line(lines: JsonLines) -> tuple[bytes, list[int], list[str]]:
    """The records of lines each of which is a chunk by itself, read without Arrow."""
    data, rows, told = b"", [], []
    for number, line in enumerate(lines.data.split(b"\n")):
        if line.strip():
            chunk = JsonLinesChunk(SCHEMA, Limits(), JsonLines(line, lines.first + number, 0))
            frames = chunk.one_by_one()
            data += bytes(frames.data)
            rows += frames.rows.tolist()
            told += [str(refused) for refused in frames.refused]
    return data, rows, told


@pytest.mark.sweep
@settings(max_examples=drawn(300))
@given(st.lists(LINES, max_size=8), st.booleans())
def test_arrow_block_equals_parsed_lines(
    written: list[str],
    ended: bool,  # noqa: FBT001 - drawn, not chosen
) -> None:
    data = "\n".join(written).encode() + (b"\n" if ended and written else b"")
    lines = JsonLines(data, 7, 0)
    if not data:
        return
    frames = JsonLinesChunk(SCHEMA, Limits(), lines).frames()
    found = bytes(frames.data), frames.rows.tolist(), [str(refused) for refused in frames.refused]
    assert found == by_line(lines)


def test_blocks_that_fit_are_read_read_by_arrow() -> None:
    row = {
        "i": 1,
        "f": 1.5,
        "t": "x",
        "l": [1],
        "g": [1, 2, 3, 4],
        "s": [["x"]],
        "p": "iVBORw0KGgo=",
    }
    lines = JsonLines(json.dumps(row).encode() + b"\r\n\n" + json.dumps(row).encode(), 0, 0)
    chunk = JsonLinesChunk(SCHEMA, Limits(), lines)
    at_once = chunk._read_by_arrow()
    assert at_once is not None
    assert at_once.rows.tolist() == [0, 2]
    assert bytes(at_once.data) == by_line(lines)[0]


def test_lines_are_counted_with_the_blank_ones(tmp_path: Path) -> None:
    text = b'\n{"i": 1}\n\n  \n{"i": "x"}\n{"i": 2}'
    found = take(open_source(made(tmp_path / "a.jsonl", text)), SCHEMA)
    assert found.rows == [1, 5]
    assert found.places == [("line 5", "i")]
    assert found.refused[0].detail == find_mismatch(SCHEMA.feature("i"), pa.string())
    assert found.ends[-1] == 6


def test_a_file_of_many_blocks_is_read_in_order(tmp_path: Path) -> None:
    rows = [{"i": at, "t": "x" * (at % 3000)} for at in range(9000)]
    text = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    plain = take(open_source(made(tmp_path / "a.jsonl", text)), SCHEMA)
    packed = take(open_source(made(tmp_path / "a.json.gz", gzip.compress(text, 1))), SCHEMA)
    assert len(plain.ends) > 2
    assert plain.rows == packed.rows == list(range(9000))
    assert plain.data == packed.data == take(open_source(rows, batch="b"), SCHEMA).data
    for start in (1, plain.ends[0] - 1, plain.ends[0], 8999):
        later = take(open_source(tmp_path / "a.jsonl"), SCHEMA, start)
        assert later.payloads == plain.payloads[start:]
        assert later.rows[0] == start


def test_a_row_larger_than_a_block_is_read(tmp_path: Path) -> None:
    text = json.dumps({"t": "x" * 10_000_000}).encode() + b'\n{"i": 1}\n'
    found = take(open_source(made(tmp_path / "a.jsonl", text)), SCHEMA)
    assert found.rows == [0, 1]
    assert len(found.payloads[0]) > 10_000_000


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    text = b'{"i": 1}\n{"t": "' + b"x" * 20_000_000 + b'"}\n{"i": 2}\n'
    source = open_source(made(tmp_path / "a.jsonl", text), limits=Limits(max_record_bytes=1000))
    found = take(source, SCHEMA)
    assert found.places == [("line 2", None)]
    assert "8000" in found.refused[0].detail
    assert len(found.refused[0].content) < 50_000
    assert found.rows == [0, 2]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    found = take(open_source(made(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"i": 1}\n')), SCHEMA)
    assert found.rows == [0]


def test_a_list_in_one_piece_is_refused_with_advice(tmp_path: Path) -> None:
    source = open_source(made(tmp_path / "a.json", b'[{"i": 1}]'))
    with raises(SourceError, "unsupported-source", path=source.label):
        take(source, SCHEMA)


def test_nesting_without_end_is_refused_and_ends_no_process(tmp_path: Path) -> None:
    text = b'{"i": 1}\n{"i": ' + b"[" * 500_000 + b"\n"
    found = take(open_source(made(tmp_path / "a.jsonl", text)), SCHEMA)
    assert found.places == [("line 2", None)]
    assert "nested" in found.refused[0].detail
    schema = open_source(tmp_path / "a.jsonl").infer()
    assert schema == Schema((Feature("i", "int64"),))


def test_packed_data_that_is_damaged_is_told(tmp_path: Path) -> None:
    path = made(tmp_path / "a.jsonl.gz", gzip.compress(b'{"i": 1}\n' * 1000)[:-20])
    with raises(SourceError, "corrupt-file", path=str(path)) as caught:
        take(open_source(path), SCHEMA)
    assert caught.value.offset == path.stat().st_size


@given(st.lists(st.sampled_from(['{"i": 1}', '{"i": 2}', '{"i": 0}', ""]), max_size=9))
def test_a_schema_inferred_fits_all_rows(written: list[str]) -> None:
    with TemporaryDirectory() as folder:
        path = made(Path(folder) / "a.jsonl", "\n".join(written).encode())
        found = take(open_source(path), open_source(path).infer())
    assert found.refused == []
    assert len(found.rows) == len([line for line in written if line])


def test_chunks_can_be_turned_into_records_in_any_order(tmp_path: Path) -> None:
    text = b"".join(b'{"i": %d, "t": "%s"}\n' % (at, b"x" * 900) for at in range(9000))
    chunks = list(open_source(made(tmp_path / "a.jsonl", text)).chunks(SCHEMA))
    backwards = {chunk.end: taken([chunk]) for chunk in reversed(chunks)}
    assert [row for chunk in chunks for row in backwards[chunk.end].rows] == list(range(9000))
