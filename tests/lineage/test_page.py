"""The report page as data, and as a file."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardline.hints import Hint
from shardline.lineage.audit.audit_report import Finding
from shardline.lineage.page import render_page, write_page
from shardline.lineage.page.report_page import MAX_FINDINGS, MAX_SNAPSHOTS, build_report_page
from shardline.log.changes import Derive
from shardline.provenance.log_index import LogIndex
from shardline.schema.schema import Feature, Schema
from tests.lineage.page_roots import BASE, HOSTILE, Histories, input_of, write_histories
from tests.log.versions import (
    Clock,
    append_of,
    attest_shards,
    derive,
    grow,
    make_version,
    shard_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.lineage.page.page_model import PageFeature, VersionPage
    from shardline.log.changes import Change

NOW = datetime(2026, 11, 16, 4, tzinfo=UTC)
GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return write_histories(tmp_path_factory.mktemp("root"))


def versions_of(
    root: Path, names: Iterable[str] | None = None, findings: Sequence[Finding] | None = None
) -> dict[str, VersionPage]:
    page = build_report_page(LogIndex(root), now=NOW, names=names, findings=findings)
    return {one.name: one for one in page.versions}


def finding(severity: str = "error", version: str = "digits/v1", detail: str = "bad") -> Finding:
    return Finding(severity, "changed-shard", version, "snapshot 1", detail, Hint.of("repair it"))  # type: ignore[arg-type]


def test_page_is_deterministic(histories: Histories) -> None:
    assert render_page(LogIndex(histories.root), now=NOW) == render_page(
        LogIndex(histories.root), now=NOW
    )


def test_page_escapes_foreign_text(histories: Histories) -> None:
    text = render_page(LogIndex(histories.root), findings=[finding(detail=HOSTILE)], now=NOW)
    assert text.count("<script") == text.count("</script") == 2
    data = re.search(r'type="application/json">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert not set("<>&") & set(data[1])
    assert HOSTILE in json.loads(data[1])["findings"][0]["detail"]


def test_page_shows_control_characters_by_code(tmp_path: Path) -> None:
    schema = Schema((Feature("x", "int64", doc="a\u202eb\x1b"),))
    Histories(tmp_path, Clock()).version("digits/v1", schema)
    assert versions_of(tmp_path)["digits/v1"].features[0].doc == "a\\u202eb\\x1b"


def test_page_policy_allows_only_its_own_script() -> None:
    text = render_page(LogIndex(GOLDEN), now=NOW)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    directives = policy[1].split("; ")
    assert directives[0] == "default-src 'none'"
    assert directives[1].startswith("script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"(src|href)=.(?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", text)


def test_page_snapshot_has_writer_inputs_checks(histories: Histories) -> None:
    page = versions_of(histories.root)["digits/v1"]
    fifth, fourth, third, second, first = page.history.snapshots
    verdicts = ["waiting", "published", "published", "rejected", "published"]
    assert [one.status for one in page.history.snapshots] == verdicts
    assert (fifth.operation, third.operation) == ("append", "reject")
    assert first.text.split(", ") == ["+1 shard", "5 records"]
    assert first.sources == ("batch first",)
    assert first.refs == ("tag gold",)
    assert page.history.commits[first.commit].run.startswith("</script>")
    results = {one.check: (one.result, one.shards, one.required) for one in second.checks}
    passed = ("passed", 0, True)
    assert results == {
        "integrity": ("failed", 1, True),
        "schema": passed,
        "counts": ("missing", 0, True),
        "colour": ("failed", 0, False),
    }
    details = {one.check: one.detail for one in second.checks}
    assert details["integrity"].startswith("record 7: </script>")
    assert details["colour"] == "too dark"
    assert third.text.startswith("rejected snapshot 2 ")
    assert {one.result for one in fourth.checks} == {"passed"}
    assert {one.result for one in fifth.checks} == {"missing"}
    assert [event.operation for event in page.history.first_events] == ["create"]
    assert "published: snapshot 4" in [event.text for event in fourth.events][-2]


def test_page_graph_has_derivations(histories: Histories) -> None:
    graph = build_report_page(LogIndex(histories.root), now=NOW).graph
    assert [(edge.source, edge.target, edge.label.split()) for edge in graph.edges] == [
        ("digits/v1", "digits/v2", ["extend", "@4", "→", "@1"]),
        ("digits/v1", "pairs/v1", ["combine", "@4", "→", "@1"]),
    ]
    assert [node.version for node in graph.nodes] == ["digits/v1", "digits/v2", "pairs/v1"]


def test_page_features_have_change_and_origin(histories: Histories) -> None:
    versions = versions_of(histories.root)
    assert [_told(one) for one in versions["digits/v2"].features] == [
        ("bright", "added", "digits/v1:image", "function 'seen'"),
        ("digit", "added", "digits/v1:label", "table t.csv"),
        ("image", "kept", "digits/v1:image", ""),
        ("label", "removed", "digits/v1:label", ""),
        ("note", "removed", "digits/v1:note", ""),
    ]
    assert versions["digits/v2"].compared == ("digits/v1",)
    assert [_told(one) for one in versions["pairs/v1"].features][:1] == [
        ("a_image", "renamed", "digits/v1:image", "")
    ]
    assert versions["digits/v1"].compared == ()


def _told(field: PageFeature) -> tuple[str, str, str, str]:
    return field.name, field.change, ", ".join(f"{v}:{f}" for v, f in field.origin), field.by


def test_page_cast_feature_has_previous_declaration(tmp_path: Path) -> None:
    histories = Histories(tmp_path, Clock())
    base = histories.version("digits/v1", BASE)
    derive(base, "one", head=0)
    cast = Schema((Feature("image", "bytes"), Feature("label", "float"), Feature("note", "bytes")))
    parameters = {"cast": {"label": "float"}, "default": ["note"]}
    histories.derived("digits/v2", cast, "migrate", [base], parameters)
    fields = {
        one.name: (one.change, one.previous) for one in versions_of(tmp_path)["digits/v2"].features
    }
    assert fields == {
        "image": ("kept", ""),
        "label": ("cast", "int64 [] required"),
        "note": ("filled", ""),
    }


def test_page_compares_with_previous_version(tmp_path: Path) -> None:
    histories = Histories(tmp_path, Clock())
    histories.version("digits/v1", BASE)
    histories.clock.move(days=1)
    histories.version("digits/v2", Schema((Feature("image", "float"), Feature("size", "int64"))))
    page = versions_of(tmp_path)["digits/v2"]
    assert page.compared == ("digits/v1",)
    assert [(one.name, one.change) for one in page.features] == [
        ("image", "changed"),
        ("size", "added"),
        ("label", "removed"),
        ("note", "removed"),
    ]


def test_page_lists_latest_and_plots_all_snapshots(tmp_path: Path) -> None:
    count, peak = MAX_SNAPSHOTS + 60, "much too much".ljust(4000, "!")
    changes: list[Change] = [append_of(f"{number:04}") for number in range(count)]
    gone = Derive(head=31, removed=[shard_name(peak)], added=[], operation="erase")
    changes[30:32] = [append_of(peak), gone]
    grow(make_version(tmp_path), changes)
    history = versions_of(tmp_path)["digits/v1"].history
    listed = [one.number for one in history.snapshots]
    assert listed == list(range(count, count - MAX_SNAPSHOTS, -1))
    plotted = [one[3] for one in history.sizes]
    assert plotted == sorted(set(plotted))
    assert {1, 31, count} <= set(plotted)
    assert len(plotted) < count
    assert len(render_page(LogIndex(tmp_path), now=NOW)) < 300_000


def test_page_of_a_version_has_related_versions(histories: Histories) -> None:
    assert set(versions_of(histories.root, ["digits/v2"])) == {"digits/v1", "digits/v2"}
    assert set(versions_of(histories.root, ["digits/v1"])) == {"digits/v1", "digits/v2", "pairs/v1"}


def test_page_shows_missing_input_as_absent(tmp_path: Path) -> None:
    elsewhere, histories = Histories(tmp_path / "a", Clock()), Histories(tmp_path / "b", Clock())
    base = elsewhere.version("lost/v1", BASE)
    derive(base, "one", head=0)
    histories.derived("digits/v1", BASE, "rebuild", [base], {})
    versions = versions_of(histories.root)
    assert versions["lost/v1"].absent
    assert versions["digits/v1"].history.snapshots[0].inputs == (("lost/v1", 1),)
    assert input_of(base).snapshot == 1


def test_page_shows_readable_part_of_corrupt_log(tmp_path: Path) -> None:
    root = write_histories(tmp_path).root
    path = root / "digits/v1/log/00000000000000000003.json"
    path.write_bytes(path.read_bytes().replace(b"schema", b"schemo"))
    versions = versions_of(root)
    damaged = versions["digits/v1"]
    assert "entry 3" in damaged.problem
    assert [one.number for one in damaged.history.snapshots] == [5, 4, 3, 2, 1]
    assert {one.status for one in damaged.history.snapshots} == {"unknown", "rejected"}
    assert versions["digits/v2"].problem == ""
    assert "digits/v2" in render_page(LogIndex(root), now=NOW)


def test_page_sorts_findings_by_severity(
    histories: Histories,
) -> None:
    catalog = LogIndex(histories.root)
    assert build_report_page(catalog, now=NOW).findings is None
    assert build_report_page(catalog, now=NOW, findings=[]).findings == ()
    mixed = [finding("note"), finding("error", "pairs/v1"), finding("warning", "")]
    page = build_report_page(catalog, now=NOW, findings=mixed)
    assert [one.severity for one in page.findings or ()] == ["error", "warning", "note"]
    few = build_report_page(catalog, now=NOW, findings=mixed, names=["digits/v2"])
    assert [one.version for one in few.findings or ()] == ["", "digits/v1"]
    many = build_report_page(catalog, now=NOW, findings=[finding()] * (MAX_FINDINGS + 1))
    assert len(many.findings or ()) == MAX_FINDINGS
    assert many.severities == (("error", MAX_FINDINGS + 1),)


def test_golden_and_empty_roots_have_a_page(tmp_path: Path) -> None:
    catalog = LogIndex(GOLDEN)
    path = write_page(catalog, tmp_path / "page.html", now=NOW)
    assert path.read_text() == render_page(catalog, now=NOW)
    (tmp_path / "empty").mkdir()
    assert write_page(LogIndex(tmp_path / "empty"), path, now=NOW) == path
    assert "pets/v1" not in path.read_text()


def test_page_shows_optional_check_if_it_ran(tmp_path: Path) -> None:
    version = Histories(tmp_path, Clock()).version("digits/v1", BASE)
    derive(version, "one", head=0)
    attest_shards(version, "one", checks=["colour"], passed=False)
    checks = versions_of(tmp_path)["digits/v1"].history.snapshots[0].checks
    told = [(one.check, one.result, one.required) for one in checks]
    assert told[-1] == ("colour", "failed", False)
