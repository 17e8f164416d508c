"""The public classes: a root, its versions with the verbs, their snapshots with the readers."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import shardline
from shardline import Feature, Schema
from shardline.operations.append import append
from shardline.storage import open_store

SCHEMA = Schema((Feature("id", "int64"),))


def rows(*ids: int) -> list[dict[str, int]]:
    return [{"id": number} for number in ids]


def published(root: Path, name: str = "notes/v1") -> shardline.Snapshot:
    version = shardline.open(root)[name]
    version.append(rows(1, 2, 3), batch="first", schema=SCHEMA)
    version.check()
    return version.published()


def test_all_names_load_and_match_the_typed_imports() -> None:
    source = Path(inspect.getfile(shardline)).read_text()
    (typed,) = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    imported = {alias.asname for node in typed.body for alias in getattr(node, "names", ())}
    assert imported == set(shardline.__all__) - {"__version__"}
    assert all(getattr(shardline, name) is not None for name in shardline.__all__)
    assert len(shardline.__all__) <= 45


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError):
        shardline.no_such_name  # noqa: B018 - this is the test


def test_root_lists_datasets_and_versions(tmp_path: Path) -> None:
    published(tmp_path, "notes/v1")
    published(tmp_path, "mails/v2")
    root = shardline.open(tmp_path)
    assert list(root) == ["mails/v2", "notes/v1"]
    assert root.datasets() == ["mails", "notes"]
    assert "notes/v1" in root
    assert "notes/v2" not in root
    assert 7 not in root


def test_root_passes_run_and_code_to_entries(tmp_path: Path) -> None:
    version = shardline.open(tmp_path, run="r1", code="c1")["notes/v1"]
    report = version.append(rows(1), batch="first", schema=SCHEMA)
    assert report.entry is not None
    assert (report.entry.commit_info.run, report.entry.commit_info.code) == ("r1", "c1")


def test_open_accepts_store_and_root(tmp_path: Path) -> None:
    published(tmp_path)
    root = shardline.open(tmp_path)
    assert list(shardline.open(root)) == list(shardline.open(open_store(tmp_path))) == list(root)


def test_snapshot_length_truth_and_repr(tmp_path: Path) -> None:
    snapshot = published(tmp_path)
    assert len(snapshot) == 3
    assert repr(snapshot) == "<Snapshot notes/v1@1: 3 records, published>"
    version = shardline.open(tmp_path)["notes/v1"]
    version.erase(key="id", values=[1, 2, 3])
    assert len(version.latest()) == 0
    assert bool(version.latest()) is True


def test_verbs_derive_new_versions(tmp_path: Path) -> None:
    published(tmp_path)
    root = shardline.open(tmp_path)
    base = root["notes/v1"]

    @shardline.record_udf(Feature("twice", "int64"))
    def twice(record: dict[str, int]) -> dict[str, int]:
        return {"twice": 2 * record["id"]}

    base.extend(twice, into=root["notes/v2"])
    base.migrate(shardline.MigrationSpec(rename={"id": "key"}), into=root["notes/v3"])
    base.rebuild(into=root["notes/v4"])
    base.combine(
        base, into=root["pairs/v1"], on_collision="prefix", left_prefix="a_", right_prefix="b_"
    )
    for name in ("notes/v2", "notes/v3", "notes/v4", "pairs/v1"):
        root[name].check()
    assert root["notes/v2"].published().take([2])["twice"].to_pylist() == [6]
    assert root["notes/v3"].published().to_arrow(["key"]).read_all()["key"].to_pylist() == [1, 2, 3]
    assert len(root["notes/v4"].published()) == 3
    assert len(root["pairs/v1"].published()) == 9


def test_snapshot_diff_and_trace(tmp_path: Path) -> None:
    first = published(tmp_path)
    version = shardline.open(tmp_path)["notes/v1"]
    version.append(rows(4), batch="second")
    assert first.diff(version.latest()).records == 1
    assert first.trace(1).record == 1


def test_root_erases_vacuums_and_audits(tmp_path: Path) -> None:
    published(tmp_path)
    root = shardline.open(tmp_path)
    assert len(root.plan_erase("notes", key="id", values=[2]).versions) == 1
    assert root["notes/v1"].erase(key="id", values=[2]).records == 1
    assert [
        row["id"] for row in root["notes/v1"].published().to_arrow().read_all().to_pylist()
    ] == [
        1,
        3,
    ]
    assert root.vacuum("notes").dataset == "notes"
    assert root.audit().ok


def test_verbs_keep_signature_and_docs_of_the_operation() -> None:
    assert shardline.Version.append is append
    assert inspect.signature(shardline.Version.append) == inspect.signature(append)
