"""Tables joined by a key: in every form, by every rule, and with all that can be wrong."""

from __future__ import annotations

import gzip
import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardline import canonical_json as canonical
from shardline.errors import SchemaMismatchError, ShardlineError, SourceError, UDFError
from shardline.hints import Option
from shardline.schema.schema import Array, Category, Feature, Image, Schema, Text
from shardline.storage import open_store
from shardline.tfrecord.input_file import StoredFile
from shardline.udf import table_join
from tests.errors import raises
from tests.udf.batches import batch_of, values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from shardline.udf import UDFResult

LABEL = Feature("label", "int64", required=False)
WORD = Feature("word", "bytes", required=False, meaning=Text())
SCHEMA = Schema((LABEL, WORD, Feature("ratio", "float"), Feature("grid", "int64", (2,))))
NAME = Feature("name", "bytes", meaning=Text())
SIZE = Feature("size", "float")
ROWS = {"label": [3, 1, 2], "name": ["drei", "größe", ""], "size": [0.5, 1.5, 2.0]}
CSV = 'label,name,size\n3,drei,0.5\n1,"größe",1.5\n\n2,,2\n'


def made_by(fields: Any, keys: Sequence[Any], *, every: bool = True) -> UDFResult:  # noqa: ANN401 - of any kind
    """What a table gives for records with these labels, or words."""
    (feature,) = fields.bind(SCHEMA).reads
    batch = batch_of([feature], **{feature.name: keys})
    made: UDFResult = fields.bind(SCHEMA).compute(batch, every=every)
    return made


def as_csv(folder: Path) -> Path:
    path = folder / "labels.csv"
    path.write_text(CSV)
    return path


def as_packed_csv(folder: Path) -> Path:
    path = folder / "labels.csv.gz"
    path.write_bytes(gzip.compress(CSV.encode()))
    return path


def as_json_lines(folder: Path) -> str:
    path = folder / "labels.jsonl"
    path.write_text(
        '{"label": 3, "name": "drei", "size": 0.5}\n{"label": 1, "name": "größe", "size": 1.5}\n'
        '\n{"size": 2, "name": "", "label": 2}\n'
    )
    return str(path)


def as_parquet(folder: Path) -> Path:
    path = folder / "labels.parquet"
    pq.write_table(pa.table(ROWS), path, row_group_size=2)
    return path


def as_feather(folder: Path) -> Path:
    path = folder / "labels.arrow"
    pa.feather.write_feather(pa.table(ROWS), path)
    return path


def as_arrow_stream(folder: Path) -> Path:
    path = folder / "labels.ipc"
    with pa.ipc.new_stream(path, pa.table(ROWS).schema) as writer:
        writer.write_table(pa.table(ROWS), max_chunksize=2)
    return path


def as_stored_file(folder: Path) -> StoredFile:
    as_csv(folder)
    return StoredFile(open_store(folder), "labels.csv")


FORMS: list[Callable[[Path], Any]] = [
    as_csv,
    as_packed_csv,
    as_json_lines,
    as_parquet,
    as_feather,
    as_arrow_stream,
    as_stored_file,
    lambda folder: as_csv(folder).as_uri(),
    lambda _: pa.table(ROWS),
    lambda _: pa.concat_tables([pa.table(ROWS)[:2], pa.table(ROWS)[2:]]),
    lambda _: pa.RecordBatch.from_pydict(ROWS),
    lambda _: pd.DataFrame(ROWS),
    lambda _: pd.DataFrame({**ROWS, "name": pd.Series(ROWS["name"], dtype=object)}),
]


@pytest.mark.parametrize("form", FORMS)
def test_each_record_gets_the_fields_of_the_row_with_its_key(
    tmp_path: Path, form: Callable[[Path], Any]
) -> None:
    fields = table_join(form(tmp_path), "label")
    assert set(fields.features) == {NAME, SIZE}
    assert fields.reads == ("label",)
    made = made_by(fields, [1, 2, 3, 1])
    assert values(made, "name") == ["größe".encode(), b"", b"drei", "größe".encode()]
    assert values(made, "size") == [1.5, 2.0, 0.5, 1.5]
    assert (made.reasons, made.error) == ({}, None)


class Frame:
    """A frame of another library, which speaks Arrow."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table(ROWS).__arrow_c_stream__(requested_schema)


def test_frames_of_libraries_that_speak_arrow_are_tables() -> None:
    assert values(made_by(table_join(Frame(), "label"), [3]), "size") == [0.5]


def test_columns_can_be_chosen_by_name_and_declared() -> None:
    table = pa.table({**ROWS, "label": [3, 1, 2], "when": pa.array([1, 2, 3], pa.timestamp("s"))})
    size = Feature("size", "float", nan=True, doc="in metres")
    fields = table_join(table, "label", features=["name", size])
    assert fields.features == (NAME, size)
    assert values(made_by(fields, [2]), "size") == [2.0]
    with raises(SchemaMismatchError, "unsupported-type", feature="when"):
        _ = table_join(table, "label").features


def test_columns_of_text_that_are_not_wanted_need_no_kind(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("label,name,empty\n1,eins,\n")
    fields = table_join(path, "label", features=["name"])
    assert values(made_by(fields, [1]), "name") == [b"eins"]
    with raises(SchemaMismatchError, "unknown-kind", feature="empty", path=str(path)):
        _ = table_join(path, "label").features


def test_the_key_may_have_another_name_in_the_table() -> None:
    table = pa.table({"id": [7], "label": [70]})
    fields = table_join(table, "label", table_key="id", features=[Feature("label", "int64")])
    assert values(made_by(fields, [7]), "label") == [70]


def test_cells_of_csv_are_keys_of_the_kind_that_records_have(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text("word,name\n007,Bond\n7,seven\n")
    fields = table_join(path, "word")
    assert values(made_by(fields, ["7", "007"]), "name") == [b"seven", b"Bond"]


def test_keys_of_bytes_and_of_text_meet() -> None:
    schema = Schema((Feature("word", "bytes"),))
    table = pa.table({"word": ["a", "größe"], "n": [1, 2]})
    bound = table_join(table, "word").bind(schema)
    batch = batch_of(schema.features, word=["größe".encode(), b"\xff", b"a"])
    assert values(bound.compute(batch, every=True), "n") == [2, None, 1]


def test_lists_images_and_arrays_can_be_joined(tmp_path: Path) -> None:
    path = tmp_path / "rich.jsonl"
    path.write_text('{"label": 1, "box": [1, 2], "icon": "iVBORw0KGgo=", "raw": [3, 4]}\n')
    fields = table_join(
        path,
        "label",
        features=[
            Feature("box", "int64", (2,)),
            Feature("icon", "bytes", meaning=Image("png")),
            Feature("raw", "bytes", meaning=Array("uint8", (2,))),
        ],
    )
    made = made_by(fields, [1, 1])
    assert values(made, "box") == [[1, 2], [1, 2]]
    assert values(made, "icon")[0] == b"\x89PNG\r\n\x1a\n"
    assert values(made, "raw")[0] == b"\x03\x04"


def test_dictionaries_of_arrow_are_categories() -> None:
    table = pa.table({"label": [1, 2], "kind": pa.array(["a", "b"]).dictionary_encode()})
    fields = table_join(table, "label")
    assert fields.features == (Feature("kind", "bytes", meaning=Category()),)
    assert values(made_by(fields, [2]), "kind") == [b"b"]


def test_a_key_that_is_not_in_the_table_is_a_reason(tmp_path: Path) -> None:
    fields = table_join(as_csv(tmp_path), "label")
    made = made_by(fields, [1, 4, None, 2, 5])
    unknown = ("label", f"its key is not in table {tmp_path}/labels.csv")
    without = ("label", f"is missing, and is the key to table {tmp_path}/labels.csv")
    assert made.reasons == {1: unknown, 2: without, 4: unknown}
    assert values(made, "size") == [1.5, None, None, 2.0, None]
    assert list(made_by(fields, [1, 4, None, 2, 5], every=False).reasons) == [1]


def test_what_is_not_in_the_table_may_get_a_default() -> None:
    fields = table_join(
        pa.table(ROWS), "label", on_missing="default", defaults={"name": "unknown", "size": 0}
    )
    made = made_by(fields, [4, 1, None])
    assert values(made, "name") == [b"unknown", "größe".encode(), b"unknown"]
    assert values(made, "size") == [0.0, 1.5, 0.0]
    assert made.reasons == {}


def test_what_is_not_in_the_table_may_be_absent() -> None:
    fields = table_join(pa.table(ROWS), "label", on_missing="absent")
    assert all(not feature.required for feature in fields.features)
    made = made_by(fields, [4, 1, None])
    assert values(made, "size") == [None, 1.5, None]
    assert made.reasons == {}


def test_missing_table_value_is_missing_feature() -> None:
    table = pa.table({"label": [1, 2], "size": [None, 0.5]})
    fields = table_join(table, "label")
    assert [feature.required for feature in fields.features] == [False]
    assert values(made_by(fields, [1, 2]), "size") == [None, 0.5]
    required = table_join(table, "label", features=[SIZE])
    why = "the table in memory gives no value, and it is required"
    assert made_by(required, [2, 1]).reasons == {1: ("size", why)}


DOUBLED = "label,name\n1,a\n2,b\n\n3,c\n1,d\n2,e\n1,f\n"


def test_doubled_keys_are_refused_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text(DOUBLED)
    where = {"record": 3, "feature": "label", "path": str(path)}
    with raises(UDFError, "duplicate-key", **where) as caught:
        table_join(path, "label").bind(SCHEMA)
    assert all(part in caught.value.message for part in ("2 duplicate keys", "line 2", "line 6"))
    assert caught.value.hint is not None
    assert {Option("on_duplicate", "first"), Option("on_duplicate", "last")} <= set(
        caught.value.hint.parts
    )


@pytest.mark.parametrize(("doubled", "wanted"), [("first", b"abc"), ("last", b"fec")])
def test_one_of_doubled_keys_can_be_picked(tmp_path: Path, doubled: Any, wanted: bytes) -> None:  # noqa: ANN401 - a word
    path = tmp_path / "twice.csv"
    path.write_text(DOUBLED)
    for key in ("label", "word"):
        fields = table_join(path, key, table_key="label", on_duplicate=doubled)
        keys = [1, 2, 3] if key == "label" else ["1", "2", "3"]
        assert b"".join(values(made_by(fields, keys), "name")) == wanted


@given(
    st.lists(st.tuples(st.integers(-3, 9), st.integers()), max_size=30),
    st.lists(st.none() | st.integers(-4, 10), max_size=12),
    st.sampled_from(["first", "last"]),
    st.booleans(),
    st.sampled_from([0, 5000]),
)
def test_lookup_is_that_of_a_dict(
    rows: list[tuple[int, int]],
    asked: list[int | None],
    doubled: Any,  # noqa: ANN401 - a word
    text: bool,  # noqa: FBT001 - drawn
    more: int,
) -> None:
    rows = [(key, at) for at, (key, _) in enumerate(rows)]
    rows += [(1000 + at, len(rows) + at) for at in range(more)]
    known = dict(rows if doubled == "last" else reversed(rows))
    keys: list[Any] = [key for key, _ in rows]
    table = pa.table(
        {
            "k": pa.array(map(str, keys), pa.string()) if text else pa.array(keys, pa.int64()),
            "n": pa.array([n for _, n in rows], pa.int64()),
        }
    )
    fields = table_join(
        table,
        "word" if text else "label",
        table_key="k",
        features=[Feature("n", "int64")],
        on_missing="absent",
        on_duplicate=doubled,
    )
    told = [None if key is None else str(key) if text else key for key in asked]
    found = values(made_by(fields, told), "n")
    assert found == [None if key is None else known.get(key) for key in asked]


@pytest.mark.parametrize(
    ("text", "code", "where", "word"),
    [
        ("label,name\n1,a\n,b\n", "missing-key", (1, "label"), "line 3"),
        ("label,name\n1,a\nx,b\n", "key-mismatch", (1, "label"), "line 3"),
        ("label,name\n1,a\n2\n", "invalid-row", (1, None), "line 3: has 1 cells"),
        ("label,name\n1,a\n2,b,c\n", "invalid-row", (1, None), "line 3: has 3 cells"),
        ('label,name\n1,"a\n', "invalid-row", (0, None), "line 2: has a quoted cell"),
        ("id,name\n1,a\n", "unknown-column", (None, "label"), "labels.csv"),
        ("label\n1\n", "no-features", (None, None), "'label'"),
        ("label,name\n", "unknown-kind", (None, None), "no rows"),
        ("label,label\n1,2\n", "duplicate-column", (None, "label"), "labels.csv"),
    ],
)
def test_csv_that_is_wrong_is_refused_with_its_line(
    tmp_path: Path, text: str, code: str, where: tuple[int | None, str | None], word: str
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(text)
    kind = SourceError if code == "duplicate-column" else UDFError
    record, feature = where
    with raises(kind, code, record=record, feature=feature, path=str(path)) as caught:
        table_join(path, "label").bind(SCHEMA)
    assert word in caught.value.message


def test_a_cell_that_does_not_fit_what_was_declared_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("label,size\n1,0.5\n2,large\n")
    where = {"record": 1, "feature": "size", "path": str(path)}
    with raises(UDFError, "value-mismatch", **where) as caught:
        table_join(path, "label", features=[SIZE]).bind(SCHEMA)
    assert "line 3" in caught.value.message


@pytest.mark.parametrize(
    ("text", "code", "where", "word"),
    [
        ('{"label": 1, "n": 2}\nno\n', "invalid-row", (1, None), "line 2"),
        ('{"label": 1, "n": 2, "n": 3}\n', "invalid-row", (0, "n"), "line 1"),
        ('{"label": 1, "n": 2}\n\n{"n": 3}\n', "missing-key", (1, "label"), "line 3"),
        ('{"label": 1, "n": 2}\n{"label": 2, "n": "a"}\n', "unknown-kind", (None, "n"), "'n'"),
        ('[{"label": 1}]', "unsupported-source", (None, None), "list"),
        ("", "unknown-column", (None, "label"), "labels.jsonl"),
    ],
)
def test_json_lines_that_are_wrong_are_refused(
    tmp_path: Path, text: str, code: str, where: tuple[int | None, str | None], word: str
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(text)
    kinds: dict[str, type[ShardlineError]] = {
        "unknown-kind": SchemaMismatchError,
        "unsupported-source": SourceError,
    }
    record, feature = where
    kind = kinds.get(code, UDFError)
    with raises(kind, code, record=record, feature=feature, path=str(path)) as caught:
        table_join(path, "label").bind(SCHEMA)
    assert word in caught.value.message


OVER = 2**64 - 1


def as_table(folder: Path, ending: str, numbers: Sequence[Any], name: str = "n") -> Path:
    """A file with labels from 0 on, and these values beside them."""
    path = folder / f"labels.{ending}"
    if ending == "csv":
        rows = "".join(f"{at},{number}\n" for at, number in enumerate(numbers))
        path.write_text(f"label,{name}\n{rows}")
    elif ending == "jsonl":
        lines = [json.dumps({"label": at, name: number}) for at, number in enumerate(numbers)]
        path.write_text("\n".join(lines))
    else:
        column = pa.array(numbers, pa.uint64())
        pq.write_table(pa.table({"label": range(len(numbers)), name: column}), path)
    return path


@pytest.mark.parametrize("numbers", [[OVER], [1, OVER, OVER], [OVER, 1]])
@pytest.mark.parametrize(("ending", "at"), [("jsonl", "line 1"), ("parquet", "row 0")])
def test_a_whole_number_over_64_bits_is_refused_with_its_row(
    tmp_path: Path, ending: str, at: str, numbers: list[int]
) -> None:
    word, first = at.split()
    at = f"{word} {int(first) + numbers.index(OVER)}"
    path = as_table(tmp_path, ending, numbers)
    where = {"record": numbers.index(OVER), "feature": "n", "path": str(path)}
    with raises(UDFError, "number-too-large", **where) as caught:
        table_join(path, "label").bind(SCHEMA)
    assert at in caught.value.message
    declared = table_join(path, "label", features=[Feature("n", "float")])
    assert values(made_by(declared, [numbers.index(OVER)]), "n") == [2.0**64]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_key_over_64_bits_is_refused_with_its_row(tmp_path: Path, ending: str) -> None:
    path = as_table(tmp_path, ending, [1, OVER])
    fields = table_join(path, "label", table_key="n", features=[Feature("label", "int64")])
    with raises(UDFError, "number-too-large", record=1, feature="n", path=str(path)):
        fields.bind(SCHEMA)


@pytest.mark.parametrize(
    ("ending", "numbers", "wanted"),
    [
        ("csv", [OVER, 0.5], [str(OVER).encode(), b"0.5"]),
        ("csv", [1e30, 2], [np.float32(1e30), 2.0]),
        ("csv", [OVER, "none"], [str(OVER).encode(), b"none"]),
        ("csv", [OVER, 7], [str(OVER).encode(), b"7"]),
        ("csv", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("jsonl", [1e30, 2], [np.float32(1e30), 2.0]),
        ("jsonl", [str(OVER), "none"], [str(OVER).encode(), b"none"]),
        ("jsonl", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("parquet", [2**63 - 1, 0], [2**63 - 1, 0]),
    ],
)
def test_numbers_beside_fractions_and_texts_are_such(
    tmp_path: Path, ending: str, numbers: list[Any], wanted: list[Any]
) -> None:
    fields = table_join(as_table(tmp_path, ending, numbers), "label")
    assert values(made_by(fields, [0, 1]), "n") == wanted


def test_table_without_valid_rows_error() -> None:
    held = pa.table({"label": [1], "n": [[1, None]]})
    with raises(UDFError, "unknown-kind") as caught:
        table_join(held, "label").bind(SCHEMA)
    assert "no valid rows" in caught.value.message


@pytest.mark.parametrize(
    ("key", "table", "code", "record", "word"),
    [
        ("label", {"label": ["1"]}, "key-mismatch", None, "(bytes and int64)"),
        ("word", {"word": [1]}, "key-mismatch", None, "(int64 and bytes)"),
        ("label", {"label": [1.0]}, "key-mismatch", None, "(float and int64)"),
        ("label", {"label": [[1]]}, "key-mismatch", 0, "row 0"),
        ("label", {"label": [1, None]}, "missing-key", 1, "row 1"),
        ("label", {"label": [2**63]}, "number-too-large", 0, "row 0"),
        ("ratio", {"ratio": [0.5]}, "key-mismatch", None, "float of shape ()"),
        ("grid", {"grid": [1]}, "key-mismatch", None, "int64 of shape (2,)"),
        ("depth", {"depth": [1]}, "unknown-feature", None, "'depth'"),
    ],
)
def test_keys_that_are_none_are_refused(
    key: str, table: dict[str, Any], code: str, record: int | None, word: str
) -> None:
    column = next(iter(table.values()))
    kind = pa.uint64() if column == [2**63] else None
    keys = pa.array(column, kind)
    fields = table_join(pa.table({key: keys, "n": range(len(column))}), key)
    kind_of_error = SchemaMismatchError if key == "depth" else UDFError
    with raises(kind_of_error, code, record=record, feature=key) as caught:
        fields.bind(SCHEMA)
    assert word in caught.value.message


def test_a_key_in_steps_is_refused() -> None:
    schema = Schema((Feature("label", "int64", sequence=True),), "sequence_example")
    with raises(UDFError, "key-mismatch", feature="label") as caught:
        table_join(pa.table(ROWS), "label").bind(schema)
    assert "step" in caught.value.message


@pytest.mark.parametrize(
    ("options", "code", "feature", "word"),
    [
        ({"on_missing": "ignore"}, "invalid-argument", None, "'ignore'"),
        ({"on_duplicate": "any"}, "invalid-argument", None, "'any'"),
        ({"on_missing": "default"}, "invalid-argument", None, "default values"),
        ({"defaults": {"name": "a"}}, "invalid-argument", None, "default values"),
        ({"features": []}, "no-features", None, "table"),
        ({"features": ["name", "name"]}, "duplicate-feature", "name", "table"),
        ({"features": [3]}, "invalid-udf", None, "int"),
        ({"features": [Feature("x", "int64", sequence=True)]}, "invalid-udf", "x", "table"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused_at_once(
    options: dict[str, Any], code: str, feature: str | None, word: str
) -> None:
    with raises(UDFError, code, feature=feature) as caught:
        table_join("no such file", "label", **options)
    assert word in caught.value.message


@pytest.mark.parametrize(
    ("defaults", "code", "feature"),
    [
        ({"name": "a"}, "missing-feature", "size"),
        ({"name": "a", "size": None}, "missing-feature", "size"),
        ({"name": "a", "size": "b"}, "value-mismatch", "size"),
        ({"name": "a", "size": 1, "x": 2}, "unknown-feature", "x"),
        ({"x": 2}, "unknown-feature", "x"),
    ],
)
def test_defaults_must_be_values_of_all_fields(
    defaults: dict[str, Any], code: str, feature: str
) -> None:
    fields = table_join(pa.table(ROWS), "label", on_missing="default", defaults=defaults)
    with raises(UDFError, code, feature=feature):
        fields.bind(SCHEMA)
    with raises(UDFError, code, feature=feature):
        fields.identity()


@pytest.mark.parametrize("form", FORMS)
def test_columns_that_are_not_there_are_refused_with_those_that_are(
    tmp_path: Path, form: Callable[[Path], Any]
) -> None:
    fields = table_join(form(tmp_path), "label", features=["colour", "name"])
    has = ", ".join(map(repr, ROWS))
    with raises(UDFError, "unknown-column", feature="colour") as caught:
        fields.bind(SCHEMA)
    assert str(caught.value.hint).endswith(has)


def test_columns_that_no_feature_can_hold_are_refused() -> None:
    lists = pa.table({"label": [1], "steps": [[[1], [2, 3]]]})
    with raises(UDFError, "invalid-udf", feature="steps"):
        table_join(lists, "label").bind(SCHEMA)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["label", "label"])
    with raises(UDFError, "duplicate-column", feature="label"):
        table_join(twice, "label").bind(SCHEMA)


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    with raises(UDFError, "unsupported-source", path=None):
        table_join(7, "label").bind(SCHEMA)
    nowhere = tmp_path / "nowhere.csv"
    with raises(SourceError, "file-not-found", path=str(nowhere)):
        table_join(nowhere, "label").bind(SCHEMA)
    with raises(UDFError, "unsupported-source", path=str(tmp_path)):
        table_join(tmp_path, "label").bind(SCHEMA)
    labels = tmp_path / "labels.parquet"
    labels.write_bytes(b"PAR1 this is none")
    with raises(SourceError, "invalid-source", path=str(labels)):
        table_join(labels, "label").bind(SCHEMA)
    with raises(UDFError, "invalid-argument"):
        table_join(pa.table(ROWS), "label", format="csv").bind(SCHEMA)


def test_a_format_can_be_told_where_the_name_does_not(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(CSV)
    with raises(SourceError, "unknown-source-format", path=str(path)) as caught:
        table_join(path, "label").bind(SCHEMA)
    assert "format='csv'" in str(caught.value.hint)
    assert values(made_by(table_join(path, "label", format="csv"), [3]), "size") == [0.5]


def test_a_table_is_not_read_before_it_is_needed(tmp_path: Path) -> None:
    fields = table_join(tmp_path / "labels.csv", "label")
    assert fields.label == f"table {tmp_path}/labels.csv"
    as_csv(tmp_path)
    assert values(made_by(fields, [3]), "size") == [0.5]


def test_what_is_settled_stays_as_it_was_read(tmp_path: Path) -> None:
    path = as_csv(tmp_path)
    fields = table_join(path, "label")
    settled = fields.settled()
    path.write_text(CSV.replace("1.5", "2.5"))
    assert values(made_by(settled, [1]), "size") == [1.5]
    assert values(made_by(fields, [1]), "size") == [2.5]
    assert settled.identity() != fields.identity()
    assert settled.settled() == settled
    assert values(made_by(pickle.loads(pickle.dumps(settled)), [1]), "size") == [1.5]  # noqa: S301 - ours


def identity(table: object, **options: Any) -> bytes:  # noqa: ANN401 - as table_join takes them
    """Who a joined table is."""
    return canonical.encode(table_join(table, "label", **options).identity())


def test_an_identity_holds_the_content_of_the_table_and_the_rules(tmp_path: Path) -> None:
    table = pa.table(ROWS)
    other = pa.table({**ROWS, "size": [0.5, 1.5, 2.5]})
    defaults = {"name": "a", "size": 0.25}
    told = [
        identity(table),
        identity(other),
        identity(table, on_missing="absent"),
        identity(table, on_duplicate="last"),
        identity(table, features=["size"]),
        identity(table, features=[SIZE]).replace(b"size", b"Size"),
        identity(table, on_missing="default", defaults=defaults),
        identity(table, on_missing="default", defaults={**defaults, "size": 0.5}),
        identity(as_csv(tmp_path)),
    ]
    assert len(set(told)) == len(told)


def test_identity_ignores_memory_layout(tmp_path: Path) -> None:
    table = pa.table(ROWS)
    longer = pa.concat_tables([table, table])
    same = [
        table,
        pa.concat_tables([table[:1], table[1:]]),
        longer[3:],
        pa.RecordBatch.from_pydict(ROWS),
        pd.DataFrame(ROWS),
        table.replace_schema_metadata({"written": "today"}),
    ]
    assert len({identity(one) for one in same}) == 1
    moved = tmp_path / "moved"
    moved.mkdir()
    assert identity(as_csv(tmp_path)) == identity(as_csv(moved))


def test_two_hundred_thousand_keys_are_found(tmp_path: Path) -> None:
    keys = np.random.default_rng(7).permutation(200_000)
    path = tmp_path / "many.parquet"
    pq.write_table(pa.table({"label": keys, "n": keys * 2}), path)
    made = made_by(table_join(path, "label"), range(0, 200_000, 7))
    assert values(made, "n") == list(range(0, 400_000, 14))
