"""Files written by us and read by TensorFlow, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tensorflow as tf

from shardline.operations.verify_files import verify_file
from shardline.tfrecord.writer import write_records
from tests.tfrecord.samples import (
    example_of,
    read_by_tensorflow,
    records_of,
    sequence_of,
    write_by_tensorflow,
)

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = [
    example_of(label=3, weights=[0.5, -1.5], name=b"cat"),
    example_of(label=[], weights=[1.0]),
    example_of(),
    example_of(image=bytes(range(256)) * 300, label=-(2**63)),
]
SEQUENCES = [
    sequence_of({"id": b"a"}, tokens=[[1, 2], [3]], marks=[[0.5], []]),
    sequence_of({}, tokens=[]),
    sequence_of({"id": [b""]}, tokens=[[]]),
]
OPAQUE = [b"", b'{"not": "an Example"}', bytes(1000), b"\xff" * 17]
CONTENTS = {
    "Examples": EXAMPLES,
    "SequenceExamples": SEQUENCES,
    "opaque payloads": OPAQUE,
    "no record at all": [],
    "one empty record": [b""],
    "only empty records": [b""] * 100,
    "many records": [b"%d" % number for number in range(3000)],
    "a large record": [bytes(3 * 2**20), b"small"],
}
PACKINGS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


@pytest.mark.parametrize("compression", PACKINGS)
@pytest.mark.parametrize("content", CONTENTS)
def test_tensorflow_reads_what_we_write(tmp_path: Path, content: str, compression: str) -> None:
    path = tmp_path / "a"
    assert write_records(path, CONTENTS[content], compression=compression) == len(CONTENTS[content])
    assert read_by_tensorflow(path, PACKINGS[compression]) == CONTENTS[content]
    assert verify_file(path).ok


@pytest.mark.parametrize("compression", PACKINGS)
@pytest.mark.parametrize("content", CONTENTS)
def test_we_read_what_tensorflow_writes(tmp_path: Path, content: str, compression: str) -> None:
    path = write_by_tensorflow(tmp_path / "a", CONTENTS[content], PACKINGS[compression])
    assert records_of(path) == CONTENTS[content]
    report = verify_file(path)
    assert report.ok
    assert report.records == len(CONTENTS[content])
    packed = compression if path.stat().st_size else "none"
    assert report.compression.value == packed


def test_plain_files_of_both_are_the_same_bytes(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    write_records(ours, EXAMPLES + OPAQUE)
    theirs = write_by_tensorflow(tmp_path / "theirs", EXAMPLES + OPAQUE)
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("compression", PACKINGS)
def test_the_examples_mean_the_same_after_the_journey(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a"
    write_records(path, EXAMPLES, compression=compression)
    dataset = tf.data.TFRecordDataset(str(path), PACKINGS[compression])
    spec = {
        "label": tf.io.VarLenFeature(tf.int64),
        "weights": tf.io.VarLenFeature(tf.float32),
        "name": tf.io.VarLenFeature(tf.string),
        "image": tf.io.VarLenFeature(tf.string),
    }
    rows = [tf.io.parse_single_example(payload, spec) for payload in dataset]
    assert [row["label"].values.numpy().tolist() for row in rows] == [[3], [], [], [-(2**63)]]
    assert [row["weights"].values.numpy().tolist() for row in rows] == [[0.5, -1.5], [1.0], [], []]
    assert rows[0]["name"].values.numpy().tolist() == [b"cat"]
    assert rows[3]["image"].values.numpy().tolist() == [bytes(range(256)) * 300]


@pytest.mark.parametrize("compression", PACKINGS)
def test_so_do_the_sequence_examples(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "a"
    write_records(path, SEQUENCES, compression=compression)
    dataset = tf.data.TFRecordDataset(str(path), PACKINGS[compression]).batch(10)
    (payloads,) = list(dataset)
    context, lists, _ = tf.io.parse_sequence_example(
        payloads,
        context_features={"id": tf.io.RaggedFeature(tf.string)},
        sequence_features={
            "tokens": tf.io.RaggedFeature(tf.int64),
            "marks": tf.io.RaggedFeature(tf.float32),
        },
    )
    assert context["id"].to_list() == [[b"a"], [], [b""]]
    assert lists["tokens"].to_list() == [[[1, 2], [3]], [], [[]]]
    assert lists["marks"].to_list() == [[[0.5], []], [], []]
