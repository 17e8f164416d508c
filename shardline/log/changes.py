"""Changes of a version: intents to commit, rebased on what others committed.

`change.rebase(state)` returns the next entry for a state, so a commit that lost a race rebases its
change. It raises ConflictError if the change no longer fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from shardline.errors import (
    ConflictError,
    LogError,
    SchemaMismatchError,
    SnapshotNotFoundError,
    TombstonedShardError,
    VersionNotFoundError,
)
from shardline.hints import Hint
from shardline.log.entry import Entry
from shardline.log.model import Added, Attestation, Checks, Input, Ref, Shard, Source, Totals
from shardline.log.parameters import RejectParameters
from shardline.log.publication import find_latest_published
from shardline.log.state import (
    MAX_CHECKS,
    REJECTION,
    RESERVED_CHECKS,
    content_digest,
    extend_digest,
    get_name_key,
)
from shardline.schema.comparison import compare
from shardline.storage import validate_no_credentials
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from shardline.canonical_json import Json
    from shardline.log.model import CommitInfo
    from shardline.log.state import State
    from shardline.schema.schema import Schema


_RETRY = Hint.of("retry on the latest snapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """Changes of an entry, without its claims about the state after it."""

    operation: str
    parameters: Json = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    schema: Schema | None = None
    checks: Checks | None = None
    added: tuple[Added, ...] = ()
    removed: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    attestations: tuple[Attestation, ...] = ()
    rejects: int | None = None
    restores: int | None = None
    tag: Ref | None = None
    pin: Ref | None = None
    tombstones: tuple[str, ...] = ()
    sidecars: Json = field(default_factory=dict)


class Change(Protocol):
    """An intent to commit, rebased on conflict."""

    def rebase(self, state: State) -> EntryDraft | None:
        """Return the next entry; None if there is nothing to do. Raises ConflictError."""
        ...


@dataclass(frozen=True, slots=True)
class Create:
    """Creation of a version. Does nothing if the version exists with the same schema.

    `Require` changes the checks later.
    """

    schema: Schema
    checks: Checks = Checks()

    def rebase(self, state: State) -> EntryDraft | None:
        """Fail if the version exists with another schema."""
        _validate_not_reserved(self.checks)
        if state.schema is None:
            return EntryDraft(operation="create", schema=self.schema, checks=self.checks)
        if state.schema.fingerprint != self.schema.fingerprint:
            raise SchemaMismatchError(
                f"{state.name}: exists with another schema\n{compare(state.schema, self.schema)}",
                hint=Hint.of("migrate to a new version: a version has a single schema"),
                version=state.name,
            )
        return None


@dataclass(frozen=True, slots=True)
class Require:
    """Checks that snapshots from now on need for publication."""

    checks: Checks

    def rebase(self, state: State) -> EntryDraft | None:
        """Never conflicts."""
        _validate_not_reserved(self.checks)
        if self.checks == state.checks:
            return None
        return EntryDraft(operation="require", checks=self.checks)


def list_live_names(state: State) -> list[str]:
    """List the names of the shards of the latest snapshot, in order."""
    return [interval.shard.name for interval in state.shard_history.at(state.snapshot)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Replacement of adjacent shards: rebuild, repair. Keeps shards appended meanwhile."""

    removed: Sequence[str]
    added: Sequence[Shard]
    operation: str = "rebuild"
    parameters: Json = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    sidecars: Json = field(default_factory=dict)

    def rebase(self, state: State) -> EntryDraft | None:
        """Fail if a replaced shard was removed, or if the shards are not adjacent."""
        live = list_live_names(state)
        missing = sorted(set(self.removed) - set(live))
        if missing:
            raise ConflictError(
                f"{state.name}: {self.operation} conflicts with a concurrent commit "
                f"({format_count(len(missing), 'shard')} removed, such as {missing[0]})",
                code="replaced-shards-removed",
                hint=_RETRY,
                path=missing[0],
                version=state.name,
            )
        names = set(self.removed)
        positions = [position for position, name in enumerate(live) if name in names]
        if not positions or positions[-1] - positions[0] + 1 != len(positions):
            raise ConflictError(
                f"{state.name}: {self.operation} replaces shards that are not adjacent",
                code="replaced-shards-not-adjacent",
                hint=_RETRY,
                version=state.name,
            )
        validate_shards(state, self.added, live)
        return EntryDraft(
            operation=self.operation,
            parameters=self.parameters,
            inputs=self.inputs,
            added=tuple(
                Added(shard, position) for position, shard in enumerate(self.added, positions[0])
            ),
            removed=tuple(live[position] for position in positions),
            sidecars=self.sidecars,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Derive:
    """New shard list of a derived version: extend, combine, migrate, erase.

    `head` is the latest snapshot of the plan. `tombstones` are shards that must not be committed
    again. An erase also tombstones shards of older snapshots that contain the erased records.
    """

    head: int
    removed: Sequence[str]
    added: Sequence[Added]
    operation: str
    parameters: Json = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    sources: tuple[Source, ...] = ()
    tombstones: Sequence[str] = ()
    sidecars: Json = field(default_factory=dict)

    def rebase(self, state: State) -> EntryDraft | None:
        """Fail if the latest snapshot is another."""
        _validate_head(state, self.head, self.operation)
        tombstones = tuple(name for name in self.tombstones if state.get_tombstone(name) is None)
        if not self.removed and not self.added and not tombstones:
            return None
        live = list_live_names(state)
        validate_shards(state, [item.shard for item in self.added], live)
        retained = (set(live) - set(self.removed)) & set(tombstones)
        if retained:
            raise LogError(
                f"{state.name}: cannot tombstone shard {min(retained)} and keep it",
                code="tombstoned-shard",
                path=min(retained),
                version=state.name,
            )
        return EntryDraft(
            operation=self.operation,
            parameters=self.parameters,
            inputs=self.inputs,
            added=tuple(self.added),
            removed=tuple(self.removed),
            sources=self.sources,
            tombstones=tombstones,
            sidecars=self.sidecars,
        )


@dataclass(frozen=True, slots=True)
class RewriteSidecars:
    """Digests of sidecars that an erase is about to rewrite.

    `since` maps each sidecar to the entry that had its digest when it was read. None is the entry
    that added the shard.
    """

    sidecars: Json
    parameters: Json
    since: Mapping[str, int | None] = field(default_factory=dict)

    def rebase(self, state: State) -> EntryDraft | None:
        """Fail if another entry committed a digest of such a file meanwhile."""
        if not self.sidecars:
            return None
        for name, number in self.since.items():
            if state.sidecars.get(get_name_key(name)) != number:
                raise ConflictError(f"sidecar {name}: concurrent rewrite by another erase")
        return EntryDraft(operation="erase", parameters=self.parameters, sidecars=self.sidecars)


@dataclass(frozen=True, slots=True)
class Restore:
    """Restoration of an old snapshot. `head` is the latest snapshot of the plan."""

    snapshot: int
    head: int

    def rebase(self, state: State) -> EntryDraft | None:
        """Fail if the latest snapshot is another, or if a shard is tombstoned."""
        _validate_snapshot(state, self.snapshot)
        _validate_head(state, self.head, "restore")
        target = [interval.shard for interval in state.shard_history.at(self.snapshot)]
        validate_not_tombstoned(state, target, f"cannot restore snapshot {self.snapshot}: ")
        added, removed = diff_shards(state, target)
        if not added and not removed:
            return None
        lifted = _list_rejected(state, (item.shard.name for item in added))
        attestations = (Attestation(REJECTION, True, tuple(lifted)),) if lifted else ()  # noqa: FBT003
        return EntryDraft(
            operation="restore",
            added=added,
            removed=removed,
            attestations=attestations,
            restores=self.snapshot,
        )


@dataclass(frozen=True, slots=True)
class Attest:
    """Check results on shards, or on the content of a snapshot."""

    attestations: tuple[Attestation, ...]

    def rebase(self, state: State) -> EntryDraft | None:
        """Never conflicts."""
        _validate_attestations(state, self.attestations)
        return (
            EntryDraft(operation="attest", attestations=self.attestations)
            if self.attestations
            else None
        )


@dataclass(frozen=True, slots=True)
class Reject:
    """Rejection of a snapshot: removes the shards it added, adds the shards it removed.

    `added` and `removed` are the changes of the snapshot's entry. `rejected` names the shards
    to mark as rejected, `sources` are rejected with their shards. Rejected shards are not
    added again, so the rejection of a rejection changes no shards.
    """

    snapshot: int
    added: tuple[Shard, ...] = ()
    removed: tuple[Shard, ...] = ()
    rejected: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    attestations: tuple[Attestation, ...] = ()
    reason: str = ""

    def rebase(self, state: State) -> EntryDraft | None:
        """Never conflicts. Does nothing if the snapshot was rejected already."""
        _validate_snapshot(state, self.snapshot)
        _validate_attestations(state, self.attestations)
        if state.snapshot_history.get_row(self.snapshot).rejected:
            if not self.attestations:
                return None
            return EntryDraft(operation="attest", attestations=self.attestations)
        live = [interval.shard for interval in state.shard_history.at(state.snapshot)]
        moved = {shard.name for shard in self.removed}
        leaving = {s.name for s in self.added if s.name not in moved} & {s.name for s in live}
        added, removed = diff_shards(state, self._undo(state, live, leaving))
        keys = {shard.source for shard in live if shard.name in leaving}
        marks = (Attestation(REJECTION, False, self.rejected),) if self.rejected else ()  # noqa: FBT003
        return EntryDraft(
            operation="reject",
            parameters=RejectParameters(reason=self.reason).to_dict(),
            added=added,
            removed=removed,
            sources=tuple(source for source in self.sources if source.key in keys),
            attestations=(*self.attestations, *marks),
            rejects=self.snapshot,
        )

    def _undo(self, state: State, live: list[Shard], leaving: set[str]) -> list[Shard]:
        """Return the shard list without the changes of the snapshot."""
        if not self.added and not self.removed:
            return live
        live_names = {shard.name for shard in live}
        if self.snapshot == state.snapshot:
            target = [interval.shard for interval in state.shard_history.at(self.snapshot - 1)]
        else:
            target = [shard for shard in live if shard.name not in leaving]
            positions = (index for index, shard in enumerate(live) if shard.name in leaving)
            first = next(positions, None)
            if first is not None:
                target[first:first] = [s for s in self.removed if s.name not in live_names]
        rejected = _list_rejected(state, (s.name for s in target if s.name not in live_names))
        target = [shard for shard in target if shard.name not in rejected]
        validate_not_tombstoned(state, target, f"cannot undo snapshot {self.snapshot}: ")
        return target


@dataclass(frozen=True, slots=True)
class SetTag:
    """Tag on a snapshot; None deletes the tag."""

    tag: str
    snapshot: int | None

    def rebase(self, state: State) -> EntryDraft | None:
        """Never conflicts."""
        return _set_ref(state, state.tags, Ref(self.tag, self.snapshot), "tag")


@dataclass(frozen=True, slots=True)
class SetPin:
    """Pin on a snapshot, which vacuum retains; None releases the pin."""

    pin: str
    snapshot: int | None
    reason: str = ""

    def rebase(self, state: State) -> EntryDraft | None:
        """Never conflicts."""
        return _set_ref(state, state.pins, Ref(self.pin, self.snapshot, self.reason), "pin")


@dataclass(frozen=True, slots=True)
class AddTombstones:
    """Announcement of the shards that vacuum deletes. `choose` lists them for a state."""

    choose: Callable[[State], Sequence[str]]
    parameters: Json = field(default_factory=dict)

    def rebase(self, state: State) -> EntryDraft | None:
        """Choose again, without shards that were referenced meanwhile."""
        names = tuple(self.choose(state))
        if not names:
            return None
        return EntryDraft(operation="vacuum", parameters=self.parameters, tombstones=names)


def _set_ref(
    state: State, refs: dict[str, Ref], ref: Ref, kind: Literal["tag", "pin"]
) -> EntryDraft | None:
    if ref.snapshot is None:
        if ref.name not in refs:
            raise SnapshotNotFoundError(
                f"{state.name}: {kind} {ref.name!r} not found",
                code="tag-not-found" if kind == "tag" else "pin-not-found",
                version=state.name,
            )
    else:
        _validate_snapshot(state, ref.snapshot)
        shards = [interval.shard for interval in state.shard_history.at(ref.snapshot)]
        validate_not_tombstoned(state, shards, f"cannot {kind} snapshot {ref.snapshot}: ")
    if refs.get(ref.name) == ref:
        return None
    return (
        EntryDraft(operation=kind, tag=ref)
        if kind == "tag"
        else EntryDraft(operation=kind, pin=ref)
    )


def diff_shards(state: State, target: Sequence[Shard]) -> tuple[tuple[Added, ...], tuple[str, ...]]:
    """Return the shards to add and to remove so that the list becomes `target`."""
    live = list_live_names(state)
    positions = {shard.name: position for position, shard in enumerate(target)}
    unchanged: list[int] = []
    removed = []
    for name in live:
        position = positions.get(name)
        if position is not None and (not unchanged or position > unchanged[-1]):
            unchanged.append(position)
        else:
            removed.append(name)
    known = set(unchanged)
    added = [
        Added(shard, position) for position, shard in enumerate(target) if position not in known
    ]
    return tuple(added), tuple(removed)


def _list_rejected(state: State, names: Iterable[str]) -> list[str]:
    """Return the shards that are rejected."""
    bit = 1 << state.bits[REJECTION]
    return [
        name
        for name, interval in state.shard_history.named(list(names)).items()
        if interval.failed & bit
    ]


def _validate_snapshot(state: State, snapshot: int) -> None:
    if not 1 <= snapshot <= state.snapshot:
        raise get_snapshot_missing_error(state, snapshot)


def get_snapshot_missing_error(state: State, snapshot: int) -> SnapshotNotFoundError:
    """Build the error for a snapshot number that a version does not have."""
    known = f"1 to {state.snapshot}" if state.snapshot else "none"
    return SnapshotNotFoundError(
        f"{state.name}: snapshot {snapshot} not found (snapshots: {known})",
        version=state.name,
        snapshot=snapshot,
    )


def _validate_head(state: State, head: int, operation: str) -> None:
    if state.snapshot != head:
        raise ConflictError(
            f"{state.name}: {operation} planned on snapshot {head}, latest is {state.snapshot}",
            code="stale-plan",
            hint=Hint.of(Hint.run("log", state.name), ", then retry on the latest snapshot"),
            version=state.name,
            snapshot=state.snapshot,
        )


def validate_shards(state: State, shards: Sequence[Shard], live: Iterable[str] = ()) -> None:
    """Raise an error for shards that are not new, of another version, or tombstoned."""
    if len({shard.name for shard in shards}) != len(shards):
        raise LogError(
            f"{state.name}: duplicate shard in a commit",
            code="duplicate-shard",
            version=state.name,
        )
    live_names = set(live)
    for shard in shards:
        if shard.name in live_names:
            raise LogError(
                f"{state.name}: shard {shard.name} exists already",
                code="shard-exists",
                path=shard.name,
                version=state.name,
            )
        if shard.owner != state.version:
            raise LogError(
                f"{state.name}: shard {shard.name} belongs to {shard.owner}",
                code="foreign-shard",
                path=shard.name,
                version=state.name,
            )
    validate_not_tombstoned(state, shards)


def validate_not_tombstoned(state: State, shards: Iterable[Shard], prefix: str = "") -> None:
    """Raise TombstonedShardError for tombstoned shards. `prefix` starts the problem."""
    names = tuple(s.name for s in shards if state.get_tombstone(s.name) is not None)
    if names:
        entry = state.get_tombstone(names[0])
        raise TombstonedShardError(
            f"{state.name}: {prefix}shard {names[0]}"
            + (f" and {len(names) - 1} more" if len(names) > 1 else "")
            + f" was vacuumed or erased in entry {entry}",
            names,
            version=state.name,
        )


def _validate_not_reserved(checks: Checks) -> None:
    for check in (*checks.shard, *checks.snapshot):
        if check in RESERVED_CHECKS:
            raise LogError(f"reserved check name {check!r}", code="reserved-name")


def _validate_attestations(state: State, attestations: Sequence[Attestation]) -> None:
    if len({*state.bits, *(attestation.check for attestation in attestations)}) > MAX_CHECKS:
        limit = MAX_CHECKS - len(RESERVED_CHECKS)
        raise LogError(
            f"{state.name}: too many checks (limit {limit})",
            code="too-many-checks",
            version=state.name,
        )
    for attestation in attestations:
        content, shards = attestation.content, attestation.shards
        _validate_not_reserved(Checks((attestation.check,)))
        if content is not None and not state.snapshot_history.of_content(content):
            raise SnapshotNotFoundError(
                f"{state.name}: no snapshot has content {content}",
                code="snapshot-not-found",
                version=state.name,
            )
        if shards:
            unknown = sorted(set(shards) - set(state.shard_history.named(shards)))
            if unknown:
                raise SnapshotNotFoundError(
                    f"{state.name}: shard {unknown[0]} not found",
                    code="shard-not-found",
                    path=unknown[0],
                    version=state.name,
                )


def build_entry(
    state: State,
    change: Change,
    *,
    id: str,  # noqa: A002 - named like the field
    now: datetime,
    commit_info: CommitInfo,
) -> tuple[State, Entry, bytes] | None:
    """Return the next state, the entry and its bytes; None if there is nothing to do."""
    draft = change.rebase(state)
    if draft is None:
        return None
    after = state.fork()
    schema = draft.schema or state.schema
    if schema is None and draft.operation != "vacuum":
        raise VersionNotFoundError(
            f"{state.name}: version not found, nothing was committed",
            hint=Hint.of("create the version first: `version.create(schema)`"),
            version=state.name,
        )
    entry = Entry(
        **{name: getattr(draft, name) for name in draft.__slots__},
        dataset=state.dataset,
        version=state.version,
        number=state.number + 1,
        id=id,
        previous=state.digest,
        time=max(now, state.time),
        commit_info=commit_info,
        fingerprint=None if schema is None else schema.fingerprint,
        snapshot=state.snapshot + bool(draft.added or draft.removed),
        published=state.published,
        totals=state.totals,
        content=state.content,
    )
    after.apply_changes(entry)
    if entry.changes_data:
        entry = _with_totals(entry, state, after)
        after.add_snapshot(entry)
    after.apply_results(entry)
    if may_publish(entry, after.checks):
        entry = replace(entry, published=find_latest_published(after))
    _validate_no_credentials(entry)
    entry, data = entry.sealed()
    after.accept_claims(entry)
    return after, entry, data


def _validate_no_credentials(entry: Entry) -> None:
    """Raise an error for credentials in any text of an entry."""
    remaining: list[Any] = [entry.parameters, entry.commit_info.to_dict()]
    remaining += [source.to_dict() for source in entry.sources]
    remaining += [entry.pin.to_dict()] if entry.pin is not None else []
    while remaining:
        value = remaining.pop()
        if isinstance(value, str):
            validate_no_credentials(value, f"an entry of {entry.label}")
        elif isinstance(value, dict):
            remaining += [*value, *value.values()]
        elif isinstance(value, list):
            remaining += value


def _with_totals(entry: Entry, state: State, after: State) -> Entry:
    """Set totals and content. An append costs what is new."""
    new = [item.shard for item in entry.added]
    if not entry.removed and all(item.at is None for item in entry.added):
        content = state.content or content_digest(entry.fingerprint, [])
        return replace(
            entry, totals=state.totals + Totals.of(new), content=extend_digest(content, new)
        )
    shards = [interval.shard for interval in after.shard_history.at(entry.snapshot)]
    return replace(
        entry, totals=Totals.of(shards), content=content_digest(entry.fingerprint, shards)
    )


def may_publish(entry: Entry, checks: Checks) -> bool:
    """Return True if an entry can change the latest published snapshot.

    `checks` are those that the snapshot of the entry needs.
    """
    if entry.attestations or entry.rejects is not None or entry.removed:
        return True
    if entry.restores is not None or (entry.tombstones and entry.snapshot):
        return True
    return entry.changes_data and not checks.shard
