"""Whether the file of a shard is the committed one: by its ends, or by reading all of it.

A small file is hashed and compared with the committed sha256; its index is not used. Of a large
file, the index tells the checksum of the first and last bytes. If these agree, the file is taken to
be the committed one: a swapped file differs there. If they do not, or there is no good index, the
file is read whole and compared with the committed sha256.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING

from shardline.errors import DamagedFileError, StorageError
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import (
    fill_index,
    fingerprint_in,
    fingerprint_of,
    read_fingerprint,
    stored_fingerprint,
)
from shardline.tfrecord.open_file import LocalFile
from shardline.tfrecord.reader import RecordFile

if TYPE_CHECKING:
    from shardline.readers.shards import ShardFile
    from shardline.tfrecord.open_file import OpenFile
    from shardline.tfrecord.reader import Limits


SMALL_BYTES = 64 * 1024
"""A shard up to this size is hashed at once, which costs no more than to open its index."""


def is_committed(file: ShardFile, opened: OpenFile, content: bytes | None = None) -> bool | None:
    """Compare a small shard, or the ends of a large one; None if that has no good index.

    `content` is all that the file holds, if the caller has read it.
    """
    stored, shard = file.file, file.shard
    if shard.bytes <= SMALL_BYTES:
        data = opened.pread(shard.bytes, 0) if content is None else content
        return hashlib.sha256(data).hexdigest() == shard.sha256
    known = read_fingerprint(stored.store, stored.name, shard.bytes, shard.sha256, opened)
    if known is None:
        return None
    if content is not None:
        return fingerprint_in(content) == known
    if isinstance(opened, LocalFile):
        return fingerprint_of(opened, shard.bytes) == known
    return stored_fingerprint(stored.store, stored.name, shard.bytes) == known


def refuse_swapped(file: ShardFile, limits: Limits) -> None:
    """Refuse a file that is not the committed shard, before any record of it is used.

    What is only damaged passes: reading it tells where. Raises WrongShardError.
    """
    with closing(file.file.open()) as opened:
        same = is_committed(file, opened)
    if same is None:
        rebuild_index(file, limits)
    elif not same:
        refuse_other_content(file, limits)


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
