"""CSV: cells of text, quotes, lines, and numbers that are none."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import SchemaMismatchError, SourceError
from shardline.schema.schema import Feature, Schema, Text
from shardline.sources import open_source
from shardline.sources.csv_cells import NOT_A_NUMBER
from shardline.sources.csv_source import find_row_ends, parse_cells
from shardline.tfrecord.reader import Limits
from tests.errors import raises
from tests.sampling import drawn
from tests.sources.reading import changes_in, read_back, take
from tests.tfrecord.samples import made

SCHEMA = Schema(
    (
        Feature("n", "int64", required=False),
        Feature("f", "float", required=False, nan=True),
        Feature("t", "bytes", meaning=Text()),
    )
)


def test_empty_cells_are_missing_numbers_and_empty_texts(tmp_path: Path) -> None:
    path = made(tmp_path / "a.csv", b'n,f,t\n1,1.5,x\n,,\n 2 , 3," "\n')
    found = take(open_source(path), SCHEMA)
    assert found.refused == []
    assert read_back(tmp_path, SCHEMA, found.data) == {
        "n": [[1], None, [2]],
        "f": [[1.5], None, [3.0]],
        "t": [[b"x"], [b""], [b" "]],
    }


def test_rows_are_told_by_the_line_they_begin_in(tmp_path: Path) -> None:
    text = b'n,f,t\n1,,"a\nb\nc"\n\nx,,d\n2,,"e\n'
    found = take(open_source(made(tmp_path / "a.csv", text)), SCHEMA)
    assert found.places == [("line 6", "n"), ("line 7", None)]
    assert found.refused[0].detail == NOT_A_NUMBER
    assert "quoted" in found.refused[1].detail
    assert [refused.row for refused in found.refused] == [2, 3]
    assert found.rows == [0]


TEXTS = st.text(st.sampled_from("ab,\" \n'x"), max_size=6)


@pytest.mark.sweep
@settings(max_examples=drawn(200))
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_what_python_writes_is_read_back(rows: list[tuple[str, str]], end: str) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end)
    writer.writerows([("a", "b"), *rows])
    schema = Schema((Feature("a", "bytes"), Feature("b", "bytes")))
    with TemporaryDirectory() as folder:
        path = made(Path(folder) / "a.csv", out.getvalue().encode())
        found = take(open_source(path), schema)
        wanted = take(open_source([{"a": a, "b": b} for a, b in rows], batch="b"), schema)
    assert found.refused == []
    assert found.data == wanted.data


@pytest.mark.sweep
@settings(max_examples=drawn(300))
@given(st.text(st.sampled_from('a,"\n'), max_size=14))
def test_rows_end_where_a_reader_that_goes_sign_by_sign_ends_them(text: str) -> None:
    ends, quoted, start, at = [], False, True, 0
    while at < len(text):
        sign = text[at]
        if quoted:
            if text[at : at + 2] == '""':
                at += 1
            elif sign == '"':
                quoted = False
        elif sign == '"' and start:
            quoted = True
        elif sign == "\n":
            ends.append(at + 1)
        start = not quoted and sign in ",\n"
        at += 1
    assert find_row_ends(text.encode()).tolist() == ends


def test_quotes_inside_of_cells_are_signs_like_others(tmp_path: Path) -> None:
    text = b't,n\n5" pipe,1\n"6"" pipe",2\n7" pipe,3\n'
    found = take(open_source(made(tmp_path / "a.csv", text)), SCHEMA)
    assert read_back(tmp_path, SCHEMA, found.data)["t"] == [
        [b'5" pipe'],
        [b'6" pipe'],
        [b'7" pipe'],
    ]
    assert parse_cells('a"b,"c""d",') == ['a"b', 'c"d', ""]


@pytest.mark.parametrize("more", [b"", b'"two\nlines",4\n'])
def test_byte_order_mark_after_header_is_text(tmp_path: Path, more: bytes) -> None:
    text = "\ufefft,n\n\ufeffone,1\n\ufefftwo,2\n".encode() + more
    found = take(open_source(made(tmp_path / "a.csv", text)), SCHEMA)
    values = read_back(tmp_path, SCHEMA, found.data)["t"]
    assert values[:2] == [["\ufeffone".encode()], ["\ufefftwo".encode()]]


def test_good_rows_are_the_same_beside_a_bad_one(tmp_path: Path) -> None:
    rows = b"".join(b'%d,%d.5,"te""xt %d"\n' % (at, at, at) for at in range(500))
    good = take(open_source(made(tmp_path / "a.csv", b"n,f,t\n" + rows)), SCHEMA)
    bad = take(open_source(made(tmp_path / "b.csv", b"n,f,t\n" + rows + b"1,2\n")), SCHEMA)
    assert len(bad.refused) == 1
    assert bad.data == good.data


def test_a_file_of_many_blocks_is_read_in_order(tmp_path: Path) -> None:
    rows = b"".join(b'%d,,"%s\n"\n' % (at, b"x" * 2000) for at in range(5000))
    source = open_source(made(tmp_path / "a.csv", b"n,f,t\n" + rows))
    whole = take(source, SCHEMA)
    assert len(whole.ends) > 2
    assert whole.rows == list(range(5000))
    start = whole.ends[0] + 3
    assert take(source, SCHEMA, start).payloads == whole.payloads[start:]


def test_a_header_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    source = open_source(made(tmp_path / "a.csv", b"t,t\n1,2\n"))
    with raises(SourceError, "duplicate-column", feature="t", path=source.label):
        take(source, SCHEMA)


def test_a_header_of_other_names_is_another_schema(tmp_path: Path) -> None:
    source = open_source(made(tmp_path / "a.csv", b"n,x\n1,2\n"))
    path = str(tmp_path / "a.csv")
    with raises(SchemaMismatchError, "schema-mismatch", path=path, feature=None) as caught:
        take(source, SCHEMA)
    removed = str(SCHEMA.feature("t"))
    assert changes_in(caught.value) == [
        ("x", "unfit", "", "not in the schema"),
        ("t", "removed", removed, ""),
    ]


def test_a_quote_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    text = b't\na\n"' + b"x" * 20_000_000 + b"\nb\n"
    limits = Limits(max_record_bytes=1000)
    found = take(open_source(made(tmp_path / "a.csv", text), limits=limits), SCHEMA)
    assert found.places == [("line 3", None)]
    assert "8000" in found.refused[0].detail
    assert found.rows == [0, 2]


@pytest.mark.parametrize(
    ("column", "feature"),
    [
        (["1", "2"], Feature("a", "int64")),
        (["1", ""], Feature("a", "int64", required=False)),
        (["1", "2.5"], Feature("a", "float")),
        (["1", "nan"], Feature("a", "float", nan=True)),
        (["1", "x"], Feature("a", "bytes", meaning=Text())),
        (["", "x"], Feature("a", "bytes", meaning=Text())),
        (["1", "9223372036854775808"], Feature("a", "bytes", meaning=Text())),
        (["2020-01-01", "2020-01-02"], Feature("a", "bytes", meaning=Text())),
    ],
)
def test_column_kind_is_narrowest(tmp_path: Path, column: list[str], feature: Feature) -> None:
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in column)
    source = open_source(made(tmp_path / "a.csv", text.encode()))
    schema = source.infer()
    assert schema.feature("a") == feature
    assert take(source, schema).refused == []


def test_a_column_without_any_value_must_be_declared(tmp_path: Path) -> None:
    source = open_source(made(tmp_path / "a.csv", b"a,b\n,1\n,2\n"))
    with raises(SchemaMismatchError, "unknown-kind", feature="a", path=source.label):
        source.infer()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("a,b\n1,größe\n2,weiß\n".encode("latin-1"), ("line 2", "offset 8", "Latin-1")),
        (b'a,b\n1,"open\n2,y\n', ("line 2", "opened in line 2")),
        (b"a,b\n1,x,y\n", ("line 2", "3 cells")),
    ],
)
def test_column_whose_rows_are_no_csv_names_the_cause(
    tmp_path: Path, data: bytes, words: tuple[str, ...]
) -> None:
    source = open_source(made(tmp_path / "a.csv", data))
    with raises(SchemaMismatchError, "unknown-kind", feature="a", path=source.label) as caught:
        source.infer()
    assert all(word in caught.value.message for word in words)


@pytest.mark.parametrize(
    ("data", "where", "words"),
    [
        ("a,b\n1,x\n2,größe\n".encode("latin-1"), "line 3", ("offset 12", "Latin-1")),
        ("a,b\n1,x\n2,5 €\n".encode("cp1252"), "line 3", ("offset 12", "Windows-1252")),
        (b'a,b\n1,x\n2,"open\n3,y\n', "line 3", ("opened in line 3",)),
        (b'a,b\n1,"x\nx",y\n2,"x\ny","open\n3,y\n', "line 4", ("opened in line 5",)),
    ],
)
def test_rows_that_are_no_csv_name_the_cause(
    tmp_path: Path, data: bytes, where: str, words: tuple[str, ...]
) -> None:
    schema = Schema((Feature("a", "int64"), Feature("b", "bytes", meaning=Text())))
    refused = take(open_source(made(tmp_path / "a.csv", data)), schema).refused[-1]
    assert refused.where == where
    assert all(word in refused.detail for word in words)


@pytest.mark.parametrize(
    ("data", "offset", "word"),
    [
        ("größe,b\n1,2\n".encode("latin-1"), 2, "Latin-1"),
        ("a,b\n1,2\n".encode("utf-16"), 0, "UTF-16"),
        (b'a,"b\n1,2\n', None, "line 1"),
    ],
)
def test_headers_that_are_no_csv_name_the_cause(
    tmp_path: Path, data: bytes, offset: int | None, word: str
) -> None:
    path = made(tmp_path / "a.csv", data)
    with raises(SourceError, "invalid-header", path=str(path), offset=offset) as caught:
        open_source(path).infer()
    assert word in caught.value.message
    assert caught.value.hint
