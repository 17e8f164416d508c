"""Compare a version with what the independent reader finds in its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardline.api import Version
    from tests.golden.reader import Reader


def assert_alike(reader: Reader, version: Version) -> None:
    state = version.state
    assert (reader.number, reader.digest) == (state.number, state.digest)
    assert reader.published == state.published
    assert reader.schema == version.schema.to_dict()
    assert len(reader.moments) == state.snapshot
    for number, moment in enumerate(reader.moments, 1):
        snapshot = version.snapshot(number)
        told = [landing.shard for landing in moment.shards]
        assert told == [shard.to_dict() for shard in snapshot.shards]
        assert moment.totals == snapshot.totals.to_dict()
        assert (moment.content, moment.entry) == (snapshot.content, snapshot.entry)
        assert (reader.is_published(number), bool(moment.rejected)) == (
            snapshot.published,
            snapshot.rejected,
        )
    assert reader.tags == {name: hold.to_dict() for name, hold in state.tags.items()}
    assert reader.pins == {name: hold.to_dict() for name, hold in state.pins.items()}
    assert reader.sources == dict(state.sources.items())
    assert reader.open_sources == dict(state.open_sources.items())
    assert reader.shard_names == dict(state.shard_names.items())
