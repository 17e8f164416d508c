"""What an audit says of what was damaged, of what lies on that, and of what was repaired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.hints import Command
from shardline.lineage.audit.recompute_audit import RecomputeOptions
from shardline.lineage.audit.root_audit import audit
from shardline.log.model import INTEGRITY, SCHEMA, Attestation
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import erase
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.provenance.consumers import register
from shardline.provenance.log_index import LogIndex
from tests.cli.datasets import MISFIT, damage, entry_file, land, landed, on
from tests.lineage.roots import rechain
from tests.operations.extensions import base_of, double, grown, version_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardline.lineage.audit.audit_report import AuditReport

BASE, WIDE, PLAN, WHOLE = "digits/v1", "digits/v2", "pairs/plan", "digits/whole"


@pytest.fixture
def base(tmp_path: Path) -> Version:
    """A base, an overlay on it, and a plan that pairs the overlay; two snapshots of each."""
    base = base_of(tmp_path, (0, 5))
    follow(base)
    grown(base, tmp_path / "landing", (5, 9))
    follow(base)
    return base


def follow(base: Version) -> None:
    wide, plan = Version(base.store, WIDE), Version(base.store, PLAN)
    extend(base, double, wide)
    assert check_version(wide).ok
    combine(
        wide, wide, plan, mode="virtual", unordered=True, on_collision="prefix", right_prefix="b_"
    )
    assert check_version(plan).ok


def audited(base: Version, *names: str, **options: Any) -> AuditReport:  # noqa: ANN401 - as they come
    return audit(LogIndex(base.store), names or None, **options)


def kinds(base: Version, *names: str, **options: Any) -> set[tuple[str, str, str]]:  # noqa: ANN401 - as above
    found = audited(base, *names, **options).findings
    return {(one.severity, one.kind, one.version) for one in found}


def file_of(version: Version, snapshot: int = 1, place: int = 0) -> Path:
    return Path(version.snapshot(snapshot).files()[place])


def edited(entry: Path, _: Path) -> None:
    entry.write_bytes(entry.read_bytes().replace(b'"time":"2', b'"time":"1'))


def removed(entry: Path, _: Path) -> None:
    entry.unlink()


def swapped(entry: Path, other: Path) -> None:
    first, second = entry.read_bytes(), other.read_bytes()
    entry.write_bytes(second)
    other.write_bytes(first)


@pytest.mark.parametrize("change", [edited, removed, swapped])
def test_shards_on_corrupt_log_are_not_judged(
    base: Version, tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    root = tmp_path / "root"
    change(entry_file(root, 2, BASE), entry_file(root, 3, BASE))
    found = kinds(base)
    assert {(severity, version) for severity, _, version in found if severity != "note"} == {
        ("error", BASE)
    }
    assert {one for one in found if one[0] == "note"} == {
        ("note", "not-judged", WIDE),
        ("note", "not-judged", PLAN),
    }


def test_lost_shard_is_no_false_attestation(base: Version) -> None:
    file_of(base).unlink()
    assert kinds(base) == {("error", "missing-shard", BASE)}
    repair(base)
    assert check_version(base).ok
    follow(base)
    assert kinds(base) == {("note", "repaired-shard", BASE)}


def test_shards_from_repaired_input_are_not_recomputed(base: Version) -> None:
    whole = Version(base.store, WHOLE)
    rebuild(base)
    assert check_version(base).ok
    extend(base, double, whole, mode="rewrite", snapshot=2)
    base.restore(2)
    damage(file_of(base))
    repair(base)
    assert check_version(base).ok
    follow(base)
    deep = RecomputeOptions(20, udfs=(double,))
    for names in ((), (BASE,), (WIDE,), (WHOLE,)):
        report = audited(base, *names, recompute=deep)
        assert report.ok
        assert report.not_recomputed
        assert {one.reason.code for one in report.not_recomputed} == {"corrupt-input"}
    (left,) = audited(base, BASE, recompute=deep).not_recomputed
    assert (left.version, left.shards) == (BASE, 1)
    (left,) = audited(base, WHOLE, recompute=deep).not_recomputed
    reason = left.reason
    assert (reason.code, reason.version, reason.entry) == ("corrupt-input", BASE, 13)


def test_retained_unreadable_snapshot_is_found_until_released(
    base: Version, tmp_path: Path
) -> None:
    wide, root = Version(base.store, WIDE), tmp_path / "root"
    wide.tag("best", 1)
    register(base, 1, "cnn", run="42")
    base.pin("of a person", 1)
    whole = file_of(base).read_bytes()
    damage(file_of(base))
    repair(base)
    assert check_version(base).ok
    follow(base)
    lost = {("warning", "unreadable-snapshot", name) for name in (BASE, WIDE)}
    assert kinds(base) == {*lost, ("note", "repaired-shard", BASE)}
    assert kinds(base, shards=False) == lost
    file, damaged = file_of(base), file_of(base).read_bytes()
    file.write_bytes(whole)
    assert kinds(base) == set()
    file.write_bytes(damaged)
    told = {one.version: one for one in audited(base).findings if one.severity == "warning"}
    assert "'of a person'" in told[BASE].detail
    release = Command.of("consumers", "digits/v1@1", "--release", "cnn", "--run", "42")
    assert told[BASE].hint.commands == (release,)
    assert told[WIDE].hint.commands == (Command.of("tag", WIDE, "best"),)
    for one in told.values():
        (command,) = one.hint.commands
        assert on(root, *command.arguments).code == 0
    base.pin("of a person", None)
    assert kinds(base) == {("note", "repaired-shard", BASE)}


def test_restored_corrupt_shard_is_an_error(base: Version) -> None:
    damage(file_of(base))
    repair(base)
    assert check_version(base).ok
    base.restore(2)
    for shards in (True, False):
        assert ("error", "damaged-shard", BASE) in kinds(base, BASE, shards=shards)
    repair(base)
    assert check_version(base).ok
    assert kinds(base, BASE) == {("note", "repaired-shard", BASE)}
    assert kinds(base, BASE, shards=False) == set()


def test_snapshot_on_erased_shards_expires_until_vacuum(base: Version, tmp_path: Path) -> None:
    plan = version_in(tmp_path, "pairs/erased")
    names: dict[str, Any] = {"on_collision": "prefix", "right_prefix": "b_"}
    combine(base, base, plan, mode="virtual", **names)
    assert check_version(plan).ok
    base.tag("kept", 1)
    erase(base.store, "digits", where="id == 3")
    found = {one.version: one for one in audited(base).findings}
    assert BASE not in found
    told = found["pairs/erased"]
    assert (told.severity, told.kind) == ("warning", "expiring-snapshot")
    base.refresh()
    erasure = base.state.get_tombstone(base.snapshot(1).shards[0].name)
    assert f"entry {erasure}" in told.detail
    assert plan.published().to_arrow().read_all().num_rows == 81
    base.refresh()
    assert check_version(base).ok
    combine(base, base, plan, mode="virtual", **names)
    assert check_version(plan).ok
    assert "pairs/erased" not in {one.version for one in audited(base).findings}


def test_records_lost_by_repair_stay_a_note(base: Version, tmp_path: Path) -> None:
    (tmp_path / "landing/000000-000005.jsonl").unlink()
    damage(file_of(base))
    repair(base, allow_data_loss=True)
    assert check_version(base).ok
    follow(base)
    told = {one.kind: one for one in audited(base, sources=False).findings}
    assert set(told) == {"lost-records", "repaired-shard"}
    assert "1 record" in told["repaired-shard"].detail
    (quick,) = audited(base, shards=False, sources=False).findings
    assert (quick.severity, quick.kind) == ("note", "lost-records")
    assert "1 record" in quick.detail


def test_since_reads_restored_shards(base: Version) -> None:
    rebuild(base)
    assert check_version(base).ok
    damage(file_of(base))
    assert audited(base, BASE, since=3).findings == ()
    base.restore(2)
    for since in (3, 4):
        (found,) = audited(base, BASE, since=since).findings
        assert (found.kind, found.subject) == ("damaged-shard", f"shard {file_of(base).name}")
    base.restore(3)
    assert audited(base, BASE, since=5).findings == ()


@pytest.mark.parametrize("how", ["forged", "removed"])
def test_shards_of_corrupt_log_are_not_recomputed(base: Version, tmp_path: Path, how: str) -> None:
    entry = entry_file(tmp_path / "root", 5, BASE)
    if how == "removed":
        entry.unlink()
    else:
        rechain(entry.parent, 5, lambda told: told["added"][0].update(records=5))
    report = audited(base, recompute=RecomputeOptions(20, udfs=(double,)))
    assert {one.version for one in report.findings if one.severity == "error"} == {BASE}
    assert {
        (one.version, one.reason.code, one.reason.version) for one in report.not_recomputed
    } == {
        (BASE, "corrupt-log", ""),
        (WIDE, "input-log-unreadable", BASE),
        (PLAN, "input-log-unreadable", BASE),
    }
    assert report.recomputed == 0


def test_hint_resolves_false_attestation_of_old_shard(tmp_path: Path) -> None:
    version = landed(tmp_path, "a")
    land(version, "b", MISFIT)
    name = version.latest().shards[-1].name
    version.attest(
        [Attestation(check, passed=True, shards=(name,)) for check in (INTEGRITY, SCHEMA)]
    )
    version.restore(1)
    (found,) = (one for one in audited(version).findings if one.severity == "error")
    assert found.kind == "false-attestation"
    (command,) = found.hint.commands
    assert command == Command.of("check", f"{version.name}@2", "--recheck")
    assert on(tmp_path, *command.arguments).code == 1
    assert audited(version).ok
