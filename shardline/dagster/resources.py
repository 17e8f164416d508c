"""Where the datasets lie: the resource by which assets, checks, jobs and sensors open them."""

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
    """The root of the datasets, and where pages for people go."""

    root: str = Field(description="A folder, or a prefix as s3://bucket/datasets.")
    reports: str = Field(description="The local folder of Data Docs pages and other reports.")

    def version(self, name: str, *, run: str = "", code: str = "") -> Version:
        """Open a version; `run` and `code` are told in the entries that are committed by it."""
        return Version(open_store(self.root), name, run=run, code=code)

    def fixed(self) -> dg.ResourceDefinition:
        """Return the definition of this resource for all runs: the launchpad cannot change it.

        The fields of a ConfigurableResource are part of the run config, so that a run could write
        to another root while Dagster shows its assets as those of this root.
        """
        return dg.ResourceDefinition(
            resource_fn=lambda _: self._resolved(),
            config_schema={},
            description="The root of the datasets. It is set where the platform is declared, or by "
            f"{ROOT_VARIABLE}, and is the same for all runs.",
        )

    def _resolved(self) -> "ShardlineResource":
        """Return the resource with the values of its environment variables."""
        values: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        for name, value in values.items():
            if isinstance(value, dg.EnvVar):
                values[name] = value.get_value()
        return type(self)(**values)


def shardline_resource() -> ShardlineResource:
    """The resource as the environment says: SHARDLINE_ROOT, or else the folder of the demo."""
    demo = Path(DEMO_FOLDER).resolve()
    return ShardlineResource(
        root=os.environ.get(ROOT_VARIABLE) or str(demo / "root"),
        reports=os.environ.get(REPORTS_VARIABLE) or str(demo / "reports"),
    )


REPORTS_PATH = "/reports"


def get_page_link(page: Path, reports: Path) -> str:
    """Where the web server has a page that lies in the folder of reports."""
    place = page.resolve().relative_to(reports.resolve())
    return f"{REPORTS_PATH}/{quote(place.as_posix())}"
