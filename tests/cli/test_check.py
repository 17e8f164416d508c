"""`shardline check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.log.facts import Attestation, Checks
from shardline.log.version import Version
from tests.cli.command import on_terminal, shardline
from tests.cli.datasets import (
    FITTING,
    HOSTILE,
    MISFIT,
    damage,
    entry_file,
    file_of,
    land,
    landed,
    narrow,
    on,
)
from tests.files.samples import example_of
from tests.kernel.frames import framed
from tests.log.versions import NAME, make_version, shard_name

if TYPE_CHECKING:
    from pathlib import Path

SIZE, BAD_SIZE = len(framed(*FITTING)), len(framed(*MISFIT))


def published(root: Path) -> int | None:
    return Version(root, NAME).state.published


def test_what_passes_is_published(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "one")
    assert published(tmp_path) is None
    result = narrow(tmp_path, "check", NAME)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        f"digits/v1@1: 1 shard checked ({SIZE} bytes), 0 failed",
        "digits/v1@1 is published",
    ]
    assert published(tmp_path) == 1


def test_only_what_has_not_passed_is_read_unless_asked_again(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "two")
    assert "1 shard checked" in on(tmp_path, "check", NAME).out
    result = narrow(tmp_path, "check", NAME)
    assert result.code == 0
    assert "digits/v1@2: nothing to check, 2 shards passed before" in result.out
    assert "shardline check digits/v1@2 --again" in result.out
    assert Version(tmp_path, NAME).state.number == 5
    assert "2 shards checked" in on(tmp_path, "check", NAME, "--again").out


def test_a_record_that_does_not_fit_is_told_and_its_snapshot_rejected_with_code_1(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    result = narrow(tmp_path, "check", NAME)
    assert result.code == 1
    assert result.out.splitlines() == [
        f"FAILED digits/shards/{shard_name('bad')}",
        "       record 1, feature 'x': holds float values, not int64",
        f"digits/v1@2: 1 shard checked ({BAD_SIZE} bytes), 1 failed; 1 had passed before",
        "rejected snapshot 2; without what came with it, the newest is digits/v1@3",
        "digits/v1@2 is rejected",
        "the newest published snapshot: digits/v1@3",
    ]
    assert Version(tmp_path, NAME).snapshot(2).rejected


def test_damage_that_came_later_unpublishes_with_code_1(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(file_of(tmp_path, "one"))
    file_of(tmp_path, "two").unlink()
    result = on(tmp_path, "check", NAME, "--again")
    assert result.code == 1
    assert "data-crc at record 0, offset 0" in result.out
    assert "its sha256 is not the one that was committed" in result.out
    assert "it is missing" in result.out
    assert "2 shards checked" in result.out
    assert "nothing was rejected: what failed had passed before" in result.out
    assert "digits/v1@2 is not published\nthe newest published snapshot: none" in result.out
    assert published(tmp_path) is None


def test_what_was_rejected_before_is_not_said_to_be_rejected_now(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    assert on(tmp_path, "check", NAME, "--json").json["rejected"] == [2]
    result = on(tmp_path, "check", f"{NAME}@2")
    assert result.code == 1
    assert "nothing was rejected" in result.out
    assert "digits/v1@2 is rejected\n" in result.out
    told = on(tmp_path, "check", f"{NAME}@2", "--json").json
    assert (told["rejected"], told["newest"], told["published"]) == ([], 3, 3)


def test_json_tells_each_shard_and_what_became_of_the_snapshot(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    result = on(tmp_path, "check", NAME, "--json")
    assert (result.code, result.err) == (1, "")
    told = result.json
    assert told.pop("snapshot")["rejected"] is True
    assert told == {
        "ok": False,
        "shards": [
            {
                "shard": shard_name("bad"),
                "records": 2,
                "bytes": BAD_SIZE,
                "ok": False,
                "problems": [],
                "violations": [
                    {"record": 1, "feature": "x", "detail": "holds float values, not int64"}
                ],
            }
        ],
        "missing": [],
        "failed": [],
        "rejected": [2],
        "newest": 3,
        "published": 3,
    }


def test_a_snapshot_can_be_named(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "one")
    land(version, "two")
    result = on(tmp_path, "check", f"{NAME}@1")
    assert (result.code, "digits/v1@1 is published" in result.out) == (0, True)
    assert published(tmp_path) == 1


def test_checks_that_run_elsewhere_are_told_until_they_have_passed(tmp_path: Path) -> None:
    checks = Checks(("integrity", "schema", "faces"), ("counts",))
    version = make_version(tmp_path, checks=checks)
    land(version, "one")
    result = on(tmp_path, "check", NAME)
    assert result.code == 0
    assert "still missing: counts and faces" in result.out
    assert "digits/v1@1 is not published" in result.out
    version.refresh()
    version.attest([Attestation("faces", passed=True, shards=(shard_name("one"),))])
    told = on(tmp_path, "check", NAME, "--json").json
    assert (told["missing"], told["shards"]) == (["counts"], [])
    version.refresh()
    version.attest([Attestation("counts", passed=True, content=version.newest().content)])
    result = on(tmp_path, "check", NAME)
    assert "missing" not in result.out
    assert "digits/v1@1 is published" in result.out


def test_a_terminal_gets_a_progress_bar_and_a_pipe_gets_none(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "one", FITTING * 1000)
    code, drawn = on_terminal("check", NAME, "--root", tmp_path)
    assert code == 0
    assert "checking" in drawn
    assert "━" in drawn
    assert on(tmp_path, "check", NAME, "--again").err == ""


def test_no_record_can_command_the_terminal(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "bad", [example_of(**{"x": 1, HOSTILE: 1})])
    result = on(tmp_path, "check", NAME)
    assert result.code == 1
    assert "\x1b" not in result.out
    assert "\\x1b[31mred" in result.out
    assert "not in the schema" in result.out


def test_a_damaged_log_is_code_1_and_nothing_is_written(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    damage(entry_file(tmp_path, 2))
    result = on(tmp_path, "check", NAME, "--json")
    assert result.code == 1
    assert (result.json["version"], result.json["entry"]) == (NAME, 2)
    assert "entry 2 of the log" in result.err
    assert not entry_file(tmp_path, 4).exists()


def test_what_went_to_vacuum_is_refused_with_code_2_and_not_rejected(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two").restore(1)
    assert on(tmp_path, "vacuum", "digits", "--keep", "0", "--delete").code == 0
    result = on(tmp_path, "check", f"{NAME}@2", "--again", "--json")
    assert (result.code, result.json["ok"]) == (2, False)
    assert "snapshot 2 cannot be checked: shard" in result.err
    assert "went to vacuum in entry 7" in result.err
    version = Version(tmp_path, NAME)
    assert (version.state.number, version.snapshot(2).rejected) == (7, False)


def test_a_version_without_snapshots_is_told_with_code_2(tmp_path: Path) -> None:
    make_version(tmp_path)
    result = on(tmp_path, "check", NAME)
    assert (result.code, "has no snapshot yet" in result.err) == (2, True)


@pytest.mark.parametrize("option", ["--root", "SHARDLINE_ROOT"])
def test_a_store_that_overwrites_is_refused_with_code_2(careless_s3_root: str, option: str) -> None:
    arguments = ["--root", careless_s3_root] if option == "--root" else []
    result = shardline("check", NAME, *arguments, SHARDLINE_ROOT=careless_s3_root)
    assert result.code == 2
    assert "there is no dataset digits in s3://" in result.err
