"""`shardline files`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.api import Version
from shardline.log.model import Checks
from shardline.schema.schema import Feature, Schema
from shardline.schema.tf_spec import format_spec, from_tf_spec, to_tf_spec
from tests.cli.datasets import file_of, land, landed, on, write_rows
from tests.kernel.frames import framed
from tests.log.versions import NAME, make_version
from tests.tfrecord.samples import made, sequence_of

if TYPE_CHECKING:
    from pathlib import Path


def test_the_published_files_are_listed_in_order_ready_for_a_shell(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    land(version, "three")
    paths = [str(file_of(tmp_path, label)) for label in ("one", "two", "three")]
    result = on(tmp_path, "files", NAME)
    assert (result.code, result.err, result.out.splitlines()) == (0, "", paths[:2])
    assert on(tmp_path, "files", f"{NAME}@latest").out.splitlines() == paths
    assert on(tmp_path, "files", f"{NAME}@1", "-0").out == f"{paths[0]}\0"


def test_json_tells_records_bytes_and_digest(tmp_path: Path) -> None:
    (shard,) = landed(tmp_path, "one").latest().shards
    told = on(tmp_path, "files", NAME, "--json").json
    assert (told["ok"], told["snapshot"]["snapshot"]) == (True, 1)
    assert told["files"] == [
        {
            "file": str(file_of(tmp_path, "one")),
            "records": 3,
            "bytes": shard.bytes,
            "sha256": shard.sha256,
            "compression": "none",
        }
    ]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_python_that_is_printed_reads_the_records(tmp_path: Path, compression: str) -> None:
    rows = write_rows(tmp_path / "a.jsonl", range(5))
    assert on(tmp_path, "append", NAME, rows, "--compression", compression).code == 0
    result = on(tmp_path, "files", NAME, "--python")
    names: dict[str, Any] = {}
    exec(result.out, names)  # noqa: S102 - it is meant to be pasted and run
    assert [int(record["x"]) for record in names["dataset"]] == list(range(5))


def test_the_python_reads_sequences_and_opaque_records_too(tmp_path: Path) -> None:
    source = made(tmp_path / "a.tfrecord", framed(sequence_of({"id": 1}, tokens=[[1], [2]])))
    assert on(tmp_path, "append", NAME, source).code == 0
    names: dict[str, Any] = {}
    exec(on(tmp_path, "files", NAME, "--python").out, names)  # noqa: S102
    ((context, lists),) = list(names["dataset"])
    assert int(context["id"]) == 1
    assert tf.squeeze(lists["tokens"]).numpy().tolist() == [1, 2]
    opaque = made(tmp_path / "s.json", b'{"payload": "opaque", "features": []}')
    anything = made(tmp_path / "b.tfrecord", framed(b"any", b"thing"))
    assert on(tmp_path, "append", "digits/v2", anything, "--schema", opaque).code == 0
    exec(on(tmp_path, "files", "digits/v2", "--python").out, names)  # noqa: S102
    assert list(names["dataset"].as_numpy_iterator()) == [b"any", b"thing"]


def test_of_an_object_store_the_python_reads_through_us(s3_root: str, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "a.jsonl", range(5))
    assert on(s3_root, "append", NAME, rows).code == 0
    result = on(s3_root, "files", NAME, "--python")
    assert "tensorflow as tf" not in result.out
    names: dict[str, Any] = {}
    exec(result.out, names)  # noqa: S102 - it is meant to be pasted and run
    assert [int(record["x"]) for record in names["dataset"]] == list(range(5))


def test_files_packed_in_two_ways_have_no_python_and_are_told_with_code_2(tmp_path: Path) -> None:
    for first, compression in enumerate(("none", "gzip")):
        rows = write_rows(tmp_path / f"{compression}.jsonl", range(first, 5))
        assert on(tmp_path, "append", NAME, rows, "--compression", compression).code == 0
    result = on(tmp_path, "files", NAME, "--python")
    assert (result.code, result.out) == (2, "")
    assert "(gzip, none)" in result.err
    assert len(on(tmp_path, "files", NAME).out.splitlines()) == 2


def test_what_has_no_files_to_read_is_told_with_code_2(tmp_path: Path) -> None:
    land(make_version(tmp_path), "one")
    make_version(tmp_path, "digits/v2", checks=Checks())
    for arguments, code in (
        ([NAME], "version-unpublished"),
        ([f"{NAME}@2"], "snapshot-not-found"),
        (["digits/v2"], "version-empty"),
        (["digits"], "missing-version"),
        ([f"{NAME}@1", "-0"], "conflicting-options"),
    ):
        result = on(tmp_path, "files", *arguments, "--json")
        assert result.problem == (2, code), arguments


FEATURES = (
    Feature("one", "int64"),
    Feature("fixed", "float", (2, 3)),
    Feature("maybe", "bytes", required=False),
    Feature("many", "int64", (None,)),
    Feature("rows", "float", (None, 3, 2), required=False),
    Feature('"quoted"\n', "bytes"),
)
STEPS = (
    Feature("step", "int64", sequence=True),
    Feature("matrix", "float", (2, 2), sequence=True, required=False),
    Feature("ragged", "bytes", (None,), sequence=True),
)


def test_the_spec_in_words_is_the_spec_itself() -> None:
    names: dict[str, Any] = {"tf": tf}
    schema = Schema(FEATURES)
    exec(format_spec(schema), names)  # noqa: S102 - it is meant to be pasted and run
    spec = to_tf_spec(schema)
    assert isinstance(spec, dict)
    assert from_tf_spec(names["features"]) == from_tf_spec(spec)
    schema = Schema((*FEATURES, *STEPS), "sequence_example")
    exec(format_spec(schema), names)  # noqa: S102 - it is meant to be pasted and run
    pair = to_tf_spec(schema)
    assert isinstance(pair, tuple)
    printed = from_tf_spec(names["context_features"], names["sequence_features"])
    assert printed == from_tf_spec(*pair)


def test_a_version_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    result = on(tmp_path, "files", NAME, "--json")
    assert result.problem == (2, "dataset-not-found")
    assert list(tmp_path.iterdir()) == []
    assert not Version(tmp_path, NAME).exists
