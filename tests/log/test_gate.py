"""The gate: what is in the head, what is published and what is rejected, case by case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.model import Attestation, Checks
from shardline.log.publication import list_published
from shardline.operations.verify_log import verify_log
from tests.log import versions
from tests.log.steps import (
    Appended,
    Dropped,
    Erased,
    Failed,
    LandedFile,
    Passed,
    Rebuilt,
    Rejected,
    Required,
    Restored,
    SnapshotFailed,
    SnapshotPassed,
    Step,
)
from tests.log.versions import CHECKS, NAME, WITH_SNAPSHOT_CHECK

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Case:
    """Steps, and how the version stands after them.

    `head` are the labels in the newest snapshot, `published` is the number of the newest published
    one, `all_published` and `rejected` those of all.
    """

    name: str
    steps: tuple[Step, ...]
    head: str
    published: int | None
    rejected: set[int] = field(default_factory=set)
    checks: Checks = CHECKS
    all_published: set[int] | None = None


GOOD = (Appended("a"), Passed("a"), Appended("b"), Passed("b"))
"""Snapshots 1 and 2, both published."""
TWO_RUNS = (*GOOD, Appended("c"), Appended("d"))
"""Snapshot 3 by one run, and 4 on top of it by another."""
CHECKED = (
    *(Appended("a"), Passed("a"), SnapshotPassed(1)),
    *(Appended("b"), Passed("b"), SnapshotPassed(2)),
)
"""Snapshots 1 and 2, both published, where snapshots are checked too."""
CHECKED_TWO_RUNS = (*CHECKED, Appended("c"), Appended("d"))

# fmt: off
CASES = [
    Case("nothing yet", (), "", None),
    Case("an append is not published by itself", (Appended("a"),), "a", None),
    Case("an append is published when every shard check passed", GOOD, "ab", 2),
    Case("one of two checks is not enough", (Appended("a"), Passed("a", ("schema",))), "a", None),
    Case("two checks may pass one after the other",
         (Appended("a"), Passed("a", ("schema",)), Passed("a", ("integrity",))), "a", 1),
    Case("one of two shards is not enough", (Appended("ab"), Passed("a")), "ab", None),
    Case("a check that nobody asked for publishes nothing",
         (Appended("a"), Passed("a", ("taste",))), "a", None),
    Case("an unattested shard holds back what is appended behind it",
         (*GOOD, Appended("c"), Appended("d"), Passed("d")), "abcd", 2),
    Case("a late attestation publishes what waited behind it",
         (*GOOD, Appended("c"), Appended("d"), Passed("d"), Passed("c")), "abcd", 4,
         all_published={1, 2, 3, 4}),
    Case("an attestation of an old snapshot publishes that one while a newer one waits",
         (*GOOD, Appended("c"), Appended("d"), Passed("c")), "abcd", 3),
    Case("an old snapshot that passes late does not replace a newer published one",
         (*CHECKED, Appended("c"), Passed("c"), Appended("d"), Passed("d"), SnapshotPassed(4),
         SnapshotPassed(3)), "abcd", 4, checks=WITH_SNAPSHOT_CHECK, all_published={1, 2, 3, 4}),
    Case("the snapshot check is needed where it is asked for",
         CHECKED[:2], "a", None, checks=WITH_SNAPSHOT_CHECK),
    Case("shards that passed and a snapshot that passed",
         CHECKED, "ab", 2, checks=WITH_SNAPSHOT_CHECK),
    Case("a snapshot that passed with a shard that did not",
         (*CHECKED, Appended("c"), SnapshotPassed(3)), "abc", 2, checks=WITH_SNAPSHOT_CHECK),
    Case("a failure and then a good append",
         (*GOOD, Appended("c"), Rejected(3, "c"), Appended("d"), Passed("d")), "abd", 5, {3}),
    Case("what a rejection leaves is published at once where its shards have passed",
         (*GOOD, Appended("c"), Rejected(3, "c")), "ab", 4, {3}),
    Case("what a rejection leaves has the attestations of the same content",
         (*CHECKED, Appended("c"), Passed("c"), Rejected(3)), "ab", 4, {3}, WITH_SNAPSHOT_CHECK),
    Case("a failed snapshot check and then a good append",
         (*CHECKED, Appended("c"), Passed("c"), Rejected(3), Appended("d"), Passed("d"),
         SnapshotPassed(5)), "abd", 5, {3}, WITH_SNAPSHOT_CHECK),
    Case("a failure of the very first append leaves nothing, and nothing is not published",
         (Appended("a"), Rejected(1, "a")), "", None, {1}),
    Case("an append after the first one was rejected",
         (Appended("a"), Rejected(1, "a"), Appended("b"), Passed("b")), "b", 3, {1}),
    Case("nothing is not published even where no check is asked for",
         (Required(), Appended("a"), Erased("a")), "", 1),
    Case("without checks an append is published at once", (Required(), Appended("a")), "a", 1),
    Case("without shard checks the snapshot check decides",
         (Required((), ("counts",)), Appended("a"), Appended("b"), SnapshotPassed(2)), "ab", 2),
    Case("two runs, the first fails by a shard, then the second passes",
         (*TWO_RUNS, Rejected(3, "c"), Passed("d")), "abd", 5, {3}),
    Case("two runs, the second passes, then the first fails by a shard",
         (*TWO_RUNS, Passed("d"), Rejected(3, "c")), "abd", 5, {3}),
    Case("two runs, the second fails by a shard, then the first passes",
         (*TWO_RUNS, Rejected(4, "d"), Passed("c")), "abc", 5, {4}, all_published={1, 2, 3, 5}),
    Case("two runs, the first passes, then the second fails by a shard",
         (*TWO_RUNS, Passed("c"), Rejected(4, "d")), "abc", 5, {4}),
    Case("two runs, both fail, the first one first",
         (*TWO_RUNS, Rejected(3, "c"), Rejected(4, "d")), "ab", 6, {3, 4}),
    Case("two runs, both fail, the second one first",
         (*TWO_RUNS, Rejected(4, "d"), Rejected(3, "c")), "ab", 6, {3, 4}),
    Case("two runs, the first fails by its snapshot, the second's snapshot held the bad shard",
         (*CHECKED_TWO_RUNS, Passed("c"), Rejected(3), Passed("d"), SnapshotPassed(4)), "abd", 2,
         {3}, WITH_SNAPSHOT_CHECK),
    Case("two runs, the first fails by its snapshot, then what is left passes",
         (*CHECKED_TWO_RUNS, Passed("c"), Rejected(3), Passed("d"), SnapshotPassed(5)), "abd", 5,
         {3}, WITH_SNAPSHOT_CHECK),
    Case("two runs, the second passes with the bad shard in it, then the first fails",
         (*CHECKED_TWO_RUNS, Passed("cd"), SnapshotPassed(4), Rejected(3)), "abd", 2, {3},
         WITH_SNAPSHOT_CHECK),
    Case("two runs, the second fails by its snapshot, then the first passes",
         (*CHECKED_TWO_RUNS, Passed("d"), Rejected(4), Passed("c"), SnapshotPassed(3)), "abc", 5,
         {4}, WITH_SNAPSHOT_CHECK, all_published={1, 2, 3, 5}),
    Case("two runs, the first passes, then the second fails by its snapshot",
         (*CHECKED_TWO_RUNS, Passed("cd"), SnapshotPassed(3), Rejected(4)), "abc", 5, {4},
         WITH_SNAPSHOT_CHECK),
    Case("two runs, both fail by their snapshots",
         (*CHECKED_TWO_RUNS, Passed("cd"), Rejected(3), Rejected(4)), "ab", 6, {3, 4},
         WITH_SNAPSHOT_CHECK),
    Case("a rejected snapshot that is rejected again changes nothing",
         (*GOOD, Appended("c"), Rejected(3, "c"), Rejected(3, "c")), "ab", 4, {3}),
    Case("a rejected shard that passes after all is not published by that",
         (*GOOD, Appended("c"), Rejected(3, "c"), Passed("c")), "ab", 4, {3}),
    Case("restore of a published snapshot is published at once", (*GOOD, Restored(1)), "a", 3),
    Case("restore to and fro is published at once",
         (*GOOD, Restored(1), Restored(2)), "ab", 4, all_published={1, 2, 3, 4}),
    Case("restore of a snapshot that passed its own check is published at once",
         (*CHECKED, Restored(1), Restored(2)), "ab", 4, checks=WITH_SNAPSHOT_CHECK),
    Case("restore of an unattested snapshot waits",
         (*GOOD, Appended("c"), Restored(2), Restored(3)), "abc", 4),
    Case("restore of a rejected snapshot is not published",
         (*GOOD, Appended("c"), Rejected(3, "c"), Restored(3)), "abc", 4, {3}),
    Case("restore of a rejected snapshot is published when a check of it passes",
         (*GOOD, Appended("c"), Rejected(3, "c"), Restored(3), Passed("c")), "abc", 5, {3}),
    Case("restore of a rejected snapshot is not published by the checks that passed before",
         (*CHECKED, Appended("c"), Passed("c"), Rejected(3), Restored(3)), "abc", 4, {3},
         WITH_SNAPSHOT_CHECK),
    Case("restore of a rejected snapshot is published when the snapshot check passes now",
         (*CHECKED, Appended("c"), Passed("c"), Rejected(3), Restored(3), SnapshotPassed(5)), "abc",
         5, {3}, WITH_SNAPSHOT_CHECK),
    Case("restore of a rejected snapshot that fails again is taken back",
         (*GOOD, Appended("c"), Rejected(3, "c"), Restored(3), Rejected(5, "c")), "ab", 6, {3, 5}),
    Case("restore of a snapshot that held a rejected shard lifts the rejection of it",
         (*TWO_RUNS, Rejected(3, "c"), Restored(4), Passed("cd")), "abcd", 6, {3}),
    Case("a rejected restore brings back what it took out",
         (*GOOD, Appended("c"), Passed("c"), Restored(1), Rejected(4)), "abc", 5, {4}),
    Case("a rejected restore does not bring back what was rejected meanwhile",
         (*GOOD, Appended("c"), Restored(2), Rejected(3, "c"), Rejected(4)), "ab", 2, {3, 4}),
    Case("a rejected restore takes nothing out that it only moved",
         (Appended("a"), Appended("b"), Rejected(1, "a"), Appended("a", retry=True), Restored(2),
         Appended("c"), Rejected(5), Passed("abc")), "abc", 6, {1, 5}),
    Case("a shard that fails later unpublishes every snapshot with it",
         (*GOOD, Appended("c"), Passed("c"), Failed("b")), "abc", 1, all_published={1}),
    Case("a shard that fails later and passes again",
         (*GOOD, Appended("c"), Passed("c"), Failed("b"), Passed("b")), "abc", 3, all_published={1,
         2, 3}),
    Case("every shard fails later", (*GOOD, Failed("ab")), "ab", None),
    Case("a snapshot check that fails later falls back to the one before",
         (*CHECKED, SnapshotFailed(2)), "ab", 1, checks=WITH_SNAPSHOT_CHECK),
    Case("a snapshot check that fails on an old one leaves the newer one published",
         (*CHECKED, SnapshotFailed(1)), "ab", 2, checks=WITH_SNAPSHOT_CHECK, all_published={2}),
    Case("a snapshot check that fails holds for each snapshot of the content",
         (*CHECKED, Restored(1), SnapshotFailed(1)), "a", 2, checks=WITH_SNAPSHOT_CHECK,
         all_published={2}),
    Case("a published snapshot that is rejected later",
         (*GOOD, Appended("c"), Passed("c"), Rejected(3, "c")), "ab", 4, {3}, all_published={1, 2,
         4}),
    Case("an old published snapshot that is rejected, with good ones behind it",
         (*GOOD, Appended("c"), Passed("c"), Rejected(2, "b")), "ac", 4, {2}, all_published={1, 4}),
    Case("an old published snapshot that is rejected by its snapshot check",
         (*CHECKED, Appended("c"), Passed("c"), SnapshotPassed(3), Rejected(2)), "ac", 1, {2},
         WITH_SNAPSHOT_CHECK),
    Case("the same source again is dropped", (*GOOD, Dropped("b")), "ab", 2),
    Case("the same source beside a new one is dropped alone",
         (*GOOD, Appended("bc"), Passed("c")), "abc", 3),
    Case("a rejected source again is dropped",
         (*GOOD, Appended("c"), Rejected(3, "c"), Dropped("c")), "ab", 4, {3}),
    Case("a rejected source lands again with retry, and must be checked again",
         (*GOOD, Appended("c"), Passed("c"), Rejected(3, "c"), Appended("c", retry=True)), "abc",
         4, {3}),
    Case("a relanded source is published when it passes",
         (*GOOD, Appended("c"), Rejected(3, "c"), Appended("c", retry=True), Passed("c")), "abc",
         5, {3}),
    Case("a relanded source that fails again is rejected again",
         (*GOOD, Appended("c"), Rejected(3, "c"), Appended("c", retry=True), Rejected(5, "c"),
         Dropped("c")), "ab", 6, {3, 5}),
    Case("retry of what is in the head is dropped", (*GOOD, Appended("b", retry=True)), "ab", 2),
    Case("retry of a rejected source that a restore brought back is dropped",
         (*GOOD, Appended("c"), Rejected(3, "c"), Restored(3), Appended("c", retry=True)), "abc",
         4, {3}),
    Case("what was rolled back does not land again by itself",
         (*GOOD, Restored(1), Dropped("b")), "a", 3),
    Case("what was rolled back lands again with retry, and must be checked again",
         (*GOOD, Restored(1), Appended("b", retry=True)), "ab", 3),
    Case("a file that changed lands again after its first content was rejected",
         (*GOOD, LandedFile("c"), Rejected(3, "c"), LandedFile("d"), Passed("d")), "abd", 5, {3}),
    Case("a file that did not change does not land again after it was rejected",
         (*GOOD, LandedFile("c"), Rejected(3, "c"), LandedFile("c", lands=False)), "ab", 4, {3}),
    Case("the same bytes under another path are another source",
         (*GOOD, LandedFile("c"), Rejected(3, "c"), LandedFile("c", "landing/copy.csv")), "abc", 4,
         {3}),
    Case("a rebuild is not published by itself", (*GOOD, Rebuilt("ab", "r")), "r", 2),
    Case("a rebuild that passes", (*GOOD, Rebuilt("ab", "r"), Passed("r")), "r", 3),
    Case("a rejected rebuild brings the old shards back",
         (*GOOD, Rebuilt("ab", "r"), Rejected(3, "r")), "ab", 4, {3}),
    Case("a rebuild of a part, rejected",
         (*GOOD, Appended("c"), Passed("c"), Rebuilt("bc", "r"), Rejected(4, "r")), "abc", 5, {4}),
    Case("a rejected rebuild with a later append behind it",
         (*GOOD, Rebuilt("ab", "r"), Appended("c"), Passed("c"), Rejected(3, "r")), "abc", 5, {3}),
    Case("a rejected rebuild in the middle keeps the order",
         (*GOOD, Appended("c"), Passed("c"), Rebuilt("ab", "r"), Appended("d"), Passed("d"),
         Rejected(4, "r")), "abcd", 6, {4}),
    Case("an append that is rejected after a rebuild of others came behind it",
         (*GOOD, Appended("c"), Rebuilt("ab", "r"), Passed("r"), Rejected(3, "c")), "r", 5, {3}),
    Case("an append that is rejected after a rebuild took it in: the rebuilt shard is judged alone",
         (*GOOD, Appended("c"), Rebuilt("abc", "r"), Rejected(3, "c")), "r", 2, {3}),
    Case("a rejected rebuild does not bring back what was rejected meanwhile",
         (*GOOD, Appended("c"), Rebuilt("abc", "r"), Rejected(3, "c"), Rejected(4, "r")), "ab", 5,
         {3, 4}),
    Case("a rejected rebuild of a rebuild brings the first one back",
         (*GOOD, Rebuilt("ab", "r"), Passed("r"), Rebuilt("r", "s"), Rejected(4, "s")), "r", 5,
         {4}),
    Case("a rejected erasure brings back what it took out",
         (*CHECKED, Erased("a"), Rejected(3)), "ab", 4, {3}, WITH_SNAPSHOT_CHECK),
    Case("what a rejection left is rejected itself: no rejected shard comes back",
         (*CHECKED_TWO_RUNS, Passed("cd"), Rejected(3), Rejected(5)), "abd", 2, {3, 5},
         WITH_SNAPSHOT_CHECK),
    Case("what a rejection left is rejected itself, and the next good append is not held up",
         (*CHECKED_TWO_RUNS, Passed("cd"), Rejected(3), Rejected(5), Appended("e"), Passed("e"),
         SnapshotPassed(6)), "abde", 6, {3, 5}, WITH_SNAPSHOT_CHECK),
    Case("what a rejection brought back stays when that snapshot is rejected later",
         (*CHECKED, Rebuilt("ab", "r"), Rejected(3), Appended("c"), Rejected(4)), "abc", 1, {3, 4},
         WITH_SNAPSHOT_CHECK),
    Case("a new check counts for the snapshots made from then on",
         (*GOOD, Required((*CHECKS.shard, "taste")), Appended("c"), Passed("c")), "abc", 2),
    Case("a new check is met when the older shards pass it too",
         (*GOOD, Required((*CHECKS.shard, "taste")), Appended("c"), Passed("c"),
         Passed("abc", ("taste",))), "abc", 3),
    Case("a check that is no longer asked for",
         (*GOOD, Required(("integrity",)), Appended("c"), Passed("c", ("integrity",))), "abc", 3),
    Case("a check that is no longer asked for still counts for the snapshots made before",
         (Appended("a"), Passed("a", ("integrity",)), Required(("integrity",))), "a", None),
    Case("the checks of a restored snapshot are those of its day",
         (*GOOD, Required(CHECKS.shard, ("counts",)), Restored(1)), "a", 2),
    Case("the last of two changes of the checks counts",
         (*GOOD, Required(("taste",)), Required(("integrity",)), Appended("c"),
         Passed("c", ("integrity",))), "abc", 3),
]
# fmt: on


def rejected_in(version: Version) -> set[int]:
    snapshots = range(1, version.state.snapshot + 1)
    return {number for number in snapshots if version.snapshot(number).rejected}


def published_in(version: Version) -> set[int]:
    snapshots = range(1, version.state.snapshot + 1)
    return {number for number in snapshots if version.snapshot(number).published}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gate(case: Case, tmp_path: Path) -> None:
    version = versions.make_version(tmp_path, checks=case.checks)
    was: dict[int, list[str]] = {}
    for step in case.steps:
        step.take(version)
        if version.state.snapshot:
            was[version.state.snapshot] = versions.held(version)
    for seen in (version, Version(tmp_path, NAME)):
        assert {n: versions.held(seen, seen.snapshot(n)) for n in was} == was
        assert "".join(was.get(seen.state.snapshot, [])) == case.head
        assert seen.state.published == case.published
        assert rejected_in(seen) == case.rejected
        if case.all_published is not None:
            assert published_in(seen) == case.all_published
    for state, entry in version.log.replay():
        published = [number + 1 for number, good in enumerate(list_published(state)) if good]
        assert entry.published == max(published, default=None), entry.number
    assert verify_log(version.log).problems == ()


def test_a_rejection_is_one_entry_with_what_the_checks_found(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    versions.append(version, "a")
    told = Attestation("integrity", False, (versions.shard_name("a"),), detail="bad CRC")  # noqa: FBT003
    entry = version.reject(1, [told], reason="integrity failed")
    assert entry is not None
    assert entry.operation == "reject"
    assert entry.rejects == 1
    assert entry.parameters == {"reason": "integrity failed"}
    assert told in entry.attestations
    assert entry.sources == (versions.source_of("a"),)
    assert entry.removed == (versions.shard_name("a"),)


def test_a_rejected_snapshot_stays_readable_by_its_number(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    versions.append(version, "a", "b")
    version.reject(1)
    assert versions.held(version, version.snapshot(1)) == ["a", "b"]
    assert version.snapshot(1).rejected
    assert not version.snapshot(2).rejected


def test_restore_brings_the_old_content_digest_back(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    for label in "abc":
        versions.append(version, label)
    version.restore(2)
    assert version.latest().content == version.snapshot(2).content
    assert version.latest().totals == version.snapshot(2).totals
