"""The end of process groups: by SIGTERM where that is enough, by SIGKILL where it is not."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shardline.dagster.web.process_group import end_group, end_group_from_outside, signal_group
from tests.dagster.web_page import ROOT, SECONDS, wait_until
from tests.signals import default_signals, ignored_signals

IGNORE = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (2, 15)]; "
WAIT = "print(1, flush=True); __import__('threading').Event().wait()"
ENDS_WHEN_ASKED = "import signal; " + WAIT
IGNORES_SIGTERM = IGNORE + WAIT
ENDING = f"""
from shardline.dagster.web.process_group import handle_signals
try:
    handle_signals()
    {WAIT}
except KeyboardInterrupt:
    print("interrupted")
"""


@contextlib.contextmanager
def group_of(leader: str, member: str) -> Iterator[subprocess.Popen[bytes]]:
    """A group of two: a program, started by another. Both wait to be ended."""
    spawn = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {member!r}])"
    with (
        default_signals(),
        subprocess.Popen(
            [sys.executable, "-c", f"{spawn}\n{leader}"],
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            assert [process.stdout.readline() for _ in range(2)] == [b"1\n"] * 2
            yield process
        finally:
            signal_group(process.pid, signal.SIGKILL)


def test_group_that_ends_on_sigterm_is_not_killed() -> None:
    with group_of(ENDS_WHEN_ASKED, ENDS_WHEN_ASKED) as leader:
        # Whoever adopts the other member need not fetch its exit code at once.
        assert not end_group(
            leader.pid,
            lambda: leader.poll() is not None,
            leader_seconds=SECONDS,
            rest_seconds=SECONDS,
        )
        assert leader.wait() == -signal.SIGTERM


@pytest.mark.parametrize(
    ("program", "member", "code"),
    [
        (IGNORES_SIGTERM, ENDS_WHEN_ASKED, -signal.SIGKILL),
        (ENDS_WHEN_ASKED, IGNORES_SIGTERM, -signal.SIGTERM),
        (IGNORES_SIGTERM, IGNORES_SIGTERM, -signal.SIGKILL),
    ],
    ids=["leader", "member", "both"],
)
def test_group_that_ignores_sigterm_is_killed(program: str, member: str, code: int) -> None:
    with group_of(program, member) as leader:
        # A leader that ends may take its time: it ends the wait.
        patience = 0.0 if code == -signal.SIGKILL else SECONDS
        assert end_group(
            leader.pid, lambda: leader.poll() is not None, leader_seconds=patience, rest_seconds=0
        )
        assert leader.wait(SECONDS) == code
        assert leader.stdout is not None
        assert leader.stdout.read() == b"", "the pipe ends with the last process of the group"


def test_group_without_process_is_not_killed() -> None:
    with group_of(ENDS_WHEN_ASKED, ENDS_WHEN_ASKED) as leader:
        signal_group(leader.pid, signal.SIGKILL)
        leader.wait(SECONDS)
        wait_until(lambda: not signal_group(leader.pid, 0), "the group has no process")
        assert not end_group(leader.pid, lambda: True, leader_seconds=0, rest_seconds=0)


def test_group_is_ended_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with group_of(ENDS_WHEN_ASKED, ENDS_WHEN_ASKED) as leader:
        end_group_from_outside(leader.pid, SECONDS)
        assert leader.wait(SECONDS) == -signal.SIGTERM
        assert leader.stdout is not None
        assert leader.stdout.read() == b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_inherited_signals_do_not_matter(number: signal.Signals) -> None:
    with (
        ignored_signals(signal.SIGINT, signal.SIGTERM),
        subprocess.Popen(
            [sys.executable, "-c", ENDING],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.send_signal(number)
        assert process.communicate(timeout=SECONDS)[0] == b"interrupted\n"
