"""The records of a snapshot as one Parquet file, for tools that do not read TFRecord."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from shardline.readers.arrow import to_arrow
from shardline.storage.durable_file import DurableFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

    from shardline.log.snapshot import StoredSnapshot
    from shardline.schema.schema import Feature, Schema


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that was written."""

    name: str
    bytes: int
    sha256: str


def column_names(schema: Schema) -> dict[tuple[bool, str], str]:
    """What the column of each feature is called: as the feature, unless two have that name."""
    taken = {feature.name for feature in schema.features if not feature.sequence}
    return {feature.key: _column(feature, taken) for feature in schema.features}


def _column(feature: Feature, taken: set[str]) -> str:
    return f"{feature.name} (steps)" if feature.sequence and feature.name in taken else feature.name


def write_parquet(
    snapshot: StoredSnapshot,
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    overwrite: bool = False,
) -> Copied:
    """Write every record of a snapshot in its order; each is checked on the way.

    With `overwrite`, a file that is there is replaced when the new one is whole. `progress` is told
    how many records are written, of how many.
    """
    names = list(column_names(snapshot.schema).values())
    reader = to_arrow(snapshot)
    schema = reader.schema
    for place, name in enumerate(names):
        schema = schema.set(place, schema.field(place).with_name(name))
    done = 0
    with DurableFile(path, overwrite=overwrite) as file:
        hashed = _Hashed(file)
        with pq.ParquetWriter(hashed, schema) as writer:
            for batch in reader:
                writer.write_batch(batch.rename_columns(names))
                done += batch.num_rows
                if progress is not None:
                    progress(done, snapshot.records)
    return Copied(path.name, hashed.size, hashed.digest.hexdigest())


class _Hashed(RawIOBase):
    """A file that knows the digest of what was written to it."""

    def __init__(self, file: DurableFile) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Buffer) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.digest.update(view)
        self.size += len(view)
        return len(view)
