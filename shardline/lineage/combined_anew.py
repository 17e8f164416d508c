"""How to have the row map of a combined shard that has none, or a damaged one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.hints import Command, Hint
from shardline.operations.landing import TARGET_BYTES

if TYPE_CHECKING:
    from shardline.lineage.histories import Histories
    from shardline.log.entry import Entry


def combined_anew(histories: Histories, entry: Entry) -> Hint:
    """Return how to combine the same pairs in another version, with row maps."""
    left, right = (f"{one.shown}@{one.snapshot}" for one in entry.inputs)
    told = entry.parameters.get("rule", {})
    if "where" in told or "fields" in told:
        return Hint.of(
            f"combine {left} and {right} into another version, with the functions and options of "
            f"entry {entry.number} in ",
            Command.of("log", entry.shown, "--json"),
        )
    into = _unused(histories, entry.shown)
    options = [f"--on={'='.join(dict.fromkeys(pair))}" for pair in told.get("on", ())]
    options += [f"--how={told['how']}"] if told.get("how", "inner") != "inner" else []
    options += ["--once"] if told.get("once") else []
    for name in ("on_collision", "left_prefix", "right_prefix"):
        if told.get(name, "refuse") != "refuse":
            options.append(f"--{name.replace('_', '-')}={told[name]}")
    for name in ("limit", "sample", "seed"):
        if name in entry.parameters:
            options.append(f"--{name}={entry.parameters[name]}")
    size = entry.parameters.get("target_bytes")
    options += [f"--target-size={size}"] if size not in {None, TARGET_BYTES} else []
    command = Command.of("combine", left, right, f"--into={into}", *options)
    return Hint.of("to combine the same pairs in another version, run ", command)


def _unused(histories: Histories, version: str) -> str:
    """The name of a version that is not there."""
    there, count = set(histories.catalog.found()), 1
    while (name := f"{version}anew{count if count > 1 else ''}") in there:
        count += 1
    return name
