"""Common recipes without Shardline: loops over parsed Examples in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.tensorflow_side import load
from benchmarks.timing import Side

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.data import RecordSet


def add_field(source: RecordSet, records: int, path: Path) -> Side:
    """Parse each record, add a number, serialize and write it."""
    tf = load()

    def run() -> int:
        written = 0
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in tf.data.TFRecordDataset(str(source.path)).take(records):
                example = tf.train.Example.FromString(record.numpy())
                label = example.features.feature["label"].int64_list.value[0]
                example.features.feature["double"].int64_list.value.append(2 * label)
                writer.write(example.SerializeToString())
                written += 1
        return written

    return Side("parse, add, serialize, write", run, path)


def parse_files(files: Sequence[str], spec: object, batch: int, records: int) -> Side:
    """Read plain files through tf.data, and parse them in batches."""
    tf = load()
    dataset = (
        tf.data.TFRecordDataset(list(files), buffer_size=1024 * 1024)
        .batch(batch)
        .map(lambda rows: tf.io.parse_example(rows, spec), tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )

    def run() -> int:
        for _ in dataset:
            pass
        return records

    return Side("TFRecordDataset of plain files, parse_example", run)


def pair_records(left: RecordSet, right: RecordSet, records: int, path: Path) -> Side:
    """Join pairs of records in a nested loop, with a prefix for the names of each side."""
    tf = load()

    def parsed(source: RecordSet) -> list[Any]:
        rows = tf.data.TFRecordDataset(str(source.path)).take(records)
        return [tf.train.Example.FromString(row.numpy()) for row in rows]

    def run() -> int:
        written = 0
        others = parsed(right)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for one in parsed(left):
                for other in others:
                    pair = tf.train.Example()
                    for name, feature in one.features.feature.items():
                        pair.features.feature[f"a_{name}"].CopyFrom(feature)
                    for name, feature in other.features.feature.items():
                        pair.features.feature[f"b_{name}"].CopyFrom(feature)
                    writer.write(pair.SerializeToString())
                    written += 1
        return written

    return Side("nested loop", run, path)
