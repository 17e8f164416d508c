"""The demo as a person runs it: the real definitions behind the guarded web page, in a new folder.

What lands, lands when a test says so, and is appended when a person clicks: the schedule and the
sensor that would do it too are stopped, and what follows published versions by itself is not.
"""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dagster_project.demo_batches import (
    all_digits,
    as_table,
    write_file,
    write_folder,
    write_parquet,
)
from shardline.api import Version
from shardline.dagster.automation.conditions import FOLLOW
from shardline.dagster.resources import DEMO_FOLDER, REPORTS_VARIABLE, ROOT_VARIABLE
from shardline.kernel.types import HEADER_BYTES
from shardline.operations.example_file import write_examples
from tests.dagster.web_page import ROOT, WebPage, in_location, start, stop, wait_until
from tests.storage.servers import free_ports

_LOCATION = in_location("shardline")
_WORKSPACE = {
    "load_from": [
        {
            "python_module": {
                "module_name": "dagster_project.definitions",
                "location_name": "shardline",
            }
        }
    ]
}
_FIND = """\
query Find($schedule: ScheduleSelector!, $sensor: SensorSelector!) {
  scheduleOrError(scheduleSelector: $schedule) { ... on Schedule { id } }
  sensorOrError(sensorSelector: $sensor) { ... on Sensor { id } }
}
"""
_STOP = """\
mutation Stop($schedule: String!, $sensor: String!) {
  stopRunningSchedule(id: $schedule) { __typename }
  stopSensor(id: $sensor) { __typename }
}
"""
_LINEAGE = """\
query Lineage($asset: AssetKeyInput!) {
  assetOrError(assetKey: $asset) {
    ... on Asset {
      assetMaterializations(limit: 1) {
        metadataEntries {
          ... on TableColumnLineageMetadataEntry {
            lineage { columnName columnDeps { assetKey { path } columnName } }
          }
        }
      }
    }
  }
}
"""
_RUNS = "{ runsOrError { ... on Runs { results { runId assetSelection { path } } } } }"


@dataclass(frozen=True)
class Damage:
    """A file with a flipped bit, and the record in which it is."""

    path: Path
    record: int
    offset: int


@dataclass(frozen=True)
class DemoSite:
    """The page, and the folder in which everything of the demo lies."""

    web: WebPage
    folder: Path

    def version(self, name: str) -> Version:
        return Version(self.folder / DEMO_FOLDER / "root", name)

    def land_folder(self, name: str, first: int, end: int) -> None:
        write_folder(self._landing("folders", name), all_digits()[first:end])

    def land_parquet(self, name: str, first: int, end: int) -> None:
        write_parquet(self._landing("files", name), as_table(all_digits()[first:end]))

    def land_damaged(self, name: str, first: int, end: int, record: int) -> Damage:
        """Let a TFRecord file arrive with a flipped bit in the data of one record."""
        digits = all_digits()[first:end]
        with tempfile.TemporaryDirectory() as folder:
            before, after = Path(folder, "before.tfrecord"), Path(folder, "after.tfrecord")
            write_examples(before, as_table(digits[:record]))
            write_examples(after, as_table(digits[record:]))
            offset = before.stat().st_size
            content = bytearray(before.read_bytes() + after.read_bytes())
        content[offset + HEADER_BYTES] ^= 1
        path = self._landing("files", name)
        write_file(path, bytes(content))
        return Damage(path, record, offset)

    def stop_landing(self) -> None:
        """From here on only a click appends what has landed."""
        found = self.web.data(
            _FIND,
            {
                "schedule": {**_LOCATION, "scheduleName": "digits_v1_append"},
                "sensor": {**_LOCATION, "sensorName": "digits_v1_landing"},
            },
        )
        stopped = self.web.data(
            _STOP,
            {"schedule": found["scheduleOrError"]["id"], "sensor": found["sensorOrError"]["id"]},
        )
        assert {name: one["__typename"] for name, one in stopped.items()} == {
            "stopRunningSchedule": "ScheduleStateResult",
            "stopSensor": "StopSensorMutationResult",
        }

    def wait_for_a_look(self, since: float) -> None:
        """Wait until the automation has looked at everything once since a time."""
        self.web.wait_for_tick("shardline", FOLLOW, since)

    def column_lineage(self, asset: str) -> dict[str, str]:
        """Of each column of an asset what Dagster knows it is made of: `digits_v1: image`."""
        found = self.web.data(_LINEAGE, {"asset": {"path": [asset]}})["assetOrError"]
        entries = found["assetMaterializations"][0]["metadataEntries"]
        (lineage,) = (entry["lineage"] for entry in entries if "lineage" in entry)
        return {
            column["columnName"]: ", ".join(
                f"{dep['assetKey']['path'][-1]}: {dep['columnName']}"
                for dep in column["columnDeps"]
            )
            for column in lineage
        }

    def runs_of(self, asset: str) -> set[str]:
        """The runs that were launched for an asset."""
        return {
            run["runId"]
            for run in self.web.data(_RUNS)["runsOrError"]["results"]
            if {"path": [asset]} in (run["assetSelection"] or [])
        }

    def wait_until_published(self, name: str, records: int) -> None:
        def published() -> bool:
            version = self.version(name)
            return (
                version.exists
                and version.state.published is not None
                and version.published().records == records
            )

        wait_until(published, f"{name} is published with {records} records")

    def _landing(self, kind: str, name: str) -> Path:
        return self.folder / DEMO_FOLDER / "landing" / kind / name


@contextlib.contextmanager
def demo_site(folder: Path) -> Iterator[DemoSite]:
    """The demo's page, which answers. It ends with the block, or when the tests are killed."""
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    (folder / "workspace.yaml").write_text(json.dumps(_WORKSPACE))
    (port,) = free_ports(1)
    log = folder / "page.log"
    process = start(
        *("--port", str(port), "--workspace", "workspace.yaml"),
        cwd=folder,
        home=home,
        log=log,
        unset=(REPORTS_VARIABLE, ROOT_VARIABLE),
    )

    def is_up() -> bool:
        assert process.poll() is None, log.read_text()
        return "Dagster is on" in log.read_text()

    try:
        wait_until(is_up, "the page is there")
        yield DemoSite(WebPage(process, port, log), folder)
    finally:
        stop(process)
