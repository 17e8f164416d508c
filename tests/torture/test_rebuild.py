"""Rebuilds under torture: whole old or new files, and no record twice or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.export import export
from tests.operations.landings import Payloads
from tests.torture.data_cases import (
    OLD,
    A,
    B,
    case,
    judge_states,
    payloads,
    prepare_files,
    prepare_version,
    records,
)
from tests.torture.data_commands import NAME, SINGLE
from tests.torture.sweep import torture

if TYPE_CHECKING:
    from pathlib import Path

    from tests.torture.sweep import Outcome

pytestmark = pytest.mark.sweep(keep=6, of="torture")


def shards_and_records(folder: Path) -> tuple[int, list[bytes]]:
    held = records(folder)
    return Version(folder / "root", NAME).latest().totals.shards, held


def judge_in_place(folder: Path, outcome: Outcome) -> None:
    judge_states(folder, outcome, shards_and_records, (3, OLD), (1, OLD))


def judge_into(folder: Path, outcome: Outcome) -> None:
    judge_states(folder, outcome, lambda at: records(at, SINGLE), [], OLD)
    assert shards_and_records(folder) == (3, OLD)
    assert Version(folder / "root", SINGLE).state.number == 2


def one_file(folder: Path) -> list[bytes]:
    path = folder / "out.tfrecord"
    return payloads(path) if path.exists() else []


def prepare_old_file(folder: Path) -> None:
    prepare_files(folder)
    (folder / "out.tfrecord").write_bytes((folder / "b.tfrecord").read_bytes())


def judge_one_file(folder: Path, outcome: Outcome) -> None:
    judge_states(folder, outcome, one_file, B, [*A, *B])


def folder_of_files(folder: Path) -> list[list[bytes]]:
    return [payloads(path) for path in sorted((folder / "out").glob("*"))]


def judge_folder(folder: Path, outcome: Outcome) -> None:
    both = [*A, *B]
    judge_states(folder, outcome, folder_of_files, [], [both[:6], both[6:]])


def judge_first_export(folder: Path, outcome: Outcome) -> None:
    judge_states(folder, outcome, one_file, [], OLD)


def prepare_older_export(folder: Path) -> None:
    """Write an export of a snapshot with fewer records than the latest."""
    prepare_version(folder)
    version = Version(folder / "root", NAME)
    export(version, folder / "out.tfrecord", snapshot="latest")
    append(version, Payloads("more", A))


def judge_next_export(folder: Path, outcome: Outcome) -> None:
    judge_states(folder, outcome, one_file, OLD, [*OLD, *A])


def test_a_rebuild_in_place_is_done_or_not(tmp_path: Path) -> None:
    torture(case("rebuild_in_place", judge_in_place, prepare_version), tmp_path, sampled=2)


def test_a_rebuild_into_another_version_is_done_or_not(tmp_path: Path) -> None:
    torture(case("rebuild_into", judge_into, prepare_version), tmp_path, sampled=2)


def test_a_loose_file_is_the_old_or_the_rebuilt_one(tmp_path: Path) -> None:
    torture(case("rebuild_one_file", judge_one_file, prepare_old_file), tmp_path, sampled=2)


def test_a_folder_of_rebuilt_files_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    torture(case("rebuild_folder", judge_folder, prepare_files), tmp_path, sampled=2)


def test_an_export_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    torture(case("export_file", judge_first_export, prepare_version), tmp_path, sampled=2)


def test_an_export_of_before_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    torture(case("export_file", judge_next_export, prepare_older_export), tmp_path, sampled=2)
