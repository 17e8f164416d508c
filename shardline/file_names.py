"""File names: formats by suffix, and suffixes of sidecars."""

from __future__ import annotations

import re

RECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".record", ".records")
"""Suffixes of TFRecord files, without that of a compression."""
SIDECAR_SUFFIXES = (".export", ".index", ".receipt", ".rows", ".tmp")
"""Suffixes of files that Shardline writes next to TFRecord files."""
FORMAT_SUFFIXES: dict[str, str] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    **dict.fromkeys(RECORD_SUFFIXES, "tfrecord"),
}  # fmt: skip
"""Format of each suffix, named as in `--format`."""
_COMPRESSION_SUFFIXES = (".gz", ".gzip", ".zlib", ".z")
_COMPRESSED_FORMATS = {"jsonl", "csv", "tfrecord"}
_RECORDS = re.compile(r"tf_?rec|-\d{5}-of-\d{5}")
_OTHER_SUFFIXES = (
    ".bak", ".crc", ".log", ".md", ".md5", ".pbtxt", ".py", ".sha1", ".sha256", ".txt",
)  # fmt: skip


def infer_format(name: str) -> str | None:
    """Infer the format from the name of a file; None if unknown."""
    name = name.lower()
    if name.startswith(".") or name.endswith((*SIDECAR_SUFFIXES, *_OTHER_SUFFIXES)):
        return None
    compression = next((end for end in _COMPRESSION_SUFFIXES if name.endswith(end)), "")
    plain = name.removesuffix(compression)
    suffix = next((end for end in FORMAT_SUFFIXES if plain.endswith(end)), None)
    if suffix is not None:
        kind = FORMAT_SUFFIXES[suffix]
        return kind if not compression or kind in _COMPRESSED_FORMATS else None
    return "tfrecord" if _RECORDS.search(plain) else None


def is_record_name(name: str) -> bool:
    """Return True for the name of a TFRecord file."""
    return infer_format(name) == "tfrecord"


def is_sidecar_name(name: str) -> bool:
    """Return True for the name of a file that Shardline writes next to another."""
    return name.endswith(SIDECAR_SUFFIXES)
