"""An engine as a cluster has it: tasks are pickled and done in another process."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shardline.execution.executor import ProgressListener, ShardTask, TaskContext

    Task = TypeVar("Task", bound=ShardTask)
    Result = TypeVar("Result")

ROOT = Path(__file__).parents[2]


@dataclass
class Cluster:
    """Ships tasks to processes that share nothing with this one but storage.

    The tasks of one run go to one process. `shipped` tells how many there were, by step.
    """

    shipped: dict[str, int] = field(default_factory=dict)

    def run(
        self,
        work: Callable[[Task, TaskContext], Result],
        tasks: Sequence[Task],
        progress: ProgressListener | None = None,
    ) -> Iterator[Result]:
        """Run the tasks one after the other in a new process."""
        del progress
        for task in tasks:
            self.shipped[task.step] = self.shipped.get(task.step, 0) + 1
        done = subprocess.run(
            [sys.executable, "-m", "tests.execution.clusters"],
            input=pickle.dumps((work, [pickle.dumps(task) for task in tasks])),
            stdout=subprocess.PIPE,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        yield from pickle.loads(done.stdout)  # noqa: S301 - written by our own process


class _Node:
    """What a task on a node can ask and tell: nobody listens."""

    workers = 1

    def report(self, done: int, records: int) -> None:
        """Go on."""


if __name__ == "__main__":
    # What comes in was written by the process that started us.
    work, tasks = pickle.load(sys.stdin.buffer)  # noqa: S301
    results = [work(pickle.loads(task), _Node()) for task in tasks]  # noqa: S301
    sys.stdout.buffer.write(pickle.dumps(results))
