"""`shardline rebuild`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardline.log.version import Version
from tests.cli.command import inside, on_terminal
from tests.cli.datasets import damage, file_of, here, landed, numbers_of, squeezed, write_rows
from tests.files.samples import example_of, made, packed, read_by_tensorflow
from tests.kernel.frames import framed
from tests.log.versions import NAME

PAYLOADS = [example_of(x=number) for number in range(20)]


def test_in_place_one_shard_takes_the_place_of_all_and_is_published(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two", "three")
    before = numbers_of(version)
    result = here(tmp_path, "rebuild", NAME)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert re.fullmatch(
        r"digits/v1@4: 3 shards of digits/v1@3 rebuilt into 1, 9 records, \d+ bytes", lines[0]
    )
    assert re.fullmatch(r"  \d+\.\d\d s, [\d,]+ records/s, .*/s", lines[1])
    assert re.fullmatch(r"digits/v1@4: 1 shard checked \(\d+ bytes\), 0 failed", lines[2])
    assert lines[3:] == ["digits/v1@4 is published", "To read it: shardline files digits/v1"]
    version.refresh()
    assert (len(version.newest().shards), numbers_of(version, "published")) == (1, before)
    log = squeezed(here(tmp_path, "log", NAME).out)
    assert "rebuild 4 3 3 shards rebuilt into 1, 9 records" in log
    result = here(tmp_path, "rebuild", NAME)
    assert result.out == "digits/v1@4: nothing to do, its shards are as asked already\n"


def test_into_another_version_which_then_follows(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    result = here(tmp_path, "rebuild", NAME, "--into", "v2", "--target-size", "64")
    assert result.code == 0, result.err
    assert result.out.startswith("created digits/v2, with the schema of digits/v1\ndigits/v2@1: ")
    made_of = Version(tmp_path, "digits/v2")
    assert len(made_of.newest().shards) > 2
    assert numbers_of(made_of, "published") == numbers_of(version)
    told = here(tmp_path, "rebuild", NAME, "--into", "digits/v3", "--json").json
    assert (told["ok"], told["created"], told["published"], told["records"]) == (
        True,
        True,
        True,
        6,
    )
    assert (told["version"], told["read_shards"], len(told["shards"])) == ("digits/v3", 2, 1)
    assert told["source"]["snapshot"] == 2
    again = here(tmp_path, "rebuild", NAME, "--into", "v3", "--json").json
    assert (again["ok"], again["snapshot"], again["entry"]) == (True, None, None)
    older = here(tmp_path, "rebuild", f"{NAME}@1", "--into", "v4", "--compression", "gzip")
    assert older.code == 0
    assert numbers_of(Version(tmp_path, "digits/v4")) == [0, 1, 2]


def test_without_a_check_it_is_not_published(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    result = here(tmp_path, "rebuild", NAME, "--no-check")
    assert result.code == 0
    assert "To check it, and so publish it: shardline check digits/v1@3" in result.out
    assert Version(tmp_path, NAME).state.published == 2


def test_a_damaged_shard_is_code_1_and_nothing_changes(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(file_of(tmp_path, "one"))
    result = here(tmp_path, "rebuild", NAME, "--json")
    assert (result.code, result.json["ok"], result.json["fault"]["kind"]) == (1, False, "data-crc")
    assert Version(tmp_path, NAME).state.number == 5


def test_what_was_left_behind_cannot_be_rebuilt_in_place(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    version.restore(1)
    result = here(tmp_path, "rebuild", f"{NAME}@2")
    assert (result.code, result.out) == (2, "")
    assert "digits/v1@3 no longer holds all of digits/v1@2: rebuild digits/v1@newest" in squeezed(
        result.err
    )


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_loose_files_become_one(tmp_path: Path, compression: str) -> None:
    for number in range(2):
        data = packed(compression, framed(*PAYLOADS[10 * number : 10 * number + 10]))
        made(tmp_path / f"in-{number}.tfrecord", data)
    result = inside("rebuild", "in-*", "--output", "out.tfrecord", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("2 files rebuilt into out.tfrecord: 20 records, ")
    name = "" if compression == "none" else "GZIP"
    assert read_by_tensorflow(tmp_path / "out.tfrecord", name) == PAYLOADS
    told = inside(
        "rebuild", "in-*", "--output", "even", "--target-size", "300", "--json", cwd=tmp_path
    ).json
    assert (told["ok"], told["records"], told["read_files"]) == (True, 20, 2)
    files = [tmp_path / file for file in told["files"]]
    assert [one for file in files for one in read_by_tensorflow(file, name)] == PAYLOADS


def test_a_file_is_overwritten_only_if_asked_and_never_read_and_written(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    made(tmp_path / "out.tfrecord", b"precious")
    result = inside("rebuild", "a.tfrecord", "--output", "out.tfrecord", cwd=tmp_path)
    assert (result.code, "exists already" in result.err) == (2, True)
    assert (tmp_path / "out.tfrecord").read_bytes() == b"precious"
    options = ("--output", "out.tfrecord", "--overwrite")
    result = inside("rebuild", ".", *options, cwd=tmp_path)
    assert (result.code, "is one of the files to read" in result.err) == (2, True)
    assert inside("rebuild", "a.tfrecord", *options, cwd=tmp_path).code == 0
    assert read_by_tensorflow(tmp_path / "out.tfrecord") == PAYLOADS


def test_a_damaged_file_is_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    damage(made(tmp_path / "a.tfrecord", framed(*PAYLOADS)))
    for options in ([], ["--target-size", "64"]):
        result = inside("rebuild", "a.tfrecord", "--output", "out", *options, cwd=tmp_path)
        assert (result.code, "data-crc at record 0" in result.err) == (1, True)
    assert [file.name for file in tmp_path.iterdir()] == ["a.tfrecord"]


MIXED_UP = {
    "files without an output": (["a.tfrecord"], "to rebuild files, say where to: --output OUT"),
    "two versions": ([NAME, "digits/v2"], "of versions, name one at a time"),
    "files into a version": (["a.tfrecord", "--output", "o", "--into", "v2"], "are for versions"),
    "files with a check": (["a.tfrecord", "--output", "o", "--no-check"], "are for versions"),
    "a version with --overwrite": ([NAME, "--overwrite"], "nothing is overwritten"),
    "a folder to overwrite": (
        ["a.tfrecord", "--output", "o", "--overwrite", "--target-size", "9"], "is a new folder",
    ),
    "a folder as the file": (["a.tfrecord", "--output", "."], "is a folder: name a file"),
    "a missing file": (["missing", "--output", "o"], "no such file: missing"),
    "no bytes": ([NAME, "--target-size", "0"], "is too little"),
    "into itself": ([NAME, "--into", "v1"], "is the version itself"),
    "into a snapshot": ([NAME, "--into", "digits/v2@3"], "names a snapshot"),
    "into no name": ([NAME, "--into", "V 2"], "names no version"),
    "into an upper-case name": (
        [NAME, "--into", "Digits/v2"],
        "Both names have 1 to 64 lower-case letters, digits, '-' and '_', with a letter or digit",
    ),
    "a missing version": (["digits/v9"], "digits has v1"),
}  # fmt: skip


@pytest.mark.parametrize("what", MIXED_UP)
def test_what_is_mixed_up_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    landed(tmp_path / "root", "one")
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    arguments, words = MIXED_UP[what]
    result = here(tmp_path / "root", "rebuild", *arguments, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tfrecord", "root"]


def test_a_version_with_other_features_is_told_with_code_2_as_extend_does(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    write_rows(tmp_path / "in.jsonl", ["a"])
    assert here(tmp_path, "append", "digits/v2", tmp_path / "in.jsonl").code == 0
    result = here(tmp_path, "rebuild", NAME, "--into", "v2")
    assert result.code == 2
    assert "digits/v2 exists already, and its features are not those that it would" in result.err
    assert "Name a version that is not there yet (--into)" in result.err
    assert "migration" not in result.err


def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    code, drawn = on_terminal("rebuild", NAME, "--root", tmp_path)
    assert code == 0
    assert "rebuilding" in drawn
    assert "checking" in drawn
    file = here(tmp_path, "files", NAME).out.strip()
    code, drawn = on_terminal("rebuild", Path(file), "--output", tmp_path / "out")
    assert (code, "rebuilding" in drawn) == (0, True)
