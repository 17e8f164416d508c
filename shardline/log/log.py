"""Log of a version in storage: find its latest entry, read entries, commit."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import random
import re
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.errors import (
    CommitStateUnknownError,
    CorruptLogError,
    LogError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsyncedWriteError,
)
from shardline.hints import Hint
from shardline.log.changes import build_entry
from shardline.log.checkpoint import CheckpointError, read_checkpoint, write_checkpoint
from shardline.log.entry import Entry, is_sealed, read_entry
from shardline.log.state import State
from shardline.storage import object_uri, validate_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from shardline.log.changes import Change
    from shardline.log.model import CommitInfo
    from shardline.storage import Store

CHECKPOINT_INTERVAL = 192
ENTRY_NAME = re.compile(r"(\d{20})\.json", re.ASCII)
CHECKPOINT_NAME = re.compile(r"(\d{20})\.checkpoint", re.ASCII)
HINT = "newest-checkpoint.json"
_FIRST_BATCH = 4
_LARGEST_BATCH = 64
_UNCERTAIN_TRIES = 5
_LONGEST_PAUSE = 0.1
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Log:
    """Entries of a version. `known` caches the read entries, None disables the cache."""

    store: Store
    dataset: str
    version: str
    known: dict[int, Entry] | None = field(default=None, compare=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        """Validate the names, which are parts of paths."""
        validate_name(self.dataset, "dataset")
        validate_name(self.version, "version")

    @property
    def folder(self) -> str:
        """Folder of the entries."""
        return f"{self.dataset}/{self.version}/log"

    @property
    def label(self) -> str:
        """Name of the version: `digits/v1`."""
        return f"{self.dataset}/{self.version}"

    def entry_name(self, number: int) -> str:
        """Return the path of an entry."""
        return f"{self.folder}/{number:020}.json"

    def checkpoint_name(self, number: int) -> str:
        """Return the path of a checkpoint."""
        return f"{self.folder}/{number:020}.checkpoint"

    def load(self) -> State:
        """Return the current state: the latest checkpoint, and the entries after it."""
        state = self._read_latest_checkpoint() or State(self.dataset, self.version)
        self.follow(state)
        return state

    def replay(self) -> Iterator[tuple[State, Entry]]:
        """Yield every entry, with the state after it."""
        state = State(self.dataset, self.version)
        for entry in self.entries(1):
            state.apply(entry)
            yield state, entry

    def _replay_to(self, number: int) -> State:
        """Return the state after an entry, from the entries alone."""
        for state, entry in self.replay():
            if entry.number == number:
                return state
        raise CorruptLogError(self.label, number, "not found", "missing-entry")

    def follow(self, state: State) -> list[Entry]:
        """Update a state, and return the new entries."""
        new = []
        for entry in self.entries(state.number + 1):
            state.apply(entry)
            new.append(entry)
        return new

    def entry(self, number: int) -> Entry:
        """Read an entry that exists."""
        if self.known and (entry := self.known.get(number)) is not None:
            return entry
        try:
            data = self.store.read(self.entry_name(number))
        except ObjectNotFoundError:
            raise CorruptLogError(self.label, number, "not found", "missing-entry") from None
        return self._cache(read_entry(self.label, number, data))

    def _cache(self, entry: Entry) -> Entry:
        """Cache an entry, if this log has a cache."""
        if self.known is not None:
            self.known[entry.number] = entry
        return entry

    def has_entry(self, number: int, digest: str) -> bool:
        """Return True if an entry has this digest, without decoding it: it may be large.

        Raises CorruptLogError if the entry is corrupt.
        """
        if self.known and number in self.known:
            return self.known[number].digest == digest
        data = self.store.read_many([self.entry_name(number)])[0]
        if data is None:
            return False
        return is_sealed(data, digest) or read_entry(self.label, number, data).digest == digest

    def entries_at(self, numbers: Sequence[int]) -> Iterator[Entry]:
        """Read entries that exist, several at a time."""
        for first in range(0, len(numbers), _LARGEST_BATCH):
            batch = numbers[first : first + _LARGEST_BATCH]
            for number, item in zip(batch, self._read_batch(batch), strict=True):
                if item is None:
                    raise CorruptLogError(self.label, number, "not found", "missing-entry")
                yield self._decode(number, item)

    def entries(self, first: int) -> Iterator[Entry]:
        """Return the entries from `first` to the latest, several at a time."""
        batch = _FIRST_BATCH
        while True:
            numbers = range(first, first + batch)
            items = self._read_batch(numbers)
            for number, item in zip(numbers, items, strict=True):
                if item is None:
                    self._validate_no_gap(number, items[number - first + 1 :])
                    return
                yield self._decode(number, item)
            first += batch
            batch = min(2 * batch, _LARGEST_BATCH)

    def _read_batch(self, numbers: Sequence[int]) -> list[Entry | bytes | None]:
        """Return entries that are known, and read the files of all others in one request."""
        known = self.known or {}
        unread = [number for number in numbers if number not in known]
        names = [self.entry_name(number) for number in unread]
        contents = self.store.read_many(names) if names else []
        files = dict(zip(unread, contents, strict=True))
        return [known[number] if number in known else files[number] for number in numbers]

    def _decode(self, number: int, item: Entry | bytes) -> Entry:
        return (
            item if isinstance(item, Entry) else self._cache(read_entry(self.label, number, item))
        )

    def _validate_no_gap(self, number: int, later: Sequence[Entry | bytes | None]) -> None:
        """Raise CorruptLogError if an entry is missing before a later one."""
        has_later = any(later) if later else self.exists(number + 1)
        if has_later and not self.exists(number):  # it may have been committed meanwhile
            raise CorruptLogError(
                self.label, number, "not found, but later entries exist", "missing-entry"
            )

    def exists(self, number: int) -> bool:
        """Return True if the entry exists."""
        return self.store.info(self.entry_name(number)) is not None

    def head_number(self) -> int:
        """Find the number of the latest entry, with few requests, by doubling and halving."""
        low, high = 0, 1
        while self.exists(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.exists(middle) else (low, middle)
        return low

    def commit(
        self, state: State, change: Change, commit_info: CommitInfo, now: datetime
    ) -> tuple[State, Entry | None]:
        """Commit a change on a state, or rebased on concurrent commits.

        Returns the state after the commit, and the entry; None if there is nothing to do.
        """
        entry_id = secrets.token_hex(16)
        for attempt in range(1_000_000):
            built = self._build(state, change, id=entry_id, now=now, commit_info=commit_info)
            if built is None:
                return state, None
            after, entry, data = built
            if self._put(entry, data):
                if entry.number % CHECKPOINT_INTERVAL == 0:
                    self._try_checkpoint(after)
                return after, entry
            _pause(attempt)
            self.follow(state)
        raise StorageError(
            f"{self.label}: other writers committed first each time",
            code="commit-contention",
            hint=Hint.of("retry later"),
            version=self.label,
        )

    def _build(
        self,
        state: State,
        change: Change,
        *,
        id: str,  # noqa: A002 - named like the field
        now: datetime,
        commit_info: CommitInfo,
    ) -> tuple[State, Entry, bytes] | None:
        """Build the next entry. Refreshes the state before a change fails or does nothing."""
        build = functools.partial(
            build_entry, state, change, id=id, now=now, commit_info=commit_info
        )
        try:
            built = build()
        except LogError:
            if not self.follow(state):
                raise
            return build()
        return build() if built is None and self.follow(state) else built

    def _put(self, entry: Entry, data: bytes) -> bool:
        """Create the file of an entry; False if it exists."""
        name = self.entry_name(entry.number)
        problem: StorageError | None = None
        for attempt in range(_UNCERTAIN_TRIES):
            try:
                self.store.create(name, data)
            except UnsyncedWriteError:
                raise
            except (ObjectExistsError, CommitStateUnknownError) as error:
                problem = error
            else:
                return True
            content = self._read_back(name)
            if content is not None:
                return content == data
            _pause(attempt)
        raise CommitStateUnknownError(
            f"{self.label}: unknown whether entry {entry.number} was committed",
            hint=Hint.of("run the same command again, which never appends a source twice"),
            path=object_uri(self.store, name),
            version=self.label,
        ) from problem

    def _read_back(self, name: str) -> bytes | None:
        try:
            return self.store.read_many([name])[0]
        except StorageError:
            return None

    def write_checkpoint(self, state: State) -> None:
        """Write a checkpoint of a state."""
        self.store.replace(self.checkpoint_name(state.number), write_checkpoint(state))
        hint = json.dumps({"entry": state.number}).encode() + b"\n"
        self.store.replace(f"{self.folder}/{HINT}", hint)
        state.checkpoint = state.number

    def _try_checkpoint(self, state: State) -> None:
        """Write a checkpoint. Best effort: the commit is valid without it."""
        try:
            self.write_checkpoint(state)
        except StorageError as error:
            _logger.warning("%s: no checkpoint at entry %d: %s", self.label, state.number, error)

    def _read_latest_checkpoint(self) -> State | None:
        hinted = self.read_hint()
        state = self.checkpoint(hinted) if hinted else None
        if not self.exists((state.number if state else 0) + 2 * CHECKPOINT_INTERVAL):
            return state
        latest = self.head_number() // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL
        for number in range(latest, max(latest - 4 * CHECKPOINT_INTERVAL, 0), -CHECKPOINT_INTERVAL):
            state = self.checkpoint(number)
            if state is not None:
                return state
        return None

    def read_hint(self) -> int:
        """Read the pointer to the latest checkpoint, which may be missing, old or corrupt."""
        data = self.store.read_many([f"{self.folder}/{HINT}"])[0]
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
            number = json.loads(data or b"{}")["entry"]
            return number if type(number) is int and 0 < number < 10**18 else 0
        return 0

    def checkpoint(self, number: int) -> State | None:
        """Return the state of a checkpoint; None if it is missing, corrupt or of another log."""
        try:
            state = read_checkpoint(
                self.store,
                self.checkpoint_name(number),
                self.dataset,
                self.version,
                fallback=functools.cache(lambda: self._replay_to(number)),
            )
        except (CheckpointError, StorageError, ValueError, KeyError, TypeError) as error:
            _logger.warning("%s: ignored checkpoint at entry %d: %s", self.label, number, error)
            return None
        if state.number != number or self.entry(number).digest != state.digest:
            _logger.warning(
                "%s: ignored checkpoint at entry %d: of another log", self.label, number
            )
            return None
        return state


def _pause(attempt: int) -> None:
    """Wait for a random time that grows with each attempt."""
    if attempt:
        time.sleep(random.uniform(0, min(0.001 * 2 ** min(attempt, 10), _LONGEST_PAUSE)))  # noqa: S311
