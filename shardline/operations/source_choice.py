"""Which of the sources of an append land: the rule of what is new, a duplicate, or changed.

- The same content under the same path, or the same rows under the same batch name: nothing to do.
- Content that the version holds, under another path: a duplicate, skipped unless asked for.
- Other content under a path or batch name that the version holds: rejected, unless the caller
  wants to append it as well, or to replace what the path or batch contributed.
- Anything else is new. What was rejected or rolled back stays out until someone asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from shardline.errors import ChangedSourceError, InvalidArgumentError, SourceError
from shardline.hints import Hint, Option
from shardline.log.model import INTEGRITY
from shardline.operations.known_sources import KnownSources, Landed
from shardline.operations.rows_digest import rows_digest
from shardline.operations.set_aside import Refusal
from shardline.sources.origin import source_changed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.log.model import Source as Identity
    from shardline.log.version import StoredVersion
    from shardline.sources import RecordSource

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
class Skipped:
    """A source that was left out, and why. `out` says that it landed once and was taken out.

    `code` is the reason for scripts; `entry` is the log entry that appended or rejected it. Of a
    duplicate, `first` is the source with the same content, which landed in `entry`: None if that is
    part of the same append.
    """

    source: Identity
    why: str
    out: bool = False
    code: SkipCode = "appended"
    entry: int | None = None
    first: Identity | None = None


@dataclass(frozen=True, slots=True)
class SourceRules:
    """What a caller wants of sources that are not simply new."""

    on_duplicate: OnDuplicate = "skip"
    on_changed: OnChanged = "reject"
    reland: bool = False

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
class Choice:
    """The sources that land, and what becomes of the others.

    `words` are what the log said of those that it knows. `replaces` are the landings that a source
    replaces, by its key.
    """

    new: list[tuple[RecordSource, Identity]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    words: dict[str, int] = field(default_factory=dict)
    replaces: dict[str, tuple[Landed, ...]] = field(default_factory=dict)


def choose(
    version: StoredVersion, sources: Sequence[tuple[RecordSource, Identity]], rules: SourceRules
) -> Choice:
    """Decide on each source, as the log stands now; the order of the sources does not matter.

    Only which of several duplicates in one call is the first depends on it.
    """
    known = KnownSources(version)
    choice = Choice()
    held: dict[str, tuple[Landed, ...]] = {}
    candidates = []
    for source, identity in _distinct(version, sources, choice):
        if (skipped := _settled(version, known, source, identity, rules)) is not None:
            choice.skipped.append(skipped)
            continue
        held[identity.key] = tuple(known.at_place(identity))
        if held[identity.key] and rules.on_changed == "reject":
            choice.refused.append(changed_source(identity, held[identity.key]))
        else:
            candidates.append((source, identity))
        word = version.state.sources.get(identity.key)
        choice.words |= {} if word is None else {identity.key: word}
    if rules.on_changed == "replace":
        choice.replaces = {one.key: held[one.key] for _, one in candidates if held[one.key]}
    if rules.on_duplicate == "append":
        choice.new = candidates
    else:
        _part_duplicates(known, candidates, choice)
    return choice


def _distinct(
    version: StoredVersion, sources: Sequence[tuple[RecordSource, Identity]], choice: Choice
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
            raise source_changed(source.shown)
        else:
            choice.skipped.append(Skipped(identity, "it is named twice", code="named-twice"))
    return list(found.values())


def _settled(
    version: StoredVersion,
    known: KnownSources,
    source: RecordSource,
    identity: Identity,
    rules: SourceRules,
) -> Skipped | None:
    """Why exactly this source is left out; None if it may land."""
    word = known.word(identity)
    if word is None or (word < 0 and rules.reland):
        return None
    if word < 0:
        why = f"it was rejected in entry {-word} of the log"
        return Skipped(identity, why, out=True, code="rejected", entry=-word)
    landed = Landed(identity, word)
    if known.holds(landed):
        if identity.batch is not None and _has_changed(version, known, source, identity):
            return None
        return Skipped(identity, f"it landed in entry {word} of the log", entry=word)
    if rules.reland or known.was_replaced(landed):
        return None
    why = f"it landed in entry {word} of the log, and was rolled back since"
    return Skipped(identity, why, out=True, code="rolled-back", entry=word)


def _has_changed(
    version: StoredVersion, known: KnownSources, source: RecordSource, identity: Identity
) -> bool:
    """Return True if the rows of a batch are others than those that landed under its name.

    What an earlier release appended has no digest, and counts as the same.
    """
    digests = {known.digest(one) for one in known.at_place(identity)}
    return None not in digests and rows_digest(source, version.schema) not in digests


def changed_source(identity: Identity, held: Sequence[Landed], detail: str = "") -> Refusal:
    """Build the refusal of a source whose path or batch landed with other content."""
    entry = held[-1].entry
    why = f"{identity.shown}: changed since it landed in entry {entry}{detail}"
    return Refusal(identity, INTEGRITY, why, code=ChangedSourceError.code, hint=_HINT, entry=entry)


def _part_duplicates(
    known: KnownSources, candidates: Sequence[tuple[RecordSource, Identity]], choice: Choice
) -> None:
    """Tell duplicates from what lands, by what the version holds after all replacements.

    A path that would be replaced by content of another one is left as it is: the caller has to say
    whether the content is to be there twice, or not at all.
    """
    refused: dict[str, Refusal] = {}
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
            other, entry = first or Landed(new[content][1], 0)
            if identity.key in replaces:
                detail = f", and has the content of {other.shown}"
                refusal = changed_source(identity, replaces[identity.key], detail)
                refused[identity.key] = refusal.with_hint(Option("on_duplicate", "append"))
            else:
                skipped.append(duplicate_of(identity, other, entry or None))
        if len(refused) == before:
            break
    choice.replaces = replaces
    choice.refused += refused.values()
    choice.skipped += skipped
    chosen = {id(source) for source, _ in (*new.values(), *batches)}
    choice.new = [one for one in candidates if id(one[0]) in chosen]


def duplicate_of(identity: Identity, first: Identity, entry: int | None) -> Skipped:
    """Build the report on a source whose content landed under another path."""
    where = "in the same append" if entry is None else f"in entry {entry} of the log"
    why = f"duplicate of {first.shown}, which landed {where}"
    return Skipped(identity, why, code="duplicate", entry=entry, first=first)
