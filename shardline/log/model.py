"""The facts that log entries are made of: shards, sources, inputs, attestations and the rest.

Each knows its JSON form. What is read back is checked: a fact that does not have exactly the
fields it should is refused with ValueError, and never guessed at.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from shardline import canonical_json as canonical
from shardline.canonical_json import Json, JsonReader, digest

if TYPE_CHECKING:
    from shardline.canonical_json import Json


COMPRESSIONS = ("none", "gzip", "zlib")
SHARD_NAME = re.compile(
    r"(?P<version>[a-z0-9][a-z0-9_-]{0,63})\.[0-9a-f]{32}(\.[0-9]{1,6})?\.(tfrecord|plan)"
)
PLAN = ".plan"
"""How the name of a shard ends that holds no records, but a plan by which they are made."""


@dataclass(frozen=True, slots=True)
class Base:
    """The shard beside which an overlay lies, record for record; `sha256` is its content."""

    name: str
    sha256: str

    @property
    def owner(self) -> str:
        """The version in whose log the base stands."""
        return self.name.split(".", 1)[0]


@dataclass(frozen=True, slots=True)
class Shard:
    """One immutable TFRecord file. `source` is the key of the source its records came from."""

    name: str
    records: int
    bytes: int
    sha256: str
    compression: str = "none"
    source: str | None = None
    base: Base | None = None

    def __post_init__(self) -> None:
        """Refuse what no shard can be."""
        if not SHARD_NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no shard name")
        if self.records < 0 or self.bytes < 0:
            raise ValueError(f"shard {self.name}: negative size")
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"shard {self.name}: unknown compression {self.compression!r}")
        digest(self.sha256, f"the sha256 of shard {self.name}")
        if self.source is not None:
            digest(self.source, f"the source of shard {self.name}")
        if self.base is not None:
            digest(self.base.sha256, f"the base of shard {self.name}")
            if not SHARD_NAME.fullmatch(self.base.name):
                raise ValueError(f"shard {self.name}: {self.base.name!r} is no base")

    @property
    def owner(self) -> str:
        """The version in whose log the shard is committed and vacuumed."""
        return self.name.split(".", 1)[0]

    @property
    def virtual(self) -> bool:
        """Whether it is a plan, by which those who read it make its records of others."""
        return self.name.endswith(PLAN)

    @property
    def content(self) -> str:
        """What its records amount to, those of its bases included: what an overlay on it pins."""
        if self.base is None:
            return self.sha256
        pinned = bytes.fromhex(self.base.sha256)
        return hashlib.sha256(bytes.fromhex(self.sha256) + pinned).hexdigest()

    def to_dict(self) -> Json:
        """The shard as an entry tells it."""
        json: Json = {
            "name": self.name,
            "records": self.records,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "compression": self.compression,
        }
        if self.source is not None:
            json["source"] = self.source
        if self.base is not None:
            json["base"] = {"name": self.base.name, "sha256": self.base.sha256}
        return json

    @classmethod
    def take(cls, fields: JsonReader) -> Shard:
        """Read a shard back."""
        base = None
        if (told := fields.maybe("base", dict)) is not None:
            inner = JsonReader("a base", told)
            base = Base(inner.take("name", str), inner.digest("sha256"))
            inner.end()
        return cls(
            fields.take("name", str),
            fields.count("records"),
            fields.count("bytes"),
            fields.digest("sha256"),
            fields.take("compression", str),
            fields.maybe("source", str),
            base,
        )


@dataclass(frozen=True, slots=True)
class Added:
    """A shard that an entry adds: at the end, or so that it stands at place `at` afterwards."""

    shard: Shard
    at: int | None = None

    def to_dict(self) -> Json:
        """The addition as an entry tells it."""
        json = self.shard.to_dict()
        return json if self.at is None else {**json, "at": self.at}

    @classmethod
    def from_dict(cls, value: object) -> Added:
        """Read an addition back."""
        fields = JsonReader("an added shard", value)
        at = fields.maybe("at", int)
        if at is not None and at < 0:
            raise ValueError("an added shard stands at a negative place")
        added = cls(Shard.take(fields), at)
        fields.end()
        return added


@dataclass(frozen=True)
class Source:
    """Where records came from: a file by path, size and sha256, or a batch that the caller named.

    Two sources are the same if all of that is the same: `key` tells.
    """

    path: str | None = None
    size: int | None = None
    sha256: str | None = None
    batch: str | None = None

    def __post_init__(self) -> None:
        """Refuse what does not tell a source from others."""
        file = (self.path, self.size, self.sha256)
        if (self.batch is None) == (None in file) or (
            self.batch is not None and file != (None, None, None)
        ):
            raise ValueError("a source is either path, size and sha256, or a batch")
        if self.sha256 is not None:
            digest(self.sha256, "the sha256 of a source")

    @cached_property
    def key(self) -> str:
        """What tells this source from all others."""
        return canonical.sha256(self.to_dict())

    @cached_property
    def place_key(self) -> str:
        """What tells its path or batch from all others, whatever comes from there."""
        return self.key if self.path is None else hashlib.sha256(self.path.encode()).hexdigest()

    @property
    def shown(self) -> str:
        """The source as people know it."""
        return self.path or f"batch {self.batch}"

    def to_dict(self) -> Json:
        """The source as an entry tells it."""
        if self.batch is not None:
            return {"batch": self.batch}
        return {"path": self.path, "size": self.size, "sha256": self.sha256}

    @classmethod
    def from_dict(cls, value: object) -> Source:
        """Read a source back."""
        fields = JsonReader("a source", value)
        source = cls(
            fields.maybe("path", str),
            fields.maybe("size", int),
            fields.maybe("sha256", str),
            fields.maybe("batch", str),
        )
        fields.end()
        return source


@dataclass(frozen=True, slots=True)
class Input:
    """A snapshot of another version that an operation read. `entry` is the digest of its entry."""

    dataset: str
    version: str
    snapshot: int
    entry: str

    @property
    def shown(self) -> str:
        """The version that it is a snapshot of: `digits/v1`."""
        return f"{self.dataset}/{self.version}"

    def to_dict(self) -> Json:
        """The input as an entry tells it."""
        return {
            "dataset": self.dataset,
            "version": self.version,
            "snapshot": self.snapshot,
            "entry": self.entry,
        }

    @classmethod
    def from_dict(cls, value: object) -> Input:
        """Read an input back."""
        fields = JsonReader("an input", value)
        told = cls(
            fields.take("dataset", str),
            fields.take("version", str),
            fields.count("snapshot", 1),
            fields.digest("entry"),
        )
        fields.end()
        return told


@dataclass(frozen=True, slots=True)
class Attestation:
    """That a check passed or failed, on shards (by name) or on a snapshot (by content digest)."""

    check: str
    passed: bool
    shards: tuple[str, ...] = ()
    content: str | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        """Refuse an attestation about nothing, or about two kinds of things."""
        if bool(self.shards) == (self.content is not None):
            raise ValueError(f"attestation {self.check!r} must be on shards or on a snapshot")

    def to_dict(self) -> Json:
        """The attestation as an entry tells it."""
        json: Json = {"check": self.check, "passed": self.passed}
        if self.content is None:
            json["shards"] = list(self.shards)
        else:
            json["content"] = self.content
        return {**json, "detail": self.detail} if self.detail else json

    @classmethod
    def from_dict(cls, value: object) -> Attestation:
        """Read an attestation back."""
        fields = JsonReader("an attestation", value)
        told = cls(
            fields.take("check", str),
            fields.take("passed", bool),
            fields.texts("shards"),
            fields.digest("content") if fields.has("content") else None,
            fields.maybe("detail", str) or "",
        )
        fields.end()
        return told


@dataclass(frozen=True, slots=True)
class Checks:
    """Which checks a snapshot needs to be published: on each shard, and on the snapshot itself."""

    shard: tuple[str, ...] = ("integrity", "schema")
    snapshot: tuple[str, ...] = ()

    def to_dict(self) -> Json:
        """The checks as an entry tells them."""
        return {"shard": list(self.shard), "snapshot": list(self.snapshot)}

    @classmethod
    def from_dict(cls, value: object) -> Checks:
        """Read the checks back."""
        fields = JsonReader("the checks", value)
        told = cls(fields.texts("shard"), fields.texts("snapshot"))
        fields.end()
        return told


@dataclass(frozen=True, slots=True)
class Ref:
    """A name that holds a snapshot, or no longer does (`snapshot` None): a tag, or a pin."""

    name: str
    snapshot: int | None
    reason: str = ""

    def to_dict(self) -> Json:
        """The hold as an entry tells it."""
        json: Json = {"name": self.name, "snapshot": self.snapshot}
        return {**json, "reason": self.reason} if self.reason else json

    @classmethod
    def from_dict(cls, value: object) -> Ref:
        """Read a hold back."""
        fields = JsonReader("a tag or pin", value)
        snapshot = fields.nullable("snapshot", int)
        told = cls(fields.take("name", str), snapshot, fields.maybe("reason", str) or "")
        fields.end()
        return told


@dataclass(frozen=True, slots=True)
class Totals:
    """How much a snapshot holds."""

    records: int = 0
    bytes: int = 0
    shards: int = 0

    @classmethod
    def of(cls, shards: tuple[Shard, ...] | list[Shard]) -> Totals:
        """Add up shards."""
        return cls(sum(s.records for s in shards), sum(s.bytes for s in shards), len(shards))

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.records + other.records, self.bytes + other.bytes, self.shards + other.shards
        )

    def to_dict(self) -> Json:
        """The totals as an entry tells them."""
        return {"records": self.records, "bytes": self.bytes, "shards": self.shards}

    @classmethod
    def from_dict(cls, value: object) -> Totals:
        """Read totals back."""
        fields = JsonReader("the totals", value)
        told = cls(fields.count("records"), fields.count("bytes"), fields.count("shards"))
        fields.end()
        return told


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Who and what made an entry."""

    release: str
    host: str = ""
    run: str = ""
    code: str = ""

    def to_dict(self) -> Json:
        """The maker as an entry tells it."""
        told = {"release": self.release, "host": self.host, "run": self.run, "code": self.code}
        return {name: value for name, value in told.items() if value}

    @classmethod
    def from_dict(cls, value: object) -> CommitInfo:
        """Read a maker back."""
        fields = JsonReader("the maker", value)
        told = cls(
            fields.take("release", str),
            fields.maybe("host", str) or "",
            fields.maybe("run", str) or "",
            fields.maybe("code", str) or "",
        )
        fields.end()
        return told


DERIVING_OPERATIONS = frozenset({"extend", "migrate", "combine"})
"""Operations whose shards only they can make again."""
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
