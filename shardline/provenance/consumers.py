"""Consumers: readers of a snapshot, such as training jobs.

A consumer is an entry in the log of the version that it read, and a pin: vacuum retains the
snapshot until the consumer is released. The log keeps released consumers, so it shows who saw a
record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardline.errors import InvalidNameError, InvalidTypeError, SnapshotNotFoundError
from shardline.log.changes import EntryDraft, SetPin
from shardline.log.parameters import ConsumerParameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Ref
    from shardline.log.state import State
    from shardline.log.version import StoredVersion

CONSUME, RELEASE = "consume", "release"
CONSUMER_PREFIX = "consumer "
"""How the pin of a consumer begins."""
_MAX_WORD = 80
_PIN = re.compile(rf"{CONSUMER_PREFIX}(?P<name>\S+)(?: (?P<run>\S+))? on (?P<snapshot>\d+)")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A reader of a snapshot: its name, run and commit.

    `since` and `released` are the times of registration and release. They are None if the log was
    not read, and `released` is None while the snapshot is held.
    """

    version: str
    snapshot: int
    name: str
    run: str = ""
    commit: str = ""
    since: datetime | None = None
    released: datetime | None = None

    def __post_init__(self) -> None:
        """Refuse a name, run or commit that would not be read back as it is."""
        for what, told in (("name", self.name), ("run", self.run), ("commit", self.commit)):
            if not isinstance(told, str):
                raise InvalidTypeError(f"{what}: expected text, got {type(told).__name__}")
            fits = told.isprintable() and not any(map(str.isspace, told)) and len(told) <= _MAX_WORD
            if not fits or not (told or what != "name"):
                raise InvalidNameError(
                    f"invalid {what} of a consumer {told[:_MAX_WORD]!r}: expected 1 to "
                    f"{_MAX_WORD} printable characters without spaces"
                )

    @property
    def pin(self) -> str:
        """Name of the pin that holds the snapshot."""
        run = f" {self.run}" if self.run else ""
        return f"{CONSUMER_PREFIX}{self.name}{run} on {self.snapshot}"

    def to_dict(self) -> Json:
        """Return the consumer as JSON."""
        return {
            "version": self.version,
            "snapshot": self.snapshot,
            "name": self.name,
            "run": self.run,
            "commit": self.commit,
            "since": self.since and self.since.isoformat(),
            "released": self.released and self.released.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class SetConsumer:
    """Register a consumer of a snapshot, or release it."""

    consumer: Consumer
    released: bool = False

    def rebase(self, state: State) -> EntryDraft | None:
        """Keep both, as a pin does."""
        consumer = self.consumer
        parameters = ConsumerParameters(
            name=consumer.name, run=consumer.run, commit=consumer.commit
        )
        snapshot = None if self.released else consumer.snapshot
        draft = SetPin(consumer.pin, snapshot, "" if self.released else consumer.commit).rebase(
            state
        )
        if draft is None:
            return None
        return replace(
            draft,
            operation=RELEASE if self.released else CONSUME,
            parameters=parameters.to_dict(),
        )


def register(
    version: StoredVersion, snapshot: int, name: str, *, run: str = "", commit: str = ""
) -> Entry | None:
    """Register a reader of a snapshot, and retain the snapshot for it; None if it is registered.

    Register before reading, because vacuum may be about to delete the snapshot. Raises
    TombstonedShardError if vacuum came first.
    """
    return version.commit(SetConsumer(Consumer(version.name, snapshot, name, run, commit)))


def release(
    version: StoredVersion, name: str, *, run: str | None = None, snapshot: int | None = None
) -> list[Consumer]:
    """Release what a consumer holds: of one run and one snapshot, if given, or everything."""
    version.refresh()
    held = [
        one
        for one in list_consumers(version)
        if one.name == name and run in (None, one.run) and snapshot in (None, one.snapshot)
    ]
    if not held:
        known = ", ".join(dict.fromkeys(one.name for one in list_consumers(version))) or "none"
        run_told = f" (run {run!r})" if run is not None else ""
        on = f"@{snapshot}" if snapshot is not None else ""
        raise SnapshotNotFoundError(
            f"{version.name}{on}: unknown consumer {name!r}{run_told} (known: {known})",
            code="consumer-not-found",
            version=version.name,
            snapshot=snapshot,
        )
    for one in held:
        version.commit(SetConsumer(one, released=True))
    return held


def list_consumers(version: StoredVersion) -> list[Consumer]:
    """Return the consumers that hold snapshots of a version, without reading log entries."""
    holds = sorted(version.state.pins.items())
    found = [_parse_consumer(version.name, name, hold) for name, hold in holds]
    return sorted((one for one in found if one), key=_get_consumer_order)


def _parse_consumer(version: str, pin: str, hold: Ref) -> Consumer | None:
    told = _PIN.fullmatch(pin)
    if told is None or hold.snapshot is None:
        return None
    try:
        return Consumer(version, hold.snapshot, told["name"], told["run"] or "", hold.reason)
    except InvalidNameError:  # a pin that someone else set
        return None


def list_all_consumers(version: str, entries: Iterable[Entry]) -> list[Consumer]:
    """Return everyone who ever registered, by all entries of a log."""
    found: dict[str, Consumer] = {}
    for entry in entries:
        if entry.pin is None or entry.operation not in (CONSUME, RELEASE):
            continue
        if entry.pin.snapshot is None:
            known = found.get(entry.pin.name)
            if known is not None:
                found[entry.pin.name] = replace(known, released=entry.time)
        elif (told := _parse_consumer(version, entry.pin.name, entry.pin)) is not None:
            before = found.get(entry.pin.name)
            since = before.since if before is not None else entry.time
            found[entry.pin.name] = replace(told, since=since)
    return sorted(found.values(), key=_get_consumer_order)


def select_consumers(
    version: StoredVersion, shards: Iterable[str], consumers: Sequence[Consumer]
) -> list[Consumer]:
    """Return the consumers whose snapshot contains one of these shards.

    A rebuild moves a record to another shard: `shardline trace` lists them.
    """
    wanted = set(shards)
    holding = {
        number
        for number in {one.snapshot for one in consumers}
        if any(shard.name in wanted for shard in version.snapshot(number).shards)
    }
    return [one for one in consumers if one.snapshot in holding]


def _get_consumer_order(consumer: Consumer) -> tuple[int, str, str]:
    return consumer.snapshot, consumer.name, consumer.run
