"""The demo: scikit-learn's handwritten digits, appended, rebuilt, extended and paired."""

from pathlib import Path

from assets.digit_udfs import label_names, measure_image
from checks import SUITES
from shardline.dagster.resources import DEMO_FOLDER
from shardline.dagster.versions.append import appended_version
from shardline.dagster.versions.combine import combined_version
from shardline.dagster.versions.extend import extended_version
from shardline.dagster.versions.rebuild import rebuilt_version
from shardline.operations.landing_folder import LandingFolder
from shardline.schema.logical_types import Category, Image, Text
from shardline.schema.schema import Feature, Schema

DEMO = Path(DEMO_FOLDER).resolve()
LANDING = DEMO / "landing"
EXPORT = DEMO / "digits.tfrecord"

LANDING_FOLDERS = (
    LandingFolder(str(LANDING / "folders"), format="folder", settle_seconds=0),
    LandingFolder(str(LANDING / "files"), settle_seconds=0),
)
SCHEMA = Schema(
    (
        Feature("path", "bytes", meaning=Text(), doc="path of the image in its batch"),
        Feature("label", "bytes", meaning=Category(tuple("0123456789")), doc="the digit"),
        Feature("image", "bytes", meaning=Image("png"), doc="8 x 8 pixels, 17 shades of grey"),
    )
)

digits_v1 = appended_version(
    "digits/v1",
    schema=SCHEMA,
    landing=LANDING_FOLDERS,
    cron="0 * * * *",
    watch_seconds=30,
    expectations=SUITES / "digits_v1.json",
    description="Handwritten digits as PNG images with labels.",
    owners=["team:handwriting"],
)

digits_single = rebuilt_version(
    "digits/single",
    of=digits_v1,
    export=EXPORT,
    description="All digits in a single TFRecord file.",
    owners=["team:handwriting"],
)

digits_v2 = extended_version(
    "digits/v2",
    of=digits_v1,
    udfs=[measure_image, label_names],
    description="Digits with image statistics and label names, stored as an overlay.",
    owners=["team:handwriting"],
)

digit_pairs_v1 = combined_version(
    "digit_pairs/v1",
    left=digits_v1,
    right=digits_v1,
    unordered=True,
    on_collision="prefix",
    left_prefix="a_",
    right_prefix="b_",
    mode="virtual",
    description="All unordered pairs of digits, stored as a plan of a few bytes.",
    owners=["team:handwriting"],
)
