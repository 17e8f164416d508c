"""Samples of rows for previews: labels and images."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.api import Snapshot
from shardline.dagster.previews.pictures import MAX_IMAGES
from shardline.errors import IndexMismatchError, ShardlineError, StorageError
from shardline.kernel.types import FRAME_BYTES
from shardline.log.model import Shard
from shardline.readers.arrow import BatchBuilder
from shardline.readers.records import Records, count_read_bytes, is_compressed, list_records
from shardline.schema.logical_types import Category, Image
from shardline.schema.schema import Feature, Schema
from shardline.tfrecord.index import read_offsets
from shardline.tfrecord.reader import Limits

if TYPE_CHECKING:
    from shardline.kernel.types import IntArray
    from shardline.readers.shard_file import ShardFile


_ROWS = 4096
_BYTES = 24 * 1024 * 1024
_BARS = 12
_CANDIDATES = 6
_MISSING = "(missing)"
_USUAL_LABELS = frozenset({"label", "class", "category", "target", "y"})


@dataclass(frozen=True, slots=True)
class PreviewSample:
    """Sampled rows: the value of the feature `label` and the bytes of `image` in each.

    Either feature may be None. `failures` are the errors of unreadable shards.
    """

    label: Feature | None
    values: Sequence[str]
    image: Feature | None
    images: Sequence[bytes | None]
    failures: Sequence[ShardlineError]

    def count_shares(self) -> list[tuple[str, float]]:
        """Return the share of each value: numbers in order, other values by size."""
        counts = Counter(self.values)
        labels = _get_labels(self.label)
        if labels:
            named = {label: counts.get(label, 0) for label in labels}
            counts = Counter({**named, **counts})
        elif all(_is_number(name) for name in counts if name != _MISSING):
            counts = Counter({name: counts[name] for name in sorted(counts, key=_get_sort_number)})
        else:
            counts = Counter(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))
        if len(counts) > _BARS:
            largest = counts.most_common(_BARS - 1)
            rest = sum(counts.values()) - sum(count for _, count in largest)
            counts = Counter({**dict(largest), f"{len(counts) - len(largest):,} others": rest})
        return [(name, count / len(self.values)) for name, count in counts.items()]

    def select_images(self) -> list[tuple[bytes, str]]:
        """Return images with their labels, evenly spread, for a contact sheet."""
        present = [index for index, image in enumerate(self.images) if image is not None]
        positions = (
            np.linspace(0, len(present) - 1, min(MAX_IMAGES, len(present))).round().astype(int)
        )
        chosen_rows = [present[index] for index in positions.tolist()]
        labels = self.values if self.label is not None else [""] * len(self.images)
        return [(self.images[index] or b"", labels[index]) for index in chosen_rows]


def take_preview_sample(snapshot: Snapshot, shards: Sequence[Shard]) -> PreviewSample | None:
    """Return a sample of rows, None if the schema has neither labels nor images."""
    image, candidates = (
        _find_image_feature(snapshot.schema),
        _list_label_candidates(snapshot.schema),
    )
    features = [*([image] if image is not None else []), *candidates]
    readers = select_shards(snapshot, shards, features) if features else []
    if not readers:
        return None
    tables, failures = [], []
    for records in readers:
        try:
            tables.append(
                read_some_rows(records, features, _ROWS // len(readers), _BYTES // len(readers))
            )
        except ShardlineError as error:
            failures.append(error)
    if not tables:
        return PreviewSample(None, (), None, (), failures)
    table = pa.concat_tables(tables)
    label = next(
        (feature for feature in candidates if _is_label(feature, table[feature.name])), None
    )
    values = [""] * table.num_rows if label is None else _format_values(label, table[label.name])
    images = [None] * table.num_rows if image is None else table[image.name].to_pylist()
    return PreviewSample(label, values, image, images, failures)


def _find_image_feature(schema: Schema) -> Feature | None:
    """Return the first image feature, by logical type or by the name that folder sources use."""
    features = [
        feature
        for feature in _list_single_features(schema)
        if isinstance(feature.meaning, Image)
        or (feature.name == "image" and feature.kind == "bytes" and feature.meaning is None)
    ]
    return features[0] if features else None


def _list_label_candidates(schema: Schema) -> list[Feature]:
    """Return features that may distinguish classes, the likeliest first."""
    single = _list_single_features(schema)
    categories = [feature for feature in single if isinstance(feature.meaning, Category)]
    numbers = [feature for feature in single if feature.kind == "int64" and feature.meaning is None]
    numbers.sort(key=lambda feature: feature.name.lower() not in _USUAL_LABELS)
    return [*categories, *numbers][:_CANDIDATES]


def _list_single_features(schema: Schema) -> list[Feature]:
    return [feature for feature in schema.features if not feature.sequence and not feature.shape]


def _is_label(feature: Feature, column: pa.ChunkedArray) -> bool:
    """Return True for a category, and for a number with few values."""
    if isinstance(feature.meaning, Category):
        return True
    return len(column.unique()) <= min(_BARS, max(len(column) // 2, 1))


def _format_values(feature: Feature, column: pa.ChunkedArray) -> list[str]:
    """Return values as labels."""
    labels = _get_labels(feature)

    def name(value: int | str | None) -> str:
        if value is None:
            return _MISSING
        if isinstance(value, int) and 0 <= value < len(labels):
            return labels[value]
        return str(value)

    return [name(value) for value in column.to_pylist()]


def _get_labels(feature: Feature | None) -> tuple[str, ...]:
    meaning = feature.meaning if feature is not None else None
    return (meaning.labels or ()) if isinstance(meaning, Category) else ()


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def _get_sort_number(name: str) -> float:
    """Return the sort key of a value. A missing value comes last."""
    return int(name) if _is_number(name) else float("inf")


MAX_SHARDS = 8
_BLOCK_BYTES = 256 * 1024
_STREAMED_BYTES = 4 * 1024 * 1024
_MAX_RECORD_BYTES = 8 * 1024 * 1024
_LIMITS = Limits(max_record_bytes=_MAX_RECORD_BYTES)


def select_shards(
    snapshot: Snapshot, shards: Sequence[Shard], features: Sequence[Feature] | None = None
) -> list[Records]:
    """Return some shards, evenly spread, as readers of these features or of whole records."""
    full = [shard for shard in shards if shard.records]
    positions = np.linspace(0, len(full) - 1, min(MAX_SHARDS, len(full))).round().astype(int)
    chosen = snapshot.with_shards(full[index] for index in positions.tolist())
    return list_records(chosen, features)


def read_record_sizes(records: Records) -> "IntArray":
    """Return the payload sizes of a shard, limited to one block of its index."""
    sizes = _read_sizes(records)
    if sizes is not None:
        return sizes - FRAME_BYTES * len(records.files)
    lengths = [np.empty(0, np.int64)]
    taken = 0
    for block in records.blocks(limits=_LIMITS, block_bytes=_BLOCK_BYTES):
        lengths.append(block.lengths)
        taken += len(block.data)
        if taken >= _STREAMED_BYTES:
            break
    return np.concatenate(lengths)


def read_some_rows(records: Records, features: Sequence[Feature], rows: int, size: int) -> pa.Table:
    """Return up to `rows` rows of a shard as columns, from about `size` bytes at most."""
    count = records.shard.records
    sizes = None if is_compressed(records) else _read_sizes(records)
    if records.shard.virtual:
        numbers = _spread_evenly(
            count, _limit_rows(_estimate_pair_bytes(records), count, rows, size)
        )
    elif sizes is None:
        numbers = np.arange(_limit_rows(count_read_bytes([records]) / count, count, rows, size))
    else:
        numbers = _choose_records(sizes, rows, size)
    batches = BatchBuilder(features)
    picked = records.pick(numbers, limits=_LIMITS)
    return pa.Table.from_batches(
        [batches.of(records, rows_of_batch) for rows_of_batch in picked], batches.schema
    )


def _read_sizes(records: Records) -> "IntArray | None":
    """Return the framed sizes of the first records, over all files. None without an index.

    Also None for virtual shards, whose pairs are not in files.
    """
    if records.shard.virtual:
        return None
    sizes = [_read_file_sizes(file) for file in records.files]
    known = [file_sizes for file_sizes in sizes if file_sizes is not None]
    return np.sum(known, axis=0) if len(known) == len(sizes) else None


def _read_file_sizes(file: "ShardFile") -> "IntArray | None":
    shard, store = file.shard, file.file.store
    index = read_offsets(store, file.file.name, shard.bytes, shard.records, shard.sha256)
    try:
        return np.diff(next(index))
    except (IndexMismatchError, StorageError):
        return None


def _limit_rows(each: float, records: int, rows: int, size: int) -> int:
    return min(rows, records, max(int(size // max(each, 1)), 1))


def _estimate_pair_bytes(records: Records) -> float:
    """Return an estimate of the size of a pair: that of two records of its inputs."""
    counted = sum(file.shard.records for file in records.files)
    return 2 * count_read_bytes([records]) / max(counted, 1)


def _choose_records(sizes: "IntArray", rows: int, size: int) -> "IntArray":
    """Return the records to read, evenly spread, within the budget."""
    count = _limit_rows(float(sizes.mean()), len(sizes), rows, size)
    numbers = _spread_evenly(len(sizes), count)
    numbers = numbers[sizes[numbers] <= _MAX_RECORD_BYTES]
    within = np.cumsum(sizes[numbers]) <= size
    within[:1] = True
    return numbers[within]


def _spread_evenly(total: int, count: int) -> "IntArray":
    """Return numbers of records, evenly spread and deterministic.

    A random offset keeps labels that alternate from all being the same.
    """
    steps = np.arange(count) + np.random.default_rng(0).random(count)
    return np.minimum((steps * (total / count)).astype(np.int64), total - 1)
