"""Retainers: what keeps shards from vacuum that the latest snapshot does not contain."""

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

RetainerKind: TypeAlias = Literal[
    "published", "tag", "pin", "consumer", "version", "time", "writer", "log"
]


def get_plain_command(*arguments: str) -> str:
    """Return a command to paste where SHARDLINE_ROOT is set."""
    return shlex.join(("shardline", *arguments))


@dataclass(frozen=True, slots=True)
class Retainer:
    """Someone who keeps shards, what of, and what to do about it.

    `files` are shards, of so many `bytes`; `erased` of them held records that were erased.
    """

    kind: RetainerKind
    where: str
    why: str
    advice: str
    commands: Commands
    files: int
    bytes: int
    erased: int

    def to_dict(self, command: Command = get_plain_command) -> Json:
        """Return the retainer as JSON, with commands to paste."""
        told = {name: getattr(self, name) for name in self.__slots__}
        return {**told, "commands": [command(*one) for one in self.commands]}


def get_vacuum_command(dataset: str) -> tuple[str, ...]:
    """Return the arguments that delete everything that is not retained, at once."""
    return ("vacuum", dataset, "--delete", "--retention", "0")


def get_tag_release(version: str, tag: str) -> tuple[str, Commands]:
    """Return how to release an old snapshot from a tag."""
    moved, gone = ("tag", f"{version}@published", tag), ("tag", version, "--delete", tag)
    return "let the tag name the newest published snapshot, or take it away", (moved, gone)


def get_pin_release(version: str, pin: str) -> tuple[RetainerKind, str, Commands]:
    """Return the kind of a pin, and how to release an old snapshot from it."""
    if (holder := parse_pin_holder(pin)) is not None:
        return "version", f"make {holder} anew of the newest snapshot", ()
    if pin.startswith(CONSUMER_PREFIX):
        consumer = pin.removeprefix(CONSUMER_PREFIX).split(" ")[0]
        return (
            "consumer",
            "let go of the snapshot when it is not read any more",
            (("consumers", version, "--release", consumer),),
        )
    return (
        "pin",
        f"let go of it, in Python: shardline.open(root)[{version!r}].pin({pin!r}, None)",
        (),
    )


def format_consumer_pin(pin: str) -> str:
    """Return the name of the consumer of a pin, with its run if known."""
    name, _, run = pin.removeprefix(CONSUMER_PREFIX).rpartition(" on ")[0].partition(" ")
    return f"{name}, run {run}," if run else name or pin


_NOW_IF_UNREAD = "delete them now if nothing reads them"


@dataclass(frozen=True, slots=True)
class _RetainedShards:
    """Shards of a version that stay although its latest snapshot does not contain them."""

    version: StoredVersion
    files: Mapping[str, ObjectInfo]
    erased: Collection[str]

    def of(self, snapshot: int) -> set[str]:
        """Return those that a snapshot contains."""
        listed = self.version.state.shard_history.at(snapshot)
        return {interval.shard.name for interval in listed} & set(self.files)

    def keeper(
        self,
        kind: RetainerKind,
        where: str,
        why: str,
        let_go: tuple[str, Commands],
        names: set[str],
    ) -> Retainer:
        size = sum(self.files[name].size for name in names)
        return Retainer(kind, where, why, *let_go, len(names), size, len(names & set(self.erased)))


def iter_retainers(
    version: StoredVersion,
    staying: Mapping[str, ObjectInfo],
    erased: Collection[str],
    needs: Dependencies,
    let_go: Collection[str] = (),
) -> Iterator[Retainer]:
    """Yield what retains the shards that a vacuum leaves, except those of the latest snapshot.

    Tags, pins and versions come first: time retains only what nothing else does. The pins in
    `let_go` count as released.
    """
    state = version.state
    live = (
        {interval.shard.name for interval in state.shard_history.at(state.snapshot)}
        if state.snapshot
        else set()
    )
    old = _RetainedShards(version, {n: f for n, f in staying.items() if n not in live}, erased)
    if not old.files:
        return
    named: set[str] = set()
    for keeper, names in (
        *_iter_named_retainers(old),
        *_iter_version_retainers(old, needs, let_go),
    ):
        named |= names
        if names:
            yield keeper
    again = get_vacuum_command(version.log.dataset)
    known = set(state.shard_history.names().to_pylist())
    young = _get_recent_snapshots(version, needs)
    young |= {state.pins[pin].snapshot or 0 for pin in let_go if pin in state.pins}
    recent = {name for number in young for name in old.of(number)} - named
    if recent:
        why = "snapshots that were in use until lately have them, and may still be read"
        yield old.keeper("time", version.name, why, (_NOW_IF_UNREAD, (again,)), recent)
    unknown = set(old.files) - known - named
    if unknown:
        why = "they were written lately, and someone may be about to commit them"
        let_go_of = ("delete them now if nobody writes", (again,))
        yield old.keeper("writer", version.name, why, let_go_of, unknown)


def _get_recent_snapshots(version: StoredVersion, needs: Dependencies) -> set[int]:
    """Return the snapshots that were in use within the retention."""
    state = version.state
    return set(
        find_recently_unreferenced(
            state, needs.now, needs.retention, needs.released(state)
        ).tolist()
    )


def iter_logless_retainers(
    version: StoredVersion, files: Mapping[str, ObjectInfo]
) -> Iterator[Retainer]:
    """Yield the version itself as the retainer of its shards if it has no log."""
    if files:
        dataset, name = version.log.dataset, version.log.version
        why = "the version has no log, so nobody knows which of them it needs"
        let_go = (
            "put its log back from a copy; delete them only if it never had one",
            (("vacuum", dataset, "--delete", "--without-log", name),),
        )
        yield _RetainedShards(version, files, ()).keeper(
            "log", version.name, why, let_go, set(files)
        )


@dataclass(frozen=True, slots=True)
class _HeldSnapshot:
    """A snapshot that a tag, pin or publication holds, and how to release it."""

    kind: RetainerKind
    snapshot: int
    before: str
    after: str
    let_go: tuple[str, Commands]

    def why(self, snapshot: str) -> str:
        """Return why the snapshot is held."""
        return f"{self.before}{snapshot}{self.after}"


def _iter_held_snapshots(version: StoredVersion) -> Iterator[_HeldSnapshot]:
    state = version.state
    if state.published and state.published != state.snapshot:
        why = " is the newest snapshot that is published"
        let_go = ("check the newest one, so that it is published", (("check", version.name),))
        yield _HeldSnapshot("published", state.published, "", why, let_go)
    for tag, hold in sorted(state.tags.items()):
        if hold.snapshot is not None:
            told = get_tag_release(version.name, tag)
            yield _HeldSnapshot("tag", hold.snapshot, "", f" has the tag {tag}", told)
    for pin, hold in sorted(state.pins.items()):
        if hold.snapshot is not None and parse_pin_holder(pin) is None:
            kind, advice, commands = get_pin_release(version.name, pin)
            who = f"{format_consumer_pin(pin)} reads " if kind == "consumer" else f"{pin} keeps "
            yield _HeldSnapshot(kind, hold.snapshot, who, "", (advice, commands))


def _iter_named_retainers(old: _RetainedShards) -> Iterator[tuple[Retainer, set[str]]]:
    """Yield the tags, pins and publications of a version, with the shards that they retain."""
    for hold in _iter_held_snapshots(old.version):
        names = old.of(hold.snapshot)
        where = f"{old.version.name}@{hold.snapshot}"
        yield old.keeper(hold.kind, where, hold.why("it"), hold.let_go, names), names


def _iter_version_retainers(
    old: _RetainedShards, needs: Dependencies, let_go: Collection[str]
) -> Iterator[tuple[Retainer, set[str]]]:
    """Yield the versions that are read with old shards, with the shards that they retain."""
    version = old.version
    for holder, needed in needs.of(version).items():
        pins = [number for pin, number in list_pins(version, holder) if pin not in let_go]
        held = {number: old.of(number) for number in sorted(pins, reverse=True)}
        wanted = set().union(*held.values())
        found = list(_iter_retain_reasons(needs, version, wanted & needed, (holder,)))
        # A pin keeps a snapshot whole; of erased shards only what is needed stays.
        beside = wanted - needed - set(old.erased)
        revivable = needs.by_revivable(holder, version, ()) & beside
        beside -= revivable
        why = f"old snapshots of {holder} are read with it, and can still be restored"
        command = get_vacuum_command(needs.opened(holder).log.dataset)
        found.append(("version", why, ("delete those first", (command,)), revivable))
        why = f"{holder} is read with other shards of it"
        found.append(("version", why, _get_recreate_advice(needs.opened(holder)), beside))
        for kind, why, what, names in found:
            where = next((number for number, has in held.items() if has & names), 0)
            yield old.keeper(kind, f"{version.name}@{where}", why, what, names), names


_RetainReason: TypeAlias = "tuple[RetainerKind, str, tuple[str, Commands], set[str]]"


def _iter_retain_reasons(
    needs: Dependencies, version: StoredVersion, names: set[str], holders: tuple[str, ...]
) -> Iterator[_RetainReason]:
    """Yield why the last of these holders needs shards of a version, and how to end that."""
    if not names:
        return
    holder = needs.opened(holders[-1])
    state, kept = holder.state, needs.kept(holder)
    below = {one: needs.below(holder, kept[one], version) & names for one in kept}

    def under(shards: Collection[str]) -> set[str]:
        return set().union(*(below.get(one, set()) for one in shards))

    def of(snapshot: int) -> set[str]:
        return under([interval.shard.name for interval in state.shard_history.at(snapshot)])

    read = f"{holders[0]} is read with it" + "".join(f", {one} with that" for one in holders[1:])
    told = of(state.snapshot) if state.snapshot else set()
    yield "version", read, _get_recreate_advice(holder), set(told)
    for hold in _iter_held_snapshots(holder):
        why = f"{read}, and {hold.why(f'{holder.name}@{hold.snapshot}')}"
        yield "version", why, hold.let_go, of(hold.snapshot)
        told |= of(hold.snapshot)
    for above, needed in needs.of(holder).items():
        if above in holders:
            continue
        through = {one for one in needed if below.get(one)}
        for kind, why, let_go, shards in _iter_retain_reasons(
            needs, holder, through, (*holders, above)
        ):
            yield kind, why, let_go, under(shards)
            told |= under(shards)
    why = f"{read}, and was in use until lately"
    let_go = (_NOW_IF_UNREAD, (get_vacuum_command(version.log.dataset),))
    yield "time", why, let_go, names - told


def _get_recreate_advice(holder: StoredVersion) -> tuple[str, Commands]:
    """Return how to make a version follow the latest snapshots of its inputs."""
    command = get_recreate_arguments(holder)
    return f"make {holder.name} anew of the newest snapshot", (command,) if command else ()
