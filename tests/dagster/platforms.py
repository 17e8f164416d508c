"""A small platform for tests: a version that grows, one rebuilt of it, and a real instance."""

import json
from collections.abc import Sequence
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
from shardline.operations.landing_folder import LandingFolder
from shardline.schema.logical_types import Text
from shardline.schema.schema import Feature, Schema
from tests.kernel.frames import framed

SCHEMA = Schema((Feature("id", "int64"), Feature("name", "bytes", meaning=Text())))
GROWING, REBUILT = dg.AssetKey("notes_v1"), dg.AssetKey("notes_single")
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def write_lines(path: Path, ids: Sequence[int], **more: object) -> Path:
    """Write a file of JSON lines that fit SCHEMA, unless they have `more`."""
    lines = [{"id": number, "name": f"note {number}", **more} for number in ids]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@dataclass(frozen=True)
class Platform:
    """The definitions, and where their files lie."""

    folder: Path
    defs: dg.Definitions
    resource: ShardlineResource

    @property
    def landing(self) -> Path:
        return self.folder / "landing"

    def version(self, name: str = "notes/v1") -> Version:
        return Version(self.folder / "root", name)

    def land(self, name: str, ids: Sequence[int], **more: object) -> Path:
        """Let a file of JSON lines arrive."""
        return write_lines(self.landing / f"{name}.jsonl", ids, **more)

    def land_damaged(self, name: str = "damaged") -> Path:
        """Let a TFRecord file arrive whose third record has a flipped bit."""
        from tests.tfrecord.samples import example_of, flipped  # noqa: PLC0415 - loads TensorFlow

        records = [example_of(id=number, name=b"note") for number in range(100, 110)]
        path = self.landing / f"{name}.tfrecord"
        bad = 8 * (len(framed(*records[:2])) + 14)
        path.write_bytes(flipped(framed(*records), bad))
        return path

    def run(
        self,
        instance: dg.DagsterInstance,
        *keys: dg.AssetKey,
        config: dict[str, Any] | None = None,
        raise_on_error: bool = False,
    ) -> dg.ExecuteInProcessResult:
        """Materialize some assets with their checks, all unless told; each with this config."""
        job = self.defs.resolve_implicit_global_asset_job_def()
        ops = {key.to_user_string(): {"config": config} for key in keys} if config else {}
        return job.execute_in_process(
            instance=instance,
            asset_selection=list(keys) or None,
            run_config={**QUIET, "ops": ops},
            raise_on_error=raise_on_error,
        )

    def check(
        self,
        instance: dg.DagsterInstance,
        *names: str,
        key: dg.AssetKey = GROWING,
        assets: Sequence[dg.AssetKey] = (),
        config: dict[str, Any] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Execute some checks of an asset, all of them unless named, after these assets."""
        job = self.defs.resolve_implicit_global_asset_job_def()
        known = {k for k in job.asset_layer.asset_graph.asset_check_keys if k.asset_key == key}
        chosen = {one for one in known if not names or one.name in names}
        subset = job.get_subset(asset_selection=set(assets), asset_check_selection=chosen)
        ops = {f"{key.to_user_string()}_checks": {"config": config}} if config else {}
        return subset.execute_in_process(
            instance=instance, run_config={**QUIET, "ops": ops}, raise_on_error=False
        )

    def commit_unchecked(self, instance: dg.DagsterInstance) -> None:
        """Append what has landed in a run that selects no check."""
        job = self.defs.resolve_implicit_global_asset_job_def()
        subset = job.get_subset(asset_selection={GROWING}, asset_check_selection=set())
        assert subset.execute_in_process(instance=instance, run_config=QUIET).success


def make_platform(
    folder: Path,
    *others: VersionDefs,
    suite: Path | None = None,
    max_quarantined: float = 0.0,
    own_checks: Sequence[dg.AssetChecksDefinition] = (),
    resource: ShardlineResource | None = None,
) -> Platform:
    """A platform in a folder, with a suite for the version that grows, and other versions.

    `own_checks` are those of a user, who merges them with the platform.
    """
    (folder / "landing").mkdir(exist_ok=True)
    growing = appended_version(
        "notes/v1",
        schema=SCHEMA,
        landing=LandingFolder(str(folder / "landing"), settle_seconds=0),
        cron="0 * * * *",
        watch_seconds=1,
        expectations=suite,
        max_quarantined=max_quarantined,
    )
    rebuilt = rebuilt_version("notes/single", of=growing, export=folder / "notes.tfrecord")
    resource = resource or ShardlineResource(
        root=str(folder / "root"), reports=str(folder / "reports")
    )
    defs = build_definitions(growing, rebuilt, *others, shardline=resource)
    if own_checks:
        defs = dg.Definitions.merge(defs, dg.Definitions(asset_checks=list(own_checks)))
    return Platform(folder, defs, resource)


def get_evaluations(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    """What the checks of a run said, by asset and name."""
    return {
        f"{evaluation.asset_key.to_user_string()}:{evaluation.check_name}": evaluation
        for evaluation in result.get_asset_check_evaluations()
    }


def table_rows(value: dg.MetadataValue[Any]) -> list[dict[str, Any]]:
    """The rows of a table in metadata."""
    assert isinstance(value, dg.TableMetadataValue)
    return [dict(record.data) for record in value.records]


def reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[int]:
    """The snapshots that were reported for an asset, oldest first."""
    records = instance.fetch_materializations(key, limit=100).records
    return [
        int(record.asset_materialization.metadata["shardline/snapshot"].value)  # type: ignore[union-attr, arg-type]
        for record in reversed(records)
    ]
