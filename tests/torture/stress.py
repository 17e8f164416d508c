"""Stress: concurrent random operations, kills and wrong clocks, compared with ground truth.

    python -m tests.torture.stress --minutes 60

Each round starts workers that append, rebuild, extend, migrate, combine, reject, restore, tag,
erase, vacuum, export and read on one root. Workers are killed at random moments and replaced, and
their clocks differ by days. When a round ends, `stress_truth` compares the root with what happened.
After some rounds all persons that were erased are searched in every byte of the dataset, and a new
root begins. A failure keeps its folder and prints the seed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.erase import erase
from shardline.operations.vacuum import vacuum
from tests.torture.stress_operations import (
    DATASET,
    LABEL_SCHEMA,
    LABELS,
    PERSONS,
    person_of,
    run_worker,
)
from tests.torture.stress_truth import journal_lines, names_found, problems_of

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

CLOCKS = (0.0, 0.0, 0.0, 0.1, 3.0, -3.0, 400.0)
"""By how many days the clock of a worker may differ."""
ROUNDS_PER_ROOT = 5
PAUSE_SECONDS = (0.2, 3.0)
STOP_SECONDS = 120
_PROCESSES = multiprocessing.get_context("forkserver")  # starts a worker without its imports
_PROCESSES.set_forkserver_preload(["tests.torture.stress_operations"])


@dataclass
class Tally:
    """What a run did."""

    roots: int = 0
    rounds: int = 0
    kills: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {n}" for name, n in sorted(self.outcomes.items()) if name)
        return (
            f"{self.roots} roots, {self.rounds} rounds, {self.kills} kills, "
            f"{len(self.problems)} problems; {outcomes}"
        )


class Stress:
    """One root under stress."""

    def __init__(self, folder: Path, seed: str, workers: int, tally: Tally) -> None:
        self.folder, self.seed, self.workers, self.tally = folder, seed, workers, tally
        self.random = random.Random(seed)
        self.started = 0
        (folder / "landing").mkdir(parents=True)
        persons = [{"person": person_of(number), "group": number} for number in range(PERSONS)]
        labels = Version(folder / "root", LABELS)
        append(labels, persons, batch="labels", schema=LABEL_SCHEMA)
        check_version(labels)

    def round(self, seconds: float) -> None:
        """Let workers run and die for some seconds, then compare."""
        (self.folder / "stop").unlink(missing_ok=True)
        running = [self._start() for _ in range(self.workers)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.uniform(*PAUSE_SECONDS))
            victim = self.random.randrange(len(running))
            running[victim].kill()
            running[victim].join()
            self.tally.kills += 1
            running[victim] = self._start()
        (self.folder / "stop").touch()
        for worker in running:
            worker.join(STOP_SECONDS)
            if worker.is_alive():
                worker.kill()
                worker.join()
                self.tally.problems.append("a worker did not stop")
        self.tally.rounds += 1
        self.tally.problems += problems_of(self.folder)

    def _start(self) -> BaseProcess:
        self.started += 1
        days = self.random.choice(CLOCKS)
        arguments = (self.folder, self.started, self.seed, days)
        worker = _PROCESSES.Process(target=run_worker, args=arguments)
        worker.start()
        return worker

    def finish(self) -> None:
        """Erase all persons that were ever erased, and search every byte for their names."""
        lines = journal_lines(self.folder)
        self.tally.outcomes += Counter(map(_outcome, lines))
        persons = sorted({line["person"] for line in lines if "person" in line})
        root = self.folder / "root"
        if persons:
            for version in ("v1", "wide", "paired"):
                opened = Version(root, f"{DATASET}/{version}")
                for tag in list(opened.state.tags):
                    opened.tag(tag, None)
            erase(root, DATASET, key="person", values=persons, request="request all")
        vacuum(root, DATASET, retention=timedelta(0), dry_run=False)
        for person in persons:
            self.tally.problems += [
                f"{person} is still in {name}" for name in names_found(root, person)
            ]


def _outcome(line: dict[str, Any]) -> str:
    """Return what became of an operation, for the count of outcomes."""
    if "done" in line:
        return str(line["done"])
    return f"{line['failed']} ({line['code']})" if "failed" in line else ""


def run(minutes: float, seed: str, workers: int = 3, round_seconds: float = 15) -> Tally:
    """Run roots and rounds until the time is over, or something is wrong."""
    tally = Tally()
    end = time.monotonic() + 60 * minutes
    while not tally.problems and (time.monotonic() < end or not tally.rounds):
        folder = Path(tempfile.mkdtemp(prefix="shardline-stress-"))
        stress = Stress(folder, f"{seed}.{tally.roots}", workers, tally)
        tally.roots += 1
        for _ in range(ROUNDS_PER_ROOT):
            stress.round(min(round_seconds, max(1.0, end - time.monotonic())))
            if tally.problems or time.monotonic() >= end:
                break
        if not tally.problems:
            stress.finish()
        if tally.problems:
            tally.problems.append(f"kept in {folder} (seed {seed})")
        else:
            shutil.rmtree(folder)
    return tally


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", default=str(time.time_ns()))
    parser.add_argument("--workers", type=int, default=3)
    options = parser.parse_args()
    tally = run(options.minutes, options.seed, options.workers)
    sys.stdout.write("\n".join([*tally.problems[:20], str(tally), ""]))
    sys.exit(bool(tally.problems))


if __name__ == "__main__":
    main()
