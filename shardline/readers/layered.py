"""Records that lie in layers, read in step and joined on the wire: no feature is decoded."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from shardline import kernel
from shardline.errors import ColumnError, ExampleError
from shardline.tfrecord.examples import placed
from shardline.tfrecord.reader import DEFAULT_LIMITS, Block, Picked

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from shardline.kernel.types import Framed, Insides, IntArray
    from shardline.log.model import Shard
    from shardline.readers.shards import ShardFile
    from shardline.schema.validation import FeatureKey
    from shardline.tfrecord.reader import Limits

Some = TypeVar("Some", Block, Picked)


@dataclass(frozen=True, slots=True)
class LayerFile:
    """One layer, and the keys of the features that its records may have."""

    file: ShardFile
    keys: frozenset[FeatureKey]

    def insides(self, some: Block | Picked) -> Insides:
        """What some of its records hold, without the messages around that."""
        names = {(sequence, name): name for sequence, name in self.keys}
        try:
            return kernel.insides(some.data, some.starts, some.lengths, names)
        except (ExampleError, ColumnError) as error:
            raise placed(self.file.path, some, error) from None


@dataclass(frozen=True, slots=True)
class LayeredShard:
    """The records of a shard, each joined of what its layers hold, the lowest layer first.

    Beside what the files of the layers raise, it raises ColumnError at a record with a feature
    that is not its layer's own.
    """

    layers: tuple[LayerFile, ...]

    @property
    def shard(self) -> Shard:
        """The uppermost layer."""
        return self.layers[-1].file.shard

    @property
    def path(self) -> str:
        """Where that lies."""
        return self.layers[-1].file.path

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """The files of the layers."""
        return tuple(layer.file for layer in self.layers)

    def look(self) -> None:
        """Look at the file of each layer."""
        for file in self.files:
            file.look()

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[Block, None, None]:
        """Every record; the offsets are those of the plain file that would hold them."""
        offset = 0
        streams = [file.blocks(limits=limits, block_bytes=block_bytes) for file in self.files]
        with closing(_in_step(streams)) as steps:
            for parts in steps:
                made = self._joined(parts)
                data = memoryview(made.data)
                yield Block(data, offset, parts[0].record, made.starts, made.lengths)
                offset += len(data)

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[Picked, None, None]:
        """Some records."""
        streams = [file.pick(numbers, limits=limits) for file in self.files]
        with closing(_in_step(streams)) as steps:
            for parts in steps:
                made = self._joined(parts)
                yield Picked(made.data, made.starts, made.lengths, parts[0].numbers)

    def _joined(self, parts: Sequence[Block | Picked]) -> Framed:
        insides = [layer.insides(some) for layer, some in zip(self.layers, parts, strict=True)]
        rows = np.arange(len(parts[0].starts))
        return kernel.join(insides, [rows] * len(insides))


def _in_step(
    streams: Sequence[Generator[Some, None, None]],
) -> Generator[list[Some], None, None]:
    """What several streams of records give, each time of as many records."""
    with ExitStack() as opened:
        for stream in streams:
            opened.enter_context(closing(stream))
        left = [next(stream, None) for stream in streams]
        while None not in left:
            held = [some for some in left if some is not None]
            count = min(len(some.starts) for some in held)
            yield [_cut(some, slice(count)) for some in held]
            left = [
                _cut(some, slice(count, None)) if len(some.starts) > count else next(stream, None)
                for stream, some in zip(streams, held, strict=True)
            ]
        # One has ended, with as many records as the log says: one that has more refuses to end.
        for stream in streams:
            deque(stream, maxlen=0)


def _cut(some: Some, which: slice) -> Some:
    """Some of these records; `which` begins at the first, or ends at the last of them."""
    starts, lengths = some.starts[which], some.lengths[which]
    if isinstance(some, Block):
        record = some.record + (which.start or 0)
        return replace(some, record=record, starts=starts, lengths=lengths)
    return replace(some, starts=starts, lengths=lengths, numbers=some.numbers[which])
