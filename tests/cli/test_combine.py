"""`shardline combine`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline.api import Version
from tests.cli.command import on_terminal, shardline
from tests.cli.datasets import damage, file_names, file_of, land, landed, on, squeezed
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.operations.extensions import table
from tests.tfrecord.samples import example_of, made, read_by_tensorflow

if TYPE_CHECKING:
    from pathlib import Path

PREFIXED = ("--on-collision", "prefix", "--left-prefix", "a_", "--right-prefix", "b_")
PAIR_MAKERS = b"""
import pyarrow.compute as pc
from shardline import Feature, batch_udf, record_udf

@batch_udf(Feature("wanted", "int64"), reads=["a_x", "b_x"], code="1")
def ascending(batch):
    return {"wanted": pc.cast(pc.less(batch["a_x"], batch["b_x"]), "int64")}

@record_udf(Feature("sum", "int64"), reads=["a_x", "b_x"])
def total(record):
    return {"sum": record["a_x"] + record["b_x"]}

@record_udf(Feature("wanted", "bytes"), reads=["a_x"])
def wordy(record):
    return {"wanted": b"yes"}

both = [ascending, total]
"""


@pytest.fixture(autouse=True)
def _same_path_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def two_files(folder: Path) -> None:
    """Three records in left-0 and left-1, two in right, and functions for their pairs."""
    made(folder / "left-0.tfrecord", framed(example_of(x=0), example_of(x=1)))
    made(folder / "left-1.tfrecord", framed(example_of(x=2)))
    made(folder / "right.tfrecord", framed(example_of(x=1), example_of(x=5)))
    made(folder / "pairing.py", PAIR_MAKERS)


def pairs_in(path: Path, *names: str, compression: str = "") -> list[tuple[Any, ...]]:
    """The first values of features of each record of a file; None where there is none."""
    found = []
    for payload in read_by_tensorflow(path, compression):
        features = tf.train.Example.FromString(payload).features.feature
        found.append(
            tuple(
                features[name].int64_list.value[0] if name in features else None for name in names
            )
        )
    return found


def test_files_are_combined_in_the_order_of_nested_loops(tmp_path: Path) -> None:
    two_files(tmp_path)
    command = ("combine", "left-*", "right.tfrecord", "--output", "out", *PREFIXED)
    result = shardline(*command, "--dry-run", cwd=tmp_path)
    lines = result.out.splitlines()
    assert (result.code, lines[2:4]) == (0, ["  a_x", "  b_x"])
    assert "(3 records)" in lines[0]
    assert "6 pairs" in lines[4]
    assert not (tmp_path / "out").exists()
    result = shardline(*command, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    written = result.out.splitlines()
    assert written[:2] == [lines[0], lines[4]]
    assert f"{(tmp_path / 'out').stat().st_size} bytes" in written[2]
    assert re.search(r"\d s, [\d,]+ pairs/s", written[3])
    assert pairs_in(tmp_path / "out", "a_x", "b_x") == [
        (left, right) for left in range(3) for right in (1, 5)
    ]


OF_FILES: dict[str, tuple[list[str], tuple[str, ...], list[tuple[int | None, ...]]]] = {
    "kept of the left": (["--on-collision", "keep-left"], ("x",), [(0,), (0,), (1,), (1,)]),
    "kept of the right": (["--on-collision", "keep-right"], ("x",), [(1,), (5,), (1,), (5,)]),
    "matched": (["--on", "x"], ("x",), [(1,)]),
    "matched, and the rest of the left": (
        [*PREFIXED, "--on", "x", "--how", "left"], ("a_x", "b_x"), [(0, None), (1, 1)],
    ),
    "chosen, with a field": (
        [*PREFIXED, "--where", "pairing.py:ascending", "--udf", "pairing.py:total"],
        ("a_x", "b_x", "sum"),
        [(0, 1, 1), (0, 5, 5), (1, 5, 6)],
    ),
    "the first": ([*PREFIXED, "--limit", "3"], ("a_x", "b_x"), [(0, 1), (0, 5), (1, 1)]),
}  # fmt: skip


@pytest.mark.parametrize("what", OF_FILES)
def test_files_are_combined_as_asked(tmp_path: Path, what: str) -> None:
    two_files(tmp_path)
    options, names, pairs = OF_FILES[what]
    command = ("combine", "left-0.tfrecord", "right.tfrecord", "--output", "out", *options)
    told = shardline(*command, "--compression", "gzip", "--json", cwd=tmp_path).json
    assert (told["ok"], told["records"], told["compression"]) == (True, len(pairs), "gzip")
    assert pairs_in(tmp_path / "out", *names, compression="GZIP") == pairs


def test_a_sample_is_the_same_for_the_same_seed_and_each_two_are_paired_once(
    tmp_path: Path,
) -> None:
    two_files(tmp_path)
    for out, seed in (("one", "7"), ("two", "7")):
        options = ("--output", out, "--sample", "4", "--seed", seed, *PREFIXED)
        assert shardline("combine", "left-*", "right.tfrecord", *options, cwd=tmp_path).code == 0
    assert len(pairs_in(tmp_path / "one", "a_x", "b_x")) == 4
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    once = ("--output", "three", "--unordered", *PREFIXED)
    assert shardline("combine", "left-*", "left-*", *once, cwd=tmp_path).code == 0
    assert pairs_in(tmp_path / "three", "a_x", "b_x") == [(0, 1), (0, 2), (1, 2)]


def test_versions_are_combined_and_published_and_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    left = landed(root, "one", "two")
    landed(root, "three", name="other/v1")
    command = ("combine", NAME, "other/v1", "--into", "pairs/v1", *PREFIXED)
    options = ("--target-size", "600")
    result = on(root, *command, *options)
    assert (result.code, result.err) == (0, "")
    assert result.commands == [["files", "pairs/v1"]]
    first = Version(root, "pairs/v1").published()
    assert (first.number, len(first.shards), first.records) == (1, 2, 18)
    of_shard = [(left, right) for left in range(3) for right in range(3)]
    pairs = table(first)
    assert list(zip(pairs["a_x"], pairs["b_x"], strict=True)) == of_shard * 2
    land(left, "four", [example_of(x=9)])
    assert on(root, "check", NAME).code == 0
    again = on(root, *command, *options, "--json").json
    assert (again["records"], again["reused_shards"]) == (3, len(first.shards))
    assert (again["published"], again["incremental"]) == (True, True)
    log = squeezed(on(root, "log", "pairs/v1").out)
    assert all(words in log for words in ("1 shard computed", "2 reused", "digits/v1@3"))
    done = on(root, *command, *options, "--json").json
    assert (done["ok"], done["snapshot"], done["reused_shards"]) == (True, None, 3)


def test_a_dry_run_of_versions_tells_pairs_and_bytes_and_changes_nothing(tmp_path: Path) -> None:
    root = landed(tmp_path / "root", "one", "two").store.uri
    made(tmp_path / "pairing.py", PAIR_MAKERS)
    command = ("combine", f"{NAME}@1", NAME, "--into", "pairs/v1", *PREFIXED, "--dry-run")
    fields = ("--udf", "pairing.py:total", "--limit", "5")
    result = on(root, *command, *fields, cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["a_x:", "b_x:", "sum:"]
    assert "5 pairs" in lines[5]
    assert "--limit" in lines[6]
    assert "'total'" in lines[7]
    told = on(root, *command, "--where", "pairing.py:ascending", "--json", cwd=tmp_path).json
    assert (told["ok"], told["new"], told["compute_shards"]) == (True, True, 1)
    assert (told["estimate"]["pairs"], told["estimate"]["most"]) == (18, True)
    assert not Version(root, "pairs/v1").exists


def test_the_log_tells_which_pairs_were_taken(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    for name, options, words in (
        ("matched/v1", ["--on", "x"], "(by x)"),
        ("once/v1", [*PREFIXED, "--unordered"], "two once)"),
        ("some/v1", [*PREFIXED, "--sample", "2"], "2 pairs)"),
        ("left/v1", [*PREFIXED, "--on", "x", "--how", "left"], "the left)"),
    ):
        assert on(root, "combine", NAME, NAME, "--into", name, *options).code == 0
        log = squeezed(on(root, "log", name).out)
        assert words in log
        assert "1 shard computed" in log
        assert "digits/v1@1 and itself" in log


def test_over_the_budget_nothing_is_written(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    two_files(tmp_path)
    for command in (
        ["combine", NAME, NAME, "--into", "pairs/v1"],
        ["combine", "left-*", "right.tfrecord", "--output", "out"],
        ["combine", "left-*", "right.tfrecord", "--output", "out", "--dry-run"],
    ):
        result = on(root, *command, *PREFIXED, "--budget", "100", "--json", cwd=tmp_path)
        assert result.problem == (2, "budget-exceeded")
        error = result.error
        assert (error["pairs"] in {6, 9}, error["bytes"] > 100) == (True, True)
        assert all(option in result.err for option in ("--limit", "--sample"))
        assert ("--mode virtual" in result.err) == ("--into" in command)
    assert not (tmp_path / "out").exists()
    assert not Version(root, "pairs/v1").exists


def test_damage_is_code_1_and_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    two_files(tmp_path)
    damage(file_of(root, "one"))
    damage(tmp_path / "right.tfrecord")
    result = on(root, "combine", NAME, NAME, "--into", "pairs/v1", *PREFIXED, "--json")
    assert result.problem == (1, "corrupt-file")
    assert (result.error["record"], result.error["offset"]) == (0, 0)
    assert result.hint == [["repair", NAME]]
    assert not Version(root, "pairs/v1").exists
    command = ("combine", "left-*", "right.tfrecord", "--output", "out", *PREFIXED, "--json")
    result = shardline(*command, cwd=tmp_path)
    assert result.problem == (1, "corrupt-file")
    assert (result.error["kind"], result.error["record"]) == ("data-crc", 0)
    assert not (tmp_path / "out").exists()


def test_without_a_check_it_is_not_published(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "combine", NAME, NAME, "--into", "p/v1", *PREFIXED, "--no-check")
    assert result.commands == [["check", "p/v1@1"]]
    assert Version(tmp_path, "p/v1").state.published is None


FILES = ["left-0.tfrecord", "right.tfrecord", "--output", "o"]
VERSIONS = [NAME, NAME, "--into", "pairs/v1"]
MIXED_UP: dict[str, tuple[list[str], str, str]] = {
    "one side": ([NAME, "--into", "pairs/v1"], "missing-argument", "RIGHT"),
    "nowhere to": ([NAME, NAME], "missing-option", "--into NAME/VERSION"),
    "no dataset": ([NAME, NAME, "--into", "v9"], "invalid-reference", "digits-pairs/v9"),
    "two places": ([*FILES, "--into", "pairs/v1"], "conflicting-options", "--into"),
    "versions overwritten": ([*VERSIONS, "--overwrite"], "option-not-applicable", "--overwrite"),
    "files in shards": ([*FILES, "--target-size", "1MB"], "option-not-applicable", "--target-size"),
    "files checked": ([*FILES, "--no-check"], "option-not-applicable", "--no-check"),
    "names that collide": (FILES, "feature-collision", "'x'"),
    "names of versions that collide": (VERSIONS, "feature-collision", "'x'"),
    "a prefix without the rule": (
        [*FILES, "--left-prefix", "a_"],
        "conflicting-arguments",
        "--on-collision prefix",
    ),
    "the rule without a prefix": (
        [*FILES, "--on-collision", "prefix"],
        "missing-argument",
        "--left-prefix",
    ),
    "a prefix that does not help": (
        [*FILES, "--on-collision", "prefix", "--left-prefix", "a_", "--right-prefix", "a_"],
        "feature-collision",
        "'a_x'",
    ),
    "a seed alone": ([*FILES, *PREFIXED, "--seed", "1"], "missing-argument", "--sample"),
    "how alone": ([*FILES, *PREFIXED, "--how", "left"], "missing-argument", "--on"),
    "half a key": ([*FILES, *PREFIXED, "--on", "x="], "invalid-option-value", "LEFT_KEY=RIGHT_KEY"),
    "a key twice": ([*FILES, *PREFIXED, "--on", "x", "--on", "x=x"], "duplicate-feature", "'x'"),
    "a key that is not there": ([*FILES, *PREFIXED, "--on", "x=y"], "unknown-feature", "'y'"),
    "a sample of matches": (
        [*FILES, *PREFIXED, "--on", "x", "--sample", "2"],
        "conflicting-arguments",
        "sample",
    ),
    "no pairs": ([*FILES, *PREFIXED, "--limit", "0"], "invalid-option-value", "--limit"),
    "once of two": ([*FILES, *PREFIXED, "--unordered"], "conflicting-arguments", "unordered"),
    "once of two versions": (
        [NAME, "other/v1", "--into", "pairs/v1", *PREFIXED, "--unordered"],
        "conflicting-arguments",
        "unordered",
    ),
    "what chooses nothing": (
        [*FILES, *PREFIXED, "--where", "pairing.py:wordy"],
        "invalid-filter",
        "'wordy'",
    ),
    "several that choose": (
        [*FILES, *PREFIXED, "--where", "pairing.py:both"],
        "invalid-udf",
        "pairing.py:both",
    ),
    "what is not there": (
        [*FILES, *PREFIXED, "--where", "pairing.py:nothing"],
        "udf-not-found",
        "'nothing'",
    ),
    "versions for files": (
        [NAME, "other/v1", "--output", "o", *PREFIXED],
        "file-not-found",
        "--into VERSION",
    ),
    "a missing file": (["left-0.tfrecord", "no", "--output", "o"], "file-not-found", "no"),
    "a file to read and write": (
        ["left-*", "right.tfrecord", "--output", "right.tfrecord", "--overwrite"],
        "output-is-input",
        "right.tfrecord",
    ),
    "a file that is there": (
        ["left-*", "left-*", "--output", "pairing.py"],
        "file-exists",
        "pairing.py",
    ),
    "a folder": (["left-*", "right.tfrecord", "--output", "."], "output-is-folder", "."),
    "into a side": ([NAME, "other/v1", "--into", "other/v1"], "output-is-input", "other/v1"),
    "a missing version": (
        [NAME, "digits/v9", "--into", "pairs/v1"],
        "version-not-found",
        "digits/v1",
    ),
    "files for versions": (["left-*", NAME, "--into", "pairs/v1"], "invalid-reference", "'left-*'"),
}


@pytest.mark.parametrize("what", MIXED_UP)
def test_what_is_mixed_up_is_told_with_code_2(tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    landed(root, "two", name="other/v1")
    two_files(tmp_path)
    before = file_names(tmp_path)
    arguments, code, word = MIXED_UP[what]
    result = on(root, "combine", *arguments, "--json", cwd=tmp_path)
    assert result.problem == (2, code)
    assert word in result.err
    assert not Version(root, "pairs/v1").exists
    assert file_names(tmp_path) == before


@pytest.mark.sweep
def test_a_terminal_gets_progress_bars(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(root, "one")
    command = ("combine", NAME, NAME, "--into", "pairs/v1", *PREFIXED)
    code, drawn = on_terminal(*command, "--root", root)
    assert (code, "combining" in drawn, "checking" in drawn) == (0, True, True)
    file = file_of(root, "one")
    code, drawn = on_terminal("combine", file, file, "--output", tmp_path / "out", *PREFIXED)
    assert (code, "combining" in drawn) == (0, True)


def test_a_virtual_combination_writes_a_plan_that_is_read_as_the_pairs(tmp_path: Path) -> None:
    version = landed(tmp_path, "one", "two")
    prefixes = ("--on-collision", "prefix", "--left-prefix", "a_", "--right-prefix", "b_")
    asked = (
        "combine",
        NAME,
        NAME,
        "--into",
        "pairs/v1",
        *prefixes,
        "--unordered",
        "--mode",
        "virtual",
    )
    result = on(tmp_path, *asked)
    assert result.code == 0, result.err
    records = version.latest().records
    assert f"{records * (records - 1) // 2} pairs" in result.out
    assert result.shows("rebuild", "pairs/v1", "--into", "v1-plain")
    told = on(tmp_path, "head", "pairs/v1", "-n", "1")
    assert told.code == 0, told.err
    assert "a_" in told.out
    assert on(tmp_path, *asked, "--json").json["snapshot"] is None
    refused = on(tmp_path, *asked[:-3], "--limit", "3", "--mode", "virtual")
    assert (refused.code, "--limit" in refused.err) == (2, True)
