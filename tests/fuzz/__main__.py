"""Run the fuzz targets for some minutes: `python -m tests.fuzz --minutes 10`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.fuzz.harness import Target, TargetReport, fuzz, replay
from tests.fuzz.targets import TARGETS
from tests.sampling import sample_seed


def main() -> int:
    """Run the requested targets. Returns 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="default: all")
    parser.add_argument("--minutes", type=float, default=10.0, help="in total; default: 10")
    parser.add_argument("--seed", default=sample_seed(), help="default: the date of today")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run a saved failure again")
    parser.add_argument("--list", action="store_true", help="list the targets")
    asked = parser.parse_args()
    if asked.list:
        for target in TARGETS.values():
            print(target.name)
        return 0
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        if asked.replay is not None:
            event = replay(asked.replay, Path(folder))
            print(*(f"{name}: {event[name]}" for name in event if name != "case"), sep="\n")
            return int("kind" in event)
        return _run(_chosen(parser, asked.targets), asked.seed, asked.minutes * 60, Path(folder))


def _chosen(parser: argparse.ArgumentParser, names: list[str]) -> list[Target]:
    for name in names:
        if name not in TARGETS:
            parser.error(f"unknown target {name!r}: expected {', '.join(TARGETS)}")
    return [TARGETS[name] for name in names or TARGETS]


def _run(targets: list[Target], seed: str, seconds: float, folder: Path) -> int:
    workers = min(os.cpu_count() or 1, len(targets))
    share = seconds * workers / len(targets)
    failed = False
    with ThreadPoolExecutor(workers) as pool:
        reports = pool.map(partial(_fuzz, seed=seed, seconds=share, folder=folder), targets)
        for report in reports:
            print(report, flush=True)
            for failure in report.failures:
                print(f"\n{failure}\n", flush=True)
                failed = True
    return int(failed)


def _fuzz(target: Target, *, seed: str, seconds: float, folder: Path) -> TargetReport:
    return fuzz(target, seed, seconds, folder=folder)


def _memory() -> str | None:
    """Return a folder in memory, if possible, because the disk is not tested."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - see above


if __name__ == "__main__":
    sys.exit(main())
