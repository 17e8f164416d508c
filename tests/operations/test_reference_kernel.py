"""The same tests of files and operations once more, on the kernel in plain Python.

The kernel is chosen when it is imported, so they run in a process that asks for the other one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardline import kernel
from tests.sampling import sampled

ROOT = Path(__file__).parents[2]
CHOSEN = [
    "tests/operations/test_verify.py",
    "tests/operations/test_salvage.py",
    "tests/operations/test_preview.py",
    "tests/operations/test_examples.py",
    "tests/log/test_conform.py",
    "tests/operations/test_schema.py",
    "tests/tfrecord/test_index.py",
    "tests/tfrecord/test_writer.py",
    "tests/tfrecord/test_reader.py",
    "tests/sources/test_bad_values.py",
    "tests/sources/test_tfrecord.py",
    "tests/operations/test_rebuild_files.py",
]
WITHOUT = "end_a_process"


@pytest.mark.sweep
@pytest.mark.skipif(kernel.NAME == "reference", reason="all tests run on that kernel already")
def test_files_and_operations_are_the_same_on_the_reference_kernel() -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         *sampled(CHOSEN, 1, "reference kernel"), "-k", f"not ({WITHOUT})"],
        cwd=ROOT,
        env={**kept, "SHARDLINE_KERNEL": "reference"},
        check=False,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-5000:]
    assert " passed" in result.stdout
