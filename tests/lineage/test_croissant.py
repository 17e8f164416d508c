"""Croissant: mlcroissant loads it, iterates the records, and holds the files against it."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any

import mlcroissant as mlc
import numpy as np
import pytest

from shardline.api import Version
from shardline.errors import InvalidNameError, UnreadableSnapshotError
from shardline.hints import Command
from shardline.lineage.exports.croissant import build_croissant, write_croissant
from shardline.lineage.exports.dataset_card import DatasetTerms
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.schema.schema import Feature, Image, Schema
from tests.dagster.landings import png
from tests.errors import raises
from tests.lineage.exported_roots import LABELS, grow, make_history

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.api import Snapshot

ABOUT = DatasetTerms(
    "https://spdx.org/licenses/Apache-2.0", "https://example.org", "Us", "Us, 2026"
)


def loaded(path: Path, caplog: pytest.LogCaptureFixture) -> mlc.Dataset:
    """The file as mlcroissant takes it: without an error, and without a warning."""
    with caplog.at_level(logging.WARNING):
        dataset = mlc.Dataset(path)
    assert (dataset.metadata.ctx.issues.errors, caplog.messages) == (set(), [])
    return dataset


def plain(value: object) -> object:
    """A value as JSON has it."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    return value.decode() if isinstance(value, bytes) else value


def by_mlcroissant(dataset: mlc.Dataset, names: str = "records") -> list[dict[str, Any]]:
    return [
        {key.partition("/")[2]: plain(value) for key, value in record.items()}
        for record in dataset.records(names)
    ]


def by_us(snapshot: Snapshot) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = snapshot.to_arrow().read_all().to_pylist()
    return rows


def test_mlcroissant_reads_equal_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    version = grow(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 7)
    snapshot = grow(version, tmp_path / "landing", 7, 11).published()
    dataset = loaded(write_croissant(snapshot, tmp_path / "told", terms=ABOUT), caplog)
    assert by_mlcroissant(dataset) == by_us(snapshot)
    assert len(by_us(snapshot)) == 11
    assert dataset.metadata.version == "2.0.0"
    assert snapshot.content in str(dataset.metadata.description)


@pytest.mark.parametrize("name", ["numbers/wide", "pairs/plan", "pairs/v1"])
def test_croissant_lists_files_of_overlays_and_pairs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    snapshot = Version(make_history(tmp_path), name).published()
    path = write_croissant(snapshot, tmp_path / "told", terms=ABOUT)
    dataset = loaded(path, caplog)
    assert by_mlcroissant(dataset) == by_us(snapshot)
    files = by_mlcroissant(dataset, "shards")
    told = json.loads(path.read_text())["distribution"]
    assert [one["name"] for one in files] == [one["@id"] for one in told[:-1]]
    for one in told:
        data = (path.parent / one["contentUrl"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
        assert one["contentSize"] == f"{len(data)} B"
    owners = {one["name"].split("/")[2].split(".")[0] for one in files}
    assert owners == {
        "numbers/wide": {"v1", "wide"},
        "pairs/plan": {"plan", "wide", "v1", "v2"},
    }.get(name, {"v1"})


def test_mlcroissant_refuses_a_changed_copy(tmp_path: Path) -> None:
    version = grow(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 3)
    path = write_croissant(version.published(), tmp_path / "told")
    copy = path.with_name("records.parquet")
    copy.write_bytes(copy.read_bytes()[:-1] + b"?")
    with pytest.raises(mlc.GenerationError, match=r"records\.parquet") as refused:
        list(mlc.Dataset(path).records("records"))
    assert "is not identical" in str(refused.value.__cause__)


def test_croissant_has_images_and_any_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = "a name: x/y|ü"
    schema = Schema(
        (
            Feature("image", "bytes", meaning=Image("png")),
            Feature(odd, "int64", (None,)),
            Feature("maybe", "int64", required=False),
        )
    )
    version = Version(tmp_path / "root", "pictures/v1")
    version.create(schema)
    rows = [
        {"image": png((9, 9, 9), (3, 2)), odd: [1] * count, "maybe": count or None}
        for count in range(3)
    ]
    append(version, rows, batch="all")
    assert check_version(version).ok
    dataset = loaded(write_croissant(version.published(), tmp_path / "told", terms=ABOUT), caplog)
    found = list(dataset.records("records"))
    assert [one["records/image"].size for one in found] == [(3, 2)] * 3
    quoted = "records/a%20name%3A%20x%2Fy%7C%C3%BC"
    assert [plain(one[quoted]) for one in found] == [[], [1], [1, 1]]
    assert [plain(one["records/maybe"]) for one in found] == [None, 1, 2]
    fields = {one.id: one.name for one in dataset.metadata.record_sets[0].fields}
    assert fields[quoted] == odd


def test_croissant_without_copy_lists_shards_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    version = grow(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 3)
    snapshot = version.published()
    path = write_croissant(snapshot, tmp_path / "told", terms=ABOUT, copy=False)
    assert [one.name for one in path.parent.iterdir()] == ["croissant.json"]
    dataset = loaded(path, caplog)
    assert [one.id for one in dataset.metadata.record_sets] == ["shards"]
    (shard,) = snapshot.shards
    (told,) = by_mlcroissant(dataset, "shards")
    assert (told["sha256"], told["records"], told["bytes"]) == (shard.sha256, 3, shard.bytes)
    labels = json.dumps(build_croissant(snapshot))
    assert not any(f'"{label}"' in labels for label in LABELS)


def test_croissant_refuses_unpublished_snapshot(tmp_path: Path) -> None:
    version = grow(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 3)
    version.reject(1)
    with raises(
        UnreadableSnapshotError, "snapshot-unpublished", version=version.name, snapshot=1
    ) as caught:
        write_croissant(version.snapshot(1), tmp_path / "told")
    assert caught.value.hint is not None
    assert caught.value.hint.commands == (Command.of("status", version.name),)
    assert not (tmp_path / "told").exists()


def test_croissant_refuses_folder_in_root(tmp_path: Path) -> None:
    version = grow(Version(tmp_path / "root", "numbers/v1"), tmp_path / "landing", 0, 3)
    inside = tmp_path / "root" / "told"
    with raises(InvalidNameError, "output-in-root", path=str(inside)):
        write_croissant(version.published(), inside)
    assert write_croissant(version.published(), tmp_path / "root" / "told", copy=False).exists()
