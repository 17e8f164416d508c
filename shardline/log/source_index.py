"""Where sources landed: the entries of a path, a batch or a content, found among millions.

Hashes of 64 bits are kept instead of paths and digests, so an entry that is found may be one of
another source. Callers read the entry and compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.log.model import Source

Columns: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.int64]]
_MAX_NEW = 4096


def place_hash(source: Source) -> int:
    """Return the hash of where a source comes from: its path, or the name of the batch."""
    return int(source.place_key[:16], 16)


def content_hash(source: Source) -> int | None:
    """Return the hash of what a file contains; None for a batch, whose name is all that counts."""
    return None if source.sha256 is None else int(source.sha256[:16], 16)


class Landings:
    """Maps hashes of places and contents to the entries that they landed with.

    `load` returns the table of a checkpoint when it is needed. One that an earlier release wrote
    has none `stored`, and the log is replayed instead.
    """

    def __init__(self, load: Callable[[], pa.Table] | None = None, *, stored: bool = True) -> None:
        self.stored = stored
        self._load = load
        self._base: Columns | None = None
        self._new: dict[int, tuple[int, ...]] = {}

    def add(self, source: Source, entry: int) -> None:
        """Note that a source landed with an entry."""
        for hashed in (place_hash(source), content_hash(source)):
            known = () if hashed is None else self._new.get(hashed, ())
            if hashed is not None and entry not in known[-1:]:
                self._new[hashed] = (*known, entry)

    def find(self, hashed: int) -> list[int]:
        """Return the entries in which a source of this hash may have landed, oldest first."""
        hashes, entries = self._sorted()
        if not len(hashes):
            return list(self._new.get(hashed, ()))
        key = np.uint64(hashed)
        first = last = int(hashes.searchsorted(key))
        if first < len(hashes) and hashes[first] == key:
            last = int(hashes.searchsorted(key, "right"))
        return [*entries[first:last].tolist(), *self._new.get(hashed, ())]

    def since(self, source: Source, entry: int) -> bool:
        """Return True if the path, batch or content may have landed after an entry."""
        hashes = (place_hash(source), content_hash(source))
        return any(max(self.find(one), default=0) > entry for one in hashes if one is not None)

    def to_table(self) -> pa.Table:
        """Return all of it, sorted by hash, for a checkpoint."""
        hashes, entries = self._sorted()
        if self._new:
            rows = sorted((hashed, n) for hashed, some in self._new.items() for n in some)
            new = np.array([hashed for hashed, _ in rows], np.uint64)
            # Entries only grow: behind those of the same hash.
            places = np.searchsorted(hashes, new, "right")
            hashes = np.insert(hashes, places, new)
            entries = np.insert(entries, places, [number for _, number in rows])
            self._base, self._new = (hashes, entries), {}
        return pa.table({"hash": pa.array(hashes), "entry": pa.array(entries)})

    def fork(self) -> Landings:
        """Return a copy that can diverge."""
        if len(self._new) > _MAX_NEW:
            self.to_table()
        other = Landings(self._load, stored=self.stored)
        other._base, other._new = self._base, dict(self._new)
        return other

    def _sorted(self) -> Columns:
        if self._base is None:
            if self._load is None:
                self._base = np.empty(0, np.uint64), np.empty(0, np.int64)
            else:
                table = self._load()
                self._base = table["hash"].to_numpy(), table["entry"].to_numpy()
        return self._base
