"""Versions on a real S3 server: the same log, with conditional puts instead of hard links."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

import shardline
from shardline.api import Version
from shardline.errors import ConditionsIgnoredError
from shardline.log.append_change import Append
from shardline.log.log import CHECKPOINT_INTERVAL
from shardline.log.model import Shard
from shardline.operations.check import check_version
from shardline.operations.vacuum import vacuum
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Schema
from shardline.tfrecord import RecordFile
from shardline.tfrecord.input_file import StoredFile
from tests.errors import raises
from tests.log.versions import NAME, append, held, make_version, shard_name, source_of

WRITERS, COMMITS = 8, 5
ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from shardline.api import Version
from tests.log.versions import NAME, append
version = Version(sys.argv[1], NAME)
for number in range(int(sys.argv[3])):
    append(version, f"writer {sys.argv[2]} shard {number}")
"""


def write_records(version: Version, label: str, folder: Path, payloads: list[bytes]) -> Shard:
    """A shard of real records, uploaded and committed."""
    path = folder / f"{label}.tfrecord"
    shardline.files.write_records(path, payloads)
    data = path.read_bytes()
    source = source_of(label)
    digest = hashlib.sha256(data).hexdigest()
    shard = Shard(shard_name(label), len(payloads), len(data), digest, source=source.key)
    version.store.create(version.shard_name(shard), data)
    version.commit(Append(shards=[shard], sources=[source]))
    return shard


@pytest.mark.sweep
def test_of_eight_writers_who_race_each_commits_everything_once(s3_root: str) -> None:
    make_version(s3_root)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, s3_root, str(number), str(COMMITS)], cwd=ROOT
        )
        for number in range(WRITERS)
    ]
    assert [process.wait() for process in processes] == [0] * WRITERS
    version = Version(s3_root, NAME)
    expected = {f"writer {w} shard {n}" for w in range(WRITERS) for n in range(COMMITS)}
    assert sorted(held(version)) == sorted(expected)
    assert version.state.number == 1 + WRITERS * COMMITS
    assert [entry.number for _, entry in version.log.replay()] == list(
        range(1, version.state.number + 1)
    )


def test_a_version_on_s3_is_checked_verified_and_read_by_ranges(
    s3_root: str, tmp_path: Path
) -> None:
    version = Version(s3_root, NAME)
    version.create(Schema.opaque())
    payloads = [np.random.default_rng(n).bytes(5000) for n in range(200)]
    shard = write_records(version, "real", tmp_path, payloads)
    assert check_version(version).ok
    assert version.published().records == 200
    assert verify_version(version).ok
    with RecordFile(StoredFile(version.store, version.shard_name(shard))) as file:
        assert [bytes(payload) for payload in file] == payloads
    parts = version.store.read_ranges(version.shard_name(shard), [(12, 5000), (0, 8)])
    assert parts == [payloads[0], (5000).to_bytes(8, "little")]


def test_a_damaged_shard_on_s3_is_named_and_its_snapshot_rejected(
    s3_root: str, tmp_path: Path
) -> None:
    version = Version(s3_root, NAME)
    version.create(Schema.opaque())
    good = write_records(version, "good", tmp_path, [b"a"])
    bad = write_records(version, "bad", tmp_path, [b"b" * 100])
    data = bytearray(version.store.read(version.shard_name(bad)))
    data[50] ^= 1
    version.store.replace(version.shard_name(bad), bytes(data))
    report = check_version(version)
    assert (report.ok, report.rejected, report.published) == (False, (2,), 3)
    assert [shard.name for shard in version.published().shards] == [good.name]


def test_a_checkpoint_on_s3_is_used_and_vacuum_takes_what_is_not_needed(s3_root: str) -> None:
    version = make_version(s3_root)
    for number in range(CHECKPOINT_INTERVAL):
        append(version, f"shard {number}")
    opened = Version(s3_root, NAME)
    assert opened.state.checkpoint == CHECKPOINT_INTERVAL
    assert len(opened.latest().shards) == CHECKPOINT_INTERVAL
    version.restore(2)
    report = vacuum(s3_root, "digits", retention=timedelta(0), dry_run=False)
    assert len(report.files) == CHECKPOINT_INTERVAL - 2
    assert held(Version(s3_root, NAME)) == ["shard 0", "shard 1"]
    assert len(version.store.list("digits/shards")) == 2


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_written(
    careless_s3_root: str,
) -> None:
    with raises(ConditionsIgnoredError, "conditional-write-unsupported"):
        make_version(careless_s3_root)
    assert Version(careless_s3_root, NAME).store.list("") == []
