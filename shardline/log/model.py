"""Types stored in log entries: shards, sources, inputs, attestations and others.

Parsing is strict: unknown, missing and invalid keys raise ValueError.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from shardline import canonical_json as canonical
from shardline.canonical_json import Json, validate_digest
from shardline.codec import Count, Digest, JsonObject, Positive, stored

COMPRESSIONS = ("none", "gzip", "zlib")
SHARD_NAME = re.compile(
    r"(?P<version>[a-z0-9][a-z0-9_-]{0,63})\.[0-9a-f]{32}(\.[0-9]{1,6})?\.(tfrecord|plan)"
)
PLAN = ".plan"
"""Suffix of virtual shards."""


@dataclass(frozen=True, slots=True)
class Base(JsonObject):
    """Shard under an overlay, record for record; `sha256` is its content digest."""

    json_label: ClassVar = "a base"
    name: str
    sha256: str

    @property
    def owner(self) -> str:
        """Version that owns the base."""
        return self.name.split(".", 1)[0]


@dataclass(frozen=True, slots=True)
class Shard(JsonObject):
    """Immutable TFRecord file. `source` is the key of its source."""

    json_label: ClassVar = "a shard"
    name: str
    records: int
    bytes: int
    sha256: str
    compression: str = field(default="none", metadata=stored(required=True))
    source: str | None = None
    base: Base | None = None

    def __post_init__(self) -> None:
        """Validate the shard."""
        if not SHARD_NAME.fullmatch(self.name):
            raise ValueError(f"invalid shard name {self.name!r}: expected VERSION.HASH.tfrecord")
        if self.records < 0 or self.bytes < 0:
            raise ValueError(f"shard {self.name}: negative size")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"shard {self.name}: unknown compression {self.compression!r}")
        validate_digest(self.sha256, f"the sha256 of shard {self.name}")
        if self.source is not None:
            validate_digest(self.source, f"the source of shard {self.name}")
        if self.base is not None:
            validate_digest(self.base.sha256, f"the base of shard {self.name}")
            if not SHARD_NAME.fullmatch(self.base.name):
                raise ValueError(f"shard {self.name}: invalid base {self.base.name!r}")

    @property
    def owner(self) -> str:
        """Version that commits and vacuums the shard."""
        return self.name.split(".", 1)[0]

    @property
    def virtual(self) -> bool:
        """True for a pair plan, from which readers compute the records."""
        return self.name.endswith(PLAN)

    @property
    def content(self) -> str:
        """Digest of its records and those of its bases."""
        if self.base is None:
            return self.sha256
        pinned = bytes.fromhex(self.base.sha256)
        return hashlib.sha256(bytes.fromhex(self.sha256) + pinned).hexdigest()


@dataclass(frozen=True, slots=True)
class Added(JsonObject):
    """Shard that an entry adds at the end, or at position `at` of the new list."""

    json_label: ClassVar = "an added shard"
    shard: Shard = field(metadata=stored(flat=True))
    at: Count | None = None


@dataclass(frozen=True)
class Source(JsonObject):
    """Source of records: a file by path, size and sha256, or a named batch.

    Equal sources have equal keys.
    """

    json_label: ClassVar = "a source"
    path: str | None = None
    size: int | None = None
    sha256: str | None = None
    batch: str | None = None

    def __post_init__(self) -> None:
        """Validate the source."""
        file = (self.path, self.size, self.sha256)
        if (self.batch is None) == (None in file) or (
            self.batch is not None and file != (None, None, None)
        ):
            raise ValueError("a source: expected path, size and sha256, or batch")
        if self.sha256 is not None:
            validate_digest(self.sha256, "the sha256 of a source")

    @cached_property
    def key(self) -> str:
        """Key of the source."""
        return canonical.sha256(self.to_dict())

    @cached_property
    def location_key(self) -> str:
        """Key of its path or batch, without the content."""
        return self.key if self.path is None else hashlib.sha256(self.path.encode()).hexdigest()

    @property
    def label(self) -> str:
        """Path, or name of the batch."""
        return self.path or f"batch {self.batch}"


@dataclass(frozen=True, slots=True)
class Input(JsonObject):
    """Snapshot of another version that an operation read. `entry` is the digest of its entry."""

    json_label: ClassVar = "an input"
    dataset: str
    version: str
    snapshot: Positive
    entry: Digest

    @property
    def label(self) -> str:
        """Version of the snapshot: `digits/v1`."""
        return f"{self.dataset}/{self.version}"


@dataclass(frozen=True, slots=True)
class Attestation(JsonObject):
    """Check result on shards (by name) or on a snapshot (by content digest)."""

    json_label: ClassVar = "an attestation"
    check: str
    passed: bool
    shards: tuple[str, ...] = ()
    content: Digest | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        """Validate the attestation."""
        if bool(self.shards) == (self.content is not None):
            raise ValueError(f"attestation {self.check!r}: expected either shards or content")


@dataclass(frozen=True, slots=True)
class Checks(JsonObject):
    """Checks that publication needs: on each shard, and on the snapshot itself."""

    json_label: ClassVar = "the checks"
    shard: tuple[str, ...] = field(default=("integrity", "schema"), metadata=stored(missing=()))
    snapshot: tuple[str, ...] = field(default=(), metadata=stored(missing=()))


@dataclass(frozen=True, slots=True)
class Ref(JsonObject):
    """Tag or pin on a snapshot; `snapshot` is None to delete it."""

    json_label: ClassVar = "a tag or pin"
    name: str
    snapshot: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Totals(JsonObject):
    """Record, byte and shard totals of a snapshot."""

    json_label: ClassVar = "the totals"
    records: Count = field(default=0, metadata=stored(required=True))
    bytes: Count = field(default=0, metadata=stored(required=True))
    shards: Count = field(default=0, metadata=stored(required=True))

    @classmethod
    def of(cls, shards: tuple[Shard, ...] | list[Shard]) -> Totals:
        """Add up shards."""
        return cls(sum(s.records for s in shards), sum(s.bytes for s in shards), len(shards))

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.records + other.records, self.bytes + other.bytes, self.shards + other.shards
        )


@dataclass(frozen=True, slots=True)
class CommitInfo(JsonObject):
    """Release, host, run and code that wrote an entry."""

    json_label: ClassVar = "the maker"
    release: str
    host: str = ""
    run: str = ""
    code: str = ""


DERIVING_OPERATIONS = frozenset({"extend", "migrate", "combine"})
"""Operations that derive a version from others."""
INTEGRITY, SCHEMA = "integrity", "schema"


RECEIPT = ".receipt"
ROWS = ".rows"
REFUSED = ".jsonl"
_SHARD = ".tfrecord"
_NAME = re.compile(
    r"[a-z0-9][a-z0-9_-]{0,63}\.[0-9a-f]{32}(\.[0-9]{1,6})?(\.tfrecord\.(receipt|rows)|\.jsonl)"
)


def get_sidecar_shard(sidecar: str) -> str:
    """Return the name of the shard that a sidecar belongs to."""
    for suffix in (RECEIPT, ROWS):
        if sidecar.endswith(suffix):
            return sidecar.removesuffix(suffix)
    return sidecar.removesuffix(REFUSED) + _SHARD


def get_quarantine_name(shard: str) -> str | None:
    """Return the name of the quarantine file of a shard; None for a virtual shard."""
    return f"{shard.removesuffix(_SHARD)}{REFUSED}" if shard.endswith(_SHARD) else None


def sidecar_path(dataset: str, sidecar: str) -> str:
    """Return the path of a sidecar in a store."""
    folder = "quarantine" if sidecar.endswith(REFUSED) else "shards"
    return f"{dataset}/{folder}/{sidecar}"


def parse_sidecars(payload: Json, subject: str) -> dict[str, str]:
    """Parse the sidecars of an entry. Raises ValueError on an invalid name or digest."""
    for name, sha256 in payload.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{subject}: invalid name {name[:80]!r}")
        if not isinstance(sha256, str):
            raise ValueError(f"{subject}: expected str for {name}, got {type(sha256).__name__}")
        validate_digest(sha256, f"the digest of sidecar {name}")
    return payload
