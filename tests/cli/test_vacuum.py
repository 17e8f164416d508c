"""`shardline vacuum`."""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import click
import pytest

from shardline.api import Version
from shardline.cli.options import Duration, format_duration
from tests.cli.command import on_terminal, shardline
from tests.cli.datasets import file_of, landed, narrow, on, squeezed
from tests.log.versions import NAME, append, make_version, write_shard

if TYPE_CHECKING:
    from pathlib import Path


def rolled_back(root: Path) -> None:
    """A dataset of which one shard is in no snapshot that a keep of 0 keeps."""
    landed(root, "one", "two").restore(1)


def test_nothing_is_deleted_unless_asked_and_the_command_that_does_is_told(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    result = narrow(tmp_path, "vacuum", "digits", "--retention", "0")
    assert result.code == 0
    assert f"digits/shards/{file_of(tmp_path, 'two').name}" in result.out
    assert re.search(r" bytes +\d+ (second|minute)s?\n", result.out)
    command = ["vacuum", "digits", "--delete", "--retention", "0"]
    assert result.commands == [command]
    assert file_of(tmp_path, "two").exists()
    told = shardline("vacuum", "digits", "--retention", "0", "--root", tmp_path)
    assert told.commands == [[*command, "--root", str(tmp_path)]]


def test_delete_deletes_what_was_told_and_nothing_else(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    result = narrow(tmp_path, "vacuum", "digits", "--retention", "0", "--delete")
    assert result.code == 0
    assert "1 file" in result.out
    assert not file_of(tmp_path, "two").exists()
    assert file_of(tmp_path, "one").exists()
    assert on(tmp_path, "vacuum", "digits", "--retention", "0", "--json").json["files"] == []
    assert on(tmp_path, "verify", NAME).code == 0


def test_what_was_in_use_a_moment_ago_is_kept(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    result = on(tmp_path, "vacuum", "digits", "--delete")
    assert "(--retention 1w)" in result.out
    assert result.commands == [["vacuum", "digits", "--delete", "--retention", "0"]]
    report = on(tmp_path, "vacuum", "digits", "--delete", "--json").json
    assert (report["files"], report["kept_files"]) == ([], 2)
    assert [one["kind"] for one in report["retainers"]] == ["time"]
    assert file_of(tmp_path, "two").exists()


def test_a_tag_keeps_its_snapshot(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    on(tmp_path, "tag", f"{NAME}@2", "train-1")
    result = on(tmp_path, "vacuum", "digits", "--retention", "0")
    assert result.shows("tag", NAME, "--delete", "train-1")
    (retainer,) = on(tmp_path, "vacuum", "digits", "--retention", "0", "--json").json["retainers"]
    assert (retainer["kind"], retainer["location"], retainer["files"]) == ("tag", f"{NAME}@2", 1)


def test_whoever_else_keeps_a_snapshot_is_told_with_what_to_do(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    version = Version(tmp_path, NAME)
    version.pin("consumer model run-7 on 2", 2)
    version.pin("someone", 2)
    result = on(tmp_path, "vacuum", "digits", "--retention", "0")
    assert result.shows("consumers", NAME, "--release", "model")
    assert f"[{NAME!r}].pin('someone', None)" in result.out


def test_pins_that_nothing_needs_are_told_with_when_what_they_held_goes(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    make_version(tmp_path, "digits/v2")
    Version(tmp_path, NAME).pin("digits/v2 on 2", 2)
    at_once = ("vacuum", "digits", "--retention", "0")
    (pin,) = on(tmp_path, *at_once, "--json").json["released_pins"]
    assert pin.startswith("digits/v1: digits/v2")
    assert "1 unused pin" in on(tmp_path, *at_once).out
    later = on(tmp_path, "vacuum", "digits", "--retention", "1h").out
    assert all(words in later for words in ("1 unused pin", "for 1h"))
    later_done = on(tmp_path, "vacuum", "digits", "--delete", "--retention", "1h")
    assert later_done.commands[-1] == ["vacuum", "digits", "--delete", "--retention", "1h"]
    assert file_of(tmp_path, "two").exists()
    Version(tmp_path, NAME).pin("digits/v2 on 2", 2)
    done = on(tmp_path, *at_once, "--delete")
    assert "1 unused pin" in done.out
    assert "for 1h" not in done.out
    assert not file_of(tmp_path, "two").exists()


def test_json_tells_each_file_and_why(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    path = file_of(tmp_path, "two")
    size = path.stat().st_size
    for arguments, dry_run in (([], True), (["--delete"], False)):
        result = on(tmp_path, "vacuum", "digits", "--retention", "0", "--json", *arguments)
        assert (result.code, result.err) == (0, "")
        (file,) = result.json.pop("files")
        assert file.pop("modified").endswith("+00:00")
        assert file.pop("reason")
        assert file == {"file": f"digits/shards/{path.name}", "bytes": size}
        assert {name: result.json[name] for name in ("ok", "dataset", "dry_run")} == {
            "ok": True,
            "dataset": "digits",
            "dry_run": dry_run,
        }
        assert (result.json["bytes"], result.json["kept_files"]) == (size, 1)


def test_the_files_are_told_by_reason_and_with_their_age(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    left = file_of(tmp_path, "three")
    left.write_bytes(b"never committed")
    long_ago = left.stat().st_mtime - 30 * 86_400
    os.utime(left, (long_ago, long_ago))
    out = narrow(tmp_path, "vacuum", "digits", "--retention", "0").out
    never = squeezed(out[out.index("never committed") :])
    cells = never.split("age ")[1].lstrip("─ ").split()
    assert cells[:5] == [f"digits/shards/{left.name}", "15", "bytes", "30", "days"]


def test_many_files_are_counted_and_all_shows_them(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    append(version, "first")
    append(version, *(f"shard {number}" for number in range(30)))
    version.restore(1)
    short = on(tmp_path, "vacuum", "digits", "--retention", "0").out
    assert short.count(".tfrecord") == 20
    assert "10 more" in short
    assert "30 files (" in short
    assert (
        on(tmp_path, "vacuum", "digits", "--retention", "0", "--all").out.count(".tfrecord") == 30
    )


@pytest.mark.sweep
def test_a_terminal_gets_a_progress_bar_while_files_are_deleted(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    arguments = ("vacuum", "digits", "--retention", "0", "--root", tmp_path)
    code, drawn = on_terminal(*arguments)
    assert (code, drawn) == (0, "")
    code, drawn = on_terminal(*arguments, "--delete")
    assert code == 0
    assert "deleting" in drawn
    assert "━" in drawn
    assert not file_of(tmp_path, "two").exists()


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("7d", timedelta(days=7)),
        ("12h", timedelta(hours=12)),
        ("30m", timedelta(minutes=30)),
        ("90s", timedelta(seconds=90)),
        ("2w", timedelta(weeks=2)),
        ("0", timedelta(0)),
        ("36500d", timedelta(days=36_500)),
    ],
)
def test_a_length_of_time_is_read_and_written_alike(text: str, span: timedelta) -> None:
    assert Duration().convert(text, None, None) == span
    assert Duration().convert(format_duration(span), None, None) == span


@pytest.mark.parametrize(
    "text",
    ["", "7", "d", "-1d", "7 d", "7D", "1.5d", "7d12h", "1e3d", "\u0667d", "36501d", "9" * 5000],
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([NAME], "dataset-required"),
        (["digits", "--retention", "soon"], "invalid-option-value"),
        (["faces"], "dataset-not-found"),
        (["Digits"], "invalid-name"),
        (["../digits"], "invalid-name"),
        ([""], "invalid-name"),
    ],
)
def test_what_cannot_be_vacuumed_is_told_with_code_2(
    tmp_path: Path, arguments: list[str], code: str
) -> None:
    landed(tmp_path, "one")
    result = on(tmp_path, "vacuum", *arguments, "--json")
    assert result.problem == (2, code)
    assert Version(tmp_path, NAME).state.number == 3


def test_shards_without_a_log_go_only_if_named(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    lost = make_version(tmp_path, "digits/v2")
    orphan = tmp_path / lost.shard_name(write_shard(lost, "x"))
    shutil.rmtree(tmp_path / "digits" / "v2")
    at_once = ("vacuum", "digits", "--retention", "0")
    told = on(tmp_path, *at_once, "--delete", "--json").json
    assert [(one["kind"], one["location"]) for one in told["retainers"]] == [("log", "digits/v2")]
    assert orphan.exists()
    would = on(tmp_path, *at_once, "--without-log", "v2")
    assert would.commands == [
        ["vacuum", "digits", "--delete", "--retention", "0", "--without-log", "v2"]
    ]
    assert on(tmp_path, *would.commands[0]).code == 0
    assert not orphan.exists()


def test_incomplete_log_error_names_what_is_missing(tmp_path: Path) -> None:
    rolled_back(tmp_path)
    Version(tmp_path, NAME).pin("digits/v2 on 1", 1)
    result = on(tmp_path, "vacuum", "digits", "--delete", "--retention", "0", "--json")
    assert result.code == 1
    error = result.json["error"]
    assert (error["code"], error["version"]) == ("incomplete-log", "digits/v2")
    assert [one["version"] for one in error["missing"]] == ["digits/v2"]
    assert file_of(tmp_path, "two").exists()
