"""Virtual combinations: instead of the pairs, a plan is kept by which readers make them.

A plan is a small file of canonical JSON in the place of a shard. It names the two snapshots, which
are pinned, the shards of them that it pairs, by their places, and what features are called.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline import canonical_json as canonical
from shardline.canonical_json import JsonReader
from shardline.log.model import Input, Shard
from shardline.pairing.combine_spec import CombineSpec
from shardline.pairing.coverage import Coverage

if TYPE_CHECKING:
    from shardline.canonical_json import Json
    from shardline.storage import Store

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PairPlan:
    """Which pairs a virtual shard has."""

    left: Input
    right: Input
    cover: Coverage
    spec: CombineSpec
    pairs: int

    @property
    def sides(self) -> tuple[tuple[Input, tuple[int, int]], tuple[Input, tuple[int, int]]]:
        """The two snapshots, and from where to where in each the shards stand that are paired."""
        return (self.left, self.cover.left), (self.right, self.cover.right)

    def encode(self) -> bytes:
        """The plan as it lies in the place of a shard."""
        told: Json = {
            "format": _FORMAT,
            "left": self.left.to_dict(),
            "right": self.right.to_dict(),
            "cover": self.cover.to_json(),
            "naming": self.spec.naming.to_dict(),
            "once": self.spec.once,
            "pairs": self.pairs,
        }
        return canonical.encode(told) + b"\n"

    @classmethod
    def read(cls, store: Store, name: str, shard: Shard) -> PairPlan:
        """Read the plan of a shard. Raises ValueError if it is not the committed plan."""
        data = store.read(name)
        if hashlib.sha256(data).hexdigest() != shard.sha256:
            raise ValueError("it is not the plan that was committed")
        return cls.decode(data)

    @classmethod
    def decode(cls, data: bytes) -> PairPlan:
        """Read a plan back; refuses with ValueError what is none."""
        fields = JsonReader("a plan of pairs", canonical.decode(data.removesuffix(b"\n")))
        if fields.take("format", int) != _FORMAT:
            raise ValueError("it is of a format that this release does not know")
        left, right = (Input.from_dict(fields.take(side, dict)) for side in ("left", "right"))
        cover = Coverage.from_json(fields.take("cover", list))
        naming = JsonReader("a naming", fields.take("naming", dict))
        spec = CombineSpec(
            on_collision=naming.take("on_collision", str),  # type: ignore[arg-type] # it validates
            left_prefix=naming.maybe("left_prefix", str) or "",
            right_prefix=naming.maybe("right_prefix", str) or "",
            once=fields.take("once", bool),
        )
        plan = cls(left, right, cover, spec, fields.count("pairs"))
        naming.end()
        fields.end()
        return plan
