"""Records against a schema: the same verdicts as looking at each record by itself, only faster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.errors import SchemaMismatchError
from shardline.schema.file_schema import infer_schema, schema_of
from shardline.schema.schema import Array, Category, Feature, Image, Schema, Text
from shardline.schema.validation import Violation, find_violations
from shardline.tfrecord.reader import RecordFile
from shardline.tfrecord.record_block import RecordBlock
from tests.errors import raises
from tests.kernel import examples
from tests.kernel.frames import framed
from tests.log.schemas import JPEG, PNG, misfits, records, related, schemas, size
from tests.sampling import drawn
from tests.tfrecord.samples import example_of, made, sequence_of

if TYPE_CHECKING:
    from pathlib import Path


def block_of(*payloads: bytes, record: int = 0) -> RecordBlock:
    laid = examples.block(payloads)
    return RecordBlock(memoryview(laid.data), 0, record, laid.starts, laid.lengths)


def found(schema: Schema, *payloads: bytes) -> list[tuple[int, str | None]]:
    return [(v.record, v.feature) for v in find_violations(schema, block_of(*payloads))]


def expected(schema: Schema, *payloads: bytes) -> list[tuple[int, str | None]]:
    return [
        (record, name)
        for record, payload in enumerate(payloads)
        for name in misfits(schema, payload)
    ]


@pytest.mark.sweep
@settings(max_examples=drawn(300))
@given(st.data())
def test_records_that_fit_are_never_complained_about(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    contents = data.draw(st.lists(records(schema), max_size=8))
    assert found(schema, *(content.payload() for content in contents)) == []


@pytest.mark.sweep
@settings(max_examples=drawn(500))
@given(st.data())
def test_the_verdicts_are_those_of_looking_at_each_record_by_itself(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    others = [schema, schema, data.draw(related(schema)), data.draw(related(schema))]
    payloads = [
        data.draw(records(data.draw(st.sampled_from(others)))).payload()
        for _ in range(data.draw(st.integers(1, 10)))
    ]
    assert found(schema, *payloads) == expected(schema, *payloads)


@pytest.mark.parametrize("seed", range(40))
def test_payloads_that_are_no_examples_are_told_among_the_others(seed: int) -> None:
    rng = examples.seeded(seed)
    schema = Schema(
        (Feature("a", "float", (None,), required=False, nan=True), Feature("b", "float", (None,))),
        "sequence_example",
    )
    payloads = [
        examples.random_payload(rng, sequence=rng.random() < 0.3, odd=rng.choice((0, 0, 0.05)))
        for _ in range(60)
    ]
    payloads += [examples.mutated(rng, payloads[i], payloads[i + 1]) for i in range(40)]
    rng.shuffle(payloads)
    assert found(schema, *payloads) == expected(schema, *payloads)


def test_a_payload_that_is_no_example_is_told_with_its_offset_and_not_its_bytes() -> None:
    secret = example_of(a=b"secret") + b"\x22\x06secret"
    named = examples.example(examples.entry("f", b"\x20\x01"))
    schema = Schema((Feature("a", "bytes"),))
    told = list(find_violations(schema, block_of(secret, named)))
    assert [(violation.record, violation.feature) for violation in told] == [(0, None), (1, "f")]
    assert f"at byte {len(secret) - 8}" in told[0].detail
    assert "at byte 9" in told[1].detail
    assert not any("secret" in violation.detail for violation in told)


A = Feature("a", "int64")
B = Feature("a", "bytes")
REASONS: list[tuple[Feature, bytes, str]] = [
    (A, example_of(), "is missing, and is required"),
    (A, examples.example(examples.entry("a", b"")), "is missing, and is required"),
    (A, example_of(a=1.5), "holds float values, not int64"),
    (A, example_of(a=[1, 2]), "holds 2 values, not 1"),
    (A, example_of(a=[]), "holds 0 values, not 1"),
    (replace(A, shape=(28, 28)), example_of(a=[1, 2]), "holds 2 values, not 784"),
    (replace(A, shape=(None, 3)), example_of(a=[1] * 4), "holds 4 values, not a multiple of 3"),
    (Feature("a", "float", (2,)), example_of(a=[1.0, float("nan")]), "holds NaN"),
    (replace(B, meaning=Text()), example_of(a=b"\xff"), "holds bytes that are not UTF-8 text"),
    (replace(B, meaning=Category()), example_of(a=b"\xff"), "holds bytes that are not UTF-8 text"),
    (
        replace(A, meaning=Category(("x", "y"))),
        example_of(a=2),
        "holds a number outside of 0 to 1, its labels",
    ),
    (
        replace(A, meaning=Category(("x", "y"))),
        example_of(a=-1),
        "holds a number outside of 0 to 1, its labels",
    ),
    (
        replace(B, meaning=Category(("x", "y"))),
        example_of(a=b"z"),
        "holds a text that is none of its labels",
    ),
    (
        replace(B, meaning=Image("png")),
        example_of(a=JPEG + b"....."),
        "holds bytes that do not begin as a png file does",
    ),
    (
        replace(B, meaning=Image("jpeg")),
        example_of(a=b""),
        "holds bytes that do not begin as a jpeg file does",
    ),
    (
        replace(B, meaning=Array("int32", (2,))),
        example_of(a=bytes(16)),
        "holds 16 bytes, and int32 array [2] takes 8 bytes",
    ),
    (
        replace(B, meaning=Array("int32", (None, 2))),
        example_of(a=bytes(12)),
        "holds 12 bytes, and int32 array [?, 2] takes a multiple of 8 bytes",
    ),
    (
        replace(B, shape=(3,), meaning=Array("int16", (None,))),
        example_of(a=[bytes(2), bytes(5), bytes(8)]),
        "holds 5 bytes, and int16 array [?] takes a multiple of 2 bytes",
    ),
    (
        replace(A, sequence=True),
        sequence_of({}, a=[[1], [2, 3], [4]]),
        "holds 2 values in a step, not 1",
    ),
    (
        replace(A, sequence=True, shape=(None, 2)),
        sequence_of({}, a=[[], [1, 2, 3], [1, 2, 3, 4]]),
        "holds 3 values in a step, not a multiple of 2",
    ),
    (replace(A, sequence=True), sequence_of({}, a=[[1.0]]), "holds float values, not int64"),
    (replace(A, sequence=True), sequence_of({}), "is missing, and is required"),
    (
        replace(B, sequence=True, meaning=Category(("x", "y"))),
        sequence_of({}, a=[[b"x"], [b"z"]]),
        "holds a text that is none of its labels",
    ),
]


def good_value(feature: Feature) -> float | bytes:
    meaning = feature.meaning
    if feature.kind != "bytes":
        return 1 if feature.kind == "int64" else 1.0
    if isinstance(meaning, Image):
        return PNG if meaning.encoding == "png" else JPEG
    return bytes(8) if isinstance(meaning, Array) else b"x"


@pytest.mark.parametrize(("feature", "payload", "detail"), REASONS)
def test_each_reason_is_told_alone_and_among_records_that_fit(
    feature: Feature, payload: bytes, detail: str
) -> None:
    schema = Schema((feature,), "sequence_example")
    assert list(find_violations(schema, block_of(payload))) == [Violation(0, "a", detail)]
    value = [good_value(feature)] * size(feature.shape)
    good = sequence_of({}, a=[value, value]) if feature.sequence else example_of(a=value)
    around = block_of(good, good, good, payload, good, record=70)
    assert list(find_violations(schema, around)) == [Violation(73, "a", detail)]


def test_a_feature_that_is_not_in_the_schema_is_told() -> None:
    schema = Schema((Feature("a", "int64"),), "sequence_example")
    payloads = [example_of(a=1, b=2), sequence_of({"a": 1}, a=[[1]]), example_of(a=1)]
    told = list(find_violations(schema, block_of(*payloads)))
    assert [(violation.record, violation.feature) for violation in told] == [(0, "b"), (1, "a")]
    assert ["feature_lists" in violation.detail for violation in told] == [False, True]


def test_feature_lists_do_not_fit_a_schema_of_plain_examples() -> None:
    schema = Schema((Feature("a", "int64"),))
    assert found(schema, sequence_of({"a": 1}, s=[[1]])) == [(0, "s")]
    assert found(schema, sequence_of({"a": 1})) == []


def test_a_record_with_several_faults_has_one_reason_per_feature_in_their_order() -> None:
    schema = Schema(
        (
            Feature("c", "bytes", (None,), meaning=Category(("x",))),
            Feature("b", "float", (2,)),
            Feature("d", "int64"),
        )
    )
    bad = example_of(c=[b"y", b"z"], b=[float("nan")], a=1)
    assert found(schema, bad) == [(0, "a"), (0, "b"), (0, "c"), (0, "d")]


def test_a_wrong_value_deep_in_the_steps_is_told_of_its_own_record() -> None:
    labels = Category(("x", "y"))
    schema = Schema(
        (Feature("s", "bytes", (None,), meaning=labels, sequence=True),), "sequence_example"
    )
    payloads = [sequence_of({}, s=[[b"x", b"y", b"x"], [], [b"y", b"y"]])] * 6
    payloads[2] = sequence_of({}, s=[[b"x"], [b"x", b"y", b"y"], [b"x", b"z"]])
    payloads[4] = sequence_of({}, s=[])
    payloads[5] = sequence_of({}, s=[[], [b"z"]])
    assert found(schema, *payloads) == [(2, "s"), (5, "s")]


def test_what_facts_can_tell_does_not_hide_what_they_cannot() -> None:
    schema = Schema((Feature("a", "int64"), Feature("b", "bytes", meaning=Category(("x", "y")))))
    payloads = [example_of(a=1, b=b"x")] * 40
    payloads[3] = example_of(a=1, b=b"z")
    payloads[21] = example_of(a=1.5, b=b"x")
    payloads[22] = example_of(a=1.5, b=b"z")
    assert found(schema, *payloads) == [(3, "b"), (21, "a"), (22, "a"), (22, "b")]


def test_steps_of_a_feature_list_without_any_fit_every_kind() -> None:
    schema = Schema((Feature("s", "bytes", sequence=True),), "sequence_example")
    assert found(schema, sequence_of({}, s=[]), sequence_of({}, s=[[b"x"]])) == []


def test_an_opaque_schema_takes_anything() -> None:
    assert found(Schema.opaque(), b"", b"\xff no Example", example_of(a=1)) == []


def test_an_empty_block_fits() -> None:
    assert found(Schema((Feature("a", "int64"),))) == []


def test_no_more_are_told_than_asked_for() -> None:
    schema = Schema((Feature("a", "int64"),))
    bad = block_of(*[example_of(b=1)] * 100, record=5)
    some = list(find_violations(schema, bad, limit=3))
    assert [(v.record, v.feature) for v in some] == [(5, "a"), (5, "b"), (6, "a")]
    assert list(find_violations(schema, bad, limit=0)) == []
    assert len(list(find_violations(schema, bad))) == 200


@pytest.mark.parametrize("place", [0, 1, 511, 998, 999])
def test_one_bad_record_among_a_thousand_is_found(place: int) -> None:
    payloads = [example_of(a=number % 7, b=[0.5, 1.5]) for number in range(1000)]
    payloads[place] = example_of(a=7, b=[0.5, 1.5])
    labels = tuple("abcdefg")
    schema = Schema((Feature("a", "int64", meaning=Category(labels)), Feature("b", "float", (2,))))
    assert found(schema, *payloads) == [(place, "a")]


def test_records_are_numbered_as_they_are_in_their_file(tmp_path: Path) -> None:
    payloads = [example_of(a=number) for number in range(200)]
    for bad in (3, 77, 78, 199):
        payloads[bad] = example_of(a=float(bad))
    schema = Schema((Feature("a", "int64"),))
    with RecordFile(made(tmp_path / "a", framed(*payloads)), block_bytes=512) as file:
        numbers = [v.record for block in file.blocks() for v in find_violations(schema, block)]
    assert numbers == [3, 77, 78, 199]


def test_no_message_holds_what_a_record_holds() -> None:
    secret = b"secret\xff"
    schema = Schema(
        (
            Feature("count", "bytes", (2,)),
            Feature("image", "bytes", meaning=Image("png")),
            Feature("kind", "int64"),
            Feature("label", "bytes", (None,), meaning=Category(("x",))),
            Feature("number", "int64", meaning=Category(("x",))),
            Feature("raw", "bytes", meaning=Array("int64", (None,))),
            Feature("text", "bytes", meaning=Text()),
        )
    )
    bad = example_of(
        count=secret, image=secret, kind=secret, label=[b"secret"], number=4711, raw=secret,
        text=secret, other=secret,
    )  # fmt: skip
    told = list(find_violations(schema, block_of(bad)))
    assert len(told) == 8
    assert not any("secret" in v.detail or "4711" in v.detail for v in told)


@settings(max_examples=60)
@given(st.data())
def test_the_inferred_schema_fits_the_records_it_was_inferred_from(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    contents = data.draw(st.lists(records(data.draw(schemas())), max_size=5))
    payloads = [content.payload() for content in contents]
    path = made(tmp_path_factory.mktemp("inferred") / "a", framed(*payloads))
    merged = infer_schema([path]).merged
    if any(not feature.kinds for feature in merged.features):
        with raises(SchemaMismatchError, "unknown-kind"):
            schema_of(merged)
        return
    schema = schema_of(merged)
    assert found(schema, *payloads) == expected(schema, *payloads) == []
    assert all(feature.meaning is None for feature in schema.features)


def test_the_inferred_schema_tells_what_all_records_share(tmp_path: Path) -> None:
    payloads = [
        example_of(one=1, eight=[0.5] * 8, some=[b"a"], seldom=5, none=[], odd=[float("nan")]),
        example_of(one=2, eight=[1.5] * 8, some=[b"a", b"b"], none=[], odd=[1.0]),
    ]
    inferred = schema_of(infer_schema([made(tmp_path / "a", framed(*payloads))]).merged)
    assert inferred == Schema(
        (
            Feature("eight", "float", (8,)),
            Feature("none", "int64", (None,)),
            Feature("odd", "float", nan=True),
            Feature("one", "int64"),
            Feature("seldom", "int64", required=False),
            Feature("some", "bytes", (None,)),
        )
    )


def test_the_inferred_schema_of_sequences_tells_the_shape_of_a_step(tmp_path: Path) -> None:
    payloads = [
        sequence_of({"id": 1}, frames=[[1.0, 2.0], [3.0, 4.0]], words=[[b"a"], []], hollow=[[]]),
        sequence_of({"id": 2}, frames=[], words=[[b"a"]]),
    ]
    inferred = schema_of(infer_schema([made(tmp_path / "a", framed(*payloads))]).merged)
    assert inferred == Schema(
        (
            Feature("id", "int64"),
            Feature("frames", "float", (2,), sequence=True),
            Feature("hollow", "int64", (None,), sequence=True, required=False),
            Feature("words", "bytes", (None,), sequence=True),
        ),
        "sequence_example",
    )


def test_two_kinds_in_one_feature_have_no_schema(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(example_of(a=1), example_of(a=1.5)))
    with raises(SchemaMismatchError, "mixed-kinds", feature="a"):
        schema_of(infer_schema([path]).merged)


def test_no_records_have_an_empty_schema(tmp_path: Path) -> None:
    assert schema_of(infer_schema([made(tmp_path / "a", b"")]).merged) == Schema()


def test_large_values_in_one_block_are_judged_each_by_itself() -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(0, 4, 3000)
    payloads = [example_of(a=bytes(int(size) * 4)) for size in sizes]
    schema = Schema((Feature("a", "bytes", meaning=Array("int32", (None, 2))),))
    bad = [(int(place), "a") for place in np.flatnonzero(sizes % 2)]
    assert found(schema, *payloads) == bad
