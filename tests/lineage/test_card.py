"""The dataset card: its sections, and that it shows no record value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from shardline.api import Version
from shardline.errors import UnreadableSnapshotError
from shardline.hints import Command
from shardline.lineage.exports.dataset_card import (
    DatasetTerms,
    LabelCounts,
    count_labels,
    render_dataset_card,
)
from shardline.lineage.exports.snapshot_files import render_sha256sums
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.erase import erase
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.vacuum import vacuum
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Category, Feature, Schema
from tests.errors import raises
from tests.lineage import exported_roots
from tests.lineage.exported_roots import PERSON, make_history
from tests.operations.extensions import double

if TYPE_CHECKING:
    from pathlib import Path


USAGE = "## Usage"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_history(tmp_path_factory.mktemp("history"))


def card(root: Path, name: str, number: int | None = None, **terms: str) -> str:
    catalog = LogIndex(root)
    version = catalog.version(name)
    snapshot = version.published() if number is None else version.snapshot(number)
    counts = count_labels(snapshot)
    return render_dataset_card(catalog, snapshot, terms=DatasetTerms(**terms), counts=counts)


def header(text: str) -> dict[str, Any]:
    _, header_text, _ = text.split("---\n", 2)
    metadata: dict[str, Any] = yaml.safe_load(header_text)
    return metadata


def section(text: str, title: str) -> list[str]:
    """Return the lines of a section that are not empty."""
    _, _, rest = text.partition(f"\n## {title}\n")
    return [line for line in rest.split("\n## ")[0].splitlines() if line]


def row(*cells: str) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def test_card_header_has_hugging_face_keys(root: Path) -> None:
    metadata = header(card(root, "numbers/v1", 2, license="apache-2.0"))
    assert (metadata["pretty_name"], metadata["license"]) == ("numbers v1", "apache-2.0")
    assert metadata["size_categories"] == ["n<1K"]
    (split,) = metadata["dataset_info"]["splits"]
    assert (split["name"], split["num_examples"]) == ("train", 9)
    assert metadata["dataset_info"]["features"] == [
        {"name": "id", "dtype": "int64"},
        {"name": "name", "dtype": "string"},
        {"name": "parity", "dtype": {"class_label": {"names": {"0": "even", "1": "odd"}}}},
        {"name": "place", "dtype": "string"},
        {"name": "vector", "sequence": {"sequence": "float32"}},
    ]


def test_card_lists_features_labels_checks_history_consumers(root: Path) -> None:
    text = card(root, "numbers/v1", 2)
    assert "numbers \\| with" in text
    assert row("id", "int64", "\\[\\]", "yes", "", "Counts up.") in section(text, "Features")
    parities = section(text, "Records by parity")[2:]
    assert parities == [row("even", "5", "55.6%"), row("odd", "4", "44.4%")]
    passed = ("each shard", "passed on 2 of 2")
    checks = section(text, "Checks")[2:]
    assert checks == [row("integrity", *passed), row("schema", *passed)]
    first, second = (line.split(" | ")[2:] for line in section(text, "History")[2:])
    assert first == ["append: +1 shard, 5 records", "5", "run-1 |"]
    assert second[1:] == ["9", "run-1 |"]
    assert row("number-net", "run-42", "1f3c9d2")[1:] in section(text, "Consumers")[2]
    assert 'shardline.open(ROOT)["numbers/v1"].snapshot(2)' in text


def test_derived_card_lists_upstream_and_feature_origins(root: Path) -> None:
    text = card(root, "numbers/wide")
    upstream = section(text, "Upstream")
    assert upstream[0].split()[:3] == ["-", "numbers/v1@2", "(entry"]
    assert row("double", "computed", "numbers/v1: id", "function 'double'") in upstream
    assert str(Command.of("export", "numbers/wide@1", "-o", "FILE")) in text
    assert "Consumers" not in text


def test_rejected_card_shows_failed_check_and_restore(root: Path) -> None:
    text = card(root, "numbers/v1", 5)
    assert row("state", "rejected") in text
    assert section(text, "Checks")[-1] == row("counts", "the snapshot", "failed")
    assert "restored snapshot 2" in section(text, "History")[-2]


def test_card_counts_labels_without_undeclared_values(root: Path) -> None:
    for name in LogIndex(root).list_versions():
        assert PERSON not in card(root, name, 1)
    places = section(card(root, "numbers/v1", 2), "Records by place")[2:]
    assert places == [row("4 not declared", "6", ""), row("none", "3", "")]


def test_count_labels_of_text_and_list_categories(tmp_path: Path) -> None:
    schema = Schema(
        (
            Feature("colour", "bytes", meaning=Category(("red", "blue"))),
            Feature("tags", "int64", (None,), meaning=Category(("a", "b"))),
        )
    )
    version = Version(tmp_path, "things/v1")
    version.create(schema)
    rows = [{"colour": "red", "tags": [0, 1, 1]}, {"colour": "red", "tags": []}]
    append(version, rows, batch="all")
    assert count_labels(version.latest()) == [
        LabelCounts("colour", {"red": 2, "blue": 0}),
        LabelCounts("tags", {"a": 1, "b": 2}),
    ]


def test_card_escapes_markup_in_foreign_text(tmp_path: Path) -> None:
    hostile = "<script>|`x`\n## no\x1b[31m"
    version = Version(tmp_path, "things/v1")
    version.create(Schema((Feature(hostile, "int64", doc=hostile),), doc=hostile))
    append(version, [{hostile: 1}], batch="all")
    text = render_dataset_card(
        LogIndex(tmp_path), version.latest(), terms=DatasetTerms(license=hostile)
    )
    assert "\\<script\\>\\|\\`x\\` \\#\\# no�\\[31m" in text
    assert not any(line.startswith("## no") for line in text.splitlines())
    assert "\x1b" not in text
    assert header(text)["license"] == hostile


def test_card_of_erased_snapshot_lists_removed_files(
    tmp_path: Path,
) -> None:
    version = exported_roots.grow(Version(tmp_path, "numbers/v1"), tmp_path / "in", 0, 5)
    exported_roots.grow(version, tmp_path / "in", 5, 9)
    over = Version(tmp_path, "numbers/v2")
    extend(version, double, over)
    assert check_version(over).ok
    erase(tmp_path, "numbers", key="id", values=[7])
    version.refresh()
    first, second = version.snapshot(2).shards
    entry = version.state.get_tombstone(second.name)
    for name, number in (("numbers/v1", 2), ("numbers/v2", 1)):
        text = render_dataset_card(LogIndex(tmp_path), Version(tmp_path, name).snapshot(number))
        removed = section(text, "Removed files")
        erased = f"| numbers/v1 | `{second.name}` | 4 | erased in entry {entry}; "
        assert any(line.startswith(erased) for line in removed)
        assert first.name not in "".join(removed)
        assert USAGE not in text
    assert "4 of its 9 records" in card_of(tmp_path, 2)
    assert USAGE in render_dataset_card(LogIndex(tmp_path), version.latest())
    fields = {"path": second.name, "version": version.name, "snapshot": 2}
    with raises(UnreadableSnapshotError, "snapshot-erased", **fields):
        render_sha256sums(version.snapshot(2))


def card_of(root: Path, number: int) -> str:
    return render_dataset_card(LogIndex(root), Version(root, "numbers/v1").snapshot(number))


@pytest.mark.parametrize("how", ["erased", "vacuumed"])
def test_card_of_deleted_file_names_removing_entries(tmp_path: Path, how: str) -> None:
    version = exported_roots.grow(Version(tmp_path, "numbers/v1"), tmp_path / "in", 0, 5)
    if how == "erased":
        erase(tmp_path, "numbers", key="id", values=[3])
        version.refresh()
    else:
        rebuild(version, compression="gzip")
    assert check_version(version).ok
    later = datetime.now(UTC) + timedelta(days=1)
    vacuum(tmp_path, "numbers", retention=timedelta(0), dry_run=False, clock=lambda: later)
    version.refresh()
    assert USAGE not in card_of(tmp_path, 1)
    line = section(card_of(tmp_path, 1), "Removed files")[-1]
    shard = version.snapshot(1).shards[0].name
    entry = version.state.get_tombstone(shard)
    first = "erased in entry 4, " if how == "erased" else ""
    removal = f"{first}vacuumed in entry {entry}"
    assert line == row(version.name, f"`{shard}`", "5", removal)
