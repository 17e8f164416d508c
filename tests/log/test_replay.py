"""Replay of random logs, compared with an independent implementation of it."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from shardline.errors import ConflictError, LogError, ShardlineError, TombstonedShardError
from shardline.log.append_change import Append, DismissSources, RejectSources
from shardline.log.changes import (
    AddTombstones,
    Attest,
    Create,
    Derive,
    EntryDraft,
    Reject,
    Require,
    Restore,
    SetPin,
    SetTag,
    build_entry,
    may_publish,
)
from shardline.log.checkpoint import matches_replay
from shardline.log.entry import Entry, read_entry
from shardline.log.model import Added, Attestation, Checks, CommitInfo, Source, Totals
from shardline.log.parameters import Dismissal, SourceProblem
from shardline.log.replay import Replay
from shardline.log.state import State, get_name_key
from tests.log import replay_oracle
from tests.log.versions import CHECKS, SCHEMA, WITH_SNAPSHOT_CHECK, rebuild_of, shard_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardline.log.changes import Change
    from shardline.log.model import Shard
    from shardline.log.publication import ReplayedShard, ReplayedSnapshot

_MAX_LIVE = 24
_SHARD_COLUMNS = (
    *("shard", "since", "until", "added_entry", "passed", "failed", "ever_passed", "failed_entry"),
)


class History:
    """A random log: `commit` adds an entry."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._state = State("digits", "v1")
        self._time = datetime(2026, 1, 1, tzinfo=UTC)
        self._labels = 0
        self._rejected: list[tuple[Source, int]] = []

    def __iter__(self) -> Iterator[Entry]:
        """Entries without an end."""
        yield self._commit(Create(SCHEMA, CHECKS)) or pytest.fail("not created")
        while True:
            try:
                entry = self._commit(self._draw())
            except (ConflictError, TombstonedShardError, LogError):
                continue
            if entry is not None:
                yield entry

    def _commit(self, change: Change) -> Entry | None:
        self._time += timedelta(seconds=self._random.choice([0, 1, 3600]))
        built = build_entry(
            self._state, change, id="0" * 32, now=self._time, commit_info=CommitInfo("test")
        )
        if built is None:
            return None
        self._state, entry, data = built
        if entry.operation == "reject" and entry.rejects is None:
            self._rejected += [(source, entry.number) for source in entry.sources]
        return read_entry("digits/v1", entry.number, data)

    def _draw(self) -> Change:  # noqa: C901, PLR0911 - one case per change
        state, random = self._state, self._random
        live = [interval.shard for interval in state.shard_history.at(state.snapshot)]
        names = [shard.name for shard in live]
        if len(live) > _MAX_LIVE:
            return Derive(head=state.snapshot, removed=names[4:], added=(), operation="extend")
        some = tuple(sorted(random.sample(names, min(len(names), random.randint(1, 4)))))
        passed = random.random() < 0.8
        snapshot = random.randint(max(1, state.snapshot - 6), max(1, state.snapshot))
        kind = random.choice(_KINDS)
        if not live or kind == "append":
            return self._append()
        if kind == "attest":
            checks = random.sample([*CHECKS.shard, "volume"], 2)
            return Attest(tuple(Attestation(check, passed, some) for check in checks))
        if kind == "attest-snapshot":
            content = state.snapshot_history.get_row(snapshot).content
            return Attest((Attestation("counts", passed, content=content),))
        if kind == "rebuild":
            first = random.randrange(len(names))
            change = rebuild_of("", self._label())
            return replace(change, removed=names[first : first + 3])
        if kind == "erase":
            return Derive(
                head=state.snapshot, removed=some, added=(), operation="erase", tombstones=some
            )
        if kind == "restore":
            return Restore(snapshot, state.snapshot)
        if kind == "reject":
            return Reject(snapshot, added=tuple(live[-2:]), rejected=some, sources=())
        if kind == "tag":
            return SetTag(random.choice("ab"), random.choice([snapshot, None]))
        if kind == "pin":
            return SetPin(random.choice("ab"), random.choice([snapshot, None]))
        if kind == "require":
            return Require(random.choice([CHECKS, WITH_SNAPSHOT_CHECK, Checks(), Checks(("x",))]))
        if kind == "vacuum":
            old = [interval.shard.name for interval in state.shard_history.at(snapshot)]
            return AddTombstones(lambda _: [name for name in old if name not in names])
        return self._reject_or_dismiss()

    def _append(self) -> Change:
        labels = [self._label() for _ in range(self._random.randint(1, 3))]
        sources = [
            Source(path=f"/in/{self._random.randrange(50)}", size=1, sha256=shard_of(label).sha256)
            for label in labels
        ]
        shards = [
            replace(shard_of(label), source=source.key)
            for label, source in zip(labels, sources, strict=True)
        ]
        return Append(shards=shards, sources=sources)

    def _reject_or_dismiss(self) -> Change:
        if self._rejected and self._random.random() < 0.5:
            return DismissSources([Dismissal(*self._random.choice(self._rejected))])
        path, sha256 = f"/in/{self._random.randrange(50)}", shard_of(self._label()).sha256
        source = Source(path=path, size=1, sha256=sha256)
        problem = SourceProblem(source=source.key, check="schema", reason="x")
        return RejectSources([source], [problem])

    def _label(self) -> str:
        self._labels += 1
        return f"{self._labels}"


_KINDS = (
    *["append"] * 8,
    *["attest"] * 12,
    *["attest-snapshot"] * 3,
    *("rebuild", "erase", "restore", "reject", "tag", "pin", "require", "vacuum", "sources"),
)


class LongHistory:
    """A random log of which each entry costs what it changes: the oracle computes the claims."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._oracle = replay_oracle.Replay("digits", "v1")
        self._time = datetime(2026, 1, 1, tzinfo=UTC)
        self._labels = 0

    def __iter__(self) -> Iterator[Entry]:
        """Entries without an end."""
        yield self._seal(EntryDraft(operation="create", schema=SCHEMA, checks=CHECKS))
        while True:
            yield self._seal(self._draw())

    def _seal(self, draft: EntryDraft) -> Entry:
        oracle, self._time = self._oracle, self._time + timedelta(seconds=1)
        schema = draft.schema or oracle.schema
        entry = Entry(
            dataset="digits",
            version="v1",
            number=oracle.number + 1,
            id="0" * 32,
            previous=oracle.digest,
            time=self._time,
            commit_info=CommitInfo("test"),
            fingerprint=None if schema is None else schema.fingerprint,
            published=oracle.published,
            snapshot=oracle.snapshot + bool(draft.added or draft.removed),
            **{field.name: getattr(draft, field.name) for field in fields(draft)},
        )
        oracle.take(entry)
        published = oracle.published
        if may_publish(entry, oracle.checks):
            published = oracle.publication.latest()
        entry = replace(
            entry, totals=oracle.totals, content=oracle.content, published=published
        ).sealed()[0]
        oracle.stand(entry)
        return entry

    def _draw(self) -> EntryDraft:
        random, oracle = self._random, self._oracle
        names = [row.shard.name for row in oracle.live]
        kind = random.choice(_LONG_KINDS)
        if len(names) < 2 or kind == "append":
            shards = [self._make_shard() for _ in range(random.randint(1, 3))]
            sources = tuple(Source(batch=shard.name) for shard in shards)
            added = tuple(
                Added(replace(shard, source=source.key))
                for shard, source in zip(shards, sources, strict=True)
            )
            return EntryDraft(operation="append", added=added, sources=sources)
        if kind == "attest":
            some = tuple(sorted(random.sample(names, 2)))
            passed = random.random() < 0.9
            return EntryDraft(
                operation="attest",
                attestations=tuple(Attestation(check, passed, some) for check in CHECKS.shard),
            )
        if kind == "rebuild":
            first = random.randrange(len(names))
            added = (Added(self._make_shard(), first),)
            return EntryDraft(
                operation="rebuild", added=added, removed=tuple(names[first : first + 40])
            )
        return self._restore(random.randint(max(1, oracle.snapshot - 4), oracle.snapshot))

    def _restore(self, snapshot: int) -> EntryDraft:
        oracle = self._oracle
        target = [row.shard for row in oracle.at(snapshot)]
        live = {row.shard.name for row in oracle.live}
        added = tuple(Added(shard, at) for at, shard in enumerate(target) if shard.name not in live)
        removed = tuple(live - {shard.name for shard in target})
        restores = snapshot if added or removed else None
        operation = "restore" if restores else "attest"
        return EntryDraft(
            operation=operation, added=added, removed=tuple(sorted(removed)), restores=restores
        )

    def _make_shard(self) -> Shard:
        self._labels += 1
        return shard_of(f"{self._labels}")


_LONG_KINDS = (*["append"] * 40, *["attest"] * 55, *["rebuild"] * 4, "restore")


def _list_shards(rows: list[ReplayedShard]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, name) for name in _SHARD_COLUMNS) for row in rows]


def _list_snapshots(rows: list[ReplayedSnapshot]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(row, name) for name in row.__slots__) for row in rows]


def assert_same(replay: Replay, oracle: replay_oracle.Replay) -> None:
    """Compare everything that the entries so far amount to."""
    for name in ("number", "digest", "time", "schema", "policies", "bits", "published"):
        assert getattr(replay, name) == getattr(oracle, name), name
    for name in ("totals", "content", "tags", "pins", "uses_sidecars", "snapshot"):
        assert getattr(replay, name) == getattr(oracle, name), name
    assert _list_shards(replay.live) == _list_shards(oracle.live)
    assert _list_shards(replay.rows) == _list_shards(oracle.rows)
    assert _list_snapshots(replay.snapshots) == _list_snapshots(oracle.snapshots)
    assert dict(replay.sources.items()) == oracle.sources
    assert dict(replay.open_sources.items()) == oracle.open_sources
    names = {get_name_key(name): number for name, number in oracle.shard_names.items()}
    assert dict(replay.shard_names.items()) == names
    assert replay.appended_sources.to_table().equals(oracle.appended_sources.to_table())


def check_history(seed: int, entries: int) -> None:
    """Replay a random log, in both ways and as columns."""
    history, state = History(seed), State("digits", "v1")
    replay, oracle = Replay("digits", "v1"), replay_oracle.Replay("digits", "v1")
    for entry in history:
        assert replay.take(entry) == oracle.take(entry) == []
        state.apply(entry)
        if entry.number in {entries // 2, entries}:
            assert_same(replay, oracle)
            assert matches_replay(replay, state)
        if entry.number == entries:
            return


@pytest.mark.parametrize("seed", range(4))
def test_random_history_matches_oracle(seed: int) -> None:
    check_history(seed, 400)


@pytest.mark.sweep
def test_long_random_history_matches_oracle() -> None:
    replay, oracle = Replay("digits", "v1"), replay_oracle.Replay("digits", "v1")
    for entry in itertools.islice(LongHistory(16), 20_000):
        assert replay.take(entry) == oracle.take(entry) == []
    assert_same(replay, oracle)


_FORGERIES: dict[str, Any] = {
    "totals": Totals(7, 7, 7),
    "content": "0" * 64,
    "fingerprint": "0" * 64,
    "published": 1,
    "removed": ("v1.00000000000000000000000000000000.tfrecord",),
    "number": 3,
    "time": datetime(2020, 1, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("field", _FORGERIES)
def test_forged_claim_is_found_as_by_oracle(field: str) -> None:
    entries = list(zip(range(80), History(3), strict=False))
    for number in range(2, 80, 7):
        replay, oracle = Replay("digits", "v1"), replay_oracle.Replay("digits", "v1")
        for _, entry in entries[:number]:
            assert replay.take(entry) == oracle.take(entry) == []
        forged = replace(entries[number][1], **{field: _FORGERIES[field]})
        found = [_take(one, forged) for one in (replay, oracle)]
        assert found[0] == found[1]
        assert found[0] or field in {"published", "number"}


def _take(replay: Replay | replay_oracle.Replay, entry: Entry) -> object:
    try:
        return replay.take(entry)
    except ShardlineError as error:
        return error.code, error.message
