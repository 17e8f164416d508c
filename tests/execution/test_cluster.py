"""Tasks on another machine: they hold all they need, so that a cluster can run them."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from subprocess import CalledProcessError
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline.api import Version
from shardline.execution.executor import ThreadExecutor
from shardline.operations.append import append
from shardline.operations.append_task import AppendOptions, AppendTask, append_source
from shardline.operations.rebuild import RebuildTask, make_rebuilt_shard, rebuild
from shardline.operations.shard_slice import list_whole_slices, number_outputs, plan_rebuild
from shardline.sources import open_source
from shardline.storage import open_store
from shardline.tfrecord.compression import Compression
from shardline.tfrecord.reader import DEFAULT_LIMITS
from tests.execution.clusters import Cluster
from tests.operations.landings import (
    NAME,
    SCHEMA,
    ids,
    json_lines,
    rows,
    shard_bytes,
)
from tests.tfrecord.samples import example_of, write_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from shardline.storage import Store


def sent(task: Any) -> Any:  # noqa: ANN401 - whatever is sent
    """What arrives on another machine."""
    return pickle.loads(pickle.dumps(task))  # noqa: S301 - our own bytes


def sources_of(folder: Path) -> list[Path]:
    """A file of each kind, of ten rows each."""
    json_lines(folder / "a.jsonl", rows(0, 10))
    table = pa.table({name: [row[name] for row in rows(10, 20)] for name in ("id", "name")})
    pq.write_table(table, folder / "b.parquet")
    records = [example_of(id=n, name=f"größe {n}".encode()) for n in range(20, 30)]
    write_by_tensorflow(folder / "c.tfrecord", records)
    return [folder / "a.jsonl", folder / "b.parquet", folder / "c.tfrecord"]


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return open_store(tmp_path / "root")
    return open_store(request.getfixturevalue("s3_root"))


def test_a_store_that_was_sent_is_the_same_place(store: Store) -> None:
    arrived = sent(store)
    store.create("a", b"1")
    assert arrived.uri == store.uri
    assert arrived.read("a") == b"1"
    arrived.create("b", b"2")
    assert store.read("b") == b"2"


def test_sent_append_task_gives_same_shards(store: Store, tmp_path: Path) -> None:
    for path in sources_of(tmp_path):
        source = open_source(path)
        options = AppendOptions(target_bytes=300)
        task = AppendTask(store, "digits", "v1", source, source.identity(), SCHEMA, options)
        (made,) = ThreadExecutor(1).run(append_source, [sent(task)])
        assert made.records == 10
        assert len(made.shards) > 1
        other = replace(task, version="v2")
        (again,) = ThreadExecutor(1).run(append_source, [other])
        assert [shard.sha256 for shard in made.shards] == [shard.sha256 for shard in again.shards]


def test_sent_rebuild_task_gives_same_shard(store: Store, tmp_path: Path) -> None:
    version = Version(store, NAME)
    append(version, sources_of(tmp_path), schema=SCHEMA, target_bytes=300)
    (output, *_) = number_outputs(plan_rebuild(store, list_whole_slices(version.latest()), 1000))
    task = RebuildTask(store, "digits", "v2", output, Compression.GZIP, DEFAULT_LIMITS)
    (made,) = ThreadExecutor(1).run(make_rebuilt_shard, [sent(task)])
    assert made.shard is not None
    assert made.shard.records == sum(piece.records for piece in output.slices)
    (again,) = ThreadExecutor(1).run(make_rebuilt_shard, [replace(task, version="v3")])
    assert again.shard is not None
    assert made.shard.sha256 == again.shard.sha256


def run_on(
    cluster: Cluster | None, store: Store, sources: Sequence[Path]
) -> tuple[Version, Version]:
    """A version of some sources and one that is rebuilt from it, by a cluster or here."""
    version, single = Version(store, NAME), Version(store, "digits/single")
    append(version, sources, schema=SCHEMA, target_bytes=300, executor=cluster)
    rebuild(version, snapshot="latest", into=single, executor=cluster)
    return version, single


def test_a_cluster_can_append_and_rebuild(tmp_path: Path) -> None:
    sources = sources_of(tmp_path)
    cluster = Cluster()
    made = run_on(cluster, open_store(tmp_path / "root"), sources)
    assert cluster.shipped == {"identifying": 3, "appending": 3, "rebuilding": 1}
    assert ids(made[0]) == ids(made[1]) == list(range(30))
    here = run_on(None, open_store(tmp_path / "here"), sources)
    for one, other in zip(made, here, strict=True):
        assert shard_bytes(one) == shard_bytes(other)


def test_a_cluster_can_append_to_an_object_store(s3_root: str, tmp_path: Path) -> None:
    version = Version(s3_root, NAME)
    cluster = Cluster()
    append(version, sources_of(tmp_path)[:1], schema=SCHEMA, executor=cluster)
    assert cluster.shipped == {"identifying": 1, "appending": 1}
    assert ids(version) == list(range(10))


class Meanwhile(Cluster):
    """Lets a file change before the tasks of a step are shipped."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def run(self, work: Any, tasks: Any, progress: Any = None) -> Any:  # noqa: ANN401
        if tasks[0].step == "appending":
            json_lines(self._path, rows(5, 30))
        return super().run(work, tasks, progress)


def test_source_changed_in_cluster_raises(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is written down of a source is what was read of it, wherever that happened."""
    path = json_lines(tmp_path / "a.jsonl", rows(0, 10))
    version = Version(tmp_path / "root", NAME)
    with pytest.raises(CalledProcessError):
        append(version, path, schema=SCHEMA, executor=Meanwhile(path))
    errors = capfd.readouterr().err
    assert re.search(r"SourceError: .*a\.jsonl.* changed", errors)
    assert not Version(tmp_path / "root", NAME).exists
