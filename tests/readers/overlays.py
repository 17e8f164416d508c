"""Versions of overlays for tests, laid by hand beside the shards of another version."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from shardline.api import Version
from shardline.log.changes import Derive
from shardline.log.model import Added, Base, Checks
from shardline.operations.check import check_version
from shardline.schema.schema import Feature, Schema, Text
from tests.readers.snapshots import NUMBERS, numbers, published, write_shard
from tests.tfrecord.samples import example_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shardline.api import Snapshot
    from shardline.log.model import Shard
    from shardline.storage import Store

SCORE = Feature("score", "float")
TAGS = Feature("tags", "bytes", (None,), meaning=Text())
SIZES = (3, 1, 0, 5)
"""How many records the shards of `scored` have."""


def score(x: int) -> bytes:
    """The record that lies beside number `x`."""
    return example_of(score=x / 4)


def tags(x: int) -> bytes:
    """The record that lies beside both."""
    return example_of(tags=[b"tag %d" % n for n in range(x % 3 + 1)])


def extended(schema: Schema, *features: Feature) -> Schema:
    """The schema with more features."""
    return Schema((*schema.features, *features), schema.payload)


def pinned(shard: Shard, base: Shard) -> Shard:
    """The shard as an overlay beside another."""
    return replace(shard, source=None, base=Base(base.name, base.content))


def lay(
    base: Snapshot,
    name: str,
    schema: Schema,
    *shards: Sequence[bytes],
    compressions: Sequence[str] = ("none",),
    checks: Checks = Checks(),
) -> Version:
    """A version with one overlay beside each shard of a snapshot; it is not checked."""
    version = Version(base.store, name)
    version.create(schema, checks)
    overlays = []
    for place, payloads in enumerate(shards):
        packed = compressions[place % len(compressions)]
        overlay = write_shard(version, f"shard {place}", payloads, packed)
        overlays.append(pinned(overlay, base.shards[place]))
    return commit(version, *overlays)


def commit(version: Version, *shards: Shard) -> Version:
    """The version with these shards behind what it has."""
    version.commit(
        Derive(
            head=version.state.snapshot,
            removed=[],
            added=[Added(shard) for shard in shards],
            operation="extend",
        )
    )
    return version


def checked(version: Version) -> Snapshot:
    """The newest snapshot of a version, which must be found sound."""
    report = check_version(version)
    assert report.ok, report.shards
    return version.published()


def spans(sizes: Sequence[int] = SIZES) -> list[range]:
    """The numbers in each shard."""
    ends = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
    return [range(first, last) for first, last in pairwise(ends)]


def scored(root: Store | Path | str, *, compressions: Sequence[str] = ("none",)) -> Snapshot:
    """Published: numbers in digits/v1, and beside them scores in digits/v2."""
    shards = [numbers(span.start, span.stop) for span in spans()]
    base = published(root, NUMBERS, *shards, compressions=compressions)
    schema = extended(NUMBERS, SCORE)
    scores = [[score(x) for x in span] for span in spans()]
    return checked(lay(base, "digits/v2", schema, *scores, compressions=compressions[::-1]))


def tagged(root: Store | Path | str, *, compressions: Sequence[str] = ("none",)) -> Snapshot:
    """Published: beside those, tags in digits/v3."""
    below = scored(root, compressions=compressions)
    schema = extended(below.schema, TAGS)
    return checked(lay(below, "digits/v3", schema, *([tags(x) for x in span] for span in spans())))


def mixed(root: Store | Path | str) -> Snapshot:
    """Published: digits/v3 with shards of three layers, of two and of one."""
    below = tagged(root)
    version = Version(below.store, "digits/v3")
    first = write_shard(version, "plain", [whole(x) for x in range(9, 14)])
    other = Version(below.store, "digits/v2")
    plain = write_shard(other, "plain", [example_of(**scored_record(x)) for x in range(14, 20)])
    commit(other, replace(plain, source=None))
    checked(other)
    overlay = pinned(write_shard(version, "over", [tags(x) for x in range(14, 20)]), plain)
    return checked(commit(version, replace(first, source=None), overlay))


def scored_record(x: int) -> dict[str, object]:
    """The features of a record of digits/v2."""
    return {"x": x, "name": f"größe {x}".encode(), "score": x / 4}


def whole(x: int) -> bytes:
    """A record of digits/v3 in one piece."""
    return example_of(**scored_record(x), tags=[b"tag %d" % n for n in range(x % 3 + 1)])
