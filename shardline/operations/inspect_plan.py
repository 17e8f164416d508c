"""Inspect a plan, which stands for a shard: is it what was committed, and does it lead to pairs?"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shardline.errors import ObjectMissingError, ShardlineError
from shardline.schema.comparison import compare
from shardline.schema.validation import Violation
from shardline.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.model import Shard
    from shardline.pairing.pair_plan import PairPlan
    from shardline.readers.virtual import Opened
    from shardline.schema.schema import Schema
    from shardline.storage import Store


def inspect_plan(
    store: Store, name: str, shard: Shard, schema: Schema | None
) -> tuple[list[str], list[Violation], bool]:
    """What is wrong with a plan, how its pairs differ from the schema, and whether it was read.

    The records that it pairs are not read: that is for the checks of their own versions.
    """
    from shardline.readers.virtual import open_plan  # noqa: PLC0415 - it builds on much

    try:
        data = store.read(name)
    except ObjectMissingError:
        return ["it is missing"], [], False
    problems = []
    if len(data) != shard.bytes:
        problems.append(f"it has {counted(len(data), 'byte')} and should have {shard.bytes}")
    if hashlib.sha256(data).hexdigest() != shard.sha256:
        return [*problems, "its sha256 is not the one that was committed"], [], False
    try:
        opened = open_plan(store, _decoded(data))
    except (ValueError, ShardlineError) as error:
        return [*problems, f"it does not lead to its pairs: {error}"], [], False
    problems += _gone(opened)
    if opened.pairs != shard.records:
        problems.append(f"it has {counted(opened.pairs, 'pair')} and should have {shard.records}")
    misfits = []
    if schema is not None and opened.schema.fingerprint != schema.fingerprint:
        differences = "; ".join(compare(schema, opened.schema).lines())
        misfits.append(Violation(0, None, f"its pairs have another schema: {differences}"))
    return problems, misfits, True


def _decoded(data: bytes) -> PairPlan:
    from shardline.pairing.pair_plan import PairPlan  # noqa: PLC0415 - as above

    return PairPlan.decode(data)


def _gone(opened: Opened) -> Iterator[str]:
    """Which of the files are not there, or not as long as they should be."""
    for file in opened.files:
        try:
            file.look()
        except ShardlineError as error:
            yield str(error)
