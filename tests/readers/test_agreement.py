"""Every kind, shape and meaning, in every reader: each gives what was written, and so the same."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.schemas import records, schemas
from tests.readers.forms import expected_of, in_arrow, in_tensorflow
from tests.readers.readings import (
    arrow_records,
    batched_records,
    pandas_records,
    single_records,
)
from tests.readers.snapshots import published
from tests.sampling import drawn

COMPRESSIONS = ("none", "gzip", "zlib")


@pytest.mark.sweep
@settings(max_examples=drawn(24))
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
