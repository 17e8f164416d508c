"""Records shown to a person: the right ones, readable, and long bytes as what they are."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING

import pytest

from shardline.errors import CorruptFileError
from shardline.operations.preview import describe_bytes, preview
from shardline.tfrecord.index import index_path, write_index
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of, made, packed, sequence_of

if TYPE_CHECKING:
    from pathlib import Path

NUMBERED = [b"record %d" % number for number in range(20)]


def test_preview_example_has_kinds_and_values(tmp_path: Path) -> None:
    payload = example_of(label=7, weights=[0.1, float("inf"), float("nan")], name=b"cat")
    (record,) = preview(made(tmp_path / "a", framed(payload)))
    assert (record.number, record.bytes, record.form) == (0, len(payload), "Example")
    assert record.features == {
        "label": {"kind": "int64", "length": 1, "values": [7]},
        "weights": {"kind": "float", "length": 3, "values": [0.1, "Infinity", "NaN"]},
        "name": {"kind": "bytes", "length": 1, "values": ["cat"]},
    }
    assert record.feature_lists is None
    assert record.payload is None


def test_preview_sequence_example_has_steps(tmp_path: Path) -> None:
    payload = sequence_of({"id": 1}, tokens=[[1, 2], [], [3]], none=[])
    (record,) = preview(made(tmp_path / "a", framed(payload)))
    assert record.form == "SequenceExample"
    assert record.features == {"id": {"kind": "int64", "length": 1, "values": [1]}}
    assert record.feature_lists == {
        "none": {"kind": None, "steps": 0, "values": []},
        "tokens": {"kind": "int64", "steps": 3, "values": [[1, 2], [], [3]]},
    }


def test_long_lists_are_cut_but_counted(tmp_path: Path) -> None:
    payload = example_of(many=list(range(1000)))
    (record,) = preview(made(tmp_path / "a", framed(payload)))
    assert record.features is not None
    assert record.features["many"]["length"] == 1000
    assert record.features["many"]["values"] == list(range(8))


def test_what_is_shown_is_json(tmp_path: Path) -> None:
    payload = example_of(f=[float("nan"), float("-inf")], b=[b"\xff\x00", b"ok"], i=[2**63 - 1])
    (record,) = preview(made(tmp_path / "a", framed(payload)))
    text = json.dumps(record.features, allow_nan=False)
    assert json.loads(text) == record.features


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b'{"a": 1}', '{"a": 1}'),
        (b"plain text", "plain text"),
        ("größe".encode(), "größe"),
        (b"\x08\x96\x01\xff", "<4 bytes>"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "<108 bytes, png image>"),
    ],
)
def test_a_payload_of_any_kind_is_shown(tmp_path: Path, payload: bytes, shown: str) -> None:
    (record,) = preview(made(tmp_path / "a", framed(payload)))
    assert (record.form, record.payload, record.features) == ("payload", shown, None)
    assert record.bytes == len(payload)


SIGNED = {
    b"\x89PNG\r\n\x1a\nrest": "png image",
    b"\xff\xd8\xff\xe0rest": "jpeg image",
    b"GIF89a": "gif image",
    b"RIFF\x10\0\0\0WEBPVP8 ": "webp image",
    b"RIFF\x10\0\0\0WAVEfmt ": "wav audio",
    b"\x1f\x8b\x08\x00": "gzip data",
    b"\x93NUMPY\x01": "numpy array",
    b"PK\x03\x04zip": "zip archive",
    b"%PDF-1.7": "pdf document",
}


@pytest.mark.parametrize("value", SIGNED)
def test_known_formats_are_named_with_their_size(value: bytes) -> None:
    assert describe_bytes(value) == f"<{len(value)} bytes, {SIGNED[value]}>"


def test_preview_shows_short_text_only() -> None:
    assert describe_bytes(b"") == ""
    assert describe_bytes(b"two\nlines") == "two\nlines"
    assert describe_bytes(bytes(5)) == "<5 bytes>"
    assert describe_bytes(b"\x1b[31mred") == "<8 bytes>", "nothing that a terminal would obey"
    assert describe_bytes(b"\xff" * 10**6) == "<1000000 bytes>"


def test_long_text_is_cut_and_named() -> None:
    shown = describe_bytes(b"word " * 1000)
    assert len(shown) < 120
    assert shown.startswith("word word")
    assert "<5000 bytes, text>" in shown
    assert "json>" in describe_bytes(json.dumps(list(range(500))).encode())


def test_bytes_of_a_feature_are_described_too(tmp_path: Path) -> None:
    image = b"\xff\xd8\xff" + bytes(5000)
    (record,) = preview(made(tmp_path / "a", framed(example_of(image=image))))
    assert record.features is not None
    assert record.features["image"]["values"] == ["<5003 bytes, jpeg image>"]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_count_and_skip_choose_the_records(
    tmp_path: Path, compression: str, *, indexed: bool
) -> None:
    path = made(tmp_path / "a", packed(compression, framed(*NUMBERED)))
    if indexed:
        write_index(path)
    for skip in (0, 1, 7, 19, 20, 100):
        for count in (0, 1, 5, 100):
            shown = [(r.number, r.payload) for r in preview(path, count=count, skip=skip)]
            expected = [(n, NUMBERED[n].decode()) for n in range(20)][skip:][:count]
            assert shown == expected


def test_preview_ignores_wrong_index(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*NUMBERED))
    write_index(path)
    whole = index_path(path).read_bytes()
    for content in (b"", whole[:-8], whole[:60] + bytes(len(whole) - 60), b"junk" * 100):
        made(index_path(path), content)
        shown = [record.payload for record in preview(path, skip=10, count=3)]
        assert shown == ["record 10", "record 11", "record 12"]


def test_preview_with_partly_wrong_index(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*NUMBERED))
    write_index(path)
    index = bytearray(index_path(path).read_bytes())
    header = len(index) - 8 * 21
    for number in range(6, 20):
        for wrong in (0, 2**40, 27):
            broken = index.copy()
            struct.pack_into("<Q", broken, header + 8 * number, wrong)
            made(index_path(path), bytes(broken))
            shown = [(r.number, r.payload) for r in preview(path, skip=5, count=100)]
            assert shown == [(n, f"record {n}") for n in range(5, 20)]


def test_preview_raises_at_corrupt_record(tmp_path: Path) -> None:
    data = bytearray(framed(*NUMBERED))
    data[len(framed(*NUMBERED[:6])) + 13] ^= 1
    path = made(tmp_path / "a", bytes(data))
    records = preview(path, count=100)
    assert [next(records).number for _ in range(6)] == list(range(6))
    with pytest.raises(CorruptFileError) as caught:
        next(records)
    assert (caught.value.kind, caught.value.record) == ("data-crc", 6)


def test_preview_with_index_reports_corruption(tmp_path: Path) -> None:
    data = bytearray(framed(*NUMBERED))
    path = made(tmp_path / "a", bytes(data))
    write_index(path)
    data[len(framed(*NUMBERED[:6]))] ^= 1
    made(path, bytes(data))
    os.utime(path, ns=(0, 0))
    with pytest.raises(CorruptFileError) as caught:
        list(preview(path, skip=6))
    assert (caught.value.kind, caught.value.record) == ("length-crc", 6)
