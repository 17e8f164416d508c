"""Write the corpus again: `python -m tests.fuzz.corpus`. Its files are a few kilobytes in all."""

from __future__ import annotations

import json
import math
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from shardline.api import Version
from shardline.operations.append import append
from shardline.operations.check import check_version
from shardline.operations.combine import combine
from shardline.operations.extend import extend
from shardline.schema.schema import Feature, Schema
from shardline.udf import record_udf
from tests.fuzz.harness import CORPUS
from tests.fuzz.targets.forged import FORGED
from tests.golden.environment import fixed_environment
from tests.kernel.frames import framed
from tests.tfrecord.samples import example_of

if TYPE_CHECKING:
    from pathlib import Path


ROWS = [
    {
        "id": number,
        "name": f"größe {number}" * (number % 3) or None,
        "label": f"kind {number % 2}",
        "score": math.nan if number == 4 else number / 3,
        "values": list(range(number % 4)),
    }
    for number in range(8)
]
ARROW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("label", pa.dictionary(pa.int8(), pa.string())),
        ("score", pa.float64()),
        ("values", pa.list_(pa.int32())),
    ]
)


def main() -> None:
    """Write every file of the corpus."""
    table = pa.Table.from_pylist(ROWS, ARROW_SCHEMA)
    large = table.cast(
        pa.schema(
            [
                ("id", pa.int32()),
                ("name", pa.large_string()),
                ("label", pa.binary()),
                ("score", pa.float32()),
                ("values", pa.large_list(pa.int64())),
            ]
        )
    )
    with pa.ipc.new_file(str(CORPUS / "plain.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    with pa.ipc.new_stream(str(CORPUS / "stream.ipc"), large.schema) as writer:
        writer.write_table(large)
    views = table.select(["id", "name"]).cast(
        pa.schema([("id", pa.int64()), ("name", pa.string_view())])
    )
    packed = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(str(CORPUS / "views.arrow"), views.schema, options=packed) as writer:
        writer.write_table(views)
    plain = table.set_column(2, "label", table["label"].cast(pa.string()))
    pq.write_table(plain, CORPUS / "snappy.parquet", row_group_size=5, store_schema=False)
    pq.write_table(
        plain, CORPUS / "plain.parquet", compression="none", use_dictionary=False,
        data_page_version="2.0", store_schema=False, write_statistics=False,
    )  # fmt: skip
    pq.write_table(table, CORPUS / "dictionary.parquet", compression="none")
    lines = [
        {**row, "score": None if row["score"] != row["score"] else row["score"]} for row in ROWS
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in lines)
    (CORPUS / "rows.jsonl").write_text(text)
    (CORPUS / "rows.csv").write_text(
        'id,name,x\n1,plain,2\n2,"quoted, ""twice""",3\n3,"two\nlines",\n4,größe,-0.5\n'
    )
    records = [
        example_of(id=number, name=f"n{number}".encode(), score=[number / 3], values=[1, 2])
        for number in range(4)
    ]
    (CORPUS / "records.tfrecord").write_bytes(framed(*records))
    shutil.rmtree(CORPUS / "root", ignore_errors=True)
    with fixed_environment(CORPUS):
        write_root(CORPUS / "root")


@record_udf(Feature("twice", "int64"), reads=["id"], code="1")
def twice(record: dict[str, Any]) -> dict[str, Any]:
    """Twice the id."""
    return {"twice": 2 * record["id"]}


@record_udf(Feature("half", "int64"), reads=["id"], code="1")
def half(record: dict[str, Any]) -> dict[str, Any]:
    """Half of the id."""
    return {"half": record["id"] // 2}


def write_root(root: Path) -> None:
    """Write a root whose logs have the digests of all sidecars, for `targets/forged.py`."""
    base, wide, overlay, pairs = (Version(root, name) for name in FORGED)
    schema = Schema((Feature("id", "int64"), Feature("name", "bytes")))
    bad = {"id": "none"}
    for first in (0, 6):
        rows = [{"id": number, "name": f"name {number}"} for number in range(first, first + 6)]
        source = [bad, *rows, bad]
        append(base, source, batch=f"rows {first}", schema=schema, max_quarantined=0.5)
    check_version(base)
    extend(base, twice, wide, mode="rewrite")
    extend(base, half, overlay)
    check_version(wide)
    combine(base, wide, pairs, sample=6, seed=1, on_collision="prefix", right_prefix="r_")
    for version in (overlay, pairs):
        check_version(version)


if __name__ == "__main__":
    main()
