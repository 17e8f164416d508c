"""Forged sidecars and swapped shards of a root whose logs have the digests of all of them.

The mutated files have right checksums of their own, mostly. Records that are read or traced are
those of the root without mutations, or a structured error; audit finds every file that differs.
"""

from __future__ import annotations

import io
import os
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np

from shardline import canonical_json as canonical
from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.lineage.audit.root_audit import audit
from shardline.lineage.trace import trace
from shardline.operations.erase import erase
from shardline.provenance.log_index import LogIndex
from shardline.sidecars.row_map import RowMapWriter
from tests.fuzz.harness import CORPUS, Case, Finding, Target
from tests.fuzz.mutate import mutate_bytes, mutate_json, mutate_records, mutate_text

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

ROOT = CORPUS / "root"
FORGED = ("forged/v1", "forged/wide", "forged/overlay", "forged/pairs")
ERASED = 3
Results = dict[str, list[Any]]


def mutate_receipt(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Mutate a receipt, or take another; mostly in canonical form and with a right digest."""
    if draw.random() < 0.2:
        return draw.choice(others)
    mutated = mutate_json(draw, data, others)
    try:
        value = canonical.decode(mutated.removesuffix(b"\n"))
        del value["digest"]
        value["digest"] = canonical.sha256(value)
        return canonical.encode(value) + b"\n"
    except (ValueError, TypeError, KeyError):
        return mutated


def mutate_row_map(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change numbers of a row map and its checksums, or its bytes alone."""
    if draw.random() < 0.3:
        return mutate_bytes(draw, data, others)
    columns, width = data[8:10]
    numbers = np.frombuffer(data[16:-4], f"<i{width}").reshape(-1, columns).copy()
    for _ in range(draw.randint(1, 3)):
        row, column = draw.randrange(len(numbers)), draw.randrange(columns)
        numbers[row, column] = draw.choice((-1, 0, 1, 5, 11, 12, 2**31 - 1))
    buffer = io.BytesIO()
    writer = RowMapWriter(buffer, columns, width)  # type: ignore[arg-type] # it only writes
    writer.add(*numbers.T)
    writer.finish()
    return buffer.getvalue()


def mutate_shard(draw: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Mutate a shard with right checksums, or swap it for another."""
    return draw.choice(others) if draw.random() < 0.2 else mutate_records(draw, data, others)


def _results(root: Path) -> Results:
    """Read and trace every record of every version; errors are results too."""
    results: Results = {}
    catalog = LogIndex(root)
    for name in FORGED:
        try:
            snapshot = Version(root, name).latest()
        except ShardlineError:
            continue
        try:
            results[f"take {name}"] = snapshot.take(range(snapshot.records)).to_pylist()
            results[f"arrow {name}"] = snapshot.to_arrow().read_all().to_pylist()
        except ShardlineError:
            pass
        for number in range(snapshot.records):
            try:
                results[f"trace {name} {number}"] = [repr(trace(catalog, snapshot, number))]
            except ShardlineError:
                continue
    return results


@cache
def _sound() -> Results:
    return _results(ROOT)


@cache
def _template(base: Path) -> Path:
    """Return a copy of the root next to the cases, so that its files can be linked."""
    copy = Path(mkdtemp(dir=base)) / "root"
    shutil.copytree(ROOT, copy)
    return copy


def _state(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix != ".index")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def _check(case: Case, folder: Path) -> str:
    """Read, trace, audit and erase in the root with one file replaced."""
    if case.data == (CORPUS / case.name).read_bytes():
        return "unchanged"
    root = folder / "root"
    shutil.copytree(_template(folder.parent), root, copy_function=os.link)
    path = folder / case.name
    path.unlink()
    path.write_bytes(case.data)
    for name, result in _results(root).items():
        expected = [str(one).replace(str(ROOT), str(root)) for one in _sound()[name]]
        if [str(one) for one in result] != expected and "TraceGap(" not in str(result):
            raise Finding(f"{name} differs from the root without mutations")
    report = audit(LogIndex(root), sources=False, workers=1)
    if not any(one.severity != "note" for one in report.findings):
        raise Finding(f"audit finds nothing about {case.name}")
    before = _state(root)
    try:
        erase(root, "forged", key="id", values=[ERASED], check=False)
    except ShardlineError:
        if _state(root) != before and not _is_resumable(root, before):
            raise Finding("a failed erase changed the root") from None
        return "rejected"
    left = [row["id"] for row in Version(root, FORGED[0]).latest().take(range(11)).to_pylist()]
    if left != [number for number in range(12) if number != ERASED]:
        raise Finding("erase destroyed the wrong record")
    return "erased"


def _is_resumable(root: Path, before: dict[str, bytes]) -> bool:
    """Return True if only new files were added: shards that no entry names."""
    after = _state(root)
    logs = [name for name in after.keys() - before.keys() if "/log/" in name]
    return not logs and all(after.get(name) == data for name, data in before.items())


TARGETS = (
    Target("forged-receipts", ("root/**/*.receipt",), mutate_receipt, _check),
    Target("forged-row-maps", ("root/**/*.rows",), mutate_row_map, _check),
    Target("forged-quarantine", ("root/**/*.jsonl",), mutate_text, _check),
    Target("forged-shards", ("root/**/*.tfrecord",), mutate_shard, _check),
)
