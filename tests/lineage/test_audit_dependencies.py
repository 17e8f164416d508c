"""What a version is read from is audited with it, and told if it is lost."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.hints import Command
from shardline.lineage.audit.recompute_audit import RecomputeOptions
from shardline.lineage.audit.root_audit import audit
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.repair import repair
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature
from shardline.udf import record_udf
from tests.cli.datasets import damage, on
from tests.operations.extensions import base_of, double, length, version_in

if TYPE_CHECKING:
    from shardline.lineage.audit.audit_report import AuditReport

BASE, WIDE, WIDER, PLAN, WHOLE = "digits/v1", "digits/v2", "digits/v3", "pairs/plan", "digits/whole"
EXTEND = Command.of(
    *("extend", "digits/v1", "--into", "v2"),
    *("--udf", "tests.operations.extensions:double"),
)


@pytest.fixture
def base(tmp_path: Path) -> Version:
    """A base with an overlay, one on that, a plan, and a whole copy."""
    base = base_of(tmp_path, (0, 5), (5, 9))
    extend(base, double, version_in(tmp_path, WIDE))
    assert check_version(version_in(tmp_path, WIDE)).ok
    extend(version_in(tmp_path, WIDE), length, version_in(tmp_path, WIDER))
    names: dict[str, Any] = {"on_collision": "prefix", "right_prefix": "b_"}
    combine(base, base, version_in(tmp_path, PLAN), mode="virtual", **names)
    extend(base, double, version_in(tmp_path, WHOLE), mode="rewrite")
    for name in (WIDER, PLAN, WHOLE):
        assert check_version(version_in(tmp_path, name)).ok
    return base


def audited(base: Version, *names: str, **options: Any) -> AuditReport:  # noqa: ANN401 - as they come
    return audit(LogIndex(base.store), names or None, **options)


def kinds(base: Version, *names: str, **options: Any) -> set[tuple[str, str, str]]:  # noqa: ANN401 - as above
    found = audited(base, *names, **options).findings
    return {(one.severity, one.kind, one.version) for one in found}


def first_file(base: Version) -> Path:
    return Path(base.snapshot(1).files()[0])


def test_audit_reads_dependencies(base: Version) -> None:
    found = {name: audited(base, name) for name in (BASE, WIDE, WIDER, PLAN, WHOLE)}
    assert {name: (report.dependencies, report.shards) for name, report in found.items()} == {
        BASE: ((), 2),
        WIDE: ((BASE,), 4),
        WIDER: ((WIDE, BASE), 6),
        PLAN: ((BASE,), 3),
        WHOLE: ((), 2),
    }
    assert not any(report.findings for report in found.values())


@pytest.mark.parametrize("name", [WIDE, WIDER, PLAN])
def test_corrupt_dependency_is_the_only_finding(base: Version, name: str) -> None:
    damage(first_file(base))
    deep = RecomputeOptions(10, udfs=(double, length))
    for how in (None, deep):
        assert kinds(base, name, recompute=how) == {("error", "damaged-shard", BASE)}
    (left,) = audited(base, name, recompute=deep).not_recomputed
    of = WIDE if name == WIDER else BASE
    assert (left.version, left.shards) == (name, 1)
    assert (left.reason.code, left.reason.version) == ("corrupt-input", of)
    first_file(base).unlink()
    for shards in (True, False):
        assert kinds(base, name, shards=shards) == {("error", "missing-shard", BASE)}


def test_corrupt_input_is_a_reason_not_to_recompute(base: Version) -> None:
    damage(first_file(base))
    (found,) = audited(base, WHOLE, recompute=RecomputeOptions(10, udfs=(double,))).findings
    assert (found.severity, found.kind, found.version) == ("error", "damaged-input", WHOLE)
    where = f"{first_file(base)}: data-crc at record 0, offset 0"
    assert where in found.detail
    assert found.hint.commands == ()  # a shard is repaired, not salvaged


def test_failing_function_is_no_other_writer(base: Version) -> None:
    @record_udf(Feature("length", "int64"), reads=["name"], code="1")
    def length(_: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("no such model")

    length.function.__module__ = "tests.operations.extensions"
    report = audited(base, WIDER, recompute=RecomputeOptions(10, udfs=(length,)))
    assert {one.kind for one in report.findings} == {"not-reproduced"}
    assert report.not_recomputed == ()


def test_published_overlay_on_repaired_shard_is_unreadable(base: Version) -> None:
    damage(first_file(base))
    assert repair(base).repaired
    assert check_version(base).ok
    lost = {("error", "unreadable-snapshot", name) for name in (WIDE, WIDER, PLAN)}
    assert kinds(base) == {*lost, ("note", "repaired-shard", BASE)}
    assert kinds(base, shards=False) == lost
    found = next(one for one in audited(base).findings if one.version == WIDE)
    assert found.subject == "snapshot 1"
    assert first_file(base).name in found.detail
    assert found.hint.commands == (EXTEND,)


def test_hints_resolve_all_findings(base: Version, tmp_path: Path) -> None:
    damage(first_file(base))
    root = tmp_path / "root"
    for version in (BASE, WIDE, WIDER, PLAN):
        told = on("/nowhere", "audit", "--root", root, "--json").json
        found = next(one for one in told["findings"] if one["severity"] == "error")
        assert found["version"] == version
        commands = found["hint"]["commands"]
        assert commands
        for command in commands:
            assert command[-2:] == ["--root", str(root)]
            assert on("/nowhere", *command[1:]).code == 0
    assert on(root, "audit").code == 0
    again = Version(base.store, WIDER)
    entry = again.log.entry(again.published().entry)
    assert (entry.parameters["computed"], entry.parameters["reused"]) == (1, 1)


def test_vacuumed_base_makes_overlay_unreadable(base: Version, tmp_path: Path) -> None:
    rebuild(base)
    assert check_version(base).ok
    for pin in list(base.state.pins):
        base.pin(pin, None)
    vacuum(tmp_path / "root", "digits", retention=timedelta(), dry_run=False)
    for shards in (True, False):
        found = kinds(base, shards=shards)
        assert {("error", "unreadable-snapshot", name) for name in (WIDE, WIDER, PLAN)} <= found
        assert {kind for _, kind, _ in found} == {"unreadable-snapshot", "missing-pin"}


@pytest.mark.parametrize("name", [WIDE, WHOLE, PLAN])
def test_hint_recreates_corrupt_derived_shard(base: Version, tmp_path: Path, name: str) -> None:
    root, version = tmp_path / "root", Version(base.store, name)
    damage(root / version.shard_name(version.latest().shards[0]))
    (found,) = audited(base, name).findings
    assert (found.severity, found.kind, found.version) == ("error", "damaged-shard", name)
    first, command = found.hint.commands
    told = on(root, *first.arguments)
    assert told.code == 1
    assert str(command) in told.out
    assert on(root, *command.arguments).code == 0
    assert kinds(base, name) == {("note", "replaced-shard", name)}
    assert audited(base, name, shards=False).findings == ()
    assert verify_version(Version(base.store, name), "published").ok


def test_corrupt_shard_of_old_snapshot_hints_check(base: Version, tmp_path: Path) -> None:
    old = first_file(base)
    rebuild(base)
    assert check_version(base).ok
    damage(old)
    (found,) = audited(base, BASE).findings
    assert (found.severity, found.kind) == ("error", "damaged-shard")
    (command,) = found.hint.commands
    assert command == Command.of("check", "digits/v1@1", "--recheck")
    assert on(tmp_path / "root", *command.arguments).code == 1
    assert kinds(base, BASE) == {("note", "replaced-shard", BASE)}
    assert ("error", "unreadable-snapshot", WIDE) in kinds(base, WIDE)
