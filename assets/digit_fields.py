"""The fields that the demo's digits gain: seen in the image, and looked up in a table."""

import io
from pathlib import Path
from typing import Any

from shardline.schema.logical_types import Text
from shardline.schema.schema import Feature
from shardline.udf import record_udf, table_join

LABEL_NAMES = Path(__file__).with_name("label_names.csv")
_WHITE = 255


@record_udf(
    Feature("width", "int64", doc="of the image, in pixels"),
    Feature("height", "int64", doc="of the image, in pixels"),
    Feature("brightness", "float", doc="the mean of its greys, from 0 for black to 1 for white"),
    reads=["image"],
    code="1",
)
def seen_in_image(record: dict[str, Any]) -> dict[str, Any]:
    """How large an image is, and how bright."""
    from PIL import Image, ImageStat  # noqa: PLC0415 - only where something is computed

    with Image.open(io.BytesIO(record["image"]), formats=("PNG",)) as image:
        (grey,) = ImageStat.Stat(image.convert("L")).mean
        return {"width": image.width, "height": image.height, "brightness": grey / _WHITE}


label_names = table_join(
    LABEL_NAMES,
    "label",
    features=[Feature("label_name", "bytes", meaning=Text(), doc="the digit as a word")],
)
