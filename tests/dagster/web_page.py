"""The web page as a real process, on a free port, with an instance and a code location of its own.

The code location holds two assets of no content, so that it loads fast. Requests are made by hand,
since a test of the guard must be able to send what no honest client sends.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardline.dagster.automation.conditions import FOLLOW_SECONDS_VARIABLE
from tests.signals import ignored_signals
from tests.storage.servers import LOOPBACK, free_ports

SECONDS = 300
"""Only a test that hangs takes as long."""
ROOT = Path(__file__).parents[2]
_DEFINITIONS = """\
import threading

import dagster as dg

@dg.asset
def one() -> None: ...

@dg.asset
def endless() -> None:
    threading.Event().wait()

defs = dg.Definitions(assets=[one, endless], executor=dg.in_process_executor)
"""
_WORKSPACE = {
    "load_from": [{"python_file": {"relative_path": "small.py", "location_name": "small"}}]
}
LAUNCH = """\
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
  }
}
"""


_FIND_SENSOR = """\
query Find($sensor: SensorSelector!) {
  sensorOrError(sensorSelector: $sensor) {
    ... on Sensor { id sensorState { ticks(limit: 1) { timestamp endTimestamp } } }
  }
}
"""
_STOP_SENSOR = "mutation Stop($id: String!) { stopSensor(id: $id) { __typename } }"
_START_SENSOR = """\
mutation Start($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) { __typename } }
"""
_FIND_SCHEDULE = """\
query Find($schedule: ScheduleSelector!) {
  scheduleOrError(scheduleSelector: $schedule) {
    ... on Schedule { scheduleState { ticks(limit: 100) { timestamp status runIds } } }
  }
}
"""


def launch_of(*assets: str) -> dict[str, object]:
    """The variables of a launch."""
    selector = {
        "repositoryLocationName": "small",
        "repositoryName": "__repository__",
        "pipelineName": "__ASSET_JOB",
        "assetSelection": [{"path": [asset]} for asset in assets],
    }
    return {"params": {"mode": "default", "selector": selector}}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class WebPage:
    """A page that was started, and may have ended since."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def host(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str | None] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """One request; a Host header of None is left out."""
        sent = {"Host": self.host, **(headers or {})}
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body or None)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    def graphql(
        self,
        query: str,
        variables: Mapping[str, object] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """A query as the page itself sends it, but for the headers that are given."""
        sent = {"Origin": self.origin, "Content-Type": "application/json", **(headers or {})}
        body = json.dumps({"query": query, "variables": variables or {}}).encode()
        return self.ask("POST", "/graphql", sent, body)

    def data(self, query: str, variables: Mapping[str, object] | None = None) -> dict[str, Any]:
        answer = self.graphql(query, variables)
        assert answer.status == 200, answer.text
        data: dict[str, Any] = json.loads(answer.body)["data"]
        return data

    def runs(self) -> dict[str, str]:
        """The status of each run that the instance knows, by its id."""
        query = "{ runsOrError { ... on Runs { results { runId status } } } }"
        return {run["runId"]: run["status"] for run in self.data(query)["runsOrError"]["results"]}

    def launch(self, *assets: str) -> str:
        """Launch a run as a person does; returns its id."""
        launched = self.data(LAUNCH, launch_of(*assets))["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess"
        return str(launched["run"]["runId"])

    def stop_sensor(self, location: str, sensor: str) -> None:
        """Stop a sensor as a person does."""
        stopped = self.data(_STOP_SENSOR, {"id": self._sensor(location, sensor)["id"]})
        assert stopped["stopSensor"]["__typename"] == "StopSensorMutationResult"

    def start_sensor(self, location: str, sensor: str) -> None:
        """Start a sensor as a person does."""
        selector = {**in_location(location), "sensorName": sensor}
        started = self.data(_START_SENSOR, {"sensor": selector})
        assert started["startSensor"]["__typename"] == "Sensor"

    def wait_for_tick(self, location: str, sensor: str, since: float) -> None:
        """Wait until a tick of a sensor has ended that began after a time."""

        def looked() -> bool:
            ticks = self._sensor(location, sensor)["sensorState"]["ticks"]
            return any(tick["timestamp"] > since and tick["endTimestamp"] for tick in ticks)

        wait_until(looked, f"{sensor} has ticked")

    def _sensor(self, location: str, sensor: str) -> dict[str, Any]:
        selector = {**in_location(location), "sensorName": sensor}
        found: dict[str, Any] = self.data(_FIND_SENSOR, {"sensor": selector})["sensorOrError"]
        return found

    def schedule_ticks(self, location: str, schedule: str) -> list[dict[str, Any]]:
        """Return the ticks of a schedule, with the ids of the runs that they requested."""
        selector = {**in_location(location), "scheduleName": schedule}
        found = self.data(_FIND_SCHEDULE, {"schedule": selector})["scheduleOrError"]
        ticks: list[dict[str, Any]] = found["scheduleState"]["ticks"]
        return ticks

    def processes(self) -> dict[int, str]:
        """The processes that it started, by their ids, with their command lines."""
        children: dict[int, list[int]] = {}
        for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
            status = _status(pid)
            if status is not None:
                children.setdefault(int(status[1]), []).append(pid)
        found: list[int] = list(children.get(self.process.pid, []))
        for pid in found:
            found += children.get(pid, [])
        return {pid: _command(pid) for pid in found}


def in_location(location: str) -> dict[str, str]:
    """Return what selects the definitions of a code location."""
    return {"repositoryLocationName": location, "repositoryName": "__repository__"}


def _status(pid: int) -> list[str] | None:
    """The state, the parent and what follows in the process table, or None if it is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def has_ended(pid: int) -> bool:
    status = _status(pid)
    return status is None or status[0] == "Z"


def ignores_endings(pid: int) -> bool:
    """Return True if a process ignores SIGINT or SIGTERM. A process that has ended does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    (mask,) = (int(line.split()[1], 16) for line in status.splitlines() if "SigIgn" in line)
    return any(mask & 1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM))


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > deadline:
            pytest.fail(f"still not so after {SECONDS} seconds: {what}")
        time.sleep(0.05)


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "shardline.dagster.web.ui", *options]


def start(
    *options: str,
    cwd: Path,
    home: Path,
    log: Path,
    ignored: Sequence[signal.Signals] = (),
    unset: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start the command, ignoring these signals alone. It ends when the tests are killed."""
    setpriv = shutil.which("setpriv")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    with log.open("wb") as output, ignored_signals(*ignored):
        return subprocess.Popen(
            [
                *([setpriv, "--pdeathsig", "SIGTERM"] if setpriv else []),
                *command(*options, "--grace", str(SECONDS)),
            ],
            cwd=cwd,
            env={
                **kept,
                "DAGSTER_HOME": str(home),
                "PYTHONPATH": str(ROOT),
                FOLLOW_SECONDS_VARIABLE: "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the command; kill it if it does not end."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(SECONDS)
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def web_page(
    folder: Path,
    *options: str,
    definitions: str = _DEFINITIONS,
    ignored: Sequence[signal.Signals] = (),
) -> Iterator[WebPage]:
    """A page that answers. It is ended with the block, or when the tests are killed."""
    (folder / "home").mkdir(exist_ok=True)
    shutil.copy(ROOT / "dagster.yaml", folder / "home")
    (folder / "small.py").write_text(definitions)
    (folder / "workspace.yaml").write_text(json.dumps(_WORKSPACE))
    (port,) = free_ports(1)
    process = start(
        *("--port", str(port), "--workspace", str(folder / "workspace.yaml"), *options),
        cwd=ROOT,
        home=folder / "home",
        log=folder / "page.log",
        ignored=ignored,
    )
    page = WebPage(process, port, folder / "page.log")
    try:
        wait_until(lambda: _answers(page), "the page answers")
        yield page
    finally:
        stop(process)


def _answers(page: WebPage) -> bool:
    assert page.process.poll() is None, page.log.read_text()
    try:
        return page.ask("GET", "/server_info").status == 200
    except OSError:
        return False
