"""`python -m dagster_project.ui`: the Dagster web page, guarded, with all that it needs to work.

This process only watches: what it starts is a process group of its own, so that Ctrl-C reaches
nobody else, and so that whatever is left of the group at the end can be found and ended.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from dagster_project.command_error import CommandError, CommandUsageError
from dagster_project.guard import LOOPBACK, parse_origin
from shardline.errors import InvalidArgumentError, ShardlineError
from shardline.hints import Hint

_END_ALL_SECONDS = 60
_END_REST_SECONDS = 10
_LOOK_SECONDS = 0.05


def listen(port: int) -> socket.socket:
    """A socket that listens on loopback: from here on nobody else can take the port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        problem = ShardlineError(
            f"port {port} of {LOOPBACK} cannot be used: {error.strerror}",
            code="port-unavailable",
            hint=Hint.of(
                f"end the program that uses it, or choose another port: `make ui PORT={port + 1}` "
                f"or `--port {port + 1}`"
            ),
        )
        raise CommandError(problem) from error
    return listener


def require_dagster_home() -> None:
    """Refuse to start without a folder that keeps the history of runs."""
    home = os.environ.get("DAGSTER_HOME", "")
    if not home:
        problem = "is not set"
    elif not Path(home).is_absolute():
        problem = f"is {home!r}, which is not absolute"
    elif not Path(home).is_dir():
        problem = f"is {home!r}, which is not a folder"
    else:
        return
    invalid = ShardlineError(
        f"DAGSTER_HOME {problem}",
        code="invalid-dagster-home",
        hint=Hint.of(
            "set it to the absolute path of a folder for dagster.yaml and the history of runs; "
            "`make ui` sets it to .dagster_home next to the Makefile"
        ),
        path=home or None,
    )
    raise CommandUsageError(invalid)


def run_group(command: Sequence[str], listener: socket.socket) -> int:
    """Run a command until it ends (its code, never 0) or until we are told to end (0)."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) != signal.SIG_IGN:  # nohup has it ignored
            signal.signal(ending, signal.default_int_handler)
    leader = subprocess.Popen(  # noqa: S603 - our own command
        command,
        stdin=subprocess.PIPE,  # never written to: it ends when this process does
        pass_fds=[listener.fileno()],
        start_new_session=True,
    )
    listener.close()
    try:
        code = leader.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        _end_group(leader)
    click.echo(f"The web server has ended, with code {code}; all is stopped.", err=True)
    return max(code, 1)


def _end_group(leader: subprocess.Popen[bytes]) -> None:
    """Let the leader end what it started, then end what is left, as the runs in progress."""
    try:
        leader.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            leader.wait(_END_ALL_SECONDS)
        _signal_group(leader, signal.SIGTERM)
        deadline = time.monotonic() + _END_REST_SECONDS
        while _signal_group(leader, 0) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
    finally:  # a second Ctrl-C comes here at once
        _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the group; says whether there was anybody in it."""
    try:
        os.killpg(leader.pid, number)
    except ProcessLookupError:
        return False
    return True


def _origins(_: click.Context, __: click.Parameter, told: tuple[str, ...]) -> list[str]:
    try:
        return [parse_origin(one) for one in told]
    except InvalidArgumentError as error:
        raise CommandUsageError(error) from error


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=3000,
    show_default=True,
    help=f"Port of {LOOPBACK}; 0 takes a free one.",
)
@click.option(
    "--host",
    "origins",
    metavar="NAME",
    multiple=True,
    envvar="SHARDLINE_UI_HOSTS",
    callback=_origins,
    help=(
        "Address under which a proxy or a tunnel shows this server, if one does: NAME[:PORT] for"
        " https, http://NAME[:PORT] otherwise. Can be given more than once; in SHARDLINE_UI_HOSTS"
        " with spaces between."
    ),
)
@click.option("--read-only", is_flag=True, help="Show everything, and let nobody change anything.")
@click.option(
    "--daemon/--no-daemon",
    default=True,
    help="Leave the daemon out where another process runs it: there must be only one.",
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, dir_okay=False),
    default="workspace.yaml",
    show_default=True,
    help="File that lists the code locations.",
)
def main(port: int, origins: list[str], workspace: str, *, read_only: bool, daemon: bool) -> None:
    """Start the Dagster web page on loopback, with its code servers and its daemon."""
    require_dagster_home()
    listener = listen(port)
    command = [
        *(sys.executable, "-m", "dagster_project.serving"),
        *("--listener", str(listener.fileno()), "--workspace", workspace),
        *(word for origin in origins for word in ("--origin", origin)),
        *(["--read-only"] if read_only else []),
        *([] if daemon else ["--no-daemon"]),
    ]
    raise SystemExit(run_group(command, listener))


if __name__ == "__main__":
    main()
