"""`SHA256SUMS`: what each file of a snapshot must be, for tools that know nothing of Shardline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.errors import UnreadableSnapshotError
from shardline.lineage.exports.files import path_from, snapshot_files
from shardline.lineage.exports.gone import refuse_gone

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.log.snapshot import StoredSnapshot


def sha256sums(snapshot: StoredSnapshot, folder: Path | None = None) -> str:
    """A line for each file that a snapshot needs, as `sha256sum -c` takes it.

    The digests are those of the log: no file is read, so that the tool's word is one of its own.
    Names are as seen from `folder`, where the list is to lie; without one from the root, which is
    also where to run the tool after a bucket was copied to a disk.
    """
    refuse_gone(snapshot)
    files = snapshot_files(snapshot)
    if not files:
        raise UnreadableSnapshotError(
            f"{snapshot}: no files to list",
            code="snapshot-empty",
            version=snapshot.version,
            snapshot=snapshot.number,
        )
    store = snapshot.store
    seen_from = None if store.local_path(files[0].name) is None else folder
    # No name needs to be escaped: neither a root nor a shard can be called what would.
    return "".join(
        f"{one.shard.sha256}  {path_from(seen_from, store, one.name)}\n" for one in files
    )
