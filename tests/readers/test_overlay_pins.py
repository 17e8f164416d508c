"""Overlays that do not belong to what they lie beside: every reader refuses them, checks tell."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shardline.api import Version
from shardline.errors import UnreadableSnapshotError
from shardline.hints import Command
from shardline.log.model import Base, Checks, Shard
from shardline.operations.check import check_version
from shardline.operations.verify_version import verify_version
from shardline.schema.schema import Feature, Schema, Text
from tests.errors import raises
from tests.log.versions import shard_name
from tests.readers.overlays import (
    SCORE,
    TAGS,
    commit,
    extended,
    lay,
    pinned,
    score,
    scored,
    tags,
)
from tests.readers.snapshots import NUMBERS, numbers, published, write_shard
from tests.tfrecord.samples import example_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shardline.api import Snapshot

SCORED = extended(NUMBERS, SCORE)
READERS: dict[str, Callable[[Snapshot], Any]] = {
    "to_tf": lambda snapshot: snapshot.to_tf(unchecked=True),
    "to_tf raw": lambda snapshot: snapshot.to_tf(unchecked=True, parse=False),
    "to_arrow": lambda snapshot: snapshot.to_arrow(),
    "to_pandas": lambda snapshot: snapshot.to_pandas(),
    "take": lambda snapshot: snapshot.take([0]),
}


def base_in(root: Path, schema: Schema = NUMBERS) -> Snapshot:
    """Three numbers, published."""
    return published(root, schema, numbers(0, 3))


def laid(root: Path, schema: Schema, base: Shard, count: int = 3) -> Snapshot:
    """Scores beside a shard, whatever is known of that."""
    version = Version(root, "digits/v2")
    version.create(schema)
    return commit(
        version, pinned(write_shard(version, "over", [score(x) for x in range(count)]), base)
    ).latest()


def unknown(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    return laid(root, SCORED, replace(base, name=shard_name("never landed")))


def no_such_version(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    return laid(root, SCORED, replace(base, name=shard_name("shard 0", "v0")))


def other_content(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    return laid(root, SCORED, replace(base, sha256="0" * 64))


def other_content_below(root: Path) -> Snapshot:
    """The base is an overlay whose file is the pinned one, but it lies on something else."""
    below = scored(root)
    assert below.shards[0].base is not None
    name = below.shards[0].base.name
    moved = replace(below.shards[0], base=Base(name, "0" * 64))
    version = Version(root, "digits/v3")
    version.create(extended(SCORED, TAGS))
    overlay = write_shard(version, "over", [tags(x) for x in range(3)])
    return commit(version, pinned(overlay, moved)).latest()


def other_records(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    return laid(root, SCORED, base, count=2)


def other_records_below(root: Path) -> Snapshot:
    below = other_records(root)
    version = Version(root, "digits/v3")
    version.create(extended(SCORED, TAGS))
    overlay = write_shard(version, "over", [tags(x) for x in range(2)])
    return commit(version, pinned(overlay, below.shards[0])).latest()


def other_kind(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    schema = Schema((Feature("x", "float"), Feature("name", "bytes", meaning=Text()), SCORE))
    return laid(root, schema, base)


def stricter(root: Path) -> Snapshot:
    loose = Schema((Feature("x", "int64", required=False), *NUMBERS.features[:1]))
    (base,) = base_in(root, loose).shards
    return laid(root, SCORED, base)


def left_out(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    return laid(root, Schema((Feature("x", "int64"), SCORE)), base)


def nothing_new(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    return laid(root, NUMBERS, base)


def other_payload(root: Path) -> Snapshot:
    (base,) = base_in(root).shards
    return laid(root, Schema(SCORED.features, "sequence_example"), base)


def on_opaque(root: Path) -> Snapshot:
    (base,) = base_in(root, Schema.opaque()).shards
    return laid(root, Schema.opaque(), base)


def twice_in_a_stack(root: Path) -> Snapshot:
    """The version in the middle does not declare what lies below it, and the last one adds it."""
    (base,) = base_in(root).shards
    below = laid(root, Schema((SCORE,)), base)
    return lay(below, "digits/v3", SCORED, [example_of(x=1, name=b"")] * 3).latest()


def damaged_log(root: Path) -> Snapshot:
    snapshot = scored(root)
    assert snapshot.shards
    entry = root / "digits" / "v1" / "log" / f"{2:020}.json"
    entry.write_bytes(entry.read_bytes().replace(b'"records":3', b'"records":4'))
    return snapshot


CASES: dict[str, tuple[Callable[[Path], Snapshot], str]] = {
    "unknown": (unknown, r"base not found in the log of digits/v1"),
    "no such version": (no_such_version, r"base not found in the log of digits/v0"),
    "other content": (other_content, r"in the log of digits/v1, expected 000000000000…"),
    "other content below": (other_content_below, r"in the log of digits/v2, expected "),
    "other records": (other_records, r"base has 3 records, expected 2"),
    "other records below": (other_records_below, r"base has 3 records, expected 2"),
    "other kind": (other_kind, r"digits/v2 declares feature 'x' differently"),
    "stricter": (stricter, r"digits/v2 declares feature 'x' differently"),
    "left out": (left_out, r"digits/v2 does not declare feature 'name'"),
    "nothing new": (nothing_new, r"digits/v2 adds no feature to digits/v1"),
    "other payload": (other_payload, r"records are sequence_example, those of the base"),
    "on opaque": (on_opaque, r"records are opaque, those of the base opaque"),
    "twice in a stack": (twice_in_a_stack, r"feature 'name' exists in a lower layer"),
    "damaged log": (damaged_log, r"base unknown: digits/v1: entry 2 of the log: "),
}


def pair_in(message: str) -> list[str]:
    """The shards that a message names."""
    words = re.split(r"[ ,:]+", message)
    return [word for word in words if word.endswith(".tfrecord")]


@pytest.mark.parametrize("case", CASES)
def test_mismatched_layers_fail_readers_and_checks(tmp_path: Path, case: str) -> None:
    make, why = CASES[case]
    snapshot = make(tmp_path)
    for name, read in READERS.items():
        if snapshot.schema.payload == "opaque" and name != "to_tf raw":
            continue
        where = {"version": snapshot.version, "snapshot": snapshot.number}
        with raises(UnreadableSnapshotError, "layer-mismatch", **where) as caught:
            read(snapshot)
        error = caught.value
        assert re.search(why, error.message)
        overlay, base, *_ = pair_in(error.message)
        assert overlay != base
        assert error.hint is not None
        assert error.hint.commands == (Command.of("verify", str(snapshot)),)
        assert snapshot.version in str(error.hint)
    version = Version(tmp_path, snapshot.version)
    for quick in (True, False):
        report = verify_version(version, quick=quick)
        (bad, *_) = [shard for shard in report.shards if not shard.ok]
        assert why.strip(r"\ ").removesuffix("…")[:20] in bad.problems[-1]
    found = check_version(version, recheck=True)
    assert not found.ok
    assert [one.check for one in found.attestations if not one.passed][:1] == ["integrity"]
    assert found.published is None


def test_a_version_without_the_schema_check_is_still_held_to_its_pins(tmp_path: Path) -> None:
    (base,) = base_in(tmp_path).shards
    version = Version(tmp_path, "digits/v2")
    version.create(SCORED, Checks(("integrity",)))
    overlay = write_shard(version, "over", [score(x) for x in range(2)])
    commit(version, pinned(overlay, base))
    report = check_version(version)
    assert (report.ok, report.rejected) == (False, (1,))
    assert "3 records" in report.attestations[0].detail


def test_a_feature_may_be_declared_with_more_room_than_its_base_takes(tmp_path: Path) -> None:
    (base,) = base_in(tmp_path).shards
    free = Feature("name", "bytes", (None,), required=False)
    room = Schema((Feature("x", "int64", required=False, doc="a number"), free, SCORE))
    snapshot = laid(tmp_path, room, base)
    assert snapshot.to_arrow().read_all()["x"].to_pylist() == [0, 1, 2]


def test_what_a_shard_amounts_to_tells_its_bases_too() -> None:
    base = Shard(shard_name("a"), 1, 1, "1" * 64)
    over = Shard(shard_name("b"), 1, 1, "2" * 64, base=Base(base.name, base.content))
    other = replace(over, base=Base(base.name, "3" * 64))
    assert base.content == base.sha256
    assert len({base.content, over.content, other.content, over.sha256}) == 4
    with pytest.raises(ValueError, match="invalid base"):
        replace(over, base=Base("../elsewhere", base.sha256))
