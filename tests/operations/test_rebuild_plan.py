"""Where a rebuild cuts shards: by their indexes, of which only a part is held at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardline.operations.shard_slice import _find_cuts, list_whole_slices, plan_rebuild
from shardline.tfrecord.index import index_path, write_index
from tests.operations.shard_files import landed, paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shardline.kernel.types import IntArray

SIZES = st.lists(st.sampled_from([16, 17, 30, 46, 300]), max_size=30)


def lots(offsets: list[int], cuts: list[int]) -> Iterator[IntArray]:
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(offsets)), None]):
        if offsets[start:end]:
            yield np.array(offsets[start:end], np.int64)


@given(SIZES, st.lists(st.integers(1, 30)), st.integers(1, 400), st.data())
def test_spans_are_as_long_as_they_can_be_however_the_offsets_come(
    sizes: list[int], cuts: list[int], target: int, data: st.DataObject
) -> None:
    room = data.draw(st.integers(0, target))
    offsets = np.cumsum([0, *sizes]).tolist()
    spans = list(_find_cuts(lots(offsets, cuts), room=room, target=target))
    assert [span.first for span in spans] == [0, *(span.end for span in spans)][: len(spans)]
    assert (spans[-1].end if spans else 0) == len(sizes)
    for number, span in enumerate(spans):
        assert (span.start_byte, span.end_byte) == (offsets[span.first], offsets[span.end])
        used = span.end_byte - span.start_byte
        # The first one goes into what is left of a shard, unless nothing of it fits there.
        limit = room if number == 0 and sizes[0] <= room else target
        assert used <= limit or span.end == span.first + 1
        if span.end < len(sizes):
            assert used + sizes[span.end] > limit


@pytest.mark.parametrize("place", [0, 8, 20, 56 + 8 * 2, 56 + 8 * 900, -8])
def test_a_shard_whose_index_is_damaged_is_read_instead(
    tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardline.tfrecord.index._OFFSETS_AT_ONCE", 100)
    version = landed(tmp_path, [b"%04d" % number * (number % 5) for number in range(1000)])
    (path,) = paths(version.latest())
    inputs = list_whole_slices(version.latest())
    bare = plan_rebuild(version.store, inputs, 3000)
    assert len(bare) > 5
    write_index(path)
    assert plan_rebuild(version.store, inputs, 3000) == bare
    data = bytearray(index_path(path).read_bytes())
    data[place : place + 8 or None] = b"\xff" * 8
    index_path(path).write_bytes(data)
    assert plan_rebuild(version.store, inputs, 3000) == bare
    index_path(path).write_bytes(data[:-9])
    assert plan_rebuild(version.store, inputs, 3000) == bare
