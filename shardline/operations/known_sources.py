"""What a version holds of which source: where a path, a batch or a content landed.

Known content under a new path is a duplicate. A path or batch that has landed and now has other
content has changed. Both are said of what the newest snapshot holds: what was rejected, rolled back
or replaced since is neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from shardline.errors import ChangedSourceError
from shardline.log.source_index import content_hash, place_hash

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.log.version import StoredVersion


class Landed(NamedTuple):
    """A source, and the entry that it landed with."""

    source: Source
    entry: int

    @property
    def key(self) -> tuple[str, int]:
        """The landing as an entry names it that replaces it."""
        return self.source.key, self.entry


@dataclass(frozen=True)
class _EntrySources:
    """What one entry tells of its sources, ready to be looked up."""

    entry: Entry

    @cached_property
    def by_place(self) -> dict[tuple[str | None, str | None], Source]:
        return {(one.path, one.batch): one for one in self.entry.sources}

    @cached_property
    def by_content(self) -> dict[tuple[str | None, int | None], list[Source]]:
        found: dict[tuple[str | None, int | None], list[Source]] = {}
        for one in self.entry.sources:
            found.setdefault((one.sha256, one.size), []).append(one)
        return found

    @cached_property
    def replaced(self) -> frozenset[tuple[str, int]]:
        told = self.entry.parameters.get("replaced", ())
        return frozenset((str(one["source"]), int(one["entry"])) for one in told)

    @cached_property
    def digests(self) -> dict[str, str]:
        told = self.entry.parameters.get("batches", ())
        return {str(one["source"]): str(one["digest"]) for one in told}

    @cached_property
    def passing(self) -> frozenset[str]:
        """The keys of sources that were left out for what else the version held then."""
        told = self.entry.parameters
        duplicates = {str(one["source"]) for one in told.get("duplicates", ())}
        aside = told.get("set_aside", ())
        return frozenset(
            duplicates
            | {str(one["source"]) for one in aside if one.get("code") == ChangedSourceError.code}
        )


class KnownSources:
    """The sources that a version holds, as its log stands now."""

    def __init__(self, version: StoredVersion) -> None:
        self._log = version.log
        self._state = version.state
        self._entries: dict[int, _EntrySources] = {}

    def word(self, source: Source) -> int | None:
        """What the log says of exactly this source: its landing, or negative, its rejection.

        None if nothing, or if it was left out for a reason that may have passed: as a duplicate, or
        since its path had landed with other content.
        """
        word = self._state.sources.get(source.key)
        if word is None or word >= 0:
            return word
        return None if source.key in self._of(-word).passing else word

    def at_place(self, source: Source) -> list[Landed]:
        """The landings of the same path or batch that are held, oldest first."""
        return [one for one in self._landings(source) if self.holds(one)]

    def with_content(
        self, source: Source, leaving: Collection[tuple[str, int]] = ()
    ) -> Landed | None:
        """The first landing of the same content under another path that is held and stays.

        `leaving` are landings that are about to be replaced.
        """
        hashed = content_hash(source)
        for number in [] if hashed is None else self._state.landings.find(hashed):
            for other in self._of(number).by_content.get((source.sha256, source.size), ()):
                found = Landed(other, number)
                if other.path != source.path and found.key not in leaving and self.holds(found):
                    return found
        return None

    def digest(self, landed: Landed) -> str | None:
        """What the rows of a batch amounted to; None if an earlier release appended it."""
        return self._of(landed.entry).digests.get(landed.source.key)

    def holds(self, landed: Landed) -> bool:
        """Return True if the newest snapshot holds what landed, itself or in a rebuilt shard."""
        if self._stands(landed) and not self.was_replaced(landed):
            return True
        return landed.key in self._live

    def _landings(self, source: Source) -> Iterator[Landed]:
        for number in self._state.landings.find(place_hash(source)):
            found = self._of(number).by_place.get((source.path, source.batch))
            if found is not None:
                yield Landed(found, number)

    def was_replaced(self, landed: Landed) -> bool:
        """Return True if a later landing of the same path or batch replaced it, and stands."""
        numbers = self._state.landings.find(place_hash(landed.source))
        if numbers[-1:] <= [landed.entry]:
            return False
        return any(
            one.entry > landed.entry
            and landed.key in self._of(one.entry).replaced
            and self._stands(one)
            for one in self._landings(landed.source)
        )

    def _stands(self, landed: Landed) -> bool:
        """Return True if the entry is neither rolled back nor rejected."""
        timeline = self._state.timeline
        snapshot = timeline.of_entry(landed.entry)
        if not snapshot:
            return True  # It gave no record, and there was nothing to roll back to.
        if snapshot not in self._line:
            return False
        rejected = int(timeline.column("rejected")[snapshot - 1])
        return not (
            rejected
            and self._state.sources.get(landed.source.key) == -rejected
            and timeline.of_entry(rejected) in self._line
        )

    @cached_property
    def _line(self) -> set[int]:
        return set(self._state.line())

    @cached_property
    def _live(self) -> set[tuple[str | None, int]]:
        """The source and the landing of each live shard: also of what a restore brought back."""
        state = self._state
        return {(stay.shard.source, stay.landed) for stay in state.stays.at(state.snapshot)}

    def _of(self, number: int) -> _EntrySources:
        if number not in self._entries:
            self._entries[number] = _EntrySources(self._log.entry(number))
        return self._entries[number]
