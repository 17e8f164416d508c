"""Peak memory of operations on a small and a large file, each in a separate process."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

import shardline
from benchmarks.data import MEGABYTE, flip_bits, small_table, write_repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _version(path: Path) -> shardline.Version:
    return shardline.Version(path.with_suffix(".root"), "digits/v1")


OPERATIONS: dict[str, Callable[[Path], object]] = {
    "verify": shardline.files.verify_file,
    "schema": lambda path: shardline.files.infer_schema([path]),
    "append": lambda path: _version(path).append(path),
    "check": lambda path: _version(path).check(),
    "rebuild": lambda path: _version(path).rebuild(),
    "salvage": lambda path: shardline.files.salvage(path, path.with_suffix(".out")),
}
"""In their order: `check` and `rebuild` work on what `append` made."""
_MEBIBYTE = 1024 * 1024
_GROWING = {"append", "rebuild"}
_ROWS = 32 * 1024


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak memory of an operation on both files, in bytes."""

    operation: str
    small: int
    large: int

    @property
    def target(self) -> int:
        """Return the allowed growth for the large file."""
        return (128 if self.operation in _GROWING else 64) * _MEBIBYTE

    @property
    def met(self) -> bool:
        """Return True if the large file takes hardly more than the small one."""
        return self.large - self.small <= self.target


def measure_peaks(folder: Path, small_megabytes: int, large_megabytes: int) -> list[Peak]:
    """Measure every operation. Salvage is last, on the same files after corruption."""
    table = small_table(_ROWS)
    paths = []
    for megabytes in (small_megabytes, large_megabytes):
        paths.append(folder / f"{megabytes}.tfrecord")
        write_repeated(paths[-1], table, megabytes * MEGABYTE)
    peaks = []
    for operation in OPERATIONS:
        if operation == "salvage":
            for path in paths:
                shutil.rmtree(path.with_suffix(".root"))
                flip_bits(path, MEGABYTE)
        small, large = (_peak_in_process(operation, path) for path in paths)
        peaks.append(Peak(operation, small, large))
    return peaks


def _peak_in_process(operation: str, path: Path) -> int:
    command = [sys.executable, "-m", "benchmarks.memory", operation, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return int(json.loads(done.stdout))


def peak_bytes() -> int:
    """Return the peak memory of this process.

    On Linux, the resource usage includes the memory of the parent before the start, so the figure
    of the process itself is preferred.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def as_table(peaks: Sequence[Peak], title: str) -> Table:
    """Return the peaks as a table."""
    table = Table(title=title, title_justify="left")
    table.add_column("operation")
    for name in ("small file", "large file", "difference", "target"):
        table.add_column(name, justify="right")
    table.add_column("")
    for peak in peaks:
        table.add_row(
            peak.operation,
            _mebibytes(peak.small),
            _mebibytes(peak.large),
            _mebibytes(peak.large - peak.small),
            f"<= {_mebibytes(peak.target)}",
            "[green]met[/]" if peak.met else "[red]missed[/]",
        )
    return table


def as_json(peaks: Sequence[Peak]) -> list[dict[str, Any]]:
    """Return the peaks as JSON values."""
    return [{**asdict(peak), "met": peak.met} for peak in peaks]


def _mebibytes(size: int) -> str:
    return f"{size / _MEBIBYTE:.1f} MiB"


def main(operation: str, path: str) -> None:
    """Run an operation and print the peak memory of this process."""
    OPERATIONS[operation](Path(path))
    print(json.dumps(peak_bytes()))


if __name__ == "__main__":
    main(*sys.argv[1:])
