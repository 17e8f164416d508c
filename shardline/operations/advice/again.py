"""The command that makes a version once more as it was made, by what its entry tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.errors import ShardlineError
from shardline.hints import Command, Hint
from shardline.log.version import Version
from shardline.operations.advice.moving_on import moving_on
from shardline.operations.read_from import layers_below, object_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.entry import Entry
    from shardline.log.facts import Json
    from shardline.storage import Store

DERIVES = frozenset({"extend", "migrate", "combine"})
"""What makes shards that only it can make anew."""
_FUNCTION = "MODULE:OBJECT"
"""What stands for a function of which the entry does not tell where it is."""


def command_again(entry: Entry) -> Command:
    """Return the command that makes a derived version follow its inputs."""
    return Command(words_again(entry))


def words_again(entry: Entry) -> tuple[str, ...]:
    """The arguments of that command.

    What must be filled in is in capitals: an entry does not tell where a function without a code
    version is, nor which values were given.
    """
    try:
        words = list(_WORDS[entry.operation](entry))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        words = [*(one.shown for one in entry.inputs), "--into", entry.shown]
    return entry.operation, *words


def arguments_again(version: Version) -> tuple[str, ...] | None:
    """The arguments that make a version follow its inputs; None if the log does not tell all."""
    entry = made_by(version, version.state.snapshot)
    words = () if entry is None else words_again(entry)
    known = not any(word == _FUNCTION or word.endswith("=VALUE") for word in words)
    return words if words and known else None


def made_by(version: Version, snapshot: int) -> Entry | None:
    """The entry that last made a snapshot, or one that it goes back to, of its inputs."""
    timeline = version.state.timeline
    while snapshot:
        entry = version.log.entry(timeline.moment(snapshot).entry)
        if entry.inputs:
            return entry
        snapshot = int(timeline.column("made_from")[snapshot - 1])
    return None


def again_advice(store: Store, name: str, snapshot: int, lost: str = "") -> Hint:
    """Return how to derive a version again; with `lost`, without that object.

    If its newest snapshot does without that object already, the hint releases the old snapshot.
    """
    try:
        version = Version(store, name)
        if lost and (other := moving_on(version, snapshot, {lost})):
            return other
        entry = made_by(version, snapshot)
        before = [] if entry is None else list(_between(store, entry, lost))
    except (ShardlineError, ValueError):
        entry, before = None, []
    if entry is None:
        return Hint.of(f"derive {name} again as it was derived")
    commands = Hint.join(" and then ", (Hint.of(one) for one in (*before, command_again(entry))))
    return Hint.of("derive it again, which writes only what is new: run ", commands)


def _between(store: Store, entry: Entry, lost: str) -> Iterator[Command]:
    """The commands for those inputs that are themselves read from what is lost."""
    for told in dict.fromkeys(one.shown for one in entry.inputs) if lost else ():
        version = Version(store, told)
        newest = version.newest()
        if any(object_of(one) == lost for one in layers_below(newest)):
            made = made_by(version, newest.number)
            if made is not None:
                yield from _between(store, made, lost)
                yield command_again(made)


def _input(entry: Entry, place: int) -> str:
    return entry.inputs[place].shown


def _into(entry: Entry) -> tuple[str, str]:
    same = entry.inputs[0].dataset == entry.dataset
    return "--into", entry.version if same else entry.shown


def _extended(entry: Entry) -> Iterator[str]:
    told = entry.parameters
    yield from (_input(entry, 0), *_into(entry))
    for one in told["fields"]:
        yield from _maker(one)
    if told.get("mode") == "rewrite":
        yield from ("--mode", "rewrite")
    for name in told.get("drop", ()):
        yield from ("--drop", name)


def _maker(told: Json) -> Iterator[str]:
    identity: Any = told["identity"] or {}
    if identity.get("maker") != "table":
        yield from ("--fields", identity.get("function") or _FUNCTION)
        return
    yield from ("--join", told["by"].removeprefix("table "), "--key", identity["key"])
    yield from ("--columns", ",".join(told["features"]))
    if identity["column"] != identity["key"]:
        yield from ("--table-key", identity["column"])
    if identity["missing"] == "absent":
        yield from ("--missing", "absent")
    for name in identity["defaults"]:
        yield from ("--default", f"{name}=VALUE")
    if identity["doubled"] != "fail":
        yield from ("--doubled", identity["doubled"])


def _combined(entry: Entry) -> Iterator[str]:
    told: Any = entry.parameters
    yield from (_input(entry, 0), _input(entry, 1), "--into", entry.shown)
    yield from _rule(told["rule"])
    for one in told.get("fields", ()):
        yield from ("--fields", (one["identity"] or {}).get("function") or _FUNCTION)
    for option in ("limit", "sample", "seed"):
        if told.get(option):
            yield from (f"--{option}", str(told[option]))
    if told.get("mode") == "virtual":
        yield from ("--mode", "virtual")


def _rule(rule: Json) -> Iterator[str]:
    for option in ("on_collision", "left_prefix", "right_prefix"):
        if rule.get(option):
            yield from (f"--{option.replace('_', '-')}", rule[option])
    for left, right in rule.get("on", ()):
        yield from ("--on", left if left == right else f"{left}={right}")
    if rule.get("how", "inner") != "inner":
        yield from ("--how", rule["how"])
    if rule.get("where"):
        identity = rule["where"].get("identity") or {}
        yield from ("--where", identity.get("function") or _FUNCTION)
    if rule.get("once"):
        yield "--once"


def _migrated(entry: Entry) -> Iterator[str]:
    told = entry.parameters
    yield from (_input(entry, 0), *_into(entry))
    for name, new in told.get("rename", {}).items():
        yield from ("--rename", f"{name}={new}")
    for name in told.get("drop", ()):
        yield from ("--drop", name)
    for name, kind in told.get("cast", {}).items():
        yield from ("--cast", f"{name}={kind}")
    for name in told.get("default", ()):
        yield from ("--default", f"{name}=VALUE")


def _rebuilt(entry: Entry) -> Iterator[str]:
    yield from (_input(entry, 0), *_into(entry))


_WORDS = {
    "extend": _extended,
    "combine": _combined,
    "migrate": _migrated,
    "rebuild": _rebuilt,
}
