"""TFRecord files for tests, packed by hand, zlib or TensorFlow: never by the code under test."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from shardline import kernel
from shardline.tfrecord.reader import DEFAULT_LIMITS, Limits, RecordFile
from tests.kernel.frames import framed

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[2]

bulk_needs_the_compiled_kernel = pytest.mark.skipif(
    kernel.NAME == "reference", reason="the reference kernel takes minutes for this many bytes"
)


def deflated(data: bytes, level: int = 6) -> bytes:
    """Bare deflate data."""
    packer = zlib.compressobj(level, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def gzip_member(data: bytes, *, flags: int = 0, extra: bytes = b"", level: int = 6) -> bytes:
    """One GZIP member; `extra` is what the flags say stands behind the fixed header."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(4) + b"\x00\xff" + extra
    if flags & 2:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    return head + deflated(data, level) + struct.pack("<II", zlib.crc32(data), len(data) % 2**32)


def packed(compression: str, data: bytes) -> bytes:
    """The data as a plain, GZIP or ZLIB file holds it."""
    if compression == "gzip":
        return gzip_member(data)
    return zlib.compress(data) if compression == "zlib" else data


def records_of(
    path: Path, *, limits: Limits = DEFAULT_LIMITS, block_bytes: int = 1024 * 1024
) -> list[bytes]:
    """Every payload, by our reader; raises at damage."""
    with RecordFile(path, limits=limits, block_bytes=block_bytes) as file:
        return [bytes(payload) for block in file.blocks() for payload in block.payloads()]


def made(path: Path, data: bytes) -> Path:
    """A file with this content."""
    path.write_bytes(data)
    return path


def flipped(data: bytes, bit: int) -> bytes:
    """The data with one bit flipped."""
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def is_subsequence(part: Iterable[bytes], whole: Iterable[bytes]) -> bool:
    """Whether `part` is `whole` with some left out: the same order, nothing added."""
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in part)


def write_by_tensorflow(path: Path, payloads: Iterable[bytes], compression: str = "") -> Path:
    """A file as TensorFlow writes it; `compression` is "", "GZIP" or "ZLIB"."""
    with tf.io.TFRecordWriter(str(path), compression or None) as writer:
        for payload in payloads:
            writer.write(payload)
    return path


def read_by_tensorflow(path: Path, compression: str = "") -> list[bytes]:
    """Every payload that TensorFlow finds; raises what it raises."""
    dataset = tf.data.TFRecordDataset(str(path), compression_type=compression)
    return list(dataset.as_numpy_iterator())


def example_of(**features: Any) -> bytes:  # noqa: ANN401 - whatever protobuf takes
    """An Example by protobuf: bytes, floats or ints by the type of the first value."""
    example = tf.train.Example()
    for name, values in features.items():
        listed = values if isinstance(values, list) else [values]
        _fill(example.features.feature[name], listed, _kind_of(listed))
    return bytes(example.SerializeToString(deterministic=True))


def sequence_of(context: dict[str, Any], **lists: list[list[Any]]) -> bytes:
    """A SequenceExample by protobuf."""
    example = tf.train.SequenceExample()
    for name, values in context.items():
        listed = values if isinstance(values, list) else [values]
        _fill(example.context.feature[name], listed, _kind_of(listed))
    for name, steps in lists.items():
        into = example.feature_lists.feature_list[name]
        kind = _kind_of([value for values in steps for value in values])
        for values in steps:
            _fill(into.feature.add(), values, kind)
    return bytes(example.SerializeToString(deterministic=True))


def _kind_of(values: list[Any]) -> str:
    return {float: "float_list", bytes: "bytes_list"}.get(type((values or [0])[0]), "int64_list")


def _fill(feature: Any, values: list[Any], kind: str) -> None:  # noqa: ANN401 - a protobuf message
    getattr(feature, kind).SetInParent()
    getattr(feature, kind).value.extend(values)


def big_file(path: Path, size: int, payload: bytes) -> Path:
    """A plain file of about `size` bytes, made quickly: the same frames again and again."""
    block = framed(*[payload] * max(1, 2**20 // (len(payload) + 16)))
    with path.open("wb") as file:
        for _ in range(max(1, size // len(block))):
            file.write(block)
    return path


_PROBE = """
import resource, sys
sys.argv = sys.argv[1:]
from shardline.cli.app import main
try:
    main(standalone_mode=True)
except SystemExit as end:
    code = end.code
print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, code, file=sys.stderr)
"""


def peak_of_command(*arguments: str | Path) -> tuple[int, int | None, str]:
    """The peak memory in bytes, the exit code and the output of `shardline ARGUMENTS`.

    The kernel counts what a child inherits at its start into its peak, so a small process lies
    between us, who may be large, and the one that is measured.
    """
    command = [sys.executable, "-c", _PROBE, "shardline", *map(str, arguments)]
    outer = (
        "import subprocess, sys; "
        "r = subprocess.run(sys.argv[1:], capture_output=True, text=True); "
        "print(r.stdout, end=''); print(r.stderr, end='', file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", outer, *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    line = next(line for line in result.stderr.splitlines() if line.startswith("PEAK"))
    _, peak, code = line.split()
    return int(peak) * _MAXRSS_UNIT, None if code == "None" else int(code), result.stdout


_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


def own_peak() -> int:
    """The peak memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
