"""Lines about landing folders: a sensor tick on a full folder, and a bare scan."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg

from benchmarks.lines import Line, Target
from benchmarks.timing import Side
from benchmarks.versions import NAME, disk_folder
from shardline.api import Version
from shardline.dagster.automation.landing_sensor import build_landing_sensor
from shardline.dagster.resources import ShardlineResource
from shardline.log.append_change import Append
from shardline.log.model import Shard, Source
from shardline.operations.landing_folder import LandingFolder, record_scan, scan_landing_folders
from shardline.schema.schema import Feature, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FILES, NEW = 100_000, 10
_NAMES = (
    "landing: first tick, all files are new",
    "landing: tick, nothing is new",
    "landing: tick, 10 files are new",
)
_SCHEMA = Schema((Feature("id", "int64"),))
_SHARD = b"x"


def all_lines(only: str = "", *, files: int = FILES) -> Iterator[Line]:
    """Yield every line whose name contains `only`; the folder is on a disk until the last."""
    if not any(only in name for name in _NAMES):
        return
    with disk_folder() as folder, dg.DagsterInstance.ephemeral() as instance:
        landing = folder / "landing"
        landing.mkdir()
        for number in range(files):
            (landing / f"{number:07}.jsonl").write_bytes(b"%d" % number)
        where = LandingFolder(landing, "*.jsonl", settle_seconds=0)
        tick = partial(_tick, instance, folder / "root", where)
        limit = Side("os.scandir, a stat per file", partial(_scan, landing))
        if only in _NAMES[0]:
            yield _line(_NAMES[0], limit, tick, files)
        _land_all(Version(folder / "root", NAME), where)
        if only in _NAMES[1]:
            yield _line(_NAMES[1], limit, tick, files)
        for number in range(files, files + NEW):
            (landing / f"{number:07}.jsonl").write_bytes(b"%d" % number)
        if only in _NAMES[2]:
            yield _line(_NAMES[2], limit, tick, files + NEW)
        shutil.rmtree(landing)


def _line(name: str, limit: Side, tick: Callable[[], dg.SensorResult], files: int) -> Line:
    tick()
    began = time.process_time()
    result = tick()
    seconds = time.process_time() - began
    requested = sum(len(_files_of(request)) for request in result.run_requests or ())
    remark = (
        f"{seconds:.2f} s of CPU for {files:,} files, {requested} requested, cursor of "
        f"{len(result.cursor or '')} bytes"
    )

    def run() -> int:
        tick()
        return files

    return Line(name, 0, (), (limit,), Side("the sensor", run), Target(), remark, "file")


def _tick(instance: dg.DagsterInstance, root: Path, where: LandingFolder) -> dg.SensorResult:
    resource = ShardlineResource(root=str(root), reports=str(root))
    context = dg.build_sensor_context(instance=instance, resources={"shardline": resource})
    result = build_landing_sensor(NAME, (where,), 30)(context)
    if not isinstance(result, dg.SensorResult):
        raise TypeError("expected the result of a sensor")
    return result


def _files_of(request: dg.RunRequest) -> list[str]:
    (step,) = request.run_config["ops"].values()
    return list(step["config"]["files"])


def _scan(folder: Path) -> int:
    with os.scandir(folder) as entries:
        return sum(1 for entry in entries if entry.stat().st_size)


def _land_all(version: Version, where: LandingFolder) -> None:
    """Commit every file as appended in a single entry, without reading any."""
    found = scan_landing_folders(version, (where,))
    sources = [
        Source(arrival.path, arrival.size, hashlib.sha256(arrival.path.encode()).hexdigest())
        for arrival in found.new
    ]
    name = f"v1.{sources[0].key[:32]}.tfrecord"
    version.create(_SCHEMA)
    version.store.create(version.shard_name(name), _SHARD)
    digest = hashlib.sha256(_SHARD).hexdigest()
    shard = Shard(name, len(sources), len(_SHARD), digest, "none", sources[0].key)
    version.commit(Append(shards=[shard], sources=sources))
    record_scan(version, found, sources)
