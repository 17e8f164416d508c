"""Rows over the limit: an error that names them, in bounded memory, before they are read whole."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardline import Feature, Limits, Schema, Version
from shardline.errors import InvalidRecordsError, ShardlineError
from shardline.operations.append import append
from shardline.sources.csv_source import find_row_ends
from shardline.sources.text_blocks import get_max_text_row_bytes
from shardline.tfrecord.reader import DEFAULT_LIMITS
from tests.errors import raises

ROOT = Path(__file__).parents[2]
KB, MB = 2**10, 2**20
LIMIT = 64 * KB
SMALL = Limits(max_record_bytes=LIMIT)
SCHEMA = Schema((Feature("name", "bytes"),))
SHORT = '{"name": "x"}\n'


def write_long_line(path: Path, before: str, start: str, size: int) -> Path:
    """Write a GZIP file with a row of so many bytes, in kilobytes."""
    with gzip.open(path, "wb", 6) as file:
        file.write((before + start).encode())
        for _ in range(size // MB):
            file.write(b"a" * MB)
    return path


@pytest.mark.parametrize(
    ("name", "before", "start"),
    [
        ("long.jsonl.gz", SHORT * 2, '{"name": "'),
        ("long.csv.gz", "name\nx\ny\n", ""),
        ("open-quote.csv.gz", "name\nx\ny\n", '"a\n'),
    ],
)
def test_append_long_line_names_row_and_limit(
    tmp_path: Path, name: str, before: str, start: str
) -> None:
    path = write_long_line(tmp_path / name, before, start, MB)
    with raises(InvalidRecordsError, "record-too-large", record=2, offset=len(before)) as caught:
        append(Version(tmp_path, "a/v1"), path, schema=SCHEMA, limits=SMALL)
    assert caught.value.path == str(path)
    assert str(get_max_text_row_bytes(SMALL)) in caught.value.message
    assert "max_record" in str(caught.value.hint)


def test_longest_row_is_at_most_the_default_limit_or_the_given_one() -> None:
    default = DEFAULT_LIMITS.max_record_bytes
    assert get_max_text_row_bytes(DEFAULT_LIMITS) == default
    assert get_max_text_row_bytes(SMALL) == 8 * LIMIT
    assert get_max_text_row_bytes(Limits(max_record_bytes=3 * default)) == 3 * default


PEAK = """
import resource, sys
from pathlib import Path
from shardline import Feature, Limits, Schema, Version
from shardline.operations.append import append
from shardline.errors import ShardlineError
from shardline.sources.parquet_source import close_idle_decoders
root, path, limit = sys.argv[1:]
schema = Schema((Feature("name", "bytes"),))
append(Version(root, "a/v0"), [{"name": "x"}], schema=schema, batch="imports")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = None
try:
    within = Limits(max_record_bytes=int(limit))
    append(Version(root, "a/v1"), Path(path), schema=schema, limits=within)
except ShardlineError as error:
    code = error.code
close_idle_decoders()
growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(code, growth // 1024, child // 1024)
"""
BETWEEN = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)"
"""The kernel counts what a child inherits into its peak: a small process lies between."""


def peak_of_append(folder: Path, path: Path) -> tuple[str, int, int]:
    """Return the code of the error, the growth in megabytes, and the peak of children."""
    done = subprocess.run(
        [sys.executable, "-c", BETWEEN, "-c", PEAK, str(folder), str(path), str(LIMIT)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    code, growth, child = done.stdout.split()
    return code, int(growth), int(child)


@pytest.mark.parametrize("name", ["long.jsonl.gz", "long.csv.gz"])
def test_append_long_line_takes_bounded_memory(tmp_path: Path, name: str) -> None:
    start = "name\n" if ".csv" in name else '{"name": "'
    path = write_long_line(tmp_path / name, "", start + '"a\n' * (".csv" in name), 64 * MB)
    assert path.stat().st_size < MB
    code, growth, _ = peak_of_append(tmp_path, path)
    assert code == "record-too-large"
    assert growth < 60


def test_parquet_row_over_the_limit_raises(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"name": ["x", "y" * (9 * LIMIT), "z"]}), path)
    with raises(InvalidRecordsError, "record-too-large", record=1, path=str(path)) as caught:
        append(Version(tmp_path, "a/v1"), path, schema=SCHEMA, limits=SMALL)
    assert "max_record" in str(caught.value.hint)


def test_parquet_values_that_repeat_take_bounded_memory(tmp_path: Path) -> None:
    """A dictionary of one value of 256 KiB, for 16,384 rows: 4 GiB if it is expanded."""
    path = tmp_path / "repeated.parquet"
    value = pa.DictionaryArray.from_arrays(
        pa.array([0] * 16384, pa.int32()), pa.array(["a" * 256 * KB])
    )
    pq.write_table(pa.table({"name": value}), path, store_schema=False)
    assert path.stat().st_size < MB
    code, growth, child = peak_of_append(tmp_path, path)
    assert code == "record-too-large"
    assert growth < 100
    assert child < 1600


def test_arrow_body_of_claimed_size_raises(tmp_path: Path) -> None:
    path = tmp_path / "claims.arrow"
    table = pa.table({"name": ["x" * 100] * 50})
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(path), table.schema, options=packed) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    claimed = (5000).to_bytes(8, "little")
    assert claimed in data
    path.write_bytes(data.replace(claimed, (2**40).to_bytes(8, "little")))
    with pytest.raises(ShardlineError) as caught:
        append(Version(tmp_path, "a/v1"), path, schema=SCHEMA)
    assert caught.value.code in {"record-too-large", "invalid-source", "corrupt-columns"}
    assert caught.value.path == str(path)


def test_folder_file_over_the_limit_raises(tmp_path: Path) -> None:
    folder = tmp_path / "files" / "a"
    folder.mkdir(parents=True)
    (folder / "large").write_bytes(bytes(LIMIT + 1))
    with raises(InvalidRecordsError, "record-too-large", record=0):
        append(Version(tmp_path, "a/v1"), tmp_path / "files", format="folder", limits=SMALL)


def test_row_ends_of_pieces_agree_with_a_single_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'a,b\n1,"x\ny"\n2,"say ""hi""\n"\n\n"",3\n4,z\n' * 7
    whole = find_row_ends(text).tolist()
    assert len(whole) == 7 * 6
    for size in range(1, 40):
        monkeypatch.setattr("shardline.sources.csv_source._PIECE_BYTES", size)
        assert find_row_ends(text).tolist() == whole


def test_json_lines_behind_a_long_line_still_land(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text(SHORT + json.dumps({"name": "y" * 9 * LIMIT}) + "\n" + SHORT)
    version = Version(tmp_path, "a/v1")
    report = append(version, path, schema=SCHEMA, limits=SMALL, max_quarantined=0.5)
    assert (report.records, report.quarantined_rows) == (2, 1)
