"""The demo: scikit-learn's handwritten digits, appended as they land, and rebuilt to one file."""

from pathlib import Path

from assets.appended import appended_version
from assets.rebuilt import rebuilt_version
from dagster_project.resources import DEMO_FOLDER
from shardline.log.meanings import Category, Image, Text
from shardline.log.schema import Feature, Schema
from shardline.operations.arrivals import LandingFolder

DEMO = Path(DEMO_FOLDER).resolve()
LANDING = DEMO / "landing"
EXPORT = DEMO / "digits.tfrecord"

LOOKED_AT = (
    LandingFolder(str(LANDING / "folders"), format="folder", settle_seconds=0),
    LandingFolder(str(LANDING / "files"), settle_seconds=0),
)
SCHEMA = Schema(
    (
        Feature("path", "bytes", meaning=Text(), doc="where the image was, in its batch"),
        Feature("label", "bytes", meaning=Category(tuple("0123456789")), doc="the digit"),
        Feature("image", "bytes", meaning=Image("png"), doc="8 by 8 pixels, 17 shades of grey"),
    )
)

digits_v1 = appended_version(
    "digits/v1",
    schema=SCHEMA,
    landing=LOOKED_AT,
    cron="0 * * * *",
    watch_seconds=30,
    expectations="digits_v1.json",
    description="Handwritten digits, as PNG images with their labels.",
    owners=["team:handwriting"],
)

digits_single = rebuilt_version(
    "digits/single",
    of=digits_v1,
    export=EXPORT,
    description="All digits in one TFRecord file.",
    owners=["team:handwriting"],
)
