"""SHA256SUMS: a tool that knows nothing of Shardline checks every file that a snapshot needs."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.errors import UnreadableSnapshotError
from shardline.hints import Command
from shardline.lineage.exports.snapshot_files import render_sha256sums
from tests.cli.datasets import damage
from tests.errors import raises
from tests.lineage.exported_roots import grow, make_history
from tests.log import versions

if TYPE_CHECKING:
    from pathlib import Path

TOOL = shutil.which("sha256sum")
needs_tool = pytest.mark.skipif(TOOL is None, reason="sha256sum is not installed")


def check(folder: Path, text: str) -> tuple[int, list[str]]:
    """What `sha256sum -c` says of a list that lies in a folder: its code, and what failed."""
    (folder / "SHA256SUMS").write_text(text)
    ran = subprocess.run(
        [TOOL or "", "-c", "--strict", "SHA256SUMS"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "improperly formatted" not in ran.stderr
    return ran.returncode, [line for line in ran.stdout.splitlines() if not line.endswith(": OK")]


@needs_tool
def test_sha256sum_accepts_every_kind_of_snapshot(tmp_path: Path) -> None:
    root = make_history(tmp_path)
    for name, files in (
        ("numbers/v1", 2),
        ("numbers/wide", 4),
        ("numbers/v2", 2),
        ("pairs/v1", 1),
        ("pairs/plan", 7),
    ):
        snapshot = Version(root, name).published()
        text = render_sha256sums(snapshot, root)
        assert (len(text.splitlines()), text) == (files, render_sha256sums(snapshot))
        assert check(root, text) == (0, [])


@needs_tool
def test_names_count_from_the_folder_of_the_list(
    tmp_path: Path,
) -> None:
    version = grow(Version(tmp_path / "über all" / "root", "numbers/v1"), tmp_path / "in", 0, 3)
    for folder in (tmp_path, tmp_path / "elsewhere" / "deep"):
        folder.mkdir(parents=True, exist_ok=True)
        assert check(folder, render_sha256sums(version.published(), folder)) == (0, [])


@needs_tool
def test_sha256sum_finds_a_flipped_bit(tmp_path: Path) -> None:
    version = grow(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 3)
    snapshot = grow(version, tmp_path / "landing", 3, 5).published()
    text = render_sha256sums(snapshot)
    name = version.shard_name(snapshot.shards[1])
    damage(tmp_path / "root" / name)
    assert check(tmp_path / "root", text) == (1, [f"{name}: FAILED"])


def test_names_in_a_bucket_count_from_the_root(tmp_path: Path, s3_root: str) -> None:
    version = versions.make_version(s3_root)
    versions.append(version, "a")
    snapshot = version.latest()
    line = f"{snapshot.shards[0].sha256}  {version.shard_name(snapshot.shards[0])}\n"
    assert render_sha256sums(snapshot) == render_sha256sums(snapshot, tmp_path) == line


def test_empty_snapshot_and_unknown_base_are_refused(
    tmp_path: Path,
) -> None:
    version = versions.make_version(tmp_path / "root")
    versions.append(version, "a")
    version.reject(1)
    with raises(UnreadableSnapshotError, "snapshot-empty", version=version.name, snapshot=2):
        render_sha256sums(version.latest())
    wide = Version(make_history(tmp_path / "more"), "numbers/wide").published()
    shutil.rmtree(tmp_path / "more" / "root" / "numbers" / "v1")
    with raises(UnreadableSnapshotError, "layer-mismatch", version="numbers/wide") as caught:
        render_sha256sums(wide)
    assert caught.value.hint is not None
    assert caught.value.hint.commands == (Command.of("verify", str(wide)),)
