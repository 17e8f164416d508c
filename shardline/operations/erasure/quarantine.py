"""Search of quarantine files for rows of erased records, and removal of their lines.

Rows that extend or migrate quarantined are known by the number of their record. Other rows are
parsed as their source was, and matched by the same condition. A row that cannot be parsed is
uncertain.

An entry commits the numbers of the removed lines, and the digest of the file without them. It
conflicts with another erase that committed such an entry since the file was read. Then the file is
replaced. A file with an earlier digest lacks committed removals: its writer was stopped, or
a slow writer replaced a newer file. The next removal completes them by the numbers of the lines.
"""

from __future__ import annotations

import hashlib
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import ConflictError, StorageError
from shardline.hints import Hint
from shardline.log.changes import RewriteSidecars
from shardline.log.model import RECEIPT, REFUSED
from shardline.log.parameters import (
    AppendParameters,
    EntryParameters,
    EraseParameters,
    SidecarRewrite,
)
from shardline.log.state import get_name_key
from shardline.operations.erasure.record_search import list_views
from shardline.operations.erasure.residual_copies import ResidualCopy
from shardline.operations.erasure.row_search import RowSearch, guess_format, parse_line
from shardline.provenance.log_index import VersionHistory
from shardline.provenance.shard_mapping import collapse_rows
from shardline.sidecars.receipt import parse_receipt, parse_spans
from shardline.sidecars.sidecar_reader import (
    SidecarMismatchError,
    SidecarReader,
    sidecar_mismatch,
)
from shardline.storage import object_uri

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from shardline.canonical_json import Json
    from shardline.log.version import StoredVersion
    from shardline.operations.erasure.condition import Condition
    from shardline.operations.erasure.record_search import SearchView
    from shardline.operations.erasure.row_search import QuarantineLine, RowVerdict
    from shardline.provenance.log_index import DatasetHistory
    from shardline.provenance.related_rows import ShardRows
    from shardline.schema.schema import Schema
    from shardline.storage import Store


_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QuarantineFile:
    """A quarantine file with lines that match, and `uncertain` lines that cannot be searched.

    Both are digests of lines, because another erase may remove lines meanwhile. `sources` are the
    sources of the matching lines, `uncertain_sources` those of the others.
    """

    name: str
    matches: frozenset[bytes]
    uncertain: frozenset[bytes]
    sources: frozenset[str] = frozenset()
    uncertain_sources: frozenset[str] = frozenset()


def search_quarantine(
    history: DatasetHistory,
    conditions: Sequence[Condition],
    rows: ShardRows,
    searched: Collection[str] | None = None,
) -> Iterator[QuarantineFile]:
    """Yield the committed quarantine files of a dataset with matching or uncertain lines.

    `rows` are the matching records of the `searched` shards, or of all shards if that is None.
    Uncommitted files belong to their writer, and to vacuum. Raises SidecarMismatchError for a file
    that differs from the committed one.
    """
    origins = dict(_index_origins(history))
    for file in history.store.list(f"{history.dataset}/quarantine"):
        if file.name not in history.quarantine or not file.size:
            continue
        stem = get_quarantine_stem(file.name)
        owner = history.versions.get(stem.split(".", 1)[0])
        origin = origins.get(file.name) or origins.get(f"{stem}.tfrecord") or _QuarantineOrigin()
        if owner is None:
            continue
        owner.sidecars.compare(f"{stem}.jsonl")
        with closing(
            _QuarantineSearcher(history, owner, origin, conditions, rows, searched)
        ) as searcher:
            result = _search_file(history.store, file.name, searcher)
        if result.matches or result.uncertain:
            yield result


def search_uncommitted_quarantine(
    history: DatasetHistory, name: str, condition: Condition
) -> QuarantineFile:
    """Search a quarantine file that no entry names; its version must have a log."""
    owner = history.versions[get_quarantine_stem(name).split(".", 1)[0]]
    with closing(
        _QuarantineSearcher(history, owner, _QuarantineOrigin(), [condition], {}, ())
    ) as searcher:
        return _search_file(history.store, name, searcher)


def get_quarantine_stem(name: str) -> str:
    """Return the name of a quarantine file without its folder and suffix."""
    return name.rpartition("/")[2].removesuffix(".jsonl")


def _search_file(store: Store, name: str, searcher: _QuarantineSearcher) -> QuarantineFile:
    matches, uncertain = set[bytes](), set[bytes]()
    sources: dict[bool, set[str]] = {True: set(), False: set()}
    for lines in iter_line_groups(store, name):
        parsed = [parse_line(line) for line in lines]
        for line, row, verdict in zip(lines, parsed, searcher.judge(parsed), strict=True):
            if verdict is not False:
                (matches if verdict else uncertain).add(get_line_digest(line))
                sources[bool(verdict)] |= set() if row is None else {row.source}
    return QuarantineFile(
        name,
        frozenset(matches),
        frozenset(uncertain),
        frozenset(sources[True]),
        frozenset(sources[False]),
    )


def iter_line_groups(store: Store, name: str) -> Iterator[list[bytes]]:
    """Yield the lines of an object with their ends, a few megabytes at a time.

    Raises ConflictError if the object becomes shorter meanwhile.
    """
    info = store.info(name)
    size, left = 0 if info is None else info.size, b""
    for offset in range(0, size, _READ_BYTES):
        try:
            (data,) = store.read_ranges(name, [(offset, min(_READ_BYTES, size - offset))])
        except StorageError as error:
            if error.code != "object-mismatch":
                raise
            raise make_rewrite_conflict(store, name) from error
        lines = (left + data).split(b"\n")
        left = lines.pop()
        if lines:
            yield [line + b"\n" for line in lines]
    if left:
        yield [left]


def make_rewrite_conflict(store: Store, name: str) -> ConflictError:
    """Build the error for a quarantine file that another erase rewrites."""
    path = object_uri(store, name)
    hint = Hint.of("erase again; if the other erase was stopped, run that first")
    return ConflictError(f"{path}: another erase rewrites the file", hint=hint, path=path)


def get_line_digest(line: bytes) -> bytes:
    """Return the digest that identifies a line."""
    return hashlib.sha256(line).digest()


@dataclass(frozen=True, slots=True)
class _QuarantineOrigin:
    """Origin of a quarantine file, by the entry that names it.

    `base` is the shard of the quarantined records, of a snapshot of `version`. `format` is
    the declared format of an append.
    """

    base: str | None = None
    version: str | None = None
    format: str | None = None


def _index_origins(history: DatasetHistory) -> Iterator[tuple[str, _QuarantineOrigin]]:
    """Yield the origins of quarantine files, by the name of the file or of its shard."""
    for version in history.versions.values():
        for entry in version.entries:
            if entry.operation in {"extend", "migrate"}:
                source = entry.inputs[0].label if entry.inputs else None
                for added, base in zip(entry.added, entry.bases, strict=False):
                    yield added.shard.name, _QuarantineOrigin(base, source)
            elif source_format := entry.read(AppendParameters).format:
                for rows in entry.read(EntryParameters).quarantine:
                    for name in rows.files:
                        yield name, _QuarantineOrigin(format=source_format)


@dataclass
class _QuarantineSearcher:
    """Search of the lines of one quarantine file."""

    history: DatasetHistory
    owner: VersionHistory
    origin: _QuarantineOrigin
    conditions: Sequence[Condition]
    rows: ShardRows
    searched: Collection[str] | None
    _schema: Schema = field(init=False)
    _searches: list[list[RowSearch]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Bind each condition to the features that the rows have."""
        version = self._find_version()
        self._schema = (self.owner if version is None else version).version.schema
        for condition in self.conditions:
            views: Sequence[SearchView] = (
                () if version is None else list_views(self.history, version, condition)
            )
            self._searches.append([RowSearch(self._schema, view, condition) for view in views])

    def _find_version(self) -> VersionHistory | None:
        """Return the version whose features the rows have."""
        if self.origin.version is None:
            return self.owner
        dataset, _, name = self.origin.version.partition("/")
        if dataset == self.history.dataset:
            return self.history.versions.get(name)
        version = self.history.index.version(self.origin.version)
        return VersionHistory(version, ()) if version.exists else None

    def close(self) -> None:
        """Stop background work of the conditions."""
        for searches in self._searches:
            for search in searches:
                search.close()

    def judge(self, rows: Sequence[QuarantineLine | None]) -> list[RowVerdict]:
        """Return the verdicts on lines."""
        base = self.origin.base
        if base is not None and (self.searched is None or base in self.searched):
            matches = set(self.rows.get(base, np.zeros(0, np.int64)).tolist())
            return [None if row is None else row.row in matches for row in rows]
        preliminary = [self._prejudge(row) for row in rows]
        searchable = [
            (index, row) for index, row in enumerate(rows) if row is not None and preliminary[index]
        ]
        parsed = [
            (row, guess_format(row, self.origin.format, self._schema)) for _, row in searchable
        ]
        verdicts: list[list[RowVerdict]] = [
            [None if verdict is None else False] for verdict in preliminary
        ]
        for searches in self._searches:
            by_view = [search.match_rows(parsed) for search in searches]
            for position, (index, _) in enumerate(searchable):
                # Without a view of the features, a row is unknown.
                verdicts[index] += [matched[position] for matched in by_view] or [None]
        return list(map(_match_any, verdicts))

    @staticmethod
    def _prejudge(row: QuarantineLine | None) -> RowVerdict:
        """Return True for a row to search, False for an empty one, None for an unreadable one."""
        if row is None or row.is_file:
            return None
        if not row.content:
            return False
        return None if row.is_damage else True


def _match_any(verdicts: Sequence[RowVerdict]) -> RowVerdict:
    """Combine several verdicts on a row."""
    if any(verdicts):
        return True
    return None if None in verdicts else False


def list_quarantine_copies(
    history: DatasetHistory, files: Iterable[QuarantineFile]
) -> Iterator[ResidualCopy]:
    """Yield the quarantine files that hold erased rows, or may."""
    for file in files:
        count = len(file.matches)
        if not count:
            yield make_uncertain_copy(history, file)
            continue
        more = f", and {len(file.uncertain):,} cannot be searched" if file.uncertain else ""
        yield ResidualCopy(
            "quarantine",
            object_uri(history.store, file.name),
            f"{count:,} of its lines {'has' if count == 1 else 'have'} erased records{more}",
            "the erase was stopped: run it again",
        )


def make_uncertain_copy(history: DatasetHistory, file: QuarantineFile) -> ResidualCopy:
    """Return the copy of a quarantine file with lines that cannot be searched."""
    return ResidualCopy(
        "quarantine",
        object_uri(history.store, file.name),
        f"{len(file.uncertain):,} of its lines cannot be searched",
        "inspect it, or erase again with --quarantine (quarantine=True), which removes such lines "
        "too",
        (("erase", history.dataset, "--where", "PREDICATE", "--quarantine"),),
        certain=False,
    )


_MAX_ROUNDS = 8
_MAX_SPANS = 16_384
"""An entry has at most so many spans of lines. With more, only the same erase can be finished."""
Spans = tuple[tuple[int, int], ...]


def remove_lines(
    history: DatasetHistory,
    files: Iterable[QuarantineFile],
    parameters: EraseParameters,
    *,
    uncertain: bool,
) -> int:
    """Remove lines from quarantine files, and return how many.

    `parameters` are those of the entries. Removals of stopped erases are completed. Raises
    ConflictError if other writers do not complete theirs.
    """
    by_version: dict[StoredVersion, list[QuarantineFile]] = {}
    for file in files:
        by_version.setdefault(history.get_owner(_get_leaf(file.name)).version, []).append(file)
    count = sum(
        _remove_from_version(version, own, parameters, uncertain=uncertain)
        for version, own in by_version.items()
    )
    for version, file in _iter_earlier_removals(history):
        with suppress(ConflictError, SidecarMismatchError):  # the audit reports it
            _remove_from_version(version, [file], parameters, uncertain=uncertain)
    return count


def _iter_earlier_removals(
    history: DatasetHistory,
) -> Iterator[tuple[StoredVersion, QuarantineFile]]:
    """Yield the files that earlier erases rewrote, with no more lines to remove."""
    for owner in history.versions.values():
        rewrites = (entry.read(EraseParameters).rewrites for entry in owner.entries)
        for name in sorted({name for names in rewrites for name in names}):
            if name.endswith(REFUSED):
                path = owner.sidecars.path(name)
                yield owner.version, QuarantineFile(path, frozenset(), frozenset())


def _remove_from_version(
    version: StoredVersion,
    files: Sequence[QuarantineFile],
    parameters: EraseParameters,
    *,
    uncertain: bool,
) -> int:
    """Remove lines from the files of a version until nothing is left to do."""
    count = 0
    for _ in range(_MAX_ROUNDS):
        version.refresh()
        with suppress(ConflictError):
            planned = (_plan_removal(version, file, uncertain=uncertain) for file in files)
            removals = [removal for removal in planned if removal is not None]
            if not removals:
                return count
            _commit(version, removals, parameters)
            for removal in removals:
                count += removal.execute(version.store)
    raise make_rewrite_conflict(version.store, files[0].name)


@dataclass(frozen=True, slots=True)
class LineRemoval:
    """Lines to remove from a quarantine file.

    `pending` are committed removals that the file lacks: for each, the spans of lines, by their
    numbers in the file before it. `lines` are then removed from the file with the digest `before`;
    the result has the digest `after`. `since` is the entry with the latest digest. `receipts` quote
    the lines: their content before and after, by path.
    """

    path: str
    pending: tuple[Spans, ...]
    lines: Spans
    before: str
    after: str
    since: int | None
    receipts: Mapping[str, tuple[bytes, bytes]]

    def execute(self, store: Store) -> int:
        """Replace the files, whose digests are committed, and count the removed lines.

        Receipts come first: the remaining lines show that a stopped erase is incomplete.
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


def _plan_removal(
    version: StoredVersion, file: QuarantineFile, *, uncertain: bool
) -> LineRemoval | None:
    """Plan the removal of lines from a file; None if there is nothing to do.

    Raises SidecarMismatchError for a file or receipt that differs from every committed one, and
    ConflictError if the file changes meanwhile, or if its pending removals are unknown.
    """
    store, name = version.store, _get_leaf(file.name)
    if store.info(file.name) is None:
        return None
    sidecars = SidecarReader(version)
    committed = sidecars.digests([name]).get(name)
    digest = _sha256(b"".join(group) for group in iter_line_groups(store, file.name))
    pending = _list_pending(version, file.name, digest) if digest != (committed or digest) else ()
    removed = file.matches | (file.uncertain if uncertain else frozenset())
    raw, before, after = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    numbers: list[int] = []
    number = 0
    cuts = [_LineCutter(spans) for spans in pending]
    for group in iter_line_groups(store, file.name):
        raw.update(b"".join(group))
        for line in _remove_lines(group, cuts):
            before.update(line)
            if get_line_digest(line) in removed:
                numbers.append(number)
            else:
                after.update(line)
            number += 1
    if raw.hexdigest() != digest or before.hexdigest() != (committed or digest):
        raise make_rewrite_conflict(store, file.name)
    if not numbers and not pending:
        return None
    return LineRemoval(
        file.name,
        pending,
        tuple(collapse_rows(np.array(numbers, np.int64))),
        before.hexdigest(),
        after.hexdigest(),
        version.state.sidecars.get(get_name_key(name)),
        dict(_iter_cleared_receipts(sidecars, file.name)),
    )


def _list_pending(version: StoredVersion, path: str, digest: str) -> tuple[Spans, ...]:
    """Return the committed removals that a file with this digest lacks."""
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
    version: StoredVersion, removals: Sequence[LineRemoval], parameters: EraseParameters
) -> None:
    """Commit the digests of files that are about to be rewritten.

    Readers accept both the old and the new file, so that an erase may stop here. Raises
    ConflictError if another erase committed a digest of such a file since it was read.
    """
    rewrites: dict[str, SidecarRewrite] = {}
    new: Json = {}
    for removal in removals:
        if removal.lines:
            name = _get_leaf(removal.path)
            spans = tuple(map(list, removal.lines)) if len(removal.lines) <= _MAX_SPANS else None
            new[name] = removal.after
            rewrites[name] = SidecarRewrite(before=removal.before, lines=spans)
        for path, (before, after) in removal.receipts.items():
            name = _get_leaf(path)
            new[name] = _sha256([after])
            rewrites[name] = SidecarRewrite(before=_sha256([before]))
    known = SidecarReader(version).digests(new)
    new = {name: digest for name, digest in new.items() if known.get(name) != digest}
    if new:
        changed = replace(parameters, rewrites={name: rewrites[name] for name in new})
        since = {_get_leaf(removal.path): removal.since for removal in removals}
        version.commit(RewriteSidecars(new, changed.to_dict(), since))


def _sha256(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


class _LineCutter:
    """Filter that removes numbered lines from groups of lines."""

    def __init__(self, spans: Spans) -> None:
        self._firsts = np.array([first for first, _ in spans], np.int64)
        self._lasts = np.array([last for _, last in spans], np.int64)
        self._number = 0

    def remove_from(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the next lines without the removed ones."""
        numbers = np.arange(self._number, self._number + len(lines))
        self._number += len(lines)
        span = np.searchsorted(self._firsts, numbers, "right") - 1
        is_cut = (span >= 0) & (numbers <= self._lasts[span]) if len(self._lasts) else span >= 0
        return [line for line, cut in zip(lines, is_cut.tolist(), strict=True) if not cut]


def _remove_lines(lines: Sequence[bytes], cuts: Sequence[_LineCutter]) -> Sequence[bytes]:
    """Return the lines that remain after several removals."""
    for cut in cuts:
        lines = cut.remove_from(lines)
    return lines


def _get_leaf(path: str) -> str:
    return path.rpartition("/")[2]


def _iter_cleared_receipts(
    sidecars: SidecarReader, quarantine: str
) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Yield the receipts that name a quarantine file, with and without the reasons they quote.

    The message of an exception may contain record values. There may be two receipts: on an object
    store a large shard has a random name, and its receipt is also stored under the derived name.
    """
    stem = get_quarantine_stem(quarantine)
    first = ".".join(stem.split(".")[:2])
    names = [f"{name}.tfrecord{RECEIPT}" for name in dict.fromkeys((stem, first))]
    for name, data in zip(names, sidecars.read(names), strict=True):
        receipt = parse_receipt(data)
        if data and receipt is not None and receipt.reasons and receipt.quarantine == quarantine:
            yield sidecars.path(name), (data, replace(receipt, reasons=()).encode())
