"""`shardline lineage`."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from tests.cli.command import on_terminal, shardline
from tests.cli.datasets import damage, entry_file, narrow, on, squeezed
from tests.operations.extensions import base_of, double, version_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    base = base_of(tmp_path, (0, 3), (3, 6))
    extend(base, double, version_in(tmp_path))
    rebuild(version_in(tmp_path), snapshot="latest", into=version_in(tmp_path, "other/v1"))
    return tmp_path / "root"


def test_tree_shows_upstream_and_downstream(root: Path) -> None:
    result = on(root, "lineage", "digits/v2")
    assert (result.code, result.err) == (0, "")
    lines = [line.lstrip("│├└─ ") for line in result.out.splitlines()]
    starts = (
        "digits/v2: 6 records, ",
        "upstream",
        "digits/v1: 6 records, ",
        "extend, entry 2, ",
        "2 sources: ",
        "append, 6 records, entry 2, ",
        "downstream",
        "other/v1: 6 records, ",
        "rebuild, entry 2, ",
    )
    found = [start for line in lines for start in starts if line.startswith(start)]
    assert found == list(starts)
    up = on(root, "lineage", "digits/v2", "--upstream").out
    assert "downstream" not in up
    down = on(root, "lineage", "other/v1", "--downstream", "--json").json
    assert (down["ok"], down["edges"]) == (True, [])


@pytest.mark.parametrize("level", ["versions", "snapshots", "shards", "features"])
def test_every_level_has_a_tree_json_and_dot(root: Path, level: str) -> None:
    asked = ("lineage", "digits/v2@1", "--level", level)
    assert "upstream" in on(root, *asked).out
    told = on(root, *asked, "--json").json
    assert told["ok"]
    assert told["level"] == level
    names = {node["id"] for node in told["nodes"]}
    assert {
        end for edge in told["edges"] for end in (edge["upstream"], edge["downstream"])
    } <= names
    dot = on(root, *asked, "--dot").out
    assert dot.startswith("digraph lineage {\n")
    assert dot.count(" -> ") == len(told["edges"])


def test_it_fits_a_narrow_terminal(root: Path) -> None:
    result = narrow(root, "lineage", "digits/v2", "--level", "features")
    assert "function 'double'" in squeezed(result.out.replace("│", ""))


def test_deep_tree_is_cut_off(tmp_path: Path) -> None:
    version = base_of(tmp_path, (0, 3))
    for turn in range(14):
        rebuild(version, snapshot="latest", compression="none" if turn % 2 else "gzip")
    root = tmp_path / "root"
    shown = on(root, "lineage", "digits/v1@15", "--level", "snapshots").out
    assert "digits/v1@3:" in shown
    assert "digits/v1@2:" not in shown
    assert "… and more" in shown
    told = on(root, "lineage", "digits/v1@15", "--level", "snapshots", "--json").json
    assert len(told["nodes"]) == 16


def test_deleted_log_is_missing(root: Path) -> None:
    shutil.rmtree(root / "digits/v1")
    result = on(root, "lineage", "digits/v2")
    assert result.code == 0
    assert "digits/v1 [MISSING: " in result.out


def test_corrupt_log_exits_with_1(root: Path) -> None:
    damage(entry_file(root, 2, "digits/v1"), 40 * 8)
    for level in ("versions", "snapshots", "shards"):
        result = on(root, "lineage", "digits/v2", "--level", level)
        assert (result.code, result.err) == (1, "")
        assert "[CORRUPT: " in result.out.replace("\n", " ")
    told = on(root, "lineage", "digits/v2", "--json")
    assert (told.code, told.json["ok"]) == (1, False)
    assert list(told.json["unreadable"]) == ["digits/v1"]
    assert on(root, "lineage", "digits/v2", "--downstream").code == 1


def test_corrupt_downstream_log_is_named(root: Path) -> None:
    damage(entry_file(root, 2, "other/v1"), 40 * 8)
    result = shardline("lineage", "digits/v2", "--downstream", "--root", root)
    assert result.code == 1
    lines = result.err.splitlines()
    assert lines[0].startswith("warning: other/v1: ")
    assert result.commands == [["verify", "other/v1", "--root", str(root)]]
    assert on(root, "lineage", "digits/v2", "--upstream").code == 0


def test_wrong_usage_is_said(root: Path) -> None:
    assert on(root, "lineage", "digits/v9").code == 2
    assert on(root, "lineage", "digits/v1@9").code == 2
    assert on(root, "lineage", "digits/v1", "--dot", "--json").code == 2
    assert Version(root, "digits/v9").exists is False


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("digits/v1", "--dot", "--json"), "conflicting-options"),
        (("digits/v9", "--json"), "version-not-found"),
    ],
)
def test_an_error_is_told_once_to_who_sees_both_outputs(
    root: Path, arguments: tuple[str, ...], code: str
) -> None:
    apart = on(root, "lineage", *arguments)
    assert apart.problem == (2, code)
    message = apart.error["message"]
    assert f"error: {message}\n" in apart.err
    ended, drawn = on_terminal("lineage", *arguments, "--root", root, both=True)
    assert (ended, drawn.count(message)) == (2, 1)
