"""Whether the file of a shard is the committed one: by its ends, or by reading all of it.

An index tells the checksum of the first and last bytes of its file. If these agree, the file is
taken to be the committed one: a swapped file differs there. If they do not, or there is no good
index, the file is read whole and compared with the committed sha256.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from shardline.errors import DamagedFileError, StorageError
from shardline.files.hashed import HashedFile
from shardline.files.index import fill_index, read_fingerprint, stored_fingerprint
from shardline.files.reader import RecordFile

if TYPE_CHECKING:
    from shardline.files.reader import Limits
    from shardline.readers.shards import ShardFile


def has_committed_ends(file: ShardFile) -> bool | None:
    """Compare the ends of a shard with what its index tells; None if it has no good index."""
    stored, shard = file.file, file.shard
    known = read_fingerprint(stored.store, stored.name, shard.bytes, shard.sha256)
    if known is None:
        return None
    return stored_fingerprint(stored.store, stored.name, shard.bytes) == known


def refuse_swapped(file: ShardFile, limits: Limits) -> None:
    """Refuse a file that is not the committed shard, before any record of it is used.

    What is only damaged passes: reading it tells where. Raises WrongShardError.
    """
    if not has_committed_ends(file):
        rebuild_index(file, limits)


def refuse_other_content(file: ShardFile, limits: Limits) -> None:
    """Read a file whole. Raises WrongShardError if it is intact and not the committed shard."""
    hashed = HashedFile(file.file.open())
    try:
        with RecordFile(hashed, limits=limits) as opened:
            for _ in opened.blocks():
                pass
            digest = hashed.finish()
    except DamagedFileError:
        return
    if digest != file.shard.sha256:
        raise file.other_content()


def rebuild_index(file: ShardFile, limits: Limits) -> bool:
    """Read a shard whole and write its index again, if it may be written.

    Returns False if there is no new index: the shard is damaged, or the store is read-only. Raises
    WrongShardError if the file is intact and not the committed shard.
    """
    stored = file.file
    try:
        with (
            closing(HashedFile(stored.open())) as hashed,
            stored.store.writer(f"{stored.name}.index", derived=True) as index,
        ):
            fill_index(index, hashed, limits=limits, finish=hashed.finish)
            if hashed.finish() != file.shard.sha256:
                raise file.other_content()
    except DamagedFileError:
        return False
    except (StorageError, OSError):
        refuse_other_content(file, limits)
        return False
    return True
