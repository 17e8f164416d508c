"""`shardline rebuild`."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardline.api import Version
from tests.cli.command import on_terminal, shardline
from tests.cli.datasets import damage, file_of, landed, numbers_of, on, squeezed, write_rows
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.tfrecord.samples import example_of, made, packed, read_by_tensorflow

PAYLOADS = [example_of(x=number) for number in range(20)]


def test_in_place_one_shard_takes_the_place_of_all_and_is_published(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two", "three")
    before = numbers_of(version)
    result = on(tmp_path, "rebuild", NAME)
    assert (result.code, result.err) == (0, "")
    assert result.commands == [["files", NAME]]
    version.refresh()
    assert (version.latest().number, version.state.published) == (4, 4)
    assert (len(version.latest().shards), numbers_of(version, "published")) == (1, before)
    log = squeezed(on(tmp_path, "log", NAME).out)
    assert all(words in log for words in ("rebuild 4 3", "3 shards", "9 records"))
    report = on(tmp_path, "rebuild", NAME, "--json").json
    assert (report["ok"], report["snapshot"], report["shards"]) == (True, None, [])


def test_into_another_version_which_then_follows(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    result = on(tmp_path, "rebuild", NAME, "--into", "v2", "--target-size", "64")
    assert result.code == 0, result.err
    made_of = Version(tmp_path, "digits/v2")
    assert len(made_of.latest().shards) > 2
    assert numbers_of(made_of, "published") == numbers_of(version)
    told = on(tmp_path, "rebuild", NAME, "--into", "digits/v3", "--json").json
    assert (told["ok"], told["created"], told["published"], told["records"]) == (
        True,
        True,
        True,
        6,
    )
    assert (told["version"], told["read_shards"], len(told["shards"])) == ("digits/v3", 2, 1)
    assert told["source"]["snapshot"] == 2
    again = on(tmp_path, "rebuild", NAME, "--into", "v3", "--json").json
    assert (again["ok"], again["snapshot"], again["entry"]) == (True, None, None)
    older = on(tmp_path, "rebuild", f"{NAME}@1", "--into", "v4", "--compression", "gzip")
    assert older.code == 0
    assert numbers_of(Version(tmp_path, "digits/v4")) == [0, 1, 2]


def test_without_a_check_it_is_not_published(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    result = on(tmp_path, "rebuild", NAME, "--no-check")
    assert result.code == 0
    assert result.commands == [["check", "digits/v1@3"]]
    assert Version(tmp_path, NAME).state.published == 2


def test_a_damaged_shard_is_code_1_and_nothing_changes(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(file_of(tmp_path, "one"))
    result = on(tmp_path, "rebuild", NAME, "--json")
    assert result.problem == (1, "corrupt-file")
    assert (result.error["kind"], result.error["record"]) == ("data-crc", 0)
    assert Version(tmp_path, NAME).state.number == 5


def test_what_was_left_behind_cannot_be_rebuilt_in_place(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    version.restore(1)
    result = on(tmp_path, "rebuild", f"{NAME}@2", "--json")
    assert result.problem == (2, "stale-snapshot")
    assert (result.error["version"], result.error["snapshot"]) == (NAME, 2)
    assert result.hint == [["rebuild", f"{NAME}@latest"]]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_loose_files_become_one(tmp_path: Path, compression: str) -> None:
    for number in range(2):
        data = packed(compression, framed(*PAYLOADS[10 * number : 10 * number + 10]))
        made(tmp_path / f"in-{number}.tfrecord", data)
    result = shardline("rebuild", "in-*", "--output", "out.tfrecord", cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    assert all(words in result.out for words in ("2 files", "20 records"))
    name = "" if compression == "none" else "GZIP"
    assert read_by_tensorflow(tmp_path / "out.tfrecord", name) == PAYLOADS
    told = shardline(
        "rebuild", "in-*", "--output", "even", "--target-size", "300", "--json", cwd=tmp_path
    ).json
    assert (told["ok"], told["records"], told["read_files"]) == (True, 20, 2)
    files = [tmp_path / file for file in told["files"]]
    assert [one for file in files for one in read_by_tensorflow(file, name)] == PAYLOADS


def test_a_file_is_overwritten_only_if_asked_and_never_read_and_written(tmp_path: Path) -> None:
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    made(tmp_path / "out.tfrecord", b"precious")
    result = shardline("rebuild", "a.tfrecord", "--output", "out.tfrecord", "--json", cwd=tmp_path)
    assert result.problem == (2, "file-exists")
    assert (tmp_path / "out.tfrecord").read_bytes() == b"precious"
    options = ("--output", "out.tfrecord", "--overwrite")
    result = shardline("rebuild", ".", *options, "--json", cwd=tmp_path)
    assert result.problem == (2, "output-is-input")
    assert shardline("rebuild", "a.tfrecord", *options, cwd=tmp_path).code == 0
    assert read_by_tensorflow(tmp_path / "out.tfrecord") == PAYLOADS


def test_a_damaged_file_is_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    damage(made(tmp_path / "a.tfrecord", framed(*PAYLOADS)))
    for options in ([], ["--target-size", "64"]):
        command = ("rebuild", "a.tfrecord", "--output", "out", *options, "--json")
        result = shardline(*command, cwd=tmp_path)
        assert result.problem == (1, "corrupt-file")
        assert (result.error["kind"], result.error["record"]) == ("data-crc", 0)
    assert [file.name for file in tmp_path.iterdir()] == ["a.tfrecord"]


MIXED_UP: dict[str, tuple[list[str], str, str]] = {
    "files without an output": (["a.tfrecord"], "missing-option", "--output OUT"),
    "two versions": ([NAME, "digits/v2"], "missing-option", "single version"),
    "files into a version": (
        ["a.tfrecord", "--output", "o", "--into", "v2"],
        "option-not-applicable",
        "--into",
    ),
    "files with a check": (
        ["a.tfrecord", "--output", "o", "--no-check"],
        "option-not-applicable",
        "--no-check",
    ),
    "a version with --overwrite": ([NAME, "--overwrite"], "option-not-applicable", "--overwrite"),
    "a folder to overwrite": (
        ["a.tfrecord", "--output", "o", "--overwrite", "--target-size", "9"],
        "conflicting-options",
        "--target-size",
    ),
    "a folder as the file": (["a.tfrecord", "--output", "."], "output-is-folder", "--target-size"),
    "a missing file": (["missing", "--output", "o"], "file-not-found", "missing"),
    "no bytes": ([NAME, "--target-size", "0"], "invalid-option-value", "--target-size"),
    "into itself": ([NAME, "--into", "v1"], "output-is-input", "v1"),
    "into a snapshot": ([NAME, "--into", "digits/v2@3"], "unexpected-snapshot", "@3"),
    "into no name": ([NAME, "--into", "V 2"], "invalid-reference", "V 2"),
    "into an upper-case name": ([NAME, "--into", "Digits/v2"], "invalid-reference", "lower-case"),
    "a missing version": (["digits/v9"], "version-not-found", "digits/v1"),
}


@pytest.mark.parametrize("what", MIXED_UP)
def test_what_is_mixed_up_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    landed(tmp_path / "root", "one")
    made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    arguments, code, word = MIXED_UP[what]
    result = on(tmp_path / "root", "rebuild", *arguments, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert word in result.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tfrecord", "root"]


def test_a_version_with_other_features_is_told_with_code_2_as_extend_does(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    write_rows(tmp_path / "in.jsonl", ["a"])
    assert on(tmp_path, "append", "digits/v2", tmp_path / "in.jsonl").code == 0
    result = on(tmp_path, "rebuild", NAME, "--into", "v2", "--json")
    assert result.problem == (2, "schema-mismatch")
    assert result.error["version"] == "digits/v2"
    assert "--into" in result.error["hint"]["text"]


@pytest.mark.sweep
def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    code, drawn = on_terminal("rebuild", NAME, "--root", tmp_path)
    assert code == 0
    assert "rebuilding" in drawn
    assert "checking" in drawn
    file = on(tmp_path, "files", NAME).out.strip()
    code, drawn = on_terminal("rebuild", Path(file), "--output", tmp_path / "out")
    assert (code, "rebuilding" in drawn) == (0, True)


def test_rebuild_repeated_file_exits_2(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tfrecord", framed(b"x"))
    for again in (path, tmp_path / "*.tfrecord", tmp_path):
        result = shardline("rebuild", path, again, "--output", tmp_path / "out", "--json")
        assert result.problem == (2, "duplicate-file")
    assert not (tmp_path / "out").exists()


def test_rebuild_mixed_folder_exits_2(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    made(tmp_path / "in" / "a.tfrecord", framed(example_of(x=1)))
    made(tmp_path / "in" / "b.tfrecord", framed(b"text"))
    command = ("rebuild", tmp_path / "in", "--output", tmp_path / "out", "--json")
    result = shardline(*command)
    assert result.problem == (2, "mixed-payloads")
    assert result.error["payloads"] == ["example", "opaque"]
    assert shardline(*command, "--allow-mixed").json["records"] == 2


def test_output_symlink_loop_raises_no_runtime_error(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*PAYLOADS))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for arguments in (
        ("rebuild", path, "--output", loop),
        ("rebuild", path, "--output", loop / "out"),
        ("salvage", path, "-o", loop),
        ("salvage", path, "-o", tmp_path / "out", "--quarantine", loop),
        ("combine", path, path, "--output", loop),
        ("rebuild", loop, "--output", tmp_path / "out2"),
    ):
        assert shardline(*arguments, "--json").code == 2, arguments
    assert loop.is_symlink()
