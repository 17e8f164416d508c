"""The process in which the cases of a target run: it prints one line when each begins and ends."""

from __future__ import annotations

import argparse
import faulthandler
import resource
import shutil
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from shardline.errors import ShardlineError
from tests.fuzz.harness import Case, Finding, Target, announce, saved_case
from tests.fuzz.targets import TARGETS

ADDRESS_SPACE_BYTES = 6 * 2**30
"""An allocation beyond this fails, so that a memory blow-up is an error and not the end."""
MOST_GROWTH_BYTES = 768 * 2**20
"""How much the peak of the process may grow in a single case."""


def main() -> None:
    """Run the cases that the arguments ask for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target")
    parser.add_argument("--seed", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--until", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--file", type=Path)
    asked = parser.parse_args()
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    if asked.file is not None:
        name, case = saved_case(asked.file)
        _run(TARGETS[name], 0, case, asked.folder)
        return
    target = TARGETS[asked.target]
    number = asked.first
    while _run(target, number, target.case(asked.seed, number), asked.folder):
        number += 1
        if time.time() >= asked.until:
            break


def _run(target: Target, number: int, case: Case, base: Path) -> bool:
    """Run a case and report it; False if its memory would hide the next blow-up."""
    announce(case=number)
    before = _peak()
    folder = Path(tempfile.mkdtemp(dir=base))
    report: dict[str, Any] = {}
    try:
        report["outcome"] = target.check(case, folder)
    except ShardlineError as error:
        report["outcome"] = "rejected"
        report["code"] = error.code
    except Finding as error:
        report = _failure("wrong result", error)
    except Exception as error:  # noqa: BLE001 - any exception is a finding
        report = _failure(f"raw {type(error).__name__}", error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    growth = _peak() - before
    if growth > MOST_GROWTH_BYTES:
        report = {
            "outcome": "failed",
            "kind": "memory",
            "signature": "memory",
            "detail": f"the peak grew by {growth >> 20} MiB",
        }
    announce(case=number, **report)
    return growth <= MOST_GROWTH_BYTES // 2


def _failure(kind: str, error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/shardline/" in frame.filename] or frames
    place = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else ""
    return {
        "outcome": "failed",
        "kind": kind,
        "signature": f"{kind} {place}",
        "detail": "".join(traceback.format_exception(error))[-4000:],
    }


def _peak() -> int:
    """Return the peak memory of this process and of the children that ended, in bytes."""
    return 1024 * max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


if __name__ == "__main__":
    main()
