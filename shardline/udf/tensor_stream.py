"""A TensorFlow function on a stream of batches, as one tf.data pipeline.

The pipeline tells which batch an error belongs to only by its turn. So the batches that went into
it are kept until their turn comes, and one that failed is done again by itself, row by row if it
must be.
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
from threading import Lock
from typing import TYPE_CHECKING, Any

from shardline.udf.results import made_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from shardline.udf.results import Made
    from shardline.udf.tensor import TensorWork
    from shardline.udf.tensors import Parts

_PREFETCHED = 1


def tensor_stream(
    work: TensorWork, batches: Iterator[pa.RecordBatch], *, every: bool, workers: int | None
) -> Iterator[Made]:
    """The new fields of all batches, in order; an error comes in its place."""
    with closing(_Feed(work, batches)) as feed:
        results = iter(_pipeline(work, feed, workers))
        try:
            while True:
                result = None
                try:
                    result = next(results)
                except StopIteration:
                    break
                except work.tf.errors.OpError:
                    if not feed.begun:
                        raise
                yield from feed.empty()
                batch = feed.begun.popleft()
                if result is None:
                    yield work(batch, every=every)
                    continue
                rows = batch.num_rows
                columns = work.checked(result, 0, rows)
                yield made_of(work.shown, work.features, columns, {}, tried=rows)
        finally:
            # The traceback of an error would hold it until the program ends. TensorFlow cannot put
            # a pipeline away then, and complains.
            del results
        yield from feed.empty()
        if feed.error is not None:
            raise feed.error


def _pipeline(work: TensorWork, feed: _Feed, workers: int | None) -> Any:  # noqa: ANN401 - a Dataset
    tf = work.tf
    options = tf.data.Options()
    options.deterministic = True
    if workers is not None:
        options.threading.private_threadpool_size = workers
    return (
        tf.data.Dataset.from_generator(feed.parts, output_signature=work.specs)
        .map(work.traced, tf.data.AUTOTUNE, deterministic=True)
        .prefetch(_PREFETCHED)
        .with_options(options)
    )


class _Feed:
    """The batches on their way into the pipeline, and those whose results were not taken yet.

    Those without rows are not worth a call, and wait in `begun` until it is their turn.
    """

    def __init__(self, work: TensorWork, batches: Iterator[pa.RecordBatch]) -> None:
        self.error: Exception | None = None
        self._work = work
        self._batches = batches
        self.begun: deque[pa.RecordBatch] = deque()
        self._lock = Lock()
        self._closed = False

    def parts(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """What goes into the pipeline, asked for by a thread of TensorFlow's."""
        while (parts := self._next()) is not None:
            yield tuple(parts)

    def _next(self) -> Parts | None:
        with self._lock:
            while not self._closed:
                try:
                    batch = next(self._batches, None)
                    if batch is None:
                        return None
                    parts = self._work.prepare(batch)
                except Exception as error:  # noqa: BLE001 - raised again in its place
                    self.error = error
                    return None
                self.begun.append(batch)
                if batch.num_rows:
                    return parts
            return None

    def empty(self) -> Iterator[Made]:
        """The results of batches without rows whose turn it is."""
        while self.begun and not self.begun[0].num_rows:
            yield self._work(self.begun.popleft(), every=False)

    def close(self) -> None:
        """Let no more in, and wait until nobody reads the batches any more."""
        with self._lock:
            self._closed = True
