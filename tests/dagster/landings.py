"""Real versions for the tests of assets: folders of small images, tables, and what was made."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import dagster as dg
from PIL import Image

from shardline.dagster.versions.materialization import StepReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import shardline
    from shardline.dagster.versions.materialization import Metadata

NAME = "digits/v1"
COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def png(color: tuple[int, int, int], size: tuple[int, int] = (8, 8)) -> bytes:
    """An image of one color."""
    out = io.BytesIO()
    Image.new("RGB", size, color).save(out, "PNG")
    return out.getvalue()


def image_folder(folder: Path, each: int = 4, colors: Sequence[str] = tuple(COLORS)) -> Path:
    """A folder with so many images of each color, in folders of that name."""
    for color in colors:
        (folder / color).mkdir(parents=True)
        for number in range(each):
            size = (8 + number, 8)
            (folder / color / f"{number}.png").write_bytes(png(COLORS[color], size))
    return folder


def appended(version: shardline.Version, sources: Any, **options: Any) -> StepReport:  # noqa: ANN401
    """Append something, and tell what that made."""
    report = version.append(sources, **options)
    assert report.entry is not None
    return StepReport(
        version.snapshot(report.entry.snapshot),
        added_rows=report.records,
        added_bytes=report.bytes,
        added_shards=len(report.entry.added),
        quarantined_rows=report.quarantined_rows,
        quarantine=report.quarantine_files,
        seconds=2.0,
    )


def read_back(metadata: Metadata) -> Mapping[str, dg.MetadataValue[Any]]:
    """The metadata as the event log gives it back, when a real run has materialized it."""

    @dg.asset(name="digits_v1")
    def asset() -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata=metadata)

    with dg.DagsterInstance.ephemeral() as instance:
        assert dg.materialize([asset], instance=instance).success
        event = instance.get_latest_materialization_event(dg.AssetKey("digits_v1"))
        assert event is not None
        assert event.asset_materialization is not None
        return event.asset_materialization.metadata


def code_blocks(markdown: str) -> list[str]:
    """The code in a Markdown text."""
    return [code for _, code in re.findall(r"(`{3,})\w+\n(.*?)\n\1", markdown, re.DOTALL)]
