"""Preview of records: each feature with its kind and first values, long bytes as a summary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from shardline import kernel
from shardline.arguments import parse_local_path, validate_minimum
from shardline.errors import CorruptFileError, ExampleError, IndexMismatchError
from shardline.kernel.types import Column
from shardline.text import float32_json
from shardline.tfrecord.index import index_path
from shardline.tfrecord.indexed_file import IndexedFile
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.kernel.types import ColumnBuffers
    from shardline.tfrecord.input_file import Source

_SHOWN_VALUES = 8
_SHOWN_TEXT = 80
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "png image"),
    (b"\xff\xd8\xff", "jpeg image"),
    (b"GIF8", "gif image"),
    (b"\x1f\x8b\x08", "gzip data"),
    (b"\x93NUMPY", "numpy array"),
    (b"PK\x03\x04", "zip archive"),
    (b"fLaC", "flac audio"),
    (b"OggS", "ogg audio"),
    (b"%PDF", "pdf document"),
)


@dataclass(frozen=True, slots=True)
class PreviewRecord:
    """Record for display: an Example with `features`, or any other `payload`."""

    number: int
    bytes: int
    form: str
    features: dict[str, Any] | None = None
    feature_lists: dict[str, Any] | None = None
    payload: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        contents = {
            "features": self.features,
            "feature_lists": self.feature_lists,
            "payload": self.payload,
        }
        return {
            "record": self.number,
            "bytes": self.bytes,
            "form": self.form,
            **{name: value for name, value in contents.items() if value is not None},
        }


def preview(
    source: Source, *, count: int = 5, skip: int = 0, limits: Limits = DEFAULT_LIMITS
) -> Iterator[PreviewRecord]:
    """Yield at most `count` records from record `skip` on, using the index of the file if present.

    Raises CorruptFileError if a record up to the last one is corrupt.
    """
    validate_minimum("count", count, 0)
    validate_minimum("skip", skip, 0)
    payloads = _read_payloads(source, skip, limits)
    for number, payload in enumerate(islice(payloads, count), skip):
        yield make_preview_record(number, payload)


def _read_payloads(source: Source, skip: int, limits: Limits) -> Iterator[bytes]:
    path = _get_path(source)
    if skip and path is not None and index_path(path).exists():
        try:
            with IndexedFile(path, limits=limits) as indexed:
                for record in indexed.read(skip):
                    yield record
                    skip += 1
                return
        except (IndexMismatchError, CorruptFileError):
            pass  # Reading without the index also reports corruption better.
    with RecordFile(source, limits=limits) as file:
        for block in file.blocks():
            first = max(skip - block.record, 0)
            if first < len(block.starts):
                for payload in islice(block.payloads(), first, None):
                    yield bytes(payload)


def _get_path(source: Source) -> Path | None:
    if isinstance(source, StoredFile):
        return source.store.local_path(source.name)
    return parse_local_path(source)


def make_preview_record(number: int, payload: bytes) -> PreviewRecord:
    """Return the preview of a payload."""
    starts, lengths = np.zeros(1, np.int64), np.array([len(payload)], np.int64)
    try:
        facts = kernel.facts(payload, starts, lengths)
    except ExampleError:
        return PreviewRecord(number, len(payload), "payload", payload=describe_bytes(payload))
    columns = [
        Column(fact.name, fact.kind or "bytes", "ragged" if fact.sequence else "variable")
        for fact in facts
    ]
    features: dict[str, Any] = {}
    feature_lists: dict[str, Any] = {}
    decoded = kernel.decode(payload, starts, lengths, columns)
    for buffers, fact in zip(decoded, facts, strict=True):
        side = feature_lists if fact.sequence else features
        side[fact.name] = _format_feature(buffers, fact.kind)
    form = "SequenceExample" if feature_lists else "Example"
    return PreviewRecord(number, len(payload), form, features, feature_lists or None)


def _format_feature(buffers: ColumnBuffers, kind: str | None) -> dict[str, Any]:
    """Return kind, number of values and the first values as JSON."""
    if buffers.steps is None:
        return {"kind": kind, **_format_values(buffers, 0, int(buffers.rows[1]))}
    cuts = buffers.steps.tolist()
    steps = [
        _format_values(buffers, first, last)
        for first, last in islice(pairwise(cuts), _SHOWN_VALUES)
    ]
    return {"kind": kind, "steps": len(cuts) - 1, "values": [step["values"] for step in steps]}


def _format_values(buffers: ColumnBuffers, first: int, last: int) -> dict[str, Any]:
    end = min(last, first + _SHOWN_VALUES)
    if buffers.sizes is None:
        numbers = buffers.values[first:end].tolist()
        values = [value if isinstance(value, int) else float32_json(value) for value in numbers]
    else:
        cuts = buffers.sizes[first : end + 1].tolist()
        values = [describe_bytes(buffers.values[a:b].tobytes()) for a, b in pairwise(cuts)]
    return {"length": last - first, "values": values}


def describe_bytes(value: bytes) -> str:
    """Return short text unchanged, and of other bytes the size and the detected format."""
    name = _detect_format(value)
    if name is not None:
        return f"<{len(value)} bytes, {name}>"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"<{len(value)} bytes>"
    if not all(character.isprintable() or character in "\n\r\t" for character in text):
        return f"<{len(value)} bytes>"
    if len(text) <= _SHOWN_TEXT:
        return text
    kind = "json" if _is_json(text) else "text"
    return f"{text[: _SHOWN_TEXT - 20]}… <{len(value)} bytes, {kind}>"


def _detect_format(value: bytes) -> str | None:
    for signature, name in _SIGNATURES:
        if value.startswith(signature):
            return name
    if value.startswith(b"BM") and int.from_bytes(value[2:6], "little") == len(value):
        return "bmp image"
    if value.startswith(b"RIFF"):
        return {b"WEBP": "webp image", b"WAVE": "wav audio"}.get(value[8:12])
    return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
