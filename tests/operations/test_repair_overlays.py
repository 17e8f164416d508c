"""A base that is repaired: what lies on its old shards is told, and follows by one command."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import CorruptFileError, UnreadableSnapshotError
from shardline.log.changes import Replace
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.verify_version import verify_version
from shardline.provenance.consumers import register
from shardline.provenance.dependents import list_dependents
from tests.cli.datasets import damage, on
from tests.operations.extensions import base_of, double, length, table, version_in

if TYPE_CHECKING:
    from shardline.errors import ShardlineError
    from tests.cli.command import Result

DOUBLE, LENGTH = (f"tests.operations.extensions:{name}" for name in ("double", "length"))
EXTEND = f"shardline extend digits/v1 --into v2 --udf {DOUBLE}"
EXTEND_TWICE = f"shardline extend digits/v2 --into v3 --udf {LENGTH}"
COMBINE = (
    "shardline combine digits/v1 digits/v1 --into pairs/plan --on-collision prefix "
    "--right-prefix b_ --mode virtual"
)
EXTEND_WHOLE = f"{EXTEND.replace('v2', 'whole')} --mode rewrite"
MOVE_TAG = "shardline tag digits/v2@2 best"


@pytest.fixture
def base(tmp_path: Path) -> Version:
    """A base of which a shard is damaged, an overlay, one on that, a plan, and a whole copy."""
    base = base_of(tmp_path, (0, 5), (5, 9), (9, 15))
    extend(base, double, version_in(tmp_path))
    assert check_version(version_in(tmp_path)).ok
    extend(version_in(tmp_path), length, version_in(tmp_path, "digits/v3"))
    plan = version_in(tmp_path, "pairs/plan")
    combine(base, base, plan, mode="virtual", on_collision="prefix", right_prefix="b_")
    extend(base, double, version_in(tmp_path, "digits/whole"), mode="rewrite")
    for name in ("digits/v3", "pairs/plan", "digits/whole"):
        assert check_version(version_in(tmp_path, name)).ok
    damage(Path(base.latest().files()[1]))
    return base


def run(root: Path, command: str) -> Result:
    """What was advised, as it would be pasted."""
    return on(root, *shlex.split(command)[1:])


def commands_of(error: ShardlineError) -> list[str]:
    """Return the commands that an error suggests, as they would be pasted."""
    return [] if error.hint is None else [str(command) for command in error.hint.commands]


def test_followers_are_told_each_behind_what_it_is_made_of(base: Version) -> None:
    (one,) = repair(base).repaired
    told = list_dependents(base, [one.shard.name], [one.shard.name])
    assert {(one.snapshot, one.reads) for one in told} == {
        ("digits/v2@1", True),
        ("digits/v3@1", True),
        ("pairs/plan@1", True),
        ("digits/whole@1", False),
    }
    commands = [str(one.command) for one in told]
    assert commands.index(EXTEND) < commands.index(EXTEND_TWICE)
    assert COMBINE in commands
    assert EXTEND_WHOLE in commands
    assert list_dependents(base, [one.shard.name], []) == [one for one in told if one.reads]
    assert list_dependents(base, [], [one.shard.name]) == [one for one in told if not one.reads]
    assert list_dependents(base, ["v1.other.tfrecord"], ["v1.other.tfrecord"]) == []


def test_the_old_shard_is_known_to_be_damaged_from_then_on(base: Version) -> None:
    (one,) = repair(base).repaired
    assert check_version(base).ok
    assert not base.snapshot(1).published
    assert base.published().number == 2
    overlay = Version(base.store, "digits/v2")
    assert not check_version(overlay, recheck=True).ok, "what it lies beside counts"
    assert overlay.state.published is None
    entries = [entry.operation for entry in base.log.entries(1)]
    assert entries[-3:] == ["attest", "repair", "attest"]
    assert repair(base, shards=[one.new_shard.name] if one.new_shard else []).repaired == ()


def test_what_cannot_be_read_says_the_command_that_helps_and_it_helps(
    base: Version, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    before = Version(base.store, "digits/v3").published()
    wanted = [EXTEND, EXTEND_TWICE]
    for step in ("damaged", "repaired"):
        first = ["shardline repair digits/v1"] if step == "damaged" else []
        with pytest.raises(CorruptFileError) as caught:
            table(before)
        assert commands_of(caught.value) == [*first, *wanted]
        with pytest.raises(CorruptFileError) as caught:
            table(Version(base.store, "pairs/plan").published())
        assert commands_of(caught.value) == [*first, COMBINE]
        told = on(root, "verify", "digits/v3")
        assert told.code == 1
        assert told.out.index(EXTEND) < told.out.index(EXTEND_TWICE)
        assert on(root, "verify", "pairs/plan").code == 1
        if step == "damaged":
            assert repair(base).repaired
            assert check_version(base).ok
    with pytest.raises(UnreadableSnapshotError, match="'integrity'") as failed:
        before.to_tf()
    assert commands_of(failed.value)[-2:] == wanted
    for command in wanted:
        extended = run(root, command)
        assert (extended.code, extended.err) == (0, "")
    after = Version(base.store, "digits/v3")
    entry = after.log.entry(after.published().entry)
    assert (entry.parameters["computed"], entry.parameters["reused"]) == (1, 2)
    assert table(after.published())["double"] == [2 * number for number in range(15)]
    assert run(root, COMBINE).code == 0
    for name in ("digits/v2", "digits/v3", "pairs/plan"):
        assert verify_version(Version(base.store, name), "published").ok


def test_repair_names_them_with_the_root_that_it_was_given(base: Version, tmp_path: Path) -> None:
    root = tmp_path / "root"
    told = on("/nowhere", "repair", base.name, "--root", root)
    assert told.code == 0
    assert f"{EXTEND} --root {root}`" in told.out
    assert "digits/whole@1" not in told.out, "its records are as they were"


def test_what_was_made_of_other_snapshots_or_shards_does_not_hold_the_old_records(
    tmp_path: Path,
) -> None:
    base = base_of(tmp_path, (0, 5), (5, 9))
    rebuild(base)
    assert check_version(base).ok
    other = version_in(tmp_path, "digits/other")
    extend(base, double, other, mode="rewrite")
    base.restore(1)
    whole = version_in(tmp_path, "digits/whole")
    extend(base, double, whole, mode="rewrite")
    for shard in base.latest().shards:
        (told,) = list_dependents(base, [], [shard.name])
        assert (told.snapshot, told.reads) == ("digits/whole@1", False)
    made = base.latest().shards[1].name
    whole.commit(Replace(removed=[whole.latest().shards[1].name], added=[], operation="erase"))
    assert list_dependents(base, [], [made]) == [], "what was made of it is no longer there"


def test_what_holds_the_only_copies_is_told_before_they_are_given_up(
    base: Version, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    Path(base.latest().files()[1]).unlink()
    for source in base.log.entry(base.snapshot(1).entry).sources:
        Path(str(source.path)).unlink()
    first = on(root, "repair", base.name)
    told = on(root, "repair", base.name, "--allow-data-loss")
    for one in (first, told):
        assert one.code == 1
        assert EXTEND_WHOLE not in one.out
        (tag,) = (line for line in one.out.splitlines() if "shardline tag digits/whole@1" in line)
        assert run(root, tag.split("`")[1]).code == 0
    tags = version_in(tmp_path, "digits/whole").state.tags.values()
    assert {kept.snapshot for kept in tags} == {1}
    assert EXTEND in told.out


def test_an_old_snapshot_that_nothing_mends_is_let_go_of(base: Version, tmp_path: Path) -> None:
    root = tmp_path / "root"
    overlay = version_in(tmp_path)
    overlay.tag("best", 1)
    register(base, 1, "cnn", run="42")
    before = on(root, "verify", "digits/v2@best").out
    assert "shardline repair digits/v1" in before
    assert on(root, "repair", base.name).code == 0
    assert EXTEND in on(root, "verify", "digits/v2@best").out, "it helps the newest"
    assert run(root, EXTEND).code == 0
    for told in (
        on(root, "verify", "digits/v2@best").out,
        on(root, "head", "digits/v2@best", "-n", "9").err,
    ):
        assert EXTEND not in told
        assert "digits/v2@1" in told
        assert MOVE_TAG in told
    release = "shardline consumers digits/v1@1 --release cnn --run 42"
    for told in (
        on(root, "verify", "digits/v1@1").out,
        on(root, "head", "digits/v1@1", "-n", "9").err,
    ):
        assert "shardline repair" not in told
        assert "digits/v1@2" in told
        assert release in told
    assert run(root, release).code == 0
    assert run(root, MOVE_TAG).code == 0
    assert on(root, "verify", "digits/v2@best").code == 0


def test_a_reader_says_what_makes_a_shard_of_its_own_anew(base: Version, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(CorruptFileError) as caught:
        table(base.latest())
    assert commands_of(caught.value)[0] == "shardline repair digits/v1"
    assert "shardline repair digits/v1" in on(root, "head", "digits/v1", "-n", "9").err
    whole = version_in(tmp_path, "digits/whole")
    damage(Path(whole.latest().files()[0]))
    told = on(root, "head", "digits/whole").err
    check = "shardline check digits/whole --recheck"
    assert told.index(check) < told.index(EXTEND_WHOLE)
    Path(whole.latest().files()[0]).unlink()
    assert "shardline verify digits/whole@1" in on(root, "head", "digits/whole").err
