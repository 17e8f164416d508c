"""The demo's own check `image_size`: images of 8 x 8 pixels."""

from pathlib import Path

import dagster as dg
import pytest

from assets.digits import SCHEMA
from checks.digits import CHECK, KEY, VERSION, WRONG_IMAGES, image_size
from dagster_project.definitions import defs
from shardline.api import Version
from shardline.dagster.resources import ShardlineResource
from shardline.operations.append import append
from tests.dagster.landings import png

RED = (255, 0, 0)


def run_check(folder: Path, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    resource = ShardlineResource(root=str(folder), reports=str(folder / "reports"))
    job = dg.Definitions(
        assets=[dg.AssetSpec(KEY)], asset_checks=[image_size], resources={"shardline": resource}
    ).resolve_implicit_global_asset_job_def()
    subset = job.get_subset(asset_check_selection={dg.AssetCheckKey(KEY, CHECK)})
    result = subset.execute_in_process(instance=instance, raise_on_error=False)
    (evaluation,) = result.get_asset_check_evaluations()
    return evaluation


def append_images(folder: Path, *images: bytes) -> Version:
    rows = [{"path": f"0/{i}.png", "label": "0", "image": data} for i, data in enumerate(images)]
    version = Version(folder, VERSION)
    append(version, [rows], schema=SCHEMA, batch="images")
    return version


@pytest.mark.parametrize(
    ("images", "wrong"),
    [
        ([png(RED), png(RED)], 0),
        ([png(RED), png(RED, (8, 9)), png(RED, (9, 8))], 2),
        ([png(RED)[:20]], 1),
    ],
)
def test_image_size_counts_wrong_images(
    tmp_path: Path, instance: dg.DagsterInstance, images: list[bytes], wrong: int
) -> None:
    append_images(tmp_path, *images)
    evaluation = run_check(tmp_path, instance)
    assert evaluation.passed == (not wrong)
    assert evaluation.severity == dg.AssetCheckSeverity.ERROR
    assert evaluation.metadata["shardline/rows"].value == len(images)
    assert evaluation.metadata[WRONG_IMAGES].value == wrong


def test_image_size_without_snapshot_passes(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    assert run_check(tmp_path, instance).passed


def test_image_size_of_missing_shard_fails(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    (shard,) = append_images(tmp_path, png(RED)).latest().files()
    Path(shard).unlink()
    evaluation = run_check(tmp_path, instance)
    assert not evaluation.passed
    assert "shardline/error_code" in evaluation.metadata


def test_image_size_blocks_the_demo() -> None:
    specs = [spec for checks in defs.asset_checks or () for spec in checks.check_specs]
    (spec,) = (spec for spec in specs if spec.name == CHECK)
    assert (spec.asset_key, spec.blocking) == (dg.AssetKey("digits_v1"), True)
