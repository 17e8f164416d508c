"""Strike lines out of quarantine files, while others do the same.

An entry commits which lines go, by their numbers, and the digest of the file without them. It is
refused if another erase committed such an entry since the file was read. After that the file is
replaced. A file with an earlier digest lacks strikes that are committed: the writer was stopped, or
a slow writer replaced a newer file. The next strike finishes them, since their entries have the
numbers of the lines.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import ConflictError
from shardline.log.changes import RewriteSidecars
from shardline.log.model import RECEIPT, REFUSED
from shardline.log.parameters import EraseParameters, SidecarRewrite
from shardline.log.state import get_name_key
from shardline.operations.erasure.quarantine_search import (
    QuarantineFile,
    get_line_digest,
    get_quarantine_stem,
    iter_line_groups,
    make_rewrite_conflict,
)
from shardline.provenance.shard_mapping import collapse_rows
from shardline.sidecars.receipt import parse_receipt, parse_spans
from shardline.sidecars.sidecar_reader import (
    SidecarMismatchError,
    SidecarReader,
    sidecar_mismatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shardline.canonical_json import Json
    from shardline.log.version import StoredVersion
    from shardline.provenance.dataset_history import DatasetHistory
    from shardline.storage import Store

_ROUNDS = 8
_MOST_SPANS = 16_384
"""An entry has at most so many spans of lines. With more, only the same erase can be finished."""
Spans = tuple[tuple[int, int], ...]


def strike_lines(
    history: DatasetHistory,
    files: Iterable[QuarantineFile],
    parameters: EraseParameters,
    *,
    doubtful: bool,
) -> int:
    """Strike lines out of quarantine files, and return how many.

    `parameters` are those of the entries. Strikes of other erases that were stopped are finished.
    Raises ConflictError if other writers do not finish theirs.
    """
    by_version: dict[StoredVersion, list[QuarantineFile]] = {}
    for file in files:
        by_version.setdefault(history.owner(_get_leaf(file.name)).version, []).append(file)
    count = sum(
        _strike_version(version, some, parameters, doubtful=doubtful)
        for version, some in by_version.items()
    )
    for version, file in _iter_earlier_strikes(history):
        with suppress(ConflictError, SidecarMismatchError):  # the audit reports it
            _strike_version(version, [file], parameters, doubtful=doubtful)
    return count


def _iter_earlier_strikes(
    history: DatasetHistory,
) -> Iterator[tuple[StoredVersion, QuarantineFile]]:
    """Yield the files that earlier erases rewrote, with nothing more to strike out."""
    for one in history.versions.values():
        names = {name for entry in one.entries for name in entry.read(EraseParameters).rewrites}
        for name in sorted(name for name in names if name.endswith(REFUSED)):
            yield one.version, QuarantineFile(one.sidecars.path(name), frozenset(), frozenset())


def _strike_version(
    version: StoredVersion,
    files: Sequence[QuarantineFile],
    parameters: EraseParameters,
    *,
    doubtful: bool,
) -> int:
    """Strike lines out of the files of a version until nothing is left to do."""
    count = 0
    for _ in range(_ROUNDS):
        version.refresh()
        with suppress(ConflictError):
            planned = (_plan_strike(version, file, doubtful=doubtful) for file in files)
            strikes = [strike for strike in planned if strike is not None]
            if not strikes:
                return count
            _commit(version, strikes, parameters)
            for strike in strikes:
                count += strike.carry_out(version.store)
    raise make_rewrite_conflict(version.store, files[0].name)


@dataclass(frozen=True, slots=True)
class LineStrike:
    """Lines to strike out of a quarantine file.

    `pending` are strikes of entries that the file lacks: for each, the spans of lines that go, by
    their numbers in the file before it. `lines` go from the file after those, which has the digest
    `before`; what is left has the digest `after`. `since` is the entry with the latest digest.
    `receipts` are those that quote the lines, by path, and what becomes of them.
    """

    path: str
    pending: tuple[Spans, ...]
    lines: Spans
    before: str
    after: str
    since: int | None
    receipts: Mapping[str, tuple[bytes, bytes]]

    def carry_out(self, store: Store) -> int:
        """Replace the files, whose digests are committed; return the number of lines that went.

        The receipts go first: the lines that are left show that a stopped erase is not finished.
        Raises ConflictError if the file changed since it was planned.
        """
        for path, (_, after) in self.receipts.items():
            with store.writer(path, overwrite=True) as file:
                file.write(after)
        count, digest = 0, hashlib.sha256()
        cuts = [_LineCutter(spans) for spans in (*self.pending, self.lines)]
        with store.writer(self.path, overwrite=True) as file:
            for lines in iter_line_groups(store, self.path):
                left = _remove_lines(lines, cuts)
                count += len(lines) - len(left)
                digest.update(b"".join(left))
                file.write(b"".join(left))
            if digest.hexdigest() != self.after:
                raise make_rewrite_conflict(store, self.path)
        return count


def _plan_strike(
    version: StoredVersion, file: QuarantineFile, *, doubtful: bool
) -> LineStrike | None:
    """Plan what a file lacks; None if that is nothing.

    Raises SidecarMismatchError for a file or receipt that differs from every committed one, and
    ConflictError if the file changes meanwhile, or if what it lacks is not known.
    """
    store, name = version.store, _get_leaf(file.name)
    if store.info(file.name) is None:
        return None
    sidecars = SidecarReader(version)
    committed = sidecars.digests([name]).get(name)
    digest = _sha256(b"".join(group) for group in iter_line_groups(store, file.name))
    pending = _list_pending(version, file.name, digest) if digest != (committed or digest) else ()
    gone = file.meant | (file.doubtful if doubtful else frozenset())
    raw, before, after = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    numbers: list[int] = []
    number = 0
    cuts = [_LineCutter(spans) for spans in pending]
    for group in iter_line_groups(store, file.name):
        raw.update(b"".join(group))
        for line in _remove_lines(group, cuts):
            before.update(line)
            if get_line_digest(line) in gone:
                numbers.append(number)
            else:
                after.update(line)
            number += 1
    if raw.hexdigest() != digest or before.hexdigest() != (committed or digest):
        raise make_rewrite_conflict(store, file.name)
    if not numbers and not pending:
        return None
    return LineStrike(
        file.name,
        pending,
        tuple(collapse_rows(np.array(numbers, np.int64))),
        before.hexdigest(),
        after.hexdigest(),
        version.state.sidecars.get(get_name_key(name)),
        dict(_iter_cleared_receipts(sidecars, file.name)),
    )


def _list_pending(version: StoredVersion, path: str, digest: str) -> tuple[Spans, ...]:
    """Return the strikes that a file with this digest lacks, by the entries of the log."""
    name = _get_leaf(path)
    pending: list[Spans] | None = None
    for entry in version.log.entries(1):
        if name not in entry.sidecars:
            continue
        rewrite = entry.read(EraseParameters).rewrites.get(name) or SidecarRewrite()
        if rewrite.before == digest:
            pending = []
        if pending is not None:
            if rewrite.lines is None:
                raise make_rewrite_conflict(version.store, path)
            pending.append(parse_spans(list(rewrite.lines), f"the lines of {name}"))
    if pending is not None:
        return tuple(pending)
    if SidecarReader(version).is_committed(name, digest):
        raise make_rewrite_conflict(version.store, path)  # its entries do not have the lines
    raise sidecar_mismatch(version.store, path, version.name)


def _commit(
    version: StoredVersion, strikes: Sequence[LineStrike], parameters: EraseParameters
) -> None:
    """Commit the digests of files that are about to be rewritten.

    Readers accept both the old and the new file, so that an erase may stop here. Raises
    ConflictError if another erase committed a digest of such a file since it was read.
    """
    rewrites: dict[str, SidecarRewrite] = {}
    new: Json = {}
    for strike in strikes:
        if strike.lines:
            name = _get_leaf(strike.path)
            spans = tuple(map(list, strike.lines)) if len(strike.lines) <= _MOST_SPANS else None
            new[name] = strike.after
            rewrites[name] = SidecarRewrite(before=strike.before, lines=spans)
        for path, (before, after) in strike.receipts.items():
            name = _get_leaf(path)
            new[name] = _sha256([after])
            rewrites[name] = SidecarRewrite(before=_sha256([before]))
    known = SidecarReader(version).digests(new)
    new = {name: digest for name, digest in new.items() if known.get(name) != digest}
    if new:
        changed = replace(parameters, rewrites={name: rewrites[name] for name in new})
        since = {_get_leaf(strike.path): strike.since for strike in strikes}
        version.commit(RewriteSidecars(new, changed.to_dict(), since))


def _sha256(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


class _LineCutter:
    """Takes numbered lines out of groups of lines."""

    def __init__(self, spans: Spans) -> None:
        self._firsts = np.array([first for first, _ in spans], np.int64)
        self._lasts = np.array([last for _, last in spans], np.int64)
        self._number = 0

    def keep(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the next lines without those that go."""
        numbers = np.arange(self._number, self._number + len(lines))
        self._number += len(lines)
        span = np.searchsorted(self._firsts, numbers, "right") - 1
        gone = (span >= 0) & (numbers <= self._lasts[span]) if len(self._lasts) else span >= 0
        return [line for line, goes in zip(lines, gone.tolist(), strict=True) if not goes]


def _remove_lines(lines: Sequence[bytes], cuts: Sequence[_LineCutter]) -> Sequence[bytes]:
    """Return lines without what goes, by one strike after another."""
    for cut in cuts:
        lines = cut.keep(lines)
    return lines


def _get_leaf(path: str) -> str:
    return path.rpartition("/")[2]


def _iter_cleared_receipts(
    sidecars: SidecarReader, quarantine: str
) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Yield the receipts that name a quarantine file, with and without the reasons they quote.

    What a function raised may contain what it was given. There may be two receipts: on an object
    store a large shard has a name that was drawn, and its receipt is also where others look for it.
    """
    stem = get_quarantine_stem(quarantine)
    first = ".".join(stem.split(".")[:2])
    names = [f"{one}.tfrecord{RECEIPT}" for one in dict.fromkeys((stem, first))]
    for name, data in zip(names, sidecars.read(names), strict=True):
        receipt = parse_receipt(data)
        if data and receipt is not None and receipt.told and receipt.quarantine == quarantine:
            yield sidecars.path(name), (data, replace(receipt, told=()).encode())
