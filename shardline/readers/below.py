"""What to do if a snapshot cannot be read because of a shard of its own, or of one below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import DamagedFileError, ShardlineError
from shardline.log.version import Version
from shardline.operations.advice.again import again_advice
from shardline.operations.advice.moving_on import moving_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.log.facts import Shard
    from shardline.readers.shards import ShardFile
    from shardline.storage import Store

_NO_DAMAGE = frozenset({"example", "oversized"})
"""What is told of a record that is as it was committed."""


def advice_below(store: Store, snapshot: str, owner: str, shard: Shard) -> str:
    """The way out for a snapshot that is read from a shard of `owner`, which is no good.

    A repair puts another shard in its place, and what lies on the old one has to follow.
    """
    name, _, number = snapshot.rpartition("@")
    lost = f"{owner.partition('/')[0]}/shards/{shard.name}"
    again = again_advice(store, name, int(number), lost)
    if again.startswith(f"{snapshot} "):
        return again
    if _is_in_newest(store, owner, shard):
        return (
            f"{snapshot} is read from it: make it anew with 'shardline repair {owner}', and then "
            f"{again}"
        )
    return f"{snapshot} is read from it, and {owner} has another in its place: {again}"


def _is_in_newest(store: Store, owner: str, shard: Shard) -> bool:
    try:
        return shard.name in {one.name for one in Version(store, owner).newest().shards}
    except ShardlineError:
        return True


def became_of(store: Store, owner: str, shard: Shard) -> str:
    """Which entry gave a shard of `owner` up for good, to be read before what to do; or nothing."""
    try:
        entries = Version(store, owner).log.entries(1)
        first = next((entry for entry in entries if shard.name in entry.condemned), None)
    except ShardlineError:
        return ""
    if first is None:
        return ""
    what = "records of it were erased" if first.operation == "erase" else "vacuum deleted it"
    return f"{what} in entry {first.number} of {owner};"


def told_below(
    snapshot: str, store: Store, files: Iterable[ShardFile], error: DamagedFileError
) -> DamagedFileError:
    """An error at one of the files that a snapshot is read from, with what to do about it."""
    name = snapshot.rpartition("@")[0]
    for file in files:
        if file.path != error.file or error.kind in _NO_DAMAGE:
            continue
        owner = f"{file.snapshot.partition('/')[0]}/{file.shard.owner}"
        if owner != name:
            return error.advised(advice_below(store, snapshot, owner, file.shard))
        advice = advice_on_own(store, snapshot, owner, file.shard)
        return error.advised(f"{advice}. {error.advice}") if advice else error
    return error


def advice_on_own(store: Store, snapshot: str, owner: str, shard: Shard) -> str:
    """The way out for a snapshot one of whose own shards is no good."""
    from shardline.operations.advice.damaged import command_to_mend  # noqa: PLC0415 - it builds on us

    version, number = Version(store, owner), int(snapshot.rpartition("@")[2])
    try:
        if not _is_in_newest(store, owner, shard):
            return moving_on(version, number, {version.shard_name(shard)})
        command = command_to_mend(version, [shard])
    except (ShardlineError, ValueError):
        return ""
    if command.startswith("shardline repair "):
        return f"'{command}' makes it anew"
    again = f", and then '{command}' makes it anew" if command else ""
    return f"'shardline check {owner} --again' writes to its log that it is damaged{again}"
