"""`shardline log`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.log.append_change import Append
from shardline.log.changes import Derive, Replace
from shardline.log.model import Attestation, Checks
from shardline.operations.check import check_version
from shardline.operations.vacuum import vacuum
from tests.cli.command import shardline
from tests.cli.datasets import (
    HOSTILE,
    MISFIT,
    damage,
    entry_file,
    land,
    landed,
    narrow,
    on,
    squeezed,
)
from tests.log.versions import (
    NAME,
    Clock,
    append,
    make_version,
    rebuild,
    shard_name,
    source_of,
    write_shard,
)

if TYPE_CHECKING:
    from pathlib import Path


def told(root: Path, *arguments: str) -> dict[int, str]:
    """What is said to have happened, by entry, on a wide terminal."""
    result = on(root, "log", NAME, *arguments)
    assert result.code == 0, result.err
    rows = [line for line in result.out.splitlines() if re.match(r" *\d+ ", line)]
    return {int(row.split()[0]): " ".join(row.split()[3:]) for row in rows}


def test_each_entry_is_told_in_words_with_its_snapshot_and_what_is_published(
    tmp_path: Path,
) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    check_version(version)
    version.tag("train-1", 1)
    version.tag("train-1", None)
    land(version, "two")
    version.restore(1)
    version.pin("faces/v2", 1, "its base")
    version.require(Checks(("integrity",), ("counts",)))
    rows = told(tmp_path)
    for number, columns, parts in (
        (1, "create - -", ("1 feature", "integrity and schema")),
        (2, "append 1 -", ("+1 shard", "3 records")),
        (3, "attest 1 1", ("integrity, schema passed", "1 shard")),
        (4, "append 2 1", ("+1 shard", "2 records")),
        (5, "reject 3 3", ("snapshot 2", "(-1 shard)", "record 1", "feature 'x'")),
        (6, "tag 3 3", ("train-1 → 1",)),
        (7, "tag 3 3", ("train-1 deleted",)),
        (8, "append 4 3", ("+1 shard", "3 records")),
        (9, "restore 5 5", ("snapshot 1", "(-1 shard)")),
        (10, "pin 5 5", ("faces/v2 → 1", "(its base)")),
        (11, "require 5 5", ("integrity and counts",)),
    ):
        assert rows[number].startswith(columns), number
        assert all(part in rows[number] for part in parts), number
    assert sorted(rows) == list(range(1, 12))


def test_rebuilds_snapshot_checks_and_vacuums_are_told_too(tmp_path: Path) -> None:
    clock = Clock()
    version = make_version(tmp_path, clock=clock, checks=Checks((), ("counts",)))
    append(version, "a", "bb")
    content = version.latest().content
    version.attest([Attestation("counts", passed=True, content=content)])
    rebuild(version, ["a", "bb"], "abb")
    version.attest([Attestation("counts", passed=False, content=content, detail="too few")])
    content = version.latest().content
    version.attest([Attestation("counts", passed=True, content=content)])
    clock.move(days=30)
    vacuum(tmp_path, "digits", dry_run=False, clock=clock)
    rows = told(tmp_path, "-n", "6")
    content = version.snapshot(1).content[:12]
    for number, columns, parts in (
        (2, "append 1 -", ("+2 shards", "3 records")),
        (3, "attest 1 1", ("counts passed", "snapshot 1")),
        (4, "rebuild 2 1", ("2 shards", "3 records")),
        (5, "attest 2 -", ("counts failed", f"{content}…: too few")),
        (6, "attest 2 2", ("counts passed", "snapshot 2")),
        (7, "vacuum 2 2", ("2 files",)),
    ):
        assert rows[number].startswith(columns), number
        assert all(part in rows[number] for part in parts), number
    assert sorted(rows) == list(range(2, 8))


def test_what_others_write_into_parameters_is_no_trouble(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "a")
    for number, quarantine in enumerate([HOSTILE, 7, [7], [{"rows": "x"}], {"rows": 1}, None]):
        label = f"b{number}"
        change = Append(
            shards=[write_shard(version, label, source=source_of(label))],
            sources=[source_of(label)],
            parameters={"quarantine": quarantine, "how": [HOSTILE], "lost_records": HOSTILE},
            operation=HOSTILE if number else "append",
        )
        version.commit(change)
    version.commit(Replace(removed=[shard_name("a")], added=[], operation="repair"))
    result = on(tmp_path, "log", NAME)
    assert (result.code, "\x1b" in result.out) == (0, False)
    assert "made anew" in result.out
    assert "quarantine" not in result.out


ODD_PARAMETERS: dict[str, tuple[str, dict[str, object], str]] = {
    "nothing": ("extend", {}, "extended: 0 shards computed, 0 reused; -1 shard"),
    "an extension by something": (
        "extend",
        {"fields": [7, {"features": [HOSTILE]}], "drop": "all", "computed": "many", "reused": 2},
        r"extended by \x1b[31mred\x1b]0;title\x07: 0 shards computed, 2 reused",
    ),
    "many fields": (
        "extend",
        {"fields": [{"features": list("abcdefgh")}]},
        "extended by a, b, c, d, e, f and 2 more: ",
    ),
    "a migration by something": (
        "migrate",
        {"rename": ["x"], "cast": {"x": 3}, "default": {}},
        "migrated (x as 3): 0 shards computed, 0 reused",
    ),
    "a combination by something": (
        "combine",
        {"rule": {"on": [["x", "y"], 7], "where": None}, "limit": "all"},
        "combined (by x = y, some of the pairs): 0 shards",
    ),
    "a combination without a rule": ("combine", {"rule": "none"}, "combined: 0 shards computed"),
}


@pytest.mark.parametrize("what", ODD_PARAMETERS)
def test_what_others_say_of_what_they_derived_is_no_trouble(tmp_path: Path, what: str) -> None:
    operation, parameters, words = ODD_PARAMETERS[what]
    version = landed(tmp_path, "one")
    names = [shard.name for shard in version.latest().shards]
    version.commit(
        Derive(head=1, removed=names, added=[], operation=operation, parameters=parameters)
    )
    result = on(tmp_path, "log", NAME)
    assert result.code == 0
    assert words in squeezed(result.out)
    assert "\x1b" not in result.out


def test_the_newest_comes_first_and_n_says_how_many(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    assert list(told(tmp_path)) == [5, 4, 3, 2, 1]
    assert list(told(tmp_path, "-n", "2")) == [5, 4]
    assert "3 older entries" in on(tmp_path, "log", NAME, "-n", "2").out
    assert "older" not in on(tmp_path, "log", NAME, "--all").out


def test_json_gives_the_entries_as_they_lie_in_the_log(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    result = on(tmp_path, "log", NAME, "--json")
    assert (result.code, result.err) == (0, "")
    assert set(result.json) == {"ok", "version", "entries"}
    assert (result.json["ok"], result.json["version"]) == (True, NAME)
    entries = [version.log.entry(number) for number in (3, 2, 1)]
    assert result.json["entries"] == [
        {**entry.to_dict(), "digest": entry.digest} for entry in entries
    ]


@pytest.mark.parametrize("count", [1, 20, 64, 65])
def test_only_as_much_is_read_as_is_shown(tmp_path: Path, count: int) -> None:
    version = make_version(tmp_path)
    append(version, "one")
    for number in range(3, 131):
        version.tag(f"tag-{number}", 1)
    for number in range(1, 131 - count):
        damage(entry_file(tmp_path, number))
    result = on(tmp_path, "log", NAME, "-n", str(count), "--json")
    assert result.code == 0, result.err
    numbers = [entry["number"] for entry in result.json["entries"]]
    assert numbers == list(range(130, 130 - count, -1))
    assert on(tmp_path, "log", NAME, "-n", str(count + 1)).code == 1


def test_a_damaged_entry_is_told_in_its_place_with_code_1(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(entry_file(tmp_path, 3))
    result = on(tmp_path, "log", NAME)
    assert result.code == 1
    assert re.search(r"\n +3 +CORRUPT: ", result.out)
    assert result.commands == [["verify", NAME]]
    as_json = on(tmp_path, "log", NAME, "--json")
    assert (as_json.code, as_json.json["ok"]) == (1, False)
    damaged = as_json.json["entries"][2]
    assert (set(damaged), damaged["number"]) == ({"number", "error"}, 3)


def test_a_missing_entry_is_told_with_code_1(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two", "three")
    entry_file(tmp_path, 5).unlink()
    result = on(tmp_path, "log", NAME)
    assert result.code == 1
    assert "missing" in result.out


def test_eighty_columns_are_enough(tmp_path: Path) -> None:
    version = landed(tmp_path, "one")
    land(version, "bad", MISFIT)
    check_version(version)
    result = narrow(tmp_path, "log", NAME)
    assert result.code == 0
    assert "append: +1 shard" in result.out
    cells = squeezed(" ".join(line[46:] for line in result.out.splitlines()))
    assert all(words in cells for words in ("snapshot 2", "(-1 shard)", "schema failed"))


def test_who_made_the_entries_is_told_once_if_it_was_always_the_same(tmp_path: Path) -> None:
    run = "0fe3d9e4-77ba-4f2c-9d3e-2b9f11c4a7de"
    version = Version(tmp_path, NAME, run=run)
    landed(tmp_path, "one")
    land(version, "two")
    assert "by run 0fe3d9e4…" in on(tmp_path, "log", NAME, "-n", "1").out
    mixed = on(tmp_path, "log", NAME).out
    assert "all by" not in mixed
    assert mixed.splitlines()[0].split()[-1] == "by"
    assert mixed.splitlines()[2].rstrip().endswith("run 0fe3d9e4…")


def test_nothing_in_the_log_can_command_the_terminal(tmp_path: Path) -> None:
    version = Version(tmp_path, NAME, run=HOSTILE)
    landed(tmp_path, "one")
    version.pin("training", 1, HOSTILE)
    shards = (shard_name("one"),)
    version.attest([Attestation(HOSTILE, passed=False, shards=shards, detail=HOSTILE)])
    for arguments in ([], ["--json"]):
        result = on(tmp_path, "log", NAME, *arguments)
        assert result.code == 0, result.err
        assert "\x1b" not in result.out
        assert "\x07" not in result.out
        assert "[31mred" in result.out


def test_a_version_that_was_only_created_has_a_log(tmp_path: Path) -> None:
    make_version(tmp_path)
    assert list(told(tmp_path)) == [1]


def test_a_snapshot_is_refused_and_so_is_what_is_not_there(tmp_path: Path) -> None:
    landed(tmp_path, "one")
    for argument, code in (
        (f"{NAME}@1", "unexpected-snapshot"),
        ("digits", "missing-version"),
        ("digits/v2", "version-not-found"),
        ("faces/v1", "dataset-not-found"),
    ):
        result = on(tmp_path, "log", argument, "--json")
        assert result.problem == (2, code)
    assert on(tmp_path, "log", NAME, "-n", "0").code == 2


def test_the_root_may_be_an_object_store(s3_root: str) -> None:
    version = make_version(s3_root)
    append(version, "one")
    result = shardline("log", NAME, "--root", s3_root, "--json")
    assert result.code == 0, result.err
    assert [entry["operation"] for entry in result.json["entries"]] == ["append", "create"]
