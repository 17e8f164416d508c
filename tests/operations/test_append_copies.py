"""A plain TFRecord file that lands whole is a copy: its sha256 is known, and never a wrong one."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
import pytest

from shardline.api import Version
from shardline.errors import SourceError
from shardline.operations.append import append
from shardline.operations.shard_writer import ShardPlan, make_shard
from shardline.operations.verify_version import verify_version
from shardline.schema.encoding import QuarantinedRow
from shardline.schema.schema import Schema
from shardline.sources import open_source
from shardline.storage import open_store
from shardline.tfrecord.hashing import Checksum, ContentMismatchError, FileContent
from tests.errors import raises
from tests.kernel.frames import framed
from tests.operations.landings import NAME, SCHEMA, shard_bytes, stored
from tests.tfrecord.samples import example_of, flipped, packed

if TYPE_CHECKING:
    from pathlib import Path

    from shardline.operations.shard_writer import OpenShard

RECORDS = [example_of(id=number, name=b"name %d" % number) for number in range(1000)]
BAD = example_of(id=1, name=b"\xff")
PLAIN = framed(*RECORDS)
SWAPPED = framed(*RECORDS[1:], RECORDS[0])
WITH_BAD_ONE = framed(*RECORDS, BAD)
DAMAGED = flipped(PLAIN, 8 * 500 + 300)


@pytest.fixture
def version(tmp_path: Path) -> Version:
    return Version(tmp_path / "root", NAME)


def assert_digests_are_right(version: Version) -> None:
    """Every shard has the sha256 that the log tells, and its records."""
    told = [shard.sha256 for shard in version.latest().shards]
    assert told == [hashlib.sha256(data).hexdigest() for data in shard_bytes(version)]
    assert verify_version(version).ok


def swap_unseen(path: Path, data: bytes) -> None:
    """Write over a file so that neither its size nor its time tells."""
    status = path.stat()
    assert status.st_size == len(data)
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("data", "options", "shards"),
    [
        (PLAIN, {}, [PLAIN]),
        (PLAIN, {"target_bytes": len(PLAIN)}, [PLAIN]),
        (
            PLAIN,
            {"target_bytes": len(PLAIN) - 1},
            [framed(*RECORDS[:-1]), framed(RECORDS[-1])],
        ),
        (PLAIN, {"max_quarantined": 0.1}, [PLAIN]),
        (PLAIN, {"salvage": True}, [PLAIN]),
        (PLAIN, {"compression": "gzip"}, None),
        (WITH_BAD_ONE, {"max_quarantined": 0.1}, [PLAIN]),
        (DAMAGED, {"salvage": True}, None),
        (packed("gzip", PLAIN), {}, [PLAIN]),
        (packed("zlib", PLAIN), {}, [PLAIN]),
        (packed("gzip", PLAIN), {"compression": "gzip"}, None),
    ],
    ids=[
        "whole",
        "just the target",
        "over the target",
        "rows may be refused",
        "nothing to salvage",
        "packed",
        "one row refused",
        "salvaged",
        "from gzip",
        "from zlib",
        "from gzip to gzip",
    ],
)
def test_changing_file_never_gives_wrong_digest(
    version: Version,
    tmp_path: Path,
    data: bytes,
    options: dict[str, Any],
    shards: list[bytes] | None,
) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    append(version, path, schema=SCHEMA, **options)
    assert shards is None or shard_bytes(version) == shards
    assert_digests_are_right(version)


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"target_bytes": 9_000}])
@pytest.mark.parametrize("files", [1, 3])
def test_file_swapped_between_passes_is_not_appended(
    version: Version, tmp_path: Path, files: int, options: dict[str, Any]
) -> None:
    sources = []
    for number in range(files):
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(PLAIN)
        sources.append(open_source(path))
        sources[-1].identity()
        swap_unseen(path, SWAPPED)
    with raises(SourceError, "source-changed"):
        append(version, sources, schema=SCHEMA, on_duplicate="append", **options)
    assert not stored(version, "shards")


class OneRefused:
    """Fills a shard with the records, and refuses the row behind them."""

    def begin(self) -> None:
        """There is nothing to go back to."""

    def fill(self, part: OpenShard) -> bool:
        ends = np.cumsum([len(record) + 16 for record in RECORDS])
        lengths = np.array([len(record) for record in RECORDS])
        part.shard.add(PLAIN, ends - lengths - 4, lengths)
        part.quarantine(QuarantinedRow(len(RECORDS), "the last row", None, "does not fit", BAD))
        part.end = len(RECORDS) + 1
        return True


def test_unexpected_content_is_not_written(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    digest = hashlib.sha256(WITH_BAD_ONE).hexdigest()
    told = FileContent(Checksum(len(WITH_BAD_ONE), google_crc32c.value(WITH_BAD_ONE)), digest)
    plan = ShardPlan(store, "digits", "v1", {"made": "here"}, expected=told)
    with pytest.raises(ContentMismatchError):
        make_shard(plan, OneRefused())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    plan = replace(plan, expected=None)
    receipt = make_shard(plan, OneRefused())
    assert receipt.shard is not None
    assert receipt.shard.name == plan.name(0)
    assert receipt.shard.sha256 == hashlib.sha256(PLAIN).hexdigest()
    assert (receipt.quarantine, receipt.refused_rows) == (plan.quarantine(0), 1)
    assert store.read(plan.quarantine(0)).count(b"\n") == 1


def test_file_changed_between_passes_raises(version: Version, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(PLAIN)
    source = open_source(path)
    source.identity()
    path.write_bytes(SWAPPED + framed(BAD))
    with pytest.raises(SourceError, match="changed while"):
        append(version, source, schema=Schema.opaque())
    assert not version.exists
    assert stored(version, "shards") == {}
