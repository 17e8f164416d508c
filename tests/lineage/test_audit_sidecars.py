"""What lies beside shards must be there and be whole: by it records are traced."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardline.api import Version
from shardline.lineage.audit.root_audit import audit
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.repair import repair
from shardline.provenance.log_index import LogIndex
from tests.cli.datasets import damage
from tests.operations.extensions import SCHEMA, base_of, double, version_in


@pytest.fixture
def base(tmp_path: Path) -> Version:
    """A shard from a text with blank lines, chosen pairs of it, and what is left of a shard."""
    base = base_of(tmp_path, (0, 5))
    landing = tmp_path / "landing"
    landed = landing / "000000-000005.jsonl"
    blank = landing / "blank.jsonl"
    blank.write_text(landed.read_text().replace("}\n", "}\n\n").replace('"id": ', '"id": 1'))
    append(base, blank, schema=SCHEMA)
    assert check_version(base).ok
    pairs = version_in(tmp_path, "pairs/v1")
    combine(base, base, pairs, on="id", on_collision="keep-left")
    assert check_version(pairs).ok
    landed.unlink()
    damage(Path(base.latest().files()[0]))
    (repaired,) = repair(base, allow_data_loss=True).repaired
    assert (repaired.method, repaired.lost_records) == ("salvage", 1)
    assert check_version(base).ok
    return base


def found(base: Version, *, shards: bool = True) -> list[tuple[str, str, str]]:
    told = audit(LogIndex(base.store), shards=shards, sources=False).findings
    return [(one.severity, one.kind, one.subject) for one in told if one.severity != "note"]


@pytest.mark.parametrize(
    ("name", "place", "listed"),
    [("digits/v1", 0, True), ("digits/v1", 1, False), ("pairs/v1", 0, True)],
)
def test_missing_or_corrupt_row_map_is_found(
    base: Version, name: str, place: int, *, listed: bool
) -> None:
    assert found(base) == found(base, shards=False) == []
    row_map = Path(f"{Version(base.store, name).latest().files()[place]}.rows")
    shard = f"shard {row_map.stem}"
    damage(row_map, 8 * 20)
    assert found(base) == [("warning", "damaged-row-map", shard)]
    assert found(base, shards=False) == []
    row_map.unlink()
    missing = [("warning", "missing-row-map", shard)]
    assert found(base) == missing
    assert found(base, shards=False) == (missing if listed else [])


def test_hint_recombines_pairs_without_row_map(base: Version, tmp_path: Path) -> None:
    lost, pairs = version_in(tmp_path, "pairs/v1"), version_in(tmp_path, "pairs/v2")
    Path(f"{lost.latest().files()[0]}.rows").unlink()
    (told,) = audit(LogIndex(base.store), ["pairs/v1"], sources=False).findings
    (shard,) = lost.latest().shards
    assert (told.kind, told.subject) == ("missing-row-map", f"shard {shard.name}")
    combine(base, base, pairs, on="id", on_collision="keep-left")
    assert check_version(pairs).ok
    assert audit(LogIndex(base.store), ["pairs/v2"], sources=False).findings == ()


def test_missing_receipt_is_found(tmp_path: Path) -> None:
    base, wide = base_of(tmp_path, (0, 5)), version_in(tmp_path)
    extend(base, double, wide)
    for version in (base, wide):
        shard = version.shard_name(version.latest().shards[0])
        (tmp_path / "root" / f"{shard}.receipt").unlink()
    told = {one.version: one for one in audit(LogIndex(base.store)).findings}
    assert {(one.kind, one.version) for one in told.values()} == {
        ("missing-receipt", "digits/v1"),
        ("missing-receipt", "digits/v2"),
    }
    assert told["digits/v1"].detail != told["digits/v2"].detail
