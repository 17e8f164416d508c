"""Records of a virtual combination: pairs that are computed when they are read."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from shardline.errors import (
    CorruptFileError,
    ObjectNotFoundError,
    ShardlineError,
    UnreadableSnapshotError,
)
from shardline.hints import Hint
from shardline.log.version import StoredVersion
from shardline.pairing.coverage import estimate
from shardline.pairing.pair_batch import PairSides
from shardline.pairing.pair_encoder import PairEncoder
from shardline.pairing.pair_features import PairFeatureNames
from shardline.pairing.pair_grid import PairGrid
from shardline.pairing.pair_plan import PairPlan
from shardline.pairing.spec_binding import bind_spec
from shardline.provenance.commands import get_recreate_hint
from shardline.readers.combination_side import get_combination_side
from shardline.readers.read_errors import locate_error, split_snapshot
from shardline.storage.store import object_uri
from shardline.storage.temporary_files import spool_folder
from shardline.tfrecord.reader import DEFAULT_LIMITS
from shardline.tfrecord.record_block import RecordBlock

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterator, Mapping

    from shardline.kernel.types import IntArray
    from shardline.log.model import Input, Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.pairing.pair_side import NumberedUnit
    from shardline.pairing.spec_binding import BoundCombineSpec
    from shardline.readers.shard_file import ShardFile
    from shardline.schema.schema import Key, Schema
    from shardline.storage import Store
    from shardline.tfrecord.reader import Limits

_BATCH_BYTES = 1024 * 1024


@dataclass(frozen=True)
class VirtualShard:
    """Pairs of the plan at `name` in the store, with only their features in `keys`.

    `snapshot` is the label of the snapshot that is read.
    """

    snapshot: str
    shard: Shard
    store: Store
    name: str
    keys: frozenset[Key] | None = None

    @property
    def path(self) -> str:
        """Path or URI of the plan."""
        local = self.store.local_path(self.name)
        return str(object_uri(self.store, self.name) if local is None else local)

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """Files that the pairs are read from, each once."""
        return self.opened.files

    @cached_property
    def opened(self) -> OpenedPairPlan:
        """Plan with its inputs. Raises UnreadableSnapshotError if an input no longer exists."""
        try:
            plan = PairPlan.read(self.store, self.name, self.shard)
            return open_plan(self.store, plan, self.keys)
        except (ValueError, ObjectNotFoundError, ShardlineError) as error:
            version, number = split_snapshot(self.snapshot)
            recreate = get_recreate_hint(self.store, version, number)
            raise UnreadableSnapshotError(
                f"{self.snapshot}: invalid plan {self.path}: {error}",
                code="invalid-plan",
                hint=Hint.of("read an earlier snapshot, or ", recreate),
                path=self.path,
                version=version,
                snapshot=number,
            ) from error

    def look(self) -> None:
        """Check each file that the pairs are read from, without reading it."""
        for file in self.files:
            file.look()

    def blocks(self, *, limits: Limits, block_bytes: int) -> Generator[RecordBlock, None, None]:
        """Yield all pairs in order. Raises the errors of reading their records."""
        offset = record = 0
        with self._translate_errors(), self._sides(limits, block_bytes) as (sides, encoder):
            for framed in encoder.encode_frames(sides.list_batches()):
                yield RecordBlock(
                    memoryview(framed.data), offset, record, framed.starts, framed.lengths
                )
                offset += len(framed.data)
                record += len(framed.starts)

    def pick(
        self, numbers: IntArray, *, limits: Limits = DEFAULT_LIMITS
    ) -> Generator[RecordBlock, None, None]:
        """Yield the pairs with these numbers. Only the records in them are read."""
        if not len(numbers):
            return
        lefts, rights = self.opened.locate(numbers)
        done = 0
        with self._translate_errors(), self._sides(limits, _BATCH_BYTES) as (sides, encoder):
            for framed in encoder.encode_frames(sides.list_batches((lefts, rights))):
                part = numbers[done : done + len(framed.starts)]
                yield RecordBlock.select(framed.data, framed.starts, framed.lengths, part)
                done += len(part)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Add the snapshot and a hint to corruption errors in the paired files."""
        try:
            yield
        except CorruptFileError as error:
            raise locate_error(self.snapshot, self.store, self.files, error) from None

    @contextmanager
    def _sides(self, limits: Limits, batch_bytes: int) -> Iterator[tuple[PairSides, PairEncoder]]:
        opened = self.opened
        with ExitStack() as stack:
            sides = PairSides(
                opened.left,
                opened.right,
                opened.bound,
                limits,
                stack,
                spool_folder(self.store),
                batch_bytes=batch_bytes,
            )
            yield sides, PairEncoder(opened.bound, limits.max_record_bytes, workers=1)


@dataclass(frozen=True, slots=True)
class OpenedPairPlan:
    """Plan with the records of both its sides and the schema of the pairs."""

    plan: PairPlan
    bound: BoundCombineSpec
    schema: Schema
    left: tuple[NumberedUnit, ...]
    right: tuple[NumberedUnit, ...]
    grid: PairGrid

    @property
    def files(self) -> tuple[ShardFile, ...]:
        """Files that the pairs are read from, each once."""
        files = {
            file.file.name: file
            for side in (*self.left, *self.right)
            for file in side.unit.files  # type: ignore[attr-defined] # a shard's records have them
        }
        return tuple(files.values())

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return estimate(self.grid, self.plan.cover).pairs

    def locate(self, numbers: IntArray) -> tuple[IntArray, IntArray]:
        """Return the numbers of the left and right records of some pairs."""
        cover = self.plan.cover
        return self.grid.locate(numbers, cover.left, cover.right)


def open_plan(store: Store, plan: PairPlan, keys: Collection[Key] | None = None) -> OpenedPairPlan:
    """Find the inputs of a plan. Raises LogError or ValueError if they have changed."""
    left, right = (_snapshot(store, side) for side in (plan.left, plan.right))
    bound, schema = bind_spec(plan.spec, left.schema, right.schema)
    if keys is not None:
        names = PairFeatureNames(
            _select_names(bound.names.left, keys), _select_names(bound.names.right, keys)
        )
        bound = replace(bound, names=names)
    sides = [
        get_combination_side(snapshot, names)
        for snapshot, names in ((left, bound.names.left), (right, bound.names.right))
    ]
    cover = plan.cover
    if cover.left[1] > len(sides[0].units) or cover.right[1] > len(sides[1].units):
        raise ValueError("it pairs shards that the snapshots do not have")
    return OpenedPairPlan(
        plan,
        bound,
        schema,
        sides[0].units[slice(*cover.left)],
        sides[1].units[slice(*cover.right)],
        PairGrid(sides[0].extents, sides[1].extents, plan.spec.unordered),
    )


def _select_names(names: Mapping[Key, str | None], keys: Collection[Key]) -> dict[Key, str | None]:
    return {
        key: name if name is not None and (key[0], name) in keys else None
        for key, name in names.items()
    }


def _snapshot(store: Store, side: Input) -> StoredSnapshot:
    version = StoredVersion(store, side.label)
    snapshot = version.snapshot(side.snapshot)
    if version.log.entry(snapshot.entry).digest != side.entry:
        raise ValueError(f"{snapshot} is not the snapshot that was combined")
    return snapshot
