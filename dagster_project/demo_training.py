"""The training of the demo: a small Keras model learns digits from a snapshot in seconds."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardline import __version__
from shardline.api import Snapshot

MODEL = "digits-cnn"
MIN_ACCURACY = 0.9
_EPOCHS = 8
_BATCH = 32
_HELD_OUT = 5
_MAX_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a training, with the accuracy on held-out digits."""

    accuracy: float
    learned: int
    held_out: int
    seconds: float


def train_model(snapshot: Snapshot) -> TrainingResult:
    """Train on four of five records, and measure the accuracy on the others.

    The first records of a large snapshot are enough. The training registers as a consumer, so that
    the log records who read the snapshot. A fixed seed makes runs on the same content identical.
    """
    snapshot.consumed_by(MODEL, run=f"seed-0-{snapshot.content[:8]}", commit=f"v{__version__}")
    tf = _tensorflow()
    tf.keras.utils.set_random_seed(0)

    def decoded(record: Any) -> Any:  # noqa: ANN401 - tensors
        pixels = tf.io.decode_png(record["image"], channels=1)
        pixels = tf.ensure_shape(tf.cast(pixels, tf.float32) / 255, (8, 8, 1))
        return pixels, tf.strings.to_number(record["label"], tf.int32)

    records = min(snapshot.records, _MAX_RECORDS)
    held_out = records // _HELD_OUT
    digits = snapshot.to_tf(columns=["image", "label"]).take(records).map(decoded).cache()
    mixed = digits.shuffle(records, seed=0, reshuffle_each_iteration=False)
    seen = mixed.skip(held_out).shuffle(records, seed=0).batch(_BATCH)
    began = time.perf_counter()
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    model.fit(seen, epochs=_EPOCHS, shuffle=False, verbose=0)
    accuracy = model.evaluate(mixed.take(held_out).batch(_BATCH), verbose=0)[1]
    seconds = time.perf_counter() - began
    return TrainingResult(float(accuracy), records - held_out, held_out, seconds)


def count_records(path: Path) -> int:
    """Return the number of records that TensorFlow reads from a file."""
    records = _tensorflow().data.TFRecordDataset(str(path))
    return int(records.reduce(0, lambda count, _: count + 1))


def _tensorflow() -> Any:  # noqa: ANN401 - a module without types
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _silence_output():
        import tensorflow  # noqa: ICN001, PLC0415 - takes seconds to load

    return tensorflow


@contextmanager
def _silence_output() -> Iterator[None]:
    """Silence stdout and stderr: TensorFlow logs before it has read its settings."""
    sys.stderr.flush()
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)
