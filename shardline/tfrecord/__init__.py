"""TFRecord files: readers and writers on top of the kernel."""

from shardline.tfrecord.compression import Compression
from shardline.tfrecord.hashing import HashedFile
from shardline.tfrecord.index import index_path, write_index
from shardline.tfrecord.indexed_file import IndexedFile
from shardline.tfrecord.input_file import Source, StoredFile, open_file
from shardline.tfrecord.reader import Corruption, Limits, LostBytes, RecordFile
from shardline.tfrecord.record_block import RecordBlock
from shardline.tfrecord.writer import RecordWriter, write_records

__all__ = [
    "Compression",
    "Corruption",
    "HashedFile",
    "IndexedFile",
    "Limits",
    "LostBytes",
    "RecordBlock",
    "RecordFile",
    "RecordWriter",
    "Source",
    "StoredFile",
    "index_path",
    "open_file",
    "write_index",
    "write_records",
]
