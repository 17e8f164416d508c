"""`shardline erase`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from tests.cli.command import process, shardline
from tests.cli.datasets import damage, on
from tests.operations.erasures import files_with, landed, marker
from tests.operations.extensions import double
from tests.operations.landings import ids, json_lines

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A version of two shards, and overlays on it."""
    v1 = landed(tmp_path, (0, 4), (4, 8))
    v2 = Version(tmp_path / "root", "digits/v2")
    extend(v1, double, v2)
    check_version(v2)
    return tmp_path / "root"


def test_an_erase_from_the_first_look_to_the_proof(root: Path, tmp_path: Path) -> None:
    values = tmp_path / "ids.txt"
    values.write_text("5\n\n99\n7\n")
    chosen = ("--key", "id", "--values", values)
    looked = on(root, "erase", "digits", *chosen, "--dry-run")
    assert looked.code == 0
    plan = on(root, "erase", "digits", *chosen, "--dry-run", "--json").json
    assert (plan["records"], plan["features"], plan["missing_values"]) == (4, ["id"], [2])
    values.write_text("5\n\n7\n")
    assert ids(Version(root, "digits/v1")) == list(range(8))

    done = on(root, "erase", "digits", *chosen, "--request", "ticket 81", "--yes")
    assert done.code == 0, done.err
    assert done.shows("vacuum", "digits", "--delete", "--retention", "0")
    assert done.shows("erase", "digits", "--proof", "proof.md")
    v1, v2 = Version(root, "digits/v1"), Version(root, "digits/v2")
    assert (v1.latest().number, v1.latest().published) == (2, True)
    assert (v2.latest().number, v2.latest().published) == (2, True)
    assert ids(v1) == [0, 1, 2, 3, 4, 6]
    entries = on(root, "log", "digits/v1", "--json").json["entries"]
    (entry,) = [one for one in entries if one["operation"] == "erase"]
    assert entry["parameters"]["request"] == "ticket 81"
    assert len(entry["added"]) == len(entry["removed"]) == 1

    proof = tmp_path / "proof.md"
    early = on(root, "erase", "digits", "--proof", proof)
    assert early.code == 1
    as_data = tmp_path / "early.json"
    stated = on(root, "erase", "digits", "--proof", as_data, "--json").json
    assert (stated["complete"], len(stated["still_there"])) == (False, 4)
    assert [one["records"] for one in stated["entries"]] == [2, 2]
    early_page = proof.read_text()
    assert on(root, "vacuum", "digits", "--delete", "--retention", "0").code == 0
    late = on(root, "erase", "digits", "--proof", proof, *chosen)
    assert late.code == 0, late.out
    text = proof.read_text()
    assert text != early_page
    assert "**Complete: " in text
    assert "**Complete: " not in early_page
    assert "ticket 81" in text
    assert files_with(root, marker(5)) == files_with(root, marker(7)) == []
    told = tmp_path / "proof.json"
    assert on(root, "erase", "digits", "--proof", told, "--request", "ticket 81").code == 0
    assert json.loads(told.read_text())["ok"]
    assert on(root, "erase", "digits", "--proof", told, "--request", "another").code == 1


def test_an_erase_for_machines(root: Path) -> None:
    plan = on(root, "erase", "digits", "--where", "id == 5", "--dry-run", "--json").json
    assert (plan["records"], plan["dry_run"]) == (2, True)
    assert [one["version"] for one in plan["versions"]] == ["digits/v1", "digits/v2"]
    done = on(root, "erase", "digits", "--where", "id == 5", "--yes", "--json").json
    assert (done["ok"], done["records"]) == (True, 2)
    assert [one["snapshot"]["published"] for one in done["done"]] == [True, True]
    assert marker(5) not in json.dumps(done)
    again = on(root, "erase", "digits", "--where", "id == 5", "--yes", "--json").json
    assert (again["records"], again["versions"]) == (0, [])


def test_it_asks_before_it_erases(root: Path) -> None:
    choice = ("--where", "id == 5")
    refused = process("erase", "digits", *choice, "--root", root)
    assert refused.code == 2
    question, *_, error, hint = refused.err.splitlines()
    assert question.endswith("[y/N]: ")
    assert error.startswith("error: no confirmation")
    assert "--yes" in hint
    assert ids(Version(root, "digits/v1")) == list(range(8))


def test_a_function_of_a_file_may_choose(root: Path, tmp_path: Path) -> None:
    (tmp_path / "choose.py").write_text(
        "import pyarrow.compute as pc\n"
        "from shardline import Feature, batch_udf\n"
        "@batch_udf(Feature('meant', 'int64'), reads=['id'], code='1')\n"
        "def last(batch):\n"
        "    return {'meant': pc.cast(pc.greater(batch['id'], 6), 'int64')}\n"
    )
    result = on(root, "erase", "digits", "--where", "choose.py:last", "--yes", cwd=tmp_path)
    assert result.code == 0, result.err
    assert ids(Version(root, "digits/v1")) == list(range(7))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("digits", "--yes"), "missing-argument"),
        (("digits/v1", "--where", "id == 5"), "dataset-required"),
        (("faces", "--where", "id == 5"), "dataset-not-found"),
        (("digits", "--where", "id = 5", "--yes"), "invalid-predicate"),
        (("digits", "--where", "label == 5", "--yes"), "unknown-feature"),
        (("digits", "--key", "id"), "missing-option"),
        (("digits", "--value", "5"), "missing-option"),
        (("digits", "--where", "id == 5", "--key", "id", "--value", "5"), "conflicting-options"),
        (("digits", "--where", "id == 5"), "confirmation-required"),
    ],
)
def test_wrong_usage_is_told(root: Path, arguments: tuple[str, ...], code: str) -> None:
    result = on(root, "erase", *arguments, "--json")
    assert result.problem == (2, code)
    assert ids(Version(root, "digits/v1")) == list(range(8))


def test_a_search_that_finds_nothing_says_so_and_promises_nothing(root: Path) -> None:
    for arguments in (("--dry-run",), ("--yes",)):
        result = on(root, "erase", "digits", "--where", "id == 99", *arguments, "--json")
        assert result.code == 0
        plan = result.json
        assert (plan["ok"], plan["records"], plan["features"]) == (True, 0, ["id"])
        assert plan["versions"] == plan["residual_copies"] == plan["quarantine"] == []
        shown = on(root, "erase", "digits", "--where", "id == 99", *arguments)
        assert (shown.code, shown.commands, shown.out.count("\n")) == (0, [], 1)


def test_a_proof_without_an_erasure_says_that_there_was_none(root: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof.md"
    result = on(root, "erase", "digits", "--proof", proof)
    assert (result.code, result.err) == (1, "")
    assert "entries" not in result.out
    asked = on(root, "erase", "digits", "--proof", proof, "--request", "ticket 9")
    assert "'ticket 9'" in asked.out
    stated = on(root, "erase", "digits", "--proof", tmp_path / "proof.json", "--json").json
    assert (stated["ok"], stated["entries"], stated["still_there"]) == (False, [], [])


def test_what_still_holds_the_records_is_told_with_commands_for_this_root(
    root: Path, tmp_path: Path
) -> None:
    v1 = Version(root, "digits/v1")
    v1.tag("train", 1)
    v1.tag("paper", 1)
    append(Version(root, "digits/other"), json_lines(tmp_path / "other.jsonl", [{"x": 1}]))
    arguments = ("erase", "digits", "--key", "id", "--value", "5", "--root", root)
    looked = shardline(*arguments, "--dry-run")
    assert looked.code == 0
    holders = shardline(*arguments, "--dry-run", "--json").json["residual_copies"]
    kinds = [(one["kind"], one["location"], one["certain"]) for one in holders]
    assert kinds == [
        ("tag", "digits/v1@1", True),
        ("tag", "digits/v1@1", True),
        ("unsearched", "digits/other@1", False),
    ]
    for tag in ("train", "paper"):
        assert looked.shows("tag", "digits/v1@published", tag, "--root", root)
    assert looked.out.count(holders[0]["hint"]) == 1, "what is advised is told once"
    done = shardline(*arguments, "--yes")
    assert done.code == 1, "something may hold them, and something does"
    assert done.shows("vacuum", "digits", "--delete", "--retention", "0", "--root", root)
    vacuumed = shardline("vacuum", "digits", "--delete", "--retention", "0", "--root", root)
    assert vacuumed.shows("tag", "digits/v1", "--delete", "train", "--root", root)
    keepers = shardline("vacuum", "digits", "--root", root, "--json").json["retainers"]
    assert [one["location"] for one in keepers] == ["digits/v1@1"] * 2
    page = tmp_path / "proof.md"
    early = shardline("erase", "digits", "--proof", page, "--root", root)
    assert early.code == 1
    assert page.read_text().lower().count(holders[0]["hint"].lower()) == 1
    rows = [line.split("|")[1:4] for line in page.read_text().splitlines() if "v1@1`" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["yes", "a tag", "`digits/v1@1`"]
    ] * 2
    for tag in ("train", "paper"):
        assert shardline("tag", "digits/v1", "--delete", tag, "--root", root).code == 0
    assert shardline("vacuum", "digits", "--delete", "--retention", "0", "--root", root).code == 0
    assert shardline("erase", "digits", "--proof", page, "--root", root).code == 0
    again = shardline(*arguments[:-2], "--proof", page, "--root", root)
    assert again.code == 1, "with the search, what cannot be searched counts"
    assert "**Complete: " not in page.read_text()
    rows = [line.split("|")[1:4] for line in page.read_text().splitlines() if "other@1" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["maybe", "not searched", "`digits/other@1`"]
    ]


def test_a_damaged_shard_is_told_with_the_command_that_repairs_it(root: Path) -> None:
    v1 = Version(root, "digits/v1")
    damage(root / v1.shard_name(v1.latest().shards[1]))
    result = shardline("erase", "digits", "--where", "id == 5", "--yes", "--root", root, "--json")
    assert result.problem == (1, "corrupt-shard")
    assert (result.error["record"], result.error["offset"]) == (0, 0)
    assert result.error["version"] == "digits/v1"
    assert result.hint == [["repair", "digits/v1", "--root", str(root)]]
    assert v1.state.snapshot == 1


def test_a_proof_replaces_nothing_but_an_earlier_proof_of_the_same_dataset(
    root: Path, tmp_path: Path
) -> None:
    values = tmp_path / "ids.txt"
    values.write_text("5\n")
    entry = root / "digits" / "v1" / "log" / "00000000000000000001.json"
    assert entry.exists()
    kept = {path: path.read_bytes() for path in (entry, values)}
    for place, code in (
        (entry, "output-in-root"),
        (root / "digits" / "proof.md", "output-in-root"),
        (values, "file-exists"),
        (tmp_path, "invalid-option-value"),
    ):
        refused = on(root, "erase", "digits", "--proof", place, "--json")
        assert refused.problem == (2, code)
    chosen = ("--key", "id", "--values", values)
    for forced in ((entry,), (values, *chosen)):
        refused = on(root, "erase", "digits", "--overwrite", "--proof", *forced)
        assert refused.code == 2
    assert {path: path.read_bytes() for path in kept} == kept
    assert not (root / "digits" / "proof.md").exists()

    for name in ("proof.md", "proof.json"):
        proof = tmp_path / name
        assert on(root, "erase", "digits", "--proof", proof).code == 1
        assert on(root, "erase", "digits", "--proof", proof).code == 1
        proof.write_bytes(proof.read_bytes().replace(b"digits", b"faces"))
        assert on(root, "erase", "digits", "--proof", proof).code == 2
        assert on(root, "erase", "digits", "--proof", proof, "--overwrite").code == 1
        assert b"faces" not in proof.read_bytes()
    alone = on(root, "erase", "digits", "--overwrite", "--json")
    assert alone.problem == (2, "missing-option")


def test_a_snapshot_that_was_erased_says_so_when_it_is_read(root: Path) -> None:
    assert on(root, "erase", "digits", "--where", "id == 5", "--yes").code == 0
    assert on(root, "vacuum", "digits", "--delete", "--retention", "0").code == 0
    for version in ("digits/v1", "digits/v2"):
        read = on(root, "head", f"{version}@1", "-n", "8", "--json")
        assert read.problem == (2, "object-not-found")
        assert f"{version}@1" in read.error["message"]
        assert "erased" in read.error["message"]


def test_a_list_of_numbers_may_have_blanks_and_line_ends_of_any_kind(
    root: Path, tmp_path: Path
) -> None:
    values = tmp_path / "ids.txt"
    values.write_bytes("\ufeff5 \r\n \r\n\t7\r\n".encode())
    done = on(root, "erase", "digits", "--key", "id", "--values", values, "--yes")
    assert done.code == 0, done.err
    assert ids(Version(root, "digits/v1")) == [0, 1, 2, 3, 4, 6]


def test_what_is_told_is_what_is_done_in_old_snapshots_and_quarantine_files(
    root: Path, tmp_path: Path
) -> None:
    bad = json_lines(tmp_path / "bad.jsonl", [{"id": 20, "name": "x"}, {"id": 9, "name": {}}])
    append(Version(root, "digits/v1"), bad, max_quarantined=0.9)
    bad.unlink()
    done = on(root, "erase", "digits", "--where", "id == 9", "--yes", "--json")
    assert done.code == 0, done.out
    report = done.json
    assert (report["records"], report["lines"], report["done"]) == (0, 1, [])

    v1 = Version(root, "digits/v1")
    check_version(v1)
    rebuild(v1)
    check_version(v1)
    v1.reject(3)
    v1.restore(2)
    report = on(root, "erase", "digits", "--where", "id == 5", "--yes", "--json").json
    first = report["done"][0]
    assert (first["version"], first["snapshot"]["snapshot"]) == ("digits/v1", 5)
    assert len(first["shards"]) == len(report["versions"][0]["older_shards"]) == 1
    append(Version(root, "digits/v3"), json_lines(tmp_path / "a.jsonl", [{"id": 30}]))
    v3 = Version(root, "digits/v3")
    append(v3, json_lines(tmp_path / "b.jsonl", [{"id": 31}]))
    v3.restore(1)
    report = on(root, "erase", "digits", "--where", "id == 31", "--yes", "--json").json
    (last,) = report["done"]
    assert (last["version"], last["snapshot"], last["shards"]) == ("digits/v3", None, [])
    assert len(report["versions"][0]["older_shards"]) == 1


def test_whoever_asks_for_a_snapshot_that_is_gone_hears_why_and_nothing_is_begun(
    root: Path, tmp_path: Path
) -> None:
    assert on(root, "erase", "digits", "--where", "id == 5", "--yes").code == 0
    assert on(root, "vacuum", "digits", "--delete", "--retention", "0").code == 0
    before = sorted(root.rglob("*"))
    for command in (
        ("files", "digits/v1@1"),
        ("files", "digits/v1@1", "--python"),
        ("rebuild", "digits/v1@1", "--into", "one"),
        ("extend", "digits/v1@1", "--into", "v3", "--udf", "tests.operations.extensions:double"),
    ):
        result = on(root, *command, *(() if "--python" in command else ("--json",)))
        assert result.code == 2
        assert "entry 9" in result.err
        if "--python" not in command:
            assert result.error["code"] == "tombstoned-shard"
            assert result.error["version"] == "digits/v1"
            assert all(name.startswith("v1.") for name in result.error["names"])
    out = tmp_path / "out.tfrecord"
    exported = on(root, "export", "digits/v1@1", "-o", out, "--json")
    assert exported.problem == (2, "object-not-found")
    assert not out.exists()
    assert sorted(root.rglob("*")) == before


def test_erase_again_checks_what_a_stopped_erase_left(root: Path) -> None:
    chosen = ("--key", "id", "--value", "5")
    assert on(root, "erase", "digits", *chosen, "--yes", "--no-check").code == 0
    status = on(root, "status", "digits/v1")
    assert status.shows("check", "digits/v1@2")
    again = on(root, "erase", "digits", *chosen, "--dry-run")
    assert again.code == 0
    assert Version(root, "digits/v1").state.published is None
    assert on(root, "erase", "digits", *chosen).code == 0
    for name in ("digits/v1", "digits/v2"):
        assert Version(root, name).latest().published
