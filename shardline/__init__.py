"""Versioned TFRecord datasets.

What is here works on TFRecord files as they are, without TensorFlow and without Dagster. Names
are loaded when they are first used, so that `import shardline` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardline.errors import (
        ColumnError,
        DamagedFileError,
        ExampleError,
        IndexMismatchError,
        ShardlineError,
    )
    from shardline.files import (
        Compression,
        IndexedFile,
        Limits,
        RecordFile,
        RecordWriter,
        write_index,
        write_records,
    )
    from shardline.kernel.types import Column, Fault
    from shardline.operations.examples import read_examples, write_examples
    from shardline.operations.preview import preview
    from shardline.operations.salvage import salvage
    from shardline.operations.schema import feature_spec, infer_schema
    from shardline.operations.verify import FileReport, verify_file, verify_files

__version__ = "0.1.0"

_HOMES = {
    "shardline.errors": (
        "ColumnError",
        "DamagedFileError",
        "ExampleError",
        "IndexMismatchError",
        "ShardlineError",
    ),
    "shardline.files": (
        "Compression",
        "IndexedFile",
        "Limits",
        "RecordFile",
        "RecordWriter",
        "write_index",
        "write_records",
    ),
    "shardline.kernel.types": ("Column", "Fault"),
    "shardline.operations.examples": ("read_examples", "write_examples"),
    "shardline.operations.preview": ("preview",),
    "shardline.operations.salvage": ("salvage",),
    "shardline.operations.schema": ("feature_spec", "infer_schema"),
    "shardline.operations.verify": ("FileReport", "verify_file", "verify_files"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Column",
    "ColumnError",
    "Compression",
    "DamagedFileError",
    "ExampleError",
    "Fault",
    "FileReport",
    "IndexMismatchError",
    "IndexedFile",
    "Limits",
    "RecordFile",
    "RecordWriter",
    "ShardlineError",
    "__version__",
    "feature_spec",
    "infer_schema",
    "preview",
    "read_examples",
    "salvage",
    "verify_file",
    "verify_files",
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
