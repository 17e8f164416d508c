"""Quarantine: rows that could not become records, with their reason and position."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardline.schema.encoding import QuarantinedRow
    from shardline.storage.store import ObjectWriter


class QuarantineWriter:
    """Writer of quarantined rows as JSON lines."""

    def __init__(self, file: ObjectWriter, source: str) -> None:
        self.bytes = 0
        self._file = file
        self._source = source
        self._hash = hashlib.sha256()

    def add(self, row: QuarantinedRow) -> None:
        """Add one row."""
        line = {
            "source": self._source,
            "row": row.row,
            "where": row.where,
            "feature": row.feature,
            "reason": row.detail,
            **_format(row),
            **_content(row.content),
        }
        data = json.dumps(line).encode() + b"\n"
        self._hash.update(data)
        self.bytes += len(data)
        self._file.write(data)

    @property
    def sha256(self) -> str:
        """SHA-256 of the written bytes."""
        return self._hash.hexdigest()


def _format(row: QuarantinedRow) -> dict[str, object]:
    """Return the format of the content, if known, so that the row can be parsed again."""
    payload: dict[str, object] = {} if row.format is None else {"format": row.format}
    return {**payload, "columns": row.columns} if row.columns else payload


def _content(content: bytes) -> dict[str, str]:
    """Return the row as text if it is text, otherwise in base64."""
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"content_base64": base64.b64encode(content).decode()}
