"""Output that nobody reads: the exit code is that of a closed pipe, and no data is at risk."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import ROOT
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of, made

if TYPE_CHECKING:
    from pathlib import Path

CLOSED_PIPE = 141


def run_unread(
    *arguments: str | Path, stderr_too: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command with its stdout in a pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "shardline", *map(str, arguments)],
            check=False,
            stdout=writer,
            stderr=writer if stderr_too else subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("arguments", "stderr_too"),
    [
        (["head", "FILE"], False),
        (["count", "FILE", "--json"], True),
        (["schema", "FILE"], False),
        (["verify", "missing.tfrecord", "--json"], False),
        (["verify", "missing.tfrecord"], True),
        (["head", "--help"], False),
        (["--help"], False),
    ],
)
def test_command_unread_output_exits_like_sigpipe(
    tmp_path: Path, arguments: list[str], *, stderr_too: bool
) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*[example_of(n=n) for n in range(9)]))
    words = [str(path) if word == "FILE" else word for word in arguments]
    result = run_unread(*words, stderr_too=stderr_too)
    assert (result.returncode, result.stderr or "") == (CLOSED_PIPE, "")


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_rebuild_closed_streams_writes_only_records(tmp_path: Path, closed: str) -> None:
    path = made(tmp_path / "a.tfrecord", framed(*[example_of(n=n) for n in range(9)]))
    out = tmp_path / "out.tfrecord"
    command = f'"$0" -m shardline rebuild "$1" --output "$2" {closed}'
    result = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, path, out], check=False, cwd=ROOT
    )
    assert result.returncode == 0
    assert out.read_bytes() == path.read_bytes()


def test_command_closed_stderr_keeps_exit_code(tmp_path: Path) -> None:
    command = '"$0" -m shardline verify missing.tfrecord 2>&-'
    result = subprocess.run(["/bin/sh", "-c", command, sys.executable], check=False, cwd=tmp_path)
    assert result.returncode == 2
