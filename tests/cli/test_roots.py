"""What all commands on datasets share: the root, names in it, exit codes, damaged logs."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import ROOT, process, shardline
from tests.cli.datasets import HOSTILE, damage, entry_file, land, landed, on, squeezed
from tests.log.versions import NAME
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

ON_FILES = ["verify", "salvage", "schema", "head", "count", "index", "rebuild"]
ON_DATASETS = {
    "status": [NAME],
    "log": [NAME],
    "diff": [f"{NAME}@1"],
    "files": [NAME],
    "check": [NAME],
    "restore": [f"{NAME}@1"],
    "repair": [NAME],
    "tag": [NAME],
    "vacuum": ["digits"],
}
WITH_MORE = ["append", "export", "rebuild", "verify", "head", "schema"]
"""Those that need more than a dataset, or take files too."""


def test_help_tells_the_commands_for_files_from_those_for_datasets() -> None:
    out = shardline("--help").out
    files, datasets = out.index("\nFiles:\n"), out.index("\nDatasets (in the root")
    on_datasets = {*ON_DATASETS, *WITH_MORE} - set(ON_FILES)
    for command in ON_FILES:
        assert files < out.index(f"\n  {command} ") < datasets
    for command in on_datasets:
        assert datasets < out.index(f"\n  {command} ")
    assert "concurrent commit" in squeezed(out)


@pytest.mark.parametrize("command", [*ON_DATASETS, *WITH_MORE])
def test_help_of_each_dataset_command_tells_where_datasets_live(command: str) -> None:
    result = shardline(command, "--help", COLUMNS="80")
    assert result.code == 0
    for words in ("Examples:", f"shardline {command} ", "--json", "--root", "SHARDLINE_ROOT"):
        assert words in result.out
    assert max(map(len, result.out.splitlines())) <= 80


@pytest.mark.parametrize("command", ON_DATASETS)
def test_without_a_root_it_is_told_how_to_give_one(command: str) -> None:
    result = shardline(command, *ON_DATASETS[command], "--json")
    assert result.problem == (2, "missing-root")
    hint = result.error["hint"]["text"]
    assert all(words in hint for words in ("--root", "s3://", "SHARDLINE_ROOT"))


@pytest.mark.parametrize("command", ON_DATASETS)
def test_a_root_may_be_told_by_option_or_environment_and_the_option_wins(
    tmp_path: Path, command: str
) -> None:
    landed(tmp_path, "one")
    arguments = (command, *ON_DATASETS[command], "--json")
    wrong = str(tmp_path / "missing")
    for result in (
        on(tmp_path, *arguments),
        shardline(*arguments, "--root", tmp_path),
        shardline(*arguments, "--root", f"file://{tmp_path}", SHARDLINE_ROOT=wrong),
    ):
        assert (result.code, result.json["ok"]) == (0, True)
    assert on(wrong, *arguments).code == 2


BAD_ROOTS = {
    "an unknown scheme": ("ftp://host/data", "unknown-scheme"),
    "a password": ("s3://user:hunter2@bucket/data", "embedded-credentials"),
    "a way out": ("s3://bucket/data/../../etc", "invalid-location"),
    "not there": ("data/../../etc-of-nobody", "root-not-found"),
    "something unseen": (f"data{HOSTILE}", "invalid-location"),
    "a file": ("FILE", "root-not-found"),
}


@pytest.mark.parametrize("what", BAD_ROOTS)
def test_a_bad_root_is_told_with_code_2_and_without_its_secrets(tmp_path: Path, what: str) -> None:
    made(tmp_path / "FILE", b"")
    root, code = BAD_ROOTS[what]
    result = shardline("status", "--root", root, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert "hunter2" not in result.out + result.err
    assert "\x1b" not in result.out + result.err
    assert "Traceback" not in result.err


HOSTILE_NAMES = [
    HOSTILE,
    f"digits/{HOSTILE}",
    f"{NAME}@{HOSTILE}",
    "../../nowhere/v1",
    "digits//v1",
    "@",
]


@pytest.mark.parametrize("command", [*ON_DATASETS, *WITH_MORE])
def test_a_hostile_name_is_refused_with_code_2_and_not_obeyed(tmp_path: Path, command: str) -> None:
    landed(tmp_path, "one")
    more = {"append": ["out"], "export": ["-o", "out"]}.get(command, [])
    for name in HOSTILE_NAMES:
        result = on(tmp_path, command, name, *more)
        assert result.code == 2, (name, result)
        assert result.out == ""
        assert "\x1b" not in result.err
        assert "\x07" not in result.err
        assert "Traceback" not in result.err
    undecodable = os.fsdecode(b"digits/v1@\xff\xfe")
    result = on(tmp_path, command, undecodable)
    assert (result.code, "Traceback" in result.err) == (2, False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["digits"]


@pytest.mark.parametrize("command", ON_DATASETS)
def test_a_version_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, command: str
) -> None:
    landed(tmp_path, "one")
    missing = [argument.replace("digits", "faces") for argument in ON_DATASETS[command]]
    result = on(tmp_path, command, *missing, "--json")
    assert result.problem == (2, "dataset-not-found")
    assert str(tmp_path) in result.error["message"]
    assert "digits" in result.error["hint"]["text"]
    assert not (tmp_path / "faces").exists()


@pytest.mark.parametrize("command", ["check", "diff", "restore", "tag", "vacuum"])
def test_a_damaged_log_is_told_by_entry_with_code_1_and_nothing_done(
    tmp_path: Path, command: str
) -> None:
    land(landed(tmp_path, "one"), "two")
    damage(entry_file(tmp_path, 3))
    result = on(tmp_path, command, *ON_DATASETS[command], "--json")
    assert result.problem == (1, "corrupt-log")
    error = result.error
    assert (error["version"], error["entry"], error["kind"]) == (NAME, 3, "edited-entry")
    assert result.hint == [["verify", NAME]]
    assert not entry_file(tmp_path, 5).exists()


def test_a_store_that_fails_is_told_with_code_2(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    log = entry_file(tmp_path, 1).parent
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    result = on(tmp_path, "check", NAME, "--json")
    assert result.code == 2
    assert "symbolic link" in result.error["message"]


@pytest.mark.parametrize("command", [command for command in ON_DATASETS if command != "status"])
def test_working_on_datasets_loads_neither_tensorflow_nor_dagster(
    tmp_path: Path, command: str
) -> None:
    landed(tmp_path, "one")
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from shardline.cli.app import main\n"
        f"main({[command, *ON_DATASETS[command], '--root', str(tmp_path)]!r})\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    modules = set(result.stderr.split())
    assert "shardline.log.version" in modules
    assert modules.isdisjoint({"tensorflow", "dagster", "great_expectations", "obstore"})


def test_a_terminal_without_our_letters_gets_their_codes(tmp_path: Path) -> None:
    landed(tmp_path, "one").tag("train-1", 1)
    for command, *arguments in (("log", NAME), ("status",), ("diff", f"{NAME}@1")):
        result = process(command, *arguments, "--root", tmp_path, PYTHONIOENCODING="ascii")
        assert (result.code, result.err) == (0, "")
    result = process("log", NAME, "--root", tmp_path, PYTHONIOENCODING="ascii")
    assert "train-1 \\u2192 1" in result.out
