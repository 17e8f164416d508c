"""Many processes commit to one version at once: nothing is lost, and nothing lands twice."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.model import Totals
from shardline.log.publication import find_latest_published
from shardline.log.state import content_digest
from shardline.operations.verify_log import verify_log
from tests.log import racers, versions
from tests.log.versions import NAME, names_at, shard_name, source_of
from tests.sampling import runs_whole_sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.log.entry import Entry
    from shardline.log.state import State

RACERS, COMMITS = (16, 100) if runs_whole_sweeps() else (4, 20)


def write_shards(version: Version, labels: list[str]) -> None:
    """Put files of shards where they belong, unsynced."""
    for label in labels:
        path = version.store.local_path(version.shard_name(shard_name(label)))
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(label.encode())


def entries_of(root: Path) -> list[tuple[State, Entry]]:
    """Every entry with a copy of the version as it stood after it."""
    return [(state.fork(), entry) for state, entry in Version(root, NAME).log.replay()]


@pytest.mark.sweep
def test_many_processes_append_at_once(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    labels = [racers.own_label(w, n) for w in range(RACERS) for n in range(COMMITS)]
    write_shards(version, labels)
    told = racers.race(tmp_path, ["append"] * RACERS, COMMITS)

    committed = [one["entry"] for racer in told for one in racer]
    assert sorted(committed) == list(range(2, 2 + len(labels)))
    files = sorted((tmp_path / NAME / "log").glob("*.json"))
    numbers = [int(file.stem) for file in files if file.stem.isdigit()]
    assert numbers == list(range(1, 2 + len(labels)))
    landed: Counter[str] = Counter()
    runs = []
    for _, entry in Version(tmp_path, NAME).log.replay():
        landed.update(source.key for source in entry.sources)
        runs.append(entry.commit_info.run)
    assert landed == Counter(source_of(label).key for label in labels)
    assert sum(one != other for one, other in pairwise(runs)) > RACERS, "they did not race"
    state = Version(tmp_path, NAME).state
    assert sorted(names_at(state, state.snapshot)) == sorted(map(shard_name, labels))
    assert verify_log(version.log).problems == ()


def test_what_a_racer_is_told_is_what_the_log_says(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    labels = [racers.own_label(w, n) for w in range(4) for n in range(10)]
    write_shards(version, labels)
    told = racers.race(tmp_path, ["append"] * 4, 10)
    for worker, racer in enumerate(told):
        for one in racer:
            entry = version.log.entry(one["entry"])
            assert entry.commit_info.run == f"racer {worker}"
            assert entry.sources == (source_of(racers.own_label(worker, one["number"])),)


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads take turns at every moment, so that a race shows."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_share_an_open_version_read_the_same(tmp_path: Path) -> None:
    labels = [f"shard {number}" for number in range(100)]
    changes = [versions.append_of(label) for label in labels]
    store = versions.grow(versions.make_version(tmp_path), changes).store
    snapshots = range(1, len(labels) + 1)
    for _ in range(10):
        version = Version(store, NAME)
        assert version.exists
        together = Barrier(8)

        def read(first: int, version: Version = version, together: Barrier = together) -> None:
            together.wait()
            for number in snapshots[first::8]:
                snapshot = version.snapshot(number)
                assert snapshot.totals.shards == number
                assert len(snapshot.shards) == number
                assert version.at(snapshot.time).number >= number

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(read, range(8)))


@pytest.mark.usefixtures("eager_threads")
def test_threads_that_share_an_open_version_commit_everything_once(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    labels = [racers.own_label(w, n) for w in range(8) for n in range(10)]
    write_shards(version, labels)

    def commit(label: str) -> None:
        assert version.commit(versions.append_of(label)) is not None
        snapshot = version.latest()
        assert shard_name(label) in {shard.name for shard in snapshot.shards}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(commit, labels))
    assert sorted(versions.held(version)) == sorted(labels)
    assert verify_log(version.log).problems == ()


@pytest.mark.sweep
def test_every_kind_of_commit_at_once(tmp_path: Path) -> None:
    workers, commits = (8, 40) if runs_whole_sweeps() else (4, 20)
    version = versions.make_version(tmp_path)
    every = [(w, n) for w in range(workers) for n in range(commits)]
    write_shards(version, [racers.own_label(w, n) for w, n in every])
    write_shards(version, [racers.rebuilt_label(w, n) for w, n in every])
    write_shards(version, [racers.shared_label(n) for n in range(racers.SHARED)])
    versions.append(version, "first")
    told = racers.race(tmp_path, ["mixed"] * workers, commits)

    outcomes = Counter((one["asked"], "refused" in one) for racer in told for one in racer)
    for kind in racers.KINDS:
        assert outcomes[kind, False] > 0, kind
    for kind in ("append", "append_shared", "attest", "tag"):
        assert outcomes[kind, True] == 0, f"{kind} never conflicts"

    landed: Counter[str] = Counter()
    committed = 0
    before: State | None = None
    for state, entry in entries_of(tmp_path):
        if entry.operation == "append":
            landed.update(source.key for source in entry.sources)
        committed += entry.commit_info.run.startswith("racer")
        shards = [interval.shard for interval in state.shard_history.at(state.snapshot)]
        assert entry.totals == Totals.of(shards), entry.number
        if entry.snapshot:
            assert entry.content == content_digest(entry.fingerprint, shards), entry.number
        assert entry.published == find_latest_published(state), entry.number
        assert len({shard.name for shard in shards}) == len(shards), entry.number
        if before is not None:
            assert entry.previous == before.digest
        before = state
    assert committed == sum(one.get("entry") is not None for racer in told for one in racer)
    asked = [
        source_of(racers.own_label(worker, one["number"])).key
        for worker, racer in enumerate(told)
        for one in racer
        if one["asked"] == "append"
    ]
    shared = {
        source_of(racers.shared_label(one["number"] % racers.SHARED)).key
        for racer in told
        for one in racer
        if one["asked"] == "append_shared"
    }
    assert landed == Counter([source_of("first").key, *asked, *shared])
    assert verify_log(version.log).problems == ()
    assert versions.facts_of(Version(tmp_path, NAME).state) == versions.facts_of(
        entries_of(tmp_path)[-1][0]
    )
