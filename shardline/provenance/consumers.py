"""Consumers: readers of a snapshot, such as training jobs.

A consumer is an entry in the log of the version that it reads, and a pin: vacuum retains the
snapshot until the consumer is released. The log keeps released consumers, so it shows who read a
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
"""Prefix of the pin of a consumer."""
_MAX_WORD = 80
_PIN = re.compile(rf"{CONSUMER_PREFIX}(?P<name>\S+)(?: (?P<run>\S+))? on (?P<snapshot>\d+)")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A reader of a snapshot: its name, run and commit.

    `since` and `released` are the times of registration and release. They are None if the log was
    not read, and `released` is None while the snapshot is retained.
    """

    version: str
    snapshot: int
    name: str
    run: str = ""
    commit: str = ""
    since: datetime | None = None
    released: datetime | None = None

    def __post_init__(self) -> None:
        """Raise InvalidNameError for a name, run or commit that a pin cannot contain."""
        for label, text in (("name", self.name), ("run", self.run), ("commit", self.commit)):
            if not isinstance(text, str):
                raise InvalidTypeError(f"{label}: expected text, got {type(text).__name__}")
            is_word = text.isprintable() and not any(map(str.isspace, text))
            if not is_word or len(text) > _MAX_WORD or not (text or label != "name"):
                raise InvalidNameError(
                    f"invalid {label} of a consumer {text[:_MAX_WORD]!r}: expected 1 to "
                    f"{_MAX_WORD} printable characters without spaces"
                )

    @property
    def pin(self) -> str:
        """Name of the pin that retains the snapshot."""
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
        """Return the entry that sets or releases the pin; None if nothing changes."""
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
    """Release the snapshots of a consumer, optionally of a single run or snapshot."""
    version.refresh()
    consumers = list_consumers(version)
    matches = [
        consumer
        for consumer in consumers
        if consumer.name == name
        and run in (None, consumer.run)
        and snapshot in (None, consumer.snapshot)
    ]
    if not matches:
        known = ", ".join(dict.fromkeys(consumer.name for consumer in consumers)) or "none"
        run_label = f" (run {run!r})" if run is not None else ""
        on = f"@{snapshot}" if snapshot is not None else ""
        raise SnapshotNotFoundError(
            f"{version.name}{on}: unknown consumer {name!r}{run_label} (known: {known})",
            code="consumer-not-found",
            version=version.name,
            snapshot=snapshot,
        )
    for consumer in matches:
        version.commit(SetConsumer(consumer, released=True))
    return matches


def list_consumers(version: StoredVersion) -> list[Consumer]:
    """Return the registered consumers of a version, without reading log entries."""
    refs = sorted(version.state.pins.items())
    consumers = [_parse_consumer(version.name, name, ref) for name, ref in refs]
    return sorted(filter(None, consumers), key=_get_consumer_order)


def _parse_consumer(version: str, pin: str, ref: Ref) -> Consumer | None:
    match = _PIN.fullmatch(pin)
    if match is None or ref.snapshot is None:
        return None
    try:
        return Consumer(version, ref.snapshot, match["name"], match["run"] or "", ref.reason)
    except InvalidNameError:  # A user set the pin.
        return None


def list_all_consumers(version: str, entries: Iterable[Entry]) -> list[Consumer]:
    """Return all consumers that ever registered, by the entries of a log."""
    consumers: dict[str, Consumer] = {}
    for entry in entries:
        if entry.pin is None or entry.operation not in (CONSUME, RELEASE):
            continue
        if entry.pin.snapshot is None:
            known = consumers.get(entry.pin.name)
            if known is not None:
                consumers[entry.pin.name] = replace(known, released=entry.time)
        elif (consumer := _parse_consumer(version, entry.pin.name, entry.pin)) is not None:
            before = consumers.get(entry.pin.name)
            since = before.since if before is not None else entry.time
            consumers[entry.pin.name] = replace(consumer, since=since)
    return sorted(consumers.values(), key=_get_consumer_order)


def select_consumers(
    version: StoredVersion, shards: Iterable[str], consumers: Sequence[Consumer]
) -> list[Consumer]:
    """Return the consumers whose snapshot contains one of these shards.

    A rebuild moves records to other shards, which `shardline trace` follows.
    """
    names = set(shards)
    snapshots = {
        number
        for number in {consumer.snapshot for consumer in consumers}
        if any(shard.name in names for shard in version.snapshot(number).shards)
    }
    return [consumer for consumer in consumers if consumer.snapshot in snapshots]


def _get_consumer_order(consumer: Consumer) -> tuple[int, str, str]:
    return consumer.snapshot, consumer.name, consumer.run
