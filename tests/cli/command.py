"""The `shardline` command: in this process, which is quick, or as a process of its own."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from shardline.cli.app import main
from shardline.error_codes import CODES

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the command told
        """What was told on stdout, which must be one JSON value."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a command that failed with --json: the last line of its output."""
        payload = json.loads(self.out.splitlines()[-1])
        assert payload["ok"] is False
        error: dict[str, Any] = payload["error"]
        assert error["code"] in CODES
        return error

    @property
    def problem(self) -> tuple[int, str]:
        """The exit code, and the code of the error that --json printed."""
        return self.code, self.error["code"]

    @property
    def hint(self) -> list[list[str]]:
        """The commands in the hint of an error that --json printed, without `shardline`."""
        hint = self.error["hint"]
        return [] if hint is None else [command[1:] for command in hint["commands"]]

    @property
    def commands(self) -> list[list[str]]:
        """The `shardline` commands in the output for people, as words without `shardline`."""
        return commands_in(self.out + self.err)

    def shows(self, *arguments: object) -> bool:
        """Return True if the output for people contains this `shardline` command."""
        return [str(argument) for argument in arguments] in self.commands


def commands_in(text: str) -> list[list[str]]:
    """Find the `shardline` commands in a text: each ends with its line, or at a backtick."""
    return [shlex.split(match) for match in re.findall(r"shardline ([a-z]+ [^`\n]*)", text)]


def _environment(**more: str) -> dict[str, str]:
    ours = {"COLUMNS", "LINES", "SHARDLINE_ROOT"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}


def shardline(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Result:
    """Run the command in this process: all of it but the interpreter's start and end."""
    out, err = io.StringIO(), io.StringIO()
    listed = list(map(str, arguments))
    before = signal.getsignal(signal.SIGTERM)
    code: object = 0
    with (
        chdir(cwd or ROOT),
        patch.dict(os.environ, _environment(**environment), clear=True),
        patch.object(sys, "argv", ["shardline", *listed]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main(listed, prog_name="shardline")
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):  # as the interpreter does
                print(code, file=err)
                code = 1
        finally:
            signal.signal(signal.SIGTERM, before)
    return Result(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


def process(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Result:
    """Run the command in a process of its own, with its output in pipes."""
    result = subprocess.run(
        [sys.executable, "-m", "shardline", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd or ROOT,
        env=_environment(**environment),
    )
    return Result(result.returncode, result.stdout, result.stderr)


def on_terminal(*arguments: str | Path, both: bool = False) -> tuple[int, str]:
    """Run the command with stderr on a terminal of its own; gives its code and what was drawn.

    With `both`, stdout is there too.
    """
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "shardline", *map(str, arguments)],
        stdout=terminal if both else subprocess.DEVNULL,
        stderr=terminal,
        cwd=ROOT,
        env=_environment(TERM="xterm-256color"),
    )
    os.close(terminal)
    drawn = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # the other end is closed: how Linux says end of file here
            break
        if not piece:
            break
        drawn += piece
    os.close(main)
    return process.wait(), drawn.decode("utf-8", "replace")
