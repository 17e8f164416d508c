"""Signals and process groups, by which the web server and its processes end.

Dagster gives SIGTERM the handler of SIGINT. Where SIGINT is ignored, as in background jobs of
scripts, a Dagster process ignores both, and so do all processes that it starts. Our programs
therefore call `handle_signals` first.

`python -m shardline.dagster.web.process_group GROUP SECONDS` ends a group whose parent has died.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

_POLL_SECONDS = 0.05
_ENDINGS = (signal.SIGINT, signal.SIGTERM)


def handle_signals() -> None:
    """Raise KeyboardInterrupt on SIGINT and SIGTERM, even if this process inherited to ignore them.

    A handled signal has its default effect in child processes. SIGHUP stays ignored if it is, as
    under nohup.
    """
    for number in _ENDINGS:
        signal.signal(number, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [*_ENDINGS, signal.SIGHUP])


def end_group(
    group: int,
    leader_has_ended: Callable[[], bool],
    *,
    leader_seconds: float,
    rest_seconds: float,
) -> bool:
    """Let the leader of a group end its processes, then end the rest, such as runs in progress.

    Args:
        group: The id of the group and of its leader.
        leader_has_ended: Returns True if the leader has ended, and reaps it if it is a child.
        leader_seconds: How long the leader may take to end after SIGTERM.
        rest_seconds: How long the rest may take to end after SIGTERM, before it is killed.

    Returns:
        True if processes had to be killed.
    """
    try:
        if not leader_has_ended() and signal_group(group, 0):
            os.kill(group, signal.SIGTERM)
            _wait(leader_has_ended, leader_seconds)
        if signal_group(group, signal.SIGTERM):
            _wait(lambda: leader_has_ended() and not signal_group(group, 0), rest_seconds)
    finally:  # A second Ctrl-C ends up here at once.
        killed = signal_group(group, signal.SIGKILL)
    return killed


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a group. Returns False if the group has no process."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def end_group_from_outside(group: int, grace: int) -> None:
    """Start a process outside of a group that ends the group."""
    command = [sys.executable, "-m", "shardline.dagster.web.process_group", str(group), str(grace)]
    subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _wait(is_done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_done() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _is_gone(pid: int) -> bool:
    """Return True if there is no process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


if __name__ == "__main__":
    _group, _grace = map(int, sys.argv[1:])
    end_group(_group, lambda: _is_gone(_group), leader_seconds=_grace, rest_seconds=_grace)
