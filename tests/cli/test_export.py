"""`shardline export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cli.command import on_terminal
from tests.cli.datasets import FITTING, damage, file_of, land, landed, on
from tests.log.versions import NAME, make_version
from tests.tfrecord.samples import made, read_by_tensorflow

if TYPE_CHECKING:
    from pathlib import Path


def test_the_published_snapshot_becomes_one_file_once(tmp_path: Path) -> None:
    version = landed(tmp_path / "root", "one")
    land(version, "two")
    result = on(tmp_path / "root", "export", NAME, "-o", "out.tfrecord", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert all(words in result.out for words in ("digits/v1@1", "3 records"))
    assert read_by_tensorflow(tmp_path / "out.tfrecord") == FITTING
    again = on(tmp_path / "root", "export", NAME, "-o", "out.tfrecord", "--json", cwd=tmp_path).json
    assert (again["ok"], again["written"], again["snapshot"]) == (True, False, 1)
    newer = f"{NAME}@latest"
    told = on(tmp_path / "root", "export", newer, "-o", "out.tfrecord", "--json", cwd=tmp_path).json
    assert (told["ok"], told["written"], told["snapshot"], told["records"]) == (True, True, 2, 6)
    assert (told["file"], told["version"], told["compression"]) == ("out.tfrecord", NAME, "none")
    assert read_by_tensorflow(tmp_path / "out.tfrecord") == FITTING * 2


def test_what_is_no_export_is_overwritten_only_if_asked(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    out = made(tmp_path / "out", b"precious")
    result = on(tmp_path, "export", NAME, "-o", out, "--json")
    assert result.problem == (2, "file-exists")
    assert out.read_bytes() == b"precious"
    assert on(tmp_path, "export", NAME, "-o", out, "--overwrite", "--compression", "gzip").code == 0
    assert read_by_tensorflow(out, "GZIP") == FITTING


def test_damage_is_code_1_and_the_file_stays_as_it_was(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    out = tmp_path / "out"
    assert on(tmp_path, "export", NAME, "-o", out).code == 0
    land(landed(tmp_path), "two")
    damage(file_of(tmp_path, "one"))
    result = on(tmp_path, "export", f"{NAME}@2", "-o", out, "--json")
    assert result.code == 1
    assert (result.error["record"], result.error["offset"]) == (0, 0)
    assert read_by_tensorflow(out) == FITTING


def test_what_cannot_be_exported_is_told_with_code_2(tmp_path: Path) -> None:
    land(make_version(tmp_path), "one")
    for arguments, code in (
        ([NAME, "-o", "out"], "version-unpublished"),
        ([f"{NAME}@7", "-o", "out"], "snapshot-not-found"),
        ([f"{NAME}@1", "-o", "."], "output-is-folder"),
        (["digits", "-o", "out"], "missing-version"),
        ([f"{NAME}@1", "-o", "missing/out"], "folder-not-found"),
    ):
        result = on(tmp_path, "export", *arguments, "--json", cwd=tmp_path)
        assert result.problem == (2, code), arguments
    assert [file.name for file in tmp_path.iterdir()] == ["digits"]


def test_a_terminal_gets_a_progress_bar(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    code, drawn = on_terminal("export", NAME, "-o", tmp_path / "out", "--root", tmp_path)
    assert (code, "exporting" in drawn) == (0, True)
