"""Find what a snapshot needs of other versions and can no longer read.

An overlay is read with its base, and a pair plan with the shards that it pairs. Checks, repair,
erase and vacuum record what becomes of those shards in the logs of their own versions: no shard is
read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardline.errors import DamagedLogError
from shardline.log.model import PLAN
from shardline.log.version import StoredVersion
from shardline.pairing.coverage import Cover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from shardline.log.entry import Entry
    from shardline.log.model import Input

_MISSING, _LOG = "missing", "log"


@dataclass(frozen=True, slots=True)
class BrokenDependency:
    """A shard of another version that a snapshot needs and cannot rely on.

    `problem` is the check that the shard failed, "rejection" or "vacuum" if it was removed,
    "missing" if its log does not know it, or "log" if that log is corrupt.
    """

    version: str
    shard: str
    problem: str

    def __str__(self) -> str:
        if self.problem == _LOG:
            return f"the log of {self.version} is corrupt"
        if self.problem == _MISSING:
            return f"shard {self.shard} is not in the log of {self.version}"
        return f"shard {self.shard} of {self.version} failed {self.problem}"


def broken_dependencies(
    version: StoredVersion,
    snapshot: int,
    open_version: Callable[[str], StoredVersion] | None = None,
) -> list[BrokenDependency]:
    """List the shards of other versions that a snapshot needs and that are no longer sound.

    Args:
        version: The version of the snapshot.
        snapshot: The number of the snapshot.
        open_version: Opens another version by its name, for callers that have opened some.

    Returns:
        One dependency for each shard, at any depth. Empty for a snapshot that needs no other
        version, or none of whose dependencies failed a check or was removed.
    """
    opened = open_version or (lambda name: StoredVersion(version.store, name))
    broken: dict[tuple[str, str], BrokenDependency] = {}
    rows = version.state.stays.rows_at(snapshot)
    left = list(_needed(version, rows, opened, broken).items())
    seen: dict[str, set[str]] = {}
    while left:
        owner, names = left.pop()
        names -= seen.setdefault(owner, set())
        if not names:
            continue
        seen[owner] |= names
        try:
            holder = opened(owner)
            rows = _rows_of(holder, names, broken)
        except DamagedLogError:
            broken[owner, ""] = BrokenDependency(owner, "", _LOG)
            continue
        left += _needed(holder, rows, opened, broken).items()
    return list(broken.values())


def _rows_of(
    holder: StoredVersion, names: set[str], broken: dict[tuple[str, str], BrokenDependency]
) -> NDArray[np.int64]:
    """Return the rows of named shards, and note those that failed a check or are unknown."""
    state = holder.state
    known = state.stays.names()
    wanted = pc.is_in(known, value_set=pa.array(sorted(names), pa.string()))
    rows: NDArray[np.int64] = np.flatnonzero(wanted.to_numpy())
    found = known.take(pa.array(rows)).to_pylist() if len(rows) else []
    for name in sorted(names - set(found)):
        broken[holder.name, name] = BrokenDependency(holder.name, name, _MISSING)
    failed = state.stays.column("failed")[rows]
    for place in np.flatnonzero(failed).tolist():
        bits = int(failed[place])
        problem = next(check for check, bit in state.bits.items() if bits >> bit & 1)
        name = found[place]
        broken[holder.name, name] = BrokenDependency(holder.name, name, problem)
    return rows


def _needed(
    version: StoredVersion,
    rows: NDArray[np.int64],
    opened: Callable[[str], StoredVersion],
    broken: dict[tuple[str, str], BrokenDependency],
) -> dict[str, set[str]]:
    """Return the shards of other versions that some shards are read with, by version."""
    stays = version.state.stays
    needed: dict[str, set[str]] = {}
    if not len(rows):
        return needed
    place = pa.array(rows)
    for base in pc.unique(stays.bases().take(place).drop_null()).to_pylist():
        owner = f"{version.log.dataset}/{base.split('.', 1)[0]}"
        needed.setdefault(owner, set()).add(base)
    plans = np.asarray(pc.ends_with(stays.names().take(place), pattern=PLAN))
    landed = stays.column("landed")[rows]
    names = stays.names().take(place).filter(pa.array(plans)).to_pylist()
    for plan, entry in zip(names, landed[plans].tolist(), strict=True):
        for given, span in _paired(version.log.entry(entry), plan):
            try:
                shards = opened(given.shown).snapshot(given.snapshot).shards[span]
            except DamagedLogError:
                broken[given.shown, ""] = BrokenDependency(given.shown, "", _LOG)
                continue
            needed.setdefault(given.shown, set()).update(shard.name for shard in shards)
    return needed


def _paired(entry: Entry, plan: str) -> Iterator[tuple[Input, slice]]:
    """Yield the snapshots that a plan pairs and the places of their shards, as its entry says.

    An entry that does not say the places stands for all shards of its inputs.
    """
    outputs = entry.parameters.get("outputs") or []
    names = [one.shard.name for one in entry.added]
    spans = [slice(None)] * len(entry.inputs)
    if plan in names and len(outputs) == len(names):
        cover = Cover.from_json(outputs[names.index(plan)])
        spans = [slice(*cover.left), slice(*cover.right)]
    yield from zip(entry.inputs, spans, strict=False)
