"""`shardline trace`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from shardline.operations.restore import restore_version
from shardline.provenance.consumers import register, release
from tests.cli.command import shardline
from tests.cli.datasets import HOSTILE, on
from tests.lineage.histories import PREFIXES, SCHEMA, as_json_lines, erased
from tests.operations.damages import flip
from tests.operations.extensions import double

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    version = Version(root, "digits/v1", run="run-1", code="c0ffee")
    append(version, as_json_lines(tmp_path / "in.jsonl", 0, 20), schema=SCHEMA, max_quarantined=0.5)
    extend(version, double, Version(root, "digits/v2"), snapshot="latest")
    return root


def test_the_way_back_is_told_line_by_line(tmp_path: Path, root: Path) -> None:
    result = on(root, "trace", "digits/v2@1", "8")
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert (lines[0], lines[5]) == ("digits/v2@1 record 8", "digits/v1@1 record 8")
    assert lines[1].split()[1:4] == ["extend,", "entry", "2,"]
    assert lines[3].split() == ["│", "kept:", "id", "and", "name"]
    assert lines[4].startswith("│ double: computed")
    assert lines[6].endswith("code c0ffee")
    assert lines[8].startswith(f"{tmp_path}/in.jsonl, line 13")
    assert "2 rows" in lines[8]


def test_machines_get_the_same(root: Path) -> None:
    told = on(root, "trace", "digits/v2@latest", "8", "--json").json
    assert told["ok"]
    first, second = told["steps"]
    assert (first["operation"], first["upstream"]) == ("extend", [{"step": 1}])
    assert first["features"]["double"]["upstream"] == ["digits/v1:id"]
    (leaf,) = second["upstream"]
    assert (leaf["row"], leaf["where"], leaf["refused_before"]) == (12, "line 13", 2)
    assert set(leaf["source"]) == {"path", "size", "sha256"}


def test_both_records_of_a_pair_are_told(root: Path) -> None:
    one, two = Version(root, "digits/v1"), Version(root, "digits/v2")
    pairs: dict[str, Any] = {**PREFIXES, "on": "id"}
    combine(one, two, Version(root, "pairs/v1"), **pairs)
    lines = on(root, "trace", "pairs/v1@latest", "3").out.splitlines()
    words = [line.split() for line in lines]
    assert ["left:", "digits/v1@1", "record", "3"] in words
    assert ["right:", "digits/v2@1", "record", "3"] in words
    assert sum("in.jsonl, line 6" in line for line in lines) == 2


def test_what_was_made_of_it_is_told_and_who_saw_it(root: Path) -> None:
    version = Version(root, "digits/v1")
    register(version, 1, "cnn", run="7")
    register(version, 1, "old")
    release(version, "old")
    result = on(root, "trace", "digits/v1@1", "8", "--downstream")
    lines = result.out.splitlines()[1:]
    assert [line.split() for line in lines[:3]] == [
        ["version", "now", "ever", "snapshots"],
        ["digits/v1", "1", "1", "1"],
        ["digits/v2", "1", "1", "1"],
    ]
    assert lines[5:7] == ["", "digits/v1"]
    assert lines[7].split()[:5] == ["digits/v1@1", "record", "8;", "append,", "entry"]
    assert lines[8:10] == ["", "digits/v2"]
    assert lines[10].split()[:5] == ["digits/v2@1", "record", "8;", "extend,", "entry"]
    told = on(root, "trace", "digits/v1@1", "8", "--downstream", "--json").json
    assert told["complete"]
    first, second = told["records"]
    assert [first["version"], second["version"]] == ["digits/v1", "digits/v2"]
    assert first["upstream"] is None
    assert second["upstream"] == {key: first[key] for key in ("version", "shard", "shard_record")}
    assert [one.split()[0] for one in first["consumers"]] == ["cnn", "old"]
    assert [one.endswith("(released)") for one in first["consumers"]] == [False, True]


def test_each_version_is_counted_before_the_first_of_many_pairs_are_listed(root: Path) -> None:
    version, pairs = Version(root, "digits/v1"), Version(root, "pairs/v1")
    combine(version, version, pairs, **PREFIXES)
    rebuild(pairs, snapshot="latest", into=Version(root, "zebra/v1"))
    result = on(root, "trace", "digits/v1@1", "8", "--downstream")
    lines = result.out.splitlines()[1:]
    assert [line.split()[:3] for line in lines[:5]] == [
        ["version", "now", "ever"],
        ["digits/v1", "1", "1"],
        ["digits/v2", "1", "1"],
        ["pairs/v1", "39", "39"],
        ["zebra/v1", "39", "39"],
    ]
    assert result.commands == [["trace", "digits/v1@1", "8", "--downstream", "--all"]] * 2
    assert len(lines) < 30
    told = on(root, "trace", "digits/v1@latest", "8", "--downstream", "--json", "--limit", "7").json
    assert not told["complete"]
    assert [(one["ever"], one["listed"]) for one in told["versions"]] == [
        *((1, 1), (1, 1)),
        *((39, 7), (39, 7)),
    ]
    assert len(told["records"]) == 16
    everything = on(root, "trace", "digits/v1@latest", "8", "--downstream", "--all", "--json").json
    assert (everything["complete"], len(everything["records"])) == (True, 80)
    assert (
        on(root, "trace", "digits/v1@latest", "8", "--downstream", "--all").out.count("record ")
        == 80
    )


def test_where_a_record_was_lost_on_the_way_is_told(root: Path) -> None:
    erased(Version(root, "digits/v1"), lambda number: number == 8)
    lines = on(root, "trace", "digits/v1@1", "8", "--downstream").out.splitlines()[1:]
    assert [line.split() for line in lines[:2]] == [
        ["version", "now", "ever", "gaps", "snapshots"],
        ["digits/v1", "0", "1", "1", "1"],
    ]
    assert any("erased (v1." in line for line in lines)
    assert on(root, "trace", "digits/v1@1", "8", "--downstream").code == 0


def test_a_record_that_was_erased_says_so_at_every_step(root: Path) -> None:
    one, two = Version(root, "digits/v1"), Version(root, "digits/v2")
    rebuild(one, snapshot="latest", compression="gzip")
    extend(one, double, two, snapshot="latest")
    old: dict[str, Any] = {**PREFIXES, "left_snapshot": 1, "right_snapshot": 1, "on": "id"}
    combine(one, one, Version(root, "pairs/v1"), **old)
    number = one.latest().take([8]).to_pydict()["id"][0]
    assert on(root, "erase", "digits", "--where", f"id == {number}", "--yes").code == 1
    for version, snapshot, steps in (
        ("digits/v1", 1, 1),
        ("digits/v1", 2, 2),
        ("digits/v2", 1, 2),
        ("digits/v2", 2, 3),
    ):
        result = on(root, "trace", f"{version}@{snapshot}", "8")
        assert result.code == 0
        first_words = result.out.split()[:4]
        assert first_words == [f"{version}@{snapshot}", "record", "8:", "ERASED"]
        told = on(root, "trace", f"{version}@{snapshot}", "8", "--json").json
        assert told["erased"]
        assert [one["erased"] for one in told["steps"]] == [True] * steps
        assert {one["removal"]["operation"] for one in told["steps"]} == {"erase"}
        assert {one["removal"]["file_exists"] for one in told["steps"]} == {True}
    pair = on(root, "trace", "pairs/v1@latest", "8").out.splitlines()[0]
    assert pair.startswith("pairs/v1@1 record 8:")
    assert "digits/v1@1 record 8" in pair
    assert pair.endswith("ERASED")


def test_a_record_beside_an_erased_one_is_not_said_to_be_erased(root: Path) -> None:
    number = Version(root, "digits/v1").latest().take([8]).to_pydict()["id"][0]
    on(root, "erase", "digits", "--where", f"id == {number}", "--yes")
    for record in (7, 9):
        shown = on(root, "trace", "digits/v2@1", f"{record}").out
        assert "ERASED" not in shown
        assert shown.count("erased records") == 2
        told = on(root, "trace", "digits/v2@1", f"{record}", "--json").json
        assert not told["erased"]
        assert [one["removal"]["file_exists"] for one in told["steps"]] == [True, True]
    assert (
        "erased records"
        not in on(root, "trace", "digits/v2@latest", "8").out.split("digits/v2@1")[0]
    )


def test_an_erased_record_whose_file_is_deleted_says_that(root: Path) -> None:
    number = Version(root, "digits/v1").latest().take([8]).to_pydict()["id"][0]
    on(root, "erase", "digits", "--where", f"id == {number}", "--yes")
    on(root, "vacuum", "digits", "--delete", "--retention", "0")
    on(root, "vacuum", "digits", "--delete", "--retention", "0")
    shown = on(root, "trace", "digits/v1@1", "8").out.splitlines()[0]
    assert shown.split()[:4] == ["digits/v1@1", "record", "8:", "ERASED"]
    (step,) = on(root, "trace", "digits/v1@1", "8", "--json").json["steps"]
    assert step["removal"]["file_exists"] is False
    assert step["removal"]["operation"] == "erase"


def test_the_entry_that_a_shard_first_came_by_is_told_both_ways(root: Path) -> None:
    one, two = Version(root, "digits/v1"), Version(root, "digits/v2")
    rebuild(one, snapshot="latest", compression="gzip")
    extend(one, double, two, snapshot="latest")
    restore_version(one, "1")
    extend(one, double, two, snapshot="latest")
    (step, _) = on(root, "trace", "digits/v2@3", "8", "--json").json["steps"]
    assert (step["operation"], step["entry"], step["reused_in"]) == ("extend", 2, 4)
    assert on(root, "trace", "digits/v2@3", "8").out.splitlines()[1].endswith(" entry 4")
    places = on(root, "trace", "digits/v1@3", "8", "--downstream", "--json").json["records"]
    (down,) = (place for place in places if place["shard"] == step["shard"])
    assert (down["entry"], down["snapshots"]) == (2, [[1, 1], [3, 3]])


@pytest.mark.parametrize("how", ["damaged", "not there"])
def test_pairs_without_a_row_map_are_told_with_advice_that_works(root: Path, how: str) -> None:
    one, pairs = Version(root, "digits/v1"), Version(root, "pairs/v1")
    combine(one, one, pairs, on="id", **PREFIXES)
    (rows,) = (root / "pairs/shards").glob("*.rows")
    if how == "damaged":
        flip(rows)
    else:
        rows.unlink()
    up = shardline("trace", "pairs/v1@latest", "5", "--root", root)
    down = shardline("trace", "digits/v1@latest", "5", "--downstream", "--root", root)
    assert (up.code, down.code) == (1, 1)
    (end,) = on(root, "trace", "pairs/v1@latest", "5", "--json").json["steps"][-1]["upstream"]
    assert end["code"] == ("sidecar-mismatch" if how == "damaged" else "row-map-not-found")
    found = {shlex.join(one) for one in up.commands + down.commands}
    (command,) = {one for one in found if one.startswith("combine ")}
    assert not on(root, "trace", "digits/v1@latest", "5", "--downstream", "--json").json["ok"]
    assert shardline(*shlex.split(command)).code == 0
    assert on(root, "trace", "pairs/v1anew@latest", "5").code == 0


def test_a_way_back_that_is_lost_is_a_problem(root: Path) -> None:
    for receipt in (root / "digits/shards").glob("v1.*.receipt"):
        receipt.unlink()
    result = on(root, "trace", "digits/v1@latest", "8")
    assert result.code == 1
    told = on(root, "trace", "digits/v1@latest", "8", "--json").json
    assert not told["ok"]
    assert "unknown" in told["steps"][0]["upstream"][0]


def test_wrong_usage_is_said(root: Path) -> None:
    result = on(root, "trace", "digits/v1@latest", "20", "--json")
    assert result.problem == (2, "record-not-found")
    assert [result.error[name] for name in ("version", "snapshot", "record")] == [
        "digits/v1",
        1,
        20,
    ]
    for number in ("-1", "abc", "1.5"):
        refused = on(root, "trace", "digits/v1@latest", "--json", number)
        assert refused.problem == (2, "invalid-argument")
        assert f"'{number}'" in refused.error["message"]
    alone = on(root, "trace", "digits/v1@latest", "1", "--all", "--json")
    assert alone.problem == (2, "missing-option")
    assert on(root, "trace", "digits/v9", "1", "--json").problem == (2, "version-not-found")
    named = on(root, "trace", "digits", "1", "--json")
    assert named.problem == (2, "missing-version")
    assert "digits/v1, digits/v2" in named.error["hint"]["text"]


def test_names_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    version = Version(tmp_path, "digits/v1", run=HOSTILE)
    append(version, [{"x": 1}], batch=HOSTILE)
    result = on(tmp_path, "trace", "digits/v1@latest", "0")
    assert "\x1b" not in result.out
    assert "\\x1b[31mred" in result.out
