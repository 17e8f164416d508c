"""Pair plan: the file of a virtual shard, from which readers compute its pairs.

A plan is a small file of canonical JSON, stored as a shard. It has the two snapshots, which are
pinned, the positions of the shards to pair, and the options that name the features.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

from shardline import canonical_json as canonical
from shardline.codec import Converter, Count, JsonObject, stored
from shardline.log.model import Input, Shard
from shardline.pairing.combine_spec import CombineSpec
from shardline.pairing.coverage import Coverage
from shardline.pairing.pair_features import PairNaming

if TYPE_CHECKING:
    from shardline.storage import Store

_FORMAT = 1


def _parse_coverage(payload: object, subject: str) -> Coverage:
    del subject
    return Coverage.from_json(payload)


@dataclass(frozen=True, slots=True)
class PairPlan(JsonObject):
    """The pairs of a virtual shard."""

    json_label: ClassVar = "a pair plan"
    json_constants: ClassVar = {"format": _FORMAT}
    left: Input
    right: Input
    cover: Annotated[Coverage, Converter(list, Coverage.to_json, _parse_coverage)]
    naming: PairNaming
    unordered: bool = field(metadata=stored("once"))
    pairs: Count

    @property
    def sides(self) -> tuple[tuple[Input, tuple[int, int]], tuple[Input, tuple[int, int]]]:
        """The two snapshots, each with the range of positions of its shards."""
        return (self.left, self.cover.left), (self.right, self.cover.right)

    @property
    def spec(self) -> CombineSpec:
        """Options of a combination with these pairs."""
        return CombineSpec(
            on_collision=self.naming.on_collision,
            left_prefix=self.naming.left_prefix,
            right_prefix=self.naming.right_prefix,
            unordered=self.unordered,
        )

    def encode(self) -> bytes:
        """Encode the plan as it is stored."""
        return canonical.encode(self.to_dict()) + b"\n"

    @classmethod
    def read(cls, store: Store, name: str, shard: Shard) -> PairPlan:
        """Read the plan of a shard. Raises ValueError if it is not the committed one."""
        data = store.read(name)
        if hashlib.sha256(data).hexdigest() != shard.sha256:
            raise ValueError("it is not the plan that was committed")
        return cls.decode(data)

    @classmethod
    def decode(cls, data: bytes) -> PairPlan:
        """Parse a stored plan. Raises ValueError."""
        return cls.from_dict(canonical.decode(data.removesuffix(b"\n")))
