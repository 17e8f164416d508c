"""Pins, by which a version retains shards of another version that it needs to be read.

A pin is an entry in the log of the other version, committed before the entry that needs it. So
vacuum sees the pin, or the pin is refused because vacuum came first. A pin is released when a pin
on a later snapshot retains the same shards, and by vacuum when no version needs it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.version import DerivedFrom, StoredVersion

_PIN = re.compile(r"(?P<holder>[^ /]+/[^ /]+) on (?P<snapshot>\d+)")


def get_pin_name(into: str, snapshot: int) -> str:
    """Return the name of the pin of the version `into` on a snapshot of another version."""
    return f"{into} on {snapshot}"


def parse_pin_holder(pin: str) -> str | None:
    """Return the version that set a pin, or None for the pin of a user or consumer."""
    match = _PIN.fullmatch(pin)
    return None if match is None else match["holder"]


def pin_inputs(into: StoredVersion, origins: Sequence[DerivedFrom]) -> None:
    """Pin the snapshots that a version is about to need.

    Raises TombstonedShardError if vacuum deleted one of their shards.
    """
    for origin in origins:
        number = origin.snapshot.number
        origin.version.pin(get_pin_name(into.name, number), number, f"{into.name} is read with it")


def release_superseded_pins(into: StoredVersion, origins: Sequence[DerivedFrom]) -> None:
    """Release the pins whose shards the pins on these snapshots retain as well."""
    for origin in origins:
        retained = {shard.name for shard in origin.snapshot.shards}
        for name, number in list(list_pins(origin.version, into.name)):
            if number == origin.snapshot.number:
                continue
            if {shard.name for shard in origin.version.snapshot(number).shards} <= retained:
                origin.version.pin(name, None)


def list_pins(version: StoredVersion, into: str) -> Iterator[tuple[str, int]]:
    """Yield the pins of the version `into` on snapshots of this version."""
    for name, ref in sorted(version.state.pins.items()):
        if parse_pin_holder(name) == into and ref.snapshot is not None:
            yield name, ref.snapshot
