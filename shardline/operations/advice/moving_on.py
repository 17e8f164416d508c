"""What to do about an old snapshot that cannot be read whole any more: the newest one can."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from shardline.operations.consumers import consumers_of
from shardline.operations.read_from import layers_below, object_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from shardline.log.snapshot import Snapshot
    from shardline.log.version import Version


def moving_on(version: Version, snapshot: int, lost: Collection[str]) -> str:
    """The way out for an old snapshot that needs objects which are lost; empty if there is none.

    Nothing makes them anew for it, but the newest may do without them.
    """
    newest = version.newest()
    if snapshot >= newest.number or _needs(newest, lost):
        return ""
    old = f"{version.name}@{snapshot}"
    check = "" if newest.published else f", and 'shardline check {newest}' publishes it"
    told = (
        f"{old} cannot be read whole any more, unless the file that was committed is put back; "
        f"{newest} does without it{check}"
    )
    commands = list(_holds(version, snapshot, newest))
    return f"{told}. To let go of {old}: {' and '.join(commands)}" if commands else told


def _needs(snapshot: Snapshot, lost: Collection[str]) -> bool:
    own = (snapshot.shard_name(shard) for shard in snapshot.shards)
    return any(one in lost for one in (*own, *map(object_of, layers_below(snapshot))))


def _holds(version: Version, snapshot: int, newest: Snapshot) -> Iterator[str]:
    """The commands that move, or take away, what keeps a snapshot."""
    for tag, hold in sorted(version.state.tags.items()):
        if hold.snapshot == snapshot:
            yield f"'{shlex.join(('shardline', 'tag', str(newest), tag))}'"
    for one in consumers_of(version):
        if one.snapshot == snapshot:
            run = ("--run", one.run) if one.run else ()
            of = f"{version.name}@{snapshot}"
            yield f"'{shlex.join(('shardline', 'consumers', of, '--release', one.name, *run))}'"
