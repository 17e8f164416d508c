"""Files of a dataset that no log knows, left by a writer that was stopped or still runs.

A shard of an append that died before its commit may hold erased records, and so may a temporary
file. Each is searched like a committed shard. A file that cannot be read to its end, or lacks a
feature of the condition, may hold them.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from shardline.errors import ObjectNotFoundError, ShardlineError
from shardline.log.log import CHECKPOINT_NAME, ENTRY_NAME, HINT
from shardline.log.model import PLAN, RECEIPT, ROWS, SHARD_NAME
from shardline.operations.erasure.quarantine import search_uncommitted_quarantine
from shardline.operations.erasure.record_search import list_views
from shardline.operations.erasure.residual_copies import ResidualCopy
from shardline.operations.erasure.row_search import RowSearch
from shardline.operations.landing_folder import ARRIVALS
from shardline.provenance.retainers import get_vacuum_command
from shardline.sidecars.receipt import parse_receipt
from shardline.storage import PROBE_NAME, TEMPORARY_NAME, object_uri
from shardline.tfrecord.input_file import StoredFile
from shardline.tfrecord.reader import DEFAULT_LIMITS, RecordFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shardline.operations.erasure.condition import Condition
    from shardline.provenance.log_index import DatasetHistory
    from shardline.storage import ObjectInfo
    from shardline.tfrecord.reader import Limits

UncommittedKind: TypeAlias = Literal[
    "shard", "temporary", "quarantine", "receipt", "orphan", "foreign"
]

_BLOCK_BYTES = 4 * 1024 * 1024
_SIDECAR_SUFFIX = re.compile(r"\.(index|receipt|rows)$")
_HINTS = {
    "shard": "erase again when no writer is at work, or vacuum: that deletes what is not committed",
    "temporary": "vacuum when no writer is at work, which deletes what was not committed",
    "quarantine": "vacuum, which deletes what was not committed",
    "receipt": "vacuum, which deletes what was not committed",
    "orphan": "restore the log of its version and erase again, or delete the file",
    "foreign": "inspect it, and delete or move it",
}
_DETAILS = {
    "shard": "it was written and never committed",
    "temporary": "a stopped writer left it, or a writer still writes it",
    "quarantine": "it has quarantined rows, and was never committed",
    "receipt": "it quotes quarantined rows, and was never committed",
    "orphan": "its version has no log",
    "foreign": "it belongs to no version",
}


@dataclass(frozen=True, slots=True)
class UncommittedFile:
    """A file that no log knows. An `orphan` belongs to a version without a log."""

    name: str
    kind: UncommittedKind


def find_uncommitted_files(history: DatasetHistory) -> Iterator[UncommittedFile]:
    """Yield every file of a dataset that may hold values and that no log knows."""
    for file in history.store.list(history.dataset, hidden=True):
        kind = _classify_file(history, file) if file.size else None
        if kind is not None:
            yield UncommittedFile(file.name, kind)


def _classify_file(history: DatasetHistory, file: ObjectInfo) -> UncommittedKind | None:
    """Return the kind of a leftover file; None for a file that is known or holds no values."""
    _, folder, *rest = file.name.split("/")
    leaf = file.name.rpartition("/")[2]
    if PROBE_NAME.fullmatch(leaf):
        return None
    if TEMPORARY_NAME.fullmatch(leaf):
        return "temporary"
    if folder == "shards" and len(rest) == 1:
        return _classify_shard_file(history, file.name, leaf)
    if folder == "quarantine" and len(rest) == 1:
        return _classify_quarantine(history, file.name, leaf)
    return None if _is_of_version(rest) else "foreign"


def _classify_quarantine(history: DatasetHistory, name: str, leaf: str) -> UncommittedKind | None:
    match = SHARD_NAME.fullmatch(f"{leaf.removesuffix('.jsonl')}.tfrecord")
    if match is None or not leaf.endswith(".jsonl"):
        return "foreign"
    if match["version"] not in history.versions:
        return "orphan"
    return None if name in history.quarantine else "quarantine"


def _is_of_version(rest: Sequence[str]) -> bool:
    """Return True for a file in the folder of a version; none of them holds values."""
    if len(rest) == 2 and rest[0] == "log":
        return rest[1] == HINT or any(
            name.fullmatch(rest[1]) for name in (ENTRY_NAME, CHECKPOINT_NAME)
        )
    return list(rest) == [ARRIVALS]


def _classify_shard_file(history: DatasetHistory, name: str, leaf: str) -> UncommittedKind | None:
    shard = _SIDECAR_SUFFIX.sub("", leaf)
    match = SHARD_NAME.fullmatch(shard)
    if match is None:
        return "foreign"
    if shard in history.shards or leaf.endswith((".index", ROWS)):
        return None
    if match["version"] not in history.versions:
        return "orphan"
    if leaf.endswith(RECEIPT):
        receipt = parse_receipt(history.store.read(name))
        return None if receipt is not None and not receipt.reasons else "receipt"
    return "shard"


def list_uncommitted_copies(
    history: DatasetHistory, condition: Condition | None, limits: Limits = DEFAULT_LIMITS
) -> Iterator[ResidualCopy]:
    """Yield the leftovers that hold matching records, or may; all without a condition."""
    for leftover in find_uncommitted_files(history):
        matches = None if condition is None else _search_file(history, leftover, condition, limits)
        if matches is None or matches:
            yield _make_copy(history, leftover, matches)


def _make_copy(
    history: DatasetHistory, leftover: UncommittedFile, matches: int | None
) -> ResidualCopy:
    detail = _DETAILS[leftover.kind]
    if matches:
        detail = f"{detail}, and has {matches:,} of the records"
    commands = (get_vacuum_command(history.dataset),)
    return ResidualCopy(
        "uncommitted",
        object_uri(history.store, leftover.name),
        detail,
        _HINTS[leftover.kind],
        () if leftover.kind in {"orphan", "foreign"} else commands,
        certain=bool(matches),
    )


def _search_file(
    history: DatasetHistory, leftover: UncommittedFile, condition: Condition, limits: Limits
) -> int | None:
    """Count the matching records; None if there may be some that cannot be found."""
    if leftover.kind == "quarantine":
        file = search_uncommitted_quarantine(history, leftover.name, condition)
        return len(file.matches) or (None if file.uncertain else 0)
    if leftover.kind in {"receipt", "foreign"} or leftover.name.endswith((PLAN, ".jsonl")):
        return None
    with ExitStack() as stack:
        searches = [
            stack.enter_context(closing(RowSearch(version.version.schema, view, condition)))
            for version in history.versions.values()
            if leftover.kind != "shard" or _get_owner(leftover) == version.version.log.version
            for view in list_views(history, version, condition)
        ]
        matches, is_whole = _search_records(
            StoredFile(history.store, leftover.name), searches, limits
        )
    if matches:
        return matches
    # The version of a temporary file is unknown, and so are the features of an orphan.
    return 0 if is_whole and leftover.kind == "shard" else None


def _get_owner(leftover: UncommittedFile) -> str:
    return leftover.name.rpartition("/")[2].split(".", 1)[0]


def _search_records(
    file: StoredFile, searches: Sequence[RowSearch], limits: Limits
) -> tuple[int, bool]:
    """Count the matching records, and return whether all records could be searched."""
    matches, is_whole = 0, bool(searches)
    try:
        with RecordFile(file, limits=limits, block_bytes=_BLOCK_BYTES) as records:
            for block in records.blocks():
                rows = set[int]()
                for search in searches:
                    verdicts, lacking = search.match_records(
                        block.data, block.starts, block.lengths
                    )
                    rows |= {row for row, verdict in enumerate(verdicts) if verdict}
                    # An overlay lacks the features of its base, so its records may match.
                    is_whole = is_whole and None not in verdicts and not any(lacking)
                matches += len(rows)
    except ObjectNotFoundError:
        return 0, True  # Deleted concurrently.
    except ShardlineError:
        is_whole = False
    return matches, is_whole
