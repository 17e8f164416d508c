"""Pins: a version that cannot be read without the shards of another keeps them from vacuum.

The pin is an entry in the log of the other version, set before the commit that needs it: so either
vacuum sees the pin, or the pin is refused because vacuum came first. A pin is let go of when one
on a later snapshot keeps all that it keeps, and by vacuum when nothing needs it any more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.version import Origin, StoredVersion

_PIN = re.compile(r"(?P<holder>[^ /]+/[^ /]+) on (?P<snapshot>\d+)")


def pin_name(into: str, snapshot: int) -> str:
    """Under which name a version holds a snapshot of another."""
    return f"{into} on {snapshot}"


def holder_of(pin: str) -> str | None:
    """The version that holds a snapshot by a pin of this name; None if it is another's."""
    told = _PIN.fullmatch(pin)
    return None if told is None else told["holder"]


def hold_inputs(into: StoredVersion, origins: Sequence[Origin]) -> None:
    """Pin the snapshots that a version is about to need.

    Raises CondemnedShardError if vacuum took a shard of one.
    """
    for origin in origins:
        number = origin.snapshot.number
        origin.version.pin(pin_name(into.name, number), number, f"{into.name} is read with it")


def let_go(into: StoredVersion, origins: Sequence[Origin]) -> None:
    """Let go of the pins that those on these snapshots make needless."""
    for origin in origins:
        kept = {shard.name for shard in origin.snapshot.shards}
        for name, number in list(pins_of(origin.version, into.name)):
            if number == origin.snapshot.number:
                continue
            held = {shard.name for shard in origin.version.snapshot(number).shards}
            if held <= kept:
                origin.version.pin(name, None)


def pins_of(version: StoredVersion, into: str) -> Iterator[tuple[str, int]]:
    """The pins by which a version holds snapshots of this one."""
    for name, hold in sorted(version.state.pins.items()):
        told = _PIN.fullmatch(name)
        if told is not None and told["holder"] == into and hold.snapshot is not None:
            yield name, hold.snapshot
