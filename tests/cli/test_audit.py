"""`shardline audit` as a person or a script runs it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from shardline.api import Version
from shardline.dagster.asset_names import get_asset_key
from shardline.dagster.versions.materialization import build_materialization
from shardline.operations.extend import extend
from tests.cli.command import shardline
from tests.cli.datasets import entry_file, narrow, on
from tests.operations.extensions import base_of, double, grown, version_in

if TYPE_CHECKING:
    from pathlib import Path

DOUBLE = "tests.operations.extensions:double"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two versions in order: one that was appended to twice, and its overlay."""
    base = base_of(tmp_path, (0, 5))
    grown(base, tmp_path / "landing", (5, 9))
    extend(base, double, version_in(tmp_path))
    return tmp_path / "root"


def test_a_history_in_order_is_told_so_with_exit_code_0(root: Path) -> None:
    result = on(root, "audit")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("ok: 2 versions")
    quick = on(root, "audit", "digits/v1", "--quick")
    assert quick.code == 0
    assert all(words in quick.out for words in ("1 version", "6 entries", "2 shards", "not read"))


def test_json_tells_all_of_it(root: Path) -> None:
    told = on(root, "audit", "digits", "--json").json
    assert told.pop("time")
    assert told.pop("bytes") > 0
    assert told == {
        "ok": True,
        "versions": ["digits/v1", "digits/v2"],
        "dependencies": [],
        "not_audited": [],
        "not_in_dagster": [],
        "entries": 8,
        "shards": 4,
        "recomputed": 0,
        "not_recomputed": [],
        "findings": [],
    }


def test_versions_that_were_not_asked_are_counted_below_the_result(root: Path) -> None:
    alone = on("/nowhere", "audit", "digits/v1", "--root", root)
    assert alone.code == 0
    assert alone.commands == [["audit", "--root", str(root)]]
    assert on(root, "audit", "digits/v1", "--json").json["not_audited"] == ["digits/v2"]
    for name in ("digits", "digits/v2"):
        assert "not audited" not in on(root, "audit", name).out


def test_a_finding_is_told_with_place_and_advice_and_exit_code_1(root: Path) -> None:
    path = entry_file(root, 2, "digits/v1")
    path.write_bytes(path.read_bytes().replace(b'"append"', b'"apbend"'))
    result = on(root, "audit", "digits/v1")
    assert result.code == 1
    assert result.out.splitlines()[0].split() == [
        *("ERROR", "edited-entry:", "digits/v1,", "entry", "2"),
    ]
    assert "NOT VERIFIED: " in result.out
    (found,) = on(root, "audit", "digits/v1", "--json").json["findings"]
    assert (found["severity"], found["kind"], found["entry"]) == ("error", "edited-entry", 2)
    assert found["detail"] in result.out
    assert found["hint"]["text"] in result.out


def test_advice_has_the_root_if_it_was_given_and_is_not_told_twice(root: Path) -> None:
    entry_file(root, 3, "digits/v1").unlink()
    verify = ["verify", "digits/v1", "--root", str(root)]
    for command in (["status"], ["report", "-o", str(root.parent / "page.html")]):
        told = on("/nowhere", *command, "--root", root)
        assert told.code == 1
        assert [one for one in told.commands if one[0] == "verify"] == [verify]
    refused = on("/nowhere", "head", "digits/v1", "--root", root, "--json")
    assert refused.problem == (1, "corrupt-log")
    assert refused.hint == [verify]


def test_the_process_ends_with_the_exit_code(root: Path) -> None:
    """Once as a process of its own, where everything is loaded as a person loads it."""
    assert shardline("audit", "--root", root, "--quick").code == 0
    entry_file(root, 2, "digits/v1").unlink()
    result = shardline("audit", "--root", root, "--quick")
    assert (result.code, result.err) == (1, "")


def test_deep_makes_shards_again_and_lists_what_it_cannot(root: Path) -> None:
    result = on(root, "audit", "--recompute")
    assert result.code == 0
    assert f"--udf {DOUBLE}" in result.out
    report = on(root, "audit", "--recompute", "--json").json
    assert report["recomputed"] == 2
    assert [(one["version"], one["shards"]) for one in report["not_recomputed"]] == [
        ("digits/v2", 2)
    ]
    told = on(root, "audit", "--recompute", "--udf", DOUBLE, "--sample", "3", "--json").json
    assert (told["recomputed"], told["not_recomputed"]) == (3, [])


def test_deep_joins_a_table_again_if_it_is_the_one_that_was_joined(tmp_path: Path) -> None:
    base_of(tmp_path, (0, 5))
    root, names, other = tmp_path / "root", tmp_path / "names.csv", tmp_path / "old" / "names.csv"
    names.write_text("id,word\n" + "".join(f"{number},w{number}\n" for number in range(5)))
    other.parent.mkdir()
    other.write_text(names.read_text().replace("w3", "w4"))
    extended = on(root, "extend", "digits/v1", "--into", "v2", "--join", names, "--key", "id")
    assert extended.code == 0

    def told(*tables: Path) -> tuple[int, list[str]]:
        joins = [part for table in tables for part in ("--join", table)]
        found = on(root, "audit", "digits/v2", "--recompute", *joins, "--json").json
        assert found["ok"]
        return found["recomputed"], [one["reason"] for one in found["not_recomputed"]]

    (recomputed, (why,)) = told()
    assert (recomputed, str(names) in why) == (0, True)
    assert told(names) == told(other, names) == (1, [])
    moved = names.rename(tmp_path / "moved.csv")
    assert told(moved) == (1, [])
    (recomputed, (why,)) = told(other)
    assert recomputed == 0
    assert all(words in why for words in (str(other), str(names), "sha256"))
    refused = on(root, "audit", "--recompute", "--udf", moved, "--json")
    assert refused.problem == (2, "invalid-udf")
    assert "--join" in refused.error["hint"]["text"]


def test_sources_may_be_gone_if_told(root: Path, tmp_path: Path) -> None:
    for source in (tmp_path / "landing").iterdir():
        source.unlink()
    told = on(root, "audit", "--json")
    assert told.code == 1
    assert {found["kind"] for found in told.json["findings"]} == {"missing-source"}
    assert on(root, "audit", "--no-sources").code == 0


def test_since_leaves_out_what_was_before(root: Path, tmp_path: Path) -> None:
    (tmp_path / "landing/000000-000005.jsonl").unlink()
    assert on(root, "audit", "digits/v1").code == 1
    assert on(root, "audit", "digits/v1", "--since", "2").code == 0
    assert on(root, "audit", "--since", "2020-01-01").code == 1
    assert on(root, "audit", "--since", "2999-01-01T04:00").code == 0


def test_dagster_home_is_compared_with(root: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        version = Version(root, "digits/v1")
        for number in (1, 2):
            event = build_materialization(
                get_asset_key("digits/v1"), version, version.snapshot(number), added_rows=0
            )
            instance.report_runless_asset_event(event)
    result = on(root, "audit", "--dagster-home", home)
    assert result.code == 0
    assert "digits/v2" in result.out
    report = on(root, "audit", "--dagster-home", home, "--json").json
    assert report["not_in_dagster"] == ["digits/v2"]
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert "other-root" in on(copy, "audit", "--dagster-home", home).out
    named = on(copy, "audit", "--dagster-home", home, "--dagster-root", root)
    assert (named.code, "other-root" in named.out) == (0, False)


@pytest.mark.parametrize("config", [None, "telemetry:\n  enabled: false\n"])
def test_a_folder_without_a_record_is_refused_and_none_is_made_there(
    root: Path, tmp_path: Path, config: str | None
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if config is not None:
        (home / "dagster.yaml").write_text(config)
    before = list(home.iterdir())
    result = on(root, "audit", "--dagster-home", home, "--json")
    assert result.problem == (2, "dagster-record-not-found")
    assert str(home) in result.error["message"]
    assert list(home.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nothing"], "dataset-not-found"),
        (["digits/v9"], "version-not-found"),
        (["digits/v1@2"], "unexpected-snapshot"),
        (["--since", "3"], "missing-version"),
        (["digits/v1", "--since", "99"], "snapshot-not-found"),
        (["digits/v1", "--since", "0"], "snapshot-not-found"),
        (["--join", "names.csv"], "missing-option"),
        (["--recompute", "--join", "nowhere.csv"], "file-not-found"),
        (["--since", "yesterday"], "invalid-option-value"),
        (["--sample", "3"], "missing-option"),
        (["--recompute", "--udf", "nowhere:none"], "udf-not-found"),
        (["--dagster-home", "/nowhere"], "invalid-option-value"),
        (["--dagster-root", "/data"], "missing-option"),
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(root: Path, arguments: list[str], code: str) -> None:
    result = on(root, "audit", *arguments, "--json")
    assert result.problem == (2, code)


def test_help_fits_80_columns(root: Path) -> None:
    assert narrow(root, "audit", "--help").out.startswith("Usage: shardline audit")


def test_the_report_page_has_the_findings_and_other_files_are_left_alone(root: Path) -> None:
    page, other = root.parent / "report.html", root.parent / "mine.txt"
    path = entry_file(root, 2, "digits/v1")
    path.write_bytes(path.read_bytes().replace(b'"append"', b'"apbend"'))
    told = on(root, "audit", "--report", str(page))
    assert told.code == 1
    assert f" {page}\n" in told.out
    assert on(root, "audit", "--report", page, "--json").json["page"] == str(page)
    assert "edited-entry" in page.read_text()
    for inside in (root / "page.html", root / "digits" / "page.html"):
        refused = on(root, "audit", "--report", inside, "--json")
        assert refused.problem == (2, "output-in-root")
        assert not inside.exists()
    other.write_text("mine")
    refused = on(root, "audit", "--report", str(other), "--json")
    assert refused.problem == (2, "file-exists")
    assert other.read_text() == "mine"
