"""Extend and migrate loose TFRecord files: one file in, another out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.operations.extend import extension, settled
from shardline.operations.migrate import migration
from shardline.operations.transform_records import MEND, MEND_CAST, refuse_records, transformed
from shardline.schema.inference import infer_schema, schema_of
from shardline.schema.schema import Schema
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import parse_compression
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile
from shardline.tfrecord.writer import RecordSink
from shardline.udf.transform import Makers, Transform, refuse_doubling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.hints import Hint
    from shardline.operations.migrate import Steps
    from shardline.tfrecord.compression import Compression
    from shardline.udf.udf_declaration import Fields


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that was written, what is in it, and the schema of that."""

    file: Path
    records: int
    bytes: int
    compression: Compression
    schema: Schema


def extend_file(
    path: Path | str,
    out: Path | str,
    fields: Fields | Iterable[Fields],
    *,
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    schema: Schema | None = None,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> FileChange:
    """Write the records of a file with new fields behind what they hold.

    The schema of the file is what its records suggest, unless it is told; so it is read twice. Of
    one without records there is nothing to extend, and an empty file is written.
    Raises DamagedFileError at damage and BadRecordsError at a record whose fields cannot be made,
    and leaves nothing behind.
    """
    makers = settled(fields)
    return change_file(
        path,
        out,
        _transform(
            path,
            schema,
            limits,
            lambda known: extension(known, makers, replaces=replaces, drop=drop),
        ),
        compression=compression,
        overwrite=overwrite,
        limits=limits,
        progress=progress,
    )


def migrate_file(
    path: Path | str,
    out: Path | str,
    steps: Steps,
    *,
    schema: Schema | None = None,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> FileChange:
    """Write the records of a file under another schema; see `migrate` and `extend_file`."""
    return change_file(
        path,
        out,
        _transform(path, schema, limits, lambda known: migration(known, steps)),
        advice=MEND_CAST,
        compression=compression,
        overwrite=overwrite,
        limits=limits,
        progress=progress,
    )


def _transform(
    path: Path | str, schema: Schema | None, limits: Limits, change: Callable[[Schema], Transform]
) -> Transform:
    """What becomes of the records of a file, whose schema is what they suggest unless told."""
    if schema is not None:
        return change(schema)
    found = infer_schema([path], limits=limits).merged
    return change(schema_of(found)) if found.records else nothing_to_change()


def nothing_to_change() -> Transform:
    """What becomes of no records: they suggest no schema that could be asked for a feature."""
    return Transform(Schema(), Schema(), {})


def change_file(
    path: Path | str,
    out: Path | str,
    transform: Transform,
    *,
    advice: Hint = MEND,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> FileChange:
    """Write what becomes of the records of a file; packed as that is, unless told.

    `advice` is what to do about a record that cannot become what it should.
    """
    refuse_doubling(transform)
    shown = str(path)
    with (
        RecordFile(Path(path), limits=limits) as file,
        DurableFile(Path(out), overwrite=overwrite) as durable,
        Makers(transform) as makers,
    ):
        packed = file.compression if compression is None else parse_compression(compression)
        sink = RecordSink(durable, packed)
        for changed in transformed(
            shown,
            file.blocks(),
            makers,
            alone=False,
            every=False,
            max_record_bytes=limits.max_record_bytes,
            workers=workers or os.cpu_count() or 1,
        ):
            refuse_records(shown, shown, changed, advice)
            framed = changed.framed
            sink.add(framed.data, framed.starts, framed.lengths)
            if progress is not None:
                progress(file.stream.position)
        written = sink.finish()
    return FileChange(Path(out), written.records, written.bytes, packed, transform.after)
