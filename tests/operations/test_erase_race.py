"""Erase while others make versions of the same records: whoever is second sees the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import TombstonedShardError
from shardline.lineage.audit.root_audit import audit
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.erase import execute_erase_plan, plan_erase
from shardline.operations.erasure.erasure_proof import prove_erasure
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.provenance.log_index import LogIndex
from shardline.storage import open_store
from tests.errors import raises
from tests.operations.erasures import (
    InterruptedStore,
    emptied,
    erased,
    files_with,
    landed,
    marker,
    opened,
)
from tests.operations.extensions import double, table
from tests.operations.landings import ids

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


WAYS: dict[str, Callable[[Version, Version], object]] = {
    "extend": lambda v1, into: extend(v1, double, into, mode="rewrite"),
    "overlay": lambda v1, into: extend(v1, double, into),
    "migrate": lambda v1, into: migrate(v1, MigrationSpec(drop=("id",)), into),
    "rebuild": lambda v1, into: rebuild(v1, into=into),
    "combine": lambda v1, into: combine(v1, v1, into, **PREFIXES),
    "virtual": lambda v1, into: combine(v1, v1, into, mode="virtual", **PREFIXES),
}


@pytest.mark.parametrize(
    ("way", "name"),
    [
        *((way, "digits/v2") for way in WAYS),
        # An overlay lies in the dataset of its base.
        *((way, "faces/v1") for way in WAYS if way != "overlay"),
    ],
)
def test_what_is_committed_right_behind_an_erase_is_taken_back_at_once(
    tmp_path: Path, way: str, name: str
) -> None:
    root = tmp_path / "root"
    v1 = landed(tmp_path, (0, 4))
    entry = f"{name}/log/{2:020}.json"  # the first creates the version
    store = InterruptedStore(root, entry, lambda: erased(tmp_path, 2))
    into = Version(store, name)
    with raises(TombstonedShardError, "tombstoned-shard", version=name, snapshot=1) as caught:
        WAYS[way](Version(store, "digits/v1"), into)
    assert "digits/v1@1 were erased" in str(caught.value)
    assert store.left == []
    assert not opened(into).latest().shards
    for dataset in ("digits", "faces") if name == "faces/v1" else ("digits",):
        emptied(tmp_path, dataset)
    assert files_with(root, marker(2)) == []
    assert prove_erasure(root, "digits").complete
    findings = audit(LogIndex(open_store(root)), sources=False).findings
    assert [one for one in findings if one.severity in {"error", "warning"}] == []
    WAYS[way](opened(v1), Version(root, name))
    assert check_version(Version(root, name)).ok
    assert files_with(root, marker(3))


@pytest.mark.parametrize("way", WAYS)
def test_what_others_made_of_the_records_since_an_erase_was_planned_is_erased_too(
    tmp_path: Path, way: str
) -> None:
    root = tmp_path / "root"
    v1 = landed(tmp_path, (0, 4))
    plan = plan_erase(root, "digits", key="id", values=[2])
    WAYS[way](v1, Version(root, "digits/v2"))
    report = execute_erase_plan(plan)
    late = [] if way == "virtual" else ["digits/v2"]
    assert [one.plan.version for one in report.versions] == ["digits/v1", *late]
    assert ids(v1, opened(v1).latest()) == [0, 1, 3]
    if way == "virtual":
        assert [(one.kind, one.location) for one in report.open_copies] == [
            ("virtual", "digits/v2@1")
        ]
        assert not prove_erasure(root, "digits").complete
        return
    assert check_version(opened(v1)).ok
    assert check_version(Version(root, "digits/v2")).ok
    emptied(tmp_path)
    assert files_with(root, marker(2)) == []
    assert prove_erasure(root, "digits").complete


def test_another_dataset_that_was_made_of_the_records_meanwhile_is_told_of(tmp_path: Path) -> None:
    root = tmp_path / "root"
    v1 = landed(tmp_path, (0, 4))
    plan = plan_erase(root, "digits", key="id", values=[2])
    assert plan.residual_copies == ()
    extend(v1, double, Version(root, "faces/v1"), mode="rewrite")
    report = execute_erase_plan(plan)
    assert [(one.kind, one.location) for one in report.open_copies] == [("descendant", "faces/v1")]


def test_a_version_that_grows_is_as_before_when_its_commit_was_taken_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    landed(tmp_path, (0, 4))
    into = Version(root, "digits/v2")
    extend(Version(root, "digits/v1"), double, into, mode="rewrite")
    check_version(into)
    before = into.state.number
    landed(tmp_path, (4, 8))
    plan = plan_erase(root, "digits", key="id", values=[5])
    entry = f"digits/v2/log/{before + 1:020}.json"
    store = InterruptedStore(root, entry, lambda: execute_erase_plan(plan))
    with raises(TombstonedShardError, "tombstoned-shard", version="digits/v2", snapshot=2):
        extend(Version(store, "digits/v1"), double, Version(store, "digits/v2"), mode="rewrite")
    assert table(opened(into).published())["id"] == [0, 1, 2, 3]
    check_version(Version(root, "digits/v1"))
    extend(Version(root, "digits/v1"), double, opened(into), mode="rewrite")
    assert check_version(opened(into)).ok
    assert table(opened(into).published())["id"] == [0, 1, 2, 3, 4, 6, 7]
    emptied(tmp_path)
    assert files_with(root, marker(5)) == []
