"""The shards that an audit reads, each with the version whose log tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardline.log.model import INTEGRITY
from shardline.log.state import BRINGS_BACK

if TYPE_CHECKING:
    from shardline.lineage.auditing.audited_logs import History
    from shardline.log.publication import Row


@dataclass(frozen=True, slots=True)
class ShardToRead:
    """A shard that should be there, and the version whose log tells of it.

    `brought` is the entry that brought it back, if it is read because of that.
    """

    history: History
    row: Row
    brought: int = 0

    @property
    def name(self) -> str:
        """Where it lies."""
        return self.history.version.shard_name(self.row.shard)

    @property
    def entry(self) -> int:
        """The entry that a finding about it belongs to."""
        return self.brought or self.row.landed

    @property
    def has_failed(self) -> bool:
        """Whether its log says that it is damaged."""
        bit = self.history.ledger.bits.get(INTEGRITY)
        return bit is not None and bool(self.row.failed >> bit & 1)

    @property
    def is_held(self) -> bool:
        """Whether the newest or the published snapshot holds it."""
        ledger, shard = self.history.ledger, self.row.shard.name
        return any(ledger.row_at(shard, one or 0) for one in (ledger.snapshot, ledger.published))

    @property
    def is_replaced(self) -> bool:
        """Whether its log says that it is damaged, and what is in use does not hold it."""
        return self.has_failed and not self.is_held

    @property
    def repaired_in(self) -> int | None:
        """The entry that put another in its place; None if there is none, or it came back since."""
        repaired = self.history.repairs.get(self.row.shard.name)
        return None if repaired is None or self.is_held else repaired


def shards_to_read(history: History, since: int) -> list[ShardToRead]:
    """The shards that came from an entry on and that vacuum has not announced, each once.

    That are those that landed since, and those that were brought back since. What an entry says
    that is not sound is not held against shards.
    """
    ledger, sound = history.ledger, len(history.times)
    brought = {
        one.shard.name: entry.number
        for entry in history.data
        if entry.number >= since and entry.operation in BRINGS_BACK
        for one in entry.added
    }
    found = {}
    for row in ledger.rows:
        name = row.shard.name
        back = 0 if row.landed >= since else brought.get(name, 0)
        told = row.landed <= sound and (back or row.landed >= since)
        if told and ledger.shard_names.get(name, 0) >= 0:
            found[name] = ShardToRead(history, row, back)
    return list(found.values())
