"""What a version holds of which source: where a path, a batch or a content landed.

Known content under a new path is a duplicate. A path or batch that has landed and now has other
content has changed. Both are said of what the newest snapshot holds: what was rejected, rolled back
or replaced since is neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from shardline.errors import ChangedSourceError, InvalidArgumentError, SourceError
from shardline.hints import Hint, Option
from shardline.log.indexes import hash_content, hash_location
from shardline.log.model import INTEGRITY
from shardline.operations.append_task import SourceRejection
from shardline.operations.shard_writer import digest_rows
from shardline.sources.source_identity import make_source_changed_error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.log.model import Source as Identity
    from shardline.log.version import StoredVersion
    from shardline.sources import RecordSource


class KnownSource(NamedTuple):
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

    def at_place(self, source: Source) -> list[KnownSource]:
        """The landings of the same path or batch that are held, oldest first."""
        return [one for one in self._landings(source) if self.holds(one)]

    def with_content(
        self, source: Source, leaving: Collection[tuple[str, int]] = ()
    ) -> KnownSource | None:
        """The first landing of the same content under another path that is held and stays.

        `leaving` are landings that are about to be replaced.
        """
        hashed = hash_content(source)
        for number in [] if hashed is None else self._state.landings.find(hashed):
            for other in self._of(number).by_content.get((source.sha256, source.size), ()):
                found = KnownSource(other, number)
                if other.path != source.path and found.key not in leaving and self.holds(found):
                    return found
        return None

    def digest(self, landed: KnownSource) -> str | None:
        """What the rows of a batch amounted to; None if an earlier release appended it."""
        return self._of(landed.entry).digests.get(landed.source.key)

    def holds(self, landed: KnownSource) -> bool:
        """Return True if the newest snapshot holds what landed, itself or in a rebuilt shard."""
        if self._stands(landed) and not self.was_replaced(landed):
            return True
        return landed.key in self._live

    def _landings(self, source: Source) -> Iterator[KnownSource]:
        for number in self._state.landings.find(hash_location(source)):
            found = self._of(number).by_place.get((source.path, source.batch))
            if found is not None:
                yield KnownSource(found, number)

    def was_replaced(self, landed: KnownSource) -> bool:
        """Return True if a later landing of the same path or batch replaced it, and stands."""
        numbers = self._state.landings.find(hash_location(landed.source))
        if numbers[-1:] <= [landed.entry]:
            return False
        return any(
            one.entry > landed.entry
            and landed.key in self._of(one.entry).replaced
            and self._stands(one)
            for one in self._landings(landed.source)
        )

    def _stands(self, landed: KnownSource) -> bool:
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


OnDuplicate: TypeAlias = Literal["skip", "append"]
"""What to do with content that landed under another path."""
OnChanged: TypeAlias = Literal["reject", "append", "replace"]
"""What to do with other content of a path or batch that landed."""
SkipCode: TypeAlias = Literal[
    "appended", "appended-meanwhile", "duplicate", "named-twice", "rejected", "rolled-back"
]
"""Why an append skips a source."""
_HINT = Hint.of(
    "to keep both contents set ",
    Option("on_changed", "append"),
    ", to exchange the records set ",
    Option("on_changed", "replace"),
)


@dataclass(frozen=True, slots=True)
class SkippedSource:
    """A source that was left out, and why. `out` says that it landed once and was taken out.

    `code` is the reason for scripts; `entry` is the log entry that appended or rejected it. Of a
    duplicate, `first` is the source with the same content, which landed in `entry`: None if that is
    part of the same append.
    """

    source: Identity
    reason: str
    out: bool = False
    code: SkipCode = "appended"
    entry: int | None = None
    first: Identity | None = None


@dataclass(frozen=True, slots=True)
class SourceRules:
    """What a caller wants of sources that are not simply new."""

    on_duplicate: OnDuplicate = "skip"
    on_changed: OnChanged = "reject"
    retry_rejected: bool = False

    def __post_init__(self) -> None:
        """Refuse what is neither of the choices."""
        for name, kinds in (("on_duplicate", OnDuplicate), ("on_changed", OnChanged)):
            value = getattr(self, name)
            if value not in get_args(kinds):
                raise InvalidArgumentError(
                    f"invalid {name} {value!r}: expected {', '.join(get_args(kinds))}",
                    code="invalid-choice",
                )


@dataclass(slots=True)
class SourceSelection:
    """The sources that land, and what becomes of the others.

    `words` are what the log said of those that it knows. `replaces` are the landings that a source
    replaces, by its key.
    """

    new: list[tuple[RecordSource, Identity]] = field(default_factory=list)
    skipped: list[SkippedSource] = field(default_factory=list)
    refused: list[SourceRejection] = field(default_factory=list)
    words: dict[str, int] = field(default_factory=dict)
    replaces: dict[str, tuple[KnownSource, ...]] = field(default_factory=dict)


def select_sources(
    version: StoredVersion, sources: Sequence[tuple[RecordSource, Identity]], rules: SourceRules
) -> SourceSelection:
    """Decide on each source, as the log stands now; the order of the sources does not matter.

    Only which of several duplicates in one call is the first depends on it.
    """
    known = KnownSources(version)
    choice = SourceSelection()
    held: dict[str, tuple[KnownSource, ...]] = {}
    candidates = []
    for source, identity in _list_distinct(version, sources, choice):
        if (skipped := _find_skipped(version, known, source, identity, rules)) is not None:
            choice.skipped.append(skipped)
            continue
        held[identity.key] = tuple(known.at_place(identity))
        if held[identity.key] and rules.on_changed == "reject":
            choice.refused.append(make_changed_rejection(identity, held[identity.key]))
        else:
            candidates.append((source, identity))
        word = version.state.sources.get(identity.key)
        choice.words |= {} if word is None else {identity.key: word}
    if rules.on_changed == "replace":
        choice.replaces = {one.key: held[one.key] for _, one in candidates if held[one.key]}
    if rules.on_duplicate == "append":
        choice.new = candidates
    else:
        _split_duplicates(known, candidates, choice)
    return choice


def _list_distinct(
    version: StoredVersion,
    sources: Sequence[tuple[RecordSource, Identity]],
    choice: SourceSelection,
) -> list[tuple[RecordSource, Identity]]:
    """The sources, each path and batch once."""
    found: dict[tuple[str | None, str | None], tuple[RecordSource, Identity]] = {}
    for source, identity in sources:
        place = (identity.path, identity.batch)
        if place not in found:
            found[place] = (source, identity)
        elif identity.batch is not None:
            raise SourceError(
                f"duplicate batch {identity.batch!r}: two sources have this name",
                code="duplicate-batch",
                hint=Hint.of("give each batch a name of its own"),
                version=version.name,
            )
        elif found[place][1] != identity:
            raise make_source_changed_error(source.label)
        else:
            choice.skipped.append(SkippedSource(identity, "it is named twice", code="named-twice"))
    return list(found.values())


def _find_skipped(
    version: StoredVersion,
    known: KnownSources,
    source: RecordSource,
    identity: Identity,
    rules: SourceRules,
) -> SkippedSource | None:
    """Why exactly this source is left out; None if it may land."""
    word = known.word(identity)
    if word is None or (word < 0 and rules.retry_rejected):
        return None
    if word < 0:
        why = f"it was rejected in entry {-word} of the log"
        return SkippedSource(identity, why, out=True, code="rejected", entry=-word)
    landed = KnownSource(identity, word)
    if known.holds(landed):
        if identity.batch is not None and _has_changed(version, known, source, identity):
            return None
        return SkippedSource(identity, f"it landed in entry {word} of the log", entry=word)
    if rules.retry_rejected or known.was_replaced(landed):
        return None
    why = f"it landed in entry {word} of the log, and was rolled back since"
    return SkippedSource(identity, why, out=True, code="rolled-back", entry=word)


def _has_changed(
    version: StoredVersion, known: KnownSources, source: RecordSource, identity: Identity
) -> bool:
    """Return True if the rows of a batch are others than those that landed under its name.

    What an earlier release appended has no digest, and counts as the same.
    """
    digests = {known.digest(one) for one in known.at_place(identity)}
    return None not in digests and digest_rows(source, version.schema) not in digests


def make_changed_rejection(
    identity: Identity, held: Sequence[KnownSource], detail: str = ""
) -> SourceRejection:
    """Build the refusal of a source whose path or batch landed with other content."""
    entry = held[-1].entry
    why = f"{identity.shown}: changed since it landed in entry {entry}{detail}"
    return SourceRejection(
        identity, INTEGRITY, why, code=ChangedSourceError.code, hint=_HINT, entry=entry
    )


def _split_duplicates(
    known: KnownSources,
    candidates: Sequence[tuple[RecordSource, Identity]],
    choice: SourceSelection,
) -> None:
    """Tell duplicates from what lands, by what the version holds after all replacements.

    A path that would be replaced by content of another one is left as it is: the caller has to say
    whether the content is to be there twice, or not at all.
    """
    refused: dict[str, SourceRejection] = {}
    while True:
        replaces = {key: some for key, some in choice.replaces.items() if key not in refused}
        leaving = {one.key for some in replaces.values() for one in some}
        new: dict[tuple[str | None, int | None], tuple[RecordSource, Identity]] = {}
        batches, skipped, before = [], [], len(refused)
        for source, identity in candidates:
            if identity.key in refused:
                continue
            if identity.batch is not None:
                batches.append((source, identity))
                continue
            first = known.with_content(identity, leaving)
            content = (identity.sha256, identity.size)
            if first is None and content not in new:
                new[content] = (source, identity)
                continue
            other, entry = first or KnownSource(new[content][1], 0)
            if identity.key in replaces:
                detail = f", and has the content of {other.shown}"
                refusal = make_changed_rejection(identity, replaces[identity.key], detail)
                refused[identity.key] = refusal.with_hint(Option("on_duplicate", "append"))
            else:
                skipped.append(make_duplicate(identity, other, entry or None))
        if len(refused) == before:
            break
    choice.replaces = replaces
    choice.refused += refused.values()
    choice.skipped += skipped
    chosen = {id(source) for source, _ in (*new.values(), *batches)}
    choice.new = [one for one in candidates if id(one[0]) in chosen]


def make_duplicate(identity: Identity, first: Identity, entry: int | None) -> SkippedSource:
    """Build the report on a source whose content landed under another path."""
    where = "in the same append" if entry is None else f"in entry {entry} of the log"
    why = f"duplicate of {first.shown}, which landed {where}"
    return SkippedSource(identity, why, code="duplicate", entry=entry, first=first)
