"""`shardline status`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shardline import canonical_json as canonical
from shardline.log.model import Attestation, Checks
from shardline.operations.check import check_version
from tests.cli.command import shardline
from tests.cli.datasets import (
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
from tests.log.versions import NAME, WITH_SNAPSHOT_CHECK, append, make_version, shard_name

if TYPE_CHECKING:
    from pathlib import Path


def test_every_version_in_the_root_is_told_in_one_row(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two").tag("train-1", 1)
    landed(tmp_path, "one", name="digits/v2")
    make_version(tmp_path, "faces/v1")
    result = narrow(tmp_path, "status")
    assert (result.code, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()]
    size = str(file_of(tmp_path, "one").stat().st_size)
    double = str(2 * int(size))
    assert rows[0] == ["version", "latest", "published", "records", "bytes", "shards", "tags"]
    assert rows[2:5] == [
        ["digits/v1", "2", "2", "6", double, "bytes", "2", "train-1", "→", "1"],
        ["digits/v2", "1", "1", "3", size, "bytes", "1"],
        ["faces/v1", "-", "-"],
    ]
    assert [row[0] for row in rows[5:] if row] == ["faces/v1"]


def test_a_dataset_or_version_can_be_named(tmp_path: Path) -> None:
    for name in (NAME, "digits/v2", "faces/v1"):
        landed(tmp_path, "one", name=name)
    for arguments, versions in (
        ([], [NAME, "digits/v2", "faces/v1"]),
        (["digits"], [NAME, "digits/v2"]),
        (["digits/v2"], ["digits/v2"]),
    ):
        told = on(tmp_path, "status", *arguments, "--json").json["versions"]
        assert [one["version"] for one in told] == versions


def test_what_waits_is_told_with_the_command_to_run_next(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "two")
    land(version, "three")
    result = narrow(tmp_path, "status", NAME)
    assert result.code == 0
    lines = result.out.split("\n\n")[1].splitlines()
    assert lines[0].startswith("digits/v1@3 ")
    assert [line.split()[0] for line in lines[1:3]] == ["integrity", "schema"]
    assert all(line.endswith("2 shards") for line in lines[1:3])
    assert result.commands == [["check", "digits/v1@3"]]
    with_root = shardline("status", NAME, "--root", tmp_path)
    assert with_root.commands == [["check", "digits/v1@3", "--root", str(tmp_path)]]


def test_what_was_rejected_is_told_with_the_reason(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    check_version(version)
    result = on(tmp_path, "status")
    assert result.code == 0
    (line,) = [one for one in result.out.splitlines() if one.startswith("digits/v1@2 ")]
    assert all(words in line for words in ("rejected", "schema", "record 1", "feature 'x'"))
    version.reject(3, reason="by hand")
    (line,) = [
        one for one in on(tmp_path, "status").out.splitlines() if one.startswith("digits/v1@3 ")
    ]
    assert line.endswith("rejected: by hand")


def test_what_failed_later_is_told_with_the_way_back(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    damage(file_of(tmp_path, "two"))
    check_version(version, recheck=True)
    (told,) = on(tmp_path, "status", "--json").json["versions"]
    (held,) = told["blocked"]
    assert (held["snapshot"], held["rejected"]) == (2, False)
    (failed,) = [one for one in held["blockers"] if one["kind"] == "failed"]
    assert (failed["check"], failed["shards"]) == ("integrity", 1)
    assert all(words in failed["detail"] for words in ("data-crc", "record 0"))
    result = on(tmp_path, "status")
    assert result.shows("check", "digits/v1@2")
    assert result.shows("restore", "digits/v1@1")


def test_what_holds_a_rejected_shard_says_so(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    land(version, "two")
    check_version(version, "2")
    version.restore(3)
    told = on(tmp_path, "status", "--json").json["versions"][0]
    last = told["blocked"][-1]
    assert last["snapshot"] == version.latest().number
    assert "schema" in {obstacle["check"] for obstacle in last["blockers"]}
    (failed,) = [one for one in last["blockers"] if one["kind"] == "failed"]
    assert (failed["check"], failed["shards"]) == ("schema", 1)
    assert all(words in failed["detail"] for words in ("record 1", "feature 'x'"))
    assert [one["snapshot"] for one in told["blocked"] if one["rejected"]] == [2]


def test_checks_that_run_elsewhere_are_not_said_to_run_here(tmp_path: Path) -> None:
    version = make_version(tmp_path, checks=WITH_SNAPSHOT_CHECK)
    land(version, "one")
    check_version(version)
    result = on(tmp_path, "status")
    assert result.out.count("counts") == 2
    assert result.commands == []
    (held,) = on(tmp_path, "status", "--json").json["versions"][0]["blocked"]
    assert [(one["check"], one["kind"]) for one in held["blockers"]] == [("counts", "missing")]


def test_json_tells_snapshots_tags_and_obstacles(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "two")
    version.tag("train-1", 1)
    version.pin("faces/v1", 1)
    result = on(tmp_path, "status", "--json")
    assert result.code == 0
    assert (result.json["ok"], result.json["root"]) == (True, str(tmp_path))
    (told,) = result.json["versions"]
    assert (told.pop("latest")["snapshot"], told.pop("published")["snapshot"]) == (2, 1)
    assert told == {
        "version": NAME,
        "entries": 6,
        "tags": {"train-1": 1},
        "pins": {"faces/v1": 1},
        "checks": ["integrity", "schema"],
        "duplicates": [],
        "rejected_sources": [],
        "blocked": [
            {
                "snapshot": 2,
                "rejected": False,
                "blockers": [
                    {"check": check, "kind": "missing", "shards": 1, "detail": ""}
                    for check in ("integrity", "schema")
                ],
            }
        ],
    }
    empty = on(make_version(tmp_path / "other").store.uri, "status", "--json").json["versions"][0]
    assert (empty["latest"], empty["published"], empty["blocked"]) == (None, None, [])


def test_a_log_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    landed(tmp_path, "one", name="digits/v2")
    newer = landed(tmp_path, "one", name="digits/v3")
    damage(entry_file(tmp_path, 2))
    told = json.loads(entry_file(tmp_path, 3, newer.name).read_bytes())
    told.pop("digest")
    told["format"] = 2
    told["digest"] = canonical.sha256(told)
    entry_file(tmp_path, 3, newer.name).write_bytes(canonical.encode(told) + b"\n")
    result = on(tmp_path, "status")
    assert result.code == 1
    assert result.commands == [["verify", "digits/v1"]]
    assert ["digits/v2", "1", "1", "3"] in [line.split()[:4] for line in result.out.splitlines()]
    as_json = on(tmp_path, "status", "--json")
    assert (as_json.code, as_json.json["ok"]) == (1, False)
    first, second, third = as_json.json["versions"]
    assert "error" not in second
    assert "entry 2" in first["error"]
    assert first["hint"]["commands"] == [["shardline", "verify", "digits/v1"]]
    assert "entry 3" in third["error"]
    refused = on(tmp_path, "log", newer.name, "--json")
    assert refused.problem == (2, "unknown-format")


def test_what_is_no_dataset_is_passed_over(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    for folder in ("notes/v1", "Pictures/v1/log", "lost+found", "digits/quarantine/log", ".git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "readme.txt").write_text("hello")
    told = on(tmp_path, "status", "--json").json["versions"]
    assert [one["version"] for one in told] == [NAME]


def test_an_empty_root_is_fine_and_a_missing_one_is_not(tmp_path: Path) -> None:
    result = on(tmp_path, "status")
    assert (result.code, str(tmp_path) in result.out) == (0, True)
    assert on(tmp_path, "status", "--json").json["versions"] == []
    result = on(tmp_path / "missing", "status", "--json")
    assert result.problem == (2, "root-not-found")
    assert result.error["path"] == str(tmp_path / "missing")
    for name in ("digits", NAME):
        result = on(tmp_path, "status", name, "--json")
        assert result.problem == (2, "dataset-not-found")
    assert list(tmp_path.iterdir()) == []


def test_nothing_in_the_log_can_command_the_terminal(tmp_path: Path) -> None:
    version = make_version(tmp_path, checks=Checks(("integrity", HOSTILE)))
    land(version, "one")
    shards = (shard_name("one"),)
    version.attest([Attestation(HOSTILE, passed=False, shards=shards, detail=HOSTILE)])
    version.reject(1, reason=HOSTILE)
    land(version, "two")
    result = on(tmp_path, "status")
    assert result.code == 0, result.err
    assert "\x1b" not in result.out
    assert result.out.count("[31mred") >= 2


def test_the_root_may_be_an_object_store(s3_root: str) -> None:
    assert shardline("status", "--root", s3_root, "--json").json["versions"] == []
    append(make_version(s3_root), "one")
    result = shardline("status", SHARDLINE_ROOT=s3_root)
    assert result.code == 0, result.err
    assert result.commands == [["check", "digits/v1@1"]]


def test_a_root_that_is_a_dataset_itself_is_told_from_an_empty_one(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    assert "parent folder" in on(tmp_path / "digits", "status").out
    assert "parent folder" not in on(tmp_path / "nothing", "status").out


def test_each_failed_check_is_told_with_its_own_reason_whichever_failed_last(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, "one")
    version.require(Checks((), ("expectations", "drift")))
    land(version, "two")
    content = version.latest().content
    for check, why in (("expectations", "too dark"), ("drift", "moved")):
        version.attest([Attestation(check, passed=False, content=content, detail=why)])
    out = on(tmp_path, "status").out
    assert "too dark" in out
    assert "moved" in out
