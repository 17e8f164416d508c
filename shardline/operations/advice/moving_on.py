"""What to do about an old snapshot that cannot be read whole any more: the newest one can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Command, Hint
from shardline.operations.consumers import consumers_of
from shardline.operations.read_from import layers_below, object_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from shardline.log.snapshot import Snapshot
    from shardline.log.version import Version


def moving_on(version: Version, snapshot: int, lost: Collection[str]) -> Hint | None:
    """Return the way out for an old snapshot that needs lost objects; None if there is none.

    Nothing makes them anew for it, but the newest may do without them.
    """
    newest = version.newest()
    if snapshot >= newest.number or _needs(newest, lost):
        return None
    old = f"{version.name}@{snapshot}"
    hint = Hint.of(
        f"put the committed file back to read all of {old}, or use {newest}, which does not need it"
    )
    if not newest.published:
        hint = Hint.of(hint, "; to publish that, run ", Command.of("check", str(newest)))
    commands = [Hint.of(command) for command in _holds(version, snapshot, newest)]
    if not commands:
        return hint
    return Hint.of(hint, f"; to release {old}, run ", Hint.join(" and ", commands))


def _needs(snapshot: Snapshot, lost: Collection[str]) -> bool:
    own = (snapshot.shard_name(shard) for shard in snapshot.shards)
    return any(one in lost for one in (*own, *map(object_of, layers_below(snapshot))))


def _holds(version: Version, snapshot: int, newest: Snapshot) -> Iterator[Command]:
    """The commands that move, or take away, what keeps a snapshot."""
    for tag, hold in sorted(version.state.tags.items()):
        if hold.snapshot == snapshot:
            yield Command.of("tag", str(newest), tag)
    for one in consumers_of(version):
        if one.snapshot == snapshot:
            run = ("--run", one.run) if one.run else ()
            of = f"{version.name}@{snapshot}"
            yield Command.of("consumers", of, "--release", one.name, *run)
