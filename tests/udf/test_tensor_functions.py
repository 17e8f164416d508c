"""TensorFlow functions of batched tensors, in one pipeline: traced once, in order, rows found."""

from __future__ import annotations

import gc
import sys
from contextlib import closing
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from shardline.errors import ColumnError, CorruptFileError, UDFError
from shardline.schema.schema import Array, Feature, Schema, Text
from shardline.udf import tensor_udf
from shardline.udf.tensor_function import SEVERAL_VALUES
from tests.errors import raises
from tests.udf.batches import AREA, BOXES, bad, batch_of, boxes, raised, values
from tests.udf.test_stream import DAMAGED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow as pa

    from shardline.udf import BoundUDF, UDFResult

BOTH = ["width", "height"]
Tensors = dict[str, Any]


def area(tensors: Tensors) -> Tensors:
    return {"area": tensors["width"] * tensors["height"]}


def bound_to(function: Callable[[Tensors], Any], *features: Feature) -> BoundUDF:
    return tensor_udf(*features, reads=BOTH)(function).bind(BOXES)


def both_ways(bound: BoundUDF, batch: pa.RecordBatch) -> UDFResult:
    """What is made of a batch, which is the same in a stream and by itself."""
    alone = bound.compute(batch, every=True)
    (streamed,) = bound.stream(iter([batch]), every=True, workers=2)
    assert streamed.reasons == alone.reasons
    for (one, first), (other, second) in zip(alone.columns, streamed.columns, strict=True):
        assert one == other
        assert first.array.equals(second.array)
        assert first.bad == second.bad
    return alone


def made_by(function: Callable[[Tensors], Any], *features: Feature, rows: int = 4) -> UDFResult:
    return both_ways(bound_to(function, *features), boxes(range(rows), range(rows)))


def numbered(count: int) -> Iterator[pa.RecordBatch]:
    """Batches of one, two or no records whose widths are the number of the batch."""
    for number in range(count):
        yield boxes([number] * (number % 3))


def test_tensors_go_in_and_tensors_come_out() -> None:
    assert values(made_by(area, AREA)) == [0, 1, 4, 9]


def test_it_is_traced_once_however_often_it_is_called() -> None:
    traces = 0

    def function(tensors: Tensors) -> Tensors:
        nonlocal traces
        traces += 1
        assert tensors["width"].shape.as_list() == [None]
        return area(tensors)

    bound = bound_to(function, AREA)
    for workers in (1, 2, None):
        made = list(bound.stream(numbered(9), every=True, workers=workers))
        assert [len(values(one)) for one in made] == [0, 1, 2] * 3
    assert values(bound.compute(boxes([2], [3]), every=True)) == [6]
    assert traces == 1


def test_a_tf_function_is_taken_as_it_is() -> None:
    assert values(made_by(tf.function(area), AREA)) == [0, 1, 4, 9]


def test_conditions_on_tensors_are_turned_into_graphs() -> None:
    def function(tensors: Tensors) -> Tensors:
        if tf.reduce_sum(tensors["width"]) > 100:
            return {"area": tensors["width"] * 0}
        return {"area": tensors["width"] + 1}

    assert values(made_by(function, AREA)) == [1, 2, 3, 4]


def test_variables_of_a_model_are_used() -> None:
    import keras  # noqa: PLC0415 - takes seconds to load

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    model.set_weights([np.array([[1.0, 2.0]]), np.array([0.5, 0.0])])

    def function(tensors: Tensors) -> Tensors:
        given = tf.cast(tensors["width"], tf.float32)[:, tf.newaxis]
        return {"area": model(given)}

    made = made_by(function, Feature("area", "float", (2,)), rows=2)
    assert values(made) == [[0.5, 0.0], [1.5, 2.0]]


@pytest.mark.parametrize(
    ("give", "feature", "wanted"),
    [
        (lambda x: tf.cast(x, tf.int32), AREA, [0, 1]),
        (lambda x: x > 0, AREA, [0, 1]),
        (lambda x: tf.cast(x, tf.float64) / 2, Feature("area", "float"), [0.0, 0.5]),
        (lambda x: tf.cast(x, tf.bfloat16), Feature("area", "float"), [0.0, 1.0]),
        (tf.strings.as_string, Feature("area", "bytes", meaning=Text()), [b"0", b"1"]),
        (lambda x: tf.stack([x, x], 1), Feature("area", "int64", (2,)), [[0, 0], [1, 1]]),
        (
            lambda x: tf.reshape(tf.repeat(x, 4), (-1, 2, 2)),
            Feature("area", "int64", (2, 2)),
            [[0] * 4, [1] * 4],
        ),
        (
            lambda x: tf.RaggedTensor.from_row_lengths(tf.repeat(x, x), x),
            Feature("area", "int64", (None,)),
            [[], [1]],
        ),
        (
            lambda x: tf.cast(tf.stack([x, x], 1), tf.uint8),
            Feature("area", "bytes", meaning=Array("uint8", (2,))),
            [b"\x00\x00", b"\x01\x01"],
        ),
        (lambda x: tf.py_function(lambda y: y, [x], tf.int64), AREA, [0, 1]),
    ],
)
def test_tensors_of_many_kinds_are_taken(
    give: Callable[[Any], Any], feature: Feature, wanted: list[Any]
) -> None:
    assert values(made_by(lambda tensors: {"area": give(tensors["width"])}, feature, rows=2)) == (
        wanted
    )


@pytest.mark.parametrize("shape", [(), (2,), (None,), (None, 2)])
def test_an_empty_row_of_what_is_not_required_is_missing(shape: tuple[int | None, ...]) -> None:
    feature = Feature("old", "int64", shape, required=False)
    new = Feature("new", "int64", shape, required=False)
    row: Any = {(): 7, (2,): [7, 8], (None,): [7], (None, 2): [[7, 8], [9, 10]]}[shape]
    flat = {(): 7, (2,): [7, 8], (None,): [7], (None, 2): [7, 8, 9, 10]}[shape]
    fields = tensor_udf(new, reads=["old"])(lambda tensors: {"new": tensors["old"]})
    made = both_ways(fields.bind(Schema((feature,))), batch_of([feature], old=[None, row, None]))
    assert values(made, "new") == [None, flat, None]
    assert (made.reasons, bad(made, "new")) == ({}, {})


def test_two_values_where_one_belongs_are_told() -> None:
    optional = Feature("area", "int64", required=False)

    def function(tensors: Tensors) -> Tensors:
        width = tensors["width"]
        return {"area": tf.RaggedTensor.from_row_lengths(tf.repeat(width, width), width)}

    made = made_by(function, optional)
    assert values(made) == [None, 1, None, None]
    assert bad(made) == {count: SEVERAL_VALUES.format(count) for count in (2, 3)}


def test_text_images_arrays_and_steps_are_read() -> None:
    features = [
        Feature("name", "bytes", meaning=Text()),
        Feature("raw", "bytes", meaning=Array("int16", (2,))),
        Feature("steps", "float", (2,), sequence=True),
    ]
    schema = Schema(tuple(features), "sequence_example")

    def function(tensors: Tensors) -> Tensors:
        assert tensors["raw"].dtype == tf.int16
        sums = tf.reduce_sum(tensors["steps"], axis=[1, 2])
        length = tf.strings.length(tensors["name"], unit="UTF8_CHAR")
        return {"area": length + tf.cast(tensors["raw"][:, 1], tf.int32) + tf.cast(sums, tf.int32)}

    bound = tensor_udf(AREA, reads=["name", "raw", "steps"])(function).bind(schema)
    raw = [np.array([0, 10 * at], "<i2").tobytes() for at in range(3)]
    steps = [[[100, 100]], [], [[100, 0], [100, 100]]]
    batch = batch_of(features, name=["größe", "", "a"], raw=raw, steps=steps)
    assert values(both_ways(bound, batch)) == [205, 10, 321]


def test_raw_arrays_of_a_wrong_size_are_told_with_their_record() -> None:
    feature = Feature("raw", "bytes", meaning=Array("int16", (2,)))
    fields = tensor_udf(AREA, reads=["raw"])(lambda t: {"area": t["raw"][:, 0]})
    batch = batch_of([feature], raw=[b"1234", b"12345678"])
    with raises(ColumnError, "length-mismatch", record=1, feature="raw") as caught:
        fields.bind(Schema((feature,))).compute(batch, every=True)
    assert "8 bytes" in caught.value.detail


def reciprocal(tensors: Tensors) -> Tensors:
    tf.debugging.assert_positive(tensors["width"] % 4)
    return area(tensors)


def test_the_rows_that_make_it_fail_are_found() -> None:
    made = made_by(reciprocal, AREA, rows=8)
    assert list(made.reasons) == [0, 4]
    why = "assertion failed: [] [Condition x > 0 did not hold element-wise:]"
    assert made.reasons[0][1] == raised("reciprocal", f"InvalidArgumentError: {why}")
    assert values(made) == [None, 1, 4, 9, None, 25, 36, 49]
    assert isinstance(made.error, tf.errors.InvalidArgumentError)
    first = bound_to(reciprocal, AREA).compute(boxes([1, 4, 8, 1]), every=False)
    assert list(first.reasons) == [1]


UNFULFILLED = "Condition x < y did not hold element-wise:"


def too_wide(widths: tf.Tensor) -> tf.Tensor:
    tf.debugging.assert_less(widths, tf.zeros_like(widths), message="too wide")
    return widths


def in_python(_widths: tf.Tensor) -> tf.Tensor:
    raise ValueError(f"no {'good ' * 10}at all")


def leaving(_widths: tf.Tensor) -> tf.Tensor:
    sys.exit(3)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (too_wide, f"InvalidArgumentError: assertion failed: [too wide] [{UNFULFILLED}]"),
        (lambda w: w // (w - w), "InvalidArgumentError: Integer division by zero"),
        (
            lambda w: tf.py_function(in_python, [w], tf.int64),
            f"InvalidArgumentError: ValueError: no {'good ' * 10}at all",
        ),
        (lambda w: tf.py_function(leaving, [w], tf.int64), "UnknownError: SystemExit: 3"),
        (
            lambda w: tf.strings.to_number(tf.strings.join(["secret", tf.as_string(w)])),
            "InvalidArgumentError: StringToNumberOp could not correctly convert string",
        ),
        (
            lambda w: tf.io.parse_example(
                tf.strings.join(["secret", tf.as_string(w)]),
                {"x": tf.io.FixedLenFeature([], tf.int64)},
            )["x"],
            "InvalidArgumentError: Could not parse example input",
        ),
    ],
)
def test_tensorflow_error_has_cause_without_values(
    function: Callable[[tf.Tensor], Any], told: str
) -> None:
    def fails(tensors: Tensors) -> Tensors:
        return {"area": tf.cast(function(tensors["width"]), tf.int64)}

    made = made_by(fails, AREA, rows=3)
    assert set(made.reasons.values()) == {(None, raised("fails", told))}


def test_traced_inner_error_names_cause() -> None:
    def inner(_tensors: Tensors) -> Tensors:
        raise ValueError("no such model")

    with raises(UDFError, "udf-trace-failed") as caught:
        bound_to(lambda tensors: {"area": inner(tensors)}, AREA)
    assert caught.value.message.endswith("ValueError: no such model")
    assert caught.value.hint is not None


def test_failed_batch_keeps_stream_order() -> None:
    bound = bound_to(reciprocal, AREA)
    batches = (boxes([number, number]) for number in range(1, 12))
    made = list(bound.stream(batches, every=True, workers=2))
    assert [list(one.reasons) for one in made] == [
        [0, 1] if number % 4 == 0 else [] for number in range(1, 12)
    ]
    assert [values(one)[0] for one in made] == [n if n % 4 else None for n in range(1, 12)]


def test_a_function_that_fails_on_no_row_alone_is_an_error() -> None:
    def function(tensors: Tensors) -> Tensors:
        tf.debugging.assert_less(tf.size(tensors["width"]), 3)
        return area(tensors)

    bound = bound_to(function, AREA)
    with raises(UDFError, "udf-depends-on-batch", first=0, last=3):
        bound.compute(boxes(range(4)), every=True)
    with raises(UDFError, "udf-depends-on-batch", first=0, last=3):
        list(bound.stream(iter([boxes([1]), boxes(range(4))]), every=True, workers=1))


def test_an_error_of_the_batches_comes_behind_what_was_read_before_it() -> None:
    def damaged() -> Iterator[pa.RecordBatch]:
        yield from numbered(6)
        raise DAMAGED

    made = bound_to(area, AREA).stream(damaged(), every=True, workers=2)
    assert [len(values(next(made))) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
    with pytest.raises(CorruptFileError) as caught:
        next(made)
    assert caught.value is DAMAGED


def test_a_stream_that_is_left_reads_no_further() -> None:
    taken = 0

    def batches() -> Generator[pa.RecordBatch, None, None]:
        nonlocal taken
        for number in range(10_000):
            taken += 1
            yield boxes([number])

    source = batches()
    with closing(bound_to(area, AREA).stream(source, every=True, workers=2)) as made:  # type: ignore[type-var] # a generator
        assert values(next(made)) == [0]
        assert values(next(made)) == [1]
    before = taken
    source.close()  # raises if anyone is still reading
    assert taken == before < 200


def test_several_threads_may_ask_at_once() -> None:
    bound = bound_to(area, AREA)
    found: dict[int, Sequence[Any]] = {}

    def work(number: int) -> None:
        batches = (boxes([number], [at]) for at in range(20))
        found[number] = [values(one)[0] for one in bound.stream(batches, every=True, workers=1)]
        found[-number] = values(bound.compute(boxes([number]), every=True))

    threads = [Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(1, 5):
        assert found[number] == [number * at for at in range(20)]
        assert found[-number] == [number]


@pytest.mark.parametrize(
    ("function", "code", "feature", "word"),
    [
        (lambda t: t["width"], "invalid-udf-result", None, "Tensor"),
        (lambda _: {}, "missing-feature", "area", "none"),
        (lambda t: {"area": t["width"], "x": t["width"]}, "unknown-feature", "x", "'area'"),
        (lambda t: {"area": tf.reduce_sum(t["width"])}, "value-mismatch", "area", "one value"),
        (
            lambda t: {"area": tf.strings.as_string(t["width"])},
            "value-mismatch",
            "area",
            "not int64",
        ),
        (lambda t: {"area": t["width"][:, tf.newaxis]}, "value-mismatch", "area", "a list"),
        (
            lambda t: {"area": tf.cast(t["width"], tf.complex64)},
            "value-mismatch",
            "area",
            "complex64",
        ),
        (
            lambda t: {"area": tf.sparse.from_dense(t["width"])},
            "invalid-udf-result",
            "area",
            "SparseTensor",
        ),
        (lambda t: {"area": t["width"].numpy()}, "udf-trace-failed", None, "numpy"),
        (lambda t: {"area": t["depth"]}, "udf-trace-failed", None, "KeyError: 'depth'"),
        (lambda _: sys.exit(3), "udf-trace-failed", None, "SystemExit: 3"),
    ],
)
def test_impossible_declaration_raises_before_reading(
    function: Callable[[Tensors], Any], code: str, feature: str | None, word: str
) -> None:
    with raises(UDFError, code, feature=feature) as caught:
        bound_to(function, AREA)
    assert word in caught.value.message


def test_a_wrong_number_of_rows_is_an_error() -> None:
    bound = bound_to(lambda tensors: {"area": tensors["width"][1:]}, AREA)
    with raises(UDFError, "length-mismatch", feature="area", first=0, last=2) as caught:
        bound.compute(boxes([1, 2, 3]), every=True)
    assert "2 rows" in caught.value.message
    with raises(UDFError, "length-mismatch", feature="area", first=0, last=2):
        list(bound.stream(iter([boxes([1, 2, 3])]), every=True))


def pipelines() -> int:
    """How many iterators of tf.data there are."""
    gc.collect()
    return sum(type(one).__name__ == "OwnedIterator" for one in gc.get_objects())


def test_a_pipeline_is_put_away_while_its_error_is_still_held() -> None:
    bound = bound_to(lambda tensors: {"area": tensors["width"][1:]}, AREA)
    before = pipelines()
    with pytest.raises(UDFError) as caught:
        list(bound.stream(iter([boxes([1, 2, 3])]), every=True))
    assert pipelines() == before
    assert caught.value.__traceback__ is not None


def test_it_is_given_no_more_records_at_a_time_than_it_says() -> None:
    seen = tf.Variable(0, dtype=tf.int64)

    def counted(tensors: Tensors) -> Tensors:
        rows = tf.shape(tensors["width"], tf.int64)[0]
        seen.assign(tf.maximum(seen, rows))
        return {"area": tf.math.floordiv(tf.constant(60, tf.int64), tensors["width"])}

    fields = tensor_udf(AREA, reads=["width"], batch=3)(counted)
    widths = [1, 2, 3, 4, 0, 6, 5, 4, 3, 2]
    made = both_ways(fields.bind(BOXES), boxes(widths))
    assert int(seen) <= 3
    assert list(made.reasons) == [4]
    assert values(made) == [None if width == 0 else 60 // width for width in widths]


def test_a_batch_of_no_records_is_refused() -> None:
    with raises(UDFError, "invalid-argument") as caught:
        tensor_udf(AREA, reads=["width"], batch=0)(area)
    assert "batch" in caught.value.message
