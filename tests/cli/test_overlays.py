"""Overlays on the command line: shown whole, listed never, and verified with what lies below."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shardline.api import Version
from tests.cli.datasets import damage, on
from tests.readers.overlays import SCORE, extended, lay, mixed, score, scored, tagged
from tests.readers.snapshots import NUMBERS, numbers, published
from tests.tfrecord.samples import example_of

if TYPE_CHECKING:
    from pathlib import Path


def test_head_shows_whole_records_of_every_depth(tmp_path: Path) -> None:
    mixed(tmp_path)
    lines = on(tmp_path, "head", "digits/v3", "--json", "-n", "30").out.splitlines()
    told = [json.loads(line) for line in lines]
    assert [one["record"] for one in told] == list(range(20))
    assert [one["features"]["x"]["values"] for one in told] == [[x] for x in range(20)]
    assert [one["features"]["score"]["values"] for one in told] == [[x / 4] for x in range(20)]
    (last,) = on(tmp_path, "head", "digits/v3", "--json", "--skip", "19").out.splitlines()
    assert json.loads(last) == told[19]


def test_files_names_rebuild_and_to_tf_instead(tmp_path: Path) -> None:
    scored(tmp_path)
    result = on(tmp_path, "files", "digits/v2", "--json")
    assert result.code == 2
    assert [command[:3] for command in result.hint] == [["rebuild", "digits/v2", "--into"]]
    assert "to_tf()" in result.err


def test_a_sound_version_is_verified_with_its_bases(tmp_path: Path) -> None:
    tagged(tmp_path)
    result = on(tmp_path, "verify", "digits/v3")
    assert result.code == 0
    assert all(words in result.out for words in ("4 shards", "8 base shards", "9 records"))
    told = on(tmp_path, "verify", "digits/v3", "--json").json["versions"][0]
    assert [one["ok"] for one in told["bases"]] == [True] * 8
    assert told["shards"][0]["base"] in {one["shard"] for one in told["bases"]}
    assert (
        "base" not in on(tmp_path, "verify", "digits/v1", "--json").json["versions"][0]["shards"][0]
    )


def test_a_damaged_base_is_told_as_one_with_what_to_do(tmp_path: Path) -> None:
    (first, *_) = scored(tmp_path).shards
    assert first.base is not None
    damage(tmp_path / "digits" / "shards" / first.base.name)
    result = on(tmp_path, "verify", "digits/v2@latest")
    assert result.code == 1
    assert f"CORRUPT digits/shards/{first.base.name} (" in result.out
    assert "data-crc" in result.out
    assert result.shows("repair", "digits/v1")
    assert "check digits/v2" not in result.out
    told = on(tmp_path, "verify", "digits/v2", "--json").json["versions"][0]
    assert [one["shard"] for one in told["bases"] if not one["ok"]] == [first.base.name]
    assert all(one["ok"] for one in told["shards"])


def test_a_feature_that_the_base_has_too_is_wrong_and_not_damaged(tmp_path: Path) -> None:
    base = published(tmp_path, NUMBERS, numbers(0, 2))
    bad = [score(0), example_of(score=0.5, x=7)]
    lay(base, "digits/v2", extended(NUMBERS, SCORE), bad)
    result = on(tmp_path, "verify", "digits/v2@latest")
    assert result.code == 1
    assert "\nINVALID digits/shards/v2." in result.out
    assert all(words in result.out for words in ("record 1", "feature 'x'", "1 invalid"))
    assert "shardline repair" not in result.out
    checked = on(tmp_path, "check", "digits/v2", "--json")
    assert checked.code == 1
    (shard,) = checked.json["shards"]
    (violation,) = shard["violations"]
    assert (violation["record"], violation["feature"]) == (1, "x")
    assert checked.json["rejected"] == [1]


def test_repair_is_not_proposed_for_a_damaged_overlay(tmp_path: Path) -> None:
    (first, *_) = scored(tmp_path).shards
    damage(tmp_path / Version(tmp_path, "digits/v2").shard_name(first))
    for command in ("verify", "check"):
        again = ["--recheck"] * (command == "check")
        result = on(tmp_path, command, "digits/v2", *again)
        assert result.code == 1
        assert "data-crc" in result.out
        assert "shardline repair" not in result.out
