"""Salvage: every intact record around any damage, in order, and nothing invented."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline import kernel
from shardline.errors import FileExistsAlreadyError, NothingToSalvageError
from shardline.operations.salvage import SalvageReport, salvage
from shardline.tfrecord.compression import Compression
from tests.errors import raises
from tests.kernel.examples import seeded
from tests.kernel.frames import framed
from tests.tfrecord.samples import (
    bulk_needs_the_compiled_kernel,
    flipped,
    gzip_member,
    is_subsequence,
    made,
    packed,
    records_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

RUNS = 300 if kernel.NAME == "compiled" else 60
SMALL = [b"first", b"", b"a third record, a little longer", b"fourth"]


@dataclass(frozen=True)
class Harm:
    """One damage: at a place (taken modulo the size), over a span, with these bytes."""

    kind: str
    place: int
    span: int
    junk: bytes


harms = st.lists(
    st.builds(
        Harm,
        st.sampled_from(["flip", "zero", "delete", "insert"]),
        st.integers(0, 5000),
        st.integers(1, 120),
        st.binary(min_size=1, max_size=60),
    ),
    min_size=1,
    max_size=5,
)


def harmed(data: bytes, damages: Iterable[Harm]) -> tuple[bytes, list[int | None]]:
    """The damaged file, and for each byte where it stood before: None if it is not from there."""
    content = list(data)
    origin: list[int | None] = list(range(len(data)))
    for harm in damages:
        start = harm.place % (len(content) + 1)
        end = min(len(content), start + harm.span)
        if harm.kind == "flip":
            for at in range(start, end):
                content[at] ^= 1 << (harm.place + at) % 8
                origin[at] = None
        elif harm.kind == "zero":
            content[start:end] = bytes(end - start)
            origin[start:end] = [None] * (end - start)
        elif harm.kind == "delete":
            del content[start:end], origin[start:end]
        else:
            content[start:start] = harm.junk
            origin[start:start] = [None] * len(harm.junk)
    return bytes(content), origin


def untouched(payloads: Sequence[bytes], origin: list[int | None]) -> list[bytes]:
    """The records whose bytes are all still there, together and in order."""
    place = {was: now for now, was in enumerate(origin) if was is not None}
    intact = []
    start = 0
    for payload in payloads:
        end = start + len(payload) + 16
        first = place.get(start)
        if first is not None and origin[first : first + end - start] == list(range(start, end)):
            intact.append(payload)
        start = end
    return intact


def saved(content: bytes, **options: str) -> tuple[list[bytes], SalvageReport]:
    """What salvage recovers from a file of this content; none where there is nothing."""
    with TemporaryDirectory() as folder:
        source, out = made(Path(folder) / "in", content), Path(folder) / "out"
        try:
            report = salvage(source, out, **options)  # type: ignore[arg-type]
        except NothingToSalvageError:
            assert not out.exists()
            return [], SalvageReport()
        assert source.read_bytes() == content
        recovered = records_of(out)
        assert report.recovered == len(recovered)
        return recovered, report


@settings(max_examples=RUNS)
@given(st.lists(st.binary(max_size=90), min_size=1, max_size=12), harms)
def test_salvage_recovers_all_intact_records(payloads: list[bytes], damages: list[Harm]) -> None:
    content, origin = harmed(framed(*payloads), damages)
    recovered, _ = saved(content)
    assert is_subsequence(untouched(payloads, origin), recovered)
    assert is_subsequence(recovered, payloads)


@settings(max_examples=RUNS)
@given(st.integers(0, 40), st.integers(2, 12), harms)
def test_salvage_records_of_equal_size(size: int, count: int, damages: list[Harm]) -> None:
    payloads = [bytes([number]) * size for number in range(count)]
    frame = size + 16
    aligned = [Harm(h.kind, h.place, frame * (1 + h.span % 3), h.junk) for h in damages]
    for these in (damages, aligned):
        content, origin = harmed(framed(*payloads), these)
        recovered, _ = saved(content)
        assert is_subsequence(untouched(payloads, origin), recovered)
        assert is_subsequence(recovered, payloads)


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_salvage_cut_of_record_size_keeps_rest(behind: int) -> None:
    """The damaged record's own length then leads to a border: that of a record further on."""
    payloads = [b"before", b"A" * 200, *(b"%d" % number * 20 for number in range(5))]
    cut = 36 * behind
    start = len(framed(b"before")) + 12 + 10
    data = framed(*payloads)
    recovered, _ = saved(data[:start] + data[start + cut :])
    assert recovered == [payloads[0], *payloads[2:]]


def test_salvage_around_record_with_frames() -> None:
    hidden = b"A" * 50 + framed(b"hidden") + b"A" * 50
    payloads = [b"before", hidden, *(b"%d" % number * 20 for number in range(5))]
    start = len(framed(b"before")) + 12 + 10
    data = framed(*payloads)
    recovered, _ = saved(data[:start] + data[start + 36 :])
    assert recovered == [payloads[0], *payloads[2:]]


@settings(max_examples=RUNS)
@given(st.lists(st.binary(max_size=90), min_size=1, max_size=12), harms)
def test_salvage_accounts_for_each_byte(payloads: list[bytes], damages: list[Harm]) -> None:
    content, _ = harmed(framed(*payloads), damages)
    recovered, report = saved(content)
    if not recovered:
        return
    kept = sum(len(payload) + 16 for payload in recovered)
    assert kept + report.lost_bytes == len(content)
    assert report.lost_bytes == sum(gap.bytes for gap in report.gaps)
    rest = b""
    end = 0
    for gap in report.gaps:
        assert gap.offset >= end
        assert gap.bytes > 0
        rest += content[end : gap.offset]
        end = gap.offset + gap.bytes
    assert rest + content[end:] == framed(*recovered)


inner = st.lists(st.binary(max_size=20), min_size=1, max_size=4).map(lambda many: framed(*many))
nesting = st.tuples(st.binary(max_size=20), inner, st.binary(max_size=20)).map(b"".join)


@settings(max_examples=RUNS)
@given(
    st.lists(st.one_of(nesting, st.binary(max_size=30)), min_size=2, max_size=6),
    st.integers(0, 5),
    st.sampled_from(["header", "data", "footer"]),
    st.integers(0, 200),
    st.integers(1, 40),
    st.sampled_from(["zero", "flip"]),
)
def test_salvage_ignores_frames_in_corrupt_record(  # noqa: PLR0917
    payloads: list[bytes], which: int, part: str, place: int, span: int, kind: str
) -> None:
    which %= len(payloads)
    start = len(framed(*payloads[:which]))
    size = len(payloads[which])
    low, high = {
        "header": (start, start + 12),
        "data": (start + 12, start + 12 + size),
        "footer": (start + 12 + size, start + 16 + size),
    }[part]
    if low == high:
        return
    first = low + place % (high - low)
    last = min(high, first + span)
    data = bytearray(framed(*payloads))
    mask = 0x55 if kind == "flip" else 0
    data[first:last] = bytes(byte ^ mask if mask else 0 for byte in data[first:last])
    recovered, _ = saved(bytes(data))
    if bytes(data) != framed(*payloads):
        del payloads[which]
    assert recovered == payloads


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("size", [100_000, 1_100_000, 4_300_000, 9_000_000])
def test_nor_are_those_inside_a_large_one(tmp_path: Path, size: int) -> None:
    hidden = framed(b"not a record of this file")
    payloads = [b"before", bytes(size // 2) + hidden + bytes(size // 2), b"after"]
    data = bytearray(framed(*payloads))
    data[len(framed(b"before")) + 12 + 5] ^= 1
    source = made(tmp_path / "in", bytes(data))
    salvage(source, tmp_path / "out")
    assert records_of(tmp_path / "out") == [b"before", b"after"]


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("missing", [1, 5, 11, 12, 13, 500, 99_000, 100_012, 100_015])
def test_salvage_finds_record_after_junk(tmp_path: Path, missing: int) -> None:
    """The junk is searched 4 MiB at a time; the record begins `missing` bytes before that ends."""
    payloads = [b"first", seeded(7).randbytes(100_000), b"last"]
    for window in (4 * 2**20, 8 * 2**20):
        junk = seeded(8).randbytes(window - missing)
        content = framed(payloads[0]) + junk + framed(*payloads[1:])
        out = tmp_path / f"{window}"
        report = salvage(made(tmp_path / "in", content), out)
        assert records_of(out) == payloads
        assert [(gap.offset, gap.bytes) for gap in report.gaps] == [(21, len(junk))]


def test_salvage_bit_flip_loses_one_record(tmp_path: Path) -> None:
    data = framed(*SMALL)
    starts = [len(framed(*SMALL[:number])) for number in range(len(SMALL) + 1)]
    for bit in range(len(data) * 8):
        number = sum(bit // 8 >= start for start in starts) - 1
        recovered, report = saved(flipped(data, bit))
        assert recovered == SMALL[:number] + SMALL[number + 1 :]
        (gap,) = report.gaps
        assert (gap.offset, gap.bytes, gap.packed) == (
            starts[number],
            starts[number + 1] - starts[number],
            False,
        )
        assert gap.kind in {"length-crc", "data-crc"}
    assert not list(tmp_path.iterdir())


def test_salvage_cut_loses_one_record() -> None:
    data = framed(*SMALL)
    starts = [len(framed(*SMALL[:number])) for number in range(len(SMALL) + 1)]
    for cut in range(22, len(data)):
        number = sum(cut >= start for start in starts) - 1
        recovered, report = saved(data[:cut])
        assert recovered == SMALL[:number]
        assert [(gap.offset, gap.bytes) for gap in report.gaps] == (
            [(starts[number], cut - starts[number])] if cut > starts[number] else []
        )


def test_salvage_copies_intact_file(tmp_path: Path) -> None:
    for compression in ("none", "gzip", "zlib"):
        source = made(tmp_path / f"{compression}.in", packed(compression, framed(*SMALL)))
        report = salvage(source, tmp_path / compression)
        assert (report.recovered, report.lost_bytes, report.gaps) == (4, 0, [])
        assert records_of(tmp_path / compression) == SMALL


def test_an_empty_file_is_intact_too(tmp_path: Path) -> None:
    report = salvage(made(tmp_path / "in", b""), tmp_path / "out")
    assert (report.recovered, report.gaps) == (0, [])
    assert (tmp_path / "out").read_bytes() == b""


def test_the_packing_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    source = made(tmp_path / "in", gzip_member(framed(*SMALL)))
    assert salvage(source, tmp_path / "a").compression is Compression.GZIP
    assert (tmp_path / "a").read_bytes()[:2] == b"\x1f\x8b"
    assert salvage(source, tmp_path / "b", compression="none").compression is Compression.GZIP
    assert (tmp_path / "b").read_bytes() == framed(*SMALL)
    salvage(source, tmp_path / "c", compression="zlib")
    assert zlib.decompress((tmp_path / "c").read_bytes()) == framed(*SMALL)


def test_salvage_never_overwrites(tmp_path: Path) -> None:
    content = framed(*SMALL) + b"stray"
    source = made(tmp_path / "in", content)
    before = source.stat().st_mtime_ns
    out = made(tmp_path / "out", b"precious")
    for target in (out, source):
        with pytest.raises(FileExistsAlreadyError):
            salvage(source, target)
    quarantine = made(tmp_path / "quarantine", b"precious too")
    with pytest.raises(FileExistsAlreadyError):
        salvage(source, tmp_path / "new", quarantine=quarantine)
    assert out.read_bytes() == b"precious"
    assert quarantine.read_bytes() == b"precious too"
    assert source.read_bytes() == content
    assert source.stat().st_mtime_ns == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in", "out", "quarantine"]


@pytest.mark.parametrize(
    "content",
    [
        b"not\x00a TFRecord file at all",
        bytes(1000),
        framed(b"x")[:-1],
        b"\x1f\x8b\x08 no gzip",
        b"x",
    ],
)
def test_salvage_without_intact_record_raises(tmp_path: Path, content: bytes) -> None:
    source = made(tmp_path / "in", content)
    with raises(NothingToSalvageError, "no-intact-record", path=str(source)):
        salvage(source, tmp_path / "out", quarantine=tmp_path / "quarantine")
    assert [file.name for file in tmp_path.iterdir()] == ["in"]


def quarantined(path: Path) -> list[tuple[int, bytes]]:
    """The spans of a quarantine file, with those that touch each other put together."""
    spans: list[tuple[int, bytes]] = []
    for line in path.read_text().splitlines():
        told = json.loads(line)
        data = base64.b64decode(told["data"])
        assert len(data) == told["bytes"]
        if spans and spans[-1][0] + len(spans[-1][1]) == told["offset"]:
            spans[-1] = (spans[-1][0], spans[-1][1] + data)
        else:
            spans.append((told["offset"], data))
    return spans


def test_salvage_quarantine_has_bytes_and_offsets(tmp_path: Path) -> None:
    data = bytearray(framed(*SMALL, bytes(200_000), b"last"))
    data[13] ^= 1
    fifth = len(framed(*SMALL))
    data[fifth + 100] ^= 1
    data += b"stray"
    source = made(tmp_path / "in", bytes(data))
    report = salvage(source, tmp_path / "out", quarantine=tmp_path / "quarantine")
    assert records_of(tmp_path / "out") == [*SMALL[1:], b"last"]
    assert quarantined(tmp_path / "quarantine") == [
        (gap.offset, bytes(data[gap.offset : gap.offset + gap.bytes])) for gap in report.gaps
    ]
    first = json.loads((tmp_path / "quarantine").read_text().splitlines()[0])
    assert first["file"] == str(source)
    assert first["kind"] == "data-crc"
    assert first["packed"] is False


def test_an_intact_file_leaves_an_empty_quarantine(tmp_path: Path) -> None:
    source = made(tmp_path / "in", framed(*SMALL))
    salvage(source, tmp_path / "out", quarantine=tmp_path / "quarantine")
    assert (tmp_path / "quarantine").read_bytes() == b""


MEMBERS = [[seeded(10 * m + r).randbytes(30) for r in range(5)] for m in range(6)]
ALL = [payload for payloads in MEMBERS for payload in payloads]


@settings(max_examples=RUNS)
@given(st.integers(0, 5), st.sampled_from(["flip", "zero", "delete"]), st.randoms())
def test_salvage_corrupt_member_keeps_others(which: int, kind: str, rng: Random) -> None:
    members = [gzip_member(framed(*payloads)) for payloads in MEMBERS]
    start = rng.randrange(10, len(members[which]) - 1)
    harm = Harm(kind, start, rng.randrange(1, 20), b"")
    end = min(start + harm.span, len(members[which]))
    broken, _ = harmed(members[which], [Harm(kind, start, end - start, b"")])
    members[which] = broken
    recovered, report = saved(b"".join(members))
    others = [p for number, payloads in enumerate(MEMBERS) for p in payloads if number != which]
    assert [payload for payload in recovered if payload not in MEMBERS[which]] == others
    assert is_subsequence(recovered, ALL), "nothing is invented, and nothing comes twice"
    if recovered != ALL:
        assert report.gaps
        assert report.lost_bytes > 0


def test_salvage_gzip_repeats_no_record() -> None:
    payloads = [f"record {number} of some that are much alike".encode() for number in range(40)]
    whole = gzip_member(framed(*payloads))
    for bit in range(80, len(whole) * 8, 3):
        recovered, _ = saved(flipped(whole, bit))
        assert is_subsequence(recovered, payloads), f"bit {bit}"


def test_salvage_keeps_start_of_corrupt_member() -> None:
    payloads = [seeded(number).randbytes(2000) for number in range(30)]
    member = gzip_member(framed(*payloads))
    middle = len(member) // 2
    broken = member[:middle] + bytes(100) + member[middle + 100 :]
    recovered, report = saved(gzip_member(framed(b"zero")) + broken + gzip_member(framed(b"end")))
    assert recovered[0] == b"zero"
    assert recovered[-1] == b"end"
    kept = recovered[1:-1]
    assert len(kept) >= 10
    assert is_subsequence(kept, payloads)
    assert report.gaps
    assert report.lost_bytes > 0


def test_salvage_adjacent_corrupt_members() -> None:
    members = [gzip_member(framed(*payloads)) for payloads in MEMBERS]
    for number in (2, 3):
        member = bytearray(members[number])
        member[len(member) // 2] ^= 0xFF
        members[number] = bytes(member)
    recovered, _ = saved(b"".join(members))
    assert is_subsequence([*ALL[:10], *ALL[20:]], recovered)
    assert is_subsequence(recovered, ALL)


def test_salvage_records_across_members() -> None:
    payloads = [b"%03d" % number * 10 for number in range(60)]
    data = framed(*payloads)
    pieces = [data[start : start + 500] for start in range(0, len(data), 500)]
    members = [gzip_member(piece) for piece in pieces]
    broken = bytearray(members[2])
    broken[20:] = bytes(len(broken) - 20)
    members[2] = bytes(broken)
    recovered, _ = saved(b"".join(members))
    size = 46
    whole = [p for n, p in enumerate(payloads) if (n + 1) * size <= 1000 or n * size >= 1500]
    assert is_subsequence(whole, recovered)
    assert is_subsequence(recovered, payloads)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_salvage_keeps_prefix_of_single_stream(compression: str) -> None:
    payloads = [seeded(number).randbytes(1000) for number in range(100)]
    content = packed(compression, framed(*payloads))
    for part in (0.1, 0.5, 0.9):
        at = int(len(content) * part)
        recovered, report = saved(content[:at] + bytes(50) + content[at + 50 :])
        expected = int(at / (len(content) / 100)) - 2
        assert is_subsequence(recovered, payloads)
        assert recovered[:expected] == payloads[:expected]
        assert report.gaps


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_salvage_cut_compressed_file(compression: str) -> None:
    payloads = [b"%d " % number * 30 for number in range(20)]
    content = packed(compression, framed(*payloads))
    counts = []
    for cut in range(40, len(content)):
        recovered, report = saved(content[:cut])
        assert recovered == payloads[: len(recovered)]
        assert report.gaps or not recovered
        unpacked = zlib.decompressobj(31 if compression == "gzip" else 15).decompress(content[:cut])
        whole = sum(len(framed(*payloads[: n + 1])) <= len(unpacked) for n in range(20))
        assert len(recovered) == whole, f"cut at {cut}"
        counts.append(len(recovered))
    assert counts[0] < counts[-1] == 20


def test_salvage_bad_gzip_trailer_keeps_records() -> None:
    content = bytearray(gzip_member(framed(*SMALL)))
    content[-8] ^= 1
    recovered, report = saved(bytes(content) + gzip_member(framed(b"next")))
    assert recovered == [*SMALL, b"next"]
    (gap,) = report.gaps
    assert (gap.kind, gap.packed, gap.offset) == ("compression", True, len(content) - 8)


def test_salvage_joined_zlib_streams() -> None:
    first = zlib.compress(framed(*SMALL))
    recovered, report = saved(first + zlib.compress(framed(b"second stream")))
    assert recovered == [*SMALL, b"second stream"]
    assert report.gaps[0].kind == "compression"
    assert report.gaps[0].offset == len(first)


def test_salvage_quarantines_compressed_bytes(
    tmp_path: Path,
) -> None:
    member = gzip_member(framed(*SMALL))
    broken = member[:20] + bytes(len(member) - 20)
    source = made(tmp_path / "in", member + broken + member)
    report = salvage(source, tmp_path / "out", quarantine=tmp_path / "quarantine")
    assert report.recovered >= 8
    lines = [json.loads(line) for line in (tmp_path / "quarantine").read_text().splitlines()]
    packed_lines = [line for line in lines if line["packed"]]
    assert packed_lines
    content = source.read_bytes()
    for line in packed_lines:
        assert len(member) <= line["offset"] < len(member) + len(broken)
        lost = content[line["offset"] : line["offset"] + line["bytes"]]
        assert base64.b64decode(line["data"]) == lost


def test_salvage_corrupt_member_with_corrupt_frames() -> None:
    frames = bytearray(framed(*SMALL))
    frames[12] ^= 1
    recovered, report = saved(gzip_member(bytes(frames)) + gzip_member(framed(b"good")))
    assert recovered == [*SMALL[1:], b"good"]
    (gap,) = report.gaps
    assert (gap.offset, gap.bytes, gap.packed, gap.kind) == (0, 21, False, "data-crc")


def test_opaque_payloads_are_salvaged_like_any_other() -> None:
    payloads = [b'{"a": 1}', b"\xff" * 9, b"own \x08\x01 bytes"]
    data = bytearray(framed(*payloads))
    data[14] ^= 1
    assert saved(bytes(data))[0] == payloads[1:]
