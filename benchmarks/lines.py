"""Lines about files: the same work by TensorFlow, by the limit and by Shardline."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

import shardline
from benchmarks import limit_side, tensorflow_side
from benchmarks.data import (
    MEGABYTE,
    SMALL_COLUMNS,
    RecordSet,
    flip_bits,
    frames_of,
    large_table,
    small_table,
    write_repeated,
)
from benchmarks.timing import TURN_SECONDS, Figure, Side, best_rates, fastest
from shardline import kernel
from shardline.execution.threads import run_tasks
from shardline.kernel.columns import decode_columns
from shardline.operations.example_file import BATCH_BYTES
from shardline.tfrecord.reader import RecordFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shardline.kernel.types import IntArray

SMALL_ROWS = 32 * 1024
LARGE_ROWS = 256
_SLOW_SHARE = 8
_SLOWEST_SHARE = 64
_FLIP_EVERY = MEGABYTE


@dataclass(frozen=True, slots=True)
class Target:
    """Minimum ratios of Shardline's speed, if any are set."""

    over_tensorflow: float | None = None
    of_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """Work and the sides that do it. The fastest side of each kind counts.

    `unit` names what is counted instead of records. Then `record_bytes` is 0.
    """

    name: str
    record_bytes: float
    tensorflow: tuple[Side, ...]
    limit: tuple[Side, ...]
    ours: Side
    target: Target = Target()
    remark: str = ""
    unit: str = "rec"


@dataclass(frozen=True, slots=True)
class Row:
    """Measured line. `sides` has the figures of all sides, including slower ones."""

    name: str
    record_bytes: float
    tensorflow: Figure | None
    limit: Figure | None
    ours: Figure
    target: Target
    remark: str
    sides: tuple[Figure, ...]
    unit: str = "rec"

    @property
    def over_tensorflow(self) -> float | None:
        """Return the speed relative to TensorFlow."""
        return _ratio(self.ours, self.tensorflow)

    @property
    def of_limit(self) -> float | None:
        """Return the speed relative to the limit."""
        return _ratio(self.ours, self.limit)

    @property
    def met(self) -> bool | None:
        """Return True if both ratios reach their targets, None without targets."""
        pairs = (
            (self.over_tensorflow, self.target.over_tensorflow),
            (self.of_limit, self.target.of_limit),
        )
        judged = [(ratio or 0) >= wanted for ratio, wanted in pairs if wanted is not None]
        return all(judged) if judged else None


def _ratio(ours: Figure, other: Figure | None) -> float | None:
    return None if other is None else ours.records_per_second / other.records_per_second


def measure(line: Line, rounds: int, turn_seconds: float = TURN_SECONDS) -> Row:
    """Time every side of a line."""
    rates = best_rates([*line.tensorflow, *line.limit, line.ours], rounds, turn_seconds)
    return Row(
        line.name,
        line.record_bytes,
        fastest(line.tensorflow, rates),
        fastest(line.limit, rates),
        Figure(line.ours.what, rates[line.ours]),
        line.target,
        line.remark,
        tuple(Figure(side.what, rate) for side, rate in rates.items()),
        line.unit,
    )


def all_lines(folder: Path, megabytes: int) -> Iterator[Line]:
    """Yield every line. Each uses `folder` until the next is requested."""
    size = megabytes * MEGABYTE
    for make in (_verify, _features, _encode, _gzip, _salvage):
        yield from make(folder, size)
        for path in folder.iterdir():
            path.unlink()


def _verify(folder: Path, size: int) -> Iterator[Line]:
    rows = small_rows(size)
    small = write_repeated(folder / "small", small_table(rows), size)
    few = write_repeated(folder / "few", small_table(rows), size // _SLOW_SHARE)
    large = write_repeated(folder / "large", large_table(min(LARGE_ROWS, rows)), size)
    for name, source, for_tensorflow, target in (
        ("verify, 180-byte records", small, few, Target(50, 0.7)),
        ("verify, 50 KB records", large, large, Target(4, 0.7)),
    ):
        yield Line(
            name,
            source.bytes / source.records,
            (tensorflow_side.read(for_tensorflow),),
            limit_side.read_with_crc(source),
            Side("verify_file", _verifier(source)),
            target,
            _share_remark(for_tensorflow, source),
        )


def _features(folder: Path, size: int) -> Iterator[Line]:
    table = small_table(small_rows(size))
    source = write_repeated(folder / "small", table, size // 2)
    few = write_repeated(folder / "few", table, size // _SLOW_SHARE)
    blocks = _blocks(source)
    data = [block for block, _, _ in blocks]
    file_parsing = tensorflow_side.parse_file(few)
    memory_parsing = tensorflow_side.parse_memory(_payloads(few))
    record_bytes = source.bytes / source.records
    remark = _share_remark(few, source)

    # TensorFlow parses a batch on all cores, so our kernel gets a thread per core as well.
    def facts() -> int:
        for _ in run_tasks(lambda block: kernel.facts(*block), blocks):
            pass
        return source.records

    def decode() -> int:
        batches = run_tasks(lambda block: decode_columns(*block, SMALL_COLUMNS), blocks)
        return sum(batch.num_rows for batch in batches)

    from_file = limit_side.read_with_crc(source)
    target = Target(10)
    yield Line(
        "facts, all features, in memory",
        record_bytes,
        memory_parsing,
        (limit_side.pass_over(data, source.records),),
        Side("kernel.facts on threads", facts),
        target,
        remark,
    )
    yield Line(
        "facts, all features, from file",
        record_bytes,
        file_parsing,
        from_file,
        Side("infer_schema", lambda: shardline.files.infer_schema([source.path]).merged.records),
        target,
        remark,
    )
    yield Line(
        "decode to Arrow, in memory",
        record_bytes,
        memory_parsing,
        (limit_side.copy_memory(data, source.records),),
        Side("decode_columns on threads", decode),
        target,
        remark,
    )
    yield Line(
        "decode to Arrow, from file",
        record_bytes,
        file_parsing,
        from_file,
        Side("read_examples", _example_reader(source)),
        target,
        remark,
    )


def _encode(folder: Path, size: int) -> Iterator[Line]:
    table = small_table(small_rows(size))
    frames = frames_of(table)
    times = max(1, round(size / 4 / len(frames)))
    records = times * table.num_rows
    many = pa.concat_tables([table] * times).combine_chunks()
    few = table.slice(0, max(1, records // _SLOW_SHARE))
    out = folder / "ours"
    yield Line(
        "encode from Arrow and write",
        len(frames) / table.num_rows,
        (tensorflow_side.write_table(folder / "tensorflow", few),),
        (limit_side.write(folder / "limit", frames, times, records),),
        Side("write_examples", lambda: shardline.files.write_examples(out, many), out),
        Target(30),
        f"TensorFlow on {few.num_rows} of {records} records, rates per record",
    )


def _gzip(folder: Path, size: int) -> Iterator[Line]:
    plain = write_repeated(folder / "plain", small_table(small_rows(size)), size // _SLOW_SHARE)
    frames = plain.path.read_bytes()
    payloads = _payloads(plain)
    packed = folder / "packed"
    with gzip.open(packed, "wb", compresslevel=6) as file:
        file.write(frames)
    source = RecordSet(packed, plain.records, plain.bytes)
    record_bytes = plain.bytes / plain.records
    reading = (tensorflow_side.read(source, "GZIP"),)
    writing = (tensorflow_side.write_payloads(folder / "tensorflow", payloads, "GZIP"),)
    out = folder / "ours"
    ours = Side(
        "write_records",
        lambda: shardline.files.write_records(out, payloads, compression="gzip"),
        out,
    )
    verify = Side("verify_file", _verifier(source))
    for name, limit in (
        ("GZIP verify", limit_side.unpack_with_isal(source)),
        ("GZIP verify, beside stdlib", limit_side.unpack_with_stdlib(source)),
    ):
        yield Line(name, record_bytes, reading, (limit,), verify)
    sizes = _packed_sizes(ours, packed, plain)
    for name, limit in (
        ("GZIP write", limit_side.pack_with_isal(folder / "isal", frames, plain.records)),
        (
            "GZIP write, beside stdlib",
            limit_side.pack_with_stdlib(folder / "stdlib", frames, plain.records),
        ),
    ):
        yield Line(name, record_bytes, writing, (limit,), ours, remark=sizes)


def _packed_sizes(ours: Side, packed: Path, plain: RecordSet) -> str:
    ours.run()
    if ours.scratch is None:
        return ""
    size = ours.scratch.stat().st_size
    ours.scratch.unlink()
    return (
        f"packed to {size / plain.bytes:.1%} by us, to {packed.stat().st_size / plain.bytes:.1%} "
        "by zlib level 6"
    )


def _salvage(folder: Path, size: int) -> Iterator[Line]:
    rows = small_rows(size)
    out = folder / "ours"
    for name, table in (
        ("salvage, 180-byte records", small_table(rows)),
        ("salvage, 50 KB records", large_table(min(LARGE_ROWS, rows))),
    ):
        source = write_repeated(folder / "damaged", table, size)
        flips = flip_bits(source.path, _FLIP_EVERY)
        lost = source.records - shardline.files.salvage(source.path, out).recovered
        out.unlink()
        yield Line(
            name,
            source.bytes / source.records,
            (),
            limit_side.copy_file(source, folder / "limit"),
            Side("salvage", _salvager(source, out, lost), out),
            remark=f"{flips} flipped bits cost {lost} of {source.records} records",
        )


def _verifier(source: RecordSet) -> Callable[[], int]:
    def run() -> int:
        report = shardline.files.verify_file(source.path)
        _expect(report.ok and report.records == source.records, source.path)
        return report.records

    return run


def _salvager(source: RecordSet, out: Path, lost: int) -> Callable[[], int]:
    def run() -> int:
        recovered = shardline.files.salvage(source.path, out).recovered
        _expect(recovered + lost == source.records, source.path)
        return source.records

    return run


def _example_reader(source: RecordSet) -> Callable[[], int]:
    def run() -> int:
        batches = shardline.files.read_examples(source.path, SMALL_COLUMNS)
        return sum(batch.num_rows for batch in batches)

    return run


def _expect(right: bool, path: Path) -> None:  # noqa: FBT001 - an assertion
    if not right:
        raise RuntimeError(f"{path}: a side did not do the whole work, so its time says nothing")


def small_rows(size: int) -> int:
    """Return the number of distinct records, fewer if the smallest file has fewer."""
    return max(1, min(SMALL_ROWS, size // _SLOWEST_SHARE // 180))


def _blocks(source: RecordSet) -> list[tuple[bytes, IntArray, IntArray]]:
    with RecordFile(source.path, block_bytes=BATCH_BYTES) as file:
        return [(bytes(block.data), block.starts, block.lengths) for block in file.blocks()]


def _payloads(source: RecordSet) -> list[bytes]:
    with RecordFile(source.path) as file:
        return [bytes(payload) for block in file.blocks() for payload in block.payloads()]


def _share_remark(few: RecordSet, source: RecordSet) -> str:
    if few.records == source.records:
        return ""
    return f"TensorFlow on {few.records} of {source.records} records, rates per record"
