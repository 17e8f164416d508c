"""What functions are given, of records of any schema: the same as readers give."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.readers.tf import make_batch_parser
from shardline.udf import record_udf
from shardline.udf.tensor_function import TensorForm
from tests.log.schemas import records, schemas
from tests.readers.forms import plain
from tests.udf.batches import AREA, decoded


@given(st.data())
def test_a_function_of_one_record_is_given_what_was_written(data: st.DataObject) -> None:
    some = schemas().filter(lambda schema: any(not f.sequence for f in schema.features))
    schema = data.draw(some)
    contents = data.draw(st.lists(records(schema), min_size=1, max_size=5))
    context = [feature for feature in schema.features if not feature.sequence]
    batch = decoded(context, [content.payload() for content in contents])
    batch = batch.slice(data.draw(st.integers(0, len(contents) - 1)))
    seen: list[dict[str, Any]] = []

    def look(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(record)
        return {"area": 0}

    names = [feature.name for feature in context]
    record_udf(AREA, reads=names)(look).bind(schema).compute(batch, every=True)
    rows = batch.to_pylist()
    for record, row in zip(seen, rows, strict=True):
        assert list(record) == names
        for feature in context:
            found, wanted = record[feature.name], row[feature.name]
            assert plain(found) == plain(wanted)
            assert isinstance(found, np.ndarray) == bool(feature.shape and wanted is not None)


def form_of(tensor: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a tensor
    return tensor.shape.as_list(), tensor.dtype, getattr(tensor, "ragged_rank", 0), plain(tensor)


@settings(max_examples=50)
@given(st.data())
def test_tensors_are_those_that_parsing_in_tensorflow_gives(data: st.DataObject) -> None:
    schema = data.draw(schemas().filter(lambda schema: schema.features))
    contents = data.draw(st.lists(records(schema), min_size=1, max_size=5))
    payloads = [content.payload() for content in contents]
    first = data.draw(st.integers(0, len(payloads) - 1))
    batch = decoded(schema.features, payloads).slice(first)
    parsed = make_batch_parser(schema, schema.features)(tf.constant(payloads[first:]))
    context, lists = parsed if isinstance(parsed, tuple) else (parsed, {})
    for feature, column in zip(schema.features, batch.columns, strict=True):
        form = TensorForm(feature)
        specs = form.specs(tf)
        parts = [
            tf.convert_to_tensor(part, spec.dtype)
            for part, spec in zip(form.parts(column), specs, strict=True)
        ]
        assert all(spec.is_compatible_with(p) for p, spec in zip(parts, specs, strict=True))
        wanted = (lists if feature.sequence else context)[feature.name]
        assert form_of(form.assemble(tf, parts)) == form_of(wanted)
