"""TFRecord files: reading and writing them around the kernel."""

from shardline.files.compression import Compression
from shardline.files.index import IndexedFile, index_path, write_index
from shardline.files.reader import Block, Damage, Limits, Lost, RecordFile
from shardline.files.writer import RecordWriter, write_records

__all__ = [
    "Block",
    "Compression",
    "Damage",
    "IndexedFile",
    "Limits",
    "Lost",
    "RecordFile",
    "RecordWriter",
    "index_path",
    "write_index",
    "write_records",
]
