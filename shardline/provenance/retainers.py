"""Retainers: what keeps shards outside the latest snapshot from vacuum."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.log.retention import find_recently_unreferenced
from shardline.provenance.commands import get_recreate_arguments
from shardline.provenance.consumers import CONSUMER_PREFIX
from shardline.provenance.pins import list_pins, parse_pin_holder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from shardline.canonical_json import Json
    from shardline.log.version import StoredVersion
    from shardline.provenance.dependencies import Dependencies
    from shardline.storage import ObjectInfo

    Command = Callable[..., str]
    Commands = tuple[tuple[str, ...], ...]
    Release = tuple[str, Commands]
    """A hint, and commands that follow it."""

RetainerKind: TypeAlias = Literal[
    "published", "tag", "pin", "consumer", "version", "time", "writer", "log"
]


def get_plain_command(*arguments: str) -> str:
    """Return a command line that needs SHARDLINE_ROOT."""
    return shlex.join(("shardline", *arguments))


@dataclass(frozen=True, slots=True)
class Retainer:
    """A tag, pin, version or period that retains `files` shards, and how to release them.

    `erased` of the shards held records that were erased.
    """

    kind: RetainerKind
    location: str
    reason: str
    hint: str
    commands: Commands
    files: int
    bytes: int
    erased: int

    def to_dict(self, command: Command = get_plain_command) -> Json:
        """Return the retainer as JSON; `command` renders the commands in it."""
        payload = {name: getattr(self, name) for name in self.__slots__}
        return {**payload, "commands": [command(*arguments) for arguments in self.commands]}


def get_vacuum_command(dataset: str) -> tuple[str, ...]:
    """Return the arguments of a vacuum without retention."""
    return ("vacuum", dataset, "--delete", "--retention", "0")


def get_tag_release(version: str, tag: str) -> Release:
    """Return how to release an old snapshot from a tag."""
    move, delete = ("tag", f"{version}@published", tag), ("tag", version, "--delete", tag)
    return "move the tag to the latest published snapshot, or delete it", (move, delete)


def get_pin_release(version: str, pin: str) -> tuple[RetainerKind, str, Commands]:
    """Return the kind of a pin, and how to release an old snapshot from it."""
    if (holder := parse_pin_holder(pin)) is not None:
        return "version", f"derive {holder} again from the latest snapshot", ()
    if pin.startswith(CONSUMER_PREFIX):
        consumer = pin.removeprefix(CONSUMER_PREFIX).split(" ")[0]
        command = ("consumers", version, "--release", consumer)
        return "consumer", "release the consumer when it no longer reads the snapshot", (command,)
    hint = f"release it in Python: shardline.open(root)[{version!r}].pin({pin!r}, None)"
    return "pin", hint, ()


def format_consumer_pin(pin: str) -> str:
    """Return the name of the consumer of a pin, with its run if known."""
    name, _, run = pin.removeprefix(CONSUMER_PREFIX).rpartition(" on ")[0].partition(" ")
    return f"{name}, run {run}," if run else name or pin


_UNREAD_HINT = "delete them now if nothing reads them"


@dataclass(frozen=True, slots=True)
class _RetainedShards:
    """Retained shards of a version that its latest snapshot does not contain."""

    version: StoredVersion
    files: Mapping[str, ObjectInfo]
    erased: Collection[str]

    def list_names(self, snapshot: int) -> set[str]:
        """Return the shards that a snapshot contains."""
        intervals = self.version.state.shard_history.at(snapshot)
        return {interval.shard.name for interval in intervals} & set(self.files)

    def make_retainer(
        self, kind: RetainerKind, location: str, reason: str, release: Release, names: set[str]
    ) -> Retainer:
        size = sum(self.files[name].size for name in names)
        erased = len(names & set(self.erased))
        return Retainer(kind, location, reason, *release, len(names), size, erased)


def iter_retainers(
    version: StoredVersion,
    retained: Mapping[str, ObjectInfo],
    erased: Collection[str],
    dependencies: Dependencies,
    released_pins: Collection[str] = (),
) -> Iterator[Retainer]:
    """Yield what retains the shards that a vacuum leaves, except those of the latest snapshot.

    Tags, pins and versions come first: time retains only what nothing else does.
    """
    state = version.state
    live = (
        {interval.shard.name for interval in state.shard_history.at(state.snapshot)}
        if state.snapshot
        else set()
    )
    files = {name: file for name, file in retained.items() if name not in live}
    if not files:
        return
    old = _RetainedShards(version, files, erased)
    explained: set[str] = set()
    for retainer, names in (
        *_iter_named_retainers(old),
        *_iter_version_retainers(old, dependencies, released_pins),
    ):
        explained |= names
        if names:
            yield retainer
    command = get_vacuum_command(version.log.dataset)
    committed = set(state.shard_history.names().to_pylist())
    snapshots = _get_recent_snapshots(version, dependencies)
    snapshots |= {state.pins[pin].snapshot or 0 for pin in released_pins if pin in state.pins}
    recent = {name for number in snapshots for name in old.list_names(number)} - explained
    if recent:
        reason = "recently used snapshots contain them and may still be read"
        yield old.make_retainer("time", version.name, reason, (_UNREAD_HINT, (command,)), recent)
    uncommitted = set(old.files) - committed - explained
    if uncommitted:
        reason = "they were written recently, and a writer may be about to commit them"
        release = ("delete them now if no writer is running", (command,))
        yield old.make_retainer("writer", version.name, reason, release, uncommitted)


def _get_recent_snapshots(version: StoredVersion, dependencies: Dependencies) -> set[int]:
    """Return the snapshots that were in use within the retention."""
    state, times = version.state, dependencies.get_release_times(version.state)
    return set(
        find_recently_unreferenced(state, dependencies.now, dependencies.retention, times).tolist()
    )


def iter_logless_retainers(
    version: StoredVersion, files: Mapping[str, ObjectInfo]
) -> Iterator[Retainer]:
    """Yield the version itself as the retainer of its shards if it has no log."""
    if files:
        dataset, name = version.log.dataset, version.log.version
        reason = "the version has no log, so which shards it needs is unknown"
        release = (
            "restore its log from a copy; delete them only if it never had a log",
            (("vacuum", dataset, "--delete", "--without-log", name),),
        )
        retained = _RetainedShards(version, files, ())
        yield retained.make_retainer("log", version.name, reason, release, set(files))


@dataclass(frozen=True, slots=True)
class _ReferencedSnapshot:
    """A snapshot that a tag, pin or publication retains, and how to release it."""

    kind: RetainerKind
    snapshot: int
    prefix: str
    suffix: str
    release: Release

    def format_reason(self, snapshot: str) -> str:
        return f"{self.prefix}{snapshot}{self.suffix}"


def _iter_referenced_snapshots(version: StoredVersion) -> Iterator[_ReferencedSnapshot]:
    state = version.state
    if state.published and state.published != state.snapshot:
        suffix = " is the latest published snapshot"
        check = ("check the latest snapshot to publish it", (("check", version.name),))
        yield _ReferencedSnapshot("published", state.published, "", suffix, check)
    for tag, ref in sorted(state.tags.items()):
        if ref.snapshot is not None:
            release = get_tag_release(version.name, tag)
            yield _ReferencedSnapshot("tag", ref.snapshot, "", f" has the tag {tag}", release)
    for pin, ref in sorted(state.pins.items()):
        if ref.snapshot is not None and parse_pin_holder(pin) is None:
            kind, hint, commands = get_pin_release(version.name, pin)
            is_consumer = kind == "consumer"
            prefix = f"{format_consumer_pin(pin)} reads " if is_consumer else f"{pin} retains "
            yield _ReferencedSnapshot(kind, ref.snapshot, prefix, "", (hint, commands))


def _iter_named_retainers(old: _RetainedShards) -> Iterator[tuple[Retainer, set[str]]]:
    """Yield the tags, pins and publications of a version, with the shards that they retain."""
    for ref in _iter_referenced_snapshots(old.version):
        names = old.list_names(ref.snapshot)
        location = f"{old.version.name}@{ref.snapshot}"
        reason = ref.format_reason("it")
        yield old.make_retainer(ref.kind, location, reason, ref.release, names), names


def _iter_version_retainers(
    old: _RetainedShards, dependencies: Dependencies, released_pins: Collection[str]
) -> Iterator[tuple[Retainer, set[str]]]:
    """Yield the versions that need old shards, with the shards that they retain."""
    version = old.version
    for name, needed in dependencies.get_needs_by_holder(version).items():
        holder = dependencies.get_version(name)
        pins = [number for pin, number in list_pins(version, name) if pin not in released_pins]
        pinned = {number: old.list_names(number) for number in sorted(pins, reverse=True)}
        names = set().union(*pinned.values())
        reasons = list(_iter_retention_reasons(dependencies, version, names & needed, (name,)))
        # A pin retains a whole snapshot, but only the needed ones of its erased shards.
        others = names - needed - set(old.erased)
        revivable = dependencies.list_revivable_shards(name, version, ()) & others
        command = get_vacuum_command(holder.log.dataset)
        reason = f"old snapshots of {name} need it and can still be restored"
        reasons.append(("version", reason, ("delete those first", (command,)), revivable))
        reason = f"{name} needs other shards of it"
        reasons.append(("version", reason, _get_recreate_release(holder), others - revivable))
        for kind, reason, release, shards in reasons:
            snapshot = next((number for number, has in pinned.items() if has & shards), 0)
            location = f"{version.name}@{snapshot}"
            yield old.make_retainer(kind, location, reason, release, shards), shards


_RetentionReason: TypeAlias = "tuple[RetainerKind, str, Release, set[str]]"


def _iter_retention_reasons(
    dependencies: Dependencies, version: StoredVersion, names: set[str], holders: tuple[str, ...]
) -> Iterator[_RetentionReason]:
    """Yield why the last of these holders needs shards of a version, and how to end that."""
    if not names:
        return
    holder = dependencies.get_version(holders[-1])
    needs = {
        shard: dependencies.list_shards_read_with(holder, own, version) & names
        for shard, own in dependencies.list_retained_shards(holder).items()
    }

    def list_needed(shards: Collection[str]) -> set[str]:
        return set().union(*(needs.get(shard, set()) for shard in shards))

    def list_needed_by(snapshot: int) -> set[str]:
        intervals = holder.state.shard_history.at(snapshot)
        return list_needed([interval.shard.name for interval in intervals])

    chain = f"{holders[0]} needs it" + "".join(f", {name} needs that" for name in holders[1:])
    latest = holder.state.snapshot
    explained = list_needed_by(latest) if latest else set()
    yield "version", chain, _get_recreate_release(holder), set(explained)
    for ref in _iter_referenced_snapshots(holder):
        reason = f"{chain}, and {ref.format_reason(f'{holder.name}@{ref.snapshot}')}"
        shards = list_needed_by(ref.snapshot)
        yield "version", reason, ref.release, shards
        explained |= shards
    for name, needed in dependencies.get_needs_by_holder(holder).items():
        if name in holders:
            continue
        own = {shard for shard in needed if needs.get(shard)}
        for kind, reason, release, through in _iter_retention_reasons(
            dependencies, holder, own, (*holders, name)
        ):
            shards = list_needed(through)
            yield kind, reason, release, shards
            explained |= shards
    command = get_vacuum_command(version.log.dataset)
    reason = f"{chain}, and was in use recently"
    yield "time", reason, (_UNREAD_HINT, (command,)), names - explained


def _get_recreate_release(holder: StoredVersion) -> Release:
    """Return how to make a version follow the latest snapshots of its inputs."""
    command = get_recreate_arguments(holder)
    hint = f"derive {holder.name} again from the latest snapshot"
    return hint, (command,) if command else ()
