"""Quarantine files hold the content of rows that were refused: some of them may be of those meant.

What extend or migrate refused is a record of their base, and told by its number where the base was
searched. Any other row is parsed as its source was, and asked by the same condition. A row that
cannot be parsed is doubtful.
"""

from __future__ import annotations

import hashlib
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shardline.errors import ConflictError, StorageError
from shardline.hints import Hint
from shardline.log.parameters import AppendParameters, EntryParameters
from shardline.operations.erasure.record_search import list_views
from shardline.operations.erasure.residual_copies import ResidualCopy
from shardline.operations.erasure.row_search import RowSearch, guess_format, parse_line
from shardline.provenance.dataset_history import VersionHistory
from shardline.storage import object_uri

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from shardline.operations.erasure.condition import Condition
    from shardline.operations.erasure.record_search import SearchView
    from shardline.operations.erasure.row_search import QuarantineLine, RowVerdict
    from shardline.provenance.dataset_history import DatasetHistory
    from shardline.provenance.related_rows import ShardRows
    from shardline.schema.schema import Schema
    from shardline.storage import Store

_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QuarantineFile:
    """A quarantine file with lines that are meant, or of which that cannot be told (`doubtful`).

    Both are digests of lines: another erase may strike out others meanwhile. `sources` are those
    that the meant ones came from, `doubtful_sources` those of the others.
    """

    name: str
    meant: frozenset[bytes]
    doubtful: frozenset[bytes]
    sources: frozenset[str] = frozenset()
    doubtful_sources: frozenset[str] = frozenset()


def search_quarantine(
    history: DatasetHistory,
    conditions: Sequence[Condition],
    rows: ShardRows,
    searched: Collection[str] | None = None,
) -> Iterator[QuarantineFile]:
    """The committed quarantine files of a dataset that hold something of what is meant, or may.

    `rows` are the records that are meant of the shards that were `searched`, of all shards if that
    is None. A file that is not committed is left to its writer, and to vacuum. Raises
    SidecarMismatchError for a file that differs from the committed file.
    """
    makers = dict(_index_origins(history))
    for file in history.store.list(f"{history.dataset}/quarantine"):
        if file.name not in history.quarantine or not file.size:
            continue
        stem = get_quarantine_stem(file.name)
        owner = history.versions.get(stem.split(".", 1)[0])
        made = makers.get(file.name) or makers.get(f"{stem}.tfrecord") or _QuarantineOrigin()
        if owner is None:
            continue
        owner.sidecars.compare(f"{stem}.jsonl")
        with closing(
            _QuarantineSearcher(history, owner, made, conditions, rows, searched)
        ) as asking:
            found = _search_file(history.store, file.name, asking)
        if found.meant or found.doubtful:
            yield found


def search_uncommitted_quarantine(
    history: DatasetHistory, name: str, condition: Condition
) -> QuarantineFile:
    """What a quarantine file holds that no entry names; its version must have a log."""
    owner = history.versions[get_quarantine_stem(name).split(".", 1)[0]]
    with closing(
        _QuarantineSearcher(history, owner, _QuarantineOrigin(), [condition], {}, ())
    ) as asking:
        return _search_file(history.store, name, asking)


def get_quarantine_stem(name: str) -> str:
    """Return the name of a quarantine file without its folder and suffix."""
    return name.rpartition("/")[2].removesuffix(".jsonl")


def _search_file(store: Store, name: str, asking: _QuarantineSearcher) -> QuarantineFile:
    meant, doubtful = set[bytes](), set[bytes]()
    sources: dict[bool, set[str]] = {True: set(), False: set()}
    for lines in iter_line_groups(store, name):
        parsed = [parse_line(line) for line in lines]
        for line, row, verdict in zip(lines, parsed, asking.verdicts(parsed), strict=True):
            if verdict is not False:
                (meant if verdict else doubtful).add(get_line_digest(line))
                sources[bool(verdict)] |= set() if row is None else {row.source}
    return QuarantineFile(
        name,
        frozenset(meant),
        frozenset(doubtful),
        frozenset(sources[True]),
        frozenset(sources[False]),
    )


def iter_line_groups(store: Store, name: str) -> Iterator[list[bytes]]:
    """The lines of an object with their ends, as many at a time as fit into a few megabytes.

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
    """Return the digest by which a line is known."""
    return hashlib.sha256(line).digest()


@dataclass(frozen=True, slots=True)
class _QuarantineOrigin:
    """What is known of a quarantine file by the entry that names it.

    `base` is the shard whose records were refused, of a snapshot of the version `of`. `format` is
    the one that an append was given.
    """

    base: str | None = None
    of: str | None = None
    format: str | None = None


def _index_origins(history: DatasetHistory) -> Iterator[tuple[str, _QuarantineOrigin]]:
    """What entries tell of quarantine files: by the name of the file, or that of its shard."""
    for version in history.versions.values():
        for entry in version.entries:
            if entry.operation in {"extend", "migrate"}:
                of = entry.inputs[0].shown if entry.inputs else None
                for one, base in zip(entry.added, entry.bases, strict=False):
                    yield one.shard.name, _QuarantineOrigin(base, of)
            elif source_format := entry.read(AppendParameters).format:
                for rows in entry.read(EntryParameters).quarantine:
                    for name in rows.files:
                        yield name, _QuarantineOrigin(format=source_format)


@dataclass
class _QuarantineSearcher:
    """Asks the lines of one quarantine file."""

    history: DatasetHistory
    owner: VersionHistory
    made: _QuarantineOrigin
    conditions: Sequence[Condition]
    rows: ShardRows
    searched: Collection[str] | None
    _schema: Schema = field(init=False)
    _searches: list[list[RowSearch]] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        """Bind each condition to the features that the rows have."""
        one = self._version()
        self._schema = self.owner.version.schema if one is None else one.version.schema
        for condition in self.conditions:
            views: Sequence[SearchView] = (
                () if one is None else list_views(self.history, one, condition)
            )
            self._searches.append([RowSearch(self._schema, view, condition) for view in views])

    def _version(self) -> VersionHistory | None:
        """The version whose features the rows have."""
        if self.made.of is None:
            return self.owner
        dataset, _, name = self.made.of.partition("/")
        if dataset == self.history.dataset:
            return self.history.versions.get(name)
        version = self.history.index.version(self.made.of)
        return VersionHistory(version, ()) if version.exists else None

    def close(self) -> None:
        """End what the conditions have running."""
        for searches in self._searches:
            for search in searches:
                search.close()

    def verdicts(self, rows: Sequence[QuarantineLine | None]) -> list[RowVerdict]:
        """Whether lines are meant."""
        base = self.made.base
        if base is not None and (self.searched is None or base in self.searched):
            gone = set(self.rows.get(base, np.zeros(0, np.int64)).tolist())
            return [None if row is None else row.row in gone for row in rows]
        found = [self._by_itself(row) for row in rows]
        asked = [(row, at) for at, row in enumerate(rows) if row is not None and found[at]]
        some = [(row, guess_format(row, self.made.format, self._schema)) for row, _ in asked]
        told: list[list[RowVerdict]] = [[None if one is None else False] for one in found]
        for searches in self._searches:
            each = [search.of_rows(some) for search in searches]
            for number, (_, at) in enumerate(asked):
                # Without a view of the features nothing is known of a row.
                told[at] += [one[number] for one in each] or [None]
        return [_match_any(verdicts) for verdicts in told]

    @staticmethod
    def _by_itself(row: QuarantineLine | None) -> RowVerdict:
        """True if a row is to be asked, False if it holds nothing; None if it cannot be parsed."""
        if row is None or row.is_file:
            return None
        if not row.content:
            return False
        return None if row.is_damage else True


def _match_any(verdicts: Sequence[RowVerdict]) -> RowVerdict:
    """Whether a row is meant by one of several verdicts."""
    if any(verdicts):
        return True
    return None if None in verdicts else False


def list_quarantine_copies(
    history: DatasetHistory, files: Iterable[QuarantineFile]
) -> Iterator[ResidualCopy]:
    """The quarantine files that hold erased rows, or may: each once, by what is more certain."""
    for file in files:
        count = len(file.meant)
        if not count:
            yield make_uncertain_copy(history, file)
            continue
        more = f", and {len(file.doubtful):,} cannot be searched" if file.doubtful else ""
        yield ResidualCopy(
            "quarantine",
            object_uri(history.store, file.name),
            f"{count:,} of its lines {'is' if count == 1 else 'are'} of erased records{more}",
            "the erase was stopped: run it again",
        )


def make_uncertain_copy(history: DatasetHistory, file: QuarantineFile) -> ResidualCopy:
    """A quarantine file with lines of which it cannot be told whether they are meant."""
    return ResidualCopy(
        "quarantine",
        object_uri(history.store, file.name),
        f"{len(file.doubtful):,} of its lines cannot be searched",
        "look into it; or erase again with --quarantine (quarantine=True), which strikes out such "
        "lines too",
        (("erase", history.dataset, "--where", "PREDICATE", "--quarantine"),),
        certain=False,
    )
