"""`shardline consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.log.version import Version
from tests.cli.datasets import HOSTILE, here, landed, narrow, squeezed
from tests.log.versions import NAME

if TYPE_CHECKING:
    from pathlib import Path


def test_a_consumer_is_registered_listed_released_and_remembered(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    assert "no consumers are registered" in here(tmp_path, "consumers").out
    who = ("--register", "digits-cnn", "--run", "42", "--commit", "1f3c9d2")
    told = here(tmp_path, "consumers", f"{NAME}@1", *who)
    assert told.out == "digits-cnn reads digits/v1@1: vacuum keeps it until it is released\n"
    assert "already: nothing to do" in here(tmp_path, "consumers", f"{NAME}@1", *who).out
    here(tmp_path, "consumers", NAME, "--register", "tree")
    lines = [squeezed(line) for line in narrow(tmp_path, "consumers", "digits").out.splitlines()]
    assert lines[0] == "version snapshot consumer run commit"
    assert lines[2:] == [
        "digits/v1 1 digits-cnn 42 1f3c9d2",
        "digits/v1 2 tree",
        "",
        "2 snapshots held for consumers",
    ]
    log = here(tmp_path, "log", NAME).out
    assert "snapshot 1 is read by digits-cnn (run 42, commit 1f3c9d2)" in log
    released = here(tmp_path, "consumers", NAME, "--release", "digits-cnn", "--run", "42")
    assert "digits-cnn no longer holds digits/v1 (@1)" in released.out
    assert "released by digits-cnn" in here(tmp_path, "log", NAME).out
    assert "digits-cnn" not in here(tmp_path, "consumers").out
    ever = here(tmp_path, "consumers", f"{NAME}@1", "--all").out
    assert "digits-cnn" in ever
    assert "tree" not in ever
    assert here(tmp_path, "verify", NAME).code == 0


def test_json_tells_the_same(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    command = ("consumers", NAME, "--register", "cnn", "--run", "1", "--json")
    first, again = (here(tmp_path, *command).json for _ in range(2))
    assert (first["new"], again["new"]) == (True, False)
    told = {"version": NAME, "snapshot": 1, "name": "cnn", "run": "1", "commit": ""}
    assert {**first["consumer"], "since": None} == {**told, "since": None, "released": None}
    assert here(tmp_path, "consumers", "--json").json["consumers"] == [
        {**told, "since": None, "released": None}
    ]
    (released,) = here(tmp_path, "consumers", NAME, "--release", "cnn", "--json").json["released"]
    assert released["snapshot"] == 1
    (ever,) = here(tmp_path, "consumers", "--all", "--json").json["consumers"]
    assert ever["since"] == first["consumer"]["since"]
    assert ever["released"] >= ever["since"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--register", "cnn"],
            "Say shardline consumers NAME/VERSION --register cnn. There are: digits/v1",
        ),
        (["--release", "cnn"], "Say shardline consumers NAME/VERSION --release cnn"),
        (["digits", "--register", "cnn"], "digits is a dataset: name a version of it: digits/v1"),
        ([NAME, "--register", "a", "--release", "b"], "not both"),
        ([NAME, "--commit", "1f"], "--commit is for --register"),
        ([NAME, "--run", "1"], "--run is for"),
        ([NAME, "--all", "--release", "cnn"], "--all is for listing"),
        ([NAME, "--release", "cnn"], "no consumer 'cnn' holds digits/v1; its consumers: none"),
        ([NAME, "--register", "my model"], "cannot be the name of a consumer"),
        ([NAME, "--register", HOSTILE], "cannot be the name of a consumer"),
        ([f"{NAME}@9", "--register", "cnn"], "has no snapshot 9"),
        (["faces"], "there is no dataset faces"),
        (["faces/v1"], "there is no dataset faces"),
    ],
)
def test_what_cannot_be_done_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    landed(tmp_path, "one")
    result = here(tmp_path, "consumers", *arguments)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert "\x1b" not in result.err
    assert Version(tmp_path, NAME).state.number == 3
