"""Going on after damage: where the next intact frame begins, and where a damaged record ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardline.kernel.types import Search
from tests.kernel.frames import damaged, framed, header, intact_at, masked, mixtures, payloads
from tests.sampling import drawn

if TYPE_CHECKING:
    from types import ModuleType

NESTED = framed(b"inner one", b"inner two")
"""A payload that is itself a TFRecord file."""


def first_intact(data: bytes, start: int) -> Search:
    """What find_next must give, looked up at every offset with another CRC."""
    for offset in range(start, len(data)):
        if intact_at(data, offset):
            return Search(found=True, offset=offset, needed=0)
    return Search(found=False, offset=len(data), needed=0)


@st.composite
def wounded_files(draw: st.DrawFn) -> bytes:
    """A file in which a span was flipped, zeroed, deleted or inserted, once or twice."""
    data = bytearray(framed(*draw(st.lists(payloads, min_size=1, max_size=6))))
    for _ in range(draw(st.integers(1, 2))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(1, 40)))
        match draw(st.sampled_from(["flip", "zero", "delete", "insert"])):
            case "flip":
                data[start:end] = bytes(byte ^ 0xFF for byte in data[start:end])
            case "zero":
                data[start:end] = bytes(end - start)
            case "delete":
                del data[start:end]
            case _:
                data[start:start] = draw(st.binary(min_size=1, max_size=30))
    return bytes(data)


@pytest.mark.sweep
@settings(max_examples=drawn(150))
@given(data=st.one_of(wounded_files(), mixtures), start=st.integers(0, 60))
def test_the_first_intact_frame_is_found_around_any_damage(
    kernel: ModuleType, data: bytes, start: int
) -> None:
    start = min(start, len(data))
    assert kernel.find_next(data, start) == first_intact(data, start)


@pytest.mark.sweep
@settings(max_examples=drawn(150))
@given(
    data=st.one_of(wounded_files(), mixtures),
    start=st.integers(0, 200),
    cap=st.sampled_from([0, 9, 30, 2**28, 2**64 - 1]),
    final=st.booleans(),
)
def test_both_kernels_find_alike(
    reference: ModuleType, compiled: ModuleType, data: bytes, start: int, cap: int, *, final: bool
) -> None:
    for name in ("find_next", "find_end"):
        want = getattr(reference, name)(data, start, max_record_bytes=cap, final=final)
        assert getattr(compiled, name)(data, start, max_record_bytes=cap, final=final) == want


@pytest.mark.sweep
@settings(max_examples=drawn(150))
@given(data=wounded_files(), sizes=st.lists(st.integers(1, 50), min_size=1, max_size=5))
def test_a_search_through_a_stream_skips_no_intact_frame(
    kernel: ModuleType, data: bytes, sizes: list[int]
) -> None:
    base, have, turn = 0, 0, 0
    while True:
        final = have == len(data)
        search = kernel.find_next(data[base:have], 0, final=final)
        assert search.offset <= have - base
        base += search.offset
        if search.found or final:
            break
        assert search.needed > have - base
        have = min(len(data), max(base + search.needed, have + sizes[turn % len(sizes)]))
        turn += 1
    assert Search(found=search.found, offset=base, needed=0) == first_intact(data, 0)


def test_cut_frame_needs_more_unless_final(kernel: ModuleType) -> None:
    data = b"junk" + framed(b"whole")
    for cut in range(4 + 12, len(data)):
        want = Search(found=False, offset=4, needed=21)
        assert kernel.find_next(data[:cut], 0, final=False) == want
        assert kernel.find_next(data[:cut], 0) == Search(found=False, offset=cut, needed=0)
    for final in (True, False):
        want = Search(found=True, offset=4, needed=0)
        assert kernel.find_next(data, 0, final=final) == want


def test_find_keeps_possible_header_bytes(kernel: ModuleType) -> None:
    assert kernel.find_next(b"", 0, final=False) == Search(found=False, offset=0, needed=12)
    assert kernel.find_next(bytes(5), 0, final=False) == Search(found=False, offset=0, needed=12)
    search = kernel.find_next(b"\xee" * 100, 0, final=False)
    assert search == Search(found=False, offset=89, needed=12)


def test_a_frame_at_the_start_itself_counts(kernel: ModuleType) -> None:
    data = framed(b"a", b"b")
    assert kernel.find_next(data, 0).offset == 0
    assert kernel.find_next(data, 1).offset == 17
    assert kernel.find_next(data, 17).offset == 17
    assert kernel.find_next(data, 18) == Search(found=False, offset=34, needed=0)


def test_a_start_past_the_end_finds_nothing(kernel: ModuleType) -> None:
    for start in (34, 35, 100, 2**40):
        assert not kernel.find_next(framed(b"a", b"b"), start).found
        assert kernel.find_end(framed(b"a", b"b"), start) == -1


def test_a_length_over_the_cap_is_passed_over(kernel: ModuleType) -> None:
    data = framed(b"too long for this", b"short")
    assert kernel.find_next(data, 0, max_record_bytes=10).offset == 33
    assert kernel.find_next(header(2**62) + data, 0, final=False).offset == 12


def test_an_empty_record_is_an_intact_frame(kernel: ModuleType) -> None:
    assert kernel.find_next(b"?" * 7 + framed(b""), 0) == Search(found=True, offset=7, needed=0)


@pytest.mark.parametrize("payload", [b"payload", b"x" + NESTED + b"y", NESTED], ids=repr)
@pytest.mark.parametrize("behind", [b"", framed(b"next")], ids=["at the end", "before another"])
class TestTheEndOfADamagedRecord:
    """In a file `before, payload, behind`, of which `payload` is damaged."""

    def check(self, kernel: ModuleType, record: bytes, behind: bytes) -> None:
        before = framed(b"before")
        file = before + record + behind
        assert kernel.scan(file).fault is not None
        assert kernel.find_end(file, len(before)) == len(before) + len(record)

    def test_is_known_by_its_length_if_its_data_is_damaged(
        self, kernel: ModuleType, payload: bytes, behind: bytes
    ) -> None:
        record = framed(payload)
        for at in range(12, 12 + len(payload)):
            self.check(kernel, damaged(record, at), behind)
        self.check(kernel, record[:12] + bytes(len(payload)) + record[-4:], behind)

    def test_is_known_by_its_length_if_its_checksum_is_damaged(
        self, kernel: ModuleType, payload: bytes, behind: bytes
    ) -> None:
        record = framed(payload)
        for at in range(len(record) - 4, len(record)):
            self.check(kernel, damaged(record, at), behind)

    def test_is_known_by_its_data_if_its_length_is_damaged(
        self, kernel: ModuleType, payload: bytes, behind: bytes
    ) -> None:
        record = framed(payload)
        for at in range(8):
            self.check(kernel, damaged(record, at), behind)

    def test_record_with_bad_length_crc_found_by_data(
        self, kernel: ModuleType, payload: bytes, behind: bytes
    ) -> None:
        record = framed(payload)
        for at in range(8, 12):
            self.check(kernel, damaged(record, at), behind)
        self.check(kernel, bytes(12) + record[12:], behind)

    def test_is_unknown_if_header_and_data_are_damaged(
        self, kernel: ModuleType, payload: bytes, behind: bytes
    ) -> None:
        record = damaged(damaged(framed(payload), 3), 14)
        assert kernel.find_end(record + behind, 0) == -1


def test_the_end_of_an_empty_record_with_a_lost_header_is_known(kernel: ModuleType) -> None:
    assert kernel.find_end(bytes(12) + masked(b"") + framed(b"next"), 0) == 16


def test_a_length_that_points_at_no_border_is_not_believed(kernel: ModuleType) -> None:
    """As after a deleted span: the header is right, but its record is no longer that long."""
    whole = framed(b"a record of some length", b"next")
    cut = whole[:20] + whole[25:]
    assert kernel.find_end(cut, 0) == -1
    assert kernel.find_next(cut, 1).offset == len(cut) - 20


def test_the_end_of_what_is_there_is_a_border_only_if_final(kernel: ModuleType) -> None:
    by_length, by_data = damaged(framed(b"payload"), 14), damaged(framed(b"payload"), 3)
    for record in (by_length, by_data):
        assert kernel.find_end(record, 0) == len(record)
        assert kernel.find_end(record, 0, final=False) == -1
        for more in range(1, 12):
            assert kernel.find_end(record + header(4)[:more], 0, final=False) == -1
        assert kernel.find_end(record + header(4), 0, final=False) == len(record)


def test_no_end_is_looked_for_beyond_the_cap(kernel: ModuleType) -> None:
    for record in (damaged(framed(b"payload"), 14), damaged(framed(b"payload"), 3)):
        assert kernel.find_end(record, 0, max_record_bytes=7) == len(record)
        assert kernel.find_end(record, 0, max_record_bytes=6) == -1


def test_too_few_bytes_for_a_header_have_no_end(kernel: ModuleType) -> None:
    for size in range(12):
        assert kernel.find_end(bytes(size), 0) == -1
    for size in range(12, 16):
        assert kernel.find_end(header(0)[:12] + bytes(size - 12), 0) == -1


@pytest.mark.sweep
@settings(max_examples=drawn(100))
@given(
    records=st.lists(payloads, min_size=1, max_size=4),
    which=st.integers(0),
    at=st.integers(0),
)
def test_one_damaged_byte_never_hides_where_its_record_ends(
    kernel: ModuleType, records: list[bytes], which: int, at: int
) -> None:
    which %= len(records)
    at %= len(records[which]) + 16
    start = len(framed(*records[:which]))
    end = start + len(records[which]) + 16
    assert kernel.find_end(damaged(framed(*records), start + at), start) == end
