"""Features that the demo adds to the digits: statistics of the image, and the name of the label."""

import io
from pathlib import Path
from typing import Any

from shardline.schema.logical_types import Text
from shardline.schema.schema import Feature
from shardline.udf import record_udf, table_join

LABEL_NAMES = Path(__file__).with_name("label_names.csv")
_WHITE = 255


@record_udf(
    Feature("width", "int64", doc="width in pixels"),
    Feature("height", "int64", doc="height in pixels"),
    Feature("brightness", "float", doc="mean grey level, from 0 (black) to 1 (white)"),
    reads=["image"],
    code="1",
)
def measure_image(record: dict[str, Any]) -> dict[str, Any]:
    """Return the size and brightness of an image."""
    from PIL import Image, ImageStat  # noqa: PLC0415 - only where something is computed

    with Image.open(io.BytesIO(record["image"]), formats=("PNG",)) as image:
        (grey,) = ImageStat.Stat(image.convert("L")).mean
        return {"width": image.width, "height": image.height, "brightness": grey / _WHITE}


label_names = table_join(
    LABEL_NAMES,
    "label",
    features=[Feature("label_name", "bytes", meaning=Text(), doc="name of the digit")],
)
