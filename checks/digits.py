"""The check `image_size` of digits/v1: training and pairing expect images of 8 x 8 pixels."""

import struct

import dagster as dg

from shardline.api import Snapshot
from shardline.dagster import metadata_keys as keys
from shardline.dagster.asset_names import get_asset_key
from shardline.dagster.checks.check_run import create_failed_outcome
from shardline.dagster.instance_records import find_check_snapshot
from shardline.dagster.resources import ShardlineResource
from shardline.errors import ShardlineError

VERSION = "digits/v1"
KEY = get_asset_key(VERSION)
CHECK = "image_size"
WRONG_IMAGES = "digits/wrong_images"
_PIXELS = (8, 8)
_PNG_START = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", *_PIXELS)
"""Start of a PNG file of this size: the signature, and width and height in the first chunk."""


@dg.asset_check(
    asset=KEY,
    name=CHECK,
    blocking=True,
    description="Every image is a PNG file of 8 x 8 pixels.",
)
def image_size(
    context: dg.AssetCheckExecutionContext, shardline: ShardlineResource
) -> dg.AssetCheckResult:
    """Check the snapshot that this run reported, else the latest snapshot."""
    try:
        version = shardline.version(VERSION)
        snapshot = find_check_snapshot(version, context.instance, context.run.run_id, KEY)
        wrong = 0 if snapshot is None else count_wrong_images(snapshot)
    except (ShardlineError, OSError) as error:
        return create_failed_outcome(CHECK, VERSION, error).result(KEY, CHECK)
    if snapshot is None:
        return dg.AssetCheckResult(passed=True, description=f"{VERSION}: no snapshot yet")
    problem = f"{wrong:,} of " if wrong else ""
    return dg.AssetCheckResult(
        passed=not wrong,
        description=f"{snapshot}: {problem}{snapshot.records:,} images "
        f"{'are not PNG files' if wrong else 'are PNG files'} of 8 x 8 pixels",
        metadata={keys.ROWS: int(snapshot.records), WRONG_IMAGES: wrong},
    )


def count_wrong_images(snapshot: Snapshot) -> int:
    """Return the number of images of another format or size. No image is decoded."""
    import pyarrow.compute as pc  # noqa: PLC0415 - only when data is read

    wrong = 0
    for batch in snapshot.to_arrow(["image"]):
        starts = pc.binary_slice(batch["image"], 0, len(_PNG_START))
        wrong += pc.sum(pc.not_equal(starts, _PNG_START)).as_py() or 0
    return wrong
