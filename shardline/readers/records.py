"""Records stored in layers, read in step and joined on the wire without decoding."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from shardline import kernel
from shardline.errors import ColumnError, ExampleError, UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.log.layers import list_stacks
from shardline.provenance.commands import get_recreate_hint
from shardline.readers.shard_file import open_shard_file
from shardline.tfrecord.examples import add_location
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from shardline.kernel.types import Framed, Insides, IntArray
    from shardline.log.layers import Layer, Stack
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.shard_file import ShardFile
    from shardline.schema.schema import Feature
    from shardline.schema.validation import FeatureKey
    from shardline.tfrecord.reader import Limits


@dataclass(frozen=True, slots=True)
class LayerFile:
    """Layer of a shard, with the keys of the features that its records may have."""

    file: ShardFile
    keys: frozenset[FeatureKey]

    def insides(self, block: RecordBlock) -> Insides:
        """Return the features of a block of its records, without the messages around them."""
        names = {(sequence, name): name for sequence, name in self.keys}
        try:
            return kernel.insides(block.data, block.starts, block.lengths, names)
        except (ExampleError, ColumnError) as error:
            raise add_location(self.file.path, block, error) from None


@dataclass(frozen=True, slots=True)
class LayeredShard:
    """Records of a shard, each joined from its layers, lowest layer first.

    In addition to the errors of the layer files, raises ColumnError for a record with a feature
    that does not belong to its layer.
    """

    layers: tuple[LayerFile, ...]

    @property
    def shard(self) -> Shard:
        """Shard of the top layer."""
        return self.layers[-1].file.shard

    @property
    def path(self) -> str:
        """Path of the top layer."""
        return self.layers[-1].file.path

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """Files of the layers."""
        return tuple(layer.file for layer in self.layers)

    def look(self) -> None:
        """Check the file of each layer without reading it."""
        for file in self.files:
            file.look()

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Yield all records. Offsets are those of a plain file with the same records."""
        offset = 0
        streams = [file.blocks(limits=limits, block_bytes=block_bytes) for file in self.files]
        with closing(_in_step(streams)) as steps:
            for parts in steps:
                joined = self._join_layers(parts)
                data = memoryview(joined.data)
                yield RecordBlock(data, offset, parts[0].record, joined.starts, joined.lengths)
                offset += len(data)

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """Yield the records with these numbers."""
        streams = [file.pick(numbers, limits=limits) for file in self.files]
        with closing(_in_step(streams)) as steps:
            for parts in steps:
                joined = self._join_layers(parts)
                yield RecordBlock.select(
                    joined.data, joined.starts, joined.lengths, parts[0].numbers
                )

    def _join_layers(self, parts: Sequence[RecordBlock]) -> Framed:
        insides = [layer.insides(block) for layer, block in zip(self.layers, parts, strict=True)]
        rows = np.arange(len(parts[0].starts))
        return kernel.join(insides, [rows] * len(insides))


def _in_step(
    streams: Sequence[Generator[RecordBlock, None, None]],
) -> Generator[list[RecordBlock], None, None]:
    """Yield blocks of the same records, one of each stream."""
    with ExitStack() as opened:
        for stream in streams:
            opened.enter_context(closing(stream))
        blocks = [next(stream, None) for stream in streams]
        while None not in blocks:
            waiting = [block for block in blocks if block is not None]
            count = min(map(len, waiting))
            parts = [block.split(count) for block in waiting]
            yield [head for head, _ in parts]
            blocks = [
                rest if len(rest) else next(stream, None)
                for stream, (_, rest) in zip(streams, parts, strict=True)
            ]
        # A stream raises at its end if its records are not as many as the log says.
        for stream in streams:
            deque(stream, maxlen=0)


class Records(Protocol):
    """Records of one shard."""

    @property
    def shard(self) -> Shard:
        """Shard of the records. For an overlay, the top layer that is read."""
        ...

    @property
    def path(self) -> str:
        """Path of the shard, for messages."""
        ...

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """Files that hold the records, lowest layer first."""
        ...

    def look(self) -> None:
        """Check that the files exist and have their logged size, without reading them."""
        ...

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Yield all records in blocks of whole frames with verified checksums.

        Raises:
            CorruptFileError: at the first corruption.
            ObjectNotFoundError: if a file is missing.
            StorageError: if the bytes or records of a file differ in number from the log.
            WrongShardError: if a file is not the committed file.
        """
        ...

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """Yield the records with these ascending numbers in pieces, with verified checksums.

        Raises the errors of `blocks`, but ExampleError for a payload that is not an Example.
        """
        ...


def list_records(
    snapshot: StoredSnapshot, features: Sequence[Feature] | None = None
) -> list[Records]:
    """List the records of each shard of a snapshot, in order, with at least these features.

    None selects all features that the snapshot declares. Only logs are read. Raises
    UnreadableSnapshotError if an overlay and its base do not belong together.
    """
    if all(shard.base is None and not shard.virtual for shard in snapshot.shards):
        return [open_shard_file(snapshot, shard) for shard in snapshot.shards]
    return [
        open_records(snapshot, layers, features)
        for layers in list_needed_layers(snapshot, features)
    ]


def list_needed_layers(
    snapshot: StoredSnapshot, features: Sequence[Feature] | None = None
) -> list[tuple[Layer, ...]]:
    """List the layers of each shard that `list_records` reads."""
    features_read = snapshot.schema.features if features is None else features
    keys = {feature.key for feature in features_read}
    return [_select_needed_layers(snapshot, stack, keys) for stack in list_stacks(snapshot)]


def _select_needed_layers(
    snapshot: StoredSnapshot, stack: Stack, keys: set[FeatureKey]
) -> tuple[Layer, ...]:
    if stack.mismatch is not None:
        raise UnreadableSnapshotError(
            f"{snapshot}: overlay does not fit its base: {stack.mismatch}",
            code="layer-mismatch",
            hint=Hint.of(
                "run ",
                Command.of("verify", str(snapshot)),
                " to list all mismatches. Read an earlier snapshot, or ",
                get_recreate_hint(snapshot.store, snapshot.version, snapshot.number),
            ),
            path=snapshot.shard_name(stack.top.shard),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    if len(stack.layers) == 1:
        return stack.layers
    return tuple(layer for layer in stack.layers if layer.keys & keys) or stack.layers


def open_records(
    snapshot: StoredSnapshot, layers: Sequence[Layer], features: Sequence[Feature] | None = None
) -> Records:
    """Open the records in some layers of a shard, lowest layer first, or those of a plan."""
    if layers[-1].shard.virtual:
        from shardline.readers.virtual_shard import VirtualShard  # noqa: PLC0415 - it builds on us

        shard = layers[-1].shard
        keys = None if features is None else frozenset(feature.key for feature in features)
        name = snapshot.shard_name(shard)
        return VirtualShard(str(snapshot), shard, snapshot.store, name, keys)
    if len(layers) == 1:
        return open_shard_file(snapshot, layers[0].shard)
    files = (LayerFile(open_shard_file(snapshot, layer.shard), layer.keys) for layer in layers)
    return LayeredShard(tuple(files))


def count_read_bytes(records: Sequence[Records]) -> int:
    """Return the number of bytes that are read for all these records."""
    return sum(file.shard.bytes for shard in records for file in shard.files)


def is_compressed(records: Records) -> bool:
    """Return True if a file is compressed, so that it is read from the start of a member."""
    return any(file.shard.compression != "none" for file in records.files)
