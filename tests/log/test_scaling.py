"""What a long log costs: about as many requests as a short one, to open it and to commit to it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.storage import open_store
from tests.log import versions
from tests.log.versions import NAME, SCHEMA
from tests.sampling import runs_whole_sweeps
from tests.storage.faulty import FaultyStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.storage import Store

pytestmark = [
    pytest.mark.xdist_group("long log"),  # one worker, since the log takes long to write
    pytest.mark.sweep,
]

FEW = 100
_ENTRIES = 20_000 if runs_whole_sweeps() else 5_000
MANY = _ENTRIES // CHECKPOINT_INTERVAL * CHECKPOINT_INTERVAL + 2 * CHECKPOINT_INTERVAL - 1
"""Number of entries that puts the most entries after the newest checkpoint."""
_more = count()


def make(root: Path, entries: int) -> Store:
    """A version of as many entries, each but the first with one shard."""
    version = versions.make_version(root)
    changes = (versions.append_of(f"shard {number}") for number in range(1, entries))
    grown = versions.grow(version, changes, checkpoints_from=entries - 3 * CHECKPOINT_INTERVAL)
    assert grown.state.number == entries
    assert grown.state.checkpoint == entries - entries % CHECKPOINT_INTERVAL
    return open_store(root)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make(tmp_path_factory.mktemp("short"), FEW)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make(tmp_path_factory.mktemp("long"), MANY)


def requests(store: Store, act: Callable[[Version], object]) -> int:
    """How many requests something costs that is done with a version; each object is one."""
    counting = FaultyStore(store, paths=False)
    act(Version(counting, NAME))
    counts = counting.counts
    return counts.total() - counts["read_many"]


def open_head(version: Version) -> None:
    newest = version.latest()
    assert newest.totals.shards == version.state.number - 1
    assert newest.records > 0
    assert version.schema == SCHEMA
    assert version.state.published is None


def list_head(version: Version) -> None:
    assert len(version.latest().shards) == version.latest().totals.shards


def append_one(version: Version) -> None:
    label = f"one more {next(_more)}"
    versions.write_shard(Version(inner_of(version), NAME), label, source=versions.source_of(label))
    assert version.commit(versions.append_of(label)) is not None


def append_an_interval(version: Version) -> None:
    for _ in range(CHECKPOINT_INTERVAL):
        append_one(version)


def inner_of(version: Version) -> Store:
    assert isinstance(version.store, FaultyStore)
    return version.store.inner


def test_a_long_log_opens_with_at_most_three_times_the_requests_of_a_short_one(
    short: Store, long: Store
) -> None:
    assert requests(long, open_head) <= 3 * requests(short, open_head)


def test_listing_the_shards_of_a_long_log_takes_one_request_more(long: Store) -> None:
    assert requests(long, list_head) == requests(long, open_head) + 1


def test_a_long_log_opens_with_few_requests_even_without_the_hint(
    short: Store, long: Store
) -> None:
    hint = f"{Version(long, NAME).log.folder}/newest-checkpoint.json"
    told = long.read(hint)
    usual = requests(long, open_head)
    long.delete(hint)
    try:
        doubling_and_halving = 2 * MANY.bit_length()
        assert requests(long, open_head) <= usual + doubling_and_halving + 2
        assert requests(long, open_head) <= 3 * requests(short, open_head)
    finally:
        long.replace(hint, told)


def test_an_append_to_a_long_log_costs_what_one_to_a_short_log_costs(
    short: Store, long: Store
) -> None:
    opening = [requests(store, open_head) for store in (long, short)]
    whole = [requests(store, append_an_interval) for store in (long, short)]
    of_many, of_few = (all_of_it - first for all_of_it, first in zip(whole, opening, strict=True))
    assert of_many <= 1.2 * of_few


def test_an_append_by_someone_who_opens_the_version_for_it_costs_at_most_three_times(
    short: Store, long: Store
) -> None:
    assert requests(long, append_one) <= 3 * requests(short, append_one)


def test_refreshing_takes_as_many_requests_as_there_is_new(short: Store, long: Store) -> None:
    for store in (short, long):
        counting = FaultyStore(store)
        version = Version(counting, NAME)
        assert version.exists
        counting.counts.clear()
        version.refresh()
        assert counting.counts["read_many.objects"] <= 4
        assert counting.counts.total() - counting.counts["read_many"] <= 6
