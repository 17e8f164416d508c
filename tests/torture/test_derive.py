"""Derived versions under torture: before or done, with an unchanged base and no work done twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.verify_log import verify_log
from shardline.operations.verify_version import verify_version
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of
from tests.torture.data_cases import payloads
from tests.torture.derive_commands import BASE, DERIVED, VERBS, extend_overlay
from tests.torture.sweep import (
    Case,
    assert_error_names,
    assert_failed_sync_is_final,
    assert_success_is_synced,
    torture,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.sweep import Outcome

pytestmark = pytest.mark.sweep(keep=6, of="torture")

COMMANDS = Path(__file__).with_name("derive_commands.py")
NUMBERS = list(range(6))


def prepare(folder: Path) -> None:
    """Write a version of two shards, and a standalone file of the same records."""
    records = [example_of(x=number) for number in NUMBERS]
    (folder / "a.tfrecord").write_bytes(framed(*records[:3]))
    (folder / "b.tfrecord").write_bytes(framed(*records[3:]))
    append(Version(folder / "root", BASE), [folder / "a.tfrecord", folder / "b.tfrecord"])


def prepare_overlays(folder: Path) -> None:
    """Write the version, and another with overlays on it."""
    prepare(folder)
    extend_overlay(folder)


def held(folder: Path, name: str = DERIVED) -> dict[str, Any]:
    """Return the content of a verified version, nothing if it does not exist."""
    version = Version(folder / "root", name)
    if not version.exists:
        return {}
    if not version.state.snapshot:
        assert not verify_log(version.log).problems
        return {}
    report = verify_version(version)
    assert report.ok, report
    columns: dict[str, Any] = version.latest().to_arrow().read_all().to_pydict()
    return columns


def finished(folder: Path) -> set[str]:
    """Return the written shards of the derived version that have receipts."""
    receipts = (folder / "root/digits/shards").glob("v2.*.receipt")
    return {path.name.removesuffix(".receipt") for path in receipts}


def judge(
    folder: Path, outcome: Outcome, states: Callable[[Path], object], old: object, new: object
) -> None:
    """Assert before or done, an unchanged base, and that the next run completes."""
    found = states(folder)
    assert found in (old, new), f"neither as before nor done: {found}"
    if outcome.exit_code == 0 or outcome.point.after_the_last_call:
        assert found == new, "it was said to be done and is not"
    assert held(folder, BASE) == {"x": NUMBERS}
    assert_error_names(outcome, folder)
    assert_success_is_synced(outcome)
    assert_failed_sync_is_final(outcome.calls)
    made = finished(folder)
    subprocess.run(outcome.case.command(folder), check=True)
    assert states(folder) == new
    listed = set(Version(folder / "root", DERIVED).state.shard_history.names().to_pylist())
    assert made <= listed, "a shard that was finished was computed again"
    VERBS[outcome.case.name](folder)
    assert states(folder) == new


def case(
    verb: str,
    states: Callable[[Path], object],
    old: object,
    new: object,
    ready: Callable[[Path], None] = prepare,
) -> Case:
    """Return the sweep of a verb."""
    return Case(
        name=verb,
        command=lambda folder: [sys.executable, str(COMMANDS), verb, str(folder)],
        judge=lambda folder, outcome: judge(folder, outcome, states, old, new),
        prepare=ready,
    )


EXTENDED = {"double": [2 * number for number in NUMBERS], "x": NUMBERS}


PAIRS = sorted((a, b) for a in NUMBERS for b in NUMBERS)


def pairs(folder: Path) -> list[tuple[int, int]]:
    columns = held(folder)
    return sorted(zip(columns["a_x"], columns["b_x"], strict=True)) if columns else []


def shards_and_columns(folder: Path) -> tuple[int, dict[str, Any]]:
    columns = held(folder)
    return Version(folder / "root", DERIVED).latest().totals.shards, columns


def loose_records(folder: Path) -> list[bytes]:
    path = folder / "out.tfrecord"
    return payloads(path) if path.exists() else []


def loose_numbers(folder: Path) -> int:
    return len(loose_records(folder))


def test_overlays_are_there_with_their_base_pinned_or_not_at_all(tmp_path: Path) -> None:
    torture(case("extend_overlay", held, {}, EXTENDED), tmp_path, sampled=1)


def test_a_rewritten_version_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    torture(case("extend_rewrite", held, {}, EXTENDED), tmp_path, sampled=1)


def test_a_migration_is_done_or_not(tmp_path: Path) -> None:
    torture(case("migrate_version", held, {}, {"number": NUMBERS}), tmp_path, sampled=1)


def test_an_extended_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    torture(case("extend_loose", loose_numbers, 0, 3), tmp_path, sampled=1)


def test_a_migrated_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    wanted = [example_of(number=number) for number in NUMBERS[:3]]
    torture(case("migrate_loose", loose_records, [], wanted), tmp_path, sampled=1)


def test_overlays_are_folded_in_or_stay_as_they_are(tmp_path: Path) -> None:
    old, new = (2, EXTENDED), (1, EXTENDED)
    torture(
        case("fold_overlays", shards_and_columns, old, new, prepare_overlays), tmp_path, sampled=1
    )


def test_a_combination_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    torture(case("combine_version", pairs, [], PAIRS), tmp_path, sampled=1)


def test_the_plan_of_a_combination_is_there_with_its_inputs_pinned_or_not_at_all(
    tmp_path: Path,
) -> None:
    once = [(a, b) for a, b in PAIRS if a < b]
    torture(case("combine_virtual", pairs, [], once), tmp_path, sampled=1)


def test_a_file_of_pairs_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    torture(case("combine_loose", loose_numbers, 0, 9), tmp_path, sampled=1)
