"""Commands of the sweeps of derived versions: `python derive_commands.py VERB FOLDER`.

One worker, so that every run makes the same calls. A failure ends with exit code 2 and the error
that the command line would show.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from shardline.api import Version
from shardline.errors import ShardlineError
from shardline.execution.executor import ThreadExecutor
from shardline.operations.combine import combine
from shardline.operations.combine_files import combine_files
from shardline.operations.erase import erase
from shardline.operations.extend import extend, extend_file
from shardline.operations.migrate import MigrationSpec, migrate, migrate_file
from shardline.operations.rebuild import rebuild
from shardline.schema.schema import Feature
from shardline.udf import batch_udf

if TYPE_CHECKING:
    import pyarrow as pa

    from shardline.operations.transform import TransformMode

BASE, DERIVED = "digits/v1", "digits/v2"


@batch_udf(Feature("double", "int64"), reads=["x"], code="1", processes=False)
def double(batch: pa.RecordBatch) -> dict[str, Any]:
    """Twice the number."""
    return {"double": pc.multiply(batch["x"], 2)}


def _extend(folder: Path, mode: TransformMode) -> None:
    root = folder / "root"
    executor = ThreadExecutor(1, pause=0)
    extend(
        Version(root, BASE),
        double,
        Version(root, DERIVED),
        snapshot="latest",
        mode=mode,
        executor=executor,
    )


def extend_overlay(folder: Path) -> None:
    """Add features to a version, as overlays."""
    _extend(folder, "overlay")


def extend_rewrite(folder: Path) -> None:
    """Write the records of a version with new fields in them."""
    _extend(folder, "rewrite")


def migrate_version(folder: Path) -> None:
    """Give a feature another name."""
    root = folder / "root"
    steps = MigrationSpec(rename={"x": "number"})
    executor = ThreadExecutor(1, pause=0)
    migrate(
        Version(root, BASE), steps, Version(root, DERIVED), snapshot="latest", executor=executor
    )


def extend_loose(folder: Path) -> None:
    """Write the records of a file with new fields in them."""
    extend_file(folder / "a.tfrecord", double, folder / "out.tfrecord", overwrite=True)


def migrate_loose(folder: Path) -> None:
    """Write the records of a file with another name for a feature."""
    steps = MigrationSpec(rename={"x": "number"})
    migrate_file(folder / "a.tfrecord", steps, folder / "out.tfrecord", overwrite=True)


_PREFIXES: dict[str, Any] = {"on_collision": "prefix", "left_prefix": "a_", "right_prefix": "b_"}


def combine_version(folder: Path) -> None:
    """Write all pairs of the records of a version, in several shards."""
    base, into = Version(folder / "root", BASE), Version(folder / "root", DERIVED)
    executor = ThreadExecutor(1, pause=0)
    newest: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    combine(base, base, into, **newest, **_PREFIXES, target_bytes=500, executor=executor)


def combine_virtual(folder: Path) -> None:
    """Write the plan of each two records of a version."""
    base, into = Version(folder / "root", BASE), Version(folder / "root", DERIVED)
    executor = ThreadExecutor(1, pause=0)
    newest: dict[str, Any] = {"left_snapshot": "latest", "right_snapshot": "latest"}
    combine(
        base, base, into, **newest, **_PREFIXES, mode="virtual", unordered=True, executor=executor
    )


def combine_loose(folder: Path) -> None:
    """Write all pairs of the records of two files."""
    files = (folder / "a.tfrecord", folder / "b.tfrecord")
    combine_files(*files, folder / "out.tfrecord", **_PREFIXES, overwrite=True)


def fold_overlays(folder: Path) -> None:
    """Make one plain shard of all overlays."""
    rebuild(
        Version(folder / "root", DERIVED), snapshot="latest", executor=ThreadExecutor(1, pause=0)
    )


def erase_records(folder: Path) -> None:
    """Take a record out of every version."""
    erase(folder / "root", "digits", where="x == 4", executor=ThreadExecutor(1, pause=0))


def strike_out(folder: Path) -> None:
    """Strike a refused row out of a quarantine file."""
    erase(folder / "root", "digits", key="x", values=[7], executor=ThreadExecutor(1, pause=0))


VERBS = {
    verb.__name__: verb
    for verb in (
        extend_overlay,
        extend_rewrite,
        migrate_version,
        extend_loose,
        migrate_loose,
        fold_overlays,
        combine_version,
        combine_virtual,
        combine_loose,
        erase_records,
        strike_out,
    )
}

if __name__ == "__main__":
    logging.basicConfig()
    try:
        VERBS[sys.argv[1]](Path(sys.argv[2]))
    except ShardlineError as error:
        sys.exit(f"Error: {error}")
    except OSError as error:
        sys.exit(f"Error: {error.filename}: {error.strerror}")
