"""`shardline head`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.cli.command import shardline
from tests.cli.datasets import damage, file_of, landed, on, write_rows
from tests.kernel.frames import framed
from tests.log.versions import NAME
from tests.tfrecord.samples import example_of, made, packed, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

NUMBERED = [example_of(n=number) for number in range(20)]


def numbers(*arguments: str | Path) -> list[int]:
    result = shardline("head", "--json", *arguments)
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["features"]["n"]["values"] for line in lines] == [
        [line["record"]] for line in lines
    ]
    return [line["record"] for line in lines]


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_n_and_skip_choose_the_records(tmp_path: Path, compression: str) -> None:
    path = made(tmp_path / "a", packed(compression, framed(*NUMBERED)))
    assert numbers(path) == [0, 1, 2, 3, 4]
    assert numbers(path, "-n", "2", "--skip", "9") == [9, 10]
    assert shardline("index", path).code == 0
    assert numbers(path, "-n", "2", "--skip", "18") == [18, 19]
    assert numbers(path, "-n", "5", "--skip", "18") == [18, 19]


def test_each_record_is_one_json_line(tmp_path: Path) -> None:
    payload = example_of(label=3, name=b"cat\n", image=b"\x89PNG\r\n\x1a\n" + bytes(500))
    path = made(tmp_path / "a", framed(payload, b"text"))
    first, second = map(json.loads, shardline("head", path, "--json").out.splitlines())
    image = "<508 bytes, png image>"
    assert first == {
        "record": 0,
        "bytes": len(payload),
        "form": "Example",
        "features": {
            "image": {"kind": "bytes", "length": 1, "values": [image]},
            "label": {"kind": "int64", "length": 1, "values": [3]},
            "name": {"kind": "bytes", "length": 1, "values": ["cat\n"]},
        },
    }
    assert second == {"record": 1, "bytes": 4, "form": "payload", "payload": "text"}


def test_people_see_features_with_kind_and_values(tmp_path: Path) -> None:
    payload = example_of(label=3, many=list(range(50)), image=b"\xff\xd8\xff" + bytes(2000))
    path = made(tmp_path / "a", framed(payload, sequence_of({"id": 9}, tokens=[[1, 2], [3]])))
    lines = shardline("head", path).out.splitlines()
    assert lines[0].startswith("record 0: Example, ")
    assert any(line.split() == ["label", "int64", "3"] for line in lines)
    assert any("int64[50]" in line and "6 7 …" in line for line in lines)
    assert any("jpeg image>" in line and "<2003 bytes" in line for line in lines)
    assert any(line.startswith("record 1: SequenceExample") for line in lines)
    assert any(line.split()[-6:] == ["2", "steps:", "1", "2", "|", "3"] for line in lines)


def test_head_floats_read_back_as_same_float32(tmp_path: Path) -> None:
    drawn = np.random.default_rng(12).integers(0, 2**32, 400, np.uint32).view(np.float32)
    edges = [16777216, 16777218, 0.1, -0.0, 3.4028235e38, 1e-45, np.inf, -np.inf, np.nan]
    values = np.concatenate([np.array(edges, np.float32), drawn])
    payloads = [example_of(f=[float(value)], s=b"NaN") for value in values]
    path = made(tmp_path / "a", framed(*payloads))
    lines = shardline("head", path, "--json", "-n", "500").out.splitlines()
    told = [json.loads(line)["features"]["f"]["values"][0] for line in lines]
    read = np.array([float(value) for value in told], np.float32)
    assert read.view(np.uint32)[~np.isnan(values)].tolist() == (
        values.view(np.uint32)[~np.isnan(values)].tolist()
    )
    assert np.isnan(read).tolist() == np.isnan(values).tolist()
    assert told[6:9] == ["Infinity", "-Infinity", "NaN"]
    shown = shardline("head", path, "-n", "500").out.splitlines()
    words = [line.split() for line in shown]
    assert [line[2] for line in words if line[0] == "f"] == [str(value) for value in told]
    assert ["s", "bytes", '"NaN"'] in words


def test_no_bytes_of_a_record_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    nasty = b"\x1b]0;title\x07\x1b[2J"
    payload = example_of(**{"na\x1bme": nasty, "text": b"two\nlines"})
    path = made(tmp_path / "a", framed(payload, nasty, b"line\n\x0d"))
    result = shardline("head", path)
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "\x07" not in result.out
    assert "two\\nlines" in result.out
    for line in shardline("head", path, "--json").out.splitlines():
        assert "\x1b" not in line


def test_a_file_without_records_or_behind_its_end_says_so(tmp_path: Path) -> None:
    assert "no records" in shardline("head", made(tmp_path / "a", b"")).out
    path = made(tmp_path / "b", framed(b"x"))
    assert "first 1,000" in shardline("head", path, "--skip", "1000").out
    result = shardline("head", path, "--skip", "1000", "--json")
    assert (result.code, result.out) == (0, "")


def test_damage_is_told_after_the_records_before_it(tmp_path: Path) -> None:
    data = bytearray(framed(*NUMBERED))
    data[len(framed(*NUMBERED[:2])) + 13] ^= 1
    path = made(tmp_path / "a", bytes(data))
    assert shardline("head", path, "-n", "2").code == 0
    result = shardline("head", path, "--json")
    assert result.problem == (1, "corrupt-file")
    assert (result.error["kind"], result.error["record"]) == ("data-crc", 2)
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["record"] for line in lines[:-1]] == [0, 1]


def test_of_a_version_records_are_numbered_throughout(tmp_path: Path) -> None:
    for number in range(3):
        rows = write_rows(tmp_path / f"{number}.jsonl", range(10 * number, 10 * number + 10))
        assert on(tmp_path, "append", NAME, rows, "--no-check").code == 0
    latest = f"{NAME}@latest"
    lines = on(tmp_path, "head", latest, "--json", "-n", "13", "--skip", "8").out.splitlines()
    told = [json.loads(line) for line in lines]
    assert [one["record"] for one in told] == list(range(8, 21))
    assert [one["features"]["x"]["values"] for one in told] == [[n] for n in range(8, 21)]
    assert "record 0: Example" in on(tmp_path, "head", f"{NAME}@1", "-n", "1").out
    result = on(tmp_path, "head", f"{NAME}@latest", "--skip", "1000")
    assert (result.code, result.out.count("\n"), result.out[:12]) == (0, 1, "digits/v1@3:")
    result = on(tmp_path, "head", NAME, "--json")
    assert result.problem == (2, "version-unpublished")


def test_a_version_without_a_root_is_told_how_to_find_it() -> None:
    result = shardline("head", NAME, "--json")
    assert result.problem == (2, "file-not-found")
    assert "--root" in result.error["hint"]["text"]


def test_a_shard_that_is_damaged_or_gone_is_told(tmp_path: Path) -> None:
    landed(tmp_path, "one", "two")
    damage(file_of(tmp_path, "one"))
    assert on(tmp_path, "head", NAME).code == 1
    assert on(tmp_path, "head", NAME, "--skip", "3").code == 0
    file_of(tmp_path, "two").unlink()
    assert on(tmp_path, "head", NAME, "--skip", "3").code == 2


def test_the_root_may_be_an_object_store(s3_root: str, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "a.jsonl", range(10))
    assert on(s3_root, "append", NAME, rows).code == 0
    result = on(s3_root, "head", NAME, "-n", "1", "--skip", "7", "--json")
    assert json.loads(result.out)["features"]["x"]["values"] == [7]
