"""`shardline diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.schema.schema import Feature, Schema
from tests.cli.datasets import FITTING, land, landed, narrow, on
from tests.kernel.frames import framed
from tests.log.versions import NAME, Clock, append, make_version, rebuild, shard_name

if TYPE_CHECKING:
    from pathlib import Path

SIZE = len(framed(*FITTING))


def test_what_came_is_told_with_records_and_bytes(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two", "three")
    result = narrow(tmp_path, "diff", f"{NAME}@1", "@latest")
    assert result.code == 0
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[:3] == [
        ["digits/v1@1", "→", "digits/v1@3"],
        ["shards", "+2", "-0", "(1", "→", "3)"],
        ["records", "+6", "(3", "→", "9)"],
    ]
    assert lines[3][:2] == ["bytes", f"+{2 * SIZE}"]
    assert lines[5:7] == [
        ["+", shard_name("two"), "3", "records,", str(SIZE), "bytes"],
        ["+", shard_name("three"), "3", "records,", str(SIZE), "bytes"],
    ]
    assert lines[7][0] == "features:"


def test_what_went_is_told_with_a_minus(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a", "bb", "ccc")
    rebuild(version, ["a", "bb"], "abb")
    result = on(tmp_path, "diff", f"{NAME}@2", "@1")
    assert "digits/v1@2 → digits/v1@1" in result.out
    assert "+2 -1" in result.out
    rows = [line.split() for line in result.out.splitlines()]
    assert ["-", shard_name("abb"), "3", "records,", "3", "bytes"] in rows
    assert ["+", shard_name("a"), "1", "record,", "1", "bytes"] in rows


def test_json_tells_both_snapshots_and_every_shard(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    result = on(tmp_path, "diff", f"{NAME}@1", "@2", "--json")
    assert (result.code, result.err) == (0, "")
    told = result.json
    assert set(told) == {
        "ok", "old", "new", "added", "removed", "records", "bytes", "schema_diff",
    }  # fmt: skip
    old = version.snapshot(1)
    assert told["old"] == {
        "version": NAME,
        "snapshot": 1,
        "entry": 2,
        "time": old.time.isoformat(),
        "records": 3,
        "bytes": SIZE,
        "shards": 1,
        "content": old.content,
        "published": True,
        "rejected": False,
    }
    assert (told["new"]["snapshot"], told["records"], told["bytes"]) == (2, 3, SIZE)
    assert [shard["name"] for shard in told["added"]] == [shard_name("two")]
    assert told["removed"] == []
    assert told["schema_diff"] == {"classification": "same", "changes": []}


def test_snapshots_go_by_number_tag_time_and_name(tmp_path: Path) -> None:
    clock = Clock()
    version = make_version(tmp_path, clock=clock)
    for label in ("a", "b", "c"):
        append(version, label)
        clock.move(hours=1)
    version.tag("train-1", 1)
    for old, new, numbers in (
        ("@1", "@3", (1, 3)),
        ("@train-1", "@latest", (1, 3)),
        ("@2026-03-01T00:30", "@2026-03-01T01:30:00+00:00", (1, 2)),
        ("@2026-03-01T03:30+02:00", "@latest", (2, 3)),
        ("@2", f"{NAME}@1", (2, 1)),
    ):
        result = on(tmp_path, "diff", NAME + old, *[new] * bool(new), "--json")
        assert result.code == 0, result.err
        assert (result.json["old"]["snapshot"], result.json["new"]["snapshot"]) == numbers


def test_many_shards_are_counted_and_all_shows_them(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "first")
    append(version, *(f"shard {number}" for number in range(20)))
    short = on(tmp_path, "diff", f"{NAME}@1", "@latest")
    assert short.out.count(".tfrecord") == 5
    assert "15 more" in short.out
    assert on(tmp_path, "diff", f"{NAME}@1", "@latest", "--all").out.count(".tfrecord") == 20


def test_two_versions_differ_in_their_fields_too(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    other = Version(tmp_path, "digits/v2")
    other.create(Schema((Feature("x", "int64", required=False), Feature("na\x1bme", "float"))))
    land(other, "one")
    result = on(tmp_path, "diff", f"{NAME}@latest", "digits/v2@latest")
    assert result.code == 0
    assert "digits/v1@1 → digits/v2@1" in result.out
    assert "feature 'x': " in result.out
    assert "feature 'na\\x1bme': added" in result.out
    assert "\x1b" not in result.out
    fields = on(tmp_path, "diff", f"{NAME}@latest", "digits/v2@latest", "--json").json[
        "schema_diff"
    ]
    assert fields["classification"] == "migration"
    assert {change["feature"] for change in fields["changes"]} == {"x", "na\x1bme"}


def test_the_same_content_is_told_to_be_the_same(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    version.restore(1)
    result = on(tmp_path, "diff", f"{NAME}@1", "--json")
    assert (result.code, result.json["added"], result.json["removed"]) == (0, [], [])
    assert "no differences" in on(tmp_path, "diff", f"{NAME}@1").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([NAME], "missing-snapshot"),
        ([f"{NAME}@"], "invalid-reference"),
        ([f"{NAME}@9"], "snapshot-not-found"),
        ([f"{NAME}@never"], "tag-not-found"),
        ([f"{NAME}@1999-01-01"], "snapshot-not-found"),
        ([f"{NAME}@{'9' * 5000}"], "invalid-reference"),
        ([f"{NAME}@1", "@@2"], "invalid-reference"),
        ([f"{NAME}@1", "digits/v9@2"], "version-not-found"),
        ([], "missing-argument"),
    ],
)
def test_what_names_no_snapshot_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], code: str
) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "diff", *arguments, "--json")
    assert result.problem == (2, code)
    assert "Traceback" not in result.err
