"""A root whose history has every operation, to export from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.log.model import Attestation, Checks
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.schema.logical_types import Category
from shardline.schema.schema import Feature, Schema, Text
from tests.operations.extensions import double
from tests.operations.landings import json_lines

if TYPE_CHECKING:
    from pathlib import Path

PERSON = "Änne Geheim"
LABELS = ("even", "odd")
SCHEMA = Schema(
    (
        Feature("id", "int64", doc="Counts up."),
        Feature("name", "bytes", meaning=Text()),
        Feature("parity", "int64", meaning=Category(LABELS)),
        Feature("place", "bytes", meaning=Category(), required=False),
        Feature("vector", "float", (2, 2)),
    ),
    doc="Small numbers | with pipes.",
)


def row(number: int) -> dict[str, object]:
    """Return a row of SCHEMA."""
    values = {"id": number, "name": f"{PERSON} {number}", "parity": number % 2}
    vector = [[number, 0.5], [1, 2]]
    place = {} if number % 3 == 0 else {"place": f"{PERSON}-{number % 4}"}
    return {**values, "vector": vector, **place}


def grow(version: Version, folder: Path, first: int, last: int) -> Version:
    """Append and publish one more shard."""
    folder.mkdir(parents=True, exist_ok=True)
    file = json_lines(folder / f"{first:03}.jsonl", map(row, range(first, last)))
    append(version, [file], schema=SCHEMA)
    assert check_version(version).ok
    return version


def publish(version: Version) -> Version:
    """Check a version, which publishes its latest snapshot."""
    assert check_version(version).ok
    return version


def make_history(folder: Path) -> Path:
    """Return a root that every operation has changed, with plain, overlay and virtual shards."""
    root, landing = folder / "root", folder / "landing"
    base = Version(root, "numbers/v1", run="run-1", code="code-7")
    grow(base, landing, 0, 5)
    grow(base, landing, 5, 9)
    overlay, moved = Version(root, "numbers/wide"), Version(root, "numbers/v2")
    extend(base, [double], overlay)
    publish(overlay)
    migrate(base, MigrationSpec(rename={"name": "title"}, drop=("vector",)), moved)
    publish(moved)
    pairs, plan = Version(root, "pairs/v1"), Version(root, "pairs/plan")
    prefixes: dict[str, Any] = {"left_prefix": "a_", "right_prefix": "b_"}
    combine(overlay, moved, pairs, on_collision="prefix", on=["id"], **prefixes)
    publish(pairs)
    combine(overlay, moved, plan, on_collision="prefix", mode="virtual", **prefixes)
    publish(plan)
    twice = Version(root, "pairs/twice")
    combine(moved, moved, twice, on_collision="prefix", mode="virtual", unordered=True, **prefixes)
    rebuild(base)
    publish(base)
    base.restore(2)
    base.require(Checks(("integrity", "schema"), ("counts",)))
    more_rows = json_lines(landing / "bad.jsonl", [row(99)])
    append(base, [more_rows])
    content = base.latest().content
    failed = Attestation("counts", False, content=content, detail=f"found {PERSON}")  # noqa: FBT003
    base.reject(base.latest().number, [failed])
    base.snapshot(2).consumed_by("number-net", run="run-42", commit="1f3c9d2")
    return root
