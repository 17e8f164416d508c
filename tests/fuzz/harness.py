"""Run fuzz targets in worker processes, find crashes, and save each failure.

A target is a way to use a file. Each case is a mutated file of the corpus, drawn from the seed,
the name of the target and the number of the case. The worker announces each case before it
starts, so that the parent knows which case ended the process.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.fuzz.mutate import Mutation

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
FAILURES = ROOT / ".fuzz"
CASE_SECONDS = 60.0
"""A case hangs if it uses more CPU time than this, or none of it for so long."""
_IDLE_SECONDS = 0.05
_MOST_FAILURES = 10


class Finding(AssertionError):  # noqa: N818 - what a fuzzer finds
    """A result that the oracle of a target refuses, e.g. records that differ from the file."""


@dataclass(frozen=True, slots=True)
class Case:
    """A mutated file: its bytes, and the name of the file of the corpus that it was."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Target:
    """A way to use a mutated file.

    `check` gets the case and an empty folder. It returns a label such as "accepted", raises a
    ShardlineError if the file is rejected, and Finding if the result is wrong. Every other
    exception is a failure. `corpus` are patterns of files below `base`.
    """

    name: str
    corpus: tuple[str, ...]
    mutate: Mutation
    check: Callable[[Case, Path], str]
    base: Path = CORPUS

    @cached_property
    def seeds(self) -> dict[str, bytes]:
        """The files of the corpus by name, in a fixed order."""
        found = {
            path.relative_to(self.base).as_posix(): path.read_bytes()
            for pattern in self.corpus
            for path in sorted(self.base.glob(pattern))
        }
        if not found:
            raise FileNotFoundError(f"no corpus files for {self.name}: {self.corpus}")
        return found

    def case(self, seed: str, number: int) -> Case:
        """Return a case by its number."""
        draw = random.Random(f"{seed} {self.name} {number}")
        name = draw.choice(list(self.seeds))
        return Case(name, self.mutate(draw, self.seeds[name], list(self.seeds.values())))


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed: how, and the file to run it again."""

    target: str
    number: int
    kind: str
    detail: str
    path: Path

    def __str__(self) -> str:
        return (
            f"{self.target} case {self.number}: {self.kind}\n{self.detail}\n"
            f"replay: {Path(sys.executable).name} -m tests.fuzz --replay {self.path}"
        )


@dataclass(slots=True)
class TargetReport:
    """Cases of a target by outcome, and its failures."""

    target: str
    seed: str
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    @property
    def cases(self) -> int:
        """How many cases ended."""
        return sum(self.outcomes.values())

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count:,} {name}" for name, count in sorted(self.outcomes.items()))
        return f"{self.target}: {self.cases:,} cases ({outcomes or 'none'}), seed {self.seed}"


def fuzz(
    target: Target,
    seed: str,
    seconds: float,
    *,
    folder: Path,
    failures: Path = FAILURES,
    python: str = sys.executable,
) -> TargetReport:
    """Run cases of a target until the time is up or too many fail.

    A worker that dies is replaced, and the next one continues behind the case that ended it.
    """
    report = TargetReport(target.name, seed)
    end = time.time() + seconds
    number, known = 0, set[str]()
    while time.time() < end and len(report.failures) < _MOST_FAILURES:
        arguments = ["--target", target.name, "--seed", seed, "--first", str(number)]
        for event in _Run(python, arguments, folder, end).events():
            number = event["case"] + 1
            outcome = event["outcome"]
            report.outcomes[outcome] = report.outcomes.get(outcome, 0) + 1
            if "kind" in event and event["signature"] not in known:
                known.add(event["signature"])
                report.failures.append(_save(target, seed, event, failures))
    return report


def saved_case(path: Path) -> tuple[str, Case]:
    """Return the name of the target and the case that a failure was saved as."""
    target, _, name = path.name.split("~")
    return target, Case(name.replace("+", "/"), path.read_bytes())


def note_oracle() -> None:
    """Report that what follows is the oracle's own reading: its crash is not a failure."""
    announce(phase="oracle")


announced: dict[str, object] = {}


def announce(**event: object) -> None:
    """Print an event of the running case, for the parent."""
    announced.update({"case": event.get("case", announced.get("case"))})
    sys.stdout.write(json.dumps({**announced, **event}) + "\n")
    sys.stdout.flush()


def replay(path: Path, folder: Path) -> dict[str, Any]:
    """Run a saved case again in a separate worker."""
    end = time.time() + CASE_SECONDS
    (event,) = _Run(sys.executable, ["--file", str(path.absolute())], folder, end).events()
    return event


def _save(target: Target, seed: str, event: dict[str, Any], folder: Path) -> Failure:
    number = event["case"]
    folder.mkdir(parents=True, exist_ok=True)
    case = target.case(seed, number)
    path = folder / "~".join((target.name, f"{seed}-{number}", case.name.replace("/", "+")))
    path.write_bytes(case.data)
    return Failure(target.name, number, str(event["kind"]), str(event["detail"]), path)


class _Run:
    """A worker process: the events it reports, and how it ended."""

    def __init__(self, python: str, arguments: Sequence[str], folder: Path, end: float) -> None:
        self._command = [
            *(python, "-m", "tests.fuzz.worker", "--until", str(end)),
            *("--folder", str(folder), *arguments),
        ]

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield one event for each case; a case that ends the process is the last one."""
        with tempfile.TemporaryFile() as errors:  # A pipe without a reader would block the worker.
            yield from self._events(errors)

    def _events(self, errors: IO[bytes]) -> Iterator[dict[str, Any]]:
        process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        assert process.stdout is not None
        begun: dict[str, Any] | None = None
        hangs = False
        try:
            lines = _lines(process, CASE_SECONDS)
            for line in lines:
                event = json.loads(line)
                if "outcome" not in event:
                    begun = event
                    continue
                begun = None
                yield event
        except TimeoutError:
            hangs = True
        finally:
            _end_group(process)
            process.stdout.close()
        errors.seek(0)
        printed = errors.read()
        status = process.returncode
        if begun is not None and begun.get("phase") != "oracle":
            kind = "hang" if hangs else _ending(status)
            yield {**begun, "outcome": "failed", "kind": kind, **_printed(kind, printed)}
        elif begun is not None:
            yield {**begun, "outcome": "oracle failed"}
        elif status and not hangs:
            raise RuntimeError(f"the fuzz worker failed:\n{printed.decode(errors='replace')}")


def _printed(kind: str, printed: bytes) -> dict[str, str]:
    detail = printed.decode(errors="replace")[-4000:]
    frames = [line for line in detail.splitlines() if line.lstrip().startswith("File ")]
    return {"detail": detail, "signature": f"{kind} {frames[:1]}"}


def _ending(status: int) -> str:
    if status < 0:
        return f"crash by {signal.Signals(-status).name}"
    return f"exit with status {status}"


def _lines(process: subprocess.Popen[bytes], seconds: float) -> Iterator[bytes]:
    """Yield lines as they arrive; TimeoutError if the worker hangs.

    CPU time decides: on a busy machine a healthy worker can be silent for minutes.
    """
    assert process.stdout is not None
    left = b""
    start = last = _cpu_seconds(process.pid)
    while True:
        if not select.select([process.stdout], [], [], seconds)[0]:
            used = _cpu_seconds(process.pid)
            if used - start > seconds or used - last < _IDLE_SECONDS:
                raise TimeoutError
            last = used
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            return
        *whole, left = (left + data).split(b"\n")
        yield from whole
        start = last = _cpu_seconds(process.pid)


def _cpu_seconds(session: int) -> float:
    """Return the CPU time of all processes of a session, ended children included."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the worker, and the processes that it started, if any of them still runs."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
