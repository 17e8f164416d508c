"""`shardline consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from tests.cli.datasets import HOSTILE, landed, narrow, on
from tests.log.versions import NAME

if TYPE_CHECKING:
    from pathlib import Path


def test_a_consumer_is_registered_listed_released_and_remembered(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    assert on(tmp_path, "consumers").commands == [
        ["consumers", "NAME/VERSION", "--register", "CONSUMER"]
    ]
    who = ("--register", "digits-cnn", "--run", "42", "--commit", "1f3c9d2")
    first = on(tmp_path, "consumers", f"{NAME}@1", *who)
    assert first.out.startswith("digits/v1@1: registered digits-cnn")
    assert on(tmp_path, "consumers", f"{NAME}@1", *who, "--json").json["new"] is False
    on(tmp_path, "consumers", NAME, "--register", "tree")
    lines = [line.split() for line in narrow(tmp_path, "consumers", "digits").out.splitlines()]
    assert lines[0] == ["version", "snapshot", "consumer", "run", "commit"]
    assert lines[2:4] == [
        ["digits/v1", "1", "digits-cnn", "42", "1f3c9d2"],
        ["digits/v1", "2", "tree"],
    ]
    log = on(tmp_path, "log", NAME).out
    assert "(run 42, commit" in log
    released = on(tmp_path, "consumers", NAME, "--release", "digits-cnn", "--run", "42")
    assert "(@1)" in released.out
    assert "released by digits-cnn" in on(tmp_path, "log", NAME).out
    assert "digits-cnn" not in on(tmp_path, "consumers").out
    ever = on(tmp_path, "consumers", f"{NAME}@1", "--all").out
    assert "digits-cnn" in ever
    assert "tree" not in ever
    assert on(tmp_path, "verify", NAME).code == 0


def test_json_tells_the_same(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    command = ("consumers", NAME, "--register", "cnn", "--run", "1", "--json")
    first, again = (on(tmp_path, *command).json for _ in range(2))
    assert (first["new"], again["new"]) == (True, False)
    told = {"version": NAME, "snapshot": 1, "name": "cnn", "run": "1", "commit": ""}
    assert {**first["consumer"], "since": None} == {**told, "since": None, "released": None}
    assert on(tmp_path, "consumers", "--json").json["consumers"] == [
        {**told, "since": None, "released": None}
    ]
    (released,) = on(tmp_path, "consumers", NAME, "--release", "cnn", "--json").json["released"]
    assert released["snapshot"] == 1
    (ever,) = on(tmp_path, "consumers", "--all", "--json").json["consumers"]
    assert ever["since"] == first["consumer"]["since"]
    assert ever["released"] >= ever["since"]


@pytest.mark.parametrize("option", ["--register", "--release"])
def test_a_missing_version_is_told_with_the_command(tmp_path: Path, option: str) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "consumers", option, "cnn", "--json")
    assert result.hint == [["consumers", "NAME/VERSION", option, "cnn"]]
    assert NAME in result.error["hint"]["text"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--register", "cnn"], "missing-version"),
        (["--release", "cnn"], "missing-version"),
        (["digits", "--register", "cnn"], "missing-version"),
        ([NAME, "--register", "a", "--release", "b"], "conflicting-options"),
        ([NAME, "--commit", "1f"], "missing-option"),
        ([NAME, "--run", "1"], "missing-option"),
        ([NAME, "--all", "--release", "cnn"], "option-not-applicable"),
        ([NAME, "--release", "cnn"], "consumer-not-found"),
        ([NAME, "--register", "my model"], "invalid-name"),
        ([NAME, "--register", HOSTILE], "invalid-name"),
        ([f"{NAME}@9", "--register", "cnn"], "snapshot-not-found"),
        (["faces"], "dataset-not-found"),
        (["faces/v1"], "dataset-not-found"),
    ],
)
def test_what_cannot_be_done_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], code: str
) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "consumers", *arguments, "--json")
    assert result.problem == (2, code)
    assert "\x1b" not in result.err
    assert Version(tmp_path, NAME).state.number == 3
