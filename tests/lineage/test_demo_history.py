"""The demo's digits after appends, restore, rebuild, migration and erase: all can be traced."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from assets.digit_udfs import label_names, measure_image
from assets.digits import SCHEMA
from dagster_project.demo_batches import Batch
from shardline.api import Version
from shardline.lineage.trace import RecordTracer
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import erase
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.provenance.log_index import LogIndex
from shardline.provenance.row_mapping import SourceRow

if TYPE_CHECKING:
    from shardline.api import Snapshot

RECORDS = 1000
PAIRED: dict[str, Any] = {
    "unordered": True, "on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_",
    "mode": "virtual",
}  # fmt: skip


class Sources:
    """The landed files, and what stands in their rows."""

    def __init__(self) -> None:
        self._read: dict[str, list[bytes]] = {}

    def image(self, found: SourceRow) -> bytes:
        path = str(found.source.path)
        if path not in self._read:
            self._read[path] = (
                pq.read_table(path)["image"].to_pylist()
                if path.endswith(".parquet")
                else [file.read_bytes() for file in sorted(Path(path).rglob("*.png"))]
            )
        return self._read[path][found.row]


def derive(root: Path, base: Version) -> None:
    """Everything that is made of the digits, from what is published."""
    extend(base, [measure_image, label_names], Version(root, "digits/v2"))
    rebuild(base, into=Version(root, "digits/single"))
    migrate(
        base, MigrationSpec(rename={"label": "digit"}, drop=["path"]), Version(root, "digits/v3")
    )
    combine(base, base, Version(root, "digit_pairs/v1"), **PAIRED)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    root, base = folder / "root", Version(folder / "root", "digits/v1")
    batches = [
        Batch(folder / "batch-1", 0, 200),
        Batch(folder / "batch-2.parquet", 200, 500),
        Batch(folder / "batch-3", 500, 700),
        Batch(folder / "batch-4.parquet", 700, 900),
    ]
    for number, batch in enumerate(batches):
        batch.land()
        append(base, [batch.path], schema=SCHEMA, target_bytes=20_000)
        assert check_version(base).ok
        if number == 1:
            derive(root, base)
        if number == 2:
            base.restore(2)
    rebuild(base)
    assert check_version(base).ok
    derive(root, base)
    erase(root, "digits", where="label == '3'")
    for name in ("v1", "v2", "v3", "single"):
        assert check_version(Version(root, f"digits/{name}")).ok
    derive(root, base)
    return root


def images_in(snapshot: Snapshot, numbers: list[int]) -> list[list[bytes]]:
    """The images of records: one of a digit, two of a pair."""
    columns = [name for name in ("image", "a_image", "b_image") if name in _names(snapshot)]
    rows = snapshot.take(numbers, columns).to_pylist()
    return [[row[name] for name in columns] for row in rows]


def _names(snapshot: Snapshot) -> set[str]:
    return {feature.name for feature in snapshot.schema.features}


@pytest.mark.parametrize(
    "name", ["digits/v1", "digits/v2", "digits/v3", "digits/single", "digit_pairs/v1"]
)
def test_traces_lead_to_source_bytes_and_back(root: Path, name: str) -> None:
    tracer, sources = RecordTracer(LogIndex(root)), Sources()
    snapshot = Version(root, name).latest()
    numbers = random.Random(name).sample(range(snapshot.records), min(RECORDS, snapshot.records))
    steps = [tracer.trace_upstream(snapshot, number) for number in numbers]
    found = [
        [sources.image(leaf) for leaf in step.leaves if isinstance(leaf, SourceRow)]
        for step in steps
    ]
    assert found == images_in(snapshot, numbers)
    for step in steps[:5]:
        origin = step.steps[-1]
        snapshot = Version(root, origin.version).snapshot(origin.snapshot)
        below = tracer.trace_downstream(snapshot, origin.record).records()
        there = {(place.version, place.shard, place.shard_record) for place in below}
        assert (step.version, step.shard, step.shard_record) in there


def test_erased_digits_are_in_no_version(root: Path) -> None:
    v1, v3 = Version(root, "digits/v1").latest(), Version(root, "digits/v3").latest()
    labels = v1.to_arrow(["label"]).read_all()["label"].to_pylist()
    assert len(labels) > RECORDS // 2
    assert "3" not in labels
    assert "3" not in v3.to_arrow(["digit"]).read_all()["digit"].to_pylist()
    assert Version(root, "digit_pairs/v1").latest().records == len(labels) * (len(labels) - 1) // 2
