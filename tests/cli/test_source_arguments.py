"""Sources on the command line: which files are meant."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from shardline.cli.errors import UsageError
from shardline.cli.source_arguments import FORMATS, find_sources, infer_source_format
from shardline.sources import SourceFormat, open_source
from tests.cli.datasets import on, write_rows
from tests.log.versions import NAME
from tests.tfrecord.samples import made

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def filled(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        made(folder / name, b"{}\n")
    return folder


def found(folder: Path, *arguments: str, format_: str | None = None) -> list[str]:
    sources = find_sources([str(folder / one) for one in arguments], format_)
    return [Path(one).relative_to(folder).as_posix() for one in sources]


def test_the_formats_are_those_of_the_sources() -> None:
    assert set(FORMATS) == set(get_args(SourceFormat))


def test_sources_globs_and_folders_keep_repeats(tmp_path: Path) -> None:
    filled(tmp_path, "a.jsonl", "b.jsonl", "b.csv", "in/x.parquet", "in/deep/y.tfrecord.gz")
    filled(tmp_path, "in/z-00000-of-00002", "in/.hidden.csv", "in/x.tfrecord.index", "in/_SUCCESS")
    filled(tmp_path, "in/README.md", "in/.git/a.csv", "in/x.tfrecord.receipt")
    assert found(tmp_path, "*.jsonl", "a.jsonl", "in") == [
        "a.jsonl", "b.jsonl", "a.jsonl",
        "in/deep/y.tfrecord.gz", "in/x.parquet", "in/z-00000-of-00002",
    ]  # fmt: skip
    assert found(tmp_path, "in", format_="parquet") == ["in/x.parquet"]
    assert found(tmp_path, "in", format_="folder") == ["in"]
    assert found(tmp_path, "**/x.*") == ["in/x.parquet"]
    assert find_sources(["s3://bucket/a.csv"], None) == ["s3://bucket/a.csv"]


def test_a_folder_of_other_files_is_one_source(tmp_path: Path) -> None:
    filled(tmp_path, "cats/1.png", "dogs/2.png", "README.md")
    assert find_sources([str(tmp_path)], None) == [tmp_path]


AMBIGUOUS = {
    "images and a table": (("1.png", "labels.csv"), None, "mixed-files"),
    "nothing": ((), None, "no-files-found"),
    "nothing of the format": (("a.csv",), "parquet", "no-files-found"),
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_a_folder_that_may_mean_two_things_is_asked_about(tmp_path: Path, what: str) -> None:
    names, format_, code = AMBIGUOUS[what]
    filled(tmp_path, *names)
    with pytest.raises(UsageError) as caught:
        find_sources([str(tmp_path)], format_)
    problem = caught.value.problem
    assert (problem.code, problem.path) == (code, str(tmp_path))


NAMED = {
    "a.jsonl": "jsonl", "a.JSON": "jsonl", "a.ndjson.gz": "jsonl", "a.csv": "csv",
    "a.csv.gz": "csv", "a.parquet": "parquet", "a.pq": "parquet", "a.arrow": "arrow",
    "a.feather": "arrow", "a.tfrecord": "tfrecord", "a.tfrecords.gz": "tfrecord",
    "a.tfrecord-00000-of-00002": "tfrecord", "x-00000-of-00002.parquet": "parquet",
    "a.record": "tfrecord", "a.records": "tfrecord", "a.tfrec": "tfrecord", "a.tfr": "tfrecord",
    "a.Records.gz": "tfrecord", "a.record.zlib": "tfrecord", "a.tf_record": "tfrecord",
    "a.parquet.gz": None, "a.recorded": None,
    "a.png": None, "a.txt": None, "a.tfrecord.index": None, "a.tfrecord.export": None,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_a_name_tells_the_format_as_it_does_to_the_sources(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / name, b"{}\n")
    assert infer_source_format(path) == NAMED[name]
    if NAMED[name] is not None:
        by_name, by_format = open_source(path), open_source(path, format=NAMED[name])  # type: ignore[arg-type] # one of them
        assert type(by_name) is type(by_format)


def test_a_folder_of_images_becomes_records_with_path_and_label(tmp_path: Path) -> None:
    for name in ("cats/1.png", "dogs/2.png"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        made(tmp_path / "in" / name, PNG)
    root = tmp_path / "root"
    result = on(root, "append", NAME, "in", cwd=tmp_path)
    assert result.code == 0, result.err
    assert "+2 records" in result.out
    shown = on(root, "head", NAME).out
    assert '"dogs/2.png"' in shown
    assert '"cats"' in shown
    assert "png image" in shown


def test_a_folder_of_rows_is_taken_file_by_file(tmp_path: Path) -> None:
    for count, name in enumerate(("in/a.jsonl", "in/b.jsonl"), 3):
        write_rows(tmp_path / name, range(count))
    told = on(tmp_path / "root", "append", NAME, "in", "--json", cwd=tmp_path).json
    assert [Path(one["path"]).name for one in told["appended"]] == ["a.jsonl", "b.jsonl"]
