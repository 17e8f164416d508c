"""`shardline describe`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import mlcroissant as mlc
import pytest

from shardline.api import Version
from tests.cli.datasets import entry_file, file_of, landed, on
from tests.lineage.exported_roots import grow, make_history
from tests.log.versions import NAME

if TYPE_CHECKING:
    from pathlib import Path


def test_a_card_is_shown_or_written(tmp_path: Path) -> None:
    root = make_history(tmp_path)
    shown = on(root, "describe", "numbers/v1")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith('---\npretty_name: "numbers')
    assert "numbers/v1, snapshot 4" in shown.out
    assert "by parity" in shown.out
    file = tmp_path / "README.md"
    about = ("--license", "mit", "--creator", "Us", "--cite", "Us, 2026", "--url", "https://x.org")
    told = on(root, "describe", "numbers/v1@2", "-o", file, "--no-count", *about)
    size = f"{file.stat().st_size / 1024:.1f} KB"
    assert all(words in told.out for words in (str(file), "numbers/v1@2", size))
    text = file.read_text()
    assert "by parity" not in text
    assert all(line in text for line in ("- License: mit\n", "https://x.org\n", ": Us, 2026\n"))


def test_sums_are_taken_by_sha256sum(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    file = tmp_path / "digits" / "SHA256SUMS"
    assert on(tmp_path, "describe", NAME, "--format", "sha256sums", "-o", file).code == 0
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"],  # noqa: S607 - the tool that people have
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert checked.stdout.count(": OK") == 2
    lines = on(tmp_path, "describe", f"{NAME}@1", "--format", "sha256sums").out.splitlines()
    assert [line.split("  ")[1].rpartition("/")[0] for line in lines] == ["digits/shards"]


def test_croissant_is_written_into_a_folder_with_what_it_is_read_with(tmp_path: Path) -> None:
    version = grow(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 4)
    told = on(
        version.store.uri,
        "describe",
        "numbers/v1",
        "--format",
        "croissant",
        "-o",
        tmp_path / "told",
    )
    assert [line.split(":")[0].rpartition("/")[2] for line in told.out.splitlines()] == [
        "croissant.json",
        "records.parquet",
    ]
    records = list(mlc.Dataset(tmp_path / "told" / "croissant.json").records("records"))
    assert [int(one["records/id"]) for one in records] == [0, 1, 2, 3]
    alone = on(version.store.uri, "describe", "numbers/v1", "--format", "croissant", "--no-copy")
    (file,) = json.loads(alone.out)["distribution"]
    assert file["contentUrl"] == version.shard_name(version.latest().shards[0])


def test_json_tells_what_was_written_and_holds_what_was_not(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    told = {"ok": True, "version": NAME, "snapshot": 1, "as": "card"}
    file = tmp_path / "card.md"
    written = on(tmp_path, "describe", NAME, "-o", file, "--json")
    assert written.json == {**told, "files": [str(file)]}
    assert on(tmp_path, "describe", NAME, "--json").json == {**told, "text": file.read_text()}


@pytest.mark.parametrize("form", ["card", "sha256sums"])
def test_a_file_that_is_there_is_replaced_only_if_told(tmp_path: Path, form: str) -> None:
    landed(tmp_path / "root", "one")
    file = tmp_path / "README.md"
    file.write_text("mine")
    refused = on(tmp_path / "root", "describe", NAME, "--format", form, "-o", file, "--json")
    assert refused.problem == (2, "file-exists")
    assert (refused.error["path"], file.read_text()) == (str(file), "mine")
    told = on(tmp_path / "root", "describe", NAME, "--format", form, "-o", file, "--overwrite")
    assert told.code == 0
    assert NAME.partition("/")[0] in file.read_text()
    assert list(tmp_path.glob(".*.tmp")) == []


@pytest.mark.parametrize("name", ["croissant.json", "records.parquet"])
def test_what_lies_in_the_folder_of_croissant_is_replaced_only_if_told(
    tmp_path: Path, name: str
) -> None:
    root = landed(tmp_path / "root", "one").store.uri
    file = tmp_path / "told" / name
    file.parent.mkdir()
    file.write_text("mine")
    asked = ("describe", NAME, "--format", "croissant", "-o", file.parent)
    refused = on(root, *asked, "--json")
    assert refused.problem == (2, "file-exists")
    assert file.read_text() == "mine"
    assert [one.name for one in file.parent.iterdir()] == [name]
    assert on(root, *asked, "--overwrite").code == 0
    assert file.read_bytes() != b"mine"


def test_data_and_devices_are_never_replaced(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    for place in (file_of(tmp_path, "one"), entry_file(tmp_path, 1)):
        before = place.read_bytes()
        refused = on(tmp_path, "describe", NAME, "-o", place, "--overwrite", "--json")
        assert refused.problem == (2, "output-in-root")
        assert place.read_bytes() == before
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused = on(tmp_path, "describe", NAME, "-o", pipe, "--overwrite", "--json")
    assert refused.problem == (2, "output-not-regular")
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([f"{NAME}@9"], "snapshot-not-found"),
        (["digits"], "missing-version"),
        ([NAME, "--format", "croissant"], "missing-option"),
        ([NAME, "--format", "croissant", "-o", "setup.py"], "output-is-file"),
        ([NAME, "-o", "."], "output-is-folder"),
        ([NAME, "--overwrite"], "missing-option"),
        ([NAME, "-o", "nowhere/card.md"], "folder-not-found"),
        ([NAME, "--no-copy"], "option-not-applicable"),
        ([NAME, "--format", "sha256sums", "--no-count"], "option-not-applicable"),
        ([NAME, "--format", "poem"], "invalid-option-value"),
    ],
)
def test_what_cannot_be_done_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], code: str
) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "describe", *arguments, "--json")
    assert result.problem == (2, code)
