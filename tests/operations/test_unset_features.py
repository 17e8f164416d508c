"""Records with unset features: read as missing, copied as they are, never written or added to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.api import Version
from shardline.errors import ColumnError, InvalidRecordsError
from shardline.hints import Option
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.erase import erase
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.preview import preview
from shardline.operations.rebuild import rebuild
from shardline.operations.verify_files import verify_file
from shardline.operations.verify_version import verify_version
from shardline.schema.file_schema import infer_schema
from shardline.schema.schema import Feature, Schema
from shardline.udf import batch_udf
from tests.errors import raises
from tests.kernel.examples import bytes_feature, entry, example, int64_feature
from tests.kernel.frames import framed
from tests.operations.combinations import combined, contents, side
from tests.operations.extensions import double, table, version_in
from tests.operations.landings import payloads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from shardline.udf.batch_function import BatchUDF

SCHEMA = Schema((Feature("id", "int64"), Feature("note", "bytes", required=False)))
RECORDS = [
    example(entry("id", int64_feature(0)), entry("note", bytes_feature(b"x"))),
    example(entry("double", b""), entry("id", int64_feature(1)), entry("note", b"")),
    example(entry("id", int64_feature(2)), entry("key", b"")),
]
IDS, NOTES, DOUBLES = [0, 1, 2], [b"x", None, None], [0, 2, 4]


def source_in(tmp_path: Path, *records: bytes) -> Path:
    path = tmp_path / "unset.tfrecord"
    path.write_bytes(framed(*records))
    return path


def landed(tmp_path: Path, records: Sequence[bytes] = RECORDS) -> Version:
    """A published version of these records."""
    version = Version(tmp_path / "root", "digits/v1")
    append(version, [source_in(tmp_path, *records)], schema=SCHEMA)
    assert check_version(version).ok
    return version


def names_in(records: list[bytes]) -> list[set[str]]:
    """The names in each record as protobuf reads them, also of unset features."""
    return [set(tf.train.Example.FromString(record).features.feature) for record in records]


def test_append_reads_unset_feature_as_missing(tmp_path: Path) -> None:
    version = landed(tmp_path)
    assert payloads(version) == RECORDS
    assert verify_version(version).ok
    snapshot = version.published()
    assert table(snapshot) == {"id": IDS, "note": NOTES}
    assert snapshot.take([2, 1]).to_pydict() == {"id": [2, 1], "note": [None, None]}
    read = list(snapshot.to_tf(unchecked=True))
    assert [int(record["id"]) for record in read] == IDS
    assert [record["note"].numpy().tolist() for record in read] == [[b"x"], [], []]


def test_append_unset_required_feature_is_refused(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", "digits/v1")
    path = source_in(tmp_path, RECORDS[0], example(entry("id", b"")))
    with raises(InvalidRecordsError, "invalid-rows", record=1) as caught:
        append(version, [path], schema=SCHEMA)
    assert "id" in str(caught.value.refused[0])


def test_append_same_key_set_and_unset_is_refused(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", "digits/v1")
    path = source_in(tmp_path, RECORDS[0], RECORDS[0] + example(entry("id", b"")))
    with raises(InvalidRecordsError, "invalid-rows", record=1):
        append(version, [path], schema=SCHEMA)


def test_files_with_unset_features_are_sound(tmp_path: Path) -> None:
    path = source_in(tmp_path, *RECORDS)
    assert verify_file(path, examples=True).faults == []
    found = infer_schema([path]).merged.features
    assert [(feature.name, feature.required) for feature in found] == [
        ("id", True),
        ("note", False),
    ]
    assert [set(record.features or ()) for record in preview(path)] == [
        {"id", "note"},
        {"id"},
        {"id"},
    ]


@batch_udf(Feature("half", "int64"), reads=["id"], code="1")
def half(batch: pa.RecordBatch) -> dict[str, Any]:
    """A feature that no record has unset."""
    return {"half": [number // 2 for number in batch["id"].to_pylist()]}


@pytest.mark.parametrize("made", [double, half], ids=["the same name", "another name"])
def test_overlay_over_undeclared_unset_is_refused(tmp_path: Path, made: BatchUDF) -> None:
    base, into = landed(tmp_path), version_in(tmp_path)
    with raises(ColumnError, "unset-feature", record=1, feature="double") as caught:
        extend(base, made, into)
    assert caught.value.hint is not None
    assert Option("mode", "rewrite") in caught.value.hint.parts
    assert not into.exists


def test_overlay_over_declared_unset_reads_missing(tmp_path: Path) -> None:
    records = [RECORDS[0], example(entry("id", int64_feature(1)), entry("note", b""))]
    base, into = landed(tmp_path, records), version_in(tmp_path)
    extend(base, half, into)
    assert check_version(into).ok
    assert verify_version(into).ok
    snapshot = into.published()
    assert table(snapshot) == {"half": [0, 0], "id": [0, 1], "note": [b"x", None]}
    read = list(snapshot.to_tf(unchecked=True))
    assert [record["note"].numpy().tolist() for record in read] == [[b"x"], []]
    whole = [record.numpy() for record in snapshot.to_tf(parse=False, unchecked=True)]
    note = {"note": tf.io.FixedLenFeature([], tf.string, "-")}
    parsed = tf.io.parse_example(whole, note)["note"].numpy().tolist()
    assert parsed == [tf.io.parse_single_example(one, note)["note"].numpy() for one in whole]
    assert parsed == [b"x", b"-"]


def test_rewrite_leaves_unset_features_out(tmp_path: Path) -> None:
    base, into = landed(tmp_path), version_in(tmp_path)
    extend(base, half, into, mode="rewrite")
    assert check_version(into).ok
    assert verify_version(into).ok
    assert table(into.published()) == {"half": [0, 0, 1], "id": IDS, "note": NOTES}
    assert names_in(payloads(into)) == [{"half", "id", "note"}, *[{"half", "id"}] * 2]


def test_rewrite_replaces_unset_feature(tmp_path: Path) -> None:
    base, into = landed(tmp_path), version_in(tmp_path)
    extend(base, double, into, mode="rewrite")
    assert check_version(into).ok
    assert table(into.published()) == {"double": DOUBLES, "id": IDS, "note": NOTES}
    assert names_in(payloads(into)) == [{"double", "id", "note"}, *[{"double", "id"}] * 2]


def test_migrate_renames_onto_unset_name(tmp_path: Path) -> None:
    base, into = landed(tmp_path), version_in(tmp_path)
    migrate(base, MigrationSpec(rename={"id": "key"}), into)
    assert check_version(into).ok
    assert table(into.published()) == {"key": IDS, "note": NOTES}
    assert names_in(payloads(into)) == [{"key", "note"}, {"key"}, {"key"}]


@pytest.mark.parametrize("mode", ["materialized", "virtual"])
def test_combine_pairs_onto_unset_name(tmp_path: Path, mode: str) -> None:
    left = side(tmp_path, "lefts/v1", SCHEMA, RECORDS)
    other = Schema((Feature("double", "int64"), Feature("key", "int64")))
    record = example(
        entry("double", int64_feature(7)), entry("id", b""), entry("key", int64_feature(8))
    )
    into = Version(tmp_path, "pairs/v1")
    combined(left, side(tmp_path, "rights/v1", other, [record]), into, mode=mode)
    read = table(into.latest())
    assert read == {"double": [7] * 3, "id": IDS, "key": [8] * 3, "note": NOTES}
    if mode == "materialized":
        wanted = [{"double", "id", "key", "note"}, *[{"double", "id", "key"}] * 2]
        assert names_in(contents(into)[0]) == wanted


@pytest.mark.parametrize("rule", ["keep-left", "keep-right"])
def test_combine_collision_with_unset_name(tmp_path: Path, rule: str) -> None:
    left = side(tmp_path, "lefts/v1", SCHEMA, RECORDS)
    unset = example(entry("id", int64_feature(9)), entry("note", b""))
    right = side(tmp_path, "rights/v1", SCHEMA, [unset])
    into = Version(tmp_path, "pairs/v1")
    combined(left, right, into, on_collision=rule)
    wanted = (
        {"id": IDS, "note": NOTES} if rule == "keep-left" else {"id": [9] * 3, "note": [None] * 3}
    )
    assert table(into.latest()) == wanted
    assert all(set(names) <= {"id", "note"} for names in names_in(contents(into)[0]))


def test_rebuild_and_erase_copy_unset_features(tmp_path: Path) -> None:
    version = landed(tmp_path)
    rebuild(version)
    assert payloads(version) == RECORDS
    erase(tmp_path / "root", "digits", key="id", values=[0])
    version = Version(tmp_path / "root", "digits/v1")
    assert payloads(version) == RECORDS[1:]
    assert table(version.published()) == {"id": [1, 2], "note": [None, None]}
