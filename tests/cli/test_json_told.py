"""With --json, what functions print does not get between the JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import process
from tests.cli.datasets import FITTING, landed, on
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

_LOUD = b"""
from shardline import Feature, batch_udf, record_udf
print("imported")

@record_udf(Feature("y", "int64"), reads=["x"], code="1")
def here(record):
    print("called")
    return {"y": record["x"]}

@record_udf(Feature("y", "int64"), reads=["x"], code="1", processes=True)
def away(record):
    print("called")
    return {"y": record["x"]}

@batch_udf(Feature("y", "int64"), reads=["x"])
def one(batch):
    print("called")
    return {"y": [int(x == 1) for x in batch["x"].to_pylist()]}

@batch_udf(Feature("y", "int64"), reads=["left_x"])
def left(batch):
    print("called")
    return {"y": [int(x == 1) for x in batch["left_x"].to_pylist()]}

@record_udf(Feature("y", "int64"), reads=["x"])
def fails(record):
    print("called")
    raise ValueError("wrong")
"""
COMMANDS = {
    "extend": ["extend", NAME, "--into", "v2", "--udf", "loud.py:here"],
    "extend a file": ["extend", "a", "--output", "o", "--udf", "loud.py:here"],
    "combine": [
        "combine", NAME, NAME, "--into", "pairs/v1",
        "--on-collision", "prefix", "--left-prefix", "left_", "--where", "loud.py:left",
    ],
    "combine files": [
        "combine", "a", "b", "--output", "o",
        "--on-collision", "prefix", "--left-prefix", "left_", "--where", "loud.py:left",
    ],
    "erase": ["erase", "digits", "--where", "loud.py:one", "--yes"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _same_path_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a version, and beside it two files and functions that print."""
    made(tmp_path / "loud.py", _LOUD)
    for name in ("a", "b"):
        made(tmp_path / name, framed(*FITTING))
    landed(tmp_path / "root", "one")
    return tmp_path / "root"


@pytest.mark.parametrize("what", COMMANDS)
def test_what_functions_print_goes_to_stderr(root: Path, what: str) -> None:
    result = process(*COMMANDS[what], "--json", cwd=root.parent, SHARDLINE_ROOT=str(root))
    assert result.json["ok"], result.err
    assert result.err.startswith("imported\ncalled\n")


def test_what_functions_print_when_an_audit_calls_them_goes_to_stderr(root: Path) -> None:
    assert on(root, *COMMANDS["extend"], cwd=root.parent).code == 0
    result = on(root, "audit", "--recompute", "--udf", "loud.py:here", "--json", cwd=root.parent)
    assert result.json["ok"], result.err
    assert "called" in result.err


def test_what_functions_print_in_processes_of_their_own_goes_to_stderr(root: Path) -> None:
    arguments = ("extend", NAME, "--into", "v2", "--udf", "loud.py:away", "--json")
    result = process(*arguments, cwd=root.parent, SHARDLINE_ROOT=str(root))
    assert result.json["ok"], result.err
    assert result.err.count("called\n") == len(FITTING)


def test_an_error_is_all_that_stdout_gets(root: Path) -> None:
    command = ("extend", NAME, "--into", "v2", "--udf", "loud.py:fails", "--json")
    result = on(root, *command, cwd=root.parent)
    assert result.json["error"]["code"] == "invalid-rows"
    assert result.problem == (1, "invalid-rows")
    assert "called" in result.err


def test_without_json_functions_print_to_stdout(root: Path) -> None:
    result = on(root, *COMMANDS["extend"], cwd=root.parent)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("imported\ncalled\n")
