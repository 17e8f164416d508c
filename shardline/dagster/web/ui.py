"""The guarded Dagster web page and its processes: `python -m shardline.dagster.web.ui`.

This process only watches. It starts a process group, so that Ctrl-C reaches no other process, and
so that all processes of the group can be found and ended.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click

from shardline.dagster.web.guard import LOOPBACK, parse_origin
from shardline.dagster.web.process_group import end_group, handle_signals
from shardline.errors import InvalidArgumentError, ShardlineError
from shardline.hints import Hint
from shardline.text import escape_lines


class CommandError(click.ClickException):
    """An error that ends a command."""

    def __init__(self, error: ShardlineError) -> None:
        super().__init__(error.message)
        self.error = error

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error and its hint, by default to stderr."""
        click.echo(f"error: {escape_lines(self.error.message)}", file=file, err=True)
        if self.error.hint:
            click.echo(f"hint: {escape_lines(str(self.error.hint))}", file=file, err=True)


class CommandUsageError(CommandError):
    """Invalid options or environment of a command."""

    exit_code = 2


def open_listener(port: int) -> socket.socket:
    """Return a listening socket on loopback, which reserves the port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        problem = ShardlineError(
            f"port {port} of {LOOPBACK}: {error.strerror}",
            code="port-unavailable",
            hint=Hint.of(
                f"end the program that uses it, or choose another port: `make ui PORT={port + 1}` "
                f"or `--port {port + 1}`"
            ),
        )
        raise CommandError(problem) from error
    return listener


def require_dagster_home() -> None:
    """Raise CommandUsageError unless DAGSTER_HOME is an existing absolute folder."""
    home = os.environ.get("DAGSTER_HOME", "")
    if not home:
        problem = "is not set"
    elif not Path(home).is_absolute():
        problem = f"is not absolute: {home!r}"
    elif not Path(home).is_dir():
        problem = f"is not a folder: {home!r}"
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


def run_group(command: Sequence[str], listener: socket.socket, grace: int) -> int:
    """Run a command until it ends (returns its code, never 0) or a signal arrives (returns 0)."""
    handle_signals()
    leader = None
    try:
        leader = subprocess.Popen(  # noqa: S603 - our own command
            command,
            stdin=subprocess.PIPE,  # never written to: it closes when this process ends
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
        listener.close()
        code = leader.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        if leader is not None:
            _end_process(leader, grace)
    click.echo(
        f"error: the web server ended with code {code}; all its processes are stopped", err=True
    )
    return max(code, 1)


def _end_process(leader: subprocess.Popen[bytes], grace: int) -> None:
    """End a process and its group."""
    if end_group(
        leader.pid,
        lambda: leader.poll() is not None,
        leader_seconds=grace,
        rest_seconds=grace,
    ):
        click.echo("warning: some processes did not end in time and were killed", err=True)


def _parse_origins(_: click.Context, __: click.Parameter, addresses: tuple[str, ...]) -> list[str]:
    try:
        return [parse_origin(address) for address in addresses]
    except InvalidArgumentError as error:
        raise CommandUsageError(error) from error


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=3000,
    show_default=True,
    help=f"Port on {LOOPBACK}. 0: a free port.",
)
@click.option(
    "--host",
    "origins",
    metavar="NAME",
    multiple=True,
    envvar="SHARDLINE_UI_HOSTS",
    callback=_parse_origins,
    help=(
        "Address of a proxy or a tunnel in front of this server, as the browser shows it:"
        " NAME[:PORT] for https, else http://NAME[:PORT]. Repeatable. In SHARDLINE_UI_HOSTS,"
        " separated by spaces."
    ),
)
@click.option("--read-only", is_flag=True, help="Show everything and allow no changes.")
@click.option(
    "--daemon/--no-daemon",
    default=True,
    help="Do not run the daemon, if another process runs it. Only one may run.",
)
@click.option(
    "--grace",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="Time for the servers, then for the runs, to end before they are killed.",
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, dir_okay=False),
    default="workspace.yaml",
    show_default=True,
    help="File with the code locations.",
)
def main(
    port: int, origins: list[str], grace: int, workspace: str, *, read_only: bool, daemon: bool
) -> None:
    """Start the Dagster web page on loopback, with its code servers and its daemon."""
    require_dagster_home()
    listener = open_listener(port)
    command = [
        *(sys.executable, "-m", "shardline.dagster.web.server"),
        *("--listener", str(listener.fileno()), "--workspace", workspace),
        *("--grace", str(grace)),
        *(word for origin in origins for word in ("--origin", origin)),
        *(["--read-only"] if read_only else []),
        *([] if daemon else ["--no-daemon"]),
    ]
    raise SystemExit(run_group(command, listener, grace))


if __name__ == "__main__":
    main()
