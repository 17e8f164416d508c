"""A log whose files are not what was written: every flipped bit is noticed and told by number."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from shardline import canonical_json as canonical
from shardline.api import Version
from shardline.errors import CorruptLogError, UnknownFormatError
from shardline.log.changes import SetTag
from shardline.log.checkpoint import CheckpointError, read_checkpoint
from shardline.log.entry import read_entry
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.operations.verify_log import verify_log
from shardline.storage import open_store
from tests.errors import raises
from tests.log import versions
from tests.log.versions import NAME, TABLES, held
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shardline.log.state import State

LAST = 10
"""The number of the newest entry of the version that is damaged here."""
HELD = ["a", "größer", "c"]
"""Long tests come in four parts, so that they can be run side by side."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small version with entries of most kinds, and no checkpoint."""
    root = tmp_path_factory.mktemp("sound")
    version = versions.make_version(root)
    versions.append(version, "a", "größer")
    versions.attest_shards(version, "a", "größer")
    version.tag("good", 1)
    versions.append(version, "b")
    version.reject(2, versions.shard_results("b", passed=False), reason="not good enough")
    versions.append(version, "c")
    versions.rebuild(version, ["größer", "c"], "r")
    version.restore(4)
    version.pin("reader", 5)
    assert version.state.number == LAST
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return shutil.copytree(sound, tmp_path / "copy")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A version of three entries."""
    version = versions.make_version(tmp_path)
    versions.append(version, "a")
    versions.attest_shards(version, "a")
    return tmp_path


def entry_path(root: Path, number: int) -> Path:
    return root / Version(root, NAME).log.entry_name(number)


def checkpoint_path(root: Path, number: int) -> Path:
    return root / Version(root, NAME).log.checkpoint_name(number)


def hint_path(root: Path) -> Path:
    return root / NAME / "log" / "newest-checkpoint.json"


def replay(root: Path) -> State:
    """The version from its entries alone."""
    *_, (state, _) = Version(root, NAME).log.replay()
    return state


def problems(root: Path) -> set[int]:
    """The entries with which verification finds something wrong."""
    return {problem.entry for problem in verify_log(Version(root, NAME).log).problems}


def damaged(act: Callable[[], object]) -> int:
    """The number of the entry that is told to be damaged."""
    with pytest.raises(CorruptLogError) as caught:
        act()
    assert (caught.value.code, caught.value.version) == ("corrupt-log", NAME)
    return caught.value.entry


def flips_of(data: bytes | bytearray, count: int, name: str) -> list[tuple[int, int]]:
    """Return a sample of all bits, each as byte and flag."""
    every = [(offset, 1 << bit) for offset in range(len(data)) for bit in range(8)]
    return sampled(every, count, name)


def flipped(path: Path, count: int) -> Iterator[str]:
    """Flip a sample of the bits of a file, one at a time, and give where it was."""
    data = path.read_bytes()
    file = os.open(path, os.O_WRONLY)
    try:
        for offset, flag in flips_of(data, count, path.name):
            os.pwrite(file, bytes([data[offset] ^ flag]), offset)
            yield f"bit {flag:#04x} of byte {offset}"
            os.pwrite(file, bytes([data[offset]]), offset)
    finally:
        os.close(file)
    assert path.read_bytes() == data


@pytest.mark.sweep
@pytest.mark.parametrize("number", [2, 3])
def test_every_flipped_bit_of_an_entry_is_noticed_when_the_version_is_opened(
    tiny: Path, number: int
) -> None:
    for flip in flipped(entry_path(tiny, number), 300):
        assert damaged(lambda: Version(tiny, NAME).state) == number, flip
    assert held(Version(tiny, NAME)) == ["a"]


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(1, LAST + 1))
def test_every_flipped_bit_of_every_kind_of_entry_is_noticed_when_it_is_read(
    sound: Path, number: int
) -> None:
    data = bytearray(entry_path(sound, number).read_bytes())
    for offset, flag in flips_of(data, 500, f"entry {number}"):
        data[offset] ^= flag
        assert damaged(lambda: read_entry(NAME, number, bytes(data))) == number, (offset, flag)
        data[offset] ^= flag
    read_entry(NAME, number, bytes(data))


@pytest.mark.sweep
@pytest.mark.parametrize("number", range(1, LAST + 1))
def test_an_entry_that_was_cut_off_anywhere_is_noticed(sound: Path, number: int) -> None:
    data = entry_path(sound, number).read_bytes()
    for size in sampled(range(len(data)), 200, f"entry {number}"):
        assert damaged(lambda size=size: read_entry(NAME, number, data[:size])) == number  # type: ignore[misc]


@pytest.mark.sweep
@pytest.mark.parametrize("number", [1, 5, LAST])
def test_a_flipped_bit_is_noticed_by_a_replay_whether_or_not_there_is_a_checkpoint(
    root: Path, number: int
) -> None:
    checkpoint_at(root, LAST - 1)
    for flip in flipped(entry_path(root, number), 20):
        assert damaged(lambda: replay(root)) == number, flip
        assert problems(root) >= {number}, flip


@pytest.mark.sweep
@pytest.mark.parametrize("number", [LAST - 1, LAST])
def test_a_flipped_bit_at_a_checkpoint_or_behind_it_is_noticed_when_the_version_is_opened(
    root: Path, number: int
) -> None:
    checkpoint_at(root, LAST - 1)
    for flip in flipped(entry_path(root, number), 60):
        assert damaged(lambda: Version(root, NAME).state) == number, flip


def test_nothing_is_committed_to_a_damaged_log(root: Path) -> None:
    path = entry_path(root, LAST)
    path.write_bytes(path.read_bytes().replace(b"reader", b"raider"))
    files = sorted(root.rglob("*.json"))
    assert damaged(lambda: versions.append(Version(root, NAME), "z")) == LAST
    assert sorted(root.rglob("*.json")) == files


def test_a_damaged_entry_that_someone_commits_behind_meanwhile_is_noticed(root: Path) -> None:
    version = Version(root, NAME)
    assert version.exists
    versions.append(Version(root, NAME), "z")
    path = entry_path(root, LAST + 1)
    path.write_bytes(path.read_bytes().replace(b'"append"', b'"upsert"'))
    assert damaged(lambda: versions.append(version, "y")) == LAST + 1


def checkpoint_at(root: Path, number: int) -> State:
    """Write a checkpoint of an earlier entry, and give the version as it stood there."""
    log = Version(root, NAME).log
    for state, entry in log.replay():
        if entry.number == number:
            log.write_checkpoint(state)
            return state
    raise AssertionError(number)


def assert_same(state: State, true: State) -> None:
    """Compare all there is, tables included."""
    for name in (field.name for field in fields(true)):
        if name in TABLES:
            assert getattr(state, name).to_table().equals(getattr(true, name).to_table()), name
        elif name != "checkpoint":
            assert getattr(state, name) == getattr(true, name), name


@pytest.mark.sweep
def test_every_flipped_bit_of_a_checkpoint_is_noticed_before_it_is_used(root: Path) -> None:
    checkpoint_at(root, LAST)
    log = Version(root, NAME).log
    name = log.checkpoint_name(LAST)
    data = bytearray(log.store.read(name))
    store = open_store("memory://flips")
    for offset, flag in flips_of(data, 1000, "checkpoint"):
        data[offset] ^= flag
        store.replace(name, bytes(data))
        data[offset] ^= flag
        with pytest.raises(CheckpointError):
            read_all(read_checkpoint(store, name, log.dataset, log.version))


def read_all(state: State) -> None:
    """Read the tables, the small ones first."""
    for name in reversed(TABLES):
        getattr(state, name).to_table()


@pytest.mark.sweep
@pytest.mark.parametrize("number", [LAST, LAST - 3])
def test_a_flipped_bit_of_a_checkpoint_leaves_the_version_as_it_is(root: Path, number: int) -> None:
    true = replay(root)
    checkpoint_at(root, number)
    for flip in flipped(checkpoint_path(root, number), 60):
        try:
            assert_same(Version(root, NAME).state, true)
        except AssertionError as error:
            raise AssertionError(flip) from error


@pytest.mark.sweep
def test_a_checkpoint_that_was_cut_off_anywhere_leaves_the_version_as_it_is(root: Path) -> None:
    true = replay(root)
    checkpoint_at(root, LAST)
    path = checkpoint_path(root, LAST)
    size = path.stat().st_size
    for left in [*reversed(sampled(range(1, size), 60, "checkpoint")), 0]:
        os.truncate(path, left)
        assert_same(Version(root, NAME).state, true)


def test_a_checkpoint_that_is_damaged_after_it_was_opened_is_made_up_for(root: Path) -> None:
    true = replay(root)
    checkpoint_at(root, LAST)
    opened = Version(root, NAME).state
    checkpoint_path(root, LAST).write_bytes(b"not a checkpoint at all")
    assert_same(opened, true)


def test_a_checkpoint_that_vacuum_took_after_it_was_opened_is_made_up_for(root: Path) -> None:
    true = replay(root)
    checkpoint_at(root, LAST)
    opened = Version(root, NAME).state
    checkpoint_path(root, LAST).unlink()
    assert_same(opened, true)


def test_a_version_goes_on_from_a_damaged_checkpoint(root: Path) -> None:
    checkpoint_at(root, LAST - 2)
    path = checkpoint_path(root, LAST - 2)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    version = Version(root, NAME)
    versions.append(version, "d")
    assert versions.append(version, "a") is None
    assert held(version) == [*HELD, "d"]
    assert_same(version.state, replay(root))


def test_a_damaged_checkpoint_of_a_damaged_log_is_an_error(root: Path) -> None:
    checkpoint_at(root, LAST)
    entry_path(root, 3).write_bytes(b"")
    checkpoint = checkpoint_path(root, LAST)
    data = bytearray(checkpoint.read_bytes())
    data[-1] ^= 1
    checkpoint.write_bytes(data)
    assert damaged(lambda: read_all(Version(root, NAME).state)) == 3


def test_a_checkpoint_of_another_log_is_not_used(root: Path, tmp_path: Path) -> None:
    other = versions.make_version(tmp_path / "other")
    for number in range(LAST - 1):
        versions.append(other, f"other {number}")
    other.log.write_checkpoint(other.state)
    shutil.copy(checkpoint_path(tmp_path / "other", LAST), checkpoint_path(root, LAST))
    hint_path(root).write_text(json.dumps({"entry": LAST}))
    assert_same(Version(root, NAME).state, replay(root))


def test_a_checkpoint_under_the_number_of_another_entry_is_not_used(root: Path) -> None:
    checkpoint_at(root, 4)
    checkpoint_path(root, 4).rename(checkpoint_path(root, 6))
    hint_path(root).write_text(json.dumps({"entry": 6}))
    assert_same(Version(root, NAME).state, replay(root))


def test_verification_tells_of_a_checkpoint_that_says_something_else(root: Path) -> None:
    log = Version(root, NAME).log
    state = replay(root)
    state.published = 1
    log.write_checkpoint(state)
    assert problems(root) == {LAST}


def resealed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Forge an entry: change it, and give it the digest that it would have."""
    told = json.loads(path.read_bytes())
    change(told)
    told.pop("digest")
    told["digest"] = canonical.sha256(told)
    path.write_bytes(canonical.encode(told) + b"\n")


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "totals": lambda told: told["totals"].update(records=1_000_000),
    "content": lambda told: told.update(content="0" * 64),
    "published": lambda told: told.update(published=2),
    "snapshot": lambda told: told.update(snapshot=told["snapshot"] + 1),
    "number": lambda told: told.update(number=told["number"] + 1),
    "version": lambda told: told.update(version="v2"),
    "previous": lambda told: told.update(previous="0" * 64),
    "time": lambda told: told.update(time="2001-01-01T00:00:00.000000Z"),
    "operation": lambda told: told.update(operation="other"),
    "removed": lambda told: told.update(removed=[versions.shard_name("unknown")]),
    "id": lambda told: told.update(id="0" * 32),
}
CLAIMS = {"totals", "content", "published", "snapshot", "number", "version", "previous", "time"}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_entry_is_noticed_at_it_or_at_the_next_one(root: Path, what: str) -> None:
    resealed(entry_path(root, 5), FORGERIES[what])
    assert damaged(lambda: replay(root)) in {5, 6}
    assert problems(root) & {5, 6}


@pytest.mark.parametrize("what", sorted(CLAIMS | {"removed"}))
def test_a_forged_newest_entry_is_noticed_by_verification(root: Path, what: str) -> None:
    resealed(entry_path(root, LAST), FORGERIES[what])
    assert problems(root) == {LAST}


def test_two_entries_that_were_swapped_are_told_by_the_first(root: Path) -> None:
    for first in range(1, LAST):
        one, other = entry_path(root, first), entry_path(root, first + 1)
        before = one.read_bytes(), other.read_bytes()
        one.write_bytes(before[1])
        other.write_bytes(before[0])
        assert damaged(lambda: Version(root, NAME).state) == first
        assert problems(root) >= {first, first + 1}
        one.write_bytes(before[0])
        other.write_bytes(before[1])


def test_every_missing_entry_that_has_later_ones_behind_it_is_told(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    versions.append(version, "a")
    last = 40
    versions.grow(version, [SetTag("good", 1), SetTag("good", None)] * (last // 2 - 1))
    for number in range(1, last):
        path = entry_path(tmp_path, number)
        data = path.read_bytes()
        path.unlink()
        assert damaged(lambda: Version(tmp_path, NAME).state) == number
        assert damaged(lambda: replay(tmp_path)) == number
        assert problems(tmp_path) >= {number}
        path.write_bytes(data)
    assert Version(tmp_path, NAME).state.number == last


def test_an_entry_is_missing_at_which_a_checkpoint_was_made(root: Path) -> None:
    checkpoint_at(root, LAST)
    entry_path(root, LAST).unlink()
    assert damaged(lambda: Version(root, NAME).state) == LAST
    assert LAST in problems(root)


def test_an_entry_that_was_put_between_two_others_is_told(root: Path) -> None:
    for number in range(LAST, 4, -1):
        entry_path(root, number).rename(entry_path(root, number + 1))
    shutil.copy(entry_path(root, 4), entry_path(root, 5))
    assert damaged(lambda: replay(root)) == 5
    assert problems(root) >= {5}


def test_an_entry_that_was_put_behind_the_last_one_is_told(root: Path) -> None:
    shutil.copy(entry_path(root, LAST), entry_path(root, LAST + 1))
    assert damaged(lambda: Version(root, NAME).state) == LAST + 1
    assert problems(root) == {LAST + 1}


def test_an_entry_of_another_log_in_the_place_of_ours_is_told(root: Path, tmp_path: Path) -> None:
    other = versions.make_version(tmp_path / "other")
    for number in range(LAST - 1):
        versions.append(other, f"other {number}")
    shutil.copy(entry_path(tmp_path / "other", 5), entry_path(root, 5))
    assert damaged(lambda: replay(root)) == 5
    assert problems(root) >= {5}


def test_an_entry_of_another_version_is_told(root: Path) -> None:
    other = versions.make_version(root, "digits/v2")
    versions.append(other, "a")
    shutil.copy(root / other.log.entry_name(2), entry_path(root, 2))
    assert damaged(lambda: replay(root)) == 2


NOT_CANONICAL: dict[str, Callable[[bytes], bytes]] = {
    "spaces": lambda data: data.replace(b'":', b'": '),
    "another order": lambda data: (
        json.dumps(
            dict(reversed(json.loads(data).items())), separators=(",", ":"), ensure_ascii=False
        ).encode()
        + b"\n"
    ),
    "escapes that need not be": lambda data: (
        json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"))
        .replace('"append"', '"\\u0061ppend"')
        .encode()
        + b"\n"
    ),
    "a key twice": lambda data: data.replace(b'"format":1', b'"format":1,"format":1'),
    "a number that is not whole": lambda data: data.replace(b'"format":1', b'"format":1.0'),
    "a number with an exponent": lambda data: data.replace(b'"format":1', b'"format":1e0'),
    "no newline at the end": lambda data: data[:-1],
    "two newlines at the end": lambda data: data + b"\n",
    "a carriage return": lambda data: data[:-1] + b"\r\n",
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "another encoding": lambda data: data.decode().encode("utf-16"),
    "an empty file": lambda _: b"",
    "only a newline": lambda _: b"\n",
    "a list": lambda data: b"[" + data[:-1] + b"]\n",
    "a number": lambda _: b"1\n",
    "nothing but zeros": lambda data: bytes(len(data)),
    "deep nesting": lambda _: b"[" * 200_000 + b"\n",
    "a number of many digits": lambda _: b"9" * 10_000 + b"\n",
}


@pytest.mark.parametrize("how", NOT_CANONICAL)
def test_another_spelling_of_an_entry_is_refused(root: Path, how: str) -> None:
    path = entry_path(root, 5)
    data = path.read_bytes()
    path.write_bytes(NOT_CANONICAL[how](data))
    assert path.read_bytes() != data
    assert damaged(lambda: Version(root, NAME).state) == 5


NEWER: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a format": (lambda told: told.update(format=2), "unknown format 2"),
    "a feature": (lambda told: told.update(features=["shredding"]), "unknown feature 'shredding'"),
    "features of another shape": (lambda told: told.update(features={"x": 1}), "unknown feature"),
    "a format and its fields": (lambda told: told.update(format=3, new={"x": [1]}), "format 3"),
}


@pytest.mark.parametrize("what", NEWER)
@pytest.mark.parametrize("number", [5, LAST])
def test_an_entry_of_a_newer_release_is_refused_with_the_release_to_use(
    root: Path, what: str, number: int
) -> None:
    change, told = NEWER[what]
    path = entry_path(root, number)
    resealed(path, lambda entry: (change(entry), entry["by"].update(release="7.8.9")))
    files = sorted(root.rglob("*.json"))
    for act in (
        lambda: Version(root, NAME).state,
        lambda: versions.append(Version(root, NAME), "z"),
    ):
        with raises(UnknownFormatError, "unknown-format", entry=number, version=NAME) as caught:
            act()
        assert told in str(caught.value)
        assert "7.8.9" in str(caught.value.hint)
    assert sorted(root.rglob("*.json")) == files


@pytest.mark.parametrize("release", [None, "\x1b[2J evil", 5, "x" * 1000])
def test_a_release_that_is_no_release_is_not_shown(root: Path, release: object) -> None:
    resealed(entry_path(root, 5), lambda told: told.update(format=2, by={"release": release}))
    with raises(UnknownFormatError, "unknown-format", entry=5) as caught:
        replay(root)
    assert "a newer release" in str(caught.value.hint)
    assert "evil" not in caught.value.describe()
    assert "xx" not in caught.value.describe()


def test_an_unknown_field_of_a_known_format_is_damage(root: Path) -> None:
    resealed(entry_path(root, 5), lambda told: told.update(surprise=1))
    assert damaged(lambda: replay(root)) == 5


HINTS: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "garbage": bytes(range(256)),
    "no object": b"[128]",
    "no entry": b"{}",
    "text": b'{"entry":"128"}',
    "true": b'{"entry":true}',
    "not whole": b'{"entry":128.5}',
    "negative": b'{"entry":-128}',
    "zero": b'{"entry":0}',
    "too large": b'{"entry":12800}',
    "far too large": b'{"entry":%d}' % 10**40,
    "an entry without a checkpoint": b'{"entry":130}',
    "an older checkpoint": b'{"entry":%d}' % CHECKPOINT_INTERVAL,
    "a checkpoint that is gone": b'{"entry":%d}' % (2 * CHECKPOINT_INTERVAL),
    "deep nesting": b"[" * 200_000,
}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A version with checkpoints at one, three and four intervals: the second is gone."""
    root = tmp_path_factory.mktemp("long")
    version = versions.make_version(root)
    labels = [f"shard {number}" for number in range(4 * CHECKPOINT_INTERVAL + 5)]
    versions.grow(version, (versions.append_of(label) for label in labels))
    checkpoint_path(root, 2 * CHECKPOINT_INTERVAL).unlink()
    return root


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS)
def test_a_wrong_hint_never_changes_the_answer(long: Path, hint: bytes | None) -> None:
    path = hint_path(long)
    right = path.read_bytes()
    try:
        path.unlink() if hint is None else path.write_bytes(hint)
        state = Version(long, NAME).state
        assert_same(state, replay(long))
        assert state.checkpoint == 4 * CHECKPOINT_INTERVAL
    finally:
        path.write_bytes(right)


def test_without_any_checkpoint_the_log_is_replayed(long: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(long, tmp_path / "copy")
    true = Version(long, NAME).state
    for path in copy.rglob("*.checkpoint"):
        path.unlink()
    state = Version(copy, NAME).state
    assert state.checkpoint == 0
    assert_same(state, true)


def test_an_entry_that_removes_unknown_shards_names_its_version(tmp_path: Path) -> None:
    version = versions.make_version(tmp_path)
    versions.append(version, "a")
    versions.append(version, "b")
    versions.rebuild(version, "ab", "r")
    unknown = [versions.shard_name("y"), versions.shard_name("z")]
    resealed(entry_path(tmp_path, 4), lambda told: told.update(removed=unknown))
    assert damaged(lambda: Version(tmp_path, NAME).latest().shards) == 4


def test_entry_is_known_by_its_digest(root: Path) -> None:
    log = Version(root, NAME).log
    digest = log.entry(LAST).digest
    assert log.has_entry(LAST, digest)
    assert not log.has_entry(LAST - 1, digest), "another entry"
    assert not log.has_entry(LAST + 1, digest), "no entry"
    path = entry_path(root, LAST)
    sealed = path.read_bytes()
    for index in range(len(sealed)):
        path.write_bytes(sealed[:index] + bytes([sealed[index] ^ 1]) + sealed[index + 1 :])
        with pytest.raises(CorruptLogError):
            log.has_entry(LAST, digest)
