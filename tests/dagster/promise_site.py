"""The platform of `test_promise.py` and its daemon: a dataset for each sentence of the promise."""

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from shardline.api import Version
from shardline.dagster.definitions import build_definitions
from shardline.dagster.resources import ShardlineResource
from shardline.dagster.versions.append import appended_version
from shardline.dagster.versions.declaration import VersionDefs
from shardline.dagster.versions.rebuild import rebuilt_version
from shardline.log.append_change import Append
from shardline.log.model import Shard, Source
from shardline.operations.example_file import write_examples
from shardline.operations.landing_folder import LandingFolder
from tests.dagster.platforms import QUIET, SCHEMA, write_lines
from tests.dagster.web_page import ROOT, WebPage, wait_until, web_page

FAULTS = {"crc": "integrity", "schema": "schema"}
"""The datasets that get a bad snapshot, and the check that has to fail."""
TAMPERED, TIMED = "tampered", "timed"
DATASETS = (*FAULTS, TAMPERED, TIMED)
DEFINITIONS = """\
from pathlib import Path

from tests.dagster.promise_site import make_definitions

defs = make_definitions(Path(__file__).parent)
"""
GOOD_ROWS = 5
BAD_SNAPSHOT = 2
EVERY_MINUTE = "* * * * *"


def make_definitions(folder: Path) -> dg.Definitions:
    """Declare a version that grows for each dataset, and a version derived from each bad one."""
    return build_definitions(
        *(version for name in DATASETS for version in _versions(folder, name)),
        shardline=ShardlineResource(root=str(folder / "root"), reports=str(folder / "reports")),
    )


def _versions(folder: Path, dataset: str) -> Iterator[VersionDefs]:
    landing = folder / "landing" / dataset
    landing.mkdir(parents=True, exist_ok=True)
    yield appended_version(
        f"{dataset}/v1",
        schema=SCHEMA,
        landing=LandingFolder(str(landing), settle_seconds=0),
        cron=EVERY_MINUTE if dataset == TIMED else None,
    )
    if dataset in FAULTS:
        yield rebuilt_version(f"{dataset}/single", of=f"{dataset}/v1")


def grown(dataset: str) -> dg.AssetKey:
    """Return the asset that grows."""
    return dg.AssetKey(f"{dataset}_v1")


def derived(dataset: str) -> dg.AssetKey:
    """Return the asset that is derived from it."""
    return dg.AssetKey(f"{dataset}_single")


@dataclass(frozen=True)
class PromiseSite:
    """A folder of datasets, the daemon and the web page, and the instance that they use."""

    folder: Path
    page: WebPage
    instance: dg.DagsterInstance

    def version(self, name: str) -> Version:
        return Version(self.folder / "root", name)

    def commit_bad_shard(self, dataset: str) -> None:
        """Commit a shard with a flipped bit, or one of another schema, as a program might."""
        version = self.version(f"{dataset}/v1")
        is_corrupt = dataset == "crc"
        path = self.folder / "bad.tfrecord"
        ids = [50, 51] if is_corrupt else [5.5, 6.5]
        write_examples(path, {"id": ids, "name": ["bad", "bad"]}, overwrite=True)
        content = bytearray(path.read_bytes())
        content[14] ^= is_corrupt
        digest, source = hashlib.sha256(content).hexdigest(), Source(batch="bad")
        name = f"v1.{digest[:32]}.tfrecord"
        shard = Shard(name, len(ids), len(content), digest, source=source.key)
        version.store.create(version.shard_name(shard), bytes(content))
        assert version.commit(Append(shards=[shard], sources=[source]))

    def launch(self, *keys: dg.AssetKey) -> str:
        """Launch a run of assets and their checks as the web page does; wait for its end."""
        run_id = self.page.launch(*(key.to_user_string() for key in keys))
        wait_until(lambda: self.run(run_id).is_finished, f"run {run_id} has ended")
        return run_id

    def run(self, run_id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run

    def get_checks(self, run_id: str, key: dg.AssetKey) -> dict[str, dg.AssetCheckEvaluation]:
        """Return what the checks of an asset found in a run."""
        records = self._events(run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        found = [record.asset_check_evaluation_data for record in records]
        return {check.check_name: check for check in found if check.asset_key == key}

    def materialized(self, run_id: str) -> set[dg.AssetKey]:
        """Return the assets that a run materialized."""
        records = self._events(run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
        return {record.asset_key for record in records}

    def _events(self, run_id: str, kind: dg.DagsterEventType) -> list[Any]:
        records = self.instance.get_records_for_run(run_id, of_type=kind).records
        return [record.event_log_entry.dagster_event for record in records]

    def runs_of(self, key: dg.AssetKey) -> list[str]:
        """Return the runs that were to materialize an asset."""
        runs = self.instance.get_runs()
        return [run.run_id for run in runs if key in (run.asset_selection or ())]

    def wait_for_ticks(self, *sensors: str) -> None:
        """Wait until each sensor has looked at everything once from now on."""
        since = time.time()
        for sensor in sensors:
            self.page.wait_for_tick("small", sensor, since)


@contextlib.contextmanager
def promise_site(folder: Path) -> Iterator[PromiseSite]:
    """Publish good rows in all datasets but the timed one, and start the daemon."""
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    defs = make_definitions(folder)
    for dataset in DATASETS:
        write_lines(folder / "landing" / dataset / "good.jsonl", range(GOOD_ROWS))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        keys = {*defs.resolve_all_asset_keys()} - {grown(TIMED)}
        result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, asset_selection=sorted(keys), run_config=QUIET
        )
        assert result.success
        with web_page(folder, definitions=DEFINITIONS) as page:
            yield PromiseSite(folder, page, instance)
