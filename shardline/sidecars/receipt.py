"""The receipt beside a shard: what was made of which rows of its source.

It is written when the shard is whole, so that an append that was stopped can go on behind it, and
stays, since it tells from which row of its source each record came.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from shardline import canonical_json as canonical
from shardline.canonical_json import JsonReader
from shardline.log.model import RECEIPT, ROWS, Shard
from shardline.tfrecord.hashing import hash_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardline.canonical_json import Json
    from shardline.storage import Store

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Receipt:
    """One part of a source: rows from `first` up to `end`, and the shard of its records.

    `shard` is None if no row gave a record. `refused` are the rows that gave none, as spans of
    first and last; so many of them are `damaged`, and `quarantine` is the file they are in. `told`
    are the first reasons. `last` says that the source ends here. `functions` are the source digests
    of the functions that computed the records. `found` is not written: it says
    that the shard was made before, by whoever was stopped or is at the same work. `sidecars` is not
    written either: the digests of the receipt and of the files written with it, by their names.
    """

    first: int
    end: int
    last: bool
    shard: Shard | None = None
    refused: tuple[tuple[int, int], ...] = ()
    damaged: int = 0
    quarantine: str | None = None
    told: tuple[str, ...] = field(default=(), repr=False)
    functions: tuple[str, ...] = ()
    found: bool = field(default=False, compare=False)
    sidecars: Json = field(default_factory=dict, compare=False, repr=False)

    @property
    def refused_rows(self) -> int:
        """How many rows gave no record."""
        return sum(last - first + 1 for first, last in self.refused)

    def counts(self, records: int) -> bool:
        """Whether all rows but the refused ones gave a record, so that counting tells which."""
        return not self.damaged and self.end - self.first - self.refused_rows == records

    def encode(self) -> bytes:
        """The receipt as it lies beside the shard, with its digest."""
        told: Json = {
            "format": _FORMAT,
            "rows": [self.first, self.end],
            "last": self.last,
            "shard": self.shard and self.shard.to_dict(),
            "refused": [list(span) for span in self.refused],
            "damaged": self.damaged,
            "quarantine": self.quarantine,
            "told": list(self.told),
        }
        if self.functions:
            told["functions"] = list(self.functions)
        return canonical.seal(told)[1] + b"\n"


def read_receipt(store: Store, name: str) -> Receipt | None:
    """The receipt of that name, if it is there, undamaged, and what it tells of is there too."""
    (data,) = store.read_many([name])
    if data is None:
        return None
    receipt = parse_receipt(data)
    # The digest that is committed is that of these bytes.
    if receipt is None or receipt.encode() != data or not _matches(store, name, receipt):
        return None
    return replace(receipt, sidecars=_digests(store, name, receipt))


def parse_receipt(data: bytes | None) -> Receipt | None:
    """Parse a receipt; None if it is missing or corrupt."""
    try:
        return None if data is None else _decode(data)
    except (ValueError, TypeError, IndexError):
        return None


def _digests(store: Store, name: str, receipt: Receipt) -> Json:
    """Hash a receipt that was found, and the files that were written with it."""
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
    told = canonical.decode(data.removesuffix(b"\n"))
    if not isinstance(told, dict) or told.pop("digest", None) != canonical.sha256(told):
        raise ValueError("it does not match its digest")
    fields = JsonReader("a receipt", told)
    if fields.take("format", int) != _FORMAT:
        raise ValueError("it is of another format")
    ((first, end),) = parse_spans([fields.take("rows", list)])
    shard = fields.nullable("shard", dict)
    receipt = Receipt(
        first,
        end,
        fields.take("last", bool),
        None if shard is None else Shard.take(JsonReader("a shard", shard)),
        parse_spans(fields.take("refused", list)),
        fields.count("damaged"),
        fields.nullable("quarantine", str),
        fields.texts("told"),
        fields.texts("functions"),
    )
    fields.end()
    return receipt


def parse_spans(told: Sequence[object]) -> tuple[tuple[int, int], ...]:
    """Return pairs of row numbers. Raises ValueError if they are anything else."""
    spans = []
    for span in told:
        if not isinstance(span, list) or len(span) != 2 or not all(type(n) is int for n in span):
            raise ValueError("a span is not two numbers")
        if not 0 <= span[0] <= span[1]:
            raise ValueError("a span ends before it begins")
        spans.append((span[0], span[1]))
    return tuple(spans)


def _matches(store: Store, name: str, receipt: Receipt) -> bool:
    """Whether the shard beside the receipt is the one that was made, byte for byte."""
    if receipt.quarantine is not None and store.info(receipt.quarantine) is None:
        return False
    shard = receipt.shard
    if shard is None:
        return True
    folder = name.rpartition("/")[0]
    digest = hash_object(store, f"{folder}/{shard.name}", shard.bytes)
    return digest == shard.sha256


def extend_spans(spans: list[tuple[int, int]], row: int) -> None:
    """Add a row to spans of first and last, behind all that are in them."""
    if spans and row <= spans[-1][1] + 1:
        spans[-1] = (spans[-1][0], row)
    else:
        spans.append((row, row))
