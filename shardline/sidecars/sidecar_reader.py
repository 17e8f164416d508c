"""Reader of sidecars that compares each with the digest committed in the log.

The entry that added a shard has the digests of its receipt, row map and quarantine file. An erase
that rewrites such a file commits the new digest first and then replaces the file. A file with an
earlier committed digest is therefore genuine: the erase stopped in between. Any other file is
corrupt or forged. Entries of early releases have no digests, so their sidecars are not compared.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardline.errors import ShardlineError
from shardline.hints import Hint
from shardline.log.model import get_sidecar_shard, sidecar_path
from shardline.log.state import get_name_key
from shardline.tfrecord.hashing import hash_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.log.version import StoredVersion
    from shardline.storage import Store


class SidecarMismatchError(ShardlineError):
    """Sidecar that differs from the committed file."""

    code = "sidecar-mismatch"


def sidecar_mismatch(store: Store, path: str, version: str | None = None) -> SidecarMismatchError:
    """Build the error for a sidecar that differs from the committed one."""
    return SidecarMismatchError(
        f"{path}: differs from the committed file",
        hint=Hint.of("restore the file from a copy of the root, and ", Hint.run("audit")),
        path=str(store.local_path(path) or path),
        version=version,
    )


@dataclass(frozen=True)
class SidecarReader:
    """Reader of the sidecars of a version."""

    version: StoredVersion
    _known: dict[str, str | None] = field(default_factory=dict)
    _compared: set[str] = field(default_factory=set)

    def path(self, name: str) -> str:
        """Return the path of a sidecar in the store."""
        return sidecar_path(self.version.log.dataset, name)

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Return the latest committed digest of each sidecar that has one."""
        names = list(names)
        if not self.version.state.uses_sidecars:
            return {}
        unknown = [name for name in names if name not in self._known]
        if unknown:
            self._known.update(self._look_up(unknown))
        found = {name: self._known[name] for name in names}
        return {name: digest for name, digest in found.items() if digest is not None}

    def _look_up(self, names: Sequence[str]) -> dict[str, str | None]:
        state = self.version.state
        intervals = state.shard_history.named(list({get_sidecar_shard(name) for name in names}))
        numbers: dict[str, int] = {}
        for name in names:
            number = state.sidecars.get(get_name_key(name))
            interval = intervals.get(get_sidecar_shard(name))
            if number is not None or interval is not None:
                numbers[name] = (
                    interval.added_entry if number is None and interval is not None else number or 0
                )
        entries = {number: self.version.log.entry(number) for number in set(numbers.values())}
        return {
            name: entries[numbers[name]].sidecars.get(name) if name in numbers else None
            for name in names
        }

    def is_committed(self, name: str, digest: str) -> bool:
        """Return True if any entry committed or rewrote this digest. Reads the whole log."""
        return any(entry.has_sidecar(name, digest) for entry in self.version.log.entries(1))

    def read(self, names: Sequence[str]) -> list[bytes | None]:
        """Read sidecars. Missing sidecars are None.

        Raises SidecarMismatchError for a sidecar that differs from every committed file.
        """
        store = self.version.store
        contents = store.read_many([self.path(name) for name in names])
        committed = self.digests(names)
        for name, data in zip(names, contents, strict=True):
            if data is not None and name in committed:
                self._compare(name, committed[name], hashlib.sha256(data).hexdigest())
        return contents

    def compare(self, name: str) -> None:
        """Hash a sidecar that is read in parts, and compare it once. Passes if missing.

        Raises SidecarMismatchError if it differs from every committed file.
        """
        if name in self._compared:
            return
        committed = self.digests([name]).get(name)
        if committed is not None:
            digest = hash_object(self.version.store, self.path(name))
            if digest is not None:
                self._compare(name, committed, digest)
        self._compared.add(name)

    def _compare(self, name: str, committed: str, digest: str) -> None:
        if digest != committed and not self.is_committed(name, digest):
            raise sidecar_mismatch(self.version.store, self.path(name), self.version.name)
