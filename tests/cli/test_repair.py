"""`shardline repair`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from tests.cli.command import on_terminal
from tests.cli.datasets import damage, file_of, landed, numbers_of, on, squeezed, write_rows
from tests.log.versions import NAME, shard_name

if TYPE_CHECKING:
    from pathlib import Path


def appended(root: Path, *names: str) -> Version:
    """A version with a published snapshot for each source, of ten numbers each."""
    for number, name in enumerate(names):
        write_rows(root / name, range(10 * number, 10 * number + 10))
        assert on(root, "append", NAME, root / name).code == 0
    return Version(root, NAME)


def shards_of(root: Path) -> list[Path]:
    version = Version(root, NAME)
    return [root / version.shard_name(shard) for shard in version.latest().shards]


def test_nothing_to_repair_is_told(tmp_path: Path) -> None:
    appended(tmp_path, "a.jsonl")
    result = on(tmp_path, "repair", NAME)
    assert (result.code, result.commands, result.out.count("\n")) == (0, [], 1)
    told = on(tmp_path, "repair", NAME, "--json").json
    assert told == {
        "ok": True, "version": NAME, "dry_run": False, "read_shards": 1, "repaired": [],
        "check": None, "published": 1, "followers": [], "copies": [], "indexes": [],
    }  # fmt: skip


def test_a_shard_is_made_anew_of_its_source_and_nothing_is_lost(tmp_path: Path) -> None:
    version = appended(tmp_path, "a.jsonl", "b.jsonl")
    first, _ = shards_of(tmp_path)
    damage(first)
    assert on(tmp_path, "check", NAME, "--recheck").code == 1
    for command, name in (("status", NAME), ("verify", f"{NAME}@latest")):
        assert on(tmp_path, command, name).shows("repair", NAME)
    result = on(tmp_path, "repair", NAME, "--dry-run", cwd=tmp_path)
    assert (result.code, result.commands) == (0, [["repair", NAME]])
    lines = result.out.splitlines()
    assert lines[0].startswith(f"CORRUPT  digits/shards/{first.name}: ")
    assert lines[1].endswith(" a.jsonl")
    result = on(tmp_path, "repair", NAME, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[0].startswith(f"REPAIRED digits/shards/{first.name}: ")
    assert lines[1].endswith(" digits/v1@3")
    version.refresh()
    assert version.state.published == 3
    assert numbers_of(version, "published") == list(range(20))
    log = squeezed(on(tmp_path, "log", NAME).out)
    assert f"{first.name[:15]}…: " in log


def test_a_rebuilt_shard_is_made_anew_of_its_inputs(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    assert on(tmp_path, "rebuild", NAME).code == 0
    (shard,) = shards_of(tmp_path)
    shard.unlink()
    told = on(tmp_path, "repair", NAME, "--json").json
    assert (told["ok"], told["published"], told["check"]["ok"]) == (True, 4, True)
    (repaired,) = told["repaired"]
    assert (repaired["method"], repaired["lost_records"], repaired["shard"]) == (
        "inputs", 0, shard.name,
    )  # fmt: skip
    assert (repaired["source"], repaired["snapshot"]) == (None, 4)
    assert "rebuilt from" in squeezed(on(tmp_path, "log", NAME).out)


def test_what_was_lost_is_told_with_code_1(tmp_path: Path) -> None:
    version = appended(tmp_path, "a.jsonl", "b.jsonl")
    first, second = shards_of(tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).unlink()
    damage(first)
    second.unlink()
    result = on(tmp_path, "repair", NAME, "--dry-run", cwd=tmp_path)
    assert result.code == 0
    asked = result.out.splitlines()
    assert asked[0].startswith(f"CORRUPT  digits/shards/{first.name}: ")
    assert all(words in asked[2] for words in ("9 records", "1 would"))
    assert asked[3].startswith(f"CORRUPT  digits/shards/{second.name}: ")
    assert "11 records" in asked[-1]
    assert result.commands == [["repair", NAME, "--allow-data-loss"]]
    result = on(tmp_path, "repair", NAME, cwd=tmp_path)
    assert (result.code, result.out.splitlines()) == (1, asked)
    told = on(tmp_path, "repair", NAME, "--json").json
    assert (told["ok"], [one["lost_records"] for one in told["repaired"]]) == (False, [1, 10])
    assert told["published"] == 2
    result = on(tmp_path, "repair", NAME, "--allow-data-loss", cwd=tmp_path)
    assert result.code == 1
    (kept,) = (tmp_path / "digits" / "quarantine").iterdir()
    lines = result.out.splitlines()
    assert lines[0].startswith(f"REPAIRED digits/shards/{first.name}: ")
    assert all(words in lines[2] for words in ("digits/v1@3", "1 record lost"))
    assert lines[3].endswith(f" {kept}")
    assert lines[4].startswith(f"LOST     digits/shards/{second.name}: ")
    assert all(words in lines[6] for words in ("digits/v1@4", "10 records lost"))
    assert numbers_of(version, "published") == list(range(1, 10))
    log = squeezed(on(tmp_path, "log", NAME).out)
    assert all(words in log for words in ("1 record lost", "1 row in", "10 records lost"))


@pytest.mark.parametrize("folder", ["", "digits/shards/"])
def test_only_the_shards_that_are_named_are_read(tmp_path: Path, folder: str) -> None:
    appended(tmp_path, "a.jsonl", "b.jsonl")
    first, second = shards_of(tmp_path)
    damage(first)
    damage(second)
    told = on(
        tmp_path, "repair", NAME, "--shard", folder + second.name, "--no-check", "--json"
    ).json
    assert (told["read_shards"], [one["shard"] for one in told["repaired"]]) == (1, [second.name])
    assert (told["check"], told["ok"]) == (None, True)


def test_a_file_that_cannot_be_told_from_another_is_code_1(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    file_of(tmp_path, "one").write_bytes(file_of(tmp_path, "two").read_bytes() * 2)
    result = on(tmp_path, "repair", NAME, "--json")
    assert result.problem == (1, "unrepairable-shard")
    assert shard_name("one") in result.err
    assert Version(tmp_path, NAME).state.number == 5


def test_one_that_cannot_be_mended_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    version = appended(tmp_path, "a.jsonl", "b.jsonl", "c.jsonl")
    first, second, third = shards_of(tmp_path)
    (tmp_path / "a.jsonl").unlink()
    first.write_bytes(second.read_bytes() * 2)
    damage(second)
    damage(third)
    result = on(tmp_path, "repair", NAME)
    assert (result.code, result.out) == (1, "")
    assert first.name in result.err
    version.refresh()
    assert numbers_of(version)[-20:] == list(range(10, 30))


def test_what_cannot_be_repaired_is_told_with_code_2(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    for arguments, code in (
        ([NAME, "--shard", "nope"], "shard-not-found"),
        ([f"{NAME}@1"], "unexpected-snapshot"),
        (["digits/v2"], "version-not-found"),
    ):
        result = on(tmp_path, "repair", *arguments, "--json")
        assert result.problem == (2, code)


def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    appended(tmp_path, "a.jsonl")
    damage(shards_of(tmp_path)[0])
    code, drawn = on_terminal("repair", NAME, "--root", tmp_path)
    assert code == 0
    for word in ("reading", "repairing", "checking"):
        assert word in drawn
