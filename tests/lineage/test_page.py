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
from tests.lineage.page_roots import BASE, HOSTILE, Histories, input_of, tell
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
def told(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return tell(tmp_path_factory.mktemp("root"))


def versions_of(
    root: Path, names: Iterable[str] | None = None, findings: Sequence[Finding] | None = None
) -> dict[str, VersionPage]:
    page = build_report_page(LogIndex(root), now=NOW, names=names, findings=findings)
    return {one.name: one for one in page.versions}


def finding(severity: str = "error", version: str = "digits/v1", detail: str = "bad") -> Finding:
    return Finding(severity, "changed-shard", version, "snapshot 1", detail, Hint.of("repair it"))  # type: ignore[arg-type]


def test_the_same_root_and_time_give_the_same_page(told: Histories) -> None:
    assert render_page(LogIndex(told.root), now=NOW) == render_page(LogIndex(told.root), now=NOW)


def test_nothing_from_a_log_or_a_finding_is_markup_or_script(told: Histories) -> None:
    text = render_page(LogIndex(told.root), findings=[finding(detail=HOSTILE)], now=NOW)
    assert text.count("<script") == text.count("</script") == 2
    data = re.search(r'type="application/json">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert not set("<>&") & set(data[1])
    assert HOSTILE in json.loads(data[1])["findings"][0]["detail"]


def test_what_turns_or_hides_text_is_shown_by_its_code(tmp_path: Path) -> None:
    schema = Schema((Feature("x", "int64", doc="a\u202eb\x1b"),))
    Histories(tmp_path, Clock()).version("digits/v1", schema)
    assert versions_of(tmp_path)["digits/v1"].features[0].doc == "a\\u202eb\\x1b"


def test_the_policy_lets_nothing_in_and_nothing_out() -> None:
    text = render_page(LogIndex(GOLDEN), now=NOW)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    directives = policy[1].split("; ")
    assert directives[0] == "default-src 'none'"
    assert directives[1].startswith("script-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert not re.search(r"(src|href)=.(?!#)|@import|https?://(?!www\.w3\.org/2000/svg)", text)


def test_a_snapshot_tells_who_made_it_of_what_and_what_checks_said(told: Histories) -> None:
    page = versions_of(told.root)["digits/v1"]
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


def test_the_graph_tells_what_versions_are_made_of_and_by_what(told: Histories) -> None:
    graph = build_report_page(LogIndex(told.root), now=NOW).graph
    assert [(edge.source, edge.target, edge.label.split()) for edge in graph.edges] == [
        ("digits/v1", "digits/v2", ["extend", "@4", "→", "@1"]),
        ("digits/v1", "pairs/v1", ["combine", "@4", "→", "@1"]),
    ]
    assert [node.version for node in graph.nodes] == ["digits/v1", "digits/v2", "pairs/v1"]


def test_fields_tell_what_is_new_renamed_and_gone_and_where_it_comes_from(told: Histories) -> None:
    versions = versions_of(told.root)
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


def test_a_cast_and_a_changed_declaration_tell_what_they_were(tmp_path: Path) -> None:
    told = Histories(tmp_path, Clock())
    base = told.version("digits/v1", BASE)
    derive(base, "one", head=0)
    cast = Schema((Feature("image", "bytes"), Feature("label", "float"), Feature("note", "bytes")))
    parameters = {"cast": {"label": "float"}, "default": ["note"]}
    told.derived("digits/v2", cast, "migrate", [base], parameters)
    fields = {
        one.name: (one.change, one.previous) for one in versions_of(tmp_path)["digits/v2"].features
    }
    assert fields == {
        "image": ("kept", ""),
        "label": ("cast", "int64 [] required"),
        "note": ("filled", ""),
    }


def test_a_version_made_of_none_is_compared_with_the_one_before_it(tmp_path: Path) -> None:
    told = Histories(tmp_path, Clock())
    told.version("digits/v1", BASE)
    told.clock.move(days=1)
    told.version("digits/v2", Schema((Feature("image", "float"), Feature("size", "int64"))))
    page = versions_of(tmp_path)["digits/v2"]
    assert page.compared == ("digits/v1",)
    assert [(one.name, one.change) for one in page.features] == [
        ("image", "changed"),
        ("size", "added"),
        ("label", "removed"),
        ("note", "removed"),
    ]


def test_of_a_long_history_the_newest_are_listed_and_all_are_plotted(tmp_path: Path) -> None:
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


def test_with_a_name_the_page_shows_it_and_what_it_is_related_to(told: Histories) -> None:
    assert set(versions_of(told.root, ["digits/v2"])) == {"digits/v1", "digits/v2"}
    assert set(versions_of(told.root, ["digits/v1"])) == {"digits/v1", "digits/v2", "pairs/v1"}


def test_what_others_are_made_of_and_is_not_there_is_shown_as_absent(tmp_path: Path) -> None:
    elsewhere, told = Histories(tmp_path / "a", Clock()), Histories(tmp_path / "b", Clock())
    base = elsewhere.version("lost/v1", BASE)
    derive(base, "one", head=0)
    told.derived("digits/v1", BASE, "rebuild", [base], {})
    versions = versions_of(told.root)
    assert versions["lost/v1"].absent
    assert versions["digits/v1"].history.snapshots[0].inputs == (("lost/v1", 1),)
    assert input_of(base).snapshot == 1


def test_a_damaged_log_is_told_and_what_can_be_read_of_it_is_shown(tmp_path: Path) -> None:
    root = tell(tmp_path).root
    path = root / "digits/v1/log/00000000000000000003.json"
    path.write_bytes(path.read_bytes().replace(b"schema", b"schemo"))
    versions = versions_of(root)
    damaged = versions["digits/v1"]
    assert "entry 3" in damaged.problem
    assert [one.number for one in damaged.history.snapshots] == [5, 4, 3, 2, 1]
    assert {one.status for one in damaged.history.snapshots} == {"unknown", "rejected"}
    assert versions["digits/v2"].problem == ""
    assert "digits/v2" in render_page(LogIndex(root), now=NOW)


def test_findings_are_the_worst_first_and_none_is_not_the_same_as_no_audit(
    told: Histories,
) -> None:
    catalog = LogIndex(told.root)
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


def test_an_old_root_and_an_empty_one_have_a_page(tmp_path: Path) -> None:
    catalog = LogIndex(GOLDEN)
    path = write_page(catalog, tmp_path / "page.html", now=NOW)
    assert path.read_text() == render_page(catalog, now=NOW)
    (tmp_path / "empty").mkdir()
    assert write_page(LogIndex(tmp_path / "empty"), path, now=NOW) == path
    assert "pets/v1" not in path.read_text()


def test_a_check_that_is_not_needed_is_told_if_it_was_run(tmp_path: Path) -> None:
    version = Histories(tmp_path, Clock()).version("digits/v1", BASE)
    derive(version, "one", head=0)
    attest_shards(version, "one", checks=["colour"], passed=False)
    checks = versions_of(tmp_path)["digits/v1"].history.snapshots[0].checks
    told = [(one.check, one.result, one.required) for one in checks]
    assert told[-1] == ("colour", "failed", False)
