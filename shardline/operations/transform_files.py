"""Extend and migrate loose TFRecord files: one file in, another out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shardline.operations.extend import make_extend_transform, settle_udfs
from shardline.operations.migrate import make_migrate_transform
from shardline.operations.transform_records import (
    FIX_CAST_HINT,
    FIX_UDF_HINT,
    raise_invalid_records,
    transform_records,
)
from shardline.schema.file_schema import infer_schema, schema_of
from shardline.schema.schema import Schema
from shardline.storage.durable_file import DurableFile
from shardline.tfrecord.compression import parse_compression
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile
from shardline.tfrecord.writer import RecordSink
from shardline.udf.transform import BoundUDFs, Transform, validate_side_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardline.hints import Hint
    from shardline.operations.migrate import MigrationSpec
    from shardline.tfrecord.compression import Compression
    from shardline.udf.udf_declaration import UDF


@dataclass(frozen=True, slots=True)
class FileTransformReport:
    """A file that was written, what is in it, and the schema of that."""

    file: Path
    records: int
    bytes: int
    compression: Compression
    schema: Schema


def extend_file(
    path: Path | str,
    out: Path | str,
    fields: UDF | Iterable[UDF],
    *,
    replaces: Sequence[str] = (),
    drop: Sequence[str] = (),
    schema: Schema | None = None,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> FileTransformReport:
    """Write the records of a file with new fields behind what they hold.

    The schema of the file is what its records suggest, unless it is told; so it is read twice. Of
    one without records there is nothing to extend, and an empty file is written.
    Raises CorruptFileError at damage and InvalidRecordsError at a record whose fields cannot be
    made, and leaves nothing behind.
    """
    makers = settle_udfs(fields)
    return transform_file(
        path,
        out,
        _make_transform(
            path,
            schema,
            limits,
            lambda known: make_extend_transform(known, makers, replaces=replaces, drop=drop),
        ),
        compression=compression,
        overwrite=overwrite,
        limits=limits,
        progress=progress,
    )


def migrate_file(
    path: Path | str,
    out: Path | str,
    steps: MigrationSpec,
    *,
    schema: Schema | None = None,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> FileTransformReport:
    """Write the records of a file under another schema; see `migrate` and `extend_file`."""
    return transform_file(
        path,
        out,
        _make_transform(path, schema, limits, lambda known: make_migrate_transform(known, steps)),
        advice=FIX_CAST_HINT,
        compression=compression,
        overwrite=overwrite,
        limits=limits,
        progress=progress,
    )


def _make_transform(
    path: Path | str, schema: Schema | None, limits: Limits, change: Callable[[Schema], Transform]
) -> Transform:
    """What becomes of the records of a file, whose schema is what they suggest unless told."""
    if schema is not None:
        return change(schema)
    found = infer_schema([path], limits=limits).merged
    return change(schema_of(found)) if found.records else make_empty_transform()


def make_empty_transform() -> Transform:
    """What becomes of no records: they suggest no schema that could be asked for a feature."""
    return Transform(Schema(), Schema(), {})


def transform_file(
    path: Path | str,
    out: Path | str,
    transform: Transform,
    *,
    advice: Hint = FIX_UDF_HINT,
    compression: Compression | str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> FileTransformReport:
    """Write what becomes of the records of a file; packed as that is, unless told.

    `advice` is what to do about a record that cannot become what it should.
    """
    validate_side_names(transform)
    shown = str(path)
    with (
        RecordFile(Path(path), limits=limits) as file,
        DurableFile(Path(out), overwrite=overwrite) as durable,
        BoundUDFs(transform) as makers,
    ):
        packed = file.compression if compression is None else parse_compression(compression)
        sink = RecordSink(durable, packed)
        for changed in transform_records(
            shown,
            file.blocks(),
            makers,
            alone=False,
            every=False,
            max_record_bytes=limits.max_record_bytes,
            workers=workers or os.cpu_count() or 1,
        ):
            raise_invalid_records(shown, shown, changed, advice)
            framed = changed.framed
            sink.add(framed.data, framed.starts, framed.lengths)
            if progress is not None:
                progress(file.stream.position)
        written = sink.finish()
    return FileTransformReport(Path(out), written.records, written.bytes, packed, transform.after)
