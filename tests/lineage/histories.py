"""A history with every operation, made of real files whose rows can be read again by others."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tensorflow as tf

from shardline.api import Version
from shardline.log.changes import Derive
from shardline.log.model import RECEIPT, Added, Shard
from shardline.operations.append import append
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.operations.migrate import MigrationSpec, migrate
from shardline.operations.rebuild import rebuild
from shardline.schema.schema import Feature, Schema, Text
from shardline.sidecars.receipt import Receipt
from shardline.udf import batch_udf, record_udf
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of, records_of, write_by_tensorflow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shardline.provenance.row_mapping import SourceRow

SCHEMA = Schema((Feature("id", "int64"), Feature("name", "bytes", meaning=Text())))
SMALL = 700
"""Bytes of a shard: some ten records."""


def row(number: int) -> dict[str, Any]:
    """A row that no other is."""
    return {"id": number, "name": f"größe {number * number}"}


def as_json_lines(path: Path, first: int, last: int) -> Path:
    """Rows with blank lines among them, and some that do not fit."""
    lines = []
    for number in range(first, last):
        lines += [""] * (number % 5 == 0)
        lines += ['{"id": "no number", "name": "x"}'] * (number % 7 == 0)
        lines += [json.dumps(row(number))]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_csv(path: Path, first: int, last: int) -> Path:
    """Rows with line ends in a cell, blank lines, and some that do not fit."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "name"])
        for number in range(first, last):
            if number % 6 == 0:
                writer.writerow(["none", "x"])
            if number % 11 == 0:
                file.write("\n")
            name = row(number)["name"] + ("\nand more" if number % 4 == 0 else "")
            writer.writerow([number, name])
    return path


def as_parquet(path: Path, first: int, last: int) -> Path:
    """Rows, some of which lack what is required."""
    rows = [row(number) for number in range(first, last)]
    for at in range(3, len(rows), 8):
        rows[at]["name"] = None
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    return path


def as_records(path: Path, first: int, last: int) -> Path:
    """Records as TensorFlow writes them, packed; some lack what is required."""
    payloads = [example_of(**_encoded(row(number))) for number in range(first, last)]
    for at in range(2, len(payloads), 9):
        payloads[at] = example_of(id=at)
    return write_by_tensorflow(path, payloads, "GZIP")


def _encoded(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "name": values["name"].encode()}


def read_source(found: SourceRow) -> dict[str, Any]:
    """What stands in the row of a source, read by the tools of its format."""
    path = Path(found.source.path or "")
    content = _rows_of(path)[found.row]
    if path.suffix == ".jsonl":
        assert found.where == f"line {found.row + 1}"
        told: dict[str, Any] = json.loads(content)
        return told
    if path.suffix == ".csv":
        return {"id": int(content[0]), "name": content[1]}
    if path.suffix == ".parquet":
        return dict(content)
    assert found.where == f"record {found.row}"
    features = tf.train.Example.FromString(content).features.feature
    return {
        "id": features["id"].int64_list.value[0],
        "name": features["name"].bytes_list.value[0].decode(),
    }


@cache
def _rows_of(path: Path) -> list[Any]:
    if path.suffix == ".jsonl":
        return path.read_text().split("\n")
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.reader(file))[1:]
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    return [one.numpy() for one in tf.data.TFRecordDataset(str(path), "GZIP")]


@batch_udf(Feature("double", "int64", required=False), reads=["id"], code="1")
def double(batch: pa.RecordBatch) -> dict[str, Any]:
    """Twice the id."""
    return {"double": pc.multiply(batch["id"], 2)}


@record_udf(Feature("half", "int64", required=False), reads=["id"], code="1")
def half(record: dict[str, Any]) -> dict[str, Any]:
    """Half of an id; of every tenth there is none."""
    if record["id"] % 10 == 3:
        raise ValueError("no half")
    return {"half": record["id"] // 2}


@batch_udf(Feature("wanted", "int64"), reads=["a_id", "b_id"], code="1")
def near(batch: pa.RecordBatch) -> dict[str, Any]:
    """Whether both are close."""
    distance = pc.abs(pc.subtract(batch["a_id"], batch["b_id"]))
    return {"wanted": pc.cast(pc.less(distance, 20), pa.int64())}


PREFIXES: dict[str, Any] = {
    "on_collision": "prefix",
    "left_prefix": "a_",
    "right_prefix": "b_",
    "left_snapshot": "latest",
    "right_snapshot": "latest",
}
PAIRS: dict[str, dict[str, Any]] = {
    "all": {"target_bytes": 4000},
    "one-row": {"target_bytes": 150},
    "virtual": {"mode": "virtual"},
    "where": {"where": near, "target_bytes": 4000},
    "first": {"limit": 300, "target_bytes": 4000},
    "first-where": {"limit": 50, "where": near},
    "sample": {"sample": 200, "seed": 5, "target_bytes": 4000},
    "on": {"on": {"id": "id"}, "target_bytes": 2000},
    "left": {"on": {"id": "id"}, "how": "left", "target_bytes": 2000},
}
ONCE: dict[str, dict[str, Any]] = {
    "once": {"unordered": True, "target_bytes": 6000},
    "once-rows": {"unordered": True, "target_bytes": 400},
    "once-virtual": {"unordered": True, "mode": "virtual"},
    "once-where": {"unordered": True, "where": near, "target_bytes": 6000},
}


@dataclass
class History:
    """A root in which it all happened."""

    folder: Path
    versions: list[Version] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def version(self, name: str) -> Version:
        known = {one.name: one for one in self.versions}
        if name not in known:
            self.versions.append(Version(self.root, name, run=f"run of {name}", code="abc123"))
            return self.versions[-1]
        return known[name]

    def append(
        self, name: str, write: Callable[[Path, int, int], Path], file: str, *span: int
    ) -> None:
        landing = self.folder / "landing"
        landing.mkdir(exist_ok=True)
        source = write(landing / file, *span)
        append(self.version(name), source, schema=SCHEMA, max_quarantined=0.5, target_bytes=SMALL)


def erased(version: Version, gone: Callable[[int], bool]) -> None:
    """An erasure of records by their number, as an entry tells of it."""
    added, removed, of, first = [], [], [], 0
    for place, shard in enumerate(version.latest().shards):
        payloads = records_of(Path(version.latest().files()[place]))
        lost = [at for at in range(len(payloads)) if gone(first + at)]
        first += len(payloads)
        if not lost:
            continue
        kept = [data for at, data in enumerate(payloads) if at not in lost]
        data = framed(*kept)
        made = _made(version, shard, data, len(kept))
        version.store.create(version.shard_name(made), data)
        receipt = Receipt(
            (0, len(payloads)), last=True, shard=made, refused=tuple((at, at) for at in lost)
        )
        version.store.create(version.shard_name(made) + RECEIPT, receipt.encode())
        added.append(Added(made, place))
        removed.append(shard.name)
        of.append(shard.name)
    change = Derive(
        head=version.state.snapshot,
        removed=removed,
        added=added,
        operation="erase",
        parameters={"of": of},
    )
    assert version.commit(change) is not None


def _made(version: Version, shard: Shard, data: bytes, records: int) -> Shard:
    import hashlib  # noqa: PLC0415

    digest = hashlib.sha256(data).hexdigest()
    name = f"{version.log.version}.{digest[:32]}.tfrecord"
    return Shard(name, records, len(data), digest, source=shard.source)


def lived(folder: Path) -> History:
    """A history with everything in it."""
    history = History(folder)
    base = history.version("digits/v1")
    history.append("digits/v1", as_json_lines, "a.jsonl", 0, 60)
    history.append("digits/v1", as_csv, "b.csv", 60, 100)
    rebuild(base, snapshot="latest", target_bytes=2000)
    _derive(history)
    history.append("digits/v1", as_parquet, "c.parquet", 100, 140)
    history.append("digits/v1", as_records, "d.tfrecord", 140, 180)
    rejected = base.state.snapshot
    base.reject(rejected, reason="a test")
    base.restore(rejected)
    before = base.state.snapshot
    erased(base, lambda number: number % 13 == 5)
    rebuild(base, snapshot="latest", compression="gzip", target_bytes=3000)
    _derive(history)
    history.append("digits/v1", as_json_lines, "e.jsonl", 200, 210)
    base.restore(before)
    _derive(history)
    _pair(history)
    return history


def _derive(history: History) -> None:
    """Versions that follow the first, each time it has changed."""
    base = history.version("digits/v1")
    rebuild(base, snapshot="latest", into=history.version("digits/single"))
    rebuild(base, snapshot="latest", into=history.version("digits/even"), target_bytes=1500)
    overlay, rewritten = history.version("digits/v2"), history.version("digits/v3")
    share: dict[str, Any] = {"snapshot": "latest", "max_quarantined": 0.5}
    extend(base, [half, double], overlay, **share)
    extend(overlay, _third, rewritten, mode="rewrite", **share)
    steps = MigrationSpec(rename={"name": "title"}, cast={"id": "float"})
    migrate(rewritten, steps, history.version("other/v1"), snapshot="latest")


@record_udf(Feature("third", "int64"), reads=["id"], code="1")
def _third(record: dict[str, Any]) -> dict[str, Any]:
    if record["id"] % 9 == 4:
        raise ValueError("no third")
    return {"third": record["id"] // 3}


def _pair(history: History) -> None:
    """Pairs of a small version with another, and of it with itself, each time it has changed."""
    small = history.version("small/v1")
    for span in ((300, 312), (5, 20), None, (400, 402)):
        if span is None:
            small.restore(1)
        else:
            history.append("small/v1", as_json_lines, f"s{span[0]}.jsonl", *span)
        for name, options in PAIRS.items():
            into = history.version(f"pairs/{name}")
            combine(small, history.version("digits/even"), into, **PREFIXES, **options)
        for name, options in ONCE.items():
            combine(small, small, history.version(f"pairs/{name}"), **PREFIXES, **options)


def shown(values: dict[str, Any]) -> dict[str, Any]:
    """A record of any version with the names and kinds that its source has."""
    told = {("name" if name == "title" else name): value for name, value in values.items()}
    return {
        "id": int(told["id"]),
        "name": told["name"].decode() if isinstance(told["name"], bytes) else told["name"],
    }


def sides(values: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """The records of which one is made, as their sources have them; of a pair both."""
    if "a_id" not in values and "a_name" not in values:
        return [shown(values)]
    found = []
    for prefix in ("a_", "b_"):
        side = {
            name.removeprefix(prefix): value
            for name, value in values.items()
            if name.startswith(prefix)
        }
        side.setdefault("id", values.get("id"))
        if side.get("name") is not None:
            found.append(shown(side))
    return found
