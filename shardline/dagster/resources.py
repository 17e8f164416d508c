"""The resource by which assets, checks, jobs and sensors open datasets."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dagster as dg
from pydantic import Field

from shardline.api import Version
from shardline.storage import open_store

ROOT_VARIABLE = "SHARDLINE_ROOT"
REPORTS_VARIABLE = "SHARDLINE_REPORTS"
DEMO_FOLDER = ".demo"


class ShardlineResource(dg.ConfigurableResource[None]):
    """The root of the datasets, and the folder of report pages."""

    root: str = Field(
        description="Root of the datasets: a folder, or a prefix such as s3://bucket/datasets."
    )
    reports: str = Field(description="Local folder of Data Docs and report pages.")

    def version(self, name: str, *, run: str = "", code: str = "") -> Version:
        """Open a version. Its commits record `run` and `code`."""
        return Version(open_store(self.root), name, run=run, code=code)

    def fixed(self) -> dg.ResourceDefinition:
        """Return the definition of this resource without run config.

        The fields of a ConfigurableResource are part of the run config, so a run could write to
        another root while Dagster shows its assets as those of this root.
        """
        return dg.ResourceDefinition(
            resource_fn=lambda _: self._resolved(),
            config_schema={},
            description="The root of the datasets, the same for all runs. Set it where the "
            f"resource is declared, or by {ROOT_VARIABLE}.",
        )

    def _resolved(self) -> "ShardlineResource":
        """Return the resource with the values of its environment variables."""
        values: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        for name, value in values.items():
            if isinstance(value, dg.EnvVar):
                values[name] = value.get_value()
        return type(self)(**values)


def shardline_resource() -> ShardlineResource:
    """Return the resource from SHARDLINE_ROOT and SHARDLINE_REPORTS, by default of the demo."""
    demo = Path(DEMO_FOLDER).resolve()
    return ShardlineResource(
        root=os.environ.get(ROOT_VARIABLE) or str(demo / "root"),
        reports=os.environ.get(REPORTS_VARIABLE) or str(demo / "reports"),
    )


REPORTS_PATH = "/reports"


def get_page_link(page: Path, reports: Path) -> str:
    """Return the path of a report page on the web server."""
    relative = page.resolve().relative_to(reports.resolve())
    return f"{REPORTS_PATH}/{quote(relative.as_posix())}"
