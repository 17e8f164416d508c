"""Creation of a source from a path, a table or Python data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import numpy as np
import pyarrow as pa

from shardline import kernel
from shardline.arguments import parse_local_path
from shardline.errors import SourceError
from shardline.file_names import infer_format
from shardline.hints import Hint, Option
from shardline.kernel.types import HEADER_BYTES
from shardline.sources.column_source import ArrowTable, ColumnSource, SinglePassSource
from shardline.sources.csv_source import CsvSource
from shardline.sources.folder_source import FolderIdentity, FolderSource
from shardline.sources.json_source import JsonLinesSource
from shardline.sources.memory_source import ArrayColumns, FrameColumns, TensorColumns
from shardline.sources.parquet_decoder import ARROW_MAGIC
from shardline.sources.parquet_source import PARQUET_MAGIC, FileColumnReader
from shardline.sources.row_source import RowSource
from shardline.sources.source_identity import BatchIdentity, FileIdentity
from shardline.sources.tfrecord_source import TFRecordSource
from shardline.storage.store import open_store
from shardline.tfrecord.compression import CompressionError, open_stream
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS

if TYPE_CHECKING:
    from shardline.sources.parquet_source import Encoding
    from shardline.sources.source import RecordSource
    from shardline.tfrecord.reader import Limits

SourceFormat: TypeAlias = Literal["jsonl", "csv", "parquet", "arrow", "folder", "tfrecord"]
"""File formats of a source, by their option names."""


def open_source(
    what: object,
    *,
    batch: str | None = None,
    format: SourceFormat | None = None,  # noqa: A002 - the word that callers and --format use
    salvage: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> RecordSource:
    """Open a path, a stored file or rows in memory as a source.

    Args:
        what: Path, stored file or data in memory.
        batch: Name of rows in memory, so that the same rows are appended once.
        format: Format of a file whose name does not show it.
        salvage: Skip corrupt parts of a TFRecord file.
        limits: Limits for reading.
    """
    if format is not None and format not in get_args(SourceFormat):
        raise SourceError(
            f"unknown format {format!r}", code="invalid-argument", hint=_format_hint()
        )
    if isinstance(what, str) and "://" in what:
        what = open_stored_file(what)
    if isinstance(what, str | Path | StoredFile):
        if batch is not None:
            raise SourceError(
                f"{what}: a file has no batch name",
                code="invalid-argument",
                hint=Hint.of("leave out ", Option("batch")),
                path=str(what),
            )
        return _open_file_source(what, format, limits, salvage=salvage)
    if hasattr(what, "chunks") and hasattr(what, "identity"):
        return what  # type: ignore[return-value] # it has what a source has
    return _open_memory_source(what, BatchIdentity(batch), limits)


def open_stored_file(uri: str) -> StoredFile:
    """Return the object that a URI names."""
    folder, _, name = uri.rpartition("/")
    return StoredFile(open_store(folder), name)


def _open_file_source(
    location: str | Path | StoredFile,
    declared: SourceFormat | None,
    limits: Limits,
    *,
    salvage: bool,
) -> RecordSource:
    where = location if isinstance(location, StoredFile) else parse_local_path(location, "source")
    if isinstance(where, Path) and (declared == "folder" or (declared is None and where.is_dir())):
        return FolderSource(FolderIdentity(where), limits)
    origin = FileIdentity(where)
    kind = declared or detect_format(origin)
    if kind is None:
        raise SourceError(
            f"{origin}: unknown file format",
            code="unknown-source-format",
            hint=_format_hint(),
            path=origin.path,
        )
    if kind == "folder":
        raise SourceError(
            f"{origin}: a folder source must be local",
            code="unsupported-source",
            hint=Hint.of("copy the folder to a local disk"),
            path=origin.path,
        )
    if salvage and kind != "tfrecord":
        raise SourceError(
            f"{origin}: cannot salvage a {kind} file",
            code="invalid-argument",
            hint=Hint.of("leave out ", Option("salvage"), ", which is for TFRecord files"),
            path=origin.path,
        )
    if kind == "tfrecord":
        return TFRecordSource(origin, limits, salvage=salvage)
    if kind in {"parquet", "arrow"}:
        encoding: Encoding = "parquet" if kind == "parquet" else "arrow"
        return ColumnSource(origin, FileColumnReader(origin, encoding, limits), limits)
    if kind == "csv":
        return CsvSource(origin, limits)
    return JsonLinesSource(origin, limits)


def _format_hint() -> Hint:
    return Hint.of("pass ", Option("format"), f": {', '.join(get_args(SourceFormat))}")


def detect_format(origin: FileIdentity) -> SourceFormat | None:
    """Detect a file format from the name, else from the first bytes; None if unknown."""
    return infer_format_from_name(origin.label) or _detect_format_from_content(origin)


def infer_format_from_name(label: str) -> SourceFormat | None:
    """Infer a file format from the name; None if unknown."""
    return cast("SourceFormat | None", infer_format(label.rpartition("/")[2]))


def _detect_format_from_content(origin: FileIdentity) -> SourceFormat | None:
    file = origin.open()
    try:
        head = file.pread(max(len(ARROW_MAGIC), len(PARQUET_MAGIC)), 0)
        if head.startswith(PARQUET_MAGIC):
            return "parquet"
        if head.startswith(ARROW_MAGIC):
            return "arrow"
        start = memoryview(bytearray(HEADER_BYTES))
        _, stream = open_stream(file)
        count = stream.readinto(start)
        scan = kernel.scan(start[:count], max_record_bytes=2**64 - 1, final=False)
        if count == HEADER_BYTES and scan.fault is None:
            return "tfrecord"
    except CompressionError:
        pass
    finally:
        file.close()
    return None


def _open_memory_source(data: object, origin: BatchIdentity, limits: Limits) -> RecordSource:
    if isinstance(data, pa.Table | pa.RecordBatch):
        return ColumnSource(origin, ArrowTable(data), limits)
    if isinstance(data, pa.RecordBatchReader):
        return SinglePassSource(origin, ArrowTable(data), limits)
    if isinstance(data, Mapping):
        return ColumnSource(origin, _make_array_columns(data), limits)
    if _is_instance_of(data, "pandas", "DataFrame"):
        return ColumnSource(origin, FrameColumns(data), limits)
    if _is_instance_of(data, "tensorflow", "DatasetV2"):
        return ColumnSource(origin, TensorColumns(data), limits)
    if isinstance(data, Iterable) and not isinstance(data, bytes | np.ndarray):
        return RowSource(origin, data, limits)
    raise SourceError(
        f"unsupported source of type {type(data).__name__}",
        code="unsupported-source",
        hint=Hint.of(
            "pass a path, a table, a DataFrame, a dict of arrays, a tf.data.Dataset "
            "or rows as dicts"
        ),
    )


def _make_array_columns(data: Mapping[object, object]) -> ArrayColumns:
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, array in data.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise SourceError(
                "dict source: expected NumPy arrays by name",
                code="unsupported-source",
                hint=Hint.of(
                    "the first axis of each array is the record; for a single record, pass a list "
                    "with a dict"
                ),
            )
        arrays[name] = array
    return ArrayColumns(arrays)


def _is_instance_of(value: object, package: str, name: str) -> bool:
    """Return True if a value is an instance of a class, without importing the package."""
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package
        for kind in type(value).__mro__
    )
