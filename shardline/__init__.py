"""Versioned TFRecord datasets.

`shardline.open` opens a root of datasets, `shardline.files` has the functions on single TFRecord
files, `shardline.errors` the errors, `shardline.log` the changes that a log accepts. Names are
imported on first use, so that `import shardline` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardline.lazy import load
from shardline.release import __version__ as __version__

if TYPE_CHECKING:
    from shardline import errors as errors
    from shardline import files as files
    from shardline.api import Root as Root
    from shardline.api import Snapshot as Snapshot
    from shardline.api import Version as Version
    from shardline.api import open as open  # noqa: A004 - used as `shardline.open`
    from shardline.errors import ShardlineError as ShardlineError
    from shardline.execution.executor import CancellationToken as CancellationToken
    from shardline.execution.executor import Executor as Executor
    from shardline.execution.executor import Progress as Progress
    from shardline.execution.executor import ThreadExecutor as ThreadExecutor
    from shardline.lineage.audit.audit_report import AuditReport as AuditReport
    from shardline.log.model import Checks as Checks
    from shardline.log.snapshot import SnapshotDiff as SnapshotDiff
    from shardline.operations.append import AppendReport as AppendReport
    from shardline.operations.check import CheckReport as CheckReport
    from shardline.operations.combine import CombineReport as CombineReport
    from shardline.operations.erase import ErasePlan as ErasePlan
    from shardline.operations.erase import EraseReport as EraseReport
    from shardline.operations.export import ExportReport as ExportReport
    from shardline.operations.migrate import MigrationSpec as MigrationSpec
    from shardline.operations.rebuild import RebuildReport as RebuildReport
    from shardline.operations.rejected_sources import DismissReport as DismissReport
    from shardline.operations.repair import RepairReport as RepairReport
    from shardline.operations.status import VersionStatus as VersionStatus
    from shardline.operations.transform import TransformReport as TransformReport
    from shardline.operations.vacuum import VacuumReport as VacuumReport
    from shardline.operations.verify_version import VersionReport as VersionReport
    from shardline.schema.logical_types import Array as Array
    from shardline.schema.logical_types import Category as Category
    from shardline.schema.logical_types import Embedding as Embedding
    from shardline.schema.logical_types import Image as Image
    from shardline.schema.logical_types import Text as Text
    from shardline.schema.schema import Feature as Feature
    from shardline.schema.schema import Schema as Schema
    from shardline.schema.tf_spec import from_tf_spec as from_tf_spec
    from shardline.schema.tf_spec import to_tf_spec as to_tf_spec
    from shardline.sources import open_source as open_source
    from shardline.tfrecord import Compression as Compression
    from shardline.tfrecord import Limits as Limits
    from shardline.udf import batch_udf as batch_udf
    from shardline.udf import record_udf as record_udf
    from shardline.udf import table_join as table_join
    from shardline.udf import tensor_udf as tensor_udf

_MODULES = {
    "AppendReport": "shardline.operations.append",
    "Array": "shardline.schema.logical_types",
    "AuditReport": "shardline.lineage.audit.root_audit",
    "batch_udf": "shardline.udf",
    "CancellationToken": "shardline.execution.executor",
    "Category": "shardline.schema.logical_types",
    "CheckReport": "shardline.operations.check",
    "Checks": "shardline.log.model",
    "CombineReport": "shardline.operations.combine",
    "Compression": "shardline.tfrecord",
    "DismissReport": "shardline.operations.rejected_sources",
    "Embedding": "shardline.schema.logical_types",
    "ErasePlan": "shardline.operations.erase",
    "EraseReport": "shardline.operations.erase",
    "Executor": "shardline.execution.executor",
    "ExportReport": "shardline.operations.export",
    "Feature": "shardline.schema.schema",
    "from_tf_spec": "shardline.schema.tf_spec",
    "Image": "shardline.schema.logical_types",
    "Limits": "shardline.tfrecord",
    "MigrationSpec": "shardline.operations.migrate",
    "open": "shardline.api",
    "open_source": "shardline.sources",
    "Progress": "shardline.execution.executor",
    "RebuildReport": "shardline.operations.rebuild",
    "record_udf": "shardline.udf",
    "RepairReport": "shardline.operations.repair",
    "Root": "shardline.api",
    "Schema": "shardline.schema.schema",
    "ShardlineError": "shardline.errors",
    "Snapshot": "shardline.api",
    "SnapshotDiff": "shardline.log.snapshot",
    "table_join": "shardline.udf",
    "tensor_udf": "shardline.udf",
    "Text": "shardline.schema.logical_types",
    "ThreadExecutor": "shardline.execution.executor",
    "to_tf_spec": "shardline.schema.tf_spec",
    "TransformReport": "shardline.operations.transform",
    "VacuumReport": "shardline.operations.vacuum",
    "Version": "shardline.api",
    "VersionReport": "shardline.operations.verify_version",
    "VersionStatus": "shardline.operations.status",
}

__all__ = ["__version__", "errors", "files", *_MODULES]  # noqa: PLE0604 - computed


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name in {"errors", "files"}:
        return import_module(f"shardline.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'shardline' has no attribute {name!r}")
    return load(_MODULES[name], name)


def __dir__() -> list[str]:
    return __all__
