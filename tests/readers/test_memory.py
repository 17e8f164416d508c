"""Memory: what a reader takes does not grow with the snapshot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from shardline.log.append_change import Append
from shardline.operations.check import check_version
from shardline.schema.schema import Feature, Schema
from tests.kernel.examples import seeded
from tests.log.versions import source_of
from tests.readers.snapshots import make_version, write_shard
from tests.tfrecord.samples import ROOT, bulk_needs_the_compiled_kernel, example_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.sweep(keep=7, of="memory")

MB = 2**20
SMALL, LARGE = 40 * MB, 400 * MB
ALLOWED = 64 * MB
SCHEMA = Schema((Feature("label", "int64"), Feature("image", "bytes")))
SHARDS = 4
_PROBE = """
import os, resource, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
from shardline.api import Version
snapshot = Version(sys.argv[1], "digits/v1").published()
records = {
    "arrow": lambda: sum(batch.num_rows for batch in snapshot.to_arrow(workers=4)),
    "pandas": lambda: sum(len(frame) for frame in snapshot.to_pandas(workers=4)),
    "tf": lambda: sum(len(batch["label"]) for batch in snapshot.to_tf(batch=64)),
    "interleaved": lambda: sum(
        len(batch["label"]) for batch in snapshot.to_tf(batch=64, interleave=True)
    ),
}[sys.argv[2]]()
assert records == snapshot.records
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_of_reading(root: Path, reader: str) -> int:
    """The peak memory in bytes of a program that reads all of a snapshot.

    A small process lies between us, who may be large, and the one that is measured.
    """
    command = [sys.executable, "-c", _PROBE, str(root), reader]
    outer = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    result = subprocess.run(
        [sys.executable, "-c", outer, *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return int(result.stdout) * (1 if sys.platform == "darwin" else 1024)


@pytest.fixture(scope="module", params=["none", "gzip"])
def roots(request: pytest.FixtureRequest) -> Iterator[list[Path]]:
    """A small and a large version, in memory where there is room: the disk is not measured."""
    shm = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    roomy = shm.is_dir() and os.statvfs(shm).f_bavail * os.statvfs(shm).f_frsize > 2 * LARGE
    payload = example_of(label=7, image=seeded(1).randbytes(5000))
    with TemporaryDirectory(dir=shm if roomy else None) as name:
        made = []
        for total in (SMALL, LARGE):
            root = Path(name) / str(total)
            version = make_version(root, SCHEMA, [payload])
            shards = [
                write_shard(version, str(n), [payload] * (total // SHARDS // 5050), request.param)
                for n in range(SHARDS)
            ]
            sources = [source_of(str(n)) for n in range(SHARDS)]
            version.commit(Append(shards=shards, sources=sources))
            assert check_version(version).ok
            made.append(root)
        yield made


@bulk_needs_the_compiled_kernel
@pytest.mark.parametrize("reader", ["arrow", "pandas", "tf"])
def test_ten_times_the_snapshot_takes_no_more_memory(roots: list[Path], reader: str) -> None:
    small, large = (peak_of_reading(root, reader) for root in roots)
    assert large - small < ALLOWED
