"""The processes of the web page: code servers, daemon and the guarded web server.

They are those of `dagster dev`, except that the web server runs in this process, inside the guard.
`shardline.dagster.web.ui` starts this module and ends it.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import click
import dagster as dg
import uvicorn
from starlette.applications import Starlette

from shardline.dagster.private import (
    WorkspaceProcessContext,
    make_web_app,
    open_workspace,
    optimize_for_webserver,
    run_code_servers,
)
from shardline.dagster.resources import shardline_resource
from shardline.dagster.web.guard import LOOPBACK, Guard, ReportPages, get_loopback_origins
from shardline.dagster.web.process_group import end_group_from_outside, handle_signals
from shardline.storage.temporary_files import scratch_folder

_LOG_LEVEL = "warning"
_UI_POLLS_MILLISECONDS = 2000
_FINISH_REQUESTS_SECONDS = 5
_END_DAEMON_SECONDS = 10


@contextlib.contextmanager
def open_code_servers(instance: dg.DagsterInstance, workspace: Path) -> Iterator[Path]:
    """Run a code server per code location. Yields the workspace file that points to them.

    The web server and the daemon share the code servers, which are restarted if they end.
    """
    with (
        run_code_servers(instance, workspace, _LOG_LEVEL) as specs,
        scratch_folder("shardline-ui") as folder,
    ):
        pointing = folder / "workspace.yaml"
        # JSON is a subset of YAML.
        pointing.write_text(json.dumps({"load_from": specs}))
        yield pointing


@contextlib.contextmanager
def run_daemon(workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the daemon, which launches queued, scheduled and sensed runs, and end it."""
    command = Path(sysconfig.get_path("scripts"), "dagster-daemon")
    # On a new instance it warns that there is no history yet.
    options = ["--log-level", "error", "--code-server-log-level", _LOG_LEVEL]
    daemon = subprocess.Popen(  # noqa: S603 - our own command
        [command, "run", "--workspace", workspace, *options], stdin=subprocess.DEVNULL
    )
    try:
        yield daemon
    finally:
        daemon.terminate()
        try:
            daemon.wait(_END_DAEMON_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def create_web_server(
    context: WorkspaceProcessContext, port: int, origins: Iterable[str], *, read_only: bool
) -> uvicorn.Server:
    """Return the Dagster web server inside the guard. It prints its address when it is ready."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        click.echo(f"Dagster is on http://{LOOPBACK}:{port} (Ctrl-C ends it)")
        yield

    app = make_web_app(context, _UI_POLLS_MILLISECONDS, lifespan)
    with_reports = ReportPages(app, Path(shardline_resource().reports))
    known = get_loopback_origins(port).union(origins)
    return uvicorn.Server(
        uvicorn.Config(
            Guard(with_reports, known, read_only=read_only),
            log_level=_LOG_LEVEL,
            proxy_headers=False,
            timeout_graceful_shutdown=_FINISH_REQUESTS_SECONDS,
        )
    )


def serve(
    listener: socket.socket,
    workspace: Path,
    origins: Iterable[str],
    *,
    read_only: bool,
    with_daemon: bool,
) -> int:
    """Serve until a KeyboardInterrupt. The end of the daemon or of the server is an error."""
    with contextlib.ExitStack() as stack:
        instance = stack.enter_context(dg.DagsterInstance.get())
        optimize_for_webserver(instance)
        pointing = stack.enter_context(open_code_servers(instance, workspace))
        daemon = stack.enter_context(run_daemon(pointing)) if with_daemon else None
        context = stack.enter_context(open_workspace(instance, pointing, read_only=read_only))
        port = listener.getsockname()[1]
        server = create_web_server(context, port, origins, read_only=read_only)
        if daemon is not None:
            threading.Thread(target=_end_with, args=(daemon, server), daemon=True).start()
        server.run(sockets=[listener])
        if daemon is not None and daemon.poll() is not None:
            click.echo(f"error: the Dagster daemon ended with code {daemon.returncode}", err=True)
    return 1


def _end_with(daemon: subprocess.Popen[bytes], server: uvicorn.Server) -> None:
    daemon.wait()
    server.should_exit = True


def _end_with_parent(grace: int) -> None:
    """Wait for the end of stdin, which closes when the parent ends, even if it is killed."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    end_group_from_outside(os.getpgrp(), grace)


@click.command()
@click.option("--listener", type=int, required=True)
@click.option("--workspace", type=click.Path(path_type=Path), required=True)
@click.option("--origin", "origins", multiple=True)
@click.option("--grace", type=int, required=True)
@click.option("--read-only", is_flag=True)
@click.option("--daemon/--no-daemon", "with_daemon", default=True)
def main(
    listener: int,
    workspace: Path,
    origins: tuple[str, ...],
    grace: int,
    *,
    read_only: bool,
    with_daemon: bool,
) -> None:
    """Serve on a listening socket until SIGTERM or the end of stdin."""
    handle_signals()
    threading.Thread(target=_end_with_parent, args=(grace,), daemon=True).start()
    bound = socket.socket(fileno=listener)
    try:
        code = serve(bound, workspace, origins, read_only=read_only, with_daemon=with_daemon)
    except KeyboardInterrupt:
        code = 0
    raise SystemExit(code)


if __name__ == "__main__":
    main()
