"""A version remembers its compression: what is added is packed as what was added last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import UnreadableSnapshotError
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from tests.errors import raises
from tests.operations.extensions import SCHEMA, double, grown, length, table
from tests.operations.landings import json_lines, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.api import Snapshot


def packings(snapshot: Snapshot) -> list[str]:
    return [shard.compression for shard in snapshot.shards]


def add(version: Version, folder: Path, first: int, **options: Any) -> Version:  # noqa: ANN401 - as they come
    source = json_lines(folder / f"{first}.jsonl", rows(first, first + 3))
    append(version, source, schema=SCHEMA, **options)
    assert check_version(version).ok
    return version


def test_append_keeps_compression_of_version(tmp_path: Path) -> None:
    version = Version(tmp_path / "root", "digits/v1")
    assert Version(tmp_path / "root", "digits/v1").compression is None
    add(version, tmp_path, 0, compression="gzip")
    add(Version(tmp_path / "root", "digits/v1"), tmp_path, 10)
    version.refresh()
    assert (version.compression, version.published().compression) == ("gzip", "GZIP")
    add(version, tmp_path, 20, compression="none")
    with raises(UnreadableSnapshotError, "mixed-compression", version="digits/v1", snapshot=3):
        _ = version.published().compression
    assert table(version.published(), ["id"])["id"] == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    add(version, tmp_path, 30)
    assert packings(version.latest()) == ["gzip", "gzip", "none", "none"]


def test_append_after_rejection_keeps_compression(tmp_path: Path) -> None:
    version = add(Version(tmp_path / "root", "digits/v1"), tmp_path, 0, compression="gzip")
    add(version, tmp_path, 10, compression="none")
    version.reject(2)
    assert version.compression == "gzip"
    add(version, tmp_path, 20)
    assert packings(version.latest()) == ["gzip", "gzip"]


DERIVED: dict[str, Callable[..., object]] = {
    "overlay": lambda base, into, **options: extend(base, double, into, **options),
    "rewrite": lambda base, into, **options: extend(base, length, into, mode="rewrite", **options),
    "migrate": lambda base, into, **options: migrate(
        base, MigrationSpec(rename={"name": "word"}), into, **options
    ),
    "combine": lambda base, into, **options: combine(
        base, base, into, on_collision="prefix", left_prefix="l_", **options
    ),
    "rebuild": lambda base, into, **options: rebuild(base, into=into, target_bytes=1, **options),
}


@pytest.mark.parametrize("operation", DERIVED)
@pytest.mark.parametrize("packing", ["none", "gzip"])
def test_derived_version_keeps_its_compression(
    tmp_path: Path, operation: str, packing: str
) -> None:
    other = {"none": "gzip", "gzip": "none"}[packing]
    base = add(Version(tmp_path / "root", "digits/v1"), tmp_path, 0, compression=other)
    into = Version(tmp_path / "root", "digits/v2")
    DERIVED[operation](base, into, compression=packing)
    before = {shard.name for shard in into.latest().shards}
    add(base, tmp_path, 10)
    DERIVED[operation](base, into)
    assert set(packings(into.latest())) == {packing}
    assert before <= {shard.name for shard in into.latest().shards}


def test_extend_mixed_version_computes_only_new_shards(tmp_path: Path) -> None:
    base = add(Version(tmp_path / "root", "digits/v1"), tmp_path, 0, compression="gzip")
    add(base, tmp_path, 10, compression="none")
    into = Version(tmp_path / "root", "digits/v2")
    extend(base, length, into, mode="rewrite")
    assert packings(into.latest()) == ["gzip", "none"]
    add(base, tmp_path, 20)
    report = extend(base, length, into, mode="rewrite")
    assert (len(report.written), len(report.reused)) == (1, 2)
    assert packings(into.latest()) == ["gzip", "none", "none"]


def test_rebuild_mixed_snapshot_packs_as_latest(tmp_path: Path) -> None:
    base = add(Version(tmp_path / "root", "digits/v1"), tmp_path, 0)
    add(base, tmp_path, 10, compression="gzip")
    rebuild(base)
    assert base.latest().compression == "GZIP"
    grown(base, tmp_path / "more", (30, 33))
    assert base.latest().compression == "GZIP"
