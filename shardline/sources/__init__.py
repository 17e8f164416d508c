"""Where the records of an append come from: files, folders and rows in memory."""

from shardline.schema.encoding import Frames, Refused
from shardline.sources.choose import Format, as_source
from shardline.sources.inference import infer_schema_of
from shardline.sources.source import Chunk, RecordSource

__all__ = [
    "Chunk",
    "Format",
    "Frames",
    "RecordSource",
    "Refused",
    "as_source",
    "infer_schema_of",
]
