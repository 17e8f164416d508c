"""Source selection: which sources an append adds, skips or rejects.

Known content under a new path is a duplicate. A known path or batch with new content has changed.
Both refer to the latest snapshot: sources that were rejected, rolled back or replaced do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from shardline.errors import ChangedSourceError, InvalidArgumentError, SourceError
from shardline.hints import Hint, Option
from shardline.log.indexes import hash_content, hash_location
from shardline.log.model import INTEGRITY
from shardline.log.parameters import AppendedSources, RejectParameters
from shardline.operations.append_task import SourceRejection
from shardline.operations.shard_writer import digest_rows
from shardline.sources.source_identity import make_source_changed_error

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from shardline.canonical_json import Json
    from shardline.log.entry import Entry
    from shardline.log.model import Source
    from shardline.log.model import Source as Identity
    from shardline.log.version import StoredVersion
    from shardline.sources import RecordSource


class KnownSource(NamedTuple):
    """A source and the entry that appended it."""

    source: Source
    entry: int

    @property
    def key(self) -> tuple[str, int]:
        """Source key and entry, as in the entry of a replacement."""
        return self.source.key, self.entry


@dataclass(frozen=True)
class _EntrySources:
    """Look-up tables of the sources of one entry."""

    entry: Entry

    @cached_property
    def by_location(self) -> dict[tuple[str | None, str | None], Source]:
        return {(source.path, source.batch): source for source in self.entry.sources}

    @cached_property
    def by_content(self) -> dict[tuple[str | None, int | None], list[Source]]:
        sources: dict[tuple[str | None, int | None], list[Source]] = {}
        for source in self.entry.sources:
            sources.setdefault((source.sha256, source.size), []).append(source)
        return sources

    @cached_property
    def replaced(self) -> frozenset[tuple[str, int]]:
        replaced = self.entry.read(AppendedSources).replaced
        return frozenset((known.source, known.entry) for known in replaced)

    @cached_property
    def digests(self) -> dict[str, str]:
        return {batch.source: batch.digest for batch in self.entry.read(AppendedSources).batches}

    @cached_property
    def temporarily_skipped(self) -> frozenset[str]:
        """Keys of sources that were skipped because of other sources of the version."""
        parameters = self.entry.read(RejectParameters)
        changed = {
            problem.source
            for problem in parameters.rejected
            if problem.code == ChangedSourceError.code
        }
        return frozenset(changed.union(duplicate.source for duplicate in parameters.duplicates))


class KnownSources:
    """Sources that a version contains, by its current log."""

    def __init__(self, version: StoredVersion) -> None:
        self._log = version.log
        self._state = version.state
        self._entries: dict[int, _EntrySources] = {}

    def find_entry(self, source: Source) -> int | None:
        """Return the entry that appended exactly this source; negative if it rejected the source.

        Returns None for an unknown source, and for one that was skipped for a reason that may have
        passed: as a duplicate, or because its path had other content.
        """
        number = self._state.sources.get(source.key)
        if number is None or number >= 0:
            return number
        return None if source.key in self._read(-number).temporarily_skipped else number

    def list_contained(self, source: Source) -> list[KnownSource]:
        """Return the contained sources of the same path or batch, oldest first."""
        return [known for known in self._iter_location(source) if self.contains(known)]

    def find_duplicate(
        self, source: Source, replaced: Collection[tuple[str, int]] = ()
    ) -> KnownSource | None:
        """Return the first contained source with the same content under another path.

        `replaced` are sources that the append is about to replace.
        """
        content_hash = hash_content(source)
        for number in (
            [] if content_hash is None else self._state.appended_sources.find(content_hash)
        ):
            for other in self._read(number).by_content.get((source.sha256, source.size), ()):
                known = KnownSource(other, number)
                if other.path != source.path and known.key not in replaced and self.contains(known):
                    return known
        return None

    def get_digest(self, known: KnownSource) -> str | None:
        """Return the digest of the rows of a batch; None if an early release appended it."""
        return self._read(known.entry).digests.get(known.source.key)

    def contains(self, known: KnownSource) -> bool:
        """Return True if the latest snapshot has records of the source, also in rebuilt shards."""
        if self._is_effective(known) and not self.was_replaced(known):
            return True
        return known.key in self._live

    def _iter_location(self, source: Source) -> Iterator[KnownSource]:
        for number in self._state.appended_sources.find(hash_location(source)):
            match = self._read(number).by_location.get((source.path, source.batch))
            if match is not None:
                yield KnownSource(match, number)

    def was_replaced(self, known: KnownSource) -> bool:
        """Return True if an effective append of the same path or batch replaced the source."""
        numbers = self._state.appended_sources.find(hash_location(known.source))
        if numbers[-1:] <= [known.entry]:
            return False
        return any(
            later.entry > known.entry
            and known.key in self._read(later.entry).replaced
            and self._is_effective(later)
            for later in self._iter_location(known.source)
        )

    def _is_effective(self, known: KnownSource) -> bool:
        """Return True if the append was neither rolled back nor rejected."""
        timeline = self._state.snapshot_history
        snapshot = timeline.of_entry(known.entry)
        if not snapshot:
            return True  # An append without records has no snapshot to roll back.
        if snapshot not in self._line:
            return False
        rejected = int(timeline.column("rejected")[snapshot - 1])
        return not (
            rejected
            and self._state.sources.get(known.source.key) == -rejected
            and timeline.of_entry(rejected) in self._line
        )

    @cached_property
    def _line(self) -> set[int]:
        return set(self._state.iter_ancestors())

    @cached_property
    def _live(self) -> set[tuple[str | None, int]]:
        """Source and entry of each live shard, also of those that a restore brought back."""
        state = self._state
        return {
            (interval.shard.source, interval.added_entry)
            for interval in state.shard_history.at(state.snapshot)
        }

    def _read(self, number: int) -> _EntrySources:
        if number not in self._entries:
            self._entries[number] = _EntrySources(self._log.entry(number))
        return self._entries[number]


OnDuplicate: TypeAlias = Literal["skip", "append"]
"""What to do with content that was appended under another path."""
OnChanged: TypeAlias = Literal["reject", "append", "replace"]
"""What to do with a known path or batch that has new content."""
SkipCode: TypeAlias = Literal[
    "appended", "appended-meanwhile", "duplicate", "named-twice", "rejected", "rolled-back"
]
"""Why an append skips a source."""
_CHANGED_HINT = Hint.of(
    "to keep both contents set ",
    Option("on_changed", "append"),
    ", to exchange the records set ",
    Option("on_changed", "replace"),
)


@dataclass(frozen=True, slots=True)
class SkippedSource:
    """Source that an append skipped; `entry` appended or rejected it.

    Of a duplicate, `first` is the source with the same content, which `entry` appended. Without an
    entry, both are in the same append.
    """

    source: Identity
    reason: str
    code: SkipCode = "appended"
    entry: int | None = None
    first: Identity | None = None

    @classmethod
    def rejected(cls, source: Identity, entry: int) -> SkippedSource:
        """Return a source that an entry rejected."""
        return cls(source, f"rejected in entry {entry}", "rejected", entry)

    @property
    def can_retry(self) -> bool:
        """Return True for a rejected or rolled back source, which `retry_rejected` appends."""
        return self.code in {"rejected", "rolled-back"}

    def to_dict(self) -> Json:
        """Return the source and the reason as JSON values."""
        return {**self.source.to_dict(), "reason": self.reason, "code": self.code}


@dataclass(frozen=True, slots=True)
class SourceRules:
    """Options for sources that are not simply new."""

    on_duplicate: OnDuplicate = "skip"
    on_changed: OnChanged = "reject"
    retry_rejected: bool = False

    def __post_init__(self) -> None:
        """Validate the choices."""
        for name, choices in (("on_duplicate", OnDuplicate), ("on_changed", OnChanged)):
            value = getattr(self, name)
            if value not in get_args(choices):
                raise InvalidArgumentError(
                    f"invalid {name} {value!r}: expected {', '.join(get_args(choices))}",
                    code="invalid-choice",
                )


@dataclass(slots=True)
class SourceSelection:
    """Sources to append, and the others by what happens to them.

    `recorded` has the entries of sources that the log knows, negative if rejected. `replaces` has
    the appends that a source replaces. Both are keyed by the source key.
    """

    new: list[tuple[RecordSource, Identity]] = field(default_factory=list)
    skipped: list[SkippedSource] = field(default_factory=list)
    rejected: list[SourceRejection] = field(default_factory=list)
    recorded: dict[str, int] = field(default_factory=dict)
    replaces: dict[str, tuple[KnownSource, ...]] = field(default_factory=dict)


def select_sources(
    version: StoredVersion, sources: Sequence[tuple[RecordSource, Identity]], rules: SourceRules
) -> SourceSelection:
    """Decide about each source, independent of their order.

    Only which of several duplicates in one call is the first depends on the order.
    """
    known = KnownSources(version)
    selection = SourceSelection()
    contained: dict[str, tuple[KnownSource, ...]] = {}
    candidates = []
    for source, identity in _list_distinct(version, sources, selection):
        if (skipped := _find_skipped(version, known, source, identity, rules)) is not None:
            selection.skipped.append(skipped)
            continue
        earlier = contained[identity.key] = tuple(known.list_contained(identity))
        if earlier and rules.on_changed == "reject":
            selection.rejected.append(_build_changed_rejection(identity, earlier))
        else:
            candidates.append((source, identity))
        number = version.state.sources.get(identity.key)
        selection.recorded |= {} if number is None else {identity.key: number}
    if rules.on_changed == "replace":
        selection.replaces = {
            identity.key: contained[identity.key]
            for _, identity in candidates
            if contained[identity.key]
        }
    if rules.on_duplicate == "append":
        selection.new = candidates
    else:
        _split_duplicates(known, candidates, selection)
    return selection


def _list_distinct(
    version: StoredVersion,
    sources: Sequence[tuple[RecordSource, Identity]],
    selection: SourceSelection,
) -> list[tuple[RecordSource, Identity]]:
    """Return each path and batch once; the others are skipped."""
    distinct: dict[tuple[str | None, str | None], tuple[RecordSource, Identity]] = {}
    for source, identity in sources:
        location = (identity.path, identity.batch)
        if location not in distinct:
            distinct[location] = (source, identity)
        elif identity.batch is not None:
            raise SourceError(
                f"duplicate batch {identity.batch!r}: two sources have this name",
                code="duplicate-batch",
                hint=Hint.of("give each batch a name of its own"),
                version=version.name,
            )
        elif distinct[location][1] != identity:
            raise make_source_changed_error(source.label)
        else:
            selection.skipped.append(
                SkippedSource(identity, "duplicate argument", code="named-twice")
            )
    return list(distinct.values())


def _find_skipped(
    version: StoredVersion,
    known: KnownSources,
    source: RecordSource,
    identity: Identity,
    rules: SourceRules,
) -> SkippedSource | None:
    """Return the reason to skip exactly this source, or None."""
    entry = known.find_entry(identity)
    if entry is None or (entry < 0 and rules.retry_rejected):
        return None
    if entry < 0:
        return SkippedSource.rejected(identity, -entry)
    appended = KnownSource(identity, entry)
    if known.contains(appended):
        if identity.batch is not None and _has_changed(version, known, source, identity):
            return None
        return SkippedSource(identity, f"appended in entry {entry}", entry=entry)
    if rules.retry_rejected or known.was_replaced(appended):
        return None
    reason = f"appended in entry {entry}, then rolled back"
    return SkippedSource(identity, reason, "rolled-back", entry)


def _has_changed(
    version: StoredVersion, known: KnownSources, source: RecordSource, identity: Identity
) -> bool:
    """Return True if a batch has other rows than those appended under its name.

    A batch of an early release has no digest and counts as unchanged.
    """
    digests = {known.get_digest(batch) for batch in known.list_contained(identity)}
    return None not in digests and digest_rows(source, version.schema) not in digests


def _build_changed_rejection(
    identity: Identity,
    earlier: Sequence[KnownSource],
    detail: str = "",
    hint: Hint = _CHANGED_HINT,
) -> SourceRejection:
    entry = earlier[-1].entry
    reason = f"{identity.label}: changed since it was appended in entry {entry}{detail}"
    return SourceRejection(
        identity, INTEGRITY, reason, code=ChangedSourceError.code, hint=hint, entry=entry
    )


def _split_duplicates(
    known: KnownSources,
    candidates: Sequence[tuple[RecordSource, Identity]],
    selection: SourceSelection,
) -> None:
    """Skip duplicates of what the version contains after all replacements.

    A changed path whose new content is a duplicate is rejected: the caller must decide whether the
    content appears twice or not at all.
    """
    rejected: dict[str, SourceRejection] = {}
    while True:
        replaces = {key: old for key, old in selection.replaces.items() if key not in rejected}
        replaced = {source.key for old in replaces.values() for source in old}
        new: dict[tuple[str | None, int | None], tuple[RecordSource, Identity]] = {}
        batches, skipped, count = [], [], len(rejected)
        for source, identity in candidates:
            if identity.key in rejected:
                continue
            if identity.batch is not None:
                batches.append((source, identity))
                continue
            first = known.find_duplicate(identity, replaced)
            content = (identity.sha256, identity.size)
            if first is None and content not in new:
                new[content] = (source, identity)
                continue
            other, entry = first or KnownSource(new[content][1], 0)
            if identity.key in replaces:
                rejected[identity.key] = _build_changed_rejection(
                    identity,
                    replaces[identity.key],
                    f", and has the content of {other.label}",
                    Hint.of(
                        _CHANGED_HINT,
                        "; to have the same content twice also set ",
                        Option("on_duplicate", "append"),
                    ),
                )
            else:
                skipped.append(_build_duplicate(identity, other, entry or None))
        if len(rejected) == count:
            break
    selection.replaces = replaces
    selection.rejected += rejected.values()
    selection.skipped += skipped
    chosen = {id(source) for source, _ in (*new.values(), *batches)}
    selection.new = [candidate for candidate in candidates if id(candidate[0]) in chosen]


def _build_duplicate(identity: Identity, first: Identity, entry: int | None) -> SkippedSource:
    origin = "in this append" if entry is None else f"in entry {entry}"
    reason = f"duplicate of {first.label}, appended {origin}"
    return SkippedSource(identity, reason, "duplicate", entry, first)
