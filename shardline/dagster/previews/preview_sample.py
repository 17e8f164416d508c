"""Some rows of a snapshot, seen as what people look for in them: labels, and images."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shardline.api import Snapshot
from shardline.dagster.previews.contact_sheet import MAX_IMAGES
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
class Look:
    """Some rows: the value of the feature `label` and the bytes of `image` in each.

    There may be no such feature. `failures` are why shards could not be read.
    """

    label: Feature | None
    values: Sequence[str]
    image: Feature | None
    images: Sequence[bytes | None]
    failures: Sequence[ShardlineError]

    def shares(self) -> list[tuple[str, float]]:
        """What share of the rows each value has: numbers in order, others the largest first."""
        counts = Counter(self.values)
        labels = _get_labels(self.label)
        if labels:
            named = {label: counts.get(label, 0) for label in labels}
            counts = Counter({**named, **counts})
        elif all(_is_number(name) for name in counts if name != _MISSING):
            counts = Counter({name: counts[name] for name in sorted(counts, key=_get_sort_number)})
        else:
            counts = Counter(dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))))
        if len(counts) > _BARS:
            largest = counts.most_common(_BARS - 1)
            rest = sum(counts.values()) - sum(count for _, count in largest)
            counts = Counter({**dict(largest), f"{len(counts) - len(largest):,} others": rest})
        return [(name, count / len(self.values)) for name, count in counts.items()]

    def some_images(self) -> list[tuple[bytes, str]]:
        """A sheet full of them with their labels, evenly spread."""
        there = [place for place, image in enumerate(self.images) if image is not None]
        chosen = np.linspace(0, len(there) - 1, min(MAX_IMAGES, len(there))).round().astype(int)
        places = [there[place] for place in chosen.tolist()]
        labels = self.values if self.label is not None else [""] * len(self.images)
        return [(self.images[place] or b"", labels[place]) for place in places]


def take_preview_sample(snapshot: Snapshot, shards: Sequence[Shard]) -> Look | None:
    """Look at some rows; None if the schema has nothing to look for."""
    image, candidates = (
        _find_image_feature(snapshot.schema),
        _list_label_candidates(snapshot.schema),
    )
    wanted = [*([image] if image is not None else []), *candidates]
    looked = select_shards(snapshot, shards, wanted) if wanted else []
    if not looked:
        return None
    tables, failures = [], []
    for records in looked:
        try:
            tables.append(
                read_some_rows(records, wanted, _ROWS // len(looked), _BYTES // len(looked))
            )
        except ShardlineError as error:
            failures.append(error)
    if not tables:
        return Look(None, (), None, (), failures)
    table = pa.concat_tables(tables)
    label = next((one for one in candidates if _is_label(one, table[one.name])), None)
    values = [""] * table.num_rows if label is None else _format_values(label, table[label.name])
    images = [None] * table.num_rows if image is None else table[image.name].to_pylist()
    return Look(label, values, image, images, failures)


def _find_image_feature(schema: Schema) -> Feature | None:
    """The first feature that is an image: by its meaning, or by the name that folders give it."""
    found = [
        feature
        for feature in _list_single_features(schema)
        if isinstance(feature.meaning, Image)
        or (feature.name == "image" and feature.kind == "bytes" and feature.meaning is None)
    ]
    return found[0] if found else None


def _list_label_candidates(schema: Schema) -> list[Feature]:
    """The features that may tell classes apart, the likeliest first."""
    single = _list_single_features(schema)
    categories = [feature for feature in single if isinstance(feature.meaning, Category)]
    numbers = [one for one in single if one.kind == "int64" and one.meaning is None]
    numbers.sort(key=lambda feature: feature.name.lower() not in _USUAL_LABELS)
    return [*categories, *numbers][:_CANDIDATES]


def _list_single_features(schema: Schema) -> list[Feature]:
    return [one for one in schema.features if not one.sequence and not one.shape]


def _is_label(feature: Feature, column: pa.ChunkedArray) -> bool:
    """Whether it is a category, or a number that takes only a few values."""
    if isinstance(feature.meaning, Category):
        return True
    return len(column.unique()) <= min(_BARS, max(len(column) // 2, 1))


def _format_values(feature: Feature, column: pa.ChunkedArray) -> list[str]:
    """The values as people know them."""
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
    """Where a value stands; that it is missing stands last."""
    return int(name) if _is_number(name) else float("inf")


MAX_SHARDS = 8
_BLOCK_BYTES = 256 * 1024
_STREAMED_BYTES = 4 * 1024 * 1024
_MAX_RECORD_BYTES = 8 * 1024 * 1024
_LIMITS = Limits(max_record_bytes=_MAX_RECORD_BYTES)


def select_shards(
    snapshot: Snapshot, shards: Sequence[Shard], features: Sequence[Feature] | None = None
) -> list[Records]:
    """Some of the shards, evenly spread, to be read for these features, or for whole records."""
    full = [shard for shard in shards if shard.records]
    places = np.linspace(0, len(full) - 1, min(MAX_SHARDS, len(full))).round().astype(int)
    chosen = tuple(full[place] for place in places.tolist())
    return list_records(replace(snapshot, list_shards=lambda: chosen), features)


def read_record_sizes(records: Records) -> "IntArray":
    """The sizes of a shard's payloads, as many as one look at its index tells."""
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
    """Up to so many rows of a shard, made of about `size` bytes at most, as columns."""
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
    return pa.Table.from_batches([batches.of(records, some) for some in picked], batches.schema)


def _read_sizes(records: Records) -> "IntArray | None":
    """The bytes of the first records with their frames, over all files; None without an index.

    None too of pairs, which lie in no file.
    """
    if records.shard.virtual:
        return None
    sizes = [_read_file_sizes(file) for file in records.files]
    found = [one for one in sizes if one is not None]
    return np.sum(found, axis=0) if len(found) == len(sizes) else None


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
    """How large a pair is, about: as two records of what it is made of."""
    counted = sum(file.shard.records for file in records.files)
    return 2 * count_read_bytes([records]) / max(counted, 1)


def _choose_records(sizes: "IntArray", rows: int, size: int) -> "IntArray":
    """Which records to read: about evenly spread, within the budget."""
    count = _limit_rows(float(sizes.mean()), len(sizes), rows, size)
    places = _spread_evenly(len(sizes), count)
    places = places[sizes[places] <= _MAX_RECORD_BYTES]
    within = np.cumsum(sizes[places]) <= size
    within[:1] = True
    return places[within]


def _spread_evenly(total: int, count: int) -> "IntArray":
    """So many numbers of records, about evenly spread, the same each time.

    They are not quite even, so that labels which take turns are not all the same one.
    """
    steps = np.arange(count) + np.random.default_rng(0).random(count)
    return np.minimum((steps * (total / count)).astype(np.int64), total - 1)
