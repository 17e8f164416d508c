"""`shardline tag`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from tests.cli.datasets import HOSTILE, landed, narrow, on
from tests.log.versions import NAME

if TYPE_CHECKING:
    from pathlib import Path


def tags(root: Path) -> dict[str, int | None]:
    return {name: hold.snapshot for name, hold in Version(root, NAME).state.tags.items()}


def test_a_tag_is_set_moved_and_deleted(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    assert "digits/v1@1" in on(tmp_path, "tag", f"{NAME}@1", "train-1").out
    assert tags(tmp_path) == {"train-1": 1}
    moved = on(tmp_path, "tag", NAME, "train-1")
    assert all(words in moved.out for words in ("digits/v1@2", "before: 1"))
    number = Version(tmp_path, NAME).state.number
    assert on(tmp_path, "tag", f"{NAME}@2", "train-1").code == 0
    assert tags(tmp_path) == {"train-1": 2}
    assert Version(tmp_path, NAME).state.number == number
    deleted = on(tmp_path, "tag", NAME, "--delete", "train-1")
    assert deleted.code == 0
    assert "digits/v1@2" in deleted.out
    assert tags(tmp_path) == {}


def test_the_tags_are_listed(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    assert on(tmp_path, "tag", NAME).commands == [["tag", "digits/v1@published", "TAG"]]
    version.tag("train-1", 1)
    version.tag("best", 2)
    lines = [line.split() for line in narrow(tmp_path, "tag", NAME).out.splitlines()]
    assert lines[0] == ["tag", "snapshot", "created", "(UTC)", "records", "bytes", "published"]
    assert lines[2][:2] == ["best", "2"]
    assert lines[3][:2] == ["train-1", "1"]
    assert lines[3][-4:] == ["3", str(version.snapshot(1).bytes), "bytes", "yes"]


def test_json_tells_each_tag_with_its_snapshot_and_what_a_tag_named_before(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    told = {"ok": True, "version": NAME, "tag": "a"}
    for arguments, after in (
        ([f"{NAME}@1", "a"], {"snapshot": 1, "before": None}),
        ([f"{NAME}@2", "a"], {"snapshot": 2, "before": 1}),
        ([f"{NAME}@2", "a"], {"snapshot": 2, "before": 2}),
    ):
        assert on(tmp_path, "tag", *arguments, "--json").json == {**told, **after}
    (listed,) = on(tmp_path, "tag", NAME, "--json").json["tags"]
    assert (listed["tag"], listed["snapshot"], listed["published"]) == ("a", 2, True)
    deleted = on(tmp_path, "tag", NAME, "--delete", "a", "--json")
    assert deleted.json == {**told, "snapshot": None, "before": 2}


def test_a_tag_names_a_snapshot_wherever_one_is_named(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    on(tmp_path, "tag", f"{NAME}@1", "train-1")
    on(tmp_path, "tag", f"{NAME}@train-1", "again")
    assert tags(tmp_path) == {"train-1": 1, "again": 1}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([f"{NAME}@1"], "missing-argument"),
        ([NAME, "a", "--delete", "b"], "conflicting-options"),
        ([f"{NAME}@1", "--delete", "a"], "unexpected-snapshot"),
        ([NAME, "--delete", "missing"], "tag-not-found"),
        ([f"{NAME}@9", "a"], "snapshot-not-found"),
        ([NAME, "latest"], "reserved-name"),
        ([NAME, "7"], "reserved-name"),
        ([NAME, "Train 1"], "invalid-name"),
        ([NAME, HOSTILE], "invalid-name"),
        ([NAME, "--delete", HOSTILE], "invalid-name"),
        ([NAME, ""], "invalid-name"),
    ],
)
def test_what_cannot_be_done_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], code: str
) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "tag", *arguments, "--json")
    assert result.problem == (2, code)
    assert "\x1b" not in result.err
    assert "Traceback" not in result.err
    assert Version(tmp_path, NAME).state.number == 3
