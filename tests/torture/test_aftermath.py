"""Other operations after a fault: nothing is lost or left over, and errors state what was done.

A command is killed, or one of its system calls fails. Then vacuum, append, verify, audit and
export run, in an order that differs from point to point, before the command runs again.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.lineage.audit.root_audit import audit
from shardline.operations.append import append
from shardline.operations.export import export
from shardline.operations.rebuild import rebuild
from shardline.operations.verify_version import verify_version
from shardline.provenance.log_index import LogIndex
from tests.operations.landings import Payloads
from tests.torture.aftermath_commands import VERBS, vacuum_now
from tests.torture.data_cases import OLD, A, B, payloads, prepare_version, records
from tests.torture.data_commands import NAME, SINGLE
from tests.torture.sweep import Case, Outcome, contents, torture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = pytest.mark.sweep(keep=6, of="torture")

COMMANDS = Path(__file__).with_name("aftermath_commands.py")
OTHER = [b"a record of another append"]


def prepare(folder: Path) -> None:
    """Write two versions, unreferenced shards, and a shard that was never committed."""
    prepare_version(folder)
    version = Version(folder / "root", NAME)
    rebuild(version, snapshot="latest", into=Version(folder / "root", SINGLE), target_bytes=300)
    rebuild(version, snapshot="latest")
    shards = folder / "root" / "digits" / "shards"
    (shards / f"v1.{'0' * 32}.tfrecord").write_bytes(b"never committed")


def prepare_shards(folder: Path) -> None:
    """Write the same with several shards, so that there is something to rebuild."""
    prepare(folder)
    rebuild(Version(folder / "root", NAME), snapshot="latest", target_bytes=150)


def append_other(folder: Path) -> None:
    append(Version(folder / "root", NAME), Payloads("other", OTHER))


def verify_all(folder: Path) -> None:
    for name in (NAME, SINGLE):
        report = verify_version(Version(folder / "root", name))
        assert report.ok, report


def audit_all(folder: Path) -> None:
    report = audit(LogIndex(folder / "root"), sources=False)
    errors = [one for one in report.findings if one.severity == "error"]
    assert not errors, errors


def export_other(folder: Path) -> None:
    path = folder / "other.tfrecord"
    export(Version(folder / "root", NAME), path, snapshot="latest")
    assert sorted(payloads(path)) == sorted(records(folder))


OTHERS: Sequence[Callable[[Path], None]] = (
    vacuum_now,
    append_other,
    verify_all,
    audit_all,
    export_other,
)


def others(outcome: Outcome) -> Sequence[Callable[[Path], None]]:
    """Return all other operations, in an order specific to the point."""
    label = outcome.point.label
    return sorted(OTHERS, key=lambda one: sha256(f"{label} {one.__name__}".encode()).digest())


def judge(folder: Path, outcome: Outcome, old: list[bytes], new: list[bytes]) -> None:
    """Assert all or nothing, whatever runs next, and no leftovers at the end."""
    expected = records(folder)
    assert expected in (old, new), f"neither as before nor done: {expected}"
    if outcome.exit_code == 0:
        assert expected == new
    for operation in others(outcome):
        operation(folder)
        expected = [*expected, *OTHER] if operation is append_other else expected
        assert records(folder) == expected, operation.__name__
        assert records(folder, SINGLE) == OLD, operation.__name__
    VERBS[outcome.case.name](folder)
    assert sorted(records(folder)) == sorted([*new, *OTHER])
    vacuum_now(folder)
    left = list(folder.rglob(".*.tmp"))
    assert not left, f"left behind: {left}"
    verify_all(folder)
    audit_all(folder)


def judge_append(folder: Path, outcome: Outcome) -> None:
    judge(folder, outcome, OLD, [*OLD, *A, *B])


def judge_output(folder: Path, outcome: Outcome) -> None:
    judge(folder, outcome, OLD, OLD)


def announced(root: Path) -> set[str]:
    """Return the shards that entries announce."""
    return {
        shard
        for name in (NAME, SINGLE)
        for entry in Version(root, name).log.entries(1)
        for shard in entry.tombstones
    }


def judge_vacuum(folder: Path, outcome: Outcome) -> None:
    """Assert that the error names announced and deleted files."""
    template = contents(folder.parent / "template" / "root")
    gone = set(template.keys() - contents(folder / "root").keys())
    said = announced(folder / "root")
    if outcome.failed:
        error = json.loads(outcome.stderr.strip().splitlines()[-1])
        unsure = error["code"] in {"unsynced-write", "commit-state-unknown"}
        if error["code"] == "vacuum-incomplete":
            assert set(error["deleted"]) == gone
            assert set(error["announced"]) <= said
        else:
            assert not gone
            assert unsure or not said, error
        assert "nothing was changed" not in error["message"]
    judge(folder, outcome, OLD, OLD)


def case(
    verb: str,
    judged: Callable[[Path, Outcome], None],
    prepared: Callable[[Path], None] = prepare,
) -> Case:
    return Case(
        name=verb,
        command=lambda folder: [sys.executable, str(COMMANDS), verb, str(folder)],
        judge=judged,
        prepare=prepared,
    )


def test_append_fault_then_other_operations_lose_nothing(tmp_path: Path) -> None:
    torture(case("append_files", judge_append), tmp_path, sampled=2)


def test_export_fault_then_other_operations_leave_nothing(tmp_path: Path) -> None:
    torture(case("export_file", judge_output), tmp_path, sampled=2)


def test_rebuilt_folder_fault_then_other_operations_leave_nothing(tmp_path: Path) -> None:
    torture(case("rebuild_folder", judge_output), tmp_path, sampled=2)


def test_rebuild_fault_then_other_operations_lose_nothing(tmp_path: Path) -> None:
    torture(case("rebuild_in_place", judge_output, prepare_shards), tmp_path, sampled=2)


def test_vacuum_fault_then_other_operations_lose_nothing(tmp_path: Path) -> None:
    torture(case("vacuum_now", judge_vacuum), tmp_path, sampled=2)
