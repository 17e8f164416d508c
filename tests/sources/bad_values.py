"""Every kind of bad value, and the message that tells of it: what the docs show is this table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from shardline.schema.schema import Array, Category, Feature, Image, Text
from tests.log.schemas import PNG
from tests.tfrecord.samples import example_of

NAN = float("nan")
YES = True
INT = Feature("a", "int64")
INTS = Feature("a", "int64", (None,))
FLOAT = Feature("a", "float")
TEXT = Feature("a", "bytes", meaning=Text())
SQUARE = Feature("a", "int64", (2, 2))
STEPS = Feature("a", "int64", (2,), sequence=True)
PICTURE = Feature("a", "bytes", meaning=Image("png"))
RAW = Feature("a", "bytes", meaning=Array("int32", (2,)))
LABELLED = Feature("a", "bytes", meaning=Category(("cat", "dog")))
NUMBERED = Feature("a", "int64", meaning=Category(("cat", "dog")))


@dataclass(frozen=True, slots=True)
class Case:
    """A bad row between two good ones, and what is said of it.

    For rows, Parquet and folders `good` and `bad` are values of the feature; for JSON lines and
    CSV they are lines as they stand in the file; for TFRecord files they are payloads.
    """

    what: str
    source: str
    feature: Feature
    good: Any
    bad: Any
    message: str
    kind: pa.DataType | None = None


CASES = [
    Case("wrong kind", "rows", INT, 1, "x", "row 1, feature 'a': holds bytes values, not int64"),
    Case("wrong kind", "rows", FLOAT, 1, b"x", "row 1, feature 'a': holds bytes values, not float"),
    Case("wrong kind", "rows", TEXT, "x", 1, "row 1, feature 'a': holds int64 values, not bytes"),
    Case("wrong kind", "rows", FLOAT, 1.5, YES,
         "row 1, feature 'a': holds bool values, not float"),
    Case("wrong kind", "rows", INT, 1, {"b": 1},
         "row 1, feature 'a': holds struct values, not int64"),
    Case("wrong kind", "rows", INT, 1, 1j, "row 1, feature 'a': holds complex values, not int64"),
    Case("wrong kind", "jsonl", INT, '{"a": 1}', '{"a": "x"}',
         "line 2, feature 'a': holds bytes values, not int64"),
    Case("wrong kind", "tfrecord", INT, example_of(a=1), example_of(a=1.5),
         "record 1, offset 30, feature 'a': holds float values, not int64"),
    Case("wrong kinds in one list", "rows", INTS, [1], [1, "x"],
         "row 1, feature 'a': holds int64 and text values, not int64"),
    Case("required and missing", "rows", INT, 1, ...,
         "row 1, feature 'a': is missing, and is required"),
    Case("required and missing", "jsonl", INT, '{"a": 1}', "{}",
         "line 2, feature 'a': is missing, and is required"),
    Case("required and null", "rows", INT, 1, None,
         "row 1, feature 'a': is missing, and is required"),
    Case("required and null", "jsonl", INT, '{"a": 1}', '{"a": null}',
         "line 2, feature 'a': is missing, and is required"),
    Case("required and null", "parquet", INT, 1, None,
         "row 1, feature 'a': is missing, and is required", pa.int64()),
    Case("required and empty", "csv", INT, "1,x", ",x",
         "line 3, feature 'a': is missing, and is required"),
    Case("null inside a list", "rows", INTS, [1], [1, None],
         "row 1, feature 'a': holds a null inside a list, which a record cannot hold"),
    Case("null inside a list", "parquet", INTS, [1], [1, None],
         "row 1, feature 'a': holds a null inside a list, which a record cannot hold",
         pa.list_(pa.int64())),
    Case("NaN", "rows", FLOAT, 1.5, NAN, "row 1, feature 'a': holds NaN"),
    Case("NaN", "jsonl", FLOAT, '{"a": 1.5}', '{"a": NaN}', "line 2, feature 'a': holds NaN"),
    Case("NaN", "csv", FLOAT, "1.5,x", "nan,x", "line 3, feature 'a': holds NaN"),
    Case("NaN", "rows", INT, 1, NAN, "row 1, feature 'a': holds NaN"),
    Case("number over 64 bits", "rows", INT, 1, 2**63,
         "row 1, feature 'a': holds a number too large for its kind"),
    Case("number over 64 bits", "jsonl", INT, '{"a": 1}', '{"a": 9223372036854775808}',
         "line 2, feature 'a': holds a number too large for its kind"),
    Case("number over 64 bits", "parquet", INT, 1, 2**63,
         "row 1, feature 'a': holds a number too large for its kind", pa.uint64()),
    Case("number over 64 bits", "csv", INT, "1,x", "9223372036854775808,x",
         "line 3, feature 'a': holds a number too large for its kind"),
    Case("number over 32-bit floats", "rows", FLOAT, 1.5, 1e39,
         "row 1, feature 'a': holds a number too large for its kind"),
    Case("number over 32-bit floats", "parquet", FLOAT, 1.5, -1e39,
         "row 1, feature 'a': holds a number too large for its kind", pa.float64()),
    Case("number over any float", "jsonl", FLOAT, '{"a": 1.5}', '{"a": 1e400}',
         "line 2, feature 'a': holds a number too large for its kind"),
    Case("not a whole number", "rows", INT, 1.0, 1.5,
         "row 1, feature 'a': holds a number that is not whole"),
    Case("not a whole number", "parquet", INT, 1.0, 1.5,
         "row 1, feature 'a': holds a number that is not whole", pa.float64()),
    Case("not a whole number", "csv", INT, "1.0,x", "1.5,x",
         "line 3, feature 'a': holds a number that is not whole"),
    Case("a list for one value", "rows", INT, 1, [1],
         "row 1, feature 'a': holds a list, and one value belongs there"),
    Case("one value for a list", "rows", INTS, [1], 1,
         "row 1, feature 'a': holds one value, and a list belongs there"),
    Case("nested too deep", "rows", INTS, [1], [[1]],
         "row 1, feature 'a': holds lists in lists 2 deep, not 1"),
    Case("nested unevenly", "rows", SQUARE, [[1, 2], [3, 4]], [[1, 2], 3],
         "row 1, feature 'a': holds values and lists beside each other"),
    Case("an inner list of another length", "rows", SQUARE, [1, 2, 3, 4], [[1, 2, 3], [4]],
         "row 1, feature 'a': holds an inner list of 3 values, not 2"),
    Case("too few values", "rows", SQUARE, [1, 2, 3, 4], [1, 2, 3],
         "row 1, feature 'a': holds 3 values, not 4"),
    Case("too few rows of the shape", "rows", SQUARE, [[1, 2], [3, 4]], [[1, 2]],
         "row 1, feature 'a': holds 2 values, not 4"),
    Case("no multiple of the shape", "parquet", replace(INTS, shape=(None, 2)), [1, 2], [1, 2, 3],
         "row 1, feature 'a': holds 3 values, not a multiple of 2", pa.list_(pa.int64())),
    Case("a step of another length", "rows", STEPS, [[1, 2]], [[1, 2], [3]],
         "row 1, feature 'a': holds 1 value in a step, not 2"),
    Case("a step that is one value", "rows", STEPS, [[1, 2]], [1, 2],
         "row 1, feature 'a': holds lists in lists 1 deep, not 2"),
    Case("too large", "rows", TEXT, "x", "x" * 2000,
         "row 1: takes 2018 bytes as a record, over the limit of 1000"),
    Case("not UTF-8", "rows", TEXT, b"x", b"\xff",
         "row 1, feature 'a': holds bytes that are not UTF-8 text"),
    Case("not UTF-8", "jsonl", TEXT, '{"a": "x"}', b'{"a": "\xff"}', "line 2: is not UTF-8 text"),
    Case("not UTF-8", "csv", TEXT, "x,x", b"\xff,x",
         "line 3: is not UTF-8 text (offset 12, probably Latin-1)"),
    Case("half of a surrogate pair", "jsonl", TEXT, '{"a": "x"}', r'{"a": "\ud800"}',
         "line 2, feature 'a': holds text that is not Unicode"),
    Case("raw array of another size", "rows", RAW, bytes(8), bytes(7),
         "row 1, feature 'a': holds 7 bytes, and int32 array [2] takes 8 bytes"),
    Case("raw array of another size", "jsonl", RAW, '{"a": [1, 2]}', '{"a": [1, 2, 3]}',
         "line 2, feature 'a': holds 12 bytes, and int32 array [2] takes 8 bytes"),
    Case("number that the array cannot hold", "rows", RAW, [1, 2], [1, 2**31],
         "row 1, feature 'a': holds a number too large for its kind"),
    Case("unknown field", "rows", INT, 1, {"a": 1, "b": 2},
         "row 1, feature 'b': not in the schema"),
    Case("unknown field", "jsonl", INT, '{"a": 1}', '{"a": 1, "b": 2}',
         "line 2, feature 'b': not in the schema"),
    Case("unknown field", "tfrecord", INT, example_of(a=1), example_of(a=1, b=2),
         "record 1, offset 30, feature 'b': not in the schema"),
    Case("field twice", "jsonl", INT, '{"a": 1}', '{"a": 1, "a": 2}',
         "line 2, feature 'a': is there twice"),
    Case("no image of its encoding", "rows", PICTURE, PNG, b"GIF89a",
         "row 1, feature 'a': holds bytes that do not begin as a png file does"),
    Case("no image of its encoding", "folder", replace(PICTURE, name="image"), PNG, b"GIF89a",
         "file 1.png, feature 'image': holds bytes that do not begin as a png file does"),
    Case("none of the labels", "rows", LABELLED, "cat", "eel",
         "row 1, feature 'a': holds a text that is none of its labels"),
    Case("none of the labels", "csv", NUMBERED, "0,x", "2,x",
         "line 3, feature 'a': holds a number outside of 0 to 1, its labels"),
    Case("no JSON object", "jsonl", INT, '{"a": 1}', "[1]", "line 2: is no JSON object"),
    Case("no JSON", "jsonl", INT, '{"a": 1}', '{"a": 1',
         "line 2: is no JSON: Expecting ',' delimiter, at character 8"),
    Case("no dict", "rows", INT, 1, (5,), "row 1: is no dict, but a value of type tuple"),
    Case("too few cells", "csv", INT, "1,x", "1", "line 3: has 1 cells, and the header has 2"),
    Case("too many cells", "csv", INT, "1,x", "1,x,y", "line 3: has 3 cells, and the header has 2"),
    Case("a line break in a cell", "csv", INT, "1,x", "1,x\ry",
         "line 3: has a line break outside of quotes"),
    Case("no number", "csv", INT, "1,x", "one,x",
         "line 3, feature 'a': holds text that is no number"),
    Case("no number", "csv", INT, "1,x", "0x10,x",
         "line 3, feature 'a': holds text that is no number"),
    Case("no number", "csv", FLOAT, "1.5,x", "1_5,x",
         "line 3, feature 'a': holds text that is no number"),
    Case("no list", "csv", INTS, '"[1, 2]",x', "1,x",
         "line 3, feature 'a': holds text that is no JSON list"),
    Case("not base64", "jsonl", PICTURE, '{"a": "iVBORw0KGgo="}', '{"a": "PNG!"}',
         "line 2, feature 'a': holds text that is not base64"),
    Case("no Example", "tfrecord", INT, example_of(a=1), b"\x08\x01",
         "record 1, offset 30: a field that neither Example nor SequenceExample has, at byte 0 of "
         "the payload"),
]  # fmt: skip
