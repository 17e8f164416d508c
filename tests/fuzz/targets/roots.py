"""Mutated sidecars, log entries and checkpoints of the root of release 0.1.0.

Each operation fails with a structured error or gives the result of the root without mutations.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import trace
from shardline.operations.verify_version import verify_version
from shardline.provenance.log_index import LogIndex
from tests.fuzz.harness import Case, Finding, Target
from tests.fuzz.mutate import mutate_bytes, mutate_json

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parents[2] / "golden" / "0.1.0" / "root"
Results = dict[str, Any]


def _operations(root: Path, name: str) -> dict[str, Callable[[], Any]]:
    """Return the operations on a version. A result of None is not compared."""
    catalog = LogIndex(root)

    def take() -> Any:  # noqa: ANN401 - any result
        snapshot = Version(root, name).latest()
        return [snapshot.take(range(min(snapshot.records, 64))).to_pylist(), snapshot.records]

    def trace_back() -> Any:  # noqa: ANN401 - any result
        snapshot = catalog.version(name).latest()
        return [str(trace(catalog, snapshot, number)) for number in range(min(snapshot.records, 3))]

    def verify() -> None:
        verify_version(Version(root, name), workers=1)

    def audit_it() -> None:
        audit(LogIndex(root), [name], sources=False, workers=1)

    return {"take": take, "trace": trace_back, "verify": verify, "audit": audit_it}


def _results(root: Path, name: str) -> Results:
    results: Results = {}
    for operation, run in _operations(root, name).items():
        try:
            results[operation] = run()
        except ShardlineError as error:
            results[operation] = error
    return results


@cache
def _template(base: Path) -> Path:
    """Return a copy of the root next to the cases, so that its files can be linked."""
    copy = Path(mkdtemp(dir=base)) / "root"
    shutil.copytree(GOLDEN, copy)
    return copy


@cache
def _sound(base: Path, name: str) -> Results:
    return _results(_template(base), name)


def version_of(path: str) -> str:
    """Return the version of a file of a root: `pets/shards/v1.X` or `pets/v1/log/X`."""
    dataset, folder, file = path.split("/", 2)
    return f"{dataset}/{file.partition('.')[0] if folder == 'shards' else folder}"


def _check(case: Case, folder: Path) -> str:
    """Run all operations on the root with one file replaced."""
    root = folder / "root"
    shutil.copytree(_template(folder.parent), root, copy_function=os.link)
    path = root / case.name
    path.unlink()
    path.write_bytes(case.data)
    name = version_of(case.name)
    sound = _sound(folder.parent, name)
    failed = False
    for operation, result in _results(root, name).items():
        if isinstance(result, ShardlineError):
            failed = True
        elif operation == "take" and result != sound[operation]:
            raise Finding(f"{operation} of {name} differs from the root without mutations")
    return "rejected" if failed else "accepted"


TARGETS = (
    Target("receipts", ("**/*.receipt",), mutate_json, _check, GOLDEN),
    Target("row-maps", ("**/*.rows",), mutate_bytes, _check, GOLDEN),
    Target("plans", ("**/*.plan",), mutate_json, _check, GOLDEN),
    Target("entries", ("**/log/0*.json",), mutate_json, _check, GOLDEN),
    Target("checkpoints", ("**/*.checkpoint",), mutate_bytes, _check, GOLDEN),
    Target("indexes", ("**/*.index",), mutate_bytes, _check, GOLDEN),
)
