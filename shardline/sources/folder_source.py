"""Folders of files: one record per file, with its path, parent folder and bytes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from shardline import canonical_json as canonical
from shardline.log.model import Source as Identity
from shardline.schema.conversion import convert_to_feature
from shardline.schema.encoding import Reasons, Rows, build_frames
from shardline.schema.logical_types import SIGNATURES
from shardline.schema.schema import Category, Feature, Image, Schema, Text
from shardline.sources.source import CHUNK_BYTES, Source
from shardline.sources.source_identity import (
    compute_digest,
    make_source_changed_error,
    make_unreadable_source_error,
)
from shardline.sources.source_mismatch import validate_types
from shardline.tfrecord.hashing import BlockChecksums
from shardline.tfrecord.input_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.schema.encoding import EncodedRows
    from shardline.sources.source import Chunk
    from shardline.sources.source_identity import Progress
    from shardline.tfrecord.reader import Limits

FileListing: TypeAlias = tuple[str, int, int, int, int]
"""File in a folder: relative path, size, mtime, ctime and inode."""
PATH, LABEL, IMAGE, CONTENT = "path", "label", "image", "content"


class FolderIdentity:
    """Identity of a folder: its files by path, size and content, without hidden files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stamp: list[FileListing] | None = None
        self._sums: dict[str, int] = {}
        self._identity: Identity | None = None
        self._size: int | None = None

    @property
    def label(self) -> str:
        """Folder path."""
        return str(self.folder)

    @property
    def path(self) -> str:
        """Folder path."""
        return str(self.folder)

    @property
    def size(self) -> int:
        """Total size of the files in bytes, cached after the first listing."""
        if self._size is None:
            self._size = sum(file[1] for file in self.listed())
        return self._size

    def listed(self) -> list[FileListing]:
        """List the files sorted by relative path, with size, times and inode."""
        files = []
        try:
            for root, folders, names in os.walk(self.folder, onerror=_raise_os_error):
                folders[:] = [name for name in folders if not name.startswith(".")]
                for name in names:
                    if not name.startswith("."):
                        path = Path(root, name)
                        status = path.stat()
                        inside = path.relative_to(self.folder).as_posix()
                        times = status.st_mtime_ns, status.st_ctime_ns
                        files.append((inside, status.st_size, *times, status.st_ino))
        except OSError as error:
            raise make_unreadable_source_error(str(error.filename or self.folder), error) from None
        return sorted(files, key=lambda file: os.fsencode(file[0]))

    def identity(self, progress: Progress = None) -> Identity:
        """Return the path, total size and a digest of the files' paths, sizes and digests."""
        if self._identity is None:
            self._stamp = self.listed()
            total, lines = 0, []
            for inside, size, *_ in self._stamp:
                lines.append([os.fsencode(inside).hex(), size, self._digest(inside, size)])
                total += size
                if progress is not None:
                    progress(total)
            path = self.folder.resolve().as_posix()
            self.check_unchanged()
            self._identity = Identity(path, total, canonical.sha256(lines))
        return self._identity

    def _digest(self, inside: str, size: int) -> str:
        sums = BlockChecksums()
        try:
            with open_regular(self.folder / inside) as file:
                digest, read = compute_digest(file, also=sums.update)
        except OSError as error:
            raise make_unreadable_source_error(str(self.folder / inside), error) from None
        if read != size:
            raise make_source_changed_error(self.path)
        self._sums[inside] = sums.summed()
        return digest

    def files(self) -> list[FileListing]:
        """Return the files that `identity` read, or a current listing before that."""
        return self.listed() if self._identity is None or self._stamp is None else self._stamp

    def content(self, inside: str, most: int) -> bytes:
        """Return the bytes of a file; SourceError if they differ from the identified ones.

        Reads at most `most` bytes, because a file may grow during the read.
        """
        try:
            with open_regular(self.folder / inside) as file:
                data = file.pread(most, 0)
        except OSError as error:
            raise make_unreadable_source_error(str(self.folder / inside), error) from None
        if self._identity is not None:
            sums = BlockChecksums()
            sums.update(memoryview(data))
            if sums.summed() != self._sums[inside]:
                raise make_source_changed_error(self.path)
        return data

    def note(self) -> None:
        """Record the current state of the folder, unless `identity` did."""
        if self._identity is None:
            self._stamp = self.listed()

    def check_unchanged(self) -> None:
        """Raise SourceError if a file was added, removed or changed meanwhile."""
        if self._stamp is not None and self.listed() != self._stamp:
            raise make_source_changed_error(self.path)


def _raise_os_error(error: OSError) -> None:
    raise error


class FolderSource(Source):
    """Files of a folder; `path` and `label` are written if the schema has them.

    The bytes of a file become `image` or `content`, as the schema says.
    """

    def __init__(self, origin: FolderIdentity, limits: Limits) -> None:
        super().__init__(origin, limits)
        self._folder = origin

    def _infer(self, *, allow_rounding: bool) -> Schema:  # noqa: ARG002 - no numbers in text
        """Infer a schema, with images if the first bytes of every file say so."""
        files = self._folder.listed()
        if not files:
            return Schema()
        encodings = {self._encoding(inside) for inside, *_ in files}
        name = CONTENT if None in encodings else IMAGE
        meaning = None
        if len(encodings) == 1 and name == IMAGE:
            (encoding,) = encodings
            meaning = Image(encoding)  # type: ignore[arg-type] # one of the signatures
        return Schema(
            (
                Feature(PATH, "bytes", meaning=Text()),
                Feature(LABEL, "bytes", meaning=Category()),
                Feature(name, "bytes", meaning=meaning),
            )
        )

    def _encoding(self, inside: str) -> str | None:
        try:
            with open_regular(self._folder.folder / inside) as file:
                head = file.pread(16, 0)
        except OSError as error:
            raise make_unreadable_source_error(str(self._folder.folder / inside), error) from None
        return next((name for name, sign in SIGNATURES.items() if head.startswith(sign)), None)

    def _read(self, schema: Schema, start: int) -> Iterator[Chunk]:
        binary = pa.binary()
        name = IMAGE if schema.find(IMAGE, sequence=False) else CONTENT
        named = [other for other in (PATH, LABEL) if schema.find(other, sequence=False)]
        types = pa.schema([(other, pa.string()) for other in named] + [(name, binary)])
        validate_types(self.label, schema, types)
        group: list[tuple[str, bytes | None]] = []
        position = group_bytes = 0
        files = self._folder.files()
        for number, (inside, size, *_) in enumerate(files):
            position += size
            if number < start:
                continue
            content = self._content(inside, size)
            group.append((inside, content))
            group_bytes += len(content or b"")
            if group_bytes >= CHUNK_BYTES or number == len(files) - 1:
                first = number + 1 - len(group)
                yield FileChunk(
                    schema, self._limits, self._folder.folder, name, group, first, position
                )
                group, group_bytes = [], 0

    def _content(self, inside: str, size: int) -> bytes | None:
        """Return the bytes of a file, or None if it is too large for any record."""
        if size > self._limits.max_record_bytes:
            return None
        data = self._folder.content(inside, self._limits.max_record_bytes + 1)
        return None if len(data) > self._limits.max_record_bytes else data


@dataclass(frozen=True, slots=True)
class FileChunk:
    """Chunk of files with their bytes."""

    schema: Schema
    limits: Limits
    folder: Path
    name: str
    files: list[tuple[str, bytes | None]]
    first: int
    position: int

    @property
    def end(self) -> int:
        """Number of the first file after this chunk."""
        return self.first + len(self.files)

    def frames(self) -> EncodedRows:
        """Return the framed records."""
        limit = self.limits.max_record_bytes
        reasons: Reasons = {
            index: (self.name, f"is larger than the limit of {limit} bytes for a record")
            for index, (_, content) in enumerate(self.files)
            if content is None
        }
        values = {
            PATH: [os.fsencode(inside) for inside, _ in self.files],
            LABEL: [os.fsencode((self.folder.resolve() / i).parent.name) for i, _ in self.files],
            self.name: [content for _, content in self.files],
        }
        columns = [
            (feature, convert_to_feature(feature, pa.array(values[feature.name], pa.binary())))
            for feature in self.schema.features
        ]
        numbers = np.arange(self.first, self.end)
        rows = Rows(numbers, self._where, lambda index: self.files[index][1] or b"")
        encoded = build_frames(self.schema, columns, rows, reasons, limit)
        large = {
            self.first + index for index, (_, content) in enumerate(self.files) if content is None
        }
        refused = (replace(row, is_too_large=row.row in large) for row in encoded.refused)
        return replace(encoded, refused=tuple(refused)) if large else encoded

    def _where(self, index: int) -> str:
        name = os.fsencode(self.files[index][0]).decode("utf-8", "backslashreplace")
        return f"file {name}"
