"""Datasets for the command: real roots on disk, whose shards are real TFRecord files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from shardline.log.append_change import Append
from shardline.log.model import Shard
from shardline.operations.check import check_version
from tests.cli.command import shardline
from tests.kernel.frames import framed
from tests.log.versions import NAME, make_version, shard_name, source_of
from tests.tfrecord.samples import example_of, flipped, read_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shardline.api import Version
    from shardline.log.entry import Entry
    from tests.cli.command import Result

FITTING = [example_of(x=number) for number in range(3)]
MISFIT = [example_of(x=1), example_of(x=1.5)]
HOSTILE = "\x1b[31mred\x1b]0;title\x07"


def land(version: Version, label: str, payloads: Sequence[bytes] = FITTING) -> Entry:
    """Append one shard with these records."""
    data, source = framed(*payloads), source_of(label)
    digest = hashlib.sha256(data).hexdigest()
    name = shard_name(label, version.log.version)
    shard = Shard(name, len(payloads), len(data), digest, source=source.key)
    version.store.create(version.shard_name(shard), data)
    entry = version.commit(Append(shards=[shard], sources=[source]))
    assert entry is not None
    return entry


def landed(root: Path, *labels: str, name: str = NAME) -> Version:
    """A version with one published snapshot for each label, three records each."""
    version = make_version(root, name)
    for label in labels:
        land(version, label)
        assert check_version(version).ok
    return version


def file_of(root: Path, label: str, name: str = NAME) -> Path:
    """Where the shard of a label lies."""
    dataset, version = name.split("/")
    return root / dataset / "shards" / shard_name(label, version)


def entry_file(root: Path, number: int, name: str = NAME) -> Path:
    """Where an entry of a log lies."""
    return root / name / "log" / f"{number:020}.json"


def damage(path: Path, bit: int = 13 * 8) -> None:
    """Flip one bit of a file: of a shard, in its first payload."""
    path.write_bytes(flipped(path.read_bytes(), bit))


def on(
    root: Path | str, *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> Result:
    """Run the command on the datasets of a root, in this process."""
    return shardline(*arguments, cwd=cwd, SHARDLINE_ROOT=str(root), **environment)


def write_rows(path: Path, numbers: Iterable[object]) -> Path:
    """A file of JSON lines whose `x` are these."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"x": number}) + "\n" for number in numbers))
    return path


def file_names(folder: Path) -> list[str]:
    """Return the names of all files in a folder, except the bytecode of imported functions."""
    return sorted(file.name for file in folder.iterdir() if file.name != "__pycache__")


def numbers_of(version: Version, which: str = "latest") -> list[int]:
    """The `x` of every record of a snapshot, as TensorFlow reads them from its files."""
    snapshot = version.find(which)
    spec = {"x": tf.io.FixedLenFeature([], tf.int64)}
    payloads = [
        payload
        for file in snapshot.files()
        for payload in read_by_tensorflow(Path(file), snapshot.compression)
    ]
    return [int(tf.io.parse_single_example(payload, spec)["x"]) for payload in payloads]


def narrow(root: Path | str, *arguments: str) -> Result:
    """Run the command where a line has 80 columns; none may be longer."""
    result = on(root, *arguments, COLUMNS="80")
    assert [line for line in result.out.splitlines() if len(line) > 80] == []
    return result


def squeezed(text: str) -> str:
    """A text without the places where lines were broken or filled up."""
    return " ".join(text.split())
