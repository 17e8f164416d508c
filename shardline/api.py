"""The public face of a root: versions and snapshots, with the readers as methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from shardline.log.snapshot import StoredSnapshot
from shardline.log.version import StoredVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    import pandas as pd
    import pyarrow as pa
    import tensorflow as tf

    from shardline.kernel.types import IntArray
    from shardline.tfrecord.reader import Limits


class Snapshot(StoredSnapshot):
    """One immutable state of a version, with the readers as methods.

    `published` and `rejected` are as of when it was opened.
    """

    def files(self) -> list[str]:
        """Its files in order, as paths on a local disk or else as URIs.

        They are plain TFRecord files: `tf.data.TFRecordDataset(s.files(), s.compression)`. Nothing
        is looked at, so check first that it is published. Raises UnreadableSnapshotError if there
        are overlays, whose files do not hold whole records.
        """
        from shardline.readers.shard_file import list_plain_files  # noqa: PLC0415 - loaded when used

        return [file.path for file in list_plain_files(self)]

    @property
    def compression(self) -> str:
        """How all its files are packed, as TensorFlow spells it: "", "GZIP" or "ZLIB".

        Raises UnreadableSnapshotError if they are packed in several ways, since TensorFlow would
        take None for "not packed", or if there are overlays.
        """
        from shardline.readers.shard_file import get_common_compression  # noqa: PLC0415 - loaded when used

        return get_common_compression(self)

    def consumed_by(self, name: str, *, run: str = "", commit: str = "") -> Self:
        """Say in the log who reads it, such as a training job, and keep it from vacuum for them.

        `version.published().consumed_by("digits-cnn", run="42", commit="1f3c…").to_tf()`: it gives
        itself. Saying the same again changes nothing. `shardline consumers` lists who there is.
        Raises TombstonedShardError if vacuum is about to take it.
        """
        from shardline.provenance.consumers import register  # noqa: PLC0415 - loaded when used

        version = Version(self.store, self.version, run=run, code=commit)
        register(version, self.number, name, run=run, commit=commit)
        return self

    def to_tf(
        self,
        *,
        parse: bool = True,
        columns: Sequence[str] | None = None,
        batch: int | None = None,
        drop_remainder: bool = False,
        interleave: bool = False,
        deterministic: bool = False,
        unchecked: bool = False,
        limits: Limits | None = None,
    ) -> tf.data.Dataset:
        """Its records as a tf.data.Dataset that knows how many there are.

        Each is a dict of features by name, those of `columns` if given; of SequenceExamples a pair
        of dicts, the context and the feature_lists. With `parse=False` each is the record's bytes.
        `batch` puts so many together. A feature that may be missing, or have any number of values,
        is ragged in a batch and has one more dimension than its shape in a single record: missing
        is empty, and an optional scalar a vector of none or one. Raw arrays are decoded. Overlays
        are joined with their bases, of which only those are read that hold what is asked for.

        The order is that of the shards; with `interleave` several are read at once, which is
        faster, and in an order that differs each time unless `deterministic`. Files on a local
        disk are read by TensorFlow. It knows no object stores, so there our reader reads them, in
        order always and within `limits`, and the dataset cannot be saved or sent elsewhere.

        TensorFlow can crash on damaged bytes. So a snapshot is refused that is not published, or
        whose version does not require the checks of integrity and schema, unless `unchecked`.
        """
        from shardline.readers.tf import to_tf  # noqa: PLC0415 - loaded when used

        return to_tf(
            self,
            parse=parse,
            columns=columns,
            batch=batch,
            drop_remainder=drop_remainder,
            interleave=interleave,
            deterministic=deterministic,
            unchecked=unchecked,
            limits=limits,
        )

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        workers: int | None = None,
        batch_bytes: int | None = None,
        limits: Limits | None = None,
    ) -> pa.RecordBatchReader:
        """Its records as Arrow record batches, in order, decoded by threads ahead of you.

        A batch is made of about `batch_bytes` of records, 1 MiB unless told; memory holds a few
        of them for each of the `workers`. `shardline.schema.arrow_types` tells the types. Any
        snapshot may be read, published or not: each record is checked. Raises CorruptFileError at
        the first that is damaged, ColumnError at one that does not fit the schema, StorageError
        if a file is not there or has more or fewer records than the log says.
        """
        from shardline.readers.arrow import to_arrow  # noqa: PLC0415 - loaded when used

        return to_arrow(self, columns, workers=workers, batch_bytes=batch_bytes, limits=limits)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        *,
        workers: int | None = None,
        batch_bytes: int | None = None,
        limits: Limits | None = None,
    ) -> Iterator[pd.DataFrame]:
        """Its records as DataFrames, one for each record batch of `to_arrow`, indexed throughout.

        Text is `str`, an optional int64 `Int64`, a missing float NaN. What has a shape is an array
        of that shape in each cell, or None; steps that differ in length are a list of arrays. Raw
        arrays and images are bytes.
        """
        from shardline.readers.pandas import to_pandas  # noqa: PLC0415 - loaded when used

        return to_pandas(self, columns, workers=workers, batch_bytes=batch_bytes, limits=limits)

    def take(
        self,
        numbers: Sequence[int] | IntArray,
        columns: Sequence[str] | None = None,
        *,
        limits: Limits | None = None,
    ) -> pa.Table:
        """The records of these numbers, counted from 0 over all shards, in the order asked.

        A number may be there more than once. Of a plain shard as many bytes are read as the
        records have, through its index; `shardline.readers.shard_file` tells of others. Raises
        RecordNotFoundError (an IndexError) for an unknown number, and else what `to_arrow` raises,
        but ExampleError at a payload that is no Example.
        """
        from shardline.readers.take import take  # noqa: PLC0415 - loaded when used

        return take(self, numbers, columns, limits=limits)


class Version(StoredVersion):
    """One version of a dataset: `Version(root, "digits/v1")`."""

    snapshot_type = Snapshot

    def latest(self) -> Snapshot:
        """Return the latest snapshot, published or not."""
        return cast("Snapshot", super().latest())

    def published(self) -> Snapshot:
        """Return the latest published snapshot: the one to read."""
        return cast("Snapshot", super().published())

    def snapshot(self, number: int) -> Snapshot:
        """Return a snapshot by its number."""
        return cast("Snapshot", super().snapshot(number))

    def tagged(self, tag: str) -> Snapshot:
        """Return the snapshot that has a tag."""
        return cast("Snapshot", super().tagged(tag))

    def at(self, time: datetime) -> Snapshot:
        """Return the snapshot that was the latest at a time. A time without a zone is in UTC."""
        return cast("Snapshot", super().at(time))

    def find(self, which: str | int = "latest") -> Snapshot:
        """Return a snapshot as people name it: newest, published, a number, a tag, or a time."""
        return cast("Snapshot", super().find(which))
