"""The demo commands `make run` and `make demo-fault`, in a fresh folder."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dagster_project.demo_batches import all_digits, as_table, extra_batch
from shardline.api import Version
from shardline.operations.rejected_sources import open_sources
from shardline.provenance.consumers import list_consumers
from shardline.tfrecord.reader import RecordFile

pytestmark = pytest.mark.xdist_group("demo")  # one worker, since they share what was played

REPOSITORY = Path(__file__).parents[2]
DIGITS = 1797
EXTRA = 20_000
CHECKS = (
    "integrity",
    "schema",
    "expectations",
    "drift",
    "volume",
    "sources_accepted",
    "image_size",
)


@dataclass(frozen=True)
class Demo:
    """A working directory with its own instance, like a fresh clone."""

    folder: Path

    def call(
        self, module: str, *options: str, arguments: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a module of the demo as make does. `options` are those of Python."""
        ours = {"DAGSTER_HOME": str(self.folder / "home"), "PYTHONPATH": str(REPOSITORY)}
        kept = {key: value for key, value in os.environ.items() if key not in _OTHERS}
        return subprocess.run(
            [sys.executable, *options, "-m", module, *arguments],
            cwd=self.folder,
            env={**kept, **ours, "COLUMNS": "400"},
            capture_output=True,
            check=False,
            text=True,
        )

    def version(self, name: str) -> Version:
        return Version(self.folder / ".demo" / "root", name)


_OTHERS = (
    "SHARDLINE_ROOT",
    "SHARDLINE_REPORTS",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_USE_LEGACY_KERAS",
    "FORCE_COLOR",
)
"""Variables that change the folders, the output or the training of the demo."""


@dataclass(frozen=True)
class Played:
    """A demo after `make run`, with the output."""

    demo: Demo
    first: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """`make run` from nothing."""
    demo = Demo(tmp_path_factory.mktemp("clone"))
    (demo.folder / "home").mkdir()
    shutil.copy(REPOSITORY / "dagster.yaml", demo.folder / "home")
    return Played(demo, demo.call("dagster_project.demo"))


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def assert_in_order(text: str, sentences: Sequence[str]) -> None:
    at = 0
    for sentence in sentences:
        assert sentence in text[at:], f"{sentence!r} is missing, or too early, in\n{text}"
        at = text.index(sentence, at) + len(sentence)


def test_run_prints_batches_and_summary(played: Played) -> None:
    out = played.first.stdout
    assert played.first.returncode == 0, out + played.first.stderr
    assert played.first.stderr == ""
    assert_in_order(
        out,
        [
            *("Batch 1 of 3: a folder of 600 PNG images", "snapshot 1: 600 rows (+600)"),
            *("Batch 2 of 3: a Parquet file with 600 PNG images", "snapshot 2: 1,200 rows (+600)"),
            *("Batch 3 of 3: a folder of 597 PNG images", "snapshot 3: 1,797 rows (+597)"),
            *("digits/v1@3", "accuracy 9", "359 held-out digits"),
            *("digits/v2@3", "darkest first: seven 0.2", "eight 0.3"),
            *("digit_pairs/v1@3", "1,613,706 pairs: 10.0%"),
            *("Status", "digits/v1", "digits/single", "digits/v2", "digit_pairs/v1"),
            "tf.data.TFRecordDataset reads 1,797 records",
            *("Next steps", "make ui", "make demo-fault", "shardline status"),
        ],
    )


def test_run_registers_model_as_consumer(played: Played) -> None:
    assert lines_with(played.first.stdout, "digits-cnn", "digits/v1")
    version = played.demo.version("digits/v1")
    (consumer,) = list_consumers(version)
    assert (consumer.snapshot, consumer.name) == (3, "digits-cnn")
    assert consumer.run == f"seed-0-{version.snapshot(3).content[:8]}"


@pytest.mark.parametrize("asset", ["digits_v2", "digit_pairs_v1"])
def test_run_computes_only_new_shards(played: Played, asset: str) -> None:
    lines = lines_with(played.first.stdout, f"  {asset} ", "snapshot ")
    counts = [re.findall(r"\d+", line.rpartition("; ")[2]) for line in lines]
    assert counts == [["1", str(before)] for before in range(3)]


@pytest.mark.parametrize("check", CHECKS)
def test_run_passes_each_check(played: Played, check: str) -> None:
    lines = lines_with(played.first.stdout, f"    {check} ")
    expected = 12 if check in {"integrity", "schema"} else 3
    assert len(lines) == expected
    assert all("passed" in line for line in lines)


def test_run_publishes_all_digits(played: Played) -> None:
    growing = played.demo.version("digits/v1").published()
    single = played.demo.version("digits/single").published()
    assert (growing.records, len(growing.shards)) == (DIGITS, 3)
    assert (single.records, len(single.shards)) == (DIGITS, 1)
    exported = RecordFile(played.demo.folder / ".demo" / "digits.tfrecord")
    assert sum(len(block.lengths) for block in exported.blocks()) == DIGITS
    labels = [
        label
        for batch in growing.to_arrow(["label", "path"])
        for label, path in zip(*batch.to_pydict().values(), strict=True)
        if path.startswith(f"{label}/")
    ]
    assert len(labels) == DIGITS
    assert {labels.count(digit) for digit in "0123456789"} <= set(range(170, 190))


def test_overlay_adds_names_and_keeps_images(
    played: Played,
) -> None:
    growing = played.demo.version("digits/v1").published()
    extended = played.demo.version("digits/v2").published()
    assert (extended.records, len(extended.shards)) == (DIGITS, 3)
    assert all(shard.base is not None for shard in extended.shards)
    assert extended.bytes < growing.bytes
    columns = ["label", "label_name", "width", "height", "brightness", "image"]
    table = extended.to_arrow(columns).read_all().to_pydict()
    assert set(zip(table["width"], table["height"], strict=True)) == {(8, 8)}
    assert all(0 < shade < 1 for shade in table["brightness"])
    named = set(zip(table["label"], table["label_name"], strict=True))
    assert len(named) == 10
    assert {("0", "zero"), ("9", "nine")} <= named
    images = growing.to_arrow(["image"]).read_all().to_pydict()["image"]
    assert table["image"] == images


def test_pairs_are_unordered_and_virtual(played: Played) -> None:
    pairs = played.demo.version("digit_pairs/v1").published()
    assert (pairs.records, len(pairs.shards)) == (DIGITS * (DIGITS - 1) // 2, 3)
    assert pairs.bytes < 4096
    table = pairs.to_arrow(["a_path", "b_path"]).read_next_batch().to_pydict()
    assert all(a != b for a, b in zip(*table.values(), strict=True))


def test_printed_commands_work(played: Played) -> None:
    (root,) = lines_with(played.first.stdout, "export SHARDLINE_ROOT=")
    named = [line.split() for line in lines_with(played.first.stdout, "/shardline ")]
    commands = [" ".join(words[: 2 + words.count("digits/v1")]) for words in named]
    assert [command.partition(" ")[2] for command in commands] == ["status", "log digits/v1"]
    script = "\n".join(["set -e", " ".join(root.split()[:2]), *commands])
    result = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=played.demo.folder,
        capture_output=True,
        check=True,
        text=True,
    )
    assert "digits/single" in result.stdout


def test_second_run_is_up_to_date_and_light(played: Played) -> None:
    before = played.demo.version("digits/v1").state.number
    second = played.demo.call("dagster_project.demo", "-X", "importtime")
    assert second.returncode == 0
    assert len(second.stdout.splitlines()) == 2
    assert lines_with(second.stdout, "3 known sources", ".demo/landing")
    for follower in ("digits/single", "digits/v2"):
        assert lines_with(second.stdout, f"{follower}@3", "1,797 rows")
    assert lines_with(second.stdout, "digit_pairs/v1@3", "1,613,706 rows")
    loaded = {line.rpartition("|")[2].strip() for line in second.stderr.splitlines()}
    assert "dagster" in loaded
    assert not loaded & {"tensorflow", "great_expectations", "sklearn", "pandas"}
    assert played.demo.version("digits/v1").state.number == before


@pytest.fixture(scope="module")
def faulted(played: Played) -> subprocess.CompletedProcess[str]:
    """`make demo-fault`, once."""
    return played.demo.call("dagster_project.demo_fault")


@pytest.mark.sweep
def test_faults_fail_their_checks(faulted: subprocess.CompletedProcess[str]) -> None:
    assert faulted.returncode == 0, faulted.stdout + faulted.stderr
    assert faulted.stderr == ""
    damaged, schema, _ = lines_with(faulted.stdout, "    sources_accepted ", "FAILED")
    for part in ("damaged.tfrecord", "record ", "offset ", "checksum"):
        assert part in damaged
    assert "other-schema.parquet" in schema
    for field in ("'image': removed", "'picture': added", "'writer': added"):
        assert lines_with(faulted.stdout, field)
    (expectations,) = lines_with(faulted.stdout, "    expectations ", "FAILED")
    assert "120 of 120" in expectations.partition("image__bytes: ")[2]
    assert len(lines_with(faulted.stdout, "Downstream", "unchanged", "digits/single@3")) == 3
    assert lines_with(faulted.stdout, "digits/single@3", "digits/single@4")
    assert len(lines_with(faulted.stdout, "In the UI: ")) == 4


@pytest.mark.sweep
def test_faults_append_only_the_valid_batch(
    played: Played, faulted: subprocess.CompletedProcess[str]
) -> None:
    assert faulted.returncode == 0
    growing = played.demo.version("digits/v1")
    assert growing.published().records == DIGITS + 120
    assert growing.snapshot(4).rejected
    assert open_sources(growing).all == (), "the demo dismissed them"
    for follower in ("digits/single", "digits/v2"):
        assert played.demo.version(follower).published().records == DIGITS + 120
    pairs = played.demo.version("digit_pairs/v1").published()
    assert pairs.records == (DIGITS + 120) * (DIGITS + 119) // 2


@pytest.mark.sweep(keep=1, of="long runs")
def test_faults_can_be_repeated(played: Played, faulted: subprocess.CompletedProcess[str]) -> None:
    again = played.demo.call("dagster_project.demo_fault")
    assert again.returncode == faulted.returncode == 0, again.stdout + again.stderr
    assert len(lines_with(again.stdout, "    sources_accepted ", "FAILED")) == 3
    assert played.demo.version("digits/single").published().records == DIGITS + 240


@pytest.mark.sweep(keep=1, of="long runs")
def test_faults_with_extra_rows_are_stopped(played: Played) -> None:
    """More rows than the model learns from, and more pairs than are counted."""
    before = played.demo.version("digits/v1").published().records
    more = played.demo.call("dagster_project.demo", arguments=["--extra-rows", str(EXTRA)])
    assert more.returncode == 0, more.stdout + more.stderr
    rows = before + EXTRA
    assert played.demo.version("digits/v1").published().records == rows
    faults = played.demo.call("dagster_project.demo_fault")
    assert faults.returncode == 0, faults.stdout + faults.stderr
    for name in ("digits/v1", "digits/single", "digits/v2"):
        assert played.demo.version(name).published().records == rows + 120
    assert played.demo.version("digit_pairs/v1").published().records == (
        (rows + 120) * (rows + 119) // 2
    )


def test_extra_rows_have_unique_paths() -> None:
    table = as_table(extra_batch(EXTRA).digits())
    paths, labels = table["path"].to_pylist(), table["label"].to_pylist()
    assert len(set(paths)) == table.num_rows == EXTRA
    assert not {digit.path for digit in all_digits()} & set(paths)
    assert all(path.startswith(f"{label}/") for path, label in zip(paths, labels, strict=True))


def test_faults_without_snapshot_are_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    refused = Demo(tmp_path).call("dagster_project.demo_fault")
    assert refused.returncode == 1
    assert "`make run`" in refused.stderr
    assert not (tmp_path / ".demo").exists()


def test_run_without_dagster_home_is_refused(tmp_path: Path) -> None:
    refused = Demo(tmp_path).call("dagster_project.demo")
    assert refused.returncode == 2
    assert "DAGSTER_HOME" in refused.stderr
    assert not (tmp_path / ".demo").exists()
