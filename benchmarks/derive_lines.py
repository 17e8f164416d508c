"""Lines about derived versions: extend and combine, compared with plain loops and the disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from benchmarks import limit_side, recipes
from benchmarks.data import RecordSet, large_table, small_table, write_repeated
from benchmarks.lines import LARGE_ROWS, SMALL_ROWS, Line, Target
from benchmarks.timing import Side
from benchmarks.versions import NAME
from shardline import Feature, batch_udf
from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine_files import combine_files
from shardline.operations.extend import extend
from shardline.schema.tf_spec import to_tf_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from shardline.operations.transform import TransformMode

_FILES = 4
_FEW_SMALL = 2_000
_FEW_LARGE = 500
_PAIRED = 2_000
_FEW_PAIRED = 150
_BATCH = 256
_NAMES = (
    "extend: rewrite, 180-byte records",
    "extend: rewrite, 50 KB records",
    "extend: overlay, 50 KB records",
    "read: overlays through tf.data, 180-byte records",
    "read: overlays through tf.data, 50 KB records",
    "combine: 2,000 x 2,000 records of 180 bytes",
)


@batch_udf(Feature("double", "int64"), reads=["label"], code="1")
def double(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return twice the label."""
    return {"double": pc.multiply(batch["label"], 2)}


def all_lines(folder: Path, size: int, only: str = "") -> Iterator[Line]:
    """Yield every line whose name contains `only`. Its data stays in `folder` until the next."""
    makers: tuple[Callable[[str, Path, int], Line], ...] = (
        lambda name, at, room: _extending(name, at, room, "rewrite", small_table(SMALL_ROWS)),
        lambda name, at, room: _extending(name, at, room, "rewrite", large_table(LARGE_ROWS)),
        lambda name, at, room: _extending(name, at, room, "overlay", large_table(LARGE_ROWS)),
        lambda name, at, room: _reading(name, at, room, small_table(SMALL_ROWS)),
        lambda name, at, room: _reading(name, at, room, large_table(LARGE_ROWS)),
        _combining,
    )
    for name, make in zip(_NAMES, makers, strict=True):
        if only in name:
            yield make(name, folder, size)
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _base(folder: Path, size: int, table: pa.Table) -> tuple[Version, RecordSet]:
    """Append a published version of several shards, and one with a single shard per file."""
    sources = [
        write_repeated(folder / f"{number}.tfrecord", table, size // _FILES)
        for number in range(_FILES)
    ]
    version = Version(folder / "root", NAME)
    append(version, [source.path for source in sources], on_duplicate="append")
    check_version(version)
    return version, sources[0]


def _extending(name: str, folder: Path, size: int, mode: TransformMode, table: pa.Table) -> Line:
    base, source = _base(folder, size, table)
    root = folder / "root"
    records, total = base.latest().records, base.latest().bytes
    into = Version(root, "digits/v2")

    def prepare() -> None:
        nonlocal into
        _forget(root, "v2")
        into = Version(root, "digits/v2")

    def run() -> int:
        report = extend(base, double, into, mode=mode)
        _expect(report.records == records)
        return records

    prepare()
    before = _read_bytes()
    run()
    read = _read_bytes() - before
    written = sum(
        path.stat().st_size
        for path in (root / "digits/shards").glob("v2.*")
        if path.suffix != ".receipt"
    )
    large = total / records > 10_000
    few = min(_FEW_LARGE if large else _FEW_SMALL, source.records)
    targets = {
        ("rewrite", False): Target(300),
        ("rewrite", True): Target(8, 0.5),
        ("overlay", True): Target(20),
    }
    limits = (_copying(base, folder / "copy"),) if mode == "rewrite" else ()
    return Line(
        name,
        total / records,
        (recipes.add_field(source, few, folder / "recipe"),),
        limits,
        Side("extend", run, prepare=prepare),
        targets[mode, large],
        f"recipe on {few} of {records} records; read {read / total:.3f} of the base's bytes, "
        f"wrote {written / records:.1f} bytes per record",
    )


def _forget(root: Path, version: str) -> None:
    """Delete all traces of a version."""
    shutil.rmtree(root / "digits" / version, ignore_errors=True)
    for shard in (root / "digits/shards").glob(f"{version}.*"):
        shard.unlink()


def _read_bytes() -> int:
    """Return the number of bytes that this process has read from files."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar"))


def _copying(base: Version, path: Path) -> Side:
    """Copy the shards and sync the copy."""
    shards = [Path(file) for file in base.latest().files()]
    records = base.latest().records

    def run() -> int:
        with path.open("xb", buffering=0) as copy:
            for shard in shards:
                with shard.open("rb", buffering=0) as file:
                    left = shard.stat().st_size
                    while left:
                        left -= os.sendfile(copy.fileno(), file.fileno(), None, left)
            os.fsync(copy.fileno())
        return records

    return Side("cp + fsync", run, path)


def _reading(name: str, folder: Path, size: int, table: pa.Table) -> Line:
    base, _ = _base(folder, size, table)
    records = base.latest().records
    sides = {}
    for mode, version in (("overlay", "digits/v2"), ("rewrite", "digits/v3")):
        into = Version(folder / "root", version)
        extend(base, double, into, mode=mode)  # type: ignore[arg-type]
        check_version(into)
        sides[mode] = _parsing(into, records, mode)
    plain = Version(folder / "root", "digits/v3").published()
    by_hand = recipes.parse_files(plain.files(), to_tf_spec(plain.schema), _BATCH, records)
    return Line(
        name,
        base.latest().bytes / records,
        (by_hand,),
        (sides["rewrite"],),
        sides["overlay"],
        Target(of_limit=0.8),
        f"all features, in batches of {_BATCH}; the pipelines are built before",
    )


def _parsing(version: Version, records: int, what: str) -> Side:
    dataset = version.published().to_tf(batch=_BATCH)

    def run() -> int:
        count = 0
        for batch in dataset:
            count += int(batch["double"].shape[0])
        _expect(count == records)
        return records

    return Side(f"to_tf of {'overlays' if what == 'overlay' else 'plain files'}", run)


def _combining(name: str, folder: Path, size: int) -> Line:
    del size
    table = small_table(_PAIRED)
    left = write_repeated(folder / "left", table, 1)
    right = write_repeated(folder / "right", table, 1)
    out = folder / "pairs"

    def run() -> int:
        report = combine_files(
            left.path,
            right.path,
            out,
            on_collision="prefix",
            left_prefix="a_",
            right_prefix="b_",
        )
        _expect(report.records == _PAIRED * _PAIRED)
        return report.records

    run()
    written = out.stat().st_size
    with out.open("rb") as file:
        piece = file.read(4 * 1024 * 1024)
    out.unlink()
    times = written // len(piece)
    pairs = round(_PAIRED * _PAIRED * times * len(piece) / written)
    return Line(
        name,
        0,
        (recipes.pair_records(left, right, _FEW_PAIRED, folder / "recipe"),),
        (limit_side.write(folder / "limit", piece, times, pairs),),
        Side("combine_files", run, out),
        Target(60, 0.5),
        f"nested loop on {_FEW_PAIRED} x {_FEW_PAIRED}",
        "pair",
    )


def _expect(right: bool) -> None:  # noqa: FBT001 - an assertion
    if not right:
        raise RuntimeError("a side did not do the whole work, so its time says nothing")
