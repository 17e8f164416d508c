"""TFRecord files as sources: payloads as they are, and what is between damaged ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.errors import CorruptFileError, NothingToSalvageError, SchemaMismatchError
from shardline.hints import Command
from shardline.operations.salvage import salvage
from shardline.schema.schema import Feature, Schema
from shardline.sources import open_source
from tests.errors import raises
from tests.kernel import examples
from tests.kernel.frames import framed
from tests.sources.reading import changes_in, take
from tests.tfrecord.samples import (
    example_of,
    flipped,
    gzip_member,
    is_subsequence,
    made,
    packed,
    records_of,
    sequence_of,
)

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema((Feature("a", "int64"), Feature("b", "bytes", required=False)))
PAYLOADS = [example_of(a=at, b=b"x" * at) for at in range(60)]


def test_payloads_keep_their_bytes_whatever_the_order_of_their_fields(tmp_path: Path) -> None:
    entries = [
        examples.entry("b", examples.bytes_feature(b"x")),
        examples.entry("a", examples.int64_feature(5)),
    ]
    odd = [examples.example(*order) for order in (entries, entries[::-1])]
    found = take(open_source(made(tmp_path / "a.tfrecord", framed(*odd))), SCHEMA)
    assert found.payloads == odd


def test_opaque_records_are_taken_whatever_they_are(tmp_path: Path) -> None:
    payloads = [b"", b"\xff" * 9, b"text"]
    source = open_source(made(tmp_path / "a.tfrecord", framed(*payloads)))
    assert take(source, Schema.opaque()).payloads == payloads
    with raises(SchemaMismatchError, "invalid-example", record=1, path=source.label) as caught:
        source.infer()
    assert "Schema.opaque()" in str(caught.value.hint)


def test_sequence_examples_are_taken(tmp_path: Path) -> None:
    payloads = [sequence_of({"a": at}, s=[[1, 2], [3, 4]]) for at in range(3)]
    source = open_source(made(tmp_path / "a.tfrecord", framed(*payloads)))
    schema = source.infer()
    assert schema.payload == "sequence_example"
    assert take(source, schema).payloads == payloads


def test_records_of_another_schema_are_told_as_such(tmp_path: Path) -> None:
    source = open_source(made(tmp_path / "a.tfrecord", framed(*[example_of(a=1.5, c=1)] * 3)))
    with raises(SchemaMismatchError, "schema-mismatch", path=source.label) as caught:
        take(source, SCHEMA)
    assert changes_in(caught.value) == [
        ("a", "kind", "int64", "float"),
        ("c", "added", "", "int64 [] required"),
    ]


def test_records_that_fit_nowhere_but_have_the_right_features_are_refused(tmp_path: Path) -> None:
    source = open_source(made(tmp_path / "a.tfrecord", framed(*[example_of(a=[1, 2])] * 3)))
    assert len(take(source, SCHEMA).refused) == 3


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_damage_is_told_with_the_way_to_save_the_rest(tmp_path: Path, compression: str) -> None:
    data = packed(compression, framed(*PAYLOADS))
    path = made(tmp_path / "a.tfrecord", flipped(data, 8 * (len(data) // 2)))
    with raises(CorruptFileError, "corrupt-file", path=str(path)) as caught:
        take(open_source(path), SCHEMA)
    assert caught.value.hint is not None
    assert caught.value.hint.commands == (Command.of("salvage", str(path), "-o", "OUT"),)


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_salvage_takes_what_the_command_would_save(tmp_path: Path, compression: str) -> None:
    data = packed(compression, framed(*PAYLOADS))
    for place in range(40, len(data), max(len(data) // 12, 1)):
        path = made(tmp_path / "a.tfrecord", flipped(data, 8 * place))
        out = tmp_path / f"out-{place}"
        found = take(open_source(path, salvage=True), SCHEMA)
        try:
            report = salvage(path, out)
        except NothingToSalvageError:
            assert found.payloads == []
            continue
        assert found.payloads == records_of(out)
        assert len(found.refused) == len(report.gaps)
        assert [refused.where for refused in found.refused] == [
            f"offset {gap.offset}" for gap in report.gaps
        ]


def test_a_gap_is_refused_with_what_was_in_it(tmp_path: Path) -> None:
    data = framed(*PAYLOADS[:3])
    first = len(framed(PAYLOADS[0]))
    second = len(framed(PAYLOADS[1]))
    path = made(tmp_path / "a.tfrecord", flipped(data, 8 * (first + 14)))
    found = take(open_source(path, salvage=True), SCHEMA)
    assert found.rows == [0, 2]
    (refused,) = found.refused
    assert (refused.row, refused.where, refused.feature) == (1, f"offset {first}", None)
    assert refused.detail.startswith("data-crc: ")
    assert refused.damage
    assert [int(word) for word in refused.detail.split() if word.isdigit()] == [
        len(PAYLOADS[1]),
        second,
    ]
    assert refused.content == path.read_bytes()[first : first + second]
    assert take(open_source(path, salvage=True), SCHEMA, 2).refused == []


def test_a_file_that_ends_in_a_gap_tells_of_it(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*PAYLOADS[:3]) + b"stray")
    found = take(open_source(path, salvage=True), SCHEMA)
    assert found.rows == [0, 1, 2]
    assert [refused.row for refused in found.refused] == [3]
    assert found.ends[-1] == 4


def test_a_record_that_a_damaged_stream_repeats_is_not_taken_twice(tmp_path: Path) -> None:
    payloads: list[bytes] = []
    for number in range(8):
        inner = examples.seeded(number).randbytes(24)
        payloads += [inner, b"before" + framed(inner) + b"behind"]
    whole = gzip_member(framed(*payloads))
    repeats = 0
    for bit in range(80, len(whole) * 8, 7):
        path = made(tmp_path / "a.tfrecord", flipped(whole, bit))
        found = take(open_source(path, format="tfrecord", salvage=True), Schema.opaque())
        assert is_subsequence(found.payloads, payloads), f"bit {bit}"
        repeats += sum("repeats a record" in refused.detail for refused in found.refused)
    assert repeats, "some of this damage must bring a record again, or nothing was tried"
