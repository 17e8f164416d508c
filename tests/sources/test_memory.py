"""Reading a large source takes no more memory than reading a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tfrecord.samples import ROOT, bulk_needs_the_compiled_kernel

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sweep(keep=7, of="memory")

_PROBE = """
import resource, sys
from shardline.schema.schema import Feature, Schema
from shardline.sources import open_source
schema = Schema((Feature("id", "int64"), Feature("text", "bytes"), Feature("v", "float", (64,))))
rows = sum(len(chunk.frames().rows) for chunk in open_source(sys.argv[1]).chunks(schema))
print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def written(path: Path, rows: int) -> Path:
    values = np.random.default_rng(0).random((rows, 64), np.float32)
    table = pa.table(
        {
            "id": range(rows),
            "text": [f"row {at} " * 20 for at in range(rows)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), 64),
        }
    )
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows)
    else:
        with path.open("w") as file:
            for row in table.to_pylist():
                file.write(json.dumps(row) + "\n")
    return path


def peak(path: Path) -> tuple[int, int]:
    """The rows of a source, and the peak memory in KB of a process that reads it.

    A small process lies between, because a child begins with the peak of who started it.
    """
    outer = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    result = subprocess.run(
        [sys.executable, "-c", outer, sys.executable, "-c", _PROBE, str(path)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    rows, memory = result.stdout.split()
    return int(rows), int(memory)


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize(("name", "rows"), [("a.parquet", 300_000), ("a.jsonl", 40_000)])
def test_memory_does_not_grow_with_the_source(tmp_path: Path, name: str, rows: int) -> None:
    few, small = peak(written(tmp_path / f"small-{name}", 8_000))
    many, large = peak(written(tmp_path / name, rows))
    assert (few, many) == (8_000, rows)
    assert large < small + 60_000
