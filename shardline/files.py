"""Functions on TFRecord files outside a root: `from shardline import files`."""

from __future__ import annotations

from shardline.kernel.types import Column
from shardline.operations.combine_files import combine_files as combine
from shardline.operations.example_file import read_examples, write_examples
from shardline.operations.extend import extend_file as extend
from shardline.operations.migrate import migrate_file as migrate
from shardline.operations.preview import preview as head
from shardline.operations.rebuild_files import rebuild_files as rebuild
from shardline.operations.salvage import salvage
from shardline.operations.verify_files import verify_file, verify_files
from shardline.schema.file_schema import feature_spec, infer_schema, schema_of
from shardline.tfrecord import (
    IndexedFile,
    RecordFile,
    RecordWriter,
    write_index,
    write_records,
)

__all__ = [
    "Column",
    "IndexedFile",
    "RecordFile",
    "RecordWriter",
    "combine",
    "extend",
    "feature_spec",
    "head",
    "infer_schema",
    "migrate",
    "read_examples",
    "rebuild",
    "salvage",
    "schema_of",
    "verify_file",
    "verify_files",
    "write_examples",
    "write_index",
    "write_records",
]
