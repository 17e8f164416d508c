"""Names of sidecars: files that a commit writes next to a shard or for the rows it refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shardline.canonical_json import digest

if TYPE_CHECKING:
    from shardline.canonical_json import Json

RECEIPT = ".receipt"
ROWS = ".rows"
REFUSED = ".jsonl"
_SHARD = ".tfrecord"
_NAME = re.compile(
    r"[a-z0-9][a-z0-9_-]{0,63}\.[0-9a-f]{32}(\.[0-9]{1,6})?(\.tfrecord\.(receipt|rows)|\.jsonl)"
)


def shard_of(sidecar: str) -> str:
    """Return the name of the shard that a sidecar belongs to."""
    for suffix in (RECEIPT, ROWS):
        if sidecar.endswith(suffix):
            return sidecar.removesuffix(suffix)
    return sidecar.removesuffix(REFUSED) + _SHARD


def quarantine_of(shard: str) -> str | None:
    """Return the name of the quarantine file of a shard; None for a plan, which has none."""
    return f"{shard.removesuffix(_SHARD)}{REFUSED}" if shard.endswith(_SHARD) else None


def sidecar_path(dataset: str, sidecar: str) -> str:
    """Return where in a store a sidecar lies."""
    folder = "quarantine" if sidecar.endswith(REFUSED) else "shards"
    return f"{dataset}/{folder}/{sidecar}"


def parse_sidecars(payload: Json) -> dict[str, str]:
    """Parse the sidecars of an entry. Raises ValueError on an invalid name or digest."""
    for name, sha256 in payload.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not the name of a sidecar")
        if not isinstance(sha256, str):
            raise ValueError(f"the digest of sidecar {name} is {type(sha256).__name__}")
        digest(sha256, f"the digest of sidecar {name}")
    return dict(payload)
