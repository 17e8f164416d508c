"""Receipt of a shard: the source rows that its records came from.

A receipt is written when its shard is complete, so that a stopped append can resume after it. It is
kept because it gives the source row of each record.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

from shardline import canonical_json as canonical
from shardline.canonical_json import Json
from shardline.codec import Converter, Count, JsonObject, not_stored, stored
from shardline.log.model import RECEIPT, ROWS, Shard
from shardline.log.parameters import QuarantinedRows
from shardline.tfrecord.hashing import hash_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.storage import Store

_FORMAT = 1


def parse_spans(spans: Sequence[object], subject: str) -> tuple[Span, ...]:
    """Parse pairs of row numbers. Raises ValueError if they are anything else."""
    return tuple(_parse_span(span, subject) for span in spans)


def _parse_span(span: object, subject: str) -> Span:
    if not isinstance(span, list) or len(span) != 2 or not all(type(n) is int for n in span):
        raise ValueError(f"{subject}: expected two integers")
    if not 0 <= span[0] <= span[1]:
        raise ValueError(f"{subject}: invalid span {span}")
    return span[0], span[1]


def _encode_spans(spans: Sequence[Span]) -> list[list[int]]:
    return [list(span) for span in spans]


Span: TypeAlias = tuple[int, int]
_Span = Annotated[Span, Converter(list, list, _parse_span)]
_Spans = Annotated[tuple[Span, ...], Converter(list, _encode_spans, parse_spans)]


@dataclass(frozen=True, slots=True)
class Receipt(JsonObject):
    """Rows of a source, from the first to the end, and the shard of their records.

    `shard` is None if no row gave a record. `refused` has the quarantined rows as spans of first
    and last row. `damaged` of them are corrupt, `quarantine` is their file, and `reasons` are the
    first reasons. `last` marks the end of the source. `functions` are the source digests of the
    UDFs that computed the records.

    Two fields are not stored. `is_recovered` is True if the shard existed already, from a stopped
    or concurrent writer. `sidecars` has the digests of the receipt and of the files written with
    it, by name.
    """

    json_label: ClassVar = "a receipt"
    json_constants: ClassVar = {"format": _FORMAT}
    rows: _Span
    last: bool
    shard: Shard | None = field(default=None, metadata=stored(required=True))
    refused: _Spans = field(default=(), metadata=stored(required=True))
    damaged: Count = field(default=0, metadata=stored(required=True))
    quarantine: str | None = field(default=None, metadata=stored(required=True))
    reasons: tuple[str, ...] = field(default=(), repr=False, metadata=stored("told", missing=()))
    functions: tuple[str, ...] = ()
    is_recovered: bool = field(default=False, compare=False, metadata=not_stored())
    sidecars: Json = field(default_factory=dict, compare=False, repr=False, metadata=not_stored())

    @property
    def first(self) -> int:
        """First row."""
        return self.rows[0]

    @property
    def end(self) -> int:
        """Row after the last."""
        return self.rows[1]

    @property
    def refused_rows(self) -> int:
        """Number of rows that gave no record."""
        return sum(last - first + 1 for first, last in self.refused)

    def is_countable(self, records: int) -> bool:
        """Return True if all rows but the quarantined rows gave a record.

        The row of each record then follows from its number.
        """
        return not self.damaged and self.end - self.first - self.refused_rows == records

    def encode(self) -> bytes:
        """Serialize the receipt with its digest, as stored next to the shard."""
        return canonical.seal(self.to_dict())[1] + b"\n"


def read_receipt(store: Store, name: str) -> Receipt | None:
    """Read a receipt. Returns None if it or a file that it names is missing or corrupt."""
    (data,) = store.read_many([name])
    if data is None:
        return None
    receipt = parse_receipt(data)
    # The committed digest is that of these exact bytes.
    if receipt is None or receipt.encode() != data or not _matches(store, name, receipt):
        return None
    return replace(receipt, sidecars=_hash_sidecars(store, name, receipt))


def parse_receipt(data: bytes | None) -> Receipt | None:
    """Parse a receipt. Returns None if it is missing or corrupt."""
    try:
        return None if data is None else _decode(data)
    except (ValueError, TypeError, IndexError):
        return None


def _hash_sidecars(store: Store, name: str, receipt: Receipt) -> Json:
    """Hash an existing receipt and the files that were written with it."""
    folder, _, leaf = name.rpartition("/")
    shard = leaf.removesuffix(RECEIPT) if receipt.shard is None else receipt.shard.name
    digests = {f"{shard}{RECEIPT}": hashlib.sha256(receipt.encode()).hexdigest()}
    others = {f"{shard}{ROWS}": f"{folder}/{shard}{ROWS}"}
    if receipt.quarantine is not None:
        others[receipt.quarantine.rpartition("/")[2]] = receipt.quarantine
    for sidecar, path in others.items():
        digest = hash_object(store, path)
        if digest is not None:
            digests[sidecar] = digest
    return digests


def _decode(data: bytes) -> Receipt:
    payload = canonical.decode(data.removesuffix(b"\n"))
    if not isinstance(payload, dict) or payload.pop("digest", None) != canonical.sha256(payload):
        raise ValueError("digest mismatch")
    return Receipt.from_dict(payload)


def _matches(store: Store, name: str, receipt: Receipt) -> bool:
    """Return True if the shard of the receipt is byte for byte the written shard."""
    if receipt.quarantine is not None and store.info(receipt.quarantine) is None:
        return False
    shard = receipt.shard
    if shard is None:
        return True
    folder = name.rpartition("/")[0]
    digest = hash_object(store, f"{folder}/{shard.name}", shard.bytes)
    return digest == shard.sha256


def extend_spans(spans: list[tuple[int, int]], row: int) -> None:
    """Add a row to spans of first and last row. It must follow all rows in them."""
    if spans and row <= spans[-1][1] + 1:
        spans[-1] = (spans[-1][0], row)
    else:
        spans.append((row, row))


def list_quarantined_rows(receipts: Iterable[Receipt]) -> tuple[QuarantinedRows, ...]:
    """List the quarantine files of shards with their numbers of rows, for an entry."""
    return tuple(
        QuarantinedRows(rows=receipt.refused_rows, files=(receipt.quarantine,))
        for receipt in receipts
        if receipt.quarantine is not None
    )
