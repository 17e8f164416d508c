from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardline
from shardline.dagster.expectations.sample import Sample, _choose_shards, take_sample
from shardline.errors import (
    ColumnError,
    CorruptFileError,
    ExampleError,
    InvalidArgumentError,
    ObjectNotFoundError,
    SchemaMismatchError,
)
from tests.dagster.rows import DIGITS, append_rows, digits, snapshot_of
from tests.errors import raises
from tests.kernel.examples import (
    entry,
    example,
    feature_list,
    feature_lists,
    float_feature,
    int64_feature,
)
from tests.readers.overlays import SCORE, checked, extended, lay, mixed, score
from tests.readers.snapshots import published
from tests.tfrecord.samples import example_of

if TYPE_CHECKING:
    from shardline.api import Snapshot

NUMBERED = shardline.Schema(
    (shardline.Feature("number", "int64"), shardline.Feature("filler", "bytes"))
)


def numbered(rows: int, size: int = 50) -> list[dict[str, object]]:
    return [{"number": number, "filler": bytes(size)} for number in range(rows)]


def numbers_in(taken: Sample) -> list[int]:
    return [int(number) for number in taken.frame["number"]]


def bytes_read() -> int:
    told = Path("/proc/self/io").read_text()
    return int(next(line for line in told.splitlines() if line.startswith("rchar")).split()[1])


def damage(snapshot: Snapshot, shard: int) -> str:
    path = Path(snapshot.files()[shard])
    data = bytearray(path.read_bytes())
    for place in range(20, len(data), 40):
        data[place] ^= 1
    path.write_bytes(data)
    return str(path)


def test_sample_below_limit_has_all_rows(tmp_path: Path) -> None:
    taken = take_sample(snapshot_of(tmp_path, digits(0, 30), digits(30, 60)), limit=60)
    assert (taken.rows, taken.of, taken.whole, taken.extent) == (60, 60, True, "all 60 rows")
    assert {name: str(kind) for name, kind in taken.frame.dtypes.items()} == {
        "age": "Int64",
        "label": "int64",
        "pixels__len": "int64",
        "pixels__min": "float32",
        "pixels__max": "float32",
        "pixels__mean": "float64",
        "scan__bytes": "int64",
        "strokes__len": "int64",
        "strokes__min": "Int64",
        "strokes__max": "Int64",
        "strokes__mean": "float64",
        "weight": "float32",
        "writer": "str",
    }
    row = taken.frame.loc[23]
    assert (row["age"], row["label"], row["writer"], row["scan__bytes"]) == (43, 3, "dan", 13)
    assert (row["pixels__len"], row["pixels__min"], row["pixels__max"]) == (4, 0.0, 0.75)
    assert (row["strokes__len"], row["strokes__max"], row["strokes__mean"]) == (5, 4, 2.0)
    assert taken.frame.loc[20, "age"] is pd.NA
    assert taken.frame.loc[24, "strokes__len"] == 0
    assert taken.frame.loc[24, "strokes__min"] is pd.NA


def test_sample_of_chosen_columns(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, digits(0, 30))
    for limit in (30, 10):
        taken = take_sample(snapshot, columns=["strokes", "label"], limit=limit)
        assert [column.name for column in taken.columns] == list(taken.frame.columns)
        assert list(taken.frame.columns) == [
            "strokes__len", "strokes__min", "strokes__max", "strokes__mean", "label",
        ]  # fmt: skip
    with raises(SchemaMismatchError, "unknown-feature", feature="shape"):
        take_sample(snapshot, columns=["shape"])


def test_nan_and_missing_lists_are_distinct(tmp_path: Path) -> None:
    schema = shardline.Schema(
        (
            shardline.Feature("grid", "float", (2, 2), required=False, nan=True),
            shardline.Feature("names", "bytes", (None,), meaning=shardline.Text()),
            shardline.Feature("blobs", "bytes", (None,)),
        )
    )
    nan = float("nan")
    rows: list[dict[str, Any]] = [
        {"grid": [[1.0, nan], [3.0, 8.0]], "names": ["a", "b"], "blobs": [b"123", b"4"]},
        {"grid": None, "names": [], "blobs": []},
        {"grid": [[nan, nan], [nan, nan]], "names": ["c"], "blobs": [b""]},
    ]
    frame = take_sample(snapshot_of(tmp_path, rows, schema=schema)).frame
    assert frame["grid__len"].to_list() == [4, pd.NA, 4]
    assert frame["grid__min"].to_list()[0] == 1.0
    assert frame["grid__max"].to_list()[0] == 8.0
    assert frame["grid__mean"].to_list()[0] == 4.0
    assert frame["grid__mean"].isna().to_list() == [False, True, True]
    assert frame["names__len"].to_list() == [2, 0, 1]
    assert frame["blobs__len"].to_list() == [2, 0, 1]
    assert frame["blobs__bytes"].to_list() == [4, 0, 0]
    assert "names__bytes" not in frame


def test_context_and_steps_have_separate_columns(tmp_path: Path) -> None:
    schema = shardline.Schema(
        (
            shardline.Feature("x", "int64", (None,)),
            shardline.Feature("x", "float", (2,), sequence=True),
            shardline.Feature("y", "int64", (None,)),
            shardline.Feature("y__len", "int64"),
        ),
        "sequence_example",
    )
    context = entry("x", int64_feature(7, 9)) + entry("y", int64_feature(1))
    context += entry("y__len", int64_feature(77))
    steps = feature_list(float_feature(1, 2), float_feature(3, 4), float_feature(5, 6))
    path = tmp_path / "some.tfrecord"
    shardline.files.write_records(path, [example(context) + feature_lists(entry("x", steps))])
    version = shardline.Version(tmp_path / "root", "steps/v1")
    version.append(path, schema=schema)
    row = take_sample(version.latest()).frame.loc[0]
    assert (row["x__len"], row["x__max"]) == (2, 9)
    assert (row["x__steps__len"], row["x__steps__min"], row["x__steps__mean"]) == (3, 1.0, 3.5)
    assert row["y__len"] == 77, "the feature of that name, and not the length of y"


def test_sample_of_opaque_records_has_sizes(tmp_path: Path) -> None:
    path = tmp_path / "some.tfrecord"
    shardline.files.write_records(path, [bytes(size) for size in range(200)])
    version = shardline.Version(tmp_path / "root", "blobs/v1")
    version.append(path, schema=shardline.Schema.opaque())
    assert take_sample(version.latest()).frame["record__bytes"].to_list() == list(range(200))
    some = take_sample(version.latest(), limit=50).frame["record__bytes"].to_list()
    assert len(set(some)) == 50
    assert some == sorted(some)
    with raises(SchemaMismatchError, "opaque-records"):
        take_sample(version.latest(), columns=["x"])


def test_sample_is_deterministic_per_seed(tmp_path: Path) -> None:
    rows = numbered(3000)
    snapshot = snapshot_of(tmp_path, rows[:1000], rows[1000:], schema=NUMBERED, target_bytes=10_000)
    assert len(snapshot.shards) > 10
    taken = take_sample(snapshot, limit=500, seed=3)
    assert (taken.rows, taken.of, taken.whole) == (500, 3000, False)
    assert "500 of 3,000" in taken.extent
    assert len(set(numbers_in(taken))) == 500
    assert numbers_in(take_sample(snapshot, limit=500, seed=3)) == numbers_in(taken)
    assert numbers_in(take_sample(snapshot, limit=500, seed=4)) != numbers_in(taken)


def test_sample_is_fair_to_shard_sizes(tmp_path: Path) -> None:
    rows = numbered(4000)
    small = [rows[at : at + 20] for at in range(3000, 3200, 20)]
    snapshot = snapshot_of(tmp_path, rows[:3000], *small, schema=NUMBERED)
    found = [numbers_in(take_sample(snapshot, limit=160, seed=seed)) for seed in range(20)]
    in_small = np.mean([number >= 3000 for numbers in found for number in numbers])
    assert in_small == pytest.approx(200 / 3200, abs=0.02)


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=300).filter(lambda sizes: sum(sizes) > 1),
    st.data(),
)
def test_choose_shards_gives_requested_count(sizes: list[int], data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, sum(sizes) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    chosen = _choose_shards(sizes, wanted, rng)
    assert sum(chosen.values()) == wanted
    assert all(0 <= count <= sizes[place] for place, count in chosen.items())
    assert list(chosen) == sorted(chosen)


def test_sample_opens_few_of_many_shards() -> None:
    chosen = _choose_shards([1_000_000] * 50_000, 200_000, np.random.default_rng(0))
    assert len(chosen) == 64
    assert sum(chosen.values()) == 200_000


def test_sample_reads_part_of_plain_shard(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, numbered(2000, size=4000), schema=NUMBERED)
    take_sample(snapshot, limit=20, seed=1)
    before = bytes_read()
    take_sample(snapshot, limit=20, seed=2)
    assert 20 * 4000 < bytes_read() - before < 1_000_000 < snapshot.bytes // 8


def test_sample_reads_part_of_gzip_shard(tmp_path: Path) -> None:
    rows = [
        {"number": number, "filler": np.random.default_rng(number).bytes(4000)}
        for number in range(2000)
    ]
    snapshot = snapshot_of(tmp_path, rows, schema=NUMBERED, compression="gzip")
    take_sample(snapshot, limit=20, seed=1)
    before = bytes_read()
    taken = take_sample(snapshot, limit=20, seed=2)
    assert bytes_read() - before < snapshot.bytes // 2
    assert len(set(numbers_in(taken))) == 20


def test_sample_without_index_has_same_rows(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, numbered(1000), schema=NUMBERED, target_bytes=30_000)
    taken = take_sample(snapshot, limit=300)
    for path in snapshot.files():
        Path(f"{path}.index").unlink()
    assert numbers_in(take_sample(snapshot, limit=300)) == numbers_in(taken)


def test_sample_with_foreign_index_has_same_rows(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, numbered(1000), schema=NUMBERED, target_bytes=30_000)
    taken = take_sample(snapshot, limit=300)
    first, *_, last = snapshot.files()
    Path(f"{first}.index").write_bytes(Path(f"{last}.index").read_bytes())
    assert numbers_in(take_sample(snapshot, limit=300)) == numbers_in(taken)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_sample_of_object_store_has_same_rows(tmp_path: Path, compression: str) -> None:
    rows = numbered(1000)
    taken = [
        take_sample(
            snapshot_of(root, rows, schema=NUMBERED, target_bytes=9000, compression=compression),
            limit=300,
        )
        for root in (tmp_path, f"memory://same-rows-{compression}")
    ]
    assert numbers_in(taken[0]) == numbers_in(taken[1])
    assert len(set(numbers_in(taken[0]))) == 300


def test_sample_of_large_records_is_smaller(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, numbered(200, size=10_000), schema=NUMBERED)
    taken = take_sample(snapshot, limit_bytes=500_000)
    assert 40 < taken.rows < 50
    assert not taken.whole


def test_sample_of_some_shards(tmp_path: Path) -> None:
    rows = numbered(90)
    version = append_rows(tmp_path, rows[:30], rows[30:90], schema=NUMBERED)
    added = [added.shard for added in version.log.entry(version.latest().entry).added]
    taken = take_sample(version.latest(), shards=added)
    assert (taken.of, numbers_in(taken)) == (60, list(range(30, 90)))
    assert set(numbers_in(take_sample(version.latest(), shards=added, limit=7))) < set(
        range(30, 90)
    )
    none = take_sample(version.latest(), shards=[])
    assert (none.rows, none.whole, none.extent) == (0, True, "0 rows")
    assert list(none.frame.columns) == list(taken.frame.columns)
    fields = {"path": added[0].name, "version": "digits/v1", "snapshot": 1}
    with raises(InvalidArgumentError, "shard-not-found", **fields):
        take_sample(version.snapshot(1), shards=added)


@pytest.mark.parametrize("limit", [1000, 100])
def test_sample_of_corrupt_shard_raises(tmp_path: Path, limit: int) -> None:
    snapshot = snapshot_of(tmp_path, numbered(1000), schema=NUMBERED)
    path = damage(snapshot, 0)
    with pytest.raises(CorruptFileError) as caught:
        take_sample(snapshot, limit=limit)
    assert caught.value.path == path


def test_sample_of_corrupt_object_raises() -> None:
    snapshot = snapshot_of("memory://damaged-object", numbered(1000), schema=NUMBERED)
    name = snapshot.shard_name(snapshot.shards[0])
    data = bytearray(snapshot.store.read(name))
    data[20::40] = bytes(len(data[20::40]))
    snapshot.store.replace(name, bytes(data))
    with pytest.raises(CorruptFileError) as caught:
        take_sample(snapshot, limit=100)
    assert caught.value.path == snapshot.files()[0]


@pytest.mark.parametrize("limit", [1000, 100])
def test_sample_of_missing_shard_raises(tmp_path: Path, limit: int) -> None:
    snapshot = snapshot_of(tmp_path, numbered(1000), schema=NUMBERED)
    Path(snapshot.files()[0]).unlink()
    with pytest.raises(ObjectNotFoundError, match=snapshot.shards[0].name) as caught:
        take_sample(snapshot, limit=limit)
    assert "digits/v1@1" in str(caught.value)


def test_sample_of_invalid_record_raises(tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, numbered(1000), schema=NUMBERED)
    first = numbers_in(take_sample(snapshot, limit=100))[0]
    with pytest.raises(ColumnError, match=snapshot.shards[0].name) as caught:
        take_sample(replace(snapshot, schema=DIGITS), limit=100)
    assert caught.value.record == first > 0


def test_sample_of_non_example_raises(tmp_path: Path) -> None:
    path = tmp_path / "some.tfrecord"
    shardline.files.write_records(path, [b"\xff no example"] * 100)
    version = shardline.Version(tmp_path / "root", "blobs/v1")
    version.append(path, schema=shardline.Schema.opaque())
    with pytest.raises(ExampleError, match=version.latest().shards[0].name) as caught:
        take_sample(replace(version.latest(), schema=NUMBERED), limit=10)
    assert caught.value.record > 0


def test_sample_limit_of_zero_raises(tmp_path: Path) -> None:
    with raises(InvalidArgumentError, "out-of-range"):
        take_sample(snapshot_of(tmp_path, digits(0, 3)), limit=0)


@pytest.mark.parametrize("limit", [100, 12])
def test_overlays_are_sampled_as_whole_records(tmp_path: Path, limit: int) -> None:
    snapshot = mixed(tmp_path)
    taken = take_sample(snapshot, limit=limit)
    assert (taken.rows, taken.of) == (min(limit, 20), 20)
    assert taken.frame["score"].to_list() == [x / 4 for x in taken.frame["x"]]
    assert taken.frame["tags__len"].to_list() == [x % 3 + 1 for x in taken.frame["x"]]


def test_sample_of_large_bases_is_smaller(tmp_path: Path) -> None:
    schema = shardline.Schema((shardline.Feature("a", "bytes"),))
    base = published(tmp_path, schema, [example_of(a=bytes(10_000))] * 40)
    scores = [score(x) for x in range(40)]
    snapshot = checked(lay(base, "digits/v2", extended(schema, SCORE), scores))
    assert take_sample(snapshot, limit_bytes=100_000).rows < 12
    assert take_sample(snapshot, columns=["score"], limit_bytes=100_000).rows == 40
