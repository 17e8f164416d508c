"""The records of a snapshot as one Parquet file, for tools that do not read TFRecord."""

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
    """A file that was written."""

    name: str
    bytes: int
    sha256: str


def map_column_names(schema: Schema) -> dict[tuple[bool, str], str]:
    """What the column of each feature is called: as the feature, unless two have that name."""
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
    """Write every record of a snapshot in its order; each is checked on the way.

    With `overwrite`, a file that is there is replaced when the new one is whole. `progress` is told
    how many records are written, of how many.
    """
    names = list(map_column_names(snapshot.schema).values())
    reader = to_arrow(snapshot)
    schema = reader.schema
    for place, name in enumerate(names):
        schema = schema.set(place, schema.field(place).with_name(name))
    done = 0
    with DurableFile(path, overwrite=overwrite) as file:
        hashed = _HashingFile(file)
        with pq.ParquetWriter(hashed, schema) as writer:
            for batch in reader:
                writer.write_batch(batch.rename_columns(names))
                done += batch.num_rows
                if progress is not None:
                    progress(done, snapshot.records)
    return ParquetFile(path.name, hashed.size, hashed.digest.hexdigest())


class _HashingFile(RawIOBase):
    """A file that knows the digest of what was written to it."""

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
_OURS = (
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
    **{word: f"cr:{word}" for word in _OURS},
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
    about: DatasetTerms = NO_TERMS,
    copy: bool = True,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write `croissant.json` into a folder, and unless `copy` is off `records.parquet` beside it.

    Files of these names that are there are replaced if `overwrite` is set, and else refused. Raises
    UnreadableSnapshotError for a snapshot that is not published, and InvalidNameError for a
    folder in
    the root: what is copied there would stay when records are erased.
    """
    _validate_published(snapshot)
    copy = copy and bool(snapshot.schema.features)
    if copy:
        _validate_folder(snapshot, folder)
    folder.mkdir(parents=True, exist_ok=True)
    copied = None
    if copy:
        copied = write_parquet(snapshot, folder / RECORDS_FILE, progress, overwrite=overwrite)
    told = croissant(snapshot, folder, about=about, copied=copied)
    with DurableFile(folder / CROISSANT_FILE, overwrite=overwrite) as file:
        file.write(json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n")
    return folder / CROISSANT_FILE


def croissant(
    snapshot: StoredSnapshot,
    folder: Path | None = None,
    *,
    about: DatasetTerms = NO_TERMS,
    copied: ParquetFile | None = None,
) -> Json:
    """A published snapshot in Croissant's words; files are told as seen from `folder`."""
    _validate_published(snapshot)
    files = list_snapshot_files(snapshot)
    dataset, _, version = snapshot.version.partition("/")
    told: Json = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": _CONFORMS_TO,
        "name": f"{dataset}-{version}",
        "description": _format_description(snapshot),
        "version": f"{snapshot.number}.0.0",
        "datePublished": snapshot.time.isoformat(timespec="seconds"),
        "isLiveDataset": False,
        "identifier": f"sha256:{snapshot.content}",
        "license": about.license,
        "url": about.url,
        "citeAs": about.citation,
        "creator": about.creator and {"@type": "sc:Organization", "name": about.creator},
        "distribution": [_file(one, snapshot, folder) for one in files],
        "recordSet": [_format_shards(files)],
    }
    if copied is not None:
        told["distribution"].append(_format_parquet(copied))
        told["recordSet"].insert(0, _format_records(snapshot.schema))
    return {key: value for key, value in told.items() if value not in ("", None)}


def _validate_published(snapshot: StoredSnapshot) -> None:
    validate_files_exist(snapshot)
    if not snapshot.published:
        raise UnreadableSnapshotError(
            f"{snapshot}: not published, Croissant describes published snapshots",
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
            f"{folder}: inside the root, where erase cannot find a copy of the records",
            code="output-in-root",
            hint=Hint.of("choose a folder outside the root, or leave out the copy"),
            path=folder,
        )


def _format_description(snapshot: StoredSnapshot) -> str:
    doc = f"{snapshot.schema.doc.strip()}\n\n" if snapshot.schema.doc.strip() else ""
    return (
        f"{doc}Snapshot {snapshot.number} of {snapshot.version}, a version of a dataset kept by "
        f"Shardline: {format_count(snapshot.records, 'record')} in "
        f"{format_count(len(snapshot.shards), 'TFRecord shard')}. Its content digest is "
        f"{snapshot.content}."
    )


def _file(one: SnapshotFile, snapshot: StoredSnapshot, folder: Path | None) -> Json:
    packed = "" if one.shard.compression == "none" else f", packed with {one.shard.compression}"
    what = "a plan by which readers make the records" if one.shard.virtual else "a TFRecord file"
    records = format_count(one.shard.records, "record")
    return {
        "@type": "cr:FileObject",
        "@id": one.name,
        "name": one.file_name,
        "description": f"{what[0].upper()}{what[1:]} of {records}{packed}.",
        "contentUrl": get_relative_path(folder, snapshot.store, one.name),
        "contentSize": f"{one.shard.bytes} B",
        "encodingFormat": "application/json" if one.shard.virtual else _TFRECORD,
        "sha256": one.shard.sha256,
    }


def _format_parquet(copied: ParquetFile) -> Json:
    return {
        "@type": "cr:FileObject",
        "@id": RECORDS_FILE,
        "name": copied.name,
        "description": "A copy of all records, in their order, made for this file.",
        "contentUrl": copied.name,
        "contentSize": f"{copied.bytes} B",
        "encodingFormat": "application/x-parquet",
        "sha256": copied.sha256,
    }


def _format_shards(files: list[SnapshotFile]) -> Json:
    """The files as a record set that lies in the JSON-LD itself."""
    return {
        "@type": "cr:RecordSet",
        "@id": "shards",
        "name": "shards",
        "description": "The files, in order: what to hand to TensorFlow, and what to check it by.",
        "key": {"@id": "shards/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"shards/{name}", "name": name, "dataType": kind}
            for name, kind in _SHARD_COLUMNS.items()
        ],
        "data": [
            {
                "shards/name": one.name,
                "shards/records": one.shard.records,
                "shards/bytes": one.shard.bytes,
                "shards/sha256": one.shard.sha256,
                "shards/compression": one.shard.compression,
            }
            for one in files
        ],
    }


def _format_records(schema: Schema) -> Json:
    names = map_column_names(schema)
    return {
        "@type": "cr:RecordSet",
        "@id": "records",
        "name": "records",
        "description": "The records, in order.",
        "field": [_format_field(feature, names[feature.key]) for feature in schema.features],
    }


def _format_field(feature: Feature, column: str) -> Json:
    """A feature; its id must be a part of an IRI, whatever its name is."""
    image = isinstance(feature.meaning, Image)
    doc = f"{feature.doc.strip()} ({feature})" if feature.doc.strip() else str(feature)
    told: Json = {
        "@type": "cr:Field",
        "@id": f"records/{quote(column, safe='')}",
        "name": column,
        "description": doc,
        "dataType": "sc:ImageObject" if image else _TYPES[feature.kind],
        "source": {"fileObject": {"@id": RECORDS_FILE}, "extract": {"column": column}},
    }
    shape = ((None,) if feature.sequence else ()) + feature.shape
    if shape:
        told["isArray"] = True
        told["arrayShape"] = ",".join("-1" if size is None else str(size) for size in shape)
    return told
