"""Datasets that an earlier release wrote read today as they did then, by us and by others."""

from __future__ import annotations

import hashlib
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from shardline.api import Version
from shardline.log.append_change import Append
from shardline.log.model import Checks, Shard, Source
from shardline.log.publication import list_published
from shardline.operations.check import check_version
from shardline.operations.example_file import write_examples
from shardline.operations.verify_version import verify_version
from shardline.schema.tf_spec import to_tf_spec
from tests.golden.alike import assert_alike
from tests.golden.reader import follow, hinted_checkpoint, read_log

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"
WHOLE = "b724521f7c8faa065a6bdc377b059277056b136ee409cee23499483ebef76f9f"
FINGERPRINTS = {
    "pets/v1": "733cde1dffd796e53364844c2bafd82d15cdc5a7f6657d4ff2bff4aa4b55b1b7",
    "pets/v2": "a7d500312137641774662f08bd418e8c853caac7da3a6793b372e7f714516896",
    "walks/v1": "e956b94151ad46c1f3d43136bd9168188e42815583dee5c556277548678d7136",
}
HEADS = {
    "pets/v1": (33, "c2260659194d1691c2755c69dec86a903d4a3f38209cad4cc411aa14b07ba281"),
    "pets/v2": (3, "deb8a1ceba840d1b098dea85469eba0fece42068ac1941ba489ac16e08657c8f"),
    "walks/v1": (2, "eecc3595f2c98a41f9b5fe870d6af1b753778b6797e3a9a13266cdfaea5ae973"),
}
A, B, C, D, E, F, G, BOTH, D1 = (
    f"v1.{name}.tfrecord"
    for name in (
        "ca978112ca1bbdcafac231b39a23dc4d",
        "3e23e8160039594a33894f6564e1b134",
        "2e7d2c03a9507ae265ecf5b5356885a5",
        "18ac3e7343f016890c510e93f9352611",
        "3f79bb7b435b05321651daefd374cdc6",
        "252f10c83610ebca1a059c0bae8255eb",
        "cd0aa9856147b6c5b4ff2b7dfee5da20",
        "24c8f4d3d66d6227223dca1dda658887",
        "18ac3e7343f016890c510e93f9352611.1",
    )
)
# Of each snapshot: its entry, records, bytes, content digest, shards, and whether it is published.
PETS = [
    (2, 3, 705, "a492935304ef6c9f54d550914bc4413cb49218a8279c78610e1a817531528654",
     [A], True),
    (4, 9, 1376, "946b5b09dd8d869b58d0c62971556d846b0d46bddccf5a90868ec98762ce2d4b",
     [A, B, C], True),
    (7, 10, 1590, ABCD := "eee81360c1386cc6077c65bd99755a48c2b0f91aefae8ded6f4c7a52e994b7d1",
     [A, B, C, D], False),
    (9, 12, 2083, "d6f25bcc9df9f29f162838fd5456412dae2bedb989e7d7168111e829a9238f73",
     [A, B, C, D, E], False),
    (11, 11, 1869, ABCE := "b551188169b097248da4160445e79d3f2b46989718217098a9c496d26171f462",
     [A, B, C, E], False),
    (12, 11, 2608, "5d28acc4295e4526d3efff8ad272178a6c6629e0cdf57fc1920ff48f0276473f",
     [A, BOTH, E], True),
    (13, 13, 2893, "945c074a5419947f584f0f194fcc724b177f137267741412dd9cbb654c43bab9",
     [A, BOTH, E, F], False),
    (19, 14, 3144, "b802a1fa814dca88b58b497ccb52b8f4181fb9822e8b387781c19119b269cfa8",
     [A, BOTH, E, F, G], False),
    (22, 11, 1869, ABCE,
     [A, B, C, E], True),
    (27, 10, 1590, ABCD,
     [A, B, C, D], False),
    (28, 11, 1869, ABCE,
     [A, B, C, E], True),
    (30, 12, 2083, "7cd51eaa339a85f880b5955bd300238eb55d7c97721d20129051f70fc7dc2cf8",
     [A, B, C, E, D1], False),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "root"))


def test_golden_data_is_never_rewritten() -> None:
    whole = hashlib.sha256()
    for path in sorted(path for path in GOLDEN.rglob("*") if path.is_file()):
        whole.update(f"{path.relative_to(GOLDEN).as_posix()}\n".encode())
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    assert whole.hexdigest() == WHOLE


def test_each_snapshot_is_what_it_was(root: Path) -> None:
    version = Version(root, "pets/v1")
    snapshots = [version.snapshot(number) for number in range(1, len(PETS) + 1)]
    assert [
        (s.entry, s.records, s.bytes, s.content, [shard.name for shard in s.shards], s.published)
        for s in snapshots
    ] == PETS
    assert [s.number for s in snapshots if s.rejected] == [3, 5]
    assert version.state.checkpoint == 21


@pytest.mark.parametrize("name", HEADS)
def test_schema_and_head_are_what_they_were(root: Path, name: str) -> None:
    version = Version(root, name)
    assert version.schema.fingerprint == FINGERPRINTS[name]
    assert (version.state.number, version.state.digest) == HEADS[name]


def test_names_lead_to_the_snapshots_that_they_led_to(root: Path) -> None:
    pets = Version(root, "pets/v1")
    found = {which: pets.find(which).number for which in ("latest", "published", "best")}
    assert found == {"latest": 12, "published": 11, "best": 6}
    assert pets.find("2025-03-01T14:30:00").number == 1
    assert set(pets.state.tags) == {"best"}
    assert pets.state.pins["training-12"].snapshot == 6
    assert pets.state.checks == Checks(("integrity", "schema"), ("drift",))
    assert Version(root, "pets/v2").published().number == 1
    assert Version(root, "walks/v1").state.published is None


def test_an_overlay_tells_its_base_and_its_input(root: Path) -> None:
    version = Version(root, "pets/v2")
    (shard,) = version.latest().shards
    (base,) = Version(root, "pets/v1").snapshot(1).shards
    assert shard.base is not None
    assert (shard.base.name, shard.base.sha256) == (base.name, base.sha256) == (A, base.sha256)
    (read,) = version.log.entry(3).inputs
    assert (read.dataset, read.version, read.snapshot) == ("pets", "v1", 1)
    assert read.entry == Version(root, "pets/v1").log.entry(2).digest


def test_an_overlay_is_read_as_its_version_declares(root: Path) -> None:
    snapshot = Version(root, "pets/v2").published()
    assert snapshot.to_arrow().read_all().to_pydict() == {"score": [0.25, 0.5, 0.75]}


@pytest.mark.parametrize("name", HEADS)
def test_log_and_shards_verify_whole(root: Path, name: str) -> None:
    version = Version(root, name)
    report = verify_version(version)
    assert report.ok
    assert report.log is not None
    assert (report.log.entries, report.log.checkpoints) == (HEADS[name][0], name == "pets/v1")
    assert all(shard.ok for shard in check_version(version, recheck=True).shards)


@pytest.mark.parametrize("which", ["1", "published", "best"])
def test_older_snapshots_that_are_kept_verify_too(root: Path, which: str) -> None:
    assert verify_version(Version(root, "pets/v1"), which).ok


def test_what_went_to_vacuum_is_gone(root: Path) -> None:
    version = Version(root, "pets/v1")
    assert set(version.log.entry(33).tombstones) == {D, F, G}
    report = verify_version(version, "8", quick=True)
    assert {shard.shard.name for shard in report.shards if not shard.ok} == {F, G}


def test_tensorflow_reads_every_record(root: Path) -> None:
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    version = Version(root, "pets/v1")
    spec = to_tf_spec(version.schema)
    records: list[dict[str, Any]] = []
    for shard in version.latest().shards:
        path = str(root / version.shard_name(shard))
        packed = "" if shard.compression == "none" else shard.compression.upper()
        read = [
            tf.io.parse_single_example(one, spec) for one in tf.data.TFRecordDataset(path, packed)
        ]
        assert len(read) == shard.records
        records += read
    ids = [*range(9), 10, 11, 9]
    assert [int(record["id"]) for record in records] == ids
    for number, record in zip(ids, records, strict=True):
        assert record["name"].numpy().decode() == f"pet {number} ✓"
        assert record["vector"].numpy().tolist() == [number / 4, 0.0, -1.0]
        assert int(record["label"]) == number % 3
        assert tf.io.decode_raw(record["raw"], tf.int16).numpy().tolist() == [number, 1, 2, 3]
        assert tf.io.decode_png(record["image"]).shape == (1, 1, 1)
        assert record["seen"].numpy().tolist() == [b"home", "straße".encode()][: number % 3]
        sizes = record["größe"].numpy().tolist()
        assert len(sizes) == (number % 3 > 0)
        assert all(size == 0.5 or math.isnan(size) for size in sizes)


def test_tensorflow_reads_sequence_examples(root: Path) -> None:
    import tensorflow as tf  # noqa: PLC0415 - takes seconds to load

    version = Version(root, "walks/v1")
    (shard,) = version.latest().shards
    data = tf.data.TFRecordDataset(str(root / version.shard_name(shard)))
    read = [tf.io.parse_single_sequence_example(one, *to_tf_spec(version.schema)) for one in data]
    assert [context["walker"].numpy() for context, _ in read] == [b"ann", b"bo"]
    places = [lists["place"].numpy().tolist() for _, lists in read]
    assert places == [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]]


@pytest.mark.parametrize("name", HEADS)
def test_another_reader_finds_the_same(root: Path, name: str) -> None:
    assert_alike(read_log(root, *name.split("/")), Version(root, name))


def test_another_reader_finds_the_same_from_the_checkpoint(root: Path) -> None:
    reader = hinted_checkpoint(root, "pets", "v1")
    assert reader.told() == read_log(root, "pets", "v1", last=21).told()
    state = Version(root, "pets/v1").log.checkpoint(21)
    assert state is not None
    published = [reader.is_published(number) for number in range(1, state.snapshot + 1)]
    assert published == list_published(state).tolist()
    assert reader.sources == dict(state.sources.items())
    follow(root, reader)
    assert reader.told() == read_log(root, "pets", "v1").told()
    assert_alike(reader, Version(root, "pets/v1"))


def test_nothing_is_lost_without_the_checkpoint(root: Path) -> None:
    for leaf in ("newest-checkpoint.json", "00000000000000000021.checkpoint"):
        (root / "pets/v1/log" / leaf).unlink()
    version = Version(root, "pets/v1")
    assert version.state.checkpoint == 0
    assert_alike(read_log(root, "pets", "v1"), version)


def test_the_log_goes_on_and_another_reader_follows(root: Path) -> None:
    version = Version(root, "walks/v1")
    source = Source(batch="today")
    name = f"v1.{'0' * 32}.tfrecord"
    path = root / version.shard_name(name)
    records = write_examples(path, {"walker": ["cy"], "place": [[[6.0, 7.0]]]})
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    shard = Shard(name, records, len(data), digest, "none", source.key)
    version.commit(Append(shards=[shard], sources=[source]))
    assert check_version(version).published == 2
    assert_alike(read_log(root, "walks", "v1"), version)


@pytest.mark.parametrize("name", HEADS)
def test_another_reader_reads_the_checkpoints_of_today(root: Path, name: str) -> None:
    version = Version(root, name)
    version.log.write_checkpoint(version.state)
    reader = hinted_checkpoint(root, *name.split("/"))
    assert reader.told() == read_log(root, *name.split("/")).told()
