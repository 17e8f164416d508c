"""Parameters of log entries: a dataclass per operation.

Replay needs almost none of them, so other programs may write others. Parsing is lenient, see
`OpenJsonObject`. Read the parameters of an entry with `entry.read(AppendParameters)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from shardline import codec
from shardline.canonical_json import Json
from shardline.codec import Converter, JsonObject, OpenJsonObject, Positive, stored
from shardline.log.model import Source


def _encode_bases(bases: tuple[str, ...]) -> list[str | None]:
    return [base or None for base in bases]


def _decode_bases(payload: list[Any], subject: str) -> tuple[str, ...]:
    del subject
    return tuple(["" if base is None else str(base) for base in payload])


_Bases = Annotated[tuple[str, ...], Converter(list, _encode_bases, _decode_bases)]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedRows(OpenJsonObject):
    """Rows of a source, by its key, or of a shard that went to quarantine, and their files."""

    json_label: ClassVar = "quarantined rows"
    source: str | None = None
    rows: int = field(default=0, metadata=stored(required=True))
    files: tuple[str, ...] = field(default=(), metadata=stored(required=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryParameters(OpenJsonObject):
    """Parameters of any operation that writes shards.

    `bases` names the shard that each added shard was computed from; "" for a shard of a source.
    """

    json_label: ClassVar = "the parameters"
    bases: _Bases = field(default=(), metadata=stored("of"))
    quarantine: tuple[QuarantinedRows, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDigest(OpenJsonObject):
    """Digest of the rows of a batch."""

    json_label: ClassVar = "a batch digest"
    source: str = field(default="", metadata=stored(required=True))
    digest: str = field(default="", metadata=stored(required=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedSource(OpenJsonObject):
    """Source whose shards an append replaces; `entry` appended it."""

    json_label: ClassVar = "a replaced source"
    source: str = field(default="", metadata=stored(required=True))
    entry: int = field(default=0, metadata=stored(required=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedSources(EntryParameters):
    """Parameters about the sources of an append."""

    batches: tuple[BatchDigest, ...] = ()
    replaced: tuple[ReplacedSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendParameters(AppendedSources):
    """Options of an append, sufficient to recreate its shards."""

    target_bytes: int = field(default=0, metadata=stored(required=True))
    compression: str = field(default="", metadata=stored(required=True))
    salvage: bool = False
    format: str | None = None
    max_record_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProblem(OpenJsonObject):
    """Reason to reject a source, with `record` and `offset` in a corrupt TFRecord file."""

    json_label: ClassVar = "a rejected source"
    source: str = field(default="", metadata=stored(required=True))
    check: str = field(default="", metadata=stored(required=True))
    reason: str = field(default="", metadata=stored(required=True))
    record: int | None = None
    offset: int | None = None
    detail: str | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDuplicate(OpenJsonObject):
    """Skipped source. `first` is the path of the same content in `entry`."""

    json_label: ClassVar = "a duplicate source"
    source: str = field(default="", metadata=stored(required=True))
    first: str | None = None
    entry: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectParameters(OpenJsonObject):
    """Reasons to reject a snapshot or sources."""

    json_label: ClassVar = "the parameters"
    reason: str = ""
    rejected: tuple[SourceProblem, ...] = field(default=(), metadata=stored("set_aside"))
    duplicates: tuple[SourceDuplicate, ...] = ()


@dataclass(frozen=True, slots=True)
class Dismissal(JsonObject):
    """Permanently dismissed source; `entry` rejected or skipped it."""

    json_label: ClassVar = "a dismissal"
    source: Source
    entry: Positive

    @property
    def location_key(self) -> str:
        """Key of its path or batch."""
        return self.source.location_key


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissParameters(OpenJsonObject):
    """Dismissed sources. Replay depends on them."""

    json_label: ClassVar = "the parameters"
    reason: str = ""
    dismissed: tuple[Dismissal, ...] = field(default=(), metadata=stored(required=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUDF(OpenJsonObject):
    """Function or table that computed features; `reads` is None if it reads whole records.

    `identity` is part of shard names, and None for a function without a code version.
    """

    json_label: ClassVar = "a function"
    label: str = field(default="", metadata=stored("by", required=True))
    features: tuple[str, ...] = field(default=(), metadata=stored(required=True))
    reads: tuple[str, ...] | None = field(default=None, metadata=stored(required=True))
    identity: Json | None = field(default=None, metadata=stored(required=True))
    deterministic: bool = True

    @property
    def function(self) -> str | None:
        """Module and name of the function, if they are known."""
        name = (self.identity or {}).get("function")
        return str(name) if name else None

    @property
    def is_table_join(self) -> bool:
        """Return True for a joined table."""
        return (self.identity or {}).get("maker") == "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDigest(OpenJsonObject):
    """Digest of the source text of a function with a code version."""

    json_label: ClassVar = "a function digest"
    function: str = field(default="", metadata=stored(required=True))
    code: str = field(default="", metadata=stored(required=True))
    digest: str = field(default="", metadata=stored("source", required=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedParameters(EntryParameters):
    """Parameters of a derived version.

    They count the shards that were computed, reused, or recovered from an interrupted run. A
    rebuild in place counts none.
    """

    computed: int | None = None
    reused: int | None = None
    recovered: int = field(default=0, metadata=stored("found"))
    functions: tuple[FunctionDigest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildParameters(DerivedParameters):
    """Parameters of a rebuild of `snapshot`, in place or into another version."""

    compression: str = field(default="", metadata=stored(required=True))
    snapshot: int = field(default=0, metadata=stored(required=True))
    target_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendParameters(DerivedParameters):
    """Parameters of an extension."""

    bases: _Bases = field(default=(), metadata=stored("of", required=True))
    mode: str = field(default="rewrite", metadata=stored(required=True))
    udfs: tuple[StoredUDF, ...] = field(default=(), metadata=stored("fields", required=True))
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateParameters(DerivedParameters):
    """Parameters of a migration; `default` names the features that got a value."""

    bases: _Bases = field(default=(), metadata=stored("of", required=True))
    rename: dict[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    cast: dict[str, str] = field(default_factory=dict)
    default: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineParameters(DerivedParameters):
    """Parameters of a combination.

    `rule` is part of shard names: see `CombineSpec`, which reads and writes it. `outputs` has the
    coverage of each added shard: see `Coverage`.
    """

    rule: Json = field(default_factory=dict, metadata=stored(required=True))
    mode: str = "materialized"
    compression: str | None = None
    target_bytes: int | None = None
    udfs: tuple[StoredUDF, ...] = field(default=(), metadata=stored("fields"))
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None
    is_incremental: bool = field(default=True, metadata=stored("incremental"))
    outputs: tuple[Any, ...] | None = None

    @property
    def is_virtual(self) -> bool:
        """Return True if its shards are pair plans."""
        return self.mode == "virtual"

    @property
    def is_unordered(self) -> bool:
        """Return True if it pairs the records of a snapshot, each two records once."""
        return bool(self.rule.get("once"))

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """Key features of the left and of the right."""
        pairs = self.rule.get("on")
        listed = pairs if isinstance(pairs, list) else ()
        return tuple(
            (str(pair[0]), str(pair[1]))
            for pair in listed
            if isinstance(pair, list) and len(pair) == 2
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarRewrite(OpenJsonObject):
    """Sidecar that an erase rewrites: its previous digest, and the removed lines, if known."""

    json_label: ClassVar = "a rewritten sidecar"
    before: str | None = field(default=None, metadata=stored("of", required=True))
    lines: tuple[Any, ...] | None = None


def _encode_rewrites(rewrites: dict[str, SidecarRewrite]) -> Json:
    return {name: rewrite.to_dict() for name, rewrite in rewrites.items()}


def _decode_rewrites(payload: Json, subject: str) -> dict[str, SidecarRewrite]:
    del subject
    items = payload.items()
    return {
        name: codec.decode(SidecarRewrite, item) for name, item in items if isinstance(item, dict)
    }


_Rewrites = Annotated[
    dict[str, SidecarRewrite], Converter(dict, _encode_rewrites, _decode_rewrites)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseParameters(EntryParameters):
    """Parameters of an erasure.

    `records` counts the erased records of each base, `older` has the rows erased from shards that
    are tombstoned without a rewrite, `quarantine_sources` are the sources of erased quarantine
    rows.
    """

    bases: _Bases = field(default=(), metadata=stored("of", required=True))
    erasure: str = field(default="", metadata=stored(required=True))
    features: tuple[str, ...] = field(default=(), metadata=stored(required=True))
    records: tuple[int, ...] = field(default=(), metadata=stored(required=True))
    request: str = ""
    quarantine_sources: tuple[str, ...] = field(default=(), metadata=stored("refused_of"))
    older: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    rewrites: _Rewrites = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairParameters(EntryParameters):
    """Parameters of a repair of `shard`."""

    shard: str = field(default="", metadata=stored(required=True))
    method: str = field(default="", metadata=stored("how", required=True))
    lost_records: int = field(default=0, metadata=stored(required=True))

    @property
    def is_salvage(self) -> bool:
        """Return True if only the intact records of the shard were kept."""
        return self.method == "salvage"


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumParameters(OpenJsonObject):
    """Parameters of a vacuum."""

    json_label: ClassVar = "the parameters"
    retention_seconds: int = field(default=0, metadata=stored("keep_seconds", required=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerParameters(OpenJsonObject):
    """Registered or released consumer of a snapshot."""

    json_label: ClassVar = "the parameters"
    name: str = ""
    run: str = ""
    commit: str = ""
