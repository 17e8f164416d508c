"""Commands that recreate a version as its log entries describe it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.arguments import TARGET_BYTES
from shardline.errors import ShardlineError
from shardline.hints import Command, Hint
from shardline.log.model import DERIVING_OPERATIONS, INTEGRITY
from shardline.log.parameters import (
    CombineParameters,
    ExtendParameters,
    MigrateParameters,
    StoredUDF,
)
from shardline.log.publication import has_check
from shardline.log.version import StoredVersion
from shardline.pairing.combine_spec import UNKNOWN_FUNCTION, list_arguments, list_stored_udfs
from shardline.provenance.consumers import list_consumers
from shardline.provenance.dependencies import get_shard_object, list_dependency_layers
from shardline.provenance.log_index import find_added_shard

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from shardline.log.entry import Entry
    from shardline.log.model import Shard
    from shardline.log.snapshot import StoredSnapshot
    from shardline.provenance.log_index import LogIndex
    from shardline.storage import Store


def get_recreate_command(entry: Entry) -> Command:
    """Return the command that updates a derived version from its inputs."""
    return Command(list_recreate_arguments(entry))


def list_recreate_arguments(entry: Entry) -> tuple[str, ...]:
    """Return the arguments of the command that updates a derived version from its inputs.

    Values to fill in are in capitals: an entry lacks default values, and the location of a function
    without a code version.
    """
    try:
        arguments = list(_ARGUMENTS[entry.operation](entry))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        arguments = [*(source.label for source in entry.inputs), "--into", entry.label]
    return entry.operation, *arguments


def get_recreate_arguments(version: StoredVersion) -> tuple[str, ...] | None:
    """Return the arguments that update a version from its inputs; None if the log lacks some."""
    entry = find_deriving_entry(version, version.state.snapshot)
    arguments = () if entry is None else list_recreate_arguments(entry)
    is_known = not any(text == UNKNOWN_FUNCTION or text.endswith("=VALUE") for text in arguments)
    return arguments if arguments and is_known else None


def find_deriving_entry(version: StoredVersion, snapshot: int) -> Entry | None:
    """Return the last entry that derived a snapshot, or an ancestor of it, from inputs."""
    timeline = version.state.snapshot_history
    while snapshot:
        entry = version.log.entry(timeline.get_row(snapshot).entry)
        if entry.inputs:
            return entry
        snapshot = int(timeline.column("made_from")[snapshot - 1])
    return None


def get_recreate_hint(store: Store, name: str, snapshot: int, lost: str = "") -> Hint:
    """Return how to derive a version again; with `lost`, without that object.

    If its latest snapshot does not need that object, the hint releases the old snapshot.
    """
    try:
        version = StoredVersion(store, name)
        if lost and (hint := get_release_hint(version, snapshot, {lost})):
            return hint
        entry = find_deriving_entry(version, snapshot)
        commands = [] if entry is None else list(_iter_input_commands(store, entry, lost))
    except (ShardlineError, ValueError):
        entry, commands = None, []
    if entry is None:
        return Hint.of(f"derive {name} again as it was derived")
    hints = [Hint.of(command) for command in (*commands, get_recreate_command(entry))]
    joined = Hint.join(" and then ", hints)
    return Hint.of("derive it again, which writes only what is new: run ", joined)


def _iter_input_commands(store: Store, entry: Entry, lost: str) -> Iterator[Command]:
    """Yield the commands for inputs that are read from the lost object themselves."""
    for name in dict.fromkeys(source.label for source in entry.inputs) if lost else ():
        version = StoredVersion(store, name)
        latest = version.latest()
        if any(get_shard_object(layer) == lost for layer in list_dependency_layers(latest)):
            deriving = find_deriving_entry(version, latest.number)
            if deriving is not None:
                yield from _iter_input_commands(store, deriving, lost)
                yield get_recreate_command(deriving)


def _format_input(entry: Entry, index: int) -> str:
    return entry.inputs[index].label


def _format_output(entry: Entry) -> tuple[str, str]:
    same = entry.inputs[0].dataset == entry.dataset
    return "--into", entry.version if same else entry.label


def _list_extend_arguments(entry: Entry) -> Iterator[str]:
    parameters = entry.read(ExtendParameters)
    yield from (_format_input(entry, 0), *_format_output(entry))
    for udf in parameters.udfs:
        yield from _list_udf_arguments(udf)
    if parameters.mode == "rewrite":
        yield from ("--mode", "rewrite")
    for name in parameters.drop:
        yield from ("--drop", name)


def _list_udf_arguments(udf: StoredUDF) -> Iterator[str]:
    identity: Any = udf.identity or {}
    if not udf.is_table_join:
        yield from ("--udf", udf.function or UNKNOWN_FUNCTION)
        return
    yield from ("--join", udf.label.removeprefix("table "), "--key", identity["key"])
    yield from ("--columns", ",".join(udf.features))
    if identity["column"] != identity["key"]:
        yield from ("--table-key", identity["column"])
    if identity["missing"] == "absent":
        yield from ("--on-missing", "absent")
    for name in identity["defaults"]:
        yield from ("--default", f"{name}=VALUE")
    if identity["doubled"] != "fail":
        yield from ("--on-duplicate", identity["doubled"])


def _list_combine_arguments(entry: Entry) -> Iterator[str]:
    yield from (_format_input(entry, 0), _format_input(entry, 1), "--into", entry.label)
    for option, value in list_arguments(entry.parameters):
        yield from (option,) if value is None else (option, value)
    if entry.read(CombineParameters).is_virtual:
        yield from ("--mode", "virtual")


def _list_migrate_arguments(entry: Entry) -> Iterator[str]:
    parameters = entry.read(MigrateParameters)
    yield from (_format_input(entry, 0), *_format_output(entry))
    for name, new in parameters.rename.items():
        yield from ("--rename", f"{name}={new}")
    for name in parameters.drop:
        yield from ("--drop", name)
    for name, kind in parameters.cast.items():
        yield from ("--cast", f"{name}={kind}")
    for name in parameters.default:
        yield from ("--default", f"{name}=VALUE")


def _list_rebuild_arguments(entry: Entry) -> Iterator[str]:
    yield from (_format_input(entry, 0), *_format_output(entry))


_ARGUMENTS = {
    "extend": _list_extend_arguments,
    "combine": _list_combine_arguments,
    "migrate": _list_migrate_arguments,
    "rebuild": _list_rebuild_arguments,
}


def get_release_hint(version: StoredVersion, snapshot: int, lost: Collection[str]) -> Hint | None:
    """Return the remedy for an old snapshot that needs lost objects; None if there is none.

    No command recreates them for the old snapshot, but the latest one may not need them.
    """
    latest = version.latest()
    if snapshot >= latest.number or _needs_lost_shard(latest, lost):
        return None
    old = f"{version.name}@{snapshot}"
    hint = Hint.of(
        f"restore the committed file to read all of {old}, or use {latest}, which does not need it"
    )
    if not latest.published:
        hint = Hint.of(hint, "; to publish that, run ", Command.of("check", str(latest)))
    commands = [Hint.of(command) for command in _iter_release_commands(version, snapshot, latest)]
    if not commands:
        return hint
    return Hint.of(hint, f"; to release {old}, run ", Hint.join(" and ", commands))


def _needs_lost_shard(snapshot: StoredSnapshot, lost: Collection[str]) -> bool:
    own = (snapshot.shard_name(shard) for shard in snapshot.shards)
    others = map(get_shard_object, list_dependency_layers(snapshot))
    return not set(lost).isdisjoint((*own, *others))


def _iter_release_commands(
    version: StoredVersion, snapshot: int, latest: StoredSnapshot
) -> Iterator[Command]:
    """Yield the commands that move or remove what retains a snapshot."""
    for tag, ref in sorted(version.state.tags.items()):
        if ref.snapshot == snapshot:
            yield Command.of("tag", str(latest), tag)
    for consumer in list_consumers(version):
        if consumer.snapshot == snapshot:
            run = ("--run", consumer.run) if consumer.run else ()
            reference = f"{version.name}@{snapshot}"
            yield Command.of("consumers", reference, "--release", consumer.name, *run)


def get_recombine_hint(index: LogIndex, entry: Entry) -> Hint:
    """Return how to combine the same pairs in another version, with row maps."""
    left, right = (f"{source.label}@{source.snapshot}" for source in entry.inputs)
    parameters = entry.read(CombineParameters)
    if list_stored_udfs(parameters):
        return Hint.of(
            f"combine {left} and {right} into another version, with the functions and options of "
            f"entry {entry.number} in ",
            Command.of("log", entry.label, "--json"),
        )
    into = _choose_unused_name(index, entry.label)
    options = [
        option if value is None else f"{option}={value}"
        for option, value in list_arguments(entry.parameters)
    ]
    size = parameters.target_bytes
    options += [f"--target-size={size}"] if size not in {None, TARGET_BYTES} else []
    command = Command.of("combine", left, right, f"--into={into}", *options)
    return Hint.of("to combine the same pairs in another version, run ", command)


def _choose_unused_name(index: LogIndex, version: str) -> str:
    """Return the name of a version that does not exist."""
    names, count = set(index.list_folders()), 1
    while (name := f"{version}anew{count if count > 1 else ''}") in names:
        count += 1
    return name


def get_repair_command(version: StoredVersion, damaged: Iterable[Shard]) -> Command | None:
    """Return the command that recreates corrupt shards of the latest snapshot, if known.

    Deriving a version again leaves its intact shards unchanged.
    """
    try:
        if any(is_derived(version, shard) for shard in damaged):
            deriving = find_deriving_entry(version, version.state.snapshot)
            return None if deriving is None else get_recreate_command(deriving)
    except ShardlineError:
        return None  # A check of the log reports it.
    return Command.of("repair", version.name)


def list_corrupt_shards(version: StoredVersion) -> list[Shard]:
    """Return the shards of the latest snapshot that the log marks as corrupt."""
    intervals = version.state.shard_history.at(version.state.snapshot)
    return [
        interval.shard for interval in intervals if has_check(version, interval.failed, INTEGRITY)
    ]


def is_derived(version: StoredVersion, shard: Shard) -> bool:
    """Return True for a shard that extend, migrate or combine derived."""
    if shard.base is not None or shard.virtual:
        return True
    return find_added_shard(version, shard)[0].operation in DERIVING_OPERATIONS
