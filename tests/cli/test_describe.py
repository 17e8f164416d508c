"""`shardline describe`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import mlcroissant as mlc
import pytest

from shardline.log.version import Version
from tests.cli.datasets import entry_file, file_of, here, landed
from tests.lineage.told_roots import grown, make_history
from tests.log.versions import NAME

if TYPE_CHECKING:
    from pathlib import Path


def test_a_card_is_shown_or_written(tmp_path: Path) -> None:
    root = make_history(tmp_path)
    shown = here(root, "describe", "numbers/v1")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith('---\npretty_name: "numbers v1"\n')
    assert "# numbers/v1, snapshot 4" in shown.out
    assert "## Records by parity" in shown.out
    file = tmp_path / "README.md"
    about = ("--license", "mit", "--creator", "Us", "--cite", "Us, 2026", "--url", "https://x.org")
    told = here(root, "describe", "numbers/v1@2", "-o", file, "--no-count", *about)
    assert told.out == f"{file}: card of numbers/v1@2, {file.stat().st_size / 1024:.1f} KB\n"
    text = file.read_text()
    assert "## Records by parity" not in text
    assert "- License: mit\n- By: Us\n- Page: https://x.org\n- To cite it: Us, 2026\n" in text


def test_sums_are_taken_by_sha256sum(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    file = tmp_path / "digits" / "SHA256SUMS"
    assert here(tmp_path, "describe", NAME, "--as", "sha256sums", "-o", file).code == 0
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"],  # noqa: S607 - the tool that people have
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert checked.stdout.count(": OK") == 2
    lines = here(tmp_path, "describe", f"{NAME}@1", "--as", "sha256sums").out.splitlines()
    assert [line.split("  ")[1].rpartition("/")[0] for line in lines] == ["digits/shards"]


def test_croissant_is_written_into_a_folder_with_what_it_is_read_with(tmp_path: Path) -> None:
    version = grown(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 4)
    told = here(
        version.store.uri, "describe", "numbers/v1", "--as", "croissant", "-o", tmp_path / "told"
    )
    assert [line.split(":")[0].rpartition("/")[2] for line in told.out.splitlines()] == [
        "croissant.json",
        "records.parquet",
    ]
    records = list(mlc.Dataset(tmp_path / "told" / "croissant.json").records("records"))
    assert [int(one["records/id"]) for one in records] == [0, 1, 2, 3]
    alone = here(version.store.uri, "describe", "numbers/v1", "--as", "croissant", "--no-copy")
    (file,) = json.loads(alone.out)["distribution"]
    assert file["contentUrl"] == version.shard_name(version.newest().shards[0])


def test_json_tells_what_was_written_and_holds_what_was_not(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    told = {"ok": True, "version": NAME, "snapshot": 1, "as": "card"}
    file = tmp_path / "card.md"
    written = here(tmp_path, "describe", NAME, "-o", file, "--json")
    assert written.json == {**told, "files": [str(file)]}
    assert here(tmp_path, "describe", NAME, "--json").json == {**told, "text": file.read_text()}


@pytest.mark.parametrize("form", ["card", "sha256sums"])
def test_a_file_that_is_there_is_replaced_only_if_told(tmp_path: Path, form: str) -> None:
    landed(tmp_path / "root", "one")
    file = tmp_path / "README.md"
    file.write_text("mine")
    refused = here(tmp_path / "root", "describe", NAME, "--as", form, "-o", file)
    assert (refused.code, file.read_text()) == (2, "mine")
    assert f"{file} exists already: choose another name, or say --overwrite" in refused.err
    told = here(tmp_path / "root", "describe", NAME, "--as", form, "-o", file, "--overwrite")
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
    asked = ("describe", NAME, "--as", "croissant", "-o", file.parent)
    refused = here(root, *asked)
    assert (refused.code, file.read_text()) == (2, "mine")
    assert "say --overwrite" in refused.err
    assert [one.name for one in file.parent.iterdir()] == [name]
    assert here(root, *asked, "--overwrite").code == 0
    assert file.read_bytes() != b"mine"


def test_data_and_devices_are_never_replaced(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    for place in (file_of(tmp_path, "one"), entry_file(tmp_path, 1)):
        before = place.read_bytes()
        refused = here(tmp_path, "describe", NAME, "-o", place, "--overwrite")
        assert refused.code == 2
        assert "among the data of the root" in refused.err
        assert place.read_bytes() == before
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "no plain file" in here(tmp_path, "describe", NAME, "-o", pipe, "--overwrite").err
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([f"{NAME}@9"], "has no snapshot 9"),
        (["digits"], "digits is a dataset: name a version of it: digits/v1"),
        ([NAME, "--as", "croissant"], "Say -o FOLDER"),
        ([NAME, "--as", "croissant", "-o", "setup.py"], "is a file"),
        ([NAME, "-o", "."], "is a folder"),
        ([NAME, "--overwrite"], "--overwrite is for -o"),
        ([NAME, "-o", "nowhere/card.md"], "no such folder"),
        ([NAME, "--no-copy"], "--no-copy is for --as croissant"),
        ([NAME, "--as", "sha256sums", "--no-count"], "--no-count is for --as card"),
        ([NAME, "--as", "poem"], "is not one of"),
    ],
)
def test_what_cannot_be_done_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    landed(tmp_path, "one")
    result = here(tmp_path, "describe", *arguments)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
