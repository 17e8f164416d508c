"""A published snapshot as Croissant JSON-LD, with a Parquet copy of its records."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from io import RawIOBase
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow.parquet as pq

from shardline.arguments import resolve_path
from shardline.errors import InvalidNameError, UnreadableSnapshotError
from shardline.hints import Command, Hint
from shardline.lineage.exports.dataset_card import NO_TERMS
from shardline.lineage.exports.snapshot_files import (
    get_relative_path,
    list_snapshot_files,
    validate_files_exist,
)
from shardline.readers.arrow import to_arrow
from shardline.schema.logical_types import Image
from shardline.storage.durable_file import DurableFile
from shardline.text import format_count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

    from shardline.canonical_json import Json
    from shardline.lineage.exports.dataset_card import DatasetTerms
    from shardline.lineage.exports.snapshot_files import SnapshotFile
    from shardline.log.snapshot import StoredSnapshot
    from shardline.schema.schema import Feature, Schema


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file and the digest of its bytes."""

    name: str
    bytes: int
    sha256: str


def map_column_names(schema: Schema) -> dict[tuple[bool, str], str]:
    """Map each feature to its column: the feature name, unless two features share the name."""
    taken = {feature.name for feature in schema.features if not feature.sequence}
    return {feature.key: _choose_column_name(feature, taken) for feature in schema.features}


def _choose_column_name(feature: Feature, taken: set[str]) -> str:
    return f"{feature.name} (steps)" if feature.sequence and feature.name in taken else feature.name


def write_parquet(
    snapshot: StoredSnapshot,
    path: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    overwrite: bool = False,
) -> ParquetFile:
    """Write the records of a snapshot in order, each validated, to a Parquet file.

    Args:
        snapshot: The snapshot to copy.
        path: The file to write.
        progress: Called with the number of written records and of all records.
        overwrite: Replace an existing file once the new file is complete.
    """
    names = list(map_column_names(snapshot.schema).values())
    reader = to_arrow(snapshot)
    schema = reader.schema
    for index, name in enumerate(names):
        schema = schema.set(index, schema.field(index).with_name(name))
    written = 0
    with DurableFile(path, overwrite=overwrite) as file:
        hashed = _HashingFile(file)
        with pq.ParquetWriter(hashed, schema) as writer:
            for batch in reader:
                writer.write_batch(batch.rename_columns(names))
                written += batch.num_rows
                if progress is not None:
                    progress(written, snapshot.records)
    return ParquetFile(path.name, hashed.size, hashed.digest.hexdigest())


class _HashingFile(RawIOBase):
    """A file that hashes the bytes written to it."""

    def __init__(self, file: DurableFile) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Buffer) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.digest.update(view)
        self.size += len(view)
        return len(view)


CROISSANT_FILE, RECORDS_FILE = "croissant.json", "records.parquet"
_CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
_TERMS = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field"),
    *("fileProperty", "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset"),
    *("jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
_CONTEXT: Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{word: f"cr:{word}" for word in _TERMS},
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "name": {"@container": "@language"},
}
_TYPES = {"int64": "cr:Int64", "float": "cr:Float32", "bytes": "sc:Text"}
_TFRECORD = "application/x-tfrecord"
_SHARD_COLUMNS = {
    "name": "sc:Text",
    "records": "sc:Integer",
    "bytes": "sc:Integer",
    "sha256": "sc:Text",
    "compression": "sc:Text",
}


def write_croissant(
    snapshot: StoredSnapshot,
    folder: Path,
    *,
    terms: DatasetTerms = NO_TERMS,
    copy: bool = True,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write `croissant.json`, and with `copy` also `records.parquet`, into a folder.

    Replaces existing files only with `overwrite`. Raises UnreadableSnapshotError for an unpublished
    snapshot, and InvalidNameError for a folder in the root, where `erase` would miss the copy.
    """
    _validate_published(snapshot)
    copy = copy and bool(snapshot.schema.features)
    if copy:
        _validate_folder(snapshot, folder)
    folder.mkdir(parents=True, exist_ok=True)
    copied = None
    if copy:
        copied = write_parquet(snapshot, folder / RECORDS_FILE, progress, overwrite=overwrite)
    payload = build_croissant(snapshot, folder, terms=terms, copied=copied)
    with DurableFile(folder / CROISSANT_FILE, overwrite=overwrite) as file:
        file.write(json.dumps(payload, indent=2, ensure_ascii=False).encode() + b"\n")
    return folder / CROISSANT_FILE


def build_croissant(
    snapshot: StoredSnapshot,
    folder: Path | None = None,
    *,
    terms: DatasetTerms = NO_TERMS,
    copied: ParquetFile | None = None,
) -> Json:
    """Return the Croissant JSON-LD of a published snapshot, with paths counted from `folder`."""
    _validate_published(snapshot)
    files = list_snapshot_files(snapshot)
    dataset, _, version = snapshot.version.partition("/")
    payload: Json = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": _CONFORMS_TO,
        "name": f"{dataset}-{version}",
        "description": _format_description(snapshot),
        "version": f"{snapshot.number}.0.0",
        "datePublished": snapshot.time.isoformat(timespec="seconds"),
        "isLiveDataset": False,
        "identifier": f"sha256:{snapshot.content}",
        "license": terms.license,
        "url": terms.url,
        "citeAs": terms.citation,
        "creator": terms.creator and {"@type": "sc:Organization", "name": terms.creator},
        "distribution": [_make_file_object(file, snapshot, folder) for file in files],
        "recordSet": [_make_shard_records(files)],
    }
    if copied is not None:
        payload["distribution"].append(_make_parquet_object(copied))
        payload["recordSet"].insert(0, _make_record_set(snapshot.schema))
    return {key: value for key, value in payload.items() if value not in ("", None)}


def _validate_published(snapshot: StoredSnapshot) -> None:
    validate_files_exist(snapshot)
    if not snapshot.published:
        raise UnreadableSnapshotError(
            f"{snapshot}: cannot describe an unpublished snapshot",
            code="snapshot-unpublished",
            hint=Hint.of(
                "choose a published snapshot; to see what blocks this one, run ",
                Command.of("status", snapshot.version),
            ),
            version=snapshot.version,
            snapshot=snapshot.number,
        )


def _validate_folder(snapshot: StoredSnapshot, folder: Path) -> None:
    inside = snapshot.store.local_path(snapshot.version.partition("/")[0])
    if inside is not None and resolve_path(folder).is_relative_to(resolve_path(inside.parent)):
        raise InvalidNameError(
            f"{folder}: expected a folder outside the root",
            code="output-in-root",
            hint=Hint.of(
                "choose a folder outside the root, or leave out the copy: erase would miss it there"
            ),
            path=folder,
        )


def _format_description(snapshot: StoredSnapshot) -> str:
    doc = f"{snapshot.schema.doc.strip()}\n\n" if snapshot.schema.doc.strip() else ""
    return (
        f"{doc}Snapshot {snapshot.number} of {snapshot.version}, versioned by Shardline: "
        f"{format_count(snapshot.records, 'record')} in "
        f"{format_count(len(snapshot.shards), 'TFRecord shard')}. Its content digest is "
        f"{snapshot.content}."
    )


def _make_file_object(file: SnapshotFile, snapshot: StoredSnapshot, folder: Path | None) -> Json:
    shard = file.shard
    kind = "Pair plan" if shard.virtual else "TFRecord file"
    compression = "" if shard.compression == "none" else f", compressed with {shard.compression}"
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.file_name,
        "description": f"{kind} of {format_count(shard.records, 'record')}{compression}.",
        "contentUrl": get_relative_path(folder, snapshot.store, file.name),
        "contentSize": f"{shard.bytes} B",
        "encodingFormat": "application/json" if shard.virtual else _TFRECORD,
        "sha256": shard.sha256,
    }


def _make_parquet_object(copied: ParquetFile) -> Json:
    return {
        "@type": "cr:FileObject",
        "@id": RECORDS_FILE,
        "name": copied.name,
        "description": "A copy of all records, in order.",
        "contentUrl": copied.name,
        "contentSize": f"{copied.bytes} B",
        "encodingFormat": "application/x-parquet",
        "sha256": copied.sha256,
    }


def _make_shard_records(files: list[SnapshotFile]) -> Json:
    """Return the files as a record set with inline data."""
    return {
        "@type": "cr:RecordSet",
        "@id": "shards",
        "name": "shards",
        "description": "The files in order, with their digests.",
        "key": {"@id": "shards/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"shards/{name}", "name": name, "dataType": kind}
            for name, kind in _SHARD_COLUMNS.items()
        ],
        "data": [
            {
                "shards/name": file.name,
                "shards/records": file.shard.records,
                "shards/bytes": file.shard.bytes,
                "shards/sha256": file.shard.sha256,
                "shards/compression": file.shard.compression,
            }
            for file in files
        ],
    }


def _make_record_set(schema: Schema) -> Json:
    names = map_column_names(schema)
    return {
        "@type": "cr:RecordSet",
        "@id": "records",
        "name": "records",
        "description": "The records, in order.",
        "field": [_make_field(feature, names[feature.key]) for feature in schema.features],
    }


def _make_field(feature: Feature, column: str) -> Json:
    """Return a feature, with its name quoted in the id, which is a part of an IRI."""
    image = isinstance(feature.meaning, Image)
    doc = f"{feature.doc.strip()} ({feature})" if feature.doc.strip() else str(feature)
    field: Json = {
        "@type": "cr:Field",
        "@id": f"records/{quote(column, safe='')}",
        "name": column,
        "description": doc,
        "dataType": "sc:ImageObject" if image else _TYPES[feature.kind],
        "source": {"fileObject": {"@id": RECORDS_FILE}, "extract": {"column": column}},
    }
    shape = ((None,) if feature.sequence else ()) + feature.shape
    if shape:
        field["isArray"] = True
        field["arrayShape"] = ",".join("-1" if size is None else str(size) for size in shape)
    return field
