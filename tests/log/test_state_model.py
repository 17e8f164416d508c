"""A version against a naive model of it, over random sequences of everything that can be done.

The model keeps plain lists and works everything out again from the start, by the design page's
words. It never looks at how the code does it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shardline.api import Version
from shardline.errors import ConflictError, TombstonedShardError
from shardline.log.changes import (
    AddTombstones,
    Attest,
    Derive,
    Reject,
    Restore,
    SetTag,
    build_entry,
)
from shardline.log.checkpoint import matches_replay
from shardline.log.model import Added, Attestation, Checks, CommitInfo, Totals
from shardline.log.publication import is_published, list_published
from shardline.log.snapshot_history import to_microseconds
from shardline.log.state import REJECTION, get_name_key
from shardline.log.version import utc_now
from shardline.operations.verify_log import read_verified_log
from shardline.storage import open_store
from tests.log import versions
from tests.log.versions import NAME, SCHEMA, facts_of, shard_name, shard_of, source_of
from tests.sampling import drawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hypothesis.strategies import DataObject

    from shardline.log.entry import Entry
    from shardline.log.state import State

SOURCES = "abcdefgh"
SHARD_CHECKS = ("integrity", "schema")
POLICIES = (
    Checks(SHARD_CHECKS),
    Checks(SHARD_CHECKS, ("counts",)),
    Checks(("integrity",)),
    Checks((), ("counts",)),
    Checks(()),
)
_memories = count()


@dataclass
class Landing:
    """A shard that landed once, and what checks said about it since then."""

    label: str
    marks: dict[str, bool] = field(default_factory=dict)
    told: int = 0


@dataclass
class Made:
    """A snapshot."""

    shards: list[Landing]
    operation: str
    entry: int
    checks: Checks
    content: str
    marks: dict[str, bool] = field(default_factory=dict)
    told: int = 0
    rejected: int = 0
    released: int = 0
    lifted: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    made_from: int = 0

    @property
    def labels(self) -> list[str]:
        """What it holds."""
        return [shard.label for shard in self.shards]


Holds: TypeAlias = set[tuple[str, int]]


@dataclass
class Model:
    """What a version should be."""

    checks: Checks
    snapshots: list[Made] = field(default_factory=list)
    landings: dict[str, list[Landing]] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    tags: dict[str, int] = field(default_factory=dict)
    pins: dict[str, int] = field(default_factory=dict)
    holds: Holds = field(default_factory=set)

    @property
    def head(self) -> list[str]:
        """The labels in the newest snapshot."""
        return self.snapshots[-1].labels if self.snapshots else []

    def rolled_back(self, label: str) -> bool:
        """Whether a source was rejected, or the newest snapshot is not made from its landing."""
        entry, line, number = self.sources[label], set(), len(self.snapshots)
        while number:
            line.add(number)
            number = self.snapshots[number - 1].made_from
        return entry < 0 or len([m for m in self.snapshots if m.entry <= entry]) not in line

    def published(self) -> list[int]:
        """The published snapshots."""
        return [n for n, made in enumerate(self.snapshots, 1) if self._is_published(made)]

    def newest_published(self) -> int | None:
        """The newest of them."""
        published = self.published()
        return published[-1] if published else None

    def _is_published(self, made: Made) -> bool:
        return (
            bool(made.shards)
            and not made.rejected
            and not self.tombstones & set(made.labels)
            and not any(shard.marks.get(REJECTION) is False for shard in made.shards)
            and all(shard.marks.get(check) for shard in made.shards for check in made.checks.shard)
            and all(made.marks.get(check) for check in made.checks.snapshot)
        )

    def land(self, label: str) -> Landing:
        """A shard that comes in as a new one, unattested."""
        landing = Landing(label)
        self.landings.setdefault(label, []).append(landing)
        return landing

    def latest(self, label: str) -> Landing:
        """A shard as it is brought back."""
        return self.landings[label][-1]

    def make(self, shards: list[Landing], operation: str, entry: Entry) -> Made:
        """Add a snapshot; one that brings an old content back has what was said about that."""
        content = content_of([shard.label for shard in shards])
        made = Made(shards, operation, entry.number, self.checks, content)
        head = len(self.snapshots)
        made.made_from = entry.restores or (head - 1 if entry.rejects == head else head)
        if operation in {"reject", "restore"}:
            same = [old for old in self.snapshots if old.content == content]
            if same:
                made.marks, made.told = dict(same[-1].marks), same[-1].told
        self.snapshots.append(made)
        return made

    def mark_shards(self, labels: list[str], check: str, entry: int, *, passed: bool) -> None:
        """Note what a check said about shards."""
        for label in labels:
            for landing in self.landings[label]:
                landing.marks[check] = passed
                if not passed:
                    landing.told = entry

    def mark_content(self, content: str, check: str, entry: int, *, passed: bool) -> None:
        """Note what a check said about a content."""
        for made in self.snapshots:
            if made.content == content:
                made.marks[check] = passed
                if not passed:
                    made.told = entry

    def undone(self, number: int) -> list[Landing]:
        """The list as if a snapshot had not been, without what is rejected itself."""
        made, head = self.snapshots[number - 1], self.snapshots[-1]
        if made.operation == "reject":
            return head.shards
        before = self.snapshots[number - 2].shards if number > 1 else []
        if made is head:
            back = before
        else:
            brought = set(made.labels) - {shard.label for shard in before}
            back = [shard for shard in head.shards if shard.label not in brought]
            places = [place for place, label in enumerate(head.labels) if label in brought]
            if places:
                taken = [shard for shard in before if shard.label not in made.labels]
                back[places[0] : places[0]] = [s for s in taken if s.label not in head.labels]
        newest = [s if s in head.shards else self.latest(s.label) for s in back]
        return [s for s in newest if s in head.shards or s.marks.get(REJECTION) is not False]

    def let_go(self, entry: Entry) -> None:
        """Note which snapshots are no longer held by what held them, and since when."""
        holds: Holds = {(f"tag {name}", number) for name, number in self.tags.items()}
        holds |= {(f"pin {name}", number) for name, number in self.pins.items()}
        published = self.newest_published()
        holds |= {("published", published)} if published else set()
        holds |= {("head", len(self.snapshots))} if self.snapshots else set()
        for _, number in self.holds - holds:
            self.snapshots[number - 1].released = to_microseconds(entry.time)
        self.holds = holds


def content_of(labels: list[str]) -> str:
    """The content digest, from its definition."""
    digest = hashlib.sha256(b"shardline content\n" + SCHEMA.fingerprint.encode()).digest()
    for label in labels:
        shard = hashlib.sha256(label.encode()).digest()
        digest = hashlib.sha256(digest + shard).digest()
    return digest.hex()


class Play:
    """A version and its model, to which the same is done."""

    def __init__(self, draw: DataObject, policy: Checks) -> None:
        self.draw = draw.draw
        self.version = versions.make_version(
            open_store(f"memory://model-{next(_memories)}"), checks=policy
        )
        self.model = Model(policy)
        self._names = count()

    def refused(self, labels: list[str], act: Callable[[], object]) -> bool:
        """Whether the model says that vacuum took one of these; the version must say so too."""
        if not self.model.tombstones & set(labels):
            return False
        with pytest.raises(TombstonedShardError):
            act()
        return True

    def some(self, choices: list[str], least: int = 0) -> list[str]:
        """Some of the choices, in their order."""
        if not choices:
            return []
        chosen = self.draw(st.sets(st.sampled_from(choices), min_size=least))
        return [choice for choice in choices if choice in chosen]

    def number(self) -> int:
        """A snapshot."""
        return self.draw(st.integers(1, len(self.model.snapshots)))

    def append(self) -> Entry | None:
        """Append some sources, which may have landed before."""
        model = self.model
        labels = self.some(list(SOURCES), 1)
        retry_rejected = self.draw(st.booleans())
        wanted = [
            label
            for label in labels
            if label not in model.sources
            or (retry_rejected and label not in model.head and model.rolled_back(label))
        ]

        def act() -> Entry | None:
            return versions.append(self.version, *labels, retry_rejected=retry_rejected)

        if self.refused(wanted, act):
            return None
        entry = act()
        assert (entry is not None) == bool(wanted)
        if entry is not None:
            before = list(model.snapshots[-1].shards) if model.snapshots else []
            made = model.make([*before, *map(model.land, wanted)], "append", entry)
            made.sources = wanted
            model.sources.update(dict.fromkeys(wanted, entry.number))
        return entry

    def rebuild(self) -> Entry | None:
        """Put a new shard in the place of some that stand together."""
        head = self.model.head
        if not head:
            return None
        first = self.draw(st.integers(0, len(head) - 1))
        end = self.draw(st.integers(first + 1, len(head)))
        into = f"rebuilt {next(self._names)}"
        entry = versions.rebuild(self.version, head[first:end], into)
        assert entry is not None
        shards = list(self.model.snapshots[-1].shards)
        shards[first:end] = [self.model.land(into)]
        self.model.make(shards, "rebuild", entry)
        return entry

    def derive(self) -> Entry | None:
        """Take some shards out, and put some in at places."""
        head = self.model.head
        removed = self.some(head)
        shards = [s for s in self.model.snapshots[-1].shards if s.label not in removed]
        added: list[Added] = []
        for _ in range(self.draw(st.integers(0 if removed else 1, 2))):
            label = f"derived {next(self._names)}"
            versions.write_shard(self.version, label)
            at = self.draw(st.integers(0, len(shards)))
            if added and at <= (added[-1].at or 0):
                at = len(shards)
            shards.insert(at, self.model.land(label))
            added.append(Added(shard_of(label), at))
        change = Derive(
            head=len(self.model.snapshots),
            removed=[shard_name(label) for label in removed],
            added=added,
            operation="migrate",
        )
        entry = self.version.commit(change)
        assert entry is not None
        self.model.make(shards, "migrate", entry)
        return entry

    def erase(self) -> Entry | None:
        """Put others in the place of some shards, and give these and old ones up for good."""
        model = self.model
        head = model.head
        replaced = self.some(head)
        old = [one for one in model.landings if one not in head and one not in model.tombstones]
        gone = [*replaced, *self.some(old)]
        shards = list(model.snapshots[-1].shards)
        added = []
        for at, label in enumerate(head):
            if label in replaced:
                made = f"erased {next(self._names)}"
                versions.write_shard(self.version, made)
                shards[at] = model.land(made)
                added.append(Added(shard_of(made), at))
        change = Derive(
            head=len(model.snapshots),
            removed=[shard_name(label) for label in replaced],
            added=added,
            operation="erase",
            tombstones=[shard_name(label) for label in gone],
        )
        entry = self.version.commit(change)
        assert (entry is None) == (not gone)
        if entry is not None:
            if replaced:
                model.make(shards, "erase", entry)
            model.tombstones.update(gone)
            for label in gone:
                for landing in model.landings[label]:
                    landing.told = entry.number
        return entry

    def restore(self) -> Entry | None:
        """Make an old snapshot the head."""
        model, number = self.model, self.number()
        target = model.snapshots[number - 1]
        if self.refused(target.labels, lambda: self.version.restore(number)):
            return None
        head = model.head
        entry = self.version.restore(number)
        assert (entry is None) == (target.labels == head)
        if entry is None:
            return None
        lifted = [
            label
            for label in target.labels
            if model.latest(label).marks.get(REJECTION) is False and label not in head
        ]
        made = model.make([model.latest(label) for label in target.labels], "restore", entry)
        made.lifted = lifted
        model.mark_shards(lifted, REJECTION, entry.number, passed=True)
        return entry

    def reject(self) -> Entry | None:
        """Reject a snapshot, with what a check found or without."""
        model, number = self.model, self.number()
        made = model.snapshots[number - 1]
        check = self.draw(st.sampled_from(["", "counts", *SHARD_CHECKS]))
        told = self._found(made, check)

        def act() -> Entry | None:
            return self.version.reject(number, told)

        if made.operation == "erase" and not told:
            with pytest.raises(ConflictError):
                act()
            return None
        # What an erase left cannot be undone: only what the checks found is told.
        is_kept = made.rejected or made.operation == "erase"
        target = model.undone(number)
        if not is_kept and self.refused([shard.label for shard in target], act):
            return None
        entry = act()
        if is_kept:
            assert (entry is None) == (not told)
        if entry is None:
            return None
        if not is_kept:
            self._undo(made, number, target, entry)
        if check == "counts":
            model.mark_content(made.content, check, entry.number, passed=False)
        elif told:
            model.mark_shards(made.labels[-1:], check, entry.number, passed=False)
        return entry

    def _found(self, made: Made, check: str) -> list[Attestation]:
        """What a check found wrong with a snapshot."""
        if check == "counts":
            return [Attestation(check, passed=False, content=made.content)]
        if not check or not made.labels:
            return []
        return versions.shard_results(made.labels[-1:], passed=False, checks=(check,))

    def _undo(self, made: Made, number: int, target: list[Landing], entry: Entry) -> None:
        model = self.model
        before = model.snapshots[number - 2].labels if number > 1 else []
        brought = [label for label in made.labels if label not in before]
        head = model.head
        if target != model.snapshots[-1].shards:
            model.make(target, "reject", entry)
        if made.operation == "restore":
            model.mark_shards(made.lifted, REJECTION, entry.number, passed=False)
        elif made.operation != "reject":
            model.mark_shards(brought, REJECTION, entry.number, passed=False)
            gone = [label for label in made.sources if label in brought and label in head]
            model.sources.update(dict.fromkeys(gone, -entry.number))
        made.rejected = entry.number

    def attest_shards(self) -> Entry | None:
        """Say what a check found on some shards, old or new."""
        labels = self.some(sorted(self.model.landings), 1)
        check = self.draw(st.sampled_from([*SHARD_CHECKS, "taste"]))
        passed = self.draw(st.sampled_from([True, True, True, False]))
        entry = versions.attest_shards(self.version, *labels, passed=passed, checks=(check,))
        assert entry is not None
        self.model.mark_shards(labels, check, entry.number, passed=passed)
        return entry

    def attest_head(self) -> Entry | None:
        """Say that all is well with all that is in the head."""
        model = self.model
        if not model.head:
            return None
        told = versions.shard_results(model.head)
        told.append(versions.snapshot_result(self.version, len(model.snapshots)))
        entry = self.version.attest(told)
        assert entry is not None
        for check in SHARD_CHECKS:
            model.mark_shards(model.head, check, entry.number, passed=True)
        model.mark_content(model.snapshots[-1].content, "counts", entry.number, passed=True)
        return entry

    def attest_snapshot(self) -> Entry | None:
        """Say what a check found on a snapshot."""
        number = self.number()
        passed = self.draw(st.sampled_from([True, True, False]))
        entry = versions.attest_snapshot(self.version, number, passed=passed)
        assert entry is not None
        content = self.model.snapshots[number - 1].content
        self.model.mark_content(content, "counts", entry.number, passed=passed)
        return entry

    def require(self) -> Entry | None:
        """Set which checks are needed from now on."""
        checks = self.draw(st.sampled_from(POLICIES))
        entry = self.version.require(checks)
        assert (entry is None) == (checks == self.model.checks)
        self.model.checks = checks
        return entry

    def hold(self) -> Entry | None:
        """Set or take away a tag or a pin."""
        what = self.draw(st.sampled_from(["tag", "pin"]))
        holds = self.model.tags if what == "tag" else self.model.pins
        act = self.version.tag if what == "tag" else self.version.pin
        name = self.draw(st.sampled_from(["one", "two"]))
        if name in holds and self.draw(st.booleans()):
            del holds[name]
            return act(name, None)
        number = self.number()
        labels = self.model.snapshots[number - 1].labels
        if self.refused(labels, lambda: act(name, number)):
            return None
        entry = act(name, number)
        assert (entry is None) == (holds.get(name) == number)
        holds[name] = number
        return entry

    def condemn(self) -> Entry | None:
        """Let vacuum take shards that nothing holds."""
        model = self.model
        kept = {number for _, number in model.holds}
        needed = {label for number in kept for label in model.snapshots[number - 1].labels}
        labels = self.some([one for one in model.landings if one not in needed])
        entry = self.version.commit(
            AddTombstones(lambda _: [shard_name(label) for label in labels])
        )
        model.tombstones.update(labels)
        if entry is not None:
            # A shard that went to vacuum is as good as failed.
            for label in labels:
                for landing in model.landings[label]:
                    landing.told = entry.number
        return entry

    def step(self) -> None:
        """Do something, and compare what is told at once."""
        acts = [self.append, self.append, self.require]
        if self.model.snapshots:
            acts += [self.rebuild, self.derive, self.erase, self.restore, self.restore]
            acts += [self.reject, self.reject, self.attest_head, self.attest_head]
            acts += [self.attest_shards, self.attest_snapshot, self.hold, self.condemn]
        entry = self.draw(st.sampled_from(acts))()
        if entry is not None:
            self.model.let_go(entry)
            self._compare_claims(entry)

    def _compare_claims(self, entry: Entry) -> None:
        model = self.model
        assert entry.snapshot == len(model.snapshots)
        assert entry.published == model.newest_published()
        if model.snapshots:
            assert entry.content == model.snapshots[-1].content
            assert entry.totals == Totals.of([shard_of(label) for label in model.head])
        rejected = {s.label for s in self._head_shards() if s.marks.get(REJECTION) is False}
        assert not rejected, "the head holds what was rejected"

    def _head_shards(self) -> list[Landing]:
        return self.model.snapshots[-1].shards if self.model.snapshots else []


def compare(state: State, model: Model) -> None:
    """Compare all that a version knows with its model."""
    bits = state.bits
    for number, made in enumerate(model.snapshots, 1):
        intervals = state.shard_history.at(number)
        assert [interval.shard.name for interval in intervals] == [
            shard_name(label) for label in made.labels
        ]
        for interval, landing in zip(intervals, made.shards, strict=True):
            for check, passed in landing.marks.items():
                flag = 1 << bits[check]
                assert bool(interval.passed & flag) == passed, (number, landing)
                assert bool(interval.failed & flag) == (not passed), (number, landing)
            assert interval.failed_entry == landing.told, (number, landing)
        snapshot_row = state.snapshot_history.get_row(number)
        assert snapshot_row.entry == made.entry
        assert snapshot_row.content == made.content
        assert snapshot_row.rejected == made.rejected
        assert snapshot_row.totals == Totals.of([shard_of(label) for label in made.labels])
        assert snapshot_row.passed == sum(
            1 << bits[check] for check, ok in made.marks.items() if ok
        )
        assert snapshot_row.failed == sum(
            1 << bits[check] for check, ok in made.marks.items() if not ok
        )
        assert snapshot_row.failed_entry == made.told
        assert state.snapshot_history.column("released")[number - 1] == made.released, number
        assert state.get_checks(number) == made.checks
        assert is_published(state, number) == (number in model.published())
    assert [n for n, good in enumerate(list_published(state), 1) if good] == model.published()
    assert len(state.snapshot_history) == state.snapshot == len(model.snapshots)
    keys = {source_of(label).key: entry for label, entry in model.sources.items()}
    assert dict(state.sources.items()) == keys
    assert {key for key, number in state.shard_names.items() if number < 0} == {
        get_name_key(shard_name(label)) for label in model.tombstones
    }
    assert {name: hold.snapshot for name, hold in state.tags.items()} == model.tags
    assert {name: hold.snapshot for name, hold in state.pins.items()} == model.pins


def test_what_is_tried_and_not_committed_leaves_no_trace(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    for label in "abc":
        versions.append(version, label)
    version.restore(2)
    versions.append(version, "d")
    content = version.latest().content
    names = tuple(shard.name for shard in version.latest().shards)
    *_, (replayed, _) = version.log.replay()
    true = facts_of(replayed)
    for change in (
        Attest((Attestation("counts", passed=False, content=content),)),
        Attest((Attestation("integrity", passed=False, shards=names),)),
        Reject(2, added=(shard_of("b"),), rejected=(shard_name("b"),)),
        Restore(1, head=5),
        SetTag("good", 2),
        versions.rebuild_of("ab", "r"),
        AddTombstones(lambda _: [shard_name("c")]),
    ):
        *_, (tried, _) = version.log.replay()
        made = build_entry(tried, change, id="", now=utc_now(), commit_info=CommitInfo("test"))
        assert made is not None
        assert facts_of(made[0]) != true
        assert facts_of(tried) == true, change


def play_out(draw: DataObject, policy: Checks, steps: int) -> None:
    """Do so many things, and compare what came of it, however it is read back."""
    play = Play(draw, policy)
    kept_at = draw.draw(st.integers(0, steps), label="checkpoint after step")
    kept: State | None = None
    log = play.version.log
    for step in range(steps):
        play.step()
        if step == kept_at:
            log.write_checkpoint(play.version.state)
            kept = log.checkpoint(play.version.state.number)
            assert kept is not None
            assert facts_of(kept) == facts_of(play.version.state)
            kept = log.checkpoint(play.version.state.number)
    compare(play.version.state, play.model)
    *_, (replayed, _) = log.replay()
    assert facts_of(replayed) == facts_of(play.version.state)
    if kept is not None:
        log.follow(kept)
        assert facts_of(kept) == facts_of(replayed)
    assert facts_of(Version(play.version.store, NAME).state) == facts_of(replayed)
    proved = read_verified_log(log)
    assert (proved.report.problems, proved.whole) == ((), True)
    assert matches_replay(proved.ledger, replayed)
    gate = proved.ledger.publication
    published = [gate.is_published(number + 1) for number in range(replayed.snapshot)]
    assert published == list_published(replayed).tolist()


@pytest.mark.sweep
@settings(max_examples=drawn(100))
@given(draw=st.data(), policy=st.sampled_from(POLICIES), steps=st.integers(1, 40))
def test_a_version_is_what_a_naive_model_of_it_is(
    draw: DataObject, policy: Checks, steps: int
) -> None:
    play_out(draw, policy, steps)


@settings(max_examples=4, phases=[Phase.generate])
@given(draw=st.data(), policy=st.sampled_from(POLICIES))
def test_a_version_with_a_long_life_is_what_a_naive_model_of_it_is(
    draw: DataObject, policy: Checks
) -> None:
    play_out(draw, policy, 200)
