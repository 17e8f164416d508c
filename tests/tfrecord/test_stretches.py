"""A worker begins in the middle of a file: what it may find there, and what must not count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shardline.errors import CorruptFileError
from shardline.tfrecord.parallel import map_blocks
from shardline.tfrecord.reader import Limits
from tests.kernel.frames import framed, header
from tests.tfrecord.samples import made

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.tfrecord.record_block import RecordBlock

INNER = framed(*[b"inner"] * 40)
PAYLOADS = [b"a" * 20, INNER, b"b" * 20, b"", INNER, b"c"] * 3


def payloads_of(block: RecordBlock) -> list[bytes]:
    return [bytes(payload) for payload in block.payloads()]


@pytest.mark.parametrize("stretch_bytes", [1, 12, 16, 17, 21, 50, 333, 1000])
def test_a_record_longer_than_many_stretches_is_one_record(
    tmp_path: Path, stretch_bytes: int
) -> None:
    path = made(tmp_path / "a", framed(*PAYLOADS))
    found = map_blocks(path, payloads_of, workers=3, stretch_bytes=stretch_bytes)
    assert [payload for payloads in found for payload in payloads] == PAYLOADS


def test_an_error_about_a_frame_that_is_no_record_stays_inside(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*PAYLOADS))

    def work(block: RecordBlock) -> int:
        if b"inner" in payloads_of(block):
            raise CorruptFileError(str(path), "example", 0, 0, "no Example")
        return len(block.starts)

    assert sum(map_blocks(path, work, workers=2, stretch_bytes=50)) == len(PAYLOADS)


def test_a_header_inside_a_record_that_asks_for_much_asks_in_vain(tmp_path: Path) -> None:
    greedy = b"x" * 40 + header(2**27) + b"x" * 40
    payloads = [greedy, b"next", greedy, b"last"]
    path = made(tmp_path / "a", framed(*payloads))
    found = map_blocks(path, payloads_of, workers=2, stretch_bytes=30)
    assert [payload for payloads in found for payload in payloads] == payloads


def test_the_cap_on_records_holds_in_every_stretch(tmp_path: Path) -> None:
    path = made(tmp_path / "a", framed(*[b"short"] * 20, bytes(501), *[b"short"] * 20))
    limits = Limits(max_record_bytes=500)
    with pytest.raises(CorruptFileError) as caught:
        list(map_blocks(path, payloads_of, limits=limits, workers=2, stretch_bytes=100))
    assert (caught.value.kind, caught.value.record, caught.value.offset) == ("oversized", 20, 420)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_progress_grows_up_to_the_size_of_the_file(tmp_path: Path, workers: int) -> None:
    path = made(tmp_path / "a", framed(*PAYLOADS))
    seen: list[int] = []
    list(map_blocks(path, payloads_of, workers=workers, stretch_bytes=100, progress=seen.append))
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size
