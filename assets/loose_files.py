"""The demo's starting point: a folder of loose TFRecord files, plain and GZIP."""

import hashlib
from pathlib import Path
from typing import Literal

import dagster as dg
import numpy as np
import pyarrow as pa

import shardline

RECORDS_PER_FILE = 1000
EMBEDDING_SIZE = 8
FILES: dict[str, Literal["none", "gzip"]] = {
    "reviews-0.tfrecord": "none",
    "reviews-1.tfrecord": "none",
    "reviews-2.tfrecord.gz": "gzip",
    "reviews-3.tfrecord.gz": "gzip",
}
COLUMNS = dg.TableSchema(
    columns=[
        dg.TableColumn("id", "int64", description="unique over all files"),
        dg.TableColumn("label", "int64", description="0 to 9"),
        dg.TableColumn("text", "bytes", description="a short sentence, UTF-8"),
        dg.TableColumn("embedding", f"float[{EMBEDDING_SIZE}]"),
    ]
)


class DemoFolder(dg.ConfigurableResource[Path]):
    """Where the demo keeps its files; a relative path starts at the working directory."""

    path: str = ".demo"

    @property
    def root(self) -> Path:
        """The folder itself, absolute."""
        return Path(self.path).resolve()

    @property
    def loose_files(self) -> list[Path]:
        """The files that the asset of the same name writes."""
        return [self.root / "loose_files" / name for name in FILES]


def reviews(first_id: int, records: int) -> pa.Table:
    """Make up records; the same arguments always give the same ones."""
    random = np.random.default_rng(first_id)
    labels = random.integers(0, 10, records)
    embedding = random.standard_normal(records * EMBEDDING_SIZE, dtype=np.float32)
    sentences = [f"review {first_id + i} gives {label} of 9" for i, label in enumerate(labels)]
    return pa.table(
        {
            "id": pa.array(np.arange(first_id, first_id + records)),
            "label": pa.array(labels),
            "text": pa.array([sentence.encode() for sentence in sentences], pa.binary()),
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(embedding), EMBEDDING_SIZE),
        }
    )


@dg.asset(group_name="demo", kinds={"tfrecord"})
def loose_files(demo_folder: DemoFolder) -> dg.MaterializeResult[None]:
    """A few thousand small Examples in plain and GZIP TFRecord files."""
    paths = demo_folder.loose_files
    digest = hashlib.sha256()
    records = 0
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        table = reviews(records, RECORDS_PER_FILE)
        records += shardline.write_examples(
            path, table, compression=FILES[path.name], overwrite=True
        )
        digest.update(path.read_bytes())
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": records,
            "dagster/column_schema": COLUMNS,
            "files": len(paths),
            "bytes": sum(path.stat().st_size for path in paths),
            "folder": dg.MetadataValue.path(paths[0].parent),
        },
        data_version=dg.DataVersion(digest.hexdigest()),
    )
