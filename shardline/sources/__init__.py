"""Where the records of an append come from: files, folders and rows in memory."""

from shardline.schema.encoding import Frames, Refused
from shardline.sources.schema_inference import infer_schema_of
from shardline.sources.source import Chunk, RecordSource
from shardline.sources.source_format import Format, as_source

__all__ = [
    "Chunk",
    "Format",
    "Frames",
    "RecordSource",
    "Refused",
    "as_source",
    "infer_schema_of",
]
