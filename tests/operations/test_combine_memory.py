"""Memory: what combining takes does not grow with the files, nor with their pairs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.kernel.examples import seeded
from tests.operations.combinations import lefts, rights
from tests.tfrecord.samples import (
    ROOT,
    big_file,
    bulk_needs_the_compiled_kernel,
    example_of,
    write_by_tensorflow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sweep(keep=7, of="memory")

MB = 2**20
ALLOWED = 48 * MB
_PROBE = """
import resource, sys
from shardline.operations.combine_files import combine_files
combine_files(*sys.argv[1:], budget_bytes=10**10)
unit = 1 if sys.platform == "darwin" else 1024
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: the disk is not what is measured."""
    shm = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    roomy = shm.is_dir() and os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize > 2048 * MB
    with TemporaryDirectory(dir=shm if roomy else None) as name:
        yield Path(name)


def peak_of(left: Path, right: Path, out: Path) -> int:
    """The peak memory of combining two files, in a process of its own below a small one."""
    command = [sys.executable, "-c", _PROBE, str(left), str(right), str(out)]
    outer = "import subprocess, sys; subprocess.run(sys.argv[1:], check=True)"
    result = subprocess.run(
        [sys.executable, "-c", outer, *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    out.unlink()
    return int(result.stdout)


@bulk_needs_the_compiled_kernel
def test_twenty_five_times_the_pairs_take_no_more_memory(folder: Path) -> None:
    peaks = []
    for count in (300, 1500):
        left = write_by_tensorflow(folder / f"left{count}", lefts(0, count))
        right = write_by_tensorflow(folder / f"right{count}", rights(0, count))
        peaks.append(peak_of(left, right, folder / "out"))
    assert peaks[1] - peaks[0] < ALLOWED


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("large", ["left", "right"])
def test_nor_does_a_side_of_any_size(folder: Path, large: str) -> None:
    record = example_of(label=7, image=seeded(1).randbytes(20_000))
    few = write_by_tensorflow(folder / "few", lefts(0, 2))
    peaks = []
    for size in (40 * MB, 160 * MB):
        path = big_file(folder / str(size), size, record)
        sides = (path, few) if large == "left" else (few, path)
        peaks.append(peak_of(*sides, folder / "out"))
    assert peaks[1] - peaks[0] < ALLOWED
