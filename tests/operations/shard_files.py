"""Versions whose shards are real TFRecord files, packed in every way that there is."""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from hypothesis import strategies as st

from shardline.log.append_change import Append
from shardline.log.model import Shard
from shardline.tfrecord.index import index_path, write_index
from shardline.tfrecord.indexed_file import IndexedFile
from tests.kernel.frames import framed
from tests.log.versions import make_version, shard_name, source_of
from tests.tfrecord.samples import gzip_member, read_by_tensorflow, records_of, write_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.api import Snapshot, Version
    from shardline.log.entry import Entry
    from shardline.storage import Store

Kind: TypeAlias = Literal["plain", "members", "straddling", "tensorflow", "zlib"]
"""GZIP in members of whole records, in members that cut them, or in the one of TensorFlow."""
KINDS: tuple[Kind, ...] = get_args(Kind)
TF_NAMES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}

payloads = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.just(b""),
        st.builds(lambda byte, size: bytes([byte]) * size, st.integers(0, 255), st.just(3000)),
    ),
    max_size=7,
)
shards = st.lists(st.tuples(payloads, st.sampled_from(KINDS)), min_size=1, max_size=4)
"""What is in each shard, and how it is packed."""


def compression_of(kind: Kind) -> str:
    """The word of the log for a kind of file."""
    return {"plain": "none", "zlib": "zlib"}.get(kind, "gzip")


def file_of(kind: Kind, records: Sequence[bytes]) -> bytes:
    """A TFRecord file of these records, by zlib or TensorFlow."""
    data = framed(*records)
    if kind == "members":
        pieces = [framed(*records[at : at + 2]) for at in range(0, len(records), 2)] or [b""]
        return b"".join(map(gzip_member, pieces))
    if kind == "straddling":
        pieces = [data[at : at + 50] for at in range(0, len(data), 50)] or [b""]
        return b"".join(map(gzip_member, pieces))
    if kind == "tensorflow":
        with tempfile.TemporaryDirectory() as folder:
            return write_by_tensorflow(Path(folder, "file"), records, "GZIP").read_bytes()
    return zlib.compress(data) if kind == "zlib" else data


def land(
    version: Version, label: str, records: Sequence[bytes], kind: Kind = "plain"
) -> Entry | None:
    """Append one shard with these records; it has no index."""
    data, source = file_of(kind, records), source_of(label)
    shard = Shard(
        shard_name(label, version.log.version),
        len(records),
        len(data),
        hashlib.sha256(data).hexdigest(),
        compression_of(kind),
        source.key,
    )
    version.store.create(version.shard_name(shard), data)
    return version.commit(Append(shards=[shard], sources=[source]))


def landed(root: Store | Path | str, *contents: Sequence[bytes], kind: Kind = "plain") -> Version:
    """A version with one shard for each content."""
    version = make_version(root)
    for number, records in enumerate(contents):
        land(version, str(number), records, kind)
    return version


def numbered(first: int, end: int, size: int = 10) -> list[bytes]:
    """Records that tell which they are, of `size` bytes each, which are 16 more in a file."""
    return [f"{number}".encode().ljust(size, b".") for number in range(first, end)]


def held(snapshot: Snapshot) -> list[bytes]:
    """Every record of a snapshot, in order, by our reader."""
    return [record for file in snapshot.files() for record in records_of(Path(file))]


def paths(snapshot: Snapshot) -> list[Path]:
    """The files of a snapshot."""
    return [Path(file) for file in snapshot.files()]


def objects(root: Path) -> dict[str, bytes]:
    """Every file below a root, hidden ones too, with its content."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def assert_whole(snapshot: Snapshot) -> None:
    """Each file is as the log says, TensorFlow reads the same, and the index leads to each record.

    The index is the one that was written with the file: it is as one made of the file.
    """
    for shard, path in zip(snapshot.shards, paths(snapshot), strict=True):
        data, found = path.read_bytes(), records_of(path)
        assert (len(found), len(data)) == (shard.records, shard.bytes)
        assert hashlib.sha256(data).hexdigest() == shard.sha256
        assert read_by_tensorflow(path, TF_NAMES[shard.compression]) == found
        with IndexedFile(path) as indexed:
            assert [indexed[at] for at in reversed(range(len(indexed)))] == found[::-1]
        written = index_path(path).read_bytes()
        write_index(path)
        assert offsets_of(index_path(path).read_bytes()) == offsets_of(written)


def offsets_of(index: bytes) -> bytes:
    """An index without the time and digest of its file, and its own checksum."""
    return index[:16] + index[24:48] + index[80:92] + index[96:]
