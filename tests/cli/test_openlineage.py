"""`shardline openlineage`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.datasets import damage, entry_file, landed, on
from tests.lineage.endpoints import server
from tests.log.versions import NAME

if TYPE_CHECKING:
    from pathlib import Path


def test_events_go_to_a_file_to_the_terminal_and_to_a_server(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "events.jsonl"
    landed(root, "one", "two")
    landed(root, "three", name="faces/v1")
    told = on(root, "openlineage", "--output", file)
    assert told.code == 0
    assert all(words in told.out for words in (str(file), "12 events", "6 entries"))
    lines = file.read_text()
    assert on(root, "openlineage", "--output", "-").out == lines
    events = [json.loads(line) for line in lines.splitlines()]
    assert {event["job"]["namespace"] for event in events} == {root.as_uri()}
    with server() as (url, posted):
        sent = on(root, "openlineage", "digits", "--url", url, "--namespace", "lab", "--json")
    assert sent.json == {"ok": True, "entries": 4, "events": 8}
    assert {event["job"]["name"] for _, _, event in posted} == {f"{NAME}.append", f"{NAME}.attest"}
    assert {event["job"]["namespace"] for _, _, event in posted} == {"lab"}
    ids = {event["run"]["runId"] for event in events if event["job"]["name"].startswith("digits")}
    assert {event["run"]["runId"] for _, _, event in posted} == ids
    one = on(root, "openlineage", "faces/v1", "--output", "-").out.splitlines()
    assert len(one) == 4


def test_a_file_that_is_there_is_replaced_only_if_told(tmp_path: Path) -> None:
    landed(tmp_path / "root", "one")
    file = tmp_path / "thesis.tex"
    file.write_text("mine")
    refused = on(tmp_path / "root", "openlineage", "--output", file, "--json")
    assert refused.problem == (2, "file-exists")
    assert file.read_text() == "mine"
    assert on(tmp_path / "root", "openlineage", "--output", file, "--overwrite").code == 0
    assert file.read_text().startswith("{")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "missing-option"),
        (["--output", "x", "--url", "http://x"], "conflicting-options"),
        (["--output", "-"], "conflicting-options"),
        (["--url", "http://x", "--overwrite"], "missing-option"),
        (["faces", "--output", "events"], "dataset-not-found"),
        (["digits/v9", "--output", "events"], "version-not-found"),
        (["--url", "marquez"], "invalid-location"),
    ],
)
def test_what_cannot_be_done_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], code: str
) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "openlineage", *arguments, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert not (tmp_path / "events").exists()


def test_a_log_that_is_damaged_is_told_with_code_1_and_no_file_is_left(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    damage(entry_file(tmp_path, 2))
    result = on(tmp_path, "openlineage", "--output", tmp_path / "events.jsonl", "--json")
    assert result.problem == (1, "corrupt-log")
    assert result.error["entry"] == 2
    assert not (tmp_path / "events.jsonl").exists()


def test_a_server_that_is_not_there_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed(tmp_path, "one")
    monkeypatch.setattr("time.sleep", lambda _: None)  # before a request is repeated
    with server() as (url, _):
        pass
    result = on(tmp_path, "openlineage", "--url", url, "--json")
    assert result.problem == (2, "storage-unavailable")
    line = result.err.splitlines()[0]
    assert line.startswith(f"error: {url}/api/v1/lineage")
    assert "0 events" in line
