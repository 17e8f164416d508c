"""Storage that answers late, wrongly or not at all: nothing is lost, and nothing lands twice."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardline.api import Version
from shardline.errors import (
    CommitStateUnknownError,
    ConflictError,
    ObjectExistsError,
    SnapshotNotFoundError,
    StorageError,
)
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.operations.verify_log import verify_log
from shardline.storage import open_store
from tests.errors import raises
from tests.log import versions
from tests.log.versions import NAME, SCHEMA, held, shard_name
from tests.storage.faulty import Fault, FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.log.entry import Entry
    from shardline.storage import Store
    from tests.storage.faulty import Step

TRIES = 5
"""How often the log asks a store that does not say what became of an entry."""
_memories = count()


class RetryingStore(FaultyStore):
    """A store whose client library asks again by itself after the answer was lost."""

    def create(self, name: str, data: bytes) -> None:
        """Put it, and put it again: the second answer is that it is there."""
        self.inner.create(name, data)
        super().create(name, data)


def new_store() -> Store:
    return open_store(f"memory://lost-replies-{next(_memories)}")


def on(inner: Store, script: dict[tuple[str, int], Step]) -> Version:
    """A version that was opened before anything goes wrong; the script counts from then on."""
    store = FaultyStore(inner)
    version = Version(store, NAME)
    assert version.exists
    store.check_conditions(version.log.folder)
    store.counts.clear()
    store.script = dict(script)
    return version


def append(version: Version, label: str) -> Entry | None:
    """Append a shard whose file was written without trouble."""
    inner = Version(inner_of(version), NAME)
    versions.write_shard(inner, label, source=versions.source_of(label))
    return version.commit(versions.append_of(label))


def inner_of(version: Version) -> Store:
    assert isinstance(version.store, FaultyStore)
    return version.store.inner


def rival(inner: Store, label: str) -> Callable[[], None]:
    """Someone else who appends at the worst moment."""

    def act() -> None:
        versions.append(Version(inner, NAME), label)

    return act


@pytest.fixture
def inner() -> Store:
    store = new_store()
    versions.append(versions.make_version(store), "a")
    return store


def assert_whole(inner: Store, *labels: str) -> None:
    fresh = Version(inner, NAME)
    assert held(fresh) == list(labels)
    assert verify_log(fresh.log).problems == ()


ONE_COMMIT: dict[str, dict[tuple[str, int], Step]] = {
    "the reply is lost": {("create", 1): Fault.REPLY_LOST},
    "a conflict is told, and nothing is stored": {("create", 1): Fault.CONFLICT},
    "four conflicts": {("create", n): Fault.CONFLICT for n in range(1, TRIES)},
    "the connection is reset before anything is stored": {("create", 1): Fault.RESET},
    "four resets": {("create", n): Fault.RESET for n in range(1, TRIES)},
    "a reset and then a lost reply": {("create", 1): Fault.RESET, ("create", 2): Fault.REPLY_LOST},
    "the reply is lost, and so is the first look": {
        ("create", 1): Fault.REPLY_LOST,
        ("read_many", 1): Fault.FAILED,
    },
    "the reply is lost, the look fails, and the next try is refused with our own entry there": {
        ("create", 1): Fault.REPLY_LOST,
        ("read_many", 1): Fault.RESET,
        ("create", 2): Fault.CONFLICT,
    },
    "the reply is lost, and four looks fail": {
        ("create", 1): Fault.REPLY_LOST,
        **{("read_many", n): Fault.FAILED for n in range(1, TRIES)},
    },
}


@pytest.mark.parametrize("script", ONE_COMMIT.values(), ids=ONE_COMMIT)
def test_a_commit_goes_through(inner: Store, script: dict[tuple[str, int], Step]) -> None:
    version = on(inner, script)
    entry = append(version, "b")
    assert entry is not None
    assert entry.number == 3
    assert Version(inner, NAME).log.entry(3) == entry
    assert version.state.number == 3
    assert_whole(inner, "a", "b")


def test_our_own_entry_behind_a_refusal_is_ours(inner: Store) -> None:
    version = Version(RetryingStore(inner), NAME)
    entry = append(version, "b")
    assert entry is not None
    assert Version(inner, NAME).log.entry(3) == entry
    assert_whole(inner, "a", "b")


def test_a_store_that_says_it_failed_has_stored_nothing_and_the_same_again_works(
    inner: Store,
) -> None:
    version = on(inner, {("create", 1): Fault.FAILED})
    with pytest.raises(StorageError, match="503"):
        append(version, "b")
    assert_whole(inner, "a")
    assert append(version, "b") is not None
    assert_whole(inner, "a", "b")


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.RESET])
def test_a_store_that_never_answers_is_given_up_and_the_same_again_works(
    inner: Store, fault: Fault
) -> None:
    version = on(inner, {("create", n): fault for n in range(1, TRIES + 1)})
    with raises(CommitStateUnknownError, "commit-state-unknown", version=NAME):
        append(version, "b")
    assert_whole(inner, "a")
    assert append(version, "b") is not None
    assert_whole(inner, "a", "b")


def test_an_entry_that_nobody_could_see_is_not_committed_twice(inner: Store) -> None:
    script: dict[tuple[str, int], Step] = {("create", 1): Fault.REPLY_LOST}
    script.update({("read_many", n): Fault.FAILED for n in range(1, TRIES + 1)})
    version = on(inner, script)
    with pytest.raises(CommitStateUnknownError):
        append(version, "b")
    assert append(version, "b") is None
    assert version.state.number == 3
    assert_whole(inner, "a", "b")


def test_a_rival_wins_the_number(inner: Store) -> None:
    version = on(inner, {("create", 1): rival(inner, "r")})
    entry = append(version, "b")
    assert entry is not None
    assert entry.number == 4
    assert_whole(inner, "a", "r", "b")


def test_a_rival_lands_the_same_source(inner: Store) -> None:
    version = on(inner, {("create", 1): rival(inner, "b")})
    assert append(version, "b") is None
    assert_whole(inner, "a", "b")


def test_a_rival_wins_the_number_while_our_request_is_lost(inner: Store) -> None:
    version = on(inner, {("create", 1): Fault.RESET, ("read_many", 1): rival(inner, "r")})
    entry = append(version, "b")
    assert entry is not None
    assert entry.number == 4
    assert_whole(inner, "a", "r", "b")


def test_a_rival_commits_behind_us_before_we_look(inner: Store) -> None:
    version = on(inner, {("create", 1): Fault.REPLY_LOST, ("read_many", 1): rival(inner, "r")})
    entry = append(version, "b")
    assert entry is not None
    assert entry.number == 3
    version.refresh()
    assert held(version) == ["a", "b", "r"]
    assert_whole(inner, "a", "b", "r")


def test_a_race_that_is_lost_many_times_is_won_at_last(inner: Store) -> None:
    version = on(inner, {("create", n): rival(inner, f"r{n}") for n in range(1, 12)})
    entry = append(version, "b")
    assert entry is not None
    assert entry.number == 14
    assert_whole(inner, "a", *(f"r{n}" for n in range(1, 12)), "b")


def test_reading_what_others_committed_fails_after_a_lost_race(inner: Store) -> None:
    version = on(inner, {("create", 1): rival(inner, "r"), ("read_many", 2): Fault.FAILED})
    with pytest.raises(StorageError):
        append(version, "b")
    assert_whole(inner, "a", "r")
    assert append(version, "b") is not None
    assert_whole(inner, "a", "r", "b")


def test_a_creation_whose_reply_is_lost_creates_once() -> None:
    inner = new_store()
    store = FaultyStore(inner)
    version = Version(store, NAME)
    store.check_conditions(version.log.folder)
    store.counts.clear()
    store.script[("create", 1)] = Fault.REPLY_LOST
    entry = version.create(SCHEMA)
    assert entry is not None
    assert version.create(SCHEMA) is None
    assert Version(inner, NAME).state.number == 1


@pytest.mark.parametrize("operation", ["read_many", "read"])
def test_a_version_that_could_not_be_opened_opens_when_the_store_is_back(
    inner: Store, operation: str
) -> None:
    version = Version(inner, NAME)
    version.log.write_checkpoint(version.state)
    store = FaultyStore(inner, {(operation, 1): Fault.FAILED})
    again = Version(store, NAME)
    with pytest.raises(StorageError, match="503"):
        again.latest()
    assert held(again) == ["a"]


@pytest.mark.parametrize("place", [("info", 1), *(("read_ranges", n) for n in range(1, 6))])
def test_a_checkpoint_that_cannot_be_read_is_done_without(
    inner: Store, place: tuple[str, int]
) -> None:
    version = Version(inner, NAME)
    version.log.write_checkpoint(version.state)
    again = Version(FaultyStore(inner, {place: Fault.FAILED}), NAME)
    assert versions.facts_of(again.state) == versions.facts_of(version.state)


def test_a_refresh_that_failed_half_way_has_lost_nothing(inner: Store) -> None:
    version = on(inner, {("read_many", 2): Fault.FAILED})
    for label in "bcdefgh":
        versions.append(Version(inner, NAME), label)
    with pytest.raises(StorageError):
        version.refresh()
    version.refresh()
    assert held(version) == list("abcdefgh")


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("request_number", [1, 2])
def test_a_checkpoint_that_cannot_be_written_takes_nothing_from_the_commit(
    inner: Store, fault: Fault, request_number: int
) -> None:
    clean = Version(inner, NAME)
    for number in range(clean.state.number + 1, CHECKPOINT_INTERVAL):
        clean.tag("stable", 1 if number % 2 else None)
    version = on(inner, {("replace", request_number): fault})
    entry = append(version, "b")
    assert entry is not None
    assert entry.number == CHECKPOINT_INTERVAL
    assert append(version, "c") is not None
    assert_whole(inner, "a", "b", "c")


def test_a_shard_that_cannot_be_looked_at_is_not_committed(inner: Store) -> None:
    version = on(inner, {("info", 1): Fault.FAILED})
    with pytest.raises(StorageError):
        append(version, "b")
    assert append(version, "b") is not None
    assert_whole(inner, "a", "b")


NUMBERS = st.integers(1, 20)
WRITES = st.dictionaries(
    st.tuples(st.just("create"), NUMBERS), st.sampled_from(list(Fault)), max_size=12
)
READS = st.dictionaries(
    st.tuples(st.sampled_from(["read_many", "read", "info"]), NUMBERS),
    st.just(Fault.FAILED),
    max_size=6,
)
SCRIPTS = st.builds(lambda writes, reads: {**writes, **reads}, WRITES, READS)
LABELS = "bcdef"


def until_it_works(act: Callable[[], object]) -> None:
    """Do something again, as a person or a scheduler would, until the store lets it through."""
    for _ in range(40):
        try:
            act()
        except ObjectExistsError:
            raise
        except StorageError:
            continue
        return
    raise AssertionError("it never worked")


@given(script=SCRIPTS)
def test_whatever_the_store_answers_each_source_lands_once(
    script: dict[tuple[str, int], Fault],
) -> None:
    inner = new_store()
    versions.append(versions.make_version(inner), "a")
    version = on(inner, dict(script))
    for label in LABELS:
        until_it_works(lambda label=label: append(version, label))  # type: ignore[misc]
    assert_whole(inner, "a", *LABELS)
    assert Version(inner, NAME).state.number == 2 + len(LABELS)


@given(script=SCRIPTS, rivals=st.sets(st.integers(1, 12), max_size=4))
def test_whatever_the_store_answers_and_others_do_each_source_lands_once(
    script: dict[tuple[str, int], Fault], rivals: set[int]
) -> None:
    inner = new_store()
    versions.append(versions.make_version(inner), "a")
    steps: dict[tuple[str, int], Step] = dict(script)
    for number in rivals:
        # One of them comes with a source of ours.
        steps["create", number] = rival(inner, "c" if number == min(rivals) else f"r{number}")
    version = on(inner, steps)
    for label in LABELS:
        until_it_works(lambda label=label: append(version, label))  # type: ignore[misc]
    fresh = Version(inner, NAME)
    landed = held(fresh)
    assert len(set(landed)) == len(landed)
    assert {"a", *LABELS} <= set(landed)
    assert verify_log(fresh.log).problems == ()


@given(script=SCRIPTS)
def test_whatever_the_store_answers_every_kind_of_commit_is_done_once(
    script: dict[tuple[str, int], Fault],
) -> None:
    inner = new_store()
    clean = versions.make_version(inner)
    versions.append(clean, "a", "b")
    versions.append(clean, "c")
    versions.write_shard(clean, "r")
    version = on(inner, dict(script))

    def rebuild_once() -> None:
        # What was committed without our knowing is a conflict with ourselves.
        try:
            version.commit(versions.rebuild_of("ab", "r"))
        except ConflictError:
            assert version.latest().shards[0].name == shard_name("r")

    def untag_once() -> None:
        try:
            version.tag("good", None)
        except SnapshotNotFoundError:
            assert "good" not in version.state.tags

    results = tuple(versions.shard_results("rc"))
    until_it_works(lambda: version.tag("good", 1))
    until_it_works(rebuild_once)
    until_it_works(lambda: version.attest(results))
    until_it_works(untag_once)
    until_it_works(lambda: version.reject(2))
    until_it_works(lambda: version.restore(2) if version.state.snapshot == 4 else None)
    fresh = Version(inner, NAME)
    made = [entry.operation for _, entry in fresh.log.replay() if entry.operation != "attest"]
    assert made == ["create", "append", "append", "tag", "rebuild", "tag", "reject", "restore"]
    assert held(fresh) == ["a", "b", "c"]
    assert verify_log(fresh.log).problems == ()
