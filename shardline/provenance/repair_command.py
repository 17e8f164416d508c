"""The command that makes damaged shards anew: a repair, or what derived them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.hints import Command
from shardline.log.model import INTEGRITY
from shardline.log.publication import is_in
from shardline.provenance.commands import DERIVES, command_again, made_by
from shardline.provenance.log_index import landing_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardline.log.model import Shard
    from shardline.log.version import StoredVersion


def command_to_mend(version: StoredVersion, damaged: Iterable[Shard]) -> Command | None:
    """Return the command that recreates corrupt shards of the latest snapshot, if known.

    What derived one leaves the others as they are, if the log says which are damaged.
    """
    try:
        if any(is_derived(version, shard) for shard in damaged):
            made = made_by(version, version.state.snapshot)
            return None if made is None else command_again(made)
    except ShardlineError:
        return None  # the log reports its own problem
    return Command.of("repair", version.name)


def known_damaged(version: StoredVersion) -> list[Shard]:
    """The shards of the newest snapshot of which the log says that they are damaged."""
    stays = version.state.stays.at(version.state.snapshot)
    return [stay.shard for stay in stays if is_in(version, stay.failed, INTEGRITY)]


def is_derived(version: StoredVersion, shard: Shard) -> bool:
    """Whether a shard was made of others by a function or a rule, and not copied or appended."""
    if shard.base is not None or shard.virtual:
        return True
    return landing_of(version, shard)[0].operation in DERIVES
