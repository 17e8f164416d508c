"""`shardline restore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardline.api import Version
from shardline.operations.check import check_version
from tests.cli.command import shardline
from tests.cli.datasets import MISFIT, land, landed, narrow, on
from tests.log.versions import NAME, names_at, shard_name

if TYPE_CHECKING:
    from pathlib import Path


def test_an_old_snapshot_becomes_the_newest_and_is_published_at_once(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    result = narrow(tmp_path, "restore", f"{NAME}@1")
    assert result.code == 0
    rows = [line.split() for line in result.out.splitlines()]
    assert ["shards", "+0", "-1", "(2", "→", "1)"] in rows
    assert ["records", "-3", "(6", "→", "3)"] in rows
    version = Version(tmp_path, NAME)
    assert (version.latest().number, version.published().number) == (3, 3)
    assert names_at(version.state, 3) == [shard_name("one")]


def test_a_dry_run_tells_the_same_and_changes_nothing(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    result = narrow(tmp_path, "restore", f"{NAME}@1", "--dry-run")
    assert result.code == 0
    assert result.commands == [["restore", "digits/v1@1"]]
    assert Version(tmp_path, NAME).latest().number == 2
    dry = on(tmp_path, "restore", f"{NAME}@1", "--dry-run", "--json").json
    real = on(tmp_path, "restore", f"{NAME}@1", "--json").json
    assert (dry.pop("dry_run"), real.pop("dry_run")) == (True, False)
    assert dry == real


def test_json_tells_what_was_made_of_what(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    told = on(tmp_path, "restore", f"{NAME}@1", "--json").json
    difference = told.pop("diff")
    assert told == {
        "ok": True,
        "version": NAME,
        "dry_run": False,
        "restored": 1,
        "snapshot": 3,
        "entry": 6,
        "published": True,
    }
    assert (difference["old"]["snapshot"], difference["new"]["snapshot"]) == (2, 1)
    assert [shard["name"] for shard in difference["removed"]] == [shard_name("two")]


def test_what_was_never_checked_is_not_published_and_the_command_to_check_it_told(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, "one")
    land(version, "two")
    version.restore(1)
    result = on(tmp_path, "restore", f"{NAME}@2")
    assert result.code == 0
    assert result.commands == [["check", "digits/v1@4"]]
    assert Version(tmp_path, NAME).state.published != 4
    told = shardline("restore", f"{NAME}@1", "--dry-run", "--root", tmp_path)
    assert told.commands == [["restore", "digits/v1@1", "--root", str(tmp_path)]]


def test_restoring_what_was_rejected_says_so(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    check_version(version)
    assert "rejected" in on(tmp_path, "restore", f"{NAME}@2", "--dry-run").out
    told = on(tmp_path, "restore", f"{NAME}@2", "--dry-run", "--json").json
    assert (told["restored"], told["published"]) == (2, False)
    assert told["diff"]["new"]["rejected"] is True


def test_what_is_the_newest_already_is_left_alone(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    for snapshot in ("1", "latest", "published"):
        result = on(tmp_path, "restore", f"{NAME}@{snapshot}")
        assert (result.code, "nothing to restore" in result.out) == (0, True)
    told = on(tmp_path, "restore", f"{NAME}@1", "--json").json
    assert (told["ok"], told["snapshot"], told["entry"]) == (True, None, None)
    assert Version(tmp_path, NAME).latest().number == 1


def test_what_went_to_vacuum_is_refused_with_code_2_and_nothing_changed(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    version.restore(1)
    assert on(tmp_path, "vacuum", "digits", "--retention", "0", "--delete").code == 0
    for arguments in ([], ["--dry-run"]):
        result = on(tmp_path, "restore", f"{NAME}@2", "--json", *arguments)
        assert result.problem == (2, "tombstoned-shard")
        assert "entry 7" in result.error["message"]
    assert Version(tmp_path, NAME).latest().number == 3


def test_which_snapshot_must_be_told(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "restore", NAME, "--json")
    assert result.problem == (2, "missing-snapshot")
    assert result.hint == [["log", NAME]]
    result = on(tmp_path, "restore", f"{NAME}@7", "--json")
    assert result.problem == (2, "snapshot-not-found")
