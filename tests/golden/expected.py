"""What the versions of a root hold, as JSON: to be written once and compared ever after."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from shardline import ShardlineError, Version
from shardline.provenance.log_index import LogIndex
from shardline.tfrecord import RecordFile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from shardline import Snapshot

Json = dict[str, Any]
OPERATIONS = frozenset(
    {
        *("append", "attest", "combine", "consume", "create", "erase", "extend", "migrate"),
        *("pin", "rebuild", "reject", "release", "repair", "require", "restore", "tag", "vacuum"),
    }
)
"""Every operation that release 0.1.0 writes to a log."""


def operations_in(root: Path) -> set[str]:
    """Return the operations of all entries in a root."""
    catalog = LogIndex(root)
    return {entry.operation for name in catalog.list_versions() for entry in catalog.entries(name)}


def expected_of(root: Path, names: Iterable[str] | None = None) -> Json:
    """Return versions of a root, with all snapshots and the records of the published one."""
    names = LogIndex(root).list_versions() if names is None else names
    return {name: _version(Version(root, name)) for name in names}


def write_expected(root: Path, path: Path) -> None:
    """Write what is expected of a root, a line for each version."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(version, ensure_ascii=False)}"
        for name, version in expected_of(root).items()
    )
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _version(version: Version) -> Json:
    state = version.state
    published = None if state.published is None else version.published()
    return {
        "entries": state.number,
        "digest": state.digest,
        "fingerprint": version.schema.fingerprint,
        "published": state.published,
        "tags": {name: hold.snapshot for name, hold in sorted(state.tags.items())},
        "pins": {name: hold.snapshot for name, hold in sorted(state.pins.items())},
        "snapshots": [
            _snapshot(version.snapshot(number)) for number in range(1, state.snapshot + 1)
        ],
        "records": None if published is None else records_of(published),
    }


def _snapshot(snapshot: Snapshot) -> Json:
    return {
        "entry": snapshot.entry,
        "content": snapshot.content,
        "records": snapshot.records,
        "bytes": snapshot.bytes,
        "shards": len(snapshot.shards),
        "published": snapshot.published,
        "rejected": snapshot.rejected,
        "sha256": digest_of(snapshot),
    }


def digest_of(snapshot: Snapshot) -> str | None:
    """Return the SHA-256 of all records as JSON; None if they cannot be read any more."""
    try:
        records = records_of(snapshot)
    except (ShardlineError, OSError):
        return None
    return hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest()


def records_of(snapshot: Snapshot) -> list[Any]:
    """Return the records of a snapshot as JSON values, bytes in hexadecimal digits."""
    if snapshot.schema.payload == "opaque":
        found: list[Any] = []
        for path in snapshot.files():
            with RecordFile(path) as file:
                found += [payload for block in file.blocks() for payload in block.payloads()]
        return [_json(payload) for payload in found]
    return [_json(record) for record in snapshot.to_arrow().read_all().to_pylist()]


def _json(value: Any) -> Any:  # noqa: ANN401 - whatever a record holds
    if isinstance(value, dict):
        return {name: _json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_json(one) for one in value]
    return value.hex() if isinstance(value, bytes | memoryview) else value
