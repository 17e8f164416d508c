"""Memory: what a command takes does not grow with the file."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from tests.kernel.examples import seeded
from tests.kernel.frames import framed
from tests.tfrecord.samples import (
    big_file,
    bulk_needs_the_compiled_kernel,
    example_of,
    gzip_member,
    peak_of_command,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sweep(keep=7, of="memory")

MB = 2**20
SMALL, LARGE = 40 * MB, 400 * MB
ALLOWED = 64 * MB


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: the disk is not what is measured."""
    shm = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    roomy = shm.is_dir() and os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize > 4 * LARGE
    with TemporaryDirectory(dir=shm if roomy else None) as name:
        yield Path(name)


def record(size: int) -> bytes:
    return example_of(label=7, image=seeded(1).randbytes(size))


def damaged(path: Path, *places: float) -> Path:
    """The file with a byte changed at each of these parts of it."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        for place in places:
            file.seek(int(size * place))
            file.write(b"\xa5\x5a\xa5")
    return path


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("size", [150, 50_000])
@pytest.mark.parametrize("command", ["verify", "verify --examples", "schema", "count", "index"])
def test_ten_times_the_file_takes_no_more_memory(folder: Path, command: str, size: int) -> None:
    peaks = []
    for total in (SMALL, LARGE):
        path = big_file(folder / str(total), total, record(size))
        peak, code, _ = peak_of_command(*command.split(), path)
        assert code in {0, None}
        peaks.append(peak)
    assert peaks[1] - peaks[0] < ALLOWED


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("size", [150, 50_000])
def test_nor_does_salvage_or_finding_every_fault(folder: Path, size: int) -> None:
    salvage, verify = [], []
    for total in (SMALL, LARGE):
        path = damaged(big_file(folder / str(total), total, record(size)), 0.1, 0.5, 0.9)
        peak, code, _ = peak_of_command("salvage", path, "-o", folder / f"{total}.out")
        assert code in {0, None}
        salvage.append(peak)
        (folder / f"{total}.out").unlink()
        peak, code, _ = peak_of_command("verify", "--all", path)
        assert code == 1
        verify.append(peak)
    assert salvage[1] - salvage[0] < ALLOWED
    assert verify[1] - verify[0] < ALLOWED


@bulk_needs_the_compiled_kernel
def test_nor_does_a_packed_file(folder: Path) -> None:
    payload = record(5000)
    block = framed(*[payload] * 200)
    peaks = []
    for total in (SMALL, LARGE):
        path = folder / str(total)
        member = gzip_member(block, level=1)
        path.write_bytes(member * (total // len(block)))
        for command in (["verify"], ["salvage"]):
            out: list[str | Path] = (
                ["-o", folder / f"{total}.out"] if command == ["salvage"] else []
            )
            peak, code, _ = peak_of_command(*command, path, *out)
            assert code in {0, None}
            peaks.append(peak)
    assert max(peaks[2] - peaks[0], peaks[3] - peaks[1]) < ALLOWED


@bulk_needs_the_compiled_kernel
def test_nor_does_a_file_that_is_nothing_but_damage(folder: Path) -> None:
    peaks = []
    for total in (SMALL, LARGE):
        path = folder / str(total)
        piece = seeded(2).randbytes(MB)
        with path.open("wb") as file:
            file.write(framed(b"one"))
            for _ in range(total // MB):
                file.write(piece)
        peak, code, _ = peak_of_command("salvage", path, "-o", folder / f"{total}.out")
        assert code in {0, None}
        peaks.append(peak)
    assert peaks[1] - peaks[0] < ALLOWED
