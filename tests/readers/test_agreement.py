"""Every kind, shape and meaning, in every reader: each gives what was written, and so the same."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.schemas import records, schemas
from tests.readers.forms import expected_of, in_arrow, in_tensorflow, plain
from tests.readers.snapshots import published

if TYPE_CHECKING:
    from shardline.log.schema import Schema
    from shardline.log.snapshot import Snapshot

COMPRESSIONS = ("none", "gzip", "zlib")


def in_parsed(schema: Schema, element: Any) -> dict[tuple[bool, str], Any]:  # noqa: ANN401 - tensors
    context, lists = element if isinstance(element, tuple) else (element, {})
    parts = {False: context, True: lists}
    assert sum(map(len, parts.values())) == len(schema.features)
    return {f.key: plain(parts[f.sequence][f.name]) for f in schema.features}


def single_records(snapshot: Snapshot) -> list[dict[tuple[bool, str], Any]]:
    return [in_parsed(snapshot.schema, element) for element in snapshot.to_tf()]


def batched_records(snapshot: Snapshot, batch: int) -> list[dict[tuple[bool, str], Any]]:
    found: list[dict[tuple[bool, str], Any]] = []
    for element in snapshot.to_tf(batch=batch):
        columns = in_parsed(snapshot.schema, element)
        rows = len(next(iter(columns.values())))
        found += [{key: values[row] for key, values in columns.items()} for row in range(rows)]
    return found


def arrow_records(snapshot: Snapshot) -> list[dict[tuple[bool, str], Any]]:
    keys = [feature.key for feature in snapshot.schema.features]
    found: list[dict[tuple[bool, str], Any]] = []
    with snapshot.to_arrow() as reader:
        for batch in reader:
            batch.validate(full=True)
            assert batch.schema.equals(reader.schema, check_metadata=True)
            columns = [column.to_pylist() for column in batch.columns]
            found += [
                dict(zip(keys, map(plain, row), strict=True)) for row in zip(*columns, strict=True)
            ]
    return found


def pandas_records(snapshot: Snapshot) -> list[dict[tuple[bool, str], Any]]:
    keys = [feature.key for feature in snapshot.schema.features]
    found: list[dict[tuple[bool, str], Any]] = []
    for frame in snapshot.to_pandas():
        columns = [frame.iloc[:, place] for place in range(len(keys))]
        missing = [
            [False] * len(frame) if column.dtype == object else column.isna() for column in columns
        ]
        for row in range(len(frame)):
            cells = (
                None if gone[row] else plain(column.iloc[row])
                for column, gone in zip(columns, map(list, missing), strict=True)
            )
            found.append(dict(zip(keys, cells, strict=True)))
    return found


@settings(max_examples=20)
@given(st.data())
def test_every_reader_gives_what_was_written(data: st.DataObject) -> None:
    schema = data.draw(schemas().filter(lambda schema: schema.features))
    contents = data.draw(st.lists(records(schema), min_size=1, max_size=7))
    cut = data.draw(st.integers(0, len(contents)))
    shards = [[c.payload() for c in part] for part in (contents[:cut], contents[cut:])]
    with TemporaryDirectory() as root:
        compressions = data.draw(st.permutations(COMPRESSIONS))
        snapshot = published(root, schema, *shards, compressions=compressions)
        in_tf = expected_of(schema, contents, in_tensorflow)
        assert single_records(snapshot) == in_tf
        assert batched_records(snapshot, data.draw(st.integers(1, 4))) == in_tf
        in_columns = expected_of(schema, contents, in_arrow)
        assert arrow_records(snapshot) == in_columns
        # pandas tells a missing float from NaN no more than anyone who uses it does
        for row in in_columns:
            for feature in schema.features:
                if (feature.kind, feature.shape, feature.sequence) == ("float", (), False):
                    row[feature.key] = None if row[feature.key] == "nan" else row[feature.key]
        assert pandas_records(snapshot) == in_columns
