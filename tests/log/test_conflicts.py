"""What becomes of a commit that lost a race: the conflict table of the design page, row by row.

A version that was opened before someone else's commit stands where it stood: committing with it is
losing the race.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import (
    ConflictError,
    InvalidNameError,
    LogError,
    SchemaMismatchError,
    SnapshotNotFoundError,
    StorageError,
    TombstonedShardError,
    VersionNotFoundError,
)
from shardline.hints import Command
from shardline.log.append_change import Append
from shardline.log.changes import AddTombstones, Derive, Replace
from shardline.log.model import Added, Checks, Source
from shardline.log.state import MAX_CHECKS, RESERVED_CHECKS
from shardline.operations.verify_log import verify_log
from tests.errors import raises
from tests.log import versions
from tests.log.versions import (
    CHECKS,
    NAME,
    OTHER_SCHEMA,
    SCHEMA,
    append,
    held,
    make_version,
    rebuild,
    shard_name,
    shard_of,
    source_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.log.state import State


@dataclass
class Race:
    """Two who have the same version open; `late` has not seen what `early` commits."""

    early: Version
    late: Version


@pytest.fixture
def race(tmp_path: Path) -> Iterator[Race]:
    early = versions.make_version(tmp_path)
    versions.append(early, "a", "b")
    late = Version(tmp_path, NAME)
    assert late.state.number == 2
    yield Race(early, late)
    late.refresh()
    early.refresh()
    assert versions.facts_of(late.state) == versions.facts_of(early.state)
    assert verify_log(late.log).problems == ()


def test_two_appends_are_both_kept(race: Race) -> None:
    versions.append(race.early, "c")
    entry = versions.append(race.late, "d")
    assert entry is not None
    assert entry.number == 4
    assert held(race.late) == ["a", "b", "c", "d"]


def test_an_append_of_a_source_that_landed_meanwhile_makes_no_entry(race: Race) -> None:
    versions.append(race.early, "c")
    assert versions.append(race.late, "c") is None
    assert race.late.state.number == 3
    assert held(race.late) == ["a", "b", "c"]


def test_an_append_keeps_what_did_not_land_meanwhile(race: Race) -> None:
    versions.append(race.early, "c", "d")
    entry = versions.append(race.late, "d", "e", "c")
    assert entry is not None
    assert entry.sources == (versions.source_of("e"),)
    assert held(race.late) == ["a", "b", "c", "d", "e"]


def test_an_append_of_a_source_that_was_rejected_meanwhile_makes_no_entry(race: Race) -> None:
    versions.append(race.early, "c")
    race.early.reject(2)
    assert versions.append(race.late, "c") is None
    assert held(race.late) == ["a", "b"]


def test_an_append_of_a_source_that_was_rolled_back_meanwhile_makes_no_entry(race: Race) -> None:
    versions.append(race.early, "c")
    race.early.restore(1)
    assert versions.append(race.late, "c") is None
    assert held(race.late) == ["a", "b"]


def test_two_who_reland_the_same_source_land_it_once(race: Race) -> None:
    versions.append(race.early, "c")
    race.early.reject(2)
    race.late.refresh()
    versions.append(race.early, "c", retry_rejected=True)
    assert versions.append(race.late, "c", retry_rejected=True) is None
    assert held(race.late) == ["a", "b", "c"]


def test_an_append_for_another_schema_is_refused(race: Race) -> None:
    source = versions.source_of("c")
    shard = versions.write_shard(race.late, "c", source=source)
    change = Append(shards=[shard], sources=[source], fingerprint=OTHER_SCHEMA.fingerprint)
    with pytest.raises(SchemaMismatchError):
        race.late.commit(change)
    assert race.late.state.number == 2


def test_an_append_comes_after_a_rebuild_that_came_first(race: Race) -> None:
    versions.rebuild(race.early, "ab", "r")
    versions.append(race.late, "c")
    assert held(race.late) == ["r", "c"]


def test_what_was_appended_meanwhile_stays_behind_the_rebuilt_file(race: Race) -> None:
    versions.append(race.early, "c")
    versions.append(race.early, "d")
    versions.rebuild(race.late, "ab", "r")
    assert held(race.late) == ["r", "c", "d"]


def test_a_rebuild_of_a_part_leaves_the_others_in_their_places(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    versions.append(race.early, "d")
    versions.rebuild(race.late, "bc", "r")
    assert held(race.late) == ["a", "r", "d"]


def test_a_rebuild_fails_if_an_input_is_gone(race: Race) -> None:
    versions.erase(race.early, "b")
    with raises(ConflictError, "replaced-shards-removed", path=shard_name("b"), version=NAME):
        versions.rebuild(race.late, "ab", "r")
    assert held(race.late) == ["a"]


def test_a_rebuild_fails_if_an_input_was_rejected_meanwhile(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    race.early.reject(2)
    with raises(ConflictError, "replaced-shards-removed", path=shard_name("c"), version=NAME):
        versions.rebuild(race.late, "abc", "r")
    assert held(race.late) == ["a", "b"]


def test_of_two_rebuilds_the_second_fails(race: Race) -> None:
    versions.rebuild(race.early, "ab", "r")
    with raises(ConflictError, "replaced-shards-removed", version=NAME):
        versions.rebuild(race.late, "ab", "s")
    assert held(race.late) == ["r"]


def test_two_rebuilds_of_different_parts_are_both_kept(race: Race) -> None:
    versions.append(race.early, "c", "d")
    race.late.refresh()
    versions.rebuild(race.early, "ab", "r")
    versions.rebuild(race.late, "cd", "s")
    assert held(race.late) == ["r", "s"]


def test_a_rebuild_fails_if_others_stand_between_its_inputs(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    with raises(ConflictError, "replaced-shards-not-adjacent", version=NAME):
        versions.rebuild(race.late, "ac", "r")
    assert held(race.late) == ["a", "b", "c"]


def test_a_rebuild_into_a_shard_that_is_there_already_is_refused(race: Race) -> None:
    versions.append(race.early, "c")
    with raises(LogError, "shard-exists", path=shard_name("c")):
        versions.rebuild(race.late, "ab", "c")
    with raises(LogError, "shard-exists", path=shard_name("a")):
        versions.rebuild(race.late, "ab", "a")


def test_a_derived_version_is_planned_again_if_its_head_moved(race: Race) -> None:
    versions.append(race.early, "c")
    with raises(ConflictError, "stale-plan", version=NAME, snapshot=2) as caught:
        versions.derive(race.late, "d", head=1)
    assert caught.value.hint is not None
    assert caught.value.hint.commands == (Command.of("log", NAME),)
    assert held(race.late) == ["a", "b", "c"]
    versions.derive(race.late, "d", head=2)
    assert held(race.late) == ["a", "b", "c", "d"]


def test_a_derived_version_goes_on_after_attestations_alone(race: Race) -> None:
    versions.attest_shards(race.early, "a", "b")
    versions.derive(race.late, "d", head=1)
    assert held(race.late) == ["a", "b", "d"]


def test_an_erasure_fails_if_the_head_moved(race: Race) -> None:
    versions.append(race.early, "c")
    with raises(ConflictError, "stale-plan", version=NAME, snapshot=2):
        versions.erase(race.late, "a")
    assert held(race.late) == ["a", "b", "c"]


def test_a_restore_fails_if_the_head_moved(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    versions.append(race.early, "d")
    with raises(ConflictError, "stale-plan", version=NAME, snapshot=3):
        race.late.restore(1)
    assert held(race.late) == ["a", "b", "c", "d"]


def test_a_restore_fails_if_the_head_is_not_the_one_that_was_looked_at(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    with pytest.raises(ConflictError):
        race.late.restore(1, head=1)


def test_a_restore_goes_on_after_what_changed_no_data(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    versions.attest_shards(race.early, "a", "b", "c")
    race.early.tag("good", 2)
    race.early.pin("reader", 1)
    race.late.restore(1)
    assert held(race.late) == ["a", "b"]


def test_of_two_restores_the_second_fails(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    race.early.restore(1)
    with pytest.raises(ConflictError):
        race.late.restore(1)


def test_a_restore_of_what_is_the_head_makes_no_entry(race: Race) -> None:
    assert race.late.restore(1) is None
    assert race.late.state.number == 2


def test_attestations_are_both_kept(race: Race) -> None:
    versions.attest_shards(race.early, "a", "b", checks=("integrity",))
    entry = versions.attest_shards(race.late, "a", "b", checks=("schema",))
    assert entry is not None
    assert entry.published == 1


def test_an_attestation_of_a_snapshot_that_is_no_longer_the_head_is_kept(race: Race) -> None:
    versions.append(race.early, "c")
    entry = versions.attest_shards(race.late, "a", "b")
    assert entry is not None
    assert (entry.published, entry.snapshot) == (1, 2)


def test_the_attestation_that_came_last_counts(race: Race) -> None:
    versions.attest_shards(race.early, "a", "b")
    entry = versions.attest_shards(race.late, "a", passed=False)
    assert entry is not None
    assert entry.published is None


def test_an_attestation_of_an_unknown_shard_is_refused(race: Race) -> None:
    with raises(SnapshotNotFoundError, "shard-not-found", path=shard_name("z")):
        versions.attest_shards(race.late, "z")


@pytest.mark.parametrize("check", RESERVED_CHECKS)
def test_what_the_log_says_itself_cannot_be_the_name_of_a_check(race: Race, check: str) -> None:
    with raises(LogError, "reserved-name"):
        versions.attest_shards(race.late, "a", checks=(check,))
    with raises(LogError, "reserved-name"):
        race.late.require(Checks((), (check,)))
    with raises(LogError, "reserved-name"):
        race.late.create(SCHEMA, Checks((check,)))


def test_there_is_a_limit_to_how_many_checks_a_version_has(race: Race) -> None:
    names = [f"check {number}" for number in range(MAX_CHECKS - len(RESERVED_CHECKS))]
    versions.attest_shards(race.late, "a", "b", checks=names)
    race.late.require(Checks(tuple(names)))
    versions.append(race.late, "c")
    entry = versions.attest_shards(race.late, "c", checks=names)
    assert entry is not None
    assert entry.published == 2
    with raises(LogError, "too-many-checks", version=NAME):
        versions.attest_shards(race.late, "a", checks=("one more",))
    with raises(LogError, "too-many-checks", version=NAME):
        race.late.reject(2, versions.shard_results("c", checks=("one more",), passed=False))


def test_a_rejection_is_kept_after_an_append(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.reject(1)
    assert held(race.late) == ["c"]


def test_of_two_rejections_the_second_changes_nothing(race: Race) -> None:
    race.early.reject(1)
    assert race.late.reject(1) is None
    assert race.late.state.number == 3


def test_the_second_rejection_still_tells_what_its_checks_found(race: Race) -> None:
    race.early.reject(1)
    entry = race.late.reject(1, versions.shard_results("a", passed=False))
    assert entry is not None
    assert entry.operation == "attest"
    assert not entry.changes_data


def test_two_rejections_of_two_snapshots_are_both_kept(race: Race) -> None:
    versions.append(race.early, "c")
    race.late.refresh()
    race.early.reject(1)
    race.late.reject(2)
    assert held(race.late) == []


def test_tags_and_pins_are_both_kept(race: Race) -> None:
    versions.append(race.early, "c")
    race.early.tag("good", 2)
    race.early.pin("reader", 2)
    race.late.tag("old", 1)
    race.late.pin("trainer", 1, reason="a long training")
    assert race.late.tagged("good").number == 2
    assert race.late.tagged("old").number == 1
    assert {pin: hold.snapshot for pin, hold in race.late.state.pins.items()} == {
        "reader": 2,
        "trainer": 1,
    }


def test_the_tag_that_was_set_last_counts(race: Race) -> None:
    versions.append(race.early, "c")
    race.early.tag("good", 2)
    race.late.tag("good", 1)
    assert race.late.tagged("good").number == 1


def test_a_tag_that_was_taken_away_meanwhile_cannot_be_taken_away_again(race: Race) -> None:
    race.early.tag("good", 1)
    race.late.refresh()
    race.early.tag("good", None)
    with raises(SnapshotNotFoundError, "tag-not-found", version=NAME):
        race.late.tag("good", None)


def test_setting_the_same_again_makes_no_entry(race: Race) -> None:
    race.early.tag("good", 1)
    race.early.pin("reader", 1)
    race.early.require(Checks(("integrity",)))
    race.late.refresh()
    assert race.late.tag("good", 1) is None
    assert race.late.pin("reader", 1) is None
    assert race.late.require(Checks(("integrity",))) is None


def condemn(label: str) -> AddTombstones:
    """A vacuum that takes one shard unless the version needs it."""

    def choose(state: State) -> list[str]:
        live = versions.names_at(state, state.snapshot)
        return [] if shard_name(label) in live else [shard_name(label)]

    return AddTombstones(choose)


def test_a_commit_of_a_shard_that_went_to_vacuum_meanwhile_is_refused(race: Race) -> None:
    race.early.commit(condemn("c"))
    with pytest.raises(TombstonedShardError) as caught:
        versions.append(race.late, "c")
    assert caught.value.names == (shard_name("c"),)
    assert held(race.late) == ["a", "b"]


def test_every_way_in_is_closed_to_what_went_to_vacuum(race: Race) -> None:
    race.early.commit(condemn("c"))
    with pytest.raises(TombstonedShardError):
        versions.rebuild(race.late, "ab", "c")
    with pytest.raises(TombstonedShardError):
        versions.derive(race.late, "c", head=1)


def test_vacuum_leaves_alone_what_was_committed_meanwhile(race: Race) -> None:
    versions.append(race.early, "c")
    assert race.late.commit(condemn("c")) is None
    assert held(race.late) == ["a", "b", "c"]


def test_vacuum_takes_the_rest_of_what_it_chose(race: Race) -> None:
    versions.append(race.early, "c")

    def choose(state: State) -> list[str]:
        live = versions.names_at(state, state.snapshot)
        return [name for name in (shard_name("c"), shard_name("d")) if name not in live]

    entry = race.late.commit(AddTombstones(choose))
    assert entry is not None
    assert entry.tombstones == (shard_name("d"),)


def test_a_snapshot_that_lost_a_shard_cannot_be_restored_or_kept(race: Race) -> None:
    versions.rebuild(race.early, "ab", "r")
    race.late.refresh()
    race.early.commit(condemn("a"))
    with pytest.raises(TombstonedShardError):
        race.late.restore(1)
    with pytest.raises(TombstonedShardError):
        race.late.tag("old", 1)
    with pytest.raises(TombstonedShardError):
        race.late.pin("reader", 1)
    with pytest.raises(TombstonedShardError):
        race.late.reject(2)
    assert race.late.state.number == 4


def test_of_two_creations_with_the_same_schema_the_second_makes_no_entry(tmp_path: Path) -> None:
    early, late = Version(tmp_path, NAME), Version(tmp_path, NAME)
    assert not early.exists
    assert not late.exists
    assert early.create(SCHEMA, CHECKS) is not None
    assert late.create(SCHEMA, CHECKS) is None
    assert late.schema == SCHEMA
    assert late.state.number == 1


def test_of_two_creations_with_another_schema_the_second_is_refused(tmp_path: Path) -> None:
    early, late = Version(tmp_path, NAME), Version(tmp_path, NAME)
    assert not late.exists
    early.create(SCHEMA)
    with raises(SchemaMismatchError, "schema-mismatch", version=NAME):
        late.create(OTHER_SCHEMA)
    assert late.schema == SCHEMA


def test_a_creation_and_a_vacuum_of_a_version_that_was_not_there(tmp_path: Path) -> None:
    early, late = Version(tmp_path, NAME), Version(tmp_path, NAME)
    assert not late.exists
    early.commit(condemn("a"))
    assert not early.exists
    late.create(SCHEMA)
    with pytest.raises(TombstonedShardError):
        versions.append(late, "a")
    versions.append(late, "b")
    assert held(Version(tmp_path, NAME)) == ["b"]
    assert verify_log(late.log).problems == ()


def test_a_version_that_does_not_exist_takes_nothing_but_its_creation(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME)
    with pytest.raises(VersionNotFoundError):
        versions.append(version, "a")
    with pytest.raises(VersionNotFoundError):
        version.require(Checks(()))
    with pytest.raises(VersionNotFoundError):
        versions.derive(version, "a", head=0)
    with pytest.raises(LogError):
        version.tag("good", 1)
    with pytest.raises(VersionNotFoundError):
        version.reject(1)
    assert version.state.number == 0
    version.create(SCHEMA)
    versions.append(version, "a")
    assert held(version) == ["a"]


def test_a_shard_whose_file_is_missing_or_of_another_size_is_not_committed(race: Race) -> None:
    source = versions.source_of("c")
    missing = versions.shard_of("c", source=source)
    path = f"{race.late.store.uri}/{race.late.shard_name(missing)}"
    with raises(StorageError, "shard-not-found", path=path, version=NAME):
        race.late.commit(Append(shards=[missing], sources=[source]))
    race.late.store.create(race.late.shard_name(missing), b"longer than it should be")
    with raises(StorageError, "shard-mismatch", path=path, version=NAME):
        race.late.commit(Append(shards=[missing], sources=[source]))
    with pytest.raises(StorageError):
        race.late.commit(Replace(removed=[shard_name("a")], added=[missing]))
    assert race.late.state.number == 2


def test_a_shard_of_another_version_is_refused(race: Race) -> None:
    source = versions.source_of("c")
    other = Version(race.late.store, "digits/v2")
    shard = versions.write_shard(other, "c", source=source)
    with raises(LogError, "foreign-shard", path=shard.name, version=NAME):
        race.late.commit(Append(shards=[shard], sources=[source]))


def test_a_shard_without_a_source_cannot_be_appended(race: Race) -> None:
    shard = versions.write_shard(race.late, "c")
    with raises(LogError, "missing-source", version=NAME):
        race.late.commit(Append(shards=[shard], sources=[versions.source_of("c")]))


def test_the_same_shard_twice_in_one_commit_is_refused(race: Race) -> None:
    source = versions.source_of("c")
    shard = versions.write_shard(race.late, "c", source=source)
    with raises(LogError, "duplicate-shard", version=NAME):
        race.late.commit(Append(shards=[shard, shard], sources=[source]))
    with raises(LogError, "duplicate-shard", version=NAME):
        race.late.commit(Replace(removed=[shard_name("a")], added=[shard, shard]))


def test_an_insertion_in_the_middle_stands_where_it_was_put(race: Race) -> None:
    shard = versions.write_shard(race.late, "c")
    change = Derive(head=1, removed=[], added=[Added(shard, 1)], operation="extend")
    race.late.commit(change)
    assert held(race.late) == ["a", "c", "b"]


def test_a_shard_that_is_there_does_not_come_in_under_another_source(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a")
    other = source_of("another")
    shard = shard_of("a", source=other)
    with raises(LogError, "shard-exists", path=shard.name):
        version.commit(Append(shards=[shard], sources=[other]))
    assert held(version) == ["a"]


def test_a_source_inside_a_rebuilt_shard_does_not_land_again(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a", "b")
    rebuild(version, ["a", "b"], "r")
    assert append(version, "a", retry_rejected=True) is None
    assert held(version) == ["r"]


def test_a_source_that_was_rolled_back_lands_again_when_asked(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a")
    append(version, "b")
    version.restore(1)
    assert append(version, "b") is None
    assert append(version, "b", retry_rejected=True) is not None
    assert held(version) == ["a", "b"]


def test_a_stale_version_looks_again_before_it_says_that_nothing_is_to_do(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a")
    version.pin("training", 1)
    stale = Version(tmp_path, NAME)
    assert stale.state.pins
    version.pin("training", None)
    assert stale.pin("training", 1) is not None
    assert Version(tmp_path, NAME).state.pins


def test_credentials_are_never_written_down(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    before = version.state.number
    secret = "hunter2secret"  # noqa: S105 - what must not be seen again
    sources = [Source(path=f"s3://key:{secret}@bucket/x", size=1, sha256="0" * 64)]
    change = Append(shards=[], sources=sources)
    with pytest.raises(InvalidNameError) as caught:
        version.commit(change)
    assert secret not in str(caught.value)
    told = Append(shards=[], sources=[source_of("a")], parameters={"from": [f"a?sig={secret}"]})
    with pytest.raises(InvalidNameError) as caught:
        version.commit(told)
    assert secret not in str(caught.value)
    assert Version(tmp_path, NAME).state.number == before
