"""Many processes append to one version while it is rebuilt and read: each source lands once."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from shardline.api import Version
from shardline.operations.verify_version import verify_version
from tests.kernel.frames import framed
from tests.operations.appenders import NAME, contents, digest_of, hear, say, started
from tests.sampling import runs_whole_sweeps

if TYPE_CHECKING:
    from pathlib import Path

WRITERS, SOURCES, RECORDS = 8 if runs_whole_sweeps() else 4, 20, 120


def records_of(source: int) -> list[bytes]:
    return [b"source %02d record %03d" % (source, number) for number in range(RECORDS)]


@pytest.mark.sweep
def test_racing_appends_rebuilds_and_readers_agree(tmp_path: Path) -> None:
    paths = []
    for source in range(SOURCES):
        paths.append(tmp_path / f"{source}.tfrecord")
        paths[-1].write_bytes(framed(*records_of(source)))
    root = str(tmp_path / "root")
    chance = random.Random(7)
    with ExitStack() as stack:
        writers = []
        for _ in range(WRITERS):
            own = map(str, chance.sample(paths, 12))
            writers.append(stack.enter_context(started("append", root, *own)))
        others = [stack.enter_context(started(role, root)) for role in ("rebuild", "read")]
        everyone = [*writers, *others]
        assert [hear(one) for one in everyone] == ["ready"] * len(everyone)
        for one in everyone:
            say(one, "go")
        entries = [json.loads(hear(one)) for one in writers]
        for one in others:
            say(one, "enough")
        rebuilt, seen = (json.loads(hear(one)) for one in others)

    version = Version(root, NAME)
    landed: Counter[str] = Counter()
    added = {}
    for _, entry in version.log.replay():
        if entry.operation == "append":
            landed.update(str(source.path) for source in entry.sources)
            added[entry.number] = [str(source.path) for source in entry.sources]
    assert set(landed.values()) == {1}
    assert len(landed) > WRITERS
    assert sum(any(told) for told in entries) > 2, "they did not race"
    committed = [number for told in entries for number in told if number is not None]
    assert sorted(committed) == sorted(added), "who was told of an entry made it"
    everything = [r for at, path in enumerate(paths) if str(path) in landed for r in records_of(at)]
    newest = contents(version, version.latest())
    assert newest == {
        "told": len(everything),
        "read": len(everything),
        "digest": digest_of(everything),
    }
    assert rebuilt["rebuilt"] > 0
    assert seen
    held = {
        number: contents(version, version.snapshot(number))
        for number in {told["snapshot"] for told in seen}
    }
    for told in seen:
        number = told.pop("snapshot")
        assert told == held[number]
        assert told["told"] == told["read"]
        assert told["read"] % RECORDS == 0, "no source is there in part"
    assert verify_version(version).ok
