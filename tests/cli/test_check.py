"""`shardline check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.model import Attestation, Checks
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
from tests.kernel.frames import framed
from tests.log.versions import NAME, make_version, shard_name
from tests.tfrecord.samples import example_of

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
    assert f"({SIZE} bytes)" in result.out
    assert result.commands == []
    assert published(tmp_path) == 1


def test_only_what_has_not_passed_is_read_unless_asked_again(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "two")
    assert "1 shard checked" in on(tmp_path, "check", NAME).out
    result = narrow(tmp_path, "check", NAME)
    assert result.code == 0
    assert result.commands == [["check", "digits/v1@2", "--recheck"]]
    assert Version(tmp_path, NAME).state.number == 5
    assert "2 shards checked" in on(tmp_path, "check", NAME, "--recheck").out


def test_a_record_that_does_not_fit_is_told_and_its_snapshot_rejected_with_code_1(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    result = narrow(tmp_path, "check", NAME)
    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[0] == f"FAILED digits/shards/{shard_name('bad')}"
    assert all(words in lines[1] for words in ("record 1", "feature 'x'"))
    assert f"({BAD_SIZE} bytes)" in lines[2]
    assert lines[-1].endswith(" digits/v1@3")
    assert (Version(tmp_path, NAME).latest().number, published(tmp_path)) == (3, 3)
    assert Version(tmp_path, NAME).snapshot(2).rejected


def test_damage_that_came_later_unpublishes_with_code_1(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(file_of(tmp_path, "one"))
    file_of(tmp_path, "two").unlink()
    result = on(tmp_path, "check", NAME, "--recheck")
    assert result.code == 1
    assert all(words in result.out for words in ("data-crc", "record 0", "offset 0", "SHA-256"))
    assert all(words in result.out for words in ("2 shards checked", "missing"))
    assert result.out.endswith(": none\n")
    version = Version(tmp_path, NAME)
    assert (published(tmp_path), version.latest().rejected) == (None, False)


def test_what_was_rejected_before_is_not_said_to_be_rejected_now(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    assert on(tmp_path, "check", NAME, "--json").json["rejected"] == [2]
    result = on(tmp_path, "check", f"{NAME}@2")
    assert result.code == 1
    assert "rejected nothing" in result.out
    assert "is rejected\n" in result.out
    told = on(tmp_path, "check", f"{NAME}@2", "--json").json
    assert (told["rejected"], told["latest"], told["published"]) == ([], 3, 3)


def test_json_tells_each_shard_and_what_became_of_the_snapshot(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    result = on(tmp_path, "check", NAME, "--json")
    assert (result.code, result.err) == (1, "")
    told = result.json
    assert told.pop("snapshot")["rejected"] is True
    detail = told["shards"][0]["violations"][0]["detail"]
    assert all(word in detail for word in ("float", "int64"))
    assert told == {
        "ok": False,
        "shards": [
            {
                "shard": shard_name("bad"),
                "records": 2,
                "bytes": BAD_SIZE,
                "ok": False,
                "problems": [],
                "violations": [{"record": 1, "feature": "x", "detail": detail}],
                "complete": True,
            }
        ],
        "missing": [],
        "failed": [],
        "rejected": [2],
        "latest": 3,
        "published": 3,
    }


def test_a_snapshot_can_be_named(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "one")
    land(version, "two")
    result = on(tmp_path, "check", f"{NAME}@1", "--json")
    assert (result.code, result.json["snapshot"]["published"]) == (0, True)
    assert published(tmp_path) == 1


def test_checks_that_run_elsewhere_are_told_until_they_have_passed(tmp_path: Path) -> None:
    checks = Checks(("integrity", "schema", "faces"), ("counts",))
    version = make_version(tmp_path, checks=checks)
    land(version, "one")
    result = on(tmp_path, "check", NAME)
    assert result.code == 0
    assert "counts and faces" in result.out
    assert published(tmp_path) is None
    version.refresh()
    version.attest([Attestation("faces", passed=True, shards=(shard_name("one"),))])
    told = on(tmp_path, "check", NAME, "--json").json
    assert (told["missing"], told["shards"]) == (["counts"], [])
    version.refresh()
    version.attest([Attestation("counts", passed=True, content=version.latest().content)])
    result = on(tmp_path, "check", NAME)
    assert "missing" not in result.out
    assert published(tmp_path) == 1


def test_a_terminal_gets_a_progress_bar_and_a_pipe_gets_none(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "one", FITTING * 1000)
    code, drawn = on_terminal("check", NAME, "--root", tmp_path)
    assert code == 0
    assert "checking" in drawn
    assert "━" in drawn
    assert on(tmp_path, "check", NAME, "--recheck").err == ""


def test_no_record_can_command_the_terminal(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    land(version, "bad", [example_of(**{"x": 1, HOSTILE: 1})])
    result = on(tmp_path, "check", NAME)
    assert result.code == 1
    assert "\x1b" not in result.out
    assert "\\x1b[31mred" in result.out


def test_a_damaged_log_is_code_1_and_nothing_is_written(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    damage(entry_file(tmp_path, 2))
    result = on(tmp_path, "check", NAME, "--json")
    assert result.problem == (1, "corrupt-log")
    assert (result.error["version"], result.error["entry"]) == (NAME, 2)
    assert result.hint == [["verify", NAME]]
    assert not entry_file(tmp_path, 4).exists()


def test_what_went_to_vacuum_is_refused_with_code_2_and_not_rejected(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two").restore(1)
    assert on(tmp_path, "vacuum", "digits", "--retention", "0", "--delete").code == 0
    result = on(tmp_path, "check", f"{NAME}@2", "--recheck", "--json")
    assert result.problem == (2, "tombstoned-shard")
    assert "entry 7" in result.error["message"]
    version = Version(tmp_path, NAME)
    assert (version.state.number, version.snapshot(2).rejected) == (7, False)


def test_a_version_without_snapshots_is_told_with_code_2(tmp_path: Path) -> None:
    make_version(tmp_path)
    result = on(tmp_path, "check", NAME, "--json")
    assert result.problem == (2, "version-empty")
    assert result.error["version"] == NAME


@pytest.mark.parametrize("option", ["--root", "SHARDLINE_ROOT"])
def test_a_store_that_overwrites_is_refused_with_code_2(careless_s3_root: str, option: str) -> None:
    arguments = ["--root", careless_s3_root] if option == "--root" else []
    result = shardline("check", NAME, *arguments, "--json", SHARDLINE_ROOT=careless_s3_root)
    assert result.problem == (2, "dataset-not-found")
    assert "s3://" in result.error["message"]
