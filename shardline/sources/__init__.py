"""Sources of an append: files, folders and rows in memory."""

from shardline.schema.encoding import EncodedRows, QuarantinedRow
from shardline.sources.source import Chunk, RecordSource, infer_source_schema
from shardline.sources.source_format import SourceFormat, open_source

__all__ = [
    "Chunk",
    "EncodedRows",
    "QuarantinedRow",
    "RecordSource",
    "SourceFormat",
    "infer_source_schema",
    "open_source",
]
