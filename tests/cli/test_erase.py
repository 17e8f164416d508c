"""`shardline erase`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from shardline.log.version import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.extend import extend
from shardline.operations.rebuild import rebuild
from tests.cli.command import inside
from tests.cli.datasets import damage, here, on
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
    looked = here(root, "erase", "digits", *chosen, "--dry-run")
    assert looked.code == 0
    assert "records found by 3 values of id" in looked.out
    assert "1 value of the list is in no record: 2 of it, not counting blank" in looked.out
    assert here(root, "erase", "digits", *chosen, "--dry-run", "--json").json["unmet"] == [2]
    values.write_text("5\n\n7\n")
    assert "Nothing was changed" in looked.out
    assert ids(Version(root, "digits/v1")) == list(range(8))

    done = here(root, "erase", "digits", *chosen, "--request", "ticket 81", "--yes")
    assert done.code == 0, done.err
    assert "digits/v1@2: 2 records erased, 1 shard written anew" in done.out
    assert "digits/v2@2 is published" in done.out
    assert "vacuum digits --delete --keep 0" in done.out
    assert ids(Version(root, "digits/v1")) == [0, 1, 2, 3, 4, 6]
    log = here(root, "log", "digits/v1")
    assert "erased 2 records (ticket 81), 1 shard anew; 1 shard given up for good" in log.out

    proof = tmp_path / "proof.md"
    early = here(root, "erase", "digits", "--proof", proof)
    assert early.code == 1
    assert "2 entries erased 4 records; 2 shards held them, of which 2 are still there" in early.out
    assert "Not complete: 2 shards with erased records are still there" in proof.read_text()
    assert here(root, "vacuum", "digits", "--delete", "--keep", "0").code == 0
    late = here(root, "erase", "digits", "--proof", proof, *chosen)
    assert late.code == 0, late.out
    text = proof.read_text()
    assert "**Complete: every file that held the records is gone" in text
    assert "| digits/v1 | 1 |" in text
    assert "ticket 81" in text
    assert files_with(root, marker(5)) == files_with(root, marker(7)) == []
    told = tmp_path / "proof.json"
    assert here(root, "erase", "digits", "--proof", told, "--request", "ticket 81").code == 0
    assert json.loads(told.read_text())["ok"]
    assert here(root, "erase", "digits", "--proof", told, "--request", "another").code == 1


def test_an_erase_for_machines(root: Path) -> None:
    plan = here(root, "erase", "digits", "--where", "id == 5", "--dry-run", "--json").json
    assert (plan["records"], plan["dry_run"]) == (2, True)
    assert [one["version"] for one in plan["versions"]] == ["digits/v1", "digits/v2"]
    done = here(root, "erase", "digits", "--where", "id == 5", "--yes", "--json").json
    assert (done["ok"], done["records"]) == (True, 2)
    assert [one["snapshot"]["published"] for one in done["done"]] == [True, True]
    assert marker(5) not in json.dumps(done)
    again = here(root, "erase", "digits", "--where", "id == 5", "--yes", "--json").json
    assert (again["records"], again["versions"]) == (0, [])


def test_it_asks_before_it_erases(root: Path) -> None:
    refused = on(root, "erase", "digits", "--where", "id == 5")
    assert refused.code == 2
    assert "Erase this for good?" in refused.err
    assert "nobody answered, and nothing was changed: say --yes" in refused.err
    assert ids(Version(root, "digits/v1")) == list(range(8))


def test_a_function_of_a_file_may_choose(root: Path, tmp_path: Path) -> None:
    (tmp_path / "choose.py").write_text(
        "import pyarrow.compute as pc\n"
        "from shardline import Feature, batch_fields\n"
        "@batch_fields(Feature('meant', 'int64'), reads=['id'], code='1')\n"
        "def last(batch):\n"
        "    return {'meant': pc.cast(pc.greater(batch['id'], 6), 'int64')}\n"
    )
    result = here(root, "erase", "digits", "--where", "choose.py:last", "--yes", cwd=tmp_path)
    assert result.code == 0, result.err
    assert ids(Version(root, "digits/v1")) == list(range(7))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("digits",), "which records"),
        (("digits/v1", "--where", "id == 5"), "erase works on a whole dataset"),
        (("faces", "--where", "id == 5"), "there is no dataset faces"),
        (("digits", "--where", "id = 5"), "cannot be read at character"),
        (("digits", "--where", "label == 5"), "no version of digits has 'label'"),
        (("digits", "--key", "id"), "which values of id"),
        (("digits", "--value", "5"), "values of which feature"),
        (("digits", "--where", "id == 5", "--key", "id", "--value", "5"), "not both"),
        (("digits", "--where", "id == 5", "--json"), "say --yes, or --dry-run"),
    ],
)
def test_wrong_usage_is_told(root: Path, arguments: tuple[str, ...], why: str) -> None:
    result = here(root, "erase", *arguments)
    assert result.code == 2
    assert why in result.err
    assert ids(Version(root, "digits/v1")) == list(range(8))


def test_a_search_that_finds_nothing_says_so_and_promises_nothing(root: Path) -> None:
    for arguments in (("--dry-run",), ()):
        result = here(root, "erase", "digits", "--where", "id == 99", *arguments)
        assert result.code == 0
        assert result.out.strip() == (
            "digits: no record is found by a predicate on id: there is nothing to erase"
        )


def test_a_proof_without_an_erasure_says_that_there_was_none(root: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof.md"
    result = here(root, "erase", "digits", "--proof", proof)
    assert (result.code, result.err) == (1, "")
    assert "Nothing was erased from digits: there is nothing to prove" in result.out
    assert "entries" not in result.out
    asked = here(root, "erase", "digits", "--proof", proof, "--request", "ticket 9")
    assert "under the request 'ticket 9'" in asked.out


def test_what_still_holds_the_records_is_told_with_commands_for_this_root(
    root: Path, tmp_path: Path
) -> None:
    v1 = Version(root, "digits/v1")
    v1.tag("train", 1)
    v1.tag("paper", 1)
    append(Version(root, "digits/other"), json_lines(tmp_path / "other.jsonl", [{"x": 1}]))
    arguments = ("erase", "digits", "--key", "id", "--value", "5", "--root", root)
    looked = inside(*arguments, "--dry-run")
    assert looked.code == 0
    for tag in ("train", "paper"):
        assert f"tag digits/v1@1: the tag {tag} keeps it from vacuum" in looked.out
        assert f"shardline tag digits/v1@published {tag} --root {root}" in looked.out
    assert looked.out.count("let the tag name the newest") == 1, "what is advised is told once"
    done = inside(*arguments, "--yes")
    assert done.code == 1, "something may hold them, and something does"
    told = "2 tags and 1 place that was not searched listed above still hold such records, or may"
    assert told in done.out
    assert f"vacuum digits --delete --keep 0 --root {root}" in done.out
    vacuumed = inside("vacuum", "digits", "--delete", "--keep", "0", "--root", root)
    assert "digits/v1@1: 1 shard (" in vacuumed.out
    assert "1 with erased records): it has the tag train" in vacuumed.out
    assert f"shardline tag digits/v1 --delete train --root {root}" in vacuumed.out
    page = tmp_path / "proof.md"
    early = inside("erase", "digits", "--proof", page, "--root", root)
    assert early.code == 1
    assert "1 shard held them" not in early.out
    assert page.read_text().count("Let the tag name the newest") == 1
    assert "| yes | a tag | `digits/v1@1` |" in page.read_text()
    for tag in ("train", "paper"):
        assert inside("tag", "digits/v1", "--delete", tag, "--root", root).code == 0
    assert inside("vacuum", "digits", "--delete", "--keep", "0", "--root", root).code == 0
    assert inside("erase", "digits", "--proof", page, "--root", root).code == 0
    again = inside(*arguments[:-2], "--proof", page, "--root", root)
    assert again.code == 1, "with the search, what cannot be searched counts"
    assert "Not complete: every file that is known to have held the records is gone" in (
        page.read_text()
    )
    assert "| maybe | not searched | `digits/other@1` |" in page.read_text()


def test_a_damaged_shard_is_told_with_the_command_that_repairs_it(root: Path) -> None:
    v1 = Version(root, "digits/v1")
    damage(root / v1.shard_name(v1.newest().shards[1]))
    result = inside("erase", "digits", "--where", "id == 5", "--yes", "--root", root)
    assert result.code == 1
    assert "record 0, offset 0" in result.err
    assert f"Nothing was erased. To make it anew: shardline repair digits/v1 --root {root}" in (
        result.err
    )
    assert "salvage" not in result.err


def test_a_proof_replaces_nothing_but_an_earlier_proof_of_the_same_dataset(
    root: Path, tmp_path: Path
) -> None:
    values = tmp_path / "ids.txt"
    values.write_text("5\n")
    entry = root / "digits" / "v1" / "log" / "00000000000000000001.json"
    assert entry.exists()
    kept = {path: path.read_bytes() for path in (entry, values)}
    for place, why in (
        (entry, "lies in the root"),
        (root / "digits" / "proof.md", "lies in the root"),
        (values, "exists already: choose another name, or say --overwrite"),
        (tmp_path, "is a directory"),
    ):
        refused = here(root, "erase", "digits", "--proof", place)
        assert (refused.code, refused.out) == (2, "")
        assert why in refused.err
    chosen = ("--key", "id", "--values", values)
    for forced in ((entry,), (values, *chosen)):
        refused = here(root, "erase", "digits", "--overwrite", "--proof", *forced)
        assert refused.code == 2
    assert {path: path.read_bytes() for path in kept} == kept
    assert not (root / "digits" / "proof.md").exists()

    for name in ("proof.md", "proof.json"):
        proof = tmp_path / name
        assert here(root, "erase", "digits", "--proof", proof).code == 1
        assert here(root, "erase", "digits", "--proof", proof).code == 1
        proof.write_bytes(proof.read_bytes().replace(b"digits", b"faces"))
        assert here(root, "erase", "digits", "--proof", proof).code == 2
        assert here(root, "erase", "digits", "--proof", proof, "--overwrite").code == 1
        assert b"faces" not in proof.read_bytes()
    assert "is for --proof" in here(root, "erase", "digits", "--overwrite").err


def test_a_snapshot_that_was_erased_says_so_when_it_is_read(root: Path) -> None:
    assert here(root, "erase", "digits", "--where", "id == 5", "--yes").code == 0
    assert here(root, "vacuum", "digits", "--delete", "--keep", "0").code == 0
    for version in ("digits/v1", "digits/v2"):
        read = here(root, "head", f"{version}@1", "-n", "8")
        assert read.code == 2
        assert f"{version}@1 needs it: records of it were erased in entry " in read.err
        assert " of digits/v1; read another snapshot" in read.err


def test_a_list_of_numbers_may_have_blanks_and_line_ends_of_any_kind(
    root: Path, tmp_path: Path
) -> None:
    values = tmp_path / "ids.txt"
    values.write_bytes("\ufeff5 \r\n \r\n\t7\r\n".encode())
    done = here(root, "erase", "digits", "--key", "id", "--values", values, "--yes")
    assert done.code == 0, done.err
    assert "records found by 2 values of id" in done.out
    assert ids(Version(root, "digits/v1")) == [0, 1, 2, 3, 4, 6]


def test_what_is_told_is_what_is_done_in_old_snapshots_and_quarantine_files(
    root: Path, tmp_path: Path
) -> None:
    bad = json_lines(tmp_path / "bad.jsonl", [{"id": 20, "name": "x"}, {"id": 9, "name": {}}])
    append(Version(root, "digits/v1"), bad, quarantine_share=0.9)
    bad.unlink()
    done = here(root, "erase", "digits", "--where", "id == 9", "--yes")
    assert done.code == 0, done.out
    assert "no record is found by a predicate on id, but rows that were refused are" in done.out
    assert "1 line deleted from quarantine files" in done.out
    assert not any(words in done.out for words in ("snapshots", "anew", "vacuum", "proof"))

    v1 = Version(root, "digits/v1")
    check_version(v1)
    rebuild(v1)
    check_version(v1)
    v1.reject(3)
    v1.restore(2)
    done = here(root, "erase", "digits", "--where", "id == 5", "--yes")
    assert "digits/v1@5: 1 record erased, 1 shard written anew, 1 older shard given up" in done.out
    append(Version(root, "digits/v3"), json_lines(tmp_path / "a.jsonl", [{"id": 30}]))
    v3 = Version(root, "digits/v3")
    append(v3, json_lines(tmp_path / "b.jsonl", [{"id": 31}]))
    v3.restore(1)
    done = here(root, "erase", "digits", "--where", "id == 31", "--yes")
    assert "digits/v3: 1 older shard given up for good (entry " in done.out
    assert "written anew" not in done.out


def test_whoever_asks_for_a_snapshot_that_is_gone_hears_why_and_nothing_is_begun(
    root: Path, tmp_path: Path
) -> None:
    assert here(root, "erase", "digits", "--where", "id == 5", "--yes").code == 0
    assert here(root, "vacuum", "digits", "--delete", "--keep", "0").code == 0
    before = sorted(root.rglob("*"))
    for command in (
        ("files", "digits/v1@1"),
        ("files", "digits/v1@1", "--python"),
        ("rebuild", "digits/v1@1", "--into", "one"),
        ("extend", "digits/v1@1", "--into", "v3", "--fields", "tests.operations.extensions:double"),
    ):
        result = here(root, *command)
        assert result.code == 2
        assert "snapshot 1" in result.err
        assert " any more: shard v1." in result.err
        assert "went to vacuum in entry" in result.err
    out = tmp_path / "out.tfrecord"
    exported = here(root, "export", "digits/v1@1", out)
    assert exported.code == 2
    assert "is not there, and digits/v1@1 needs it: records of it were erased in" in exported.err
    assert not out.exists()
    assert sorted(root.rglob("*")) == before
