"""Oracle of replay: an independent implementation that keeps plain lists and dictionaries."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

from shardline.errors import CorruptLogError
from shardline.log.changes import may_publish
from shardline.log.indexes import SourceIndex
from shardline.log.model import Checks, Totals
from shardline.log.publication import PublicationTracker, ReplayedShard, ReplayedSnapshot
from shardline.log.shard_history import LIVE
from shardline.log.state import (
    BEGINNING,
    MAX_CHECKS,
    REJECTION,
    RESTORING_OPERATIONS,
    VACUUM,
    Policy,
    content_digest,
    list_dismissals,
    list_rewritten_sidecars,
    validate_next_entry,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from shardline.log.entry import Entry
    from shardline.log.model import Ref, Shard
    from shardline.log.state import LogState
    from shardline.schema.schema import Schema


class Replay:
    """What the entries so far amount to.

    `live` are the shards of the newest snapshot in order, `rows` all that ever were in the list,
    `named` the same by their names, `snapshots` all snapshots. `sources` and `shard_names` tell the
    entries by which these landed, or negative, were rejected or condemned.
    """

    def __init__(self, dataset: str, version: str) -> None:
        self.dataset = dataset
        self.version = version
        self.number = 0
        self.digest: str | None = None
        self.time = BEGINNING
        self.schema: Schema | None = None
        self.fingerprint: str | None = None
        self.policies: tuple[Policy, ...] = ()
        self.bits = {REJECTION: 0, VACUUM: 1}
        self.published: int | None = None
        self.totals = Totals()
        self.content: str | None = None
        self.tags: dict[str, Ref] = {}
        self.pins: dict[str, Ref] = {}
        self.live: list[ReplayedShard] = []
        self.rows: list[ReplayedShard] = []
        self.named: dict[str, list[ReplayedShard]] = {}
        self.snapshots: list[ReplayedSnapshot] = []
        self.sources: dict[str, int] = {}
        self.open_sources: dict[str, int] = {}
        self.shard_names: dict[str, int] = {}
        self.sidecars: dict[str, int] = {}
        self.uses_sidecars = False
        self.appended_sources = SourceIndex()
        self.publication = PublicationTracker(self.bits, self.snapshots)
        self._same: dict[str, list[ReplayedSnapshot]] = {}
        self._digests: list[bytes] = []

    @property
    def name(self) -> str:
        """The version as people write it."""
        return f"{self.dataset}/{self.version}"

    @property
    def snapshot(self) -> int:
        """The newest snapshot."""
        return len(self.snapshots)

    @property
    def checks(self) -> Checks:
        """The checks that a snapshot made now would need."""
        return self.policies[-1].checks if self.policies else Checks()

    def at(self, snapshot: int) -> list[ReplayedShard]:
        """The shards of a snapshot, in order."""
        if snapshot == self.snapshot:
            return self.live
        return [row for row in self.rows if row.since <= snapshot < row.until]

    def row_at(self, shard: str, snapshot: int) -> ReplayedShard | None:
        """A shard as it stands in a snapshot; None if that does not hold it."""
        rows = self.named.get(shard, ())
        return next((row for row in rows if row.since <= snapshot < row.until), None)

    def has_content(self, content: str) -> bool:
        """Whether there ever was a snapshot of this content."""
        return content in self._same

    def condemned_in(self, shard: str) -> int | None:
        """The entry that announced that vacuum deletes a shard; None if there is none."""
        entry = self.shard_names.get(shard, 0)
        return -entry if entry < 0 else None

    def take(self, entry: Entry) -> list[str]:
        """Replay the next entry, and tell which of its claims are not true.

        Raises CorruptLogError if it cannot be the next one; the ledger is then of no more use.
        """
        validate_next_entry(cast("LogState", self), entry)
        false = list(self._unfit(entry)) if entry.added else []
        self._change(entry)
        if entry.changes_data:
            self._hold(entry)
        self._mark(entry)
        published = self.published
        if may_publish(entry, self.checks):
            published = self.publication.latest()
        wrong = []
        if entry.totals != self.totals:
            wrong.append("totals")
        if entry.content != self.content:
            wrong.append("content")
        if entry.fingerprint != self.fingerprint:
            wrong.append("fingerprint")
        if entry.published != published:
            wrong.append("published")
        self.stand(entry)
        return [
            *false,
            *(f"false claim: {name!r} differs from the replay" for name in wrong),
        ]

    def _unfit(self, entry: Entry) -> Iterator[str]:
        """Shards that no commit would have let in."""
        back = entry.operation in RESTORING_OPERATIONS
        for one in entry.added:
            shard, known = one.shard, self.named.get(one.shard.name)
            if back and known and known[-1].shard != shard:
                yield f"restored shard {shard.name} differs from the original"
            if shard.owner != self.version:
                yield f"added shard {shard.name} belongs to another version"
            if (taken := self.condemned_in(shard.name)) is not None:
                yield f"added shard {shard.name} was tombstoned in entry {taken}"
            if known and known[-1].until == LIVE and shard.name not in entry.removed:
                yield f"added shard {shard.name} is live already"

    def _change(self, entry: Entry) -> None:
        if entry.schema is not None:
            self.schema = entry.schema
            self.fingerprint = entry.schema.fingerprint
        if entry.checks is not None:
            self.policies += (Policy(self.snapshot + 1, entry.checks),)
            self.publication.require(self.snapshot + 1, entry.checks)
        if entry.changes_data:
            self._list(entry)
        for source in entry.sources:
            rejected = entry.operation == "reject"
            self.sources[source.key] = -entry.number if rejected else entry.number
            if rejected:
                self.open_sources[source.location_key] = entry.number
            else:
                self.open_sources.pop(source.location_key, None)
                self.appended_sources.add(source, entry.number)
        for dismissal in list_dismissals(entry):
            if self.open_sources.get(dismissal.location_key) == dismissal.entry:
                del self.open_sources[dismissal.location_key]
        if entry.sidecars:
            self.uses_sidecars = True
            self.sidecars.update(dict.fromkeys(list_rewritten_sidecars(entry), entry.number))
        if entry.tombstones:
            self.shard_names.update(dict.fromkeys(entry.tombstones, -entry.number))
            self._judge(entry.number, entry.tombstones, self.bits[VACUUM], passed=False)

    def _list(self, entry: Entry) -> None:
        """Bring shards into the list, and take others out."""
        back = entry.operation in RESTORING_OPERATIONS
        if entry.removed or back or not self._comes_behind(entry):
            self._relist(entry, back=back)
        else:
            self._append(entry)
        if not back:
            for one in entry.added:
                self.shard_names[one.shard.name] = entry.number

    def _comes_behind(self, entry: Entry) -> bool:
        """Whether all that an entry adds stands behind what is there, in its order."""
        end, places = len(self.live), [one.at for one in entry.added]
        return not any(place is not None for place in places) or places == list(
            range(end, end + len(places))
        )

    def _append(self, entry: Entry) -> None:
        rows = [ReplayedShard(one.shard, entry.snapshot, LIVE, entry.number) for one in entry.added]
        self._put(rows)
        self.live += rows
        self._sum_up(len(self.live) - len(rows))
        self.publication.add_shards(rows)

    def _relist(self, entry: Entry, *, back: bool) -> None:
        removed = set(entry.removed)
        after: list[ReplayedShard | Shard] = [
            row for row in self.live if row.shard.name not in removed
        ]
        if len(self.live) - len(after) != len(removed):
            raise CorruptLogError(self.name, entry.number, "it removes shards that are not live")
        for one in sorted(entry.added, key=lambda one: LIVE if one.at is None else one.at):
            known = self.named.get(one.shard.name) if back else None
            item: ReplayedShard | Shard = known[-1] if known else one.shard
            after.insert(len(after) if one.at is None else one.at, item)
        kept = 0
        while kept < min(len(self.live), len(after)) and after[kept] is self.live[kept]:
            kept += 1
        for row in self.live[kept:]:
            row.until = entry.snapshot
        rows = [
            item.reopen(entry.snapshot, LIVE)
            if isinstance(item, ReplayedShard)
            else ReplayedShard(item, entry.snapshot, LIVE, entry.number)
            for item in after[kept:]
        ]
        self._put(rows)
        self.live[kept:] = rows
        self._sum_up(kept)
        self.publication.reset_count()

    def _put(self, rows: Sequence[ReplayedShard]) -> None:
        self.rows += rows
        for row in rows:
            self.named.setdefault(row.shard.name, []).append(row)

    def _sum_up(self, kept: int) -> None:
        """Work out the digest and the totals of the list, of which so many stand as they did."""
        digests = self._digests
        if kept < len(digests):
            del digests[kept:]
            self.totals = Totals.of([row.shard for row in self.live])
        else:
            self.totals += Totals.of([row.shard for row in self.live[kept:]])
        last = digests[-1] if digests else bytes.fromhex(content_digest(self.fingerprint, ()))
        for row in self.live[kept:]:
            shard = row.shard
            base = b"" if shard.base is None else bytes.fromhex(shard.base.sha256)
            last = hashlib.sha256(last + bytes.fromhex(shard.sha256) + base).digest()
            digests.append(last)
        self.content = last.hex()

    def _hold(self, entry: Entry) -> None:
        if self.snapshots:
            self.snapshots[-1].unreferenced = entry.time
        made = ReplayedSnapshot(entry.snapshot, entry.number, entry.time)
        made.digest = entry.digest
        made.totals, made.content = self.totals, self.content or ""
        made.parent = self._made_from(entry)
        same = self._same.setdefault(made.content, [])
        if same and entry.operation in RESTORING_OPERATIONS:
            other = same[-1]
            made.passed, made.failed, made.failed_entry = (
                other.passed,
                other.failed,
                other.failed_entry,
            )
        same.append(made)
        self.snapshots.append(made)
        self.publication.add_snapshot(made.number, self.live)

    def _made_from(self, entry: Entry) -> int:
        if entry.restores is not None:
            return entry.restores
        return self.snapshot - 1 if entry.rejects == self.snapshot else self.snapshot

    def _mark(self, entry: Entry) -> None:
        for told in entry.attestations:
            bit = self.bits.get(told.check, -1)
            if bit < 0:
                bit = self.bits[told.check] = len(self.bits)
            if bit >= MAX_CHECKS:
                raise CorruptLogError(self.name, entry.number, f"more than {MAX_CHECKS} checks")
            if told.content is None:
                self._judge(entry.number, told.shards, bit, passed=told.passed)
                continue
            for made in self._same.get(told.content, ()):
                made.passed, made.failed = _marked(made, bit, passed=told.passed)
                made.failed_entry = made.failed_entry if told.passed else entry.number
        if entry.rejects is not None:
            self.snapshots[entry.rejects - 1].rejected = entry.number
        if entry.tag is not None:
            self._move(self.tags, entry.tag, entry.time)
        if entry.pin is not None:
            self._move(self.pins, entry.pin, entry.time)

    def _judge(self, entry: int, names: Sequence[str], bit: int, *, passed: bool) -> None:
        """Note what a check said about shards; what lands with the same entry is not meant."""
        for name in names:
            for row in self.named.get(name, ()):
                if row.added_entry >= entry:
                    continue
                old = row.passed, row.failed
                new = _marked(row, bit, passed=passed)
                if passed:
                    row.ever_passed |= 1 << bit
                else:
                    row.failed_entry = entry
                if new != old:
                    row.passed, row.failed = new
                    self.publication.update_shard(row, *old)

    def stand(self, entry: Entry) -> None:
        """Take over what an entry claims."""
        if self.snapshots and self.snapshots[-1].entry == entry.number:
            self.snapshots[-1].digest = entry.digest
        if entry.published != self.published:
            if self.published is not None:
                self.snapshots[self.published - 1].unreferenced = entry.time
            if entry.published is not None:
                made = self.snapshots[entry.published - 1]
                made.published = made.published or entry.number
        self.published = entry.published
        self.number, self.digest, self.time = entry.number, entry.digest, entry.time

    def _move(self, holds: dict[str, Ref], hold: Ref, time: datetime) -> None:
        old = holds.pop(hold.name, None)
        if old is not None and old.snapshot is not None:
            self.snapshots[old.snapshot - 1].unreferenced = time
        if hold.snapshot is not None:
            holds[hold.name] = hold


def _marked(one: ReplayedShard | ReplayedSnapshot, bit: int, *, passed: bool) -> tuple[int, int]:
    flag = 1 << bit
    if passed:
        return one.passed | flag, one.failed & ~flag
    return one.passed & ~flag, one.failed | flag
