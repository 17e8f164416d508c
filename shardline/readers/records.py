"""The records of a snapshot's shards, each whole, whatever files they lie in.

A plain shard is one file. The records of an overlay lie in layers, of which only those are read
that hold something that is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shardline.errors import UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.log.layers import stacks_of
from shardline.provenance.commands import again_advice
from shardline.readers.layered import LayeredShard, LayerFile
from shardline.readers.shards import shard_file
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from shardline.kernel.types import IntArray
    from shardline.log.layers import Layer, Stack
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.readers.shards import ShardFile
    from shardline.schema.schema import Feature
    from shardline.schema.validation import FeatureKey
    from shardline.tfrecord.reader import Block, Limits, Picked


class Records(Protocol):
    """The records of one shard."""

    @property
    def shard(self) -> Shard:
        """The shard; of an overlay, or of what is read of it, the uppermost layer."""
        ...

    @property
    def path(self) -> str:
        """Where that lies, for messages."""
        ...

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """The files that are read for them, the lowest layer first."""
        ...

    def look(self) -> None:
        """Refuse files that are not there, or not as long as the log says, without reading them."""
        ...

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[Block, None, None]:
        """Every record, in blocks of whole frames whose checksums hold.

        Raises DamagedFileError at the first damage, ObjectMissingError if a file is not there, and
        StorageError if its bytes or records are not as many as the log says, and WrongShardError if
        it is another file than the committed one.
        """
        ...

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[Picked, None, None]:
        """The records of these numbers, which ascend, some at a time; the checksums of each hold.

        Raises as `blocks` does, but of a payload that is no Example ExampleError.
        """
        ...


def records_of(
    snapshot: StoredSnapshot, features: Sequence[Feature] | None = None
) -> list[Records]:
    """The records of each shard of a snapshot, in order, with these features at least.

    None stands for all that the snapshot declares. Raises UnreadableSnapshotError if an overlay and
    its base do not belong together. Nothing but logs is looked at.
    """
    if all(shard.base is None and not shard.virtual for shard in snapshot.shards):
        return [shard_file(snapshot, shard) for shard in snapshot.shards]
    return [as_records(snapshot, one, features) for one in needed_layers(snapshot, features)]


def needed_layers(
    snapshot: StoredSnapshot, features: Sequence[Feature] | None = None
) -> list[tuple[Layer, ...]]:
    """The layers of each shard that `records_of` reads."""
    asked = snapshot.schema.features if features is None else features
    wanted = {feature.key for feature in asked}
    return [_needed(snapshot, stack, wanted) for stack in stacks_of(snapshot)]


def _needed(snapshot: StoredSnapshot, stack: Stack, wanted: set[FeatureKey]) -> tuple[Layer, ...]:
    if stack.misfit is not None:
        raise UnreadableSnapshotError(
            f"{snapshot}: overlay does not fit its base: {stack.misfit}",
            code="layer-mismatch",
            hint=Hint.of(
                "run ",
                Command.of("verify", str(snapshot)),
                " to list all mismatches. Read an earlier snapshot, or ",
                again_advice(snapshot.store, snapshot.version, snapshot.number),
            ),
            path=snapshot.shard_name(stack.top.shard),
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    if len(stack.layers) == 1:
        return stack.layers
    return tuple(layer for layer in stack.layers if layer.keys & wanted) or stack.layers


def as_records(
    snapshot: StoredSnapshot, layers: Sequence[Layer], features: Sequence[Feature] | None = None
) -> Records:
    """The records that lie in some layers of a shard, the lowest first; or those of a plan."""
    if layers[-1].shard.virtual:
        from shardline.readers.virtual import VirtualShard  # noqa: PLC0415 - it builds on us

        shard = layers[-1].shard
        wanted = None if features is None else frozenset(feature.key for feature in features)
        name = snapshot.shard_name(shard)
        return VirtualShard(str(snapshot), shard, snapshot.store, name, wanted)
    if len(layers) == 1:
        return shard_file(snapshot, layers[0].shard)
    files = (LayerFile(shard_file(snapshot, layer.shard), layer.keys) for layer in layers)
    return LayeredShard(tuple(files))


def bytes_read(records: Sequence[Records]) -> int:
    """How many bytes are read for all these records."""
    return sum(file.shard.bytes for one in records for file in one.files)


def is_packed(records: Records) -> bool:
    """Whether any of the files is packed, so that it is read from a member's start."""
    return any(file.shard.compression != "none" for file in records.files)
