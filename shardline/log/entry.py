"""Log entries: one commit each, in canonical JSON, chained by digests."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, TypeVar

from shardline import canonical_json as canonical
from shardline import codec
from shardline.canonical_json import Json
from shardline.codec import (
    Converter,
    Count,
    Digest,
    JsonObject,
    OpenJsonObject,
    Positive,
    not_stored,
    stored,
)
from shardline.errors import CorruptLogError, UnknownFormatError
from shardline.hints import Hint
from shardline.log.model import (
    Added,
    Attestation,
    Checks,
    CommitInfo,
    Input,
    Ref,
    Source,
    Totals,
    parse_sidecars,
)
from shardline.log.parameters import EntryParameters, EraseParameters
from shardline.schema.schema import Schema

Parameters = TypeVar("Parameters", bound=OpenJsonObject)
FORMAT = 1
VIRTUAL = "virtual"
"""Feature of entries that add pair plans."""
SIDECARS = "sidecars"
"""Feature of entries that commit digests of sidecars."""
FEATURES = frozenset({SIDECARS, VIRTUAL})
_RELEASE = re.compile(r"[0-9A-Za-z.+-]{1,32}")
_TIME_TEXT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def _format_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse_time(text: str, subject: str) -> datetime:
    if not _TIME_TEXT.fullmatch(text):
        raise ValueError(f"{subject}: expected a time in UTC with microseconds")
    return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)


_Time = Annotated[datetime, Converter(str, _format_time, _parse_time)]
_Sidecars = Annotated[dict[str, str], Converter(dict, None, parse_sidecars)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(JsonObject):
    """A commit.

    `previous` is the digest of the previous entry. `snapshot`, `published`, `totals` and `content`
    are claims about the version after the entry, so that the latest entry is enough to know them.
    The other fields are its changes, and are empty where they do not apply.
    """

    json_label: ClassVar = "an entry"
    json_constants: ClassVar = {"format": FORMAT}
    dataset: str
    version: str
    number: Positive
    id: str
    previous: str | None
    time: _Time
    commit_info: CommitInfo = field(metadata=stored("by"))
    operation: str
    fingerprint: Digest | None = field(default=None, metadata=stored(required=True))
    snapshot: Count = field(default=0, metadata=stored(required=True))
    published: int | None = field(default=None, metadata=stored(required=True))
    totals: Totals = field(default=Totals(), metadata=stored(required=True))
    content: Digest | None = field(default=None, metadata=stored(required=True))
    parameters: Json = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    schema: Schema | None = None
    checks: Checks | None = None
    added: tuple[Added, ...] = ()
    removed: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    attestations: tuple[Attestation, ...] = ()
    rejects: int | None = None
    restores: int | None = None
    tag: Ref | None = None
    pin: Ref | None = None
    tombstones: tuple[str, ...] = field(default=(), metadata=stored("condemned"))
    sidecars: _Sidecars = field(default_factory=dict)
    digest: str = field(default="", metadata=not_stored())
    _decoded: dict[type, Any] | None = field(
        default=None, init=False, repr=False, compare=False, metadata=not_stored()
    )

    @property
    def label(self) -> str:
        """Version of the log: `digits/v1`."""
        return f"{self.dataset}/{self.version}"

    @property
    def changes_data(self) -> bool:
        """True if the entry adds a snapshot."""
        return bool(self.added or self.removed)

    @property
    def features(self) -> list[str]:
        """Features that a reader of the entry must know."""
        features = [SIDECARS] if self.sidecars else []
        return [*features, VIRTUAL] if any(item.shard.virtual for item in self.added) else features

    def read(self, kind: type[Parameters]) -> Parameters:
        """Return the parameters as those of an operation. Decodes them once."""
        known = self._decoded
        if known is None:
            known = {}
            object.__setattr__(self, "_decoded", known)
        value = known.get(kind)
        if value is None:
            value = known[kind] = codec.decode(kind, self.parameters)
        return value

    @property
    def bases(self) -> tuple[str, ...]:
        """Name of the shard that each added shard was computed from; empty if unknown.

        The name is empty for a shard of a source.
        """
        return self.read(EntryParameters).bases

    def has_sidecar(self, name: str, digest: str) -> bool:
        """Return True if the entry commits a sidecar with this digest, or rewrites it."""
        rewrite = self.read(EraseParameters).rewrites.get(name)
        return digest in {self.sidecars.get(name), None if rewrite is None else rewrite.before}

    def named_snapshots(self) -> list[int]:
        """Return the snapshots that the entry refers to."""
        numbers = [self.published, self.rejects, self.restores]
        numbers += [ref.snapshot for ref in (self.tag, self.pin) if ref is not None]
        return [number for number in numbers if number is not None]

    def to_dict(self) -> Json:
        """Serialize to log-entry JSON, without the digest."""
        payload = codec.encode(self)
        return {**payload, "features": self.features} if self.features else payload

    def sealed(self) -> tuple[Entry, bytes]:
        """Return the entry with its digest, and its file content."""
        digest, data = canonical.seal(self.to_dict())
        return replace(self, digest=digest), data + b"\n"


def read_entry(version: str, number: int, data: bytes) -> Entry:
    """Parse an entry. Raises CorruptLogError if any bit has changed."""
    try:
        if not data.endswith(b"\n"):
            raise ValueError("truncated or extended")
        payload = canonical.decode(data[:-1])
        if not isinstance(payload, dict):
            raise ValueError("not a JSON object")
        digest = payload.pop("digest", None)
        if digest != _compute_digest(digest, data[:-1], payload):
            raise ValueError("digest mismatch")
        _validate_format(version, number, payload)
        entry = codec.decode(Entry, payload, digest=digest)
        if (entry.label, entry.number) != (version, number):
            actual = f"found entry {entry.number} of {entry.label}"
            raise CorruptLogError(version, number, actual, "moved-entry")
    except CorruptLogError:
        raise
    except ValueError as error:
        raise CorruptLogError(version, number, str(error), "edited-entry") from None
    return entry


def is_sealed(data: bytes, digest: str) -> bool:
    """Return True if `data` is the file of the entry with this digest, without decoding it.

    False proves nothing, because other fields may contain the digest too.
    """
    field = f'"digest":"{digest}",'.encode()
    if not data.endswith(b"\n") or data.count(field) != 1:
        return False
    return hashlib.sha256(data[:-1].replace(field, b"")).hexdigest() == digest


def _compute_digest(digest: object, text: bytes, payload: dict[str, Any]) -> str:
    """Compute the digest of an entry, whose canonical text includes its digest.

    Encodes the payload only if the text contains the digest more than once.
    """
    field = f'"digest":"{digest}",'.encode()
    if text.count(field) == 1:
        return hashlib.sha256(text.replace(field, b"")).hexdigest()
    return hashlib.sha256(canonical.encode(payload)).hexdigest()


def _validate_format(version: str, number: int, payload: dict[str, Any]) -> None:
    features = payload.pop("features", [])
    unknown = sorted(set(map(str, features)) - FEATURES) if isinstance(features, list) else ["?"]
    if payload.get("format") == FORMAT and not unknown:
        return
    commit_info = payload.get("by")
    release = commit_info.get("release") if isinstance(commit_info, dict) else None
    is_known = isinstance(release, str) and _RELEASE.fullmatch(release)
    problem = f"feature {unknown[0]!r}" if unknown else f"format {payload.get('format')!r}"
    needed = f"shardline {release} or newer" if is_known else "a newer release of shardline"
    raise UnknownFormatError(
        f"{version}: entry {number} has unknown {problem}",
        number,
        hint=Hint.of(f"use {needed}"),
        version=version,
    )
