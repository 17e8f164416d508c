"""TFRecord files: reading and writing them around the kernel."""

from shardline.files.compression import Compression
from shardline.files.hashed import HashedFile
from shardline.files.index import IndexedFile, index_path, write_index
from shardline.files.reader import Block, Damage, Limits, Lost, RecordFile
from shardline.files.stored import Source, StoredFile, open_source
from shardline.files.writer import RecordWriter, write_records

__all__ = [
    "Block",
    "Compression",
    "Damage",
    "HashedFile",
    "IndexedFile",
    "Limits",
    "Lost",
    "RecordFile",
    "RecordWriter",
    "Source",
    "StoredFile",
    "index_path",
    "open_source",
    "write_index",
    "write_records",
]
