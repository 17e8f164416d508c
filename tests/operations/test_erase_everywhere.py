"""After an erase and a vacuum no byte of the records is left, and all others are as they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from tests.operations.erasures import (
    emptied,
    erased,
    files_with,
    landed,
    marked,
    marker,
    opened,
    records,
)
from tests.operations.extensions import SCHEMA, double, length
from tests.operations.landings import json_lines

if TYPE_CHECKING:
    from pathlib import Path

PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


def published(version: Version) -> Version:
    assert check_version(version).ok
    return version


def everything(tmp_path: Path) -> dict[str, Version]:
    """A version that was appended to, plain and packed, and one made of it in each way."""
    root = tmp_path / "root"
    v1 = landed(tmp_path, (0, 5), (5, 9))
    landed(tmp_path, (9, 14), compression="gzip")
    bad = json_lines(
        tmp_path / "bad.jsonl", [*marked(14, 18), {"id": 7, "name": {"first": marker(7)}}]
    )
    append(v1, bad, schema=SCHEMA, max_quarantined=0.5)
    bad.unlink()
    published(v1)
    made = {name: Version(root, f"digits/{name}") for name in ("v2", "v3", "v4", "v5", "flat")}
    extend(v1, double, made["v2"])
    published(made["v2"])
    extend(made["v2"], length, made["v3"])
    extend(v1, double, made["v4"], mode="rewrite")
    migrate(v1, MigrationSpec(rename={"name": "word"}, drop=("id",)), made["v5"])
    rebuild(v1, into=made["flat"])
    rules: dict[str, Any] = {"pairs": {}, "keyed": {"on": "id"}}
    for name, rule in rules.items():
        made[name] = Version(root, f"digits/{name}")
        combine(v1, v1, made[name], **PREFIXES, **rule)
    for version in made.values():
        published(version)
    return {"v1": v1, **made}


def test_no_byte_of_erased_records_is_left_and_all_others_are_unchanged(tmp_path: Path) -> None:
    versions = everything(tmp_path)
    before = {name: records(version.latest()) for name, version in versions.items()}
    gone = (3, 7, 11)
    report = erased(tmp_path, *gone, request="ticket 81")
    assert {one.plan.version for one in report.versions} == {f"digits/{name}" for name in versions}
    assert [one for one in report.plan.residual_copies if one.certain] == []
    emptied(tmp_path)
    for number in gone:
        assert files_with(tmp_path / "root", marker(number)) == []
    assert files_with(tmp_path / "root", marker(4))
    texts = {marker(number).encode() for number in gone}
    for name, version in versions.items():
        left = [one for one in before[name] if not texts & {value for _, value in one}]
        assert len(left) < len(before[name])
        assert records(opened(version).published()) == left, name
        assert len(opened(version).latest().shards) == len(version.latest().shards)
