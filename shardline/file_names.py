"""File names: which formats they stand for, and which files Shardline writes next to others."""

from __future__ import annotations

import re

RECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec", ".tfr", ".record", ".records")
"""How names of TFRecord files end, before a suffix of compression."""
SIDECAR_SUFFIXES = (".export", ".index", ".receipt", ".rows", ".tmp")
"""How the names of files end that Shardline writes next to TFRecord files."""
FORMAT_SUFFIXES: dict[str, str] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    **dict.fromkeys(RECORD_SUFFIXES, "tfrecord"),
}  # fmt: skip
"""The format of each suffix, by the name that `--format` gives it."""
_PACKED_SUFFIXES = (".gz", ".gzip", ".zlib", ".z")
_PACKED_FORMATS = {"jsonl", "csv", "tfrecord"}
_RECORDS = re.compile(r"tf_?rec|-\d{5}-of-\d{5}")
_OTHER_SUFFIXES = (
    ".bak", ".crc", ".log", ".md", ".md5", ".pbtxt", ".py", ".sha1", ".sha256", ".txt",
)  # fmt: skip


def infer_format(name: str) -> str | None:
    """Return the format that the name of a file tells, None if it tells none."""
    name = name.lower()
    if name.startswith(".") or name.endswith((*SIDECAR_SUFFIXES, *_OTHER_SUFFIXES)):
        return None
    packed = next((end for end in _PACKED_SUFFIXES if name.endswith(end)), "")
    plain = name.removesuffix(packed)
    suffix = next((end for end in FORMAT_SUFFIXES if plain.endswith(end)), None)
    if suffix is not None:
        kind = FORMAT_SUFFIXES[suffix]
        return kind if not packed or kind in _PACKED_FORMATS else None
    return "tfrecord" if _RECORDS.search(plain) else None


def is_record_name(name: str) -> bool:
    """Return True if a file is named like a TFRecord file."""
    return infer_format(name) == "tfrecord"


def is_sidecar_name(name: str) -> bool:
    """Return True if a file is named like one that Shardline writes next to another."""
    return name.endswith(SIDECAR_SUFFIXES)
