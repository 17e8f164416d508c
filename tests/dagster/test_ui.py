"""The command of `make ui`: starts and ends every process of the web page."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster.web_page import (
    ROOT,
    SECONDS,
    command,
    has_ended,
    ignores_endings,
    wait_until,
    web_page,
)
from tests.storage.servers import LOOPBACK

pytestmark = pytest.mark.xdist_group("web page")  # they wait: one worker is enough


def run_refused(*options: str, home: str | None) -> tuple[int, str]:
    """Return the exit code and the message of a command that does not start."""
    environment = {name: value for name, value in os.environ.items() if name != "DAGSTER_HOME"}
    if home is not None:
        environment["DAGSTER_HOME"] = home
    result = subprocess.run(
        command(*options),
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert result.stdout == ""
    return result.returncode, " ".join(result.stderr.split())


def list_running(processes: dict[int, str]) -> list[str]:
    """Return the command lines of running processes."""
    return [line for pid, line in processes.items() if not has_ended(pid)]


def recorded_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dg.DagsterRunStatus]:
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as instance:
        return {run.run_id: run.status for run in instance.get_runs()}


@pytest.mark.slow
def test_sigterm_ignored_at_start_ends_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_page(tmp_path, ignored=(signal.SIGINT, signal.SIGTERM)) as page:
        assert page.log.read_text() == f"Dagster is on {page.origin} (Ctrl-C ends it)\n"
        done, endless = page.launch("one"), page.launch("endless")
        expected = {done: "SUCCESS", endless: "STARTED"}
        wait_until(lambda: page.runs() == expected, "one run is done and one is in progress")
        processes = page.processes()
        assert any("dagster-daemon" in line for line in processes.values())
        assert any("code-server" in line for line in processes.values())
        ignoring = {line for pid, line in processes.items() if ignores_endings(pid)}
        assert {line for line in ignoring if "resource_tracker" not in line} == set()
        page.process.send_signal(signal.SIGTERM)
        assert page.process.wait(SECONDS) == 0
    assert list_running(processes) == []
    assert "Warning" not in page.log.read_text()
    assert "killed" not in page.log.read_text()
    assert recorded_runs(tmp_path / "home", monkeypatch) == {
        done: dg.DagsterRunStatus.SUCCESS,
        endless: dg.DagsterRunStatus.FAILURE,
    }


@pytest.mark.sweep
@pytest.mark.slow
def test_dead_daemon_ends_all_processes(tmp_path: Path) -> None:
    with web_page(tmp_path) as page:
        processes = page.processes()
        (daemon,) = (pid for pid, line in processes.items() if "dagster-daemon" in line)
        os.kill(daemon, signal.SIGKILL)
        assert page.process.wait(SECONDS) == 1
    assert list_running(processes) == []
    assert "error: the Dagster daemon ended with code -9" in page.log.read_text()


@pytest.mark.sweep
@pytest.mark.slow
def test_killed_web_server_ends_all_processes(tmp_path: Path) -> None:
    with web_page(tmp_path, "--no-daemon") as page:
        processes = page.processes()
        (server,) = (
            pid for pid, line in processes.items() if "shardline.dagster.web.server" in line
        )
        os.kill(server, signal.SIGKILL)
        assert page.process.wait(SECONDS) == 1
    assert list_running(processes) == []
    assert "error: the web server ended with code -9" in page.log.read_text()


@pytest.mark.sweep
@pytest.mark.slow
def test_killed_command_ends_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web_page(tmp_path, ignored=(signal.SIGINT,)) as page:
        endless = page.launch("endless")
        wait_until(lambda: page.runs() == {endless: "STARTED"}, "the run is in progress")
        processes = page.processes()
        assert processes
        page.process.kill()
        page.process.wait(SECONDS)
        wait_until(lambda: not list_running(processes), "every process has ended")
    failed = {endless: dg.DagsterRunStatus.FAILURE}
    assert recorded_runs(tmp_path / "home", monkeypatch) == failed


def test_busy_port_is_refused_with_hint(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind((LOOPBACK, 0))
        busy.listen()
        port = busy.getsockname()[1]
        code, message = run_refused("--port", str(port), home=str(tmp_path))
    assert code == 1
    assert message.startswith(f"error: port {port} ")
    assert f"`make ui PORT={port + 1}`" in message.partition("hint: ")[2]


@pytest.mark.parametrize(
    ("home", "problem"),
    [
        (None, "is not set"),
        ("", "is not set"),
        (".dagster_home", "is not absolute"),
        ("/no/such/folder", "is not a folder"),
    ],
)
def test_invalid_dagster_home_is_refused(home: str | None, problem: str) -> None:
    code, message = run_refused("--port", "0", home=home)
    assert code == 2
    error, _, hint = message.partition(" hint: ")
    assert error.startswith(f"error: DAGSTER_HOME {problem}")
    assert (repr(home) in error) == bool(home)
    assert "dagster.yaml" in hint


def test_invalid_host_is_refused(tmp_path: Path) -> None:
    code, message = run_refused("--host", "*.example.com", home=str(tmp_path))
    assert code == 2
    assert message.startswith("error: ")
    assert "'*.example.com'" in message


def test_missing_workspace_is_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "workspace.yaml")
    code, message = run_refused("--workspace", missing, home=str(tmp_path))
    assert code == 2
    assert "does not exist" in message
