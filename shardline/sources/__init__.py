"""Where the records of an append come from: files, folders and rows in memory."""

from shardline.schema.encoding import EncodedRows, QuarantinedRow
from shardline.sources.schema_inference import infer_source_schema
from shardline.sources.source import Chunk, RecordSource
from shardline.sources.source_format import SourceFormat, as_source

__all__ = [
    "Chunk",
    "EncodedRows",
    "QuarantinedRow",
    "RecordSource",
    "SourceFormat",
    "as_source",
    "infer_source_schema",
]
