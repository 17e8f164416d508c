"""Versioned TFRecord datasets.

What is here works on TFRecord files as they are, without TensorFlow and without Dagster. Names
are loaded when they are first used, so that `import shardline` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardline.api import Snapshot, Version
    from shardline.errors import (
        BudgetError,
        CancelledError,
        ChangedSourceError,
        ColumnError,
        ConflictError,
        CorruptFileError,
        CorruptLogError,
        ExampleError,
        Fault,
        FieldsError,
        IndexMismatchError,
        InvalidNameError,
        InvalidRecordsError,
        LogError,
        PackageMissingError,
        SchemaMismatchError,
        ShardlineError,
        SnapshotNotFoundError,
        SourceError,
        StorageError,
        UnreadableSnapshotError,
        VersionNotFoundError,
        WrongShardError,
    )
    from shardline.execution.executor import CancellationToken, Executor, Progress, ThreadExecutor
    from shardline.kernel.types import Column
    from shardline.log.append_change import Append
    from shardline.log.changes import Derive, Replace
    from shardline.log.model import Attestation, Checks, Shard, Source
    from shardline.log.snapshot import diff
    from shardline.operations.append import AppendReport, append
    from shardline.operations.check import check_version
    from shardline.operations.combine import CombineReport, combine, plan_combine
    from shardline.operations.combine_files import combine_files
    from shardline.operations.erase import ErasePlan, EraseReport, erase, plan_erase
    from shardline.operations.example_file import read_examples, write_examples
    from shardline.operations.export import export
    from shardline.operations.extend import extend
    from shardline.operations.migrate import MigrationSpec, migrate
    from shardline.operations.preview import preview
    from shardline.operations.rebuild import RebuildReport, rebuild
    from shardline.operations.rebuild_files import rebuild_files
    from shardline.operations.rejected_sources import dismiss, open_sources
    from shardline.operations.repair import repair
    from shardline.operations.salvage import salvage
    from shardline.operations.status import get_status
    from shardline.operations.transform_files import FileTransformReport, extend_file, migrate_file
    from shardline.operations.transform_version import TransformReport
    from shardline.operations.vacuum import vacuum
    from shardline.operations.verify_files import FileReport, verify_file, verify_files
    from shardline.operations.verify_version import verify_version
    from shardline.schema.comparison import compare
    from shardline.schema.file_schema import feature_spec, infer_schema, schema_of
    from shardline.schema.logical_types import Array, Category, Embedding, Image, Text
    from shardline.schema.schema import Feature, Schema
    from shardline.schema.tf_spec import from_tf_spec, to_tf_spec
    from shardline.sources import open_source
    from shardline.storage import Store, open_store
    from shardline.tfrecord import (
        Compression,
        IndexedFile,
        Limits,
        RecordFile,
        RecordWriter,
        write_index,
        write_records,
    )
    from shardline.udf import batch_udf, record_udf, table_join, tensor_udf

from shardline.release import __version__

_HOMES = {
    "shardline.errors": (
        "UnreadableSnapshotError",
        "PackageMissingError",
        "WrongShardError",
        "SourceError",
        "ChangedSourceError",
        "CancelledError",
        "InvalidRecordsError",
        "BudgetError",
        "InvalidNameError",
        "ColumnError",
        "ConflictError",
        "CorruptFileError",
        "CorruptLogError",
        "ExampleError",
        "FieldsError",
        "IndexMismatchError",
        "LogError",
        "SchemaMismatchError",
        "ShardlineError",
        "SnapshotNotFoundError",
        "StorageError",
        "VersionNotFoundError",
    ),
    "shardline.udf": ("batch_udf", "table_join", "record_udf", "tensor_udf"),
    "shardline.tfrecord": (
        "Compression",
        "IndexedFile",
        "Limits",
        "RecordFile",
        "RecordWriter",
        "write_index",
        "write_records",
    ),
    "shardline.kernel.types": ("Column", "Fault"),
    "shardline.log.changes": ("Derive", "Replace"),
    "shardline.log.append_change": ("Append",),
    "shardline.log.model": ("Attestation", "Checks", "Shard", "Source"),
    "shardline.schema.logical_types": ("Array", "Category", "Embedding", "Image", "Text"),
    "shardline.schema.schema": ("Feature", "Schema"),
    "shardline.schema.comparison": ("compare",),
    "shardline.log.snapshot": ("diff",),
    "shardline.schema.tf_spec": ("from_tf_spec", "to_tf_spec"),
    "shardline.api": ("Snapshot", "Version"),
    "shardline.operations.check": ("check_version",),
    "shardline.operations.transform_files": ("FileTransformReport", "extend_file", "migrate_file"),
    "shardline.operations.transform_version": ("TransformReport",),
    "shardline.operations.combine": ("CombineReport", "combine", "plan_combine"),
    "shardline.operations.combine_files": ("combine_files",),
    "shardline.operations.erase": ("ErasePlan", "EraseReport", "erase", "plan_erase"),
    "shardline.operations.extend": ("extend",),
    "shardline.operations.migrate": ("MigrationSpec", "migrate"),
    "shardline.operations.example_file": ("read_examples", "write_examples"),
    "shardline.operations.preview": ("preview",),
    "shardline.operations.salvage": ("salvage",),
    "shardline.schema.file_schema": ("feature_spec", "infer_schema", "schema_of"),
    "shardline.operations.status": ("get_status",),
    "shardline.operations.vacuum": ("vacuum",),
    "shardline.operations.verify_files": ("FileReport", "verify_file", "verify_files"),
    "shardline.operations.verify_version": ("verify_version",),
    "shardline.execution.executor": ("CancellationToken", "Executor", "Progress", "ThreadExecutor"),
    "shardline.operations.append": ("AppendReport", "append"),
    "shardline.operations.export": ("export",),
    "shardline.operations.rebuild": ("RebuildReport", "rebuild"),
    "shardline.operations.rebuild_files": ("rebuild_files",),
    "shardline.operations.rejected_sources": ("dismiss", "open_sources"),
    "shardline.operations.repair": ("repair",),
    "shardline.sources": ("open_source",),
    "shardline.storage": ("Store", "open_store"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Append",
    "AppendReport",
    "Array",
    "Attestation",
    "BudgetError",
    "CancellationToken",
    "CancelledError",
    "Category",
    "ChangedSourceError",
    "Checks",
    "Column",
    "ColumnError",
    "CombineReport",
    "Compression",
    "ConflictError",
    "CorruptFileError",
    "CorruptLogError",
    "Derive",
    "Embedding",
    "ErasePlan",
    "EraseReport",
    "ExampleError",
    "Executor",
    "Fault",
    "Feature",
    "FieldsError",
    "FileReport",
    "FileTransformReport",
    "Image",
    "IndexMismatchError",
    "IndexedFile",
    "InvalidNameError",
    "InvalidRecordsError",
    "Limits",
    "LogError",
    "MigrationSpec",
    "PackageMissingError",
    "Progress",
    "RebuildReport",
    "RecordFile",
    "RecordWriter",
    "Replace",
    "Schema",
    "SchemaMismatchError",
    "Shard",
    "ShardlineError",
    "Snapshot",
    "SnapshotNotFoundError",
    "Source",
    "SourceError",
    "StorageError",
    "Store",
    "Text",
    "ThreadExecutor",
    "TransformReport",
    "UnreadableSnapshotError",
    "Version",
    "VersionNotFoundError",
    "WrongShardError",
    "__version__",
    "append",
    "batch_udf",
    "check_version",
    "combine",
    "combine_files",
    "compare",
    "diff",
    "dismiss",
    "erase",
    "export",
    "extend",
    "extend_file",
    "feature_spec",
    "from_tf_spec",
    "get_status",
    "infer_schema",
    "migrate",
    "migrate_file",
    "open_source",
    "open_sources",
    "open_store",
    "plan_combine",
    "plan_erase",
    "preview",
    "read_examples",
    "rebuild",
    "rebuild_files",
    "record_udf",
    "repair",
    "salvage",
    "schema_of",
    "table_join",
    "tensor_udf",
    "to_tf_spec",
    "vacuum",
    "verify_file",
    "verify_files",
    "verify_version",
    "write_examples",
    "write_index",
    "write_records",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the types are told above
    if name not in _HOME_OF:
        raise AttributeError(f"module 'shardline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
