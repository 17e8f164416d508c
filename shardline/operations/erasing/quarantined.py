"""Quarantine files hold the content of rows that were refused: some of them may be of those meant.

What extend or migrate refused is a record of their base, and told by its number. A row that an
append refused was never a record: it is asked by the same condition, as far as it can be read.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shardline import kernel
from shardline.errors import ShardlineError
from shardline.log.sidecars import RECEIPT, shard_of
from shardline.operations.erasing.condition import Keys
from shardline.operations.receipt import parse_receipt
from shardline.readers.arrow_columns import column_of, schema_of, to_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.log.facts import Json
    from shardline.log.schema import Feature, Schema
    from shardline.operations.erasing.condition import Chooser, Condition
    from shardline.operations.erasing.history import DatasetHistory, VersionHistory
    from shardline.operations.erasing.relations import Rows
    from shardline.storage import Store


@dataclass(frozen=True, slots=True)
class QuarantineFile:
    """A quarantine file with lines that are meant, or of which that cannot be told (`doubtful`).

    `sources` are those that the meant ones came from.
    """

    name: str
    meant: frozenset[int]
    doubtful: frozenset[int]
    sources: frozenset[str] = frozenset()


def look_through(
    history: DatasetHistory, condition: Condition | None, rows: Rows
) -> Iterator[QuarantineFile]:
    """The quarantine files of a dataset that hold something of what is meant, or may.

    Without a condition only those lines are looked at that tell of records by their numbers.
    """
    bases = _bases(history)
    folder = f"{history.dataset}/quarantine"
    for file in history.store.list(folder):
        leaf = file.name.removeprefix(f"{folder}/").removesuffix(".jsonl")
        owner = history.versions.get(leaf.split(".", 1)[0])
        if owner is None or not file.size:
            continue
        base = bases.get(f"{leaf}.tfrecord")
        (data,) = owner.sidecars.read([f"{leaf}.jsonl"])
        lines = (data or b"").splitlines()
        if base is not None:
            gone = set(rows.get(base, np.zeros(0, np.int64)).tolist())
            verdicts: list[bool | None] = [_row(line) in gone for line in lines]
        elif condition is None:
            continue
        else:
            asking = _Asking(owner.version.schema, condition)
            verdicts = [asking.verdict(line) for line in lines]
        meant = frozenset(at for at, told in enumerate(verdicts) if told)
        doubtful = frozenset(at for at, told in enumerate(verdicts) if told is None)
        if meant or doubtful:
            sources = frozenset(_source(lines[at]) for at in meant)
            yield QuarantineFile(file.name, meant, doubtful, sources)


def _bases(history: DatasetHistory) -> dict[str, str]:
    """Of which shard each is made that extend or migrate made."""
    return {
        one.shard.name: base
        for version in history.versions.values()
        for entry in version.entries
        if entry.operation in {"extend", "migrate"}
        for one, base in zip(entry.added, entry.bases, strict=False)
    }


def _row(line: bytes) -> int:
    try:
        return int(json.loads(line)["row"])
    except (ValueError, KeyError, TypeError):
        return -1


def _source(line: bytes) -> str:
    return str(json.loads(line).get("source", ""))


@dataclass(frozen=True, slots=True)
class Strike:
    """The sidecars of a version as they are without some lines of a quarantine file."""

    owner: VersionHistory
    lines: int
    contents: dict[str, bytes]

    @property
    def digests(self) -> Json:
        """The digests of what is new, by the names of the sidecars."""
        found = {name: hashlib.sha256(data).hexdigest() for name, data in self.contents.items()}
        known = self.owner.sidecars.digests(found)
        return {name: digest for name, digest in found.items() if known.get(name) != digest}

    def carry_out(self, store: Store) -> int:
        """Replace the files, whose new digests are committed; returns the number of lines."""
        for name, data in self.contents.items():
            store.replace(self.owner.sidecars.path(name), data)
        return self.lines


def plan_strike(history: DatasetHistory, file: QuarantineFile, *, doubtful: bool) -> Strike | None:
    """Plan to take the lines that are meant out of a quarantine file; None if there are none.

    What a function raised may hold what it was given: the receipt's reasons go too. Raises
    SidecarMismatchError for a file that was not committed.
    """
    gone = file.meant | (file.doubtful if doubtful else frozenset())
    if not gone:
        return None
    quarantine = file.name.rpartition("/")[2]
    receipt_name = f"{shard_of(quarantine)}{RECEIPT}"
    owner = history.owner(quarantine)
    data, receipt_data = owner.sidecars.read([quarantine, receipt_name])
    lines = (data or b"").splitlines(keepends=True)
    kept = b"".join(line for at, line in enumerate(lines) if at not in gone)
    contents = {quarantine: kept}
    receipt = parse_receipt(receipt_data)
    if receipt is not None and receipt.told:
        contents[receipt_name] = replace(receipt, told=()).encode()
    return Strike(owner, len(gone), contents)


class _Asking:
    """Asks a condition of rows that are no records; None where it cannot be told."""

    def __init__(self, schema: Schema, condition: Condition) -> None:
        self._condition = condition
        self._chooser: Chooser | None = None
        try:
            self._chooser = condition.bind(schema)
        except ShardlineError:
            return
        # What a refused row lacks may be required.
        self._reads = [replace(feature, required=False) for feature in self._chooser.reads]

    def verdict(self, line: bytes) -> bool | None:
        """Whether a line of a quarantine file is meant."""
        try:
            told = json.loads(line)
            if "content" in told:
                return self._of_text(str(told["content"]))
            return self._of_payload(base64.b64decode(told["content_base64"]))
        except (ValueError, KeyError, TypeError):
            return None

    def _of_text(self, text: str) -> bool | None:
        if isinstance(self._condition, Keys) and not self._condition.stand_in(text):
            return False
        try:
            row = json.loads(text)
        except ValueError:
            row = None
        if isinstance(row, dict):
            return self._of_row(row)
        # Bytes that happen to be text may be a record all the same.
        return self._of_payload(text.encode())

    def _of_row(self, row: Json) -> bool | None:
        if self._chooser is None:
            return None
        try:
            arrays = [_cell(feature, row.get(feature.name)) for feature in self._reads]
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            return None
        return self._ask(arrays)

    def _of_payload(self, payload: bytes) -> bool | None:
        if self._chooser is None or not payload:
            return None
        asked = [column_of(feature) for feature in self._reads]
        starts, lengths = np.zeros(1, np.int64), np.array([len(payload)], np.int64)
        try:
            decoded = kernel.decode(payload, starts, lengths, asked)
            arrays = [to_column(*one) for one in zip(self._reads, decoded, strict=True)]
        except ShardlineError:
            return None
        return self._ask(arrays)

    def _ask(self, arrays: Sequence[pa.Array]) -> bool | None:
        if self._chooser is None:
            return None
        batch = pa.RecordBatch.from_arrays(list(arrays), schema=schema_of(self._reads))
        try:
            return bool(self._chooser.rows(batch)[0])
        except ShardlineError:
            return None


def _cell(feature: Feature, value: Any) -> pa.Array:  # noqa: ANN401 - as JSON has it
    """A value as that of a feature; a number may stand as text in what was refused."""
    kind = schema_of([feature]).field(0).type
    if value is not None and not feature.shape:
        if feature.kind == "int64":
            value = int(value)
        elif feature.kind == "float":
            value = float(value)
        elif not isinstance(value, str):
            value = str(value)
        value = value.encode() if pa.types.is_binary(kind) else value
    return pa.array([value], kind)
