"""Files below a dataset that no log knows: what a writer left that was stopped, or has not ended.

A shard of an append that died before its commit may hold records that are erased, and so may the
temporary file of a writer. Each is searched as a committed shard is. What cannot be read to its
end, or lacks a feature that is asked for, may hold them.
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
    "shard", "temporary", "refused", "receipt", "orphan", "foreign"
]

_BLOCK_BYTES = 4 * 1024 * 1024
_BESIDE = re.compile(r"\.(index|receipt|rows)$")
_ADVICE = {
    "shard": "erase again when no writer is at work, or vacuum: that deletes what is not committed",
    "temporary": "vacuum when no writer is at work, which deletes what was not committed",
    "refused": "vacuum, which deletes what was not committed",
    "receipt": "vacuum, which deletes what was not committed",
    "orphan": "bring the log of its version back and erase again, or delete the file",
    "foreign": "look into it, and delete it or move it away",
}
_WHAT = {
    "shard": "it was written and never committed",
    "temporary": "a writer that was stopped left it, or is still writing it",
    "refused": "it has rows that were refused, and was never committed",
    "receipt": "it tells of rows that were refused and never committed",
    "orphan": "its version has no log",
    "foreign": "it belongs to no version",
}


@dataclass(frozen=True, slots=True)
class UncommittedFile:
    """A file that no log knows. An `orphan` is of a version that has no log."""

    name: str
    sort: UncommittedKind


def find_uncommitted_files(history: DatasetHistory) -> Iterator[UncommittedFile]:
    """Return every file below a dataset that may hold values and that no log knows."""
    for file in history.store.list(history.dataset, hidden=True):
        sort = _classify_file(history, file) if file.size else None
        if sort is not None:
            yield UncommittedFile(file.name, sort)


def _classify_file(history: DatasetHistory, file: ObjectInfo) -> UncommittedKind | None:
    """Return what kind of leftover a file is; None for what is known, or holds no values."""
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
    return None if name in history.quarantine else "refused"


def _is_of_version(rest: Sequence[str]) -> bool:
    """Return True for what a version has in its folder; none of it holds values of records."""
    if len(rest) == 2 and rest[0] == "log":
        return rest[1] == HINT or any(n.fullmatch(rest[1]) for n in (ENTRY_NAME, CHECKPOINT_NAME))
    return list(rest) == [ARRIVALS]


def _classify_shard_file(history: DatasetHistory, name: str, leaf: str) -> UncommittedKind | None:
    shard = _BESIDE.sub("", leaf)
    match = SHARD_NAME.fullmatch(shard)
    if match is None:
        return "foreign"
    if shard in history.shards or leaf.endswith((".index", ROWS)):
        return None
    if match["version"] not in history.versions:
        return "orphan"
    if leaf.endswith(RECEIPT):
        receipt = parse_receipt(history.store.read(name))
        return None if receipt is not None and not receipt.told else "receipt"
    return "shard"


def list_uncommitted_copies(
    history: DatasetHistory, condition: Condition | None, limits: Limits = DEFAULT_LIMITS
) -> Iterator[ResidualCopy]:
    """Return the leftovers that hold records which are meant, or may; all without a condition."""
    for leftover in find_uncommitted_files(history):
        found = None if condition is None else _search_file(history, leftover, condition, limits)
        if found is None or found:
            yield _make_copy(history, leftover, found)


def _make_copy(
    history: DatasetHistory, leftover: UncommittedFile, found: int | None
) -> ResidualCopy:
    what = _WHAT[leftover.sort]
    if found:
        what = f"{what}, and has {found:,} of those that are meant"
    commands = (get_vacuum_command(history.dataset),)
    return ResidualCopy(
        "uncommitted",
        object_uri(history.store, leftover.name),
        what,
        _ADVICE[leftover.sort],
        () if leftover.sort in {"orphan", "foreign"} else commands,
        certain=bool(found),
    )


def _search_file(
    history: DatasetHistory, leftover: UncommittedFile, condition: Condition, limits: Limits
) -> int | None:
    """Return how many records are meant; None if there may be some that could not be found."""
    if leftover.sort == "refused":
        file = search_uncommitted_quarantine(history, leftover.name, condition)
        return len(file.matches) or (None if file.uncertain else 0)
    if leftover.sort in {"receipt", "foreign"} or leftover.name.endswith((PLAN, ".jsonl")):
        return None
    with ExitStack() as stack:
        searches = [
            stack.enter_context(closing(RowSearch(one.version.schema, view, condition)))
            for one in history.versions.values()
            if leftover.sort != "shard" or _get_owner(leftover) == one.version.log.version
            for view in list_views(history, one, condition)
        ]
        found, whole = _search_records(StoredFile(history.store, leftover.name), searches, limits)
    if found:
        return found
    # Of which version a temporary file is cannot be told for sure, nor of an orphan how it is read.
    return 0 if whole and leftover.sort == "shard" else None


def _get_owner(leftover: UncommittedFile) -> str:
    return leftover.name.rpartition("/")[2].split(".", 1)[0]


def _search_records(
    file: StoredFile, searches: Sequence[RowSearch], limits: Limits
) -> tuple[int, bool]:
    """Return how many records are meant, and whether all of the file could be asked."""
    found, whole = 0, bool(searches)
    try:
        with RecordFile(file, limits=limits, block_bytes=_BLOCK_BYTES) as records:
            for block in records.blocks():
                meant = set[int]()
                for search in searches:
                    verdicts, lacking = search.of_records(block.data, block.starts, block.lengths)
                    meant |= {at for at, verdict in enumerate(verdicts) if verdict}
                    # An overlay lacks what is in its base: which of its records are meant?
                    whole = whole and None not in verdicts and not any(lacking)
                found += len(meant)
    except ObjectNotFoundError:
        return 0, True  # Deleted concurrently.
    except ShardlineError:
        whole = False
    return found, whole
