"""Run a piece of code under strace, to see its system calls or to let some of them fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREAMBLE = """
import sys
from shardline.errors import ShardlineError
from shardline.storage import open_store
store = open_store(sys.argv[1])
def told(action):
    try:
        action()
    except ShardlineError as error:
        text = error.describe().replace("\\n", " ")
        print(type(error).__name__, f"{text} [{error.code}]", sep="|")
    else:
        print("done|")
"""


def traced(code: str, root: Path, *options: str) -> tuple[list[tuple[str, str]], list[str]]:
    """What the code told, each as an error's kind and message, and the system calls it made.

    The message ends with the hint and, in brackets, the code.

    The code finds `store`, opened at `root`, and `told`, which does something and reports.
    """
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    log = root.parent / f"{root.name}.strace"
    result = subprocess.run(
        [
            *(strace, "-f", "-y", "-o", str(log), *options),
            *(sys.executable, "-c", PREAMBLE + code, str(root)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    if "ptrace" in result.stderr and "not permitted" in result.stderr:
        pytest.skip("strace may not trace here")
    assert result.returncode == 0, result.stderr
    lines = [line.partition("|") for line in result.stdout.splitlines()]
    return [(kind, message) for kind, _, message in lines], log.read_text().splitlines()
