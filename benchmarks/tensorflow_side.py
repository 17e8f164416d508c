"""TensorFlow's side, in its fastest plain form."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.data import SMALL_COLUMNS
from benchmarks.timing import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from benchmarks.data import RecordSet

_BATCH = 1024


def load() -> Any:  # noqa: ANN401 - TensorFlow has no types
    """Import TensorFlow for the CPU, without its log messages."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    with _no_greetings():
        import tensorflow as tf  # noqa: PLC0415 - takes seconds to load
    return tf


@contextmanager
def _no_greetings() -> Iterator[None]:
    """Silence the stderr descriptor: TensorFlow logs before it reads its settings."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def read(source: RecordSet, compression: str = "") -> Side:
    """Read every record of a file."""
    tf = load()

    def run() -> int:
        dataset = tf.data.TFRecordDataset(str(source.path), compression).batch(_BATCH)
        return sum(int(batch.shape[0]) for batch in dataset)

    return Side("TFRecordDataset.batch(1024)", run)


def parse_file(source: RecordSet) -> tuple[Side, ...]:
    """Parse every feature of the small records of a file, on one thread and on several."""
    tf = load()
    parse = _parser(tf)

    def run(**options: object) -> int:
        dataset = tf.data.TFRecordDataset(str(source.path)).batch(_BATCH)
        return _count(dataset.map(parse, **options))

    return (
        Side("dataset.batch(1024).map(parse_example)", run),
        Side(
            "dataset.batch(1024).map(parse_example, AUTOTUNE)",
            lambda: run(num_parallel_calls=tf.data.AUTOTUNE),
        ),
    )


def parse_memory(payloads: Sequence[bytes]) -> tuple[Side, ...]:
    """Parse every feature of the small records, in batches that already are tensors."""
    tf = load()
    parse = _parser(tf)
    graph = tf.function(parse, reduce_retracing=True)
    batches = [
        tf.constant(payloads[first : first + _BATCH]) for first in range(0, len(payloads), _BATCH)
    ]
    return (
        Side("parse_example", lambda: _count(map(parse, batches))),
        Side("tf.function(parse_example)", lambda: _count(map(graph, batches))),
    )


def _parser(tf: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - as above
    features = _feature_spec(tf)
    return lambda batch: tf.io.parse_example(batch, features)


def _feature_spec(tf: Any) -> dict[str, object]:  # noqa: ANN401 - as above
    kinds = {"bytes": tf.string, "float": tf.float32, "int64": tf.int64}
    return {
        column.name: tf.io.FixedLenFeature(
            [] if column.layout == "scalar" else [column.size], kinds[column.kind]
        )
        for column in SMALL_COLUMNS
    }


def _count(parsed: Iterable[Any]) -> int:
    return sum(int(batch["id"].shape[0]) for batch in parsed)


def write_table(path: Path, table: pa.Table) -> Side:
    """Build and write an Example for each row of the small records."""
    tf = load()
    rows = table.to_pylist()

    def run() -> int:
        train = tf.train
        with tf.io.TFRecordWriter(str(path)) as writer:
            for row in rows:
                features = {
                    "embedding": train.Feature(float_list=train.FloatList(value=row["embedding"])),
                    "id": train.Feature(int64_list=train.Int64List(value=[row["id"]])),
                    "label": train.Feature(int64_list=train.Int64List(value=[row["label"]])),
                    "name": train.Feature(bytes_list=train.BytesList(value=[row["name"]])),
                    "weight": train.Feature(float_list=train.FloatList(value=[row["weight"]])),
                }
                example = train.Example(features=train.Features(feature=features))
                writer.write(example.SerializeToString())
        return len(rows)

    return Side("tf.train.Example + TFRecordWriter", run, path)


def copy_records(sources: Sequence[RecordSet], path: Path) -> Side:
    """Copy files into one, record by record, as the usual recipe does."""
    tf = load()
    paths = [str(source.path) for source in sources]

    def run() -> int:
        records = 0
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in tf.data.TFRecordDataset(paths):
                writer.write(record.numpy())
                records += 1
        return records

    return Side("TFRecordDataset + TFRecordWriter", run, path)


def write_payloads(path: Path, payloads: Sequence[bytes], compression: str) -> Side:
    """Write serialized payloads."""
    tf = load()

    def run() -> int:
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for payload in payloads:
                writer.write(payload)
        return len(payloads)

    return Side("TFRecordWriter", run, path)
